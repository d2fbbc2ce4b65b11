//! Late CRDs, restarts on either side, and hundreds of VMs.

use std::time::{Duration, Instant};

use dev::controlplane::{ControlPlane, Options as PlaneOptions};
use dev::standin::{Options, Standin};
use serde_json::{Value, json};

use crate::world::{PATIENCE, World, disk, has_condition, ready_reason, vm};

#[tokio::test(flavor = "multi_thread")]
async fn it_waits_for_crds_survives_restarts_and_carries_hundreds() {
    let plane = ControlPlane::start(PlaneOptions::default()).await.unwrap();
    let options = Options {
        combine_writes: true,
        live_update: true,
        ..Options::default()
    };
    let standin = Standin::start(plane.admin(), options.clone())
        .await
        .unwrap();
    standin.ready().await;
    dev::crds::install_kubevirt(&plane.admin()).await.unwrap();
    let world = World { plane, standin };
    world.namespace("a").await;
    crds_come_late_and_cpus_live(&world).await;
    hundreds_of_halted_vms(&world).await;
    let world = nothing_starts_anew_after_restarts(world, options).await;

    let deleted = Instant::now();
    world.kubectl(&["delete", "vm", "-n", "a", "--all", "--wait=false"]);
    eprintln!("all asked to go in {:?}", deleted.elapsed());
    while !world.list("vm", "a").is_empty() {
        assert!(deleted.elapsed() < 2 * PATIENCE);
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    eprintln!("all gone in {:?}", deleted.elapsed());
}

async fn crds_come_late_and_cpus_live(world: &World) {
    let mut early = vm("a", "early", "Always");
    early["spec"]["template"]["spec"]["domain"]["cpu"] = json!({"sockets": 1});
    world.apply(&early);
    world.until_ready("a", "early").await;
    early["spec"]["template"]["spec"]["domain"]["cpu"]["sockets"] = json!(2);
    world.apply(&early);
    world
        .until(("vmi", "a", "early"), |vmi| {
            vmi["status"]["currentCPUTopology"]["sockets"] == 2
        })
        .await;
    let live = world.get("vm", "a", "early");
    assert!(!has_condition(&live, "RestartRequired", "True"));

    let mut disked = vm("a", "disked", "Always");
    disk(&mut disked, "disked-root");
    world.apply(&disked);
    let failing = |vm: &Value| has_condition(vm, "Failure", "True");
    world.until(("vm", "a", "disked"), failing).await;
    dev::crds::install_cdi(&world.plane.admin()).await.unwrap();
    let vm_with_disk = world.until_ready("a", "disked").await;
    assert!(!failing(&vm_with_disk));
}

async fn hundreds_of_halted_vms(world: &World) {
    let many: Vec<String> = (0..300)
        .map(|i| vm("a", &format!("h-{i}"), "Halted").to_string())
        .collect();
    let (applied, cpu) = (Instant::now(), cpu_milliseconds());
    world.plane.kubectl().apply(&many.join("\n---\n")).unwrap();
    eprintln!("300 applied in {:?}", applied.elapsed());
    let last = world.until_shows("a", "h-299", "Stopped").await;
    assert_eq!(ready_reason(&last), Some("VMINotExists"));
    let used = cpu_milliseconds() - cpu;
    eprintln!("last halted in {:?}, {used} ms of CPU", applied.elapsed());
    let halted = |world: &World| {
        let vms = world.list("vm", "a");
        let stopped = |vm: &&Value| vm["status"]["printableStatus"] == "Stopped";
        vms.iter().filter(stopped).count()
    };
    while halted(world) < 300 {
        assert!(applied.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// A restarted API server, then a restarted stand-in.
async fn nothing_starts_anew_after_restarts(world: World, options: Options) -> World {
    let early = world.get("vmi", "a", "early")["metadata"]["uid"].clone();
    world.plane.restart_apiserver().await.unwrap();
    world.apply(&vm("a", "after", "Always"));
    world.until_ready("a", "after").await;
    let World { plane, standin } = world;
    standin.stop().await;
    let standin = Standin::start(plane.admin(), options).await.unwrap();
    standin.ready().await;
    let world = World { plane, standin };
    world.apply(&vm("a", "last", "Always"));
    world.until_ready("a", "last").await;
    assert_eq!(world.get("vmi", "a", "early")["metadata"]["uid"], early);
    let history = world.standin.history();
    assert!(history.iter().all(|record| record.vm == "last"));
    world
}

/// What this process, which is the stand-in and little more, has used so far; 0 but on Linux.
fn cpu_milliseconds() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let ticks = after_name.split_whitespace().skip(11).take(2);
    // User and system time, in ticks of 10 ms.
    ticks
        .filter_map(|ticks| ticks.parse::<u64>().ok())
        .sum::<u64>()
        * 10
}
