//! Nodes fill and get lost; and what lasts is not written to.

use std::time::Duration;

use dev::audit::Filter;
use dev::standin::{NodeSpec, Options};
use serde_json::{Value, json};

use crate::world::{World, disk, vm};

#[tokio::test(flavor = "multi_thread")]
async fn nodes_fill_and_rest_writes_nothing() {
    let world = World::start(Options {
        nodes: vec![NodeSpec::new("n1").label("zone", "a"), NodeSpec::new("n2")],
        ..Options::default()
    })
    .await;
    world.namespace("a").await;
    nodes_fill_and_get_lost(&world).await;
    nothing_is_written_at_rest(&world).await;
}

async fn nodes_fill_and_get_lost(world: &World) {
    eprintln!("nodes");
    world.standin.set_capacity(Some(1));
    let mut placed = vm("a", "placed", "Always");
    placed["spec"]["template"]["spec"]["nodeSelector"] = json!({"zone": "a"});
    world.apply(&placed);
    world.until_ready("a", "placed").await;
    assert_eq!(world.get("vmi", "a", "placed")["status"]["nodeName"], "n1");
    world.apply(&vm("a", "second", "Always"));
    world.until_shows("a", "second", "ErrorUnschedulable").await;
    world.standin.set_capacity(None);
    world.until_ready("a", "second").await;

    world.standin.lose_node("n1").await.unwrap();
    let lost = |vm: &Value| {
        vm["status"]["printableStatus"] == "Running" && vm["status"]["ready"].is_null()
    };
    world.until(("vm", "a", "placed"), lost).await;
    world.standin.restore_node("n1").await.unwrap();
    world.until_ready("a", "placed").await;
    world.kubectl(&["delete", "vm", "-n", "a", "--all", "--wait=true"]);
}

/// Each kind of state that lasts, and no write while it does.
async fn nothing_is_written_at_rest(world: &World) {
    eprintln!("rest");
    let mut halted = vm("a", "r-halted", "Halted");
    disk(&mut halted, "r-halted-root");
    let mut secret = vm("a", "r-secret", "Always");
    secret["spec"]["template"]["spec"]["volumes"] =
        json!([{"name": "s", "secret": {"secretName": "absent"}}]);
    let mut claim = vm("a", "r-claim", "Always");
    claim["spec"]["template"]["spec"]["volumes"] =
        json!([{"name": "d", "persistentVolumeClaim": {"claimName": "absent"}}]);
    let mut nowhere = vm("a", "r-nowhere", "Always");
    nowhere["spec"]["template"]["spec"]["nodeSelector"] = json!({"zone": "none"});
    let mut image = vm("a", "r-image", "Always");
    image["spec"]["template"]["metadata"]["annotations"] =
        json!({"standin.vmpool.dev/image-error": "ErrImagePull"});
    for object in [&halted, &secret, &claim, &nowhere, &image] {
        world.apply(object);
    }
    world.apply(&vm("a", "r-running", "Always"));
    for (vm, status) in [
        ("r-halted", "Stopped"),
        ("r-secret", "Starting"),
        ("r-claim", "ErrorPvcNotFound"),
        ("r-nowhere", "ErrorUnschedulable"),
        ("r-image", "ErrImagePull"),
        ("r-running", "Running"),
    ] {
        world.until_shows("a", vm, status).await;
    }
    world.until_ready("a", "r-running").await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let audit = world.plane.audit();
    let mark = audit.mark();
    tokio::time::sleep(Duration::from_secs(4)).await;
    audit.settle().await;
    let writes = audit.since(mark, &Filter::new().user("admin")).unwrap();
    assert!(writes.is_empty(), "{writes:#?}");
    world.kubectl(&["delete", "vm", "-n", "a", "--all", "--wait=true"]);
}
