//! Starts the real control plane once and does to it what the tests of vmpool rely on.

use std::path::Path;
use std::time::{Duration, Instant};

use dev::audit::Filter;
use dev::controlplane::{ControlPlane, Options};

/// Whether a process with this id exists, and is more than an entry that waits to be collected.
fn is_alive(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_control_plane_serves_records_survives_a_restart_and_leaves_nothing() {
    let started = Instant::now();
    let plane = ControlPlane::start(Options::default()).await.unwrap();
    eprintln!("started in {:?}", started.elapsed());
    let started = Instant::now();
    dev::crds::install(&plane.admin()).await.unwrap();
    eprintln!("crds in {:?}", started.elapsed());

    let kubectl = plane.kubectl();
    let mark = plane.audit().mark();
    kubectl
        .run_ok(&["create", "configmap", "c", "--from-literal=a=b"])
        .unwrap();
    plane.audit().settle().await;
    let created = Filter::new()
        .user("admin")
        .verb("create")
        .resource("configmaps");
    assert_eq!(
        plane.audit().count_since(mark, &created.name("c")).unwrap(),
        1
    );
    for short_name in ["vm", "vmi", "dv"] {
        kubectl.run_ok(&["get", short_name]).unwrap();
    }

    let pids = plane.pids();
    assert_eq!(pids.len(), 3);
    let started = Instant::now();
    plane.restart_apiserver().await.unwrap();
    eprintln!("restarted in {:?}", started.elapsed());
    let read = kubectl.run_ok(&["get", "configmap", "c", "-o", "jsonpath={.data.a}"]);
    assert_eq!(read.unwrap(), "b");

    let dir = plane.dir().to_path_buf();
    let mut all = plane.pids();
    all.extend(pids);
    plane.stop();
    assert_eq!(all.iter().filter(|pid| is_alive(**pid)).count(), 0);
    assert!(!Path::new(&dir).exists());
    tokio::time::sleep(Duration::from_millis(1)).await;
}
