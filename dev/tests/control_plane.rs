//! Starts the real control plane once and does to it what the tests of vmpool rely on.

#![allow(
    clippy::unwrap_used,
    reason = "clippy.toml allows it in tests, which it does not take the helpers of tests for"
)]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use dev::audit::Filter;
use dev::controlplane::{ControlPlane, KEEP_ENV, Options, client};
use dev::proxy::{Action, Answer, FaultProxy, Rule};
use futures::{AsyncBufReadExt, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams, PostParams, WatchParams};
use kube::core::WatchEvent;
use kube::{Client, ResourceExt};

const SOON: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread")]
async fn a_control_plane_serves_records_survives_a_crash_and_leaves_nothing() {
    let plane = ControlPlane::start(Options::default()).await.unwrap();
    let pids = plane.pids();
    assert_eq!(pids.len(), 3);

    installs_crds_that_can_come_in_any_order(&plane).await;
    records_writes_by_user(&plane).await;
    collects_what_a_deleted_owner_leaves(&plane).await;
    injects_faults_between_a_service_account_and_the_api_server(&plane).await;
    keeps_what_was_written_when_the_api_server_crashes(&plane).await;

    let mut all = plane.pids();
    assert_ne!(all, pids, "the API server is another process now");
    all.extend(pids);
    let dir = plane.dir().to_path_buf();
    plane.stop();
    if std::env::var_os(KEEP_ENV).is_some() {
        return;
    }
    assert!(!all.iter().any(|pid| is_alive(*pid)));
    assert!(!dir.exists());
}

/// Whether a process with this id exists, and is more than an entry that waits to be collected.
fn is_alive(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

async fn installs_crds_that_can_come_in_any_order(plane: &ControlPlane) {
    let kubectl = plane.kubectl();
    dev::crds::install_cdi(&plane.admin()).await.unwrap();
    assert!(!kubectl.run(&["get", "vm"]).unwrap().success);
    dev::crds::install_kubevirt(&plane.admin()).await.unwrap();
    for short_name in ["vm", "vmi", "dv"] {
        kubectl.run_ok(&["get", short_name]).unwrap();
    }
}

async fn records_writes_by_user(plane: &ControlPlane) {
    let (audit, kubectl) = (plane.audit(), plane.kubectl());
    let mark = audit.mark();
    kubectl
        .run_ok(&["create", "configmap", "recorded", "--from-literal=a=b"])
        .unwrap();
    let alice = plane.user_kubeconfig("alice", Some("staff")).unwrap();
    let refused = kubectl
        .with_kubeconfig(&alice)
        .run(&["delete", "configmap", "recorded"])
        .unwrap();
    assert!(refused.stderr.contains("Forbidden"), "{refused:?}");
    audit.settle().await;
    let count = |filter| audit.count_since(mark, &filter).unwrap();
    let by_admin = Filter::new().user("admin").resource("configmaps");
    assert_eq!(count(by_admin.verb("create").name("recorded")), 1);
    let by_alice = Filter::new().user("alice");
    assert_eq!(count(by_alice.clone()), 0);
    let failed = audit.since(mark, &by_alice.with_failures()).unwrap();
    assert_eq!(failed.len(), 1);
    assert_eq!(failed[0].response_status.code, 403);
    assert!(failed[0].user.groups.contains(&"staff".to_owned()));
}

/// The kinds of CRDs too, for which the garbage collector must have been started again.
async fn collects_what_a_deleted_owner_leaves(plane: &ControlPlane) {
    plane.restart_controller_manager().await.unwrap();
    let kubectl = plane.kubectl();
    kubectl
        .apply(
            "{apiVersion: cdi.kubevirt.io/v1beta1, kind: DataVolume, \
             metadata: {name: owner, namespace: default}}",
        )
        .unwrap();
    let uid = ["get", "dv", "owner", "-o", "jsonpath={.metadata.uid}"];
    let uid = kubectl.run_ok(&uid).unwrap();
    kubectl
        .apply(&format!(
            "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: owned, namespace: default, \
             ownerReferences: [{{apiVersion: cdi.kubevirt.io/v1beta1, kind: DataVolume, \
             name: owner, uid: {uid}}}]}}}}"
        ))
        .unwrap();
    kubectl.run_ok(&["delete", "dv", "owner"]).unwrap();
    let gone = ["wait", "--for=delete", "configmap/owned", "--timeout=20s"];
    kubectl.run_ok(&gone).unwrap();
}

async fn service_account_behind(plane: &ControlPlane, proxy: &FaultProxy) -> Client {
    let kubectl = plane.kubectl();
    kubectl.run_ok(&["create", "serviceaccount", "sa"]).unwrap();
    let binding = ["create", "clusterrolebinding", "sa", "--clusterrole=edit"];
    let subject = ["--serviceaccount=default:sa"];
    kubectl
        .run_ok(&[&binding[..], &subject[..]].concat())
        .unwrap();
    let kubeconfig: PathBuf = plane
        .service_account_kubeconfig("default", "sa", Some(proxy.url()))
        .await
        .unwrap();
    let (mut config, _) = client(Path::new(&kubeconfig)).await.unwrap();
    config.default_retry = false;
    Client::try_from(config).unwrap()
}

fn config_map(name: &str) -> ConfigMap {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.to_owned());
    map
}

async fn injects_faults_between_a_service_account_and_the_api_server(plane: &ControlPlane) {
    let proxy = FaultProxy::start(plane).unwrap();
    let client = service_account_behind(plane, &proxy).await;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let create = async |name: &str| maps.create(&PostParams::default(), &config_map(name)).await;

    let busy = Rule::answer(Answer::too_many_requests(7))
        .method("POST")
        .times(1);
    let busy = proxy.add(busy.path_end("/configmaps"));
    let kube::Error::Api(status) = create("busy").await.unwrap_err() else {
        panic!("an API error was expected");
    };
    assert_eq!((status.code, busy.hits()), (429, 1));
    create("busy").await.unwrap();

    let dropped = proxy.add(Rule::new(Action::DropRequest).writes());
    create("dropped").await.unwrap_err();
    dropped.remove();
    let lost = proxy.add(Rule::new(Action::LoseAnswer).writes());
    create("lost").await.unwrap_err();
    lost.remove();
    assert!(maps.get_opt("dropped").await.unwrap().is_none());
    assert!(maps.get_opt("lost").await.unwrap().is_some());
    let posts = proxy.requests(&http::Method::POST, "/configmaps");
    let posts: Vec<_> = posts
        .iter()
        .map(|post| (post.faults.clone(), post.status))
        .collect();
    let expected: [(Vec<&str>, Option<u16>); 4] = [
        (vec!["answer"], Some(429)),
        (vec![], Some(201)),
        (vec!["drop request"], None),
        (vec!["lose answer"], None),
    ];
    assert_eq!(posts, expected);

    let hold = proxy.add(Rule::new(Action::HoldRequest).writes());
    let created = tokio::time::timeout(Duration::from_millis(300), create("held"));
    assert!(created.await.is_err(), "it was not held");
    hold.remove();
    watches_through(plane, &proxy, client).await;
}

/// Creates a ConfigMap past the proxy.
fn create_past(plane: &ControlPlane, name: &str) {
    plane
        .kubectl()
        .run_ok(&["create", "configmap", name])
        .unwrap();
}

async fn watches_through(plane: &ControlPlane, proxy: &FaultProxy, client: Client) {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let list = maps.list(&ListParams::default()).await.unwrap();
    let version = list.metadata.resource_version.unwrap();
    let watch = async || maps.watch(&WatchParams::default(), &version).await.unwrap();

    let hold = proxy.add(Rule::new(Action::HoldWatch { after: 1 }).times(1));
    let mut events = std::pin::pin!(watch().await);
    create_past(plane, "first");
    create_past(plane, "second");
    let mut next = async || tokio::time::timeout(SOON, events.try_next()).await;
    let name = |event| match event {
        Ok(Ok(Some(WatchEvent::Added(map)))) => ConfigMap::name_any(&map),
        other => panic!("an added object was expected: {other:?}"),
    };
    assert_eq!(name(next().await), "first");
    assert_eq!(hold.hits(), 1);
    hold.release();
    assert_eq!(name(next().await), "second");

    let expire = proxy.add(Rule::new(Action::ExpireWatch { after: 1 }).times(1));
    let mut events = std::pin::pin!(watch().await);
    assert!(matches!(
        events.try_next().await,
        Ok(Some(WatchEvent::Added(_)))
    ));
    let Ok(Some(WatchEvent::Error(expired))) = events.try_next().await else {
        panic!("an error event was expected");
    };
    assert_eq!((expired.code, expire.hits()), (410, 1));
    expire.remove();

    let after = usize::MAX;
    let cleanly = false;
    let cut = proxy.add(Rule::new(Action::CutWatch { after, cleanly }));
    let request =
        format!("/api/v1/namespaces/kube-system/configmaps?watch=1&resourceVersion={version}");
    let request = http::Request::get(request).body(Vec::new()).unwrap();
    let mut lines = std::pin::pin!(client.request_stream(request).await.unwrap().lines());
    cut.fire();
    let end = tokio::time::timeout(SOON, lines.try_next()).await.unwrap();
    assert!(end.is_err(), "{end:?}");
    proxy.clear();
}

async fn keeps_what_was_written_when_the_api_server_crashes(plane: &ControlPlane) {
    let started = Instant::now();
    plane.restart_apiserver().await.unwrap();
    eprintln!("the API server was back in {:?}", started.elapsed());
    let read = ["get", "configmap", "recorded", "-o", "jsonpath={.data.a}"];
    assert_eq!(plane.kubectl().run_ok(&read).unwrap(), "b");
}
