//! Disks and claims: made, missing, late, claimed, adopted.

use std::time::Duration;

use dev::standin::Options;
use serde_json::json;

use crate::world::{World, disk, vm};

/// What the garbage collector may take to hear of an owner: it has a watch of its own for each
/// kind, so that the end of an owner can reach it before those that it owned.
const COLLECTOR: Duration = Duration::from_secs(3);

#[tokio::test(flavor = "multi_thread")]
async fn disks_are_made_claimed_and_adopted() {
    let world = World::start(Options {
        wait_for_first_consumer: vec!["late".to_owned()],
        ..Options::default()
    })
    .await;
    world.namespace("a").await;
    missing_and_late_claims(&world).await;
    disks_are_claimed_and_adopted(&world).await;
}

async fn missing_and_late_claims(world: &World) {
    eprintln!("missing and late claims");
    let mut wanting = vm("a", "wanting", "Always");
    wanting["spec"]["template"]["spec"]["volumes"] =
        json!([{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]);
    world.apply(&wanting);
    world.until_shows("a", "wanting", "ErrorPvcNotFound").await;
    world.apply(&json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"namespace": "a", "name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"],
                 "resources": {"requests": {"storage": "1Gi"}}},
    }));
    world.until_ready("a", "wanting").await;

    let mut late = vm("a", "late", "Halted");
    disk(&mut late, "late-root");
    late["spec"]["dataVolumeTemplates"][0]["spec"]["storage"]["storageClassName"] = json!("late");
    world.apply(&late);
    world
        .until(("dv", "a", "late-root"), |dv| {
            dv["status"]["phase"] == "WaitForFirstConsumer"
        })
        .await;
    world.standin.start_vm("a", "late").await.unwrap();
    world.until_ready("a", "late").await;
    world.kubectl(&["delete", "vm", "-n", "a", "--all", "--wait=true"]);
    world.kubectl(&["delete", "pvc", "-n", "a", "data", "--wait=true"]);
}

async fn disks_are_claimed_and_adopted(world: &World) {
    eprintln!("claims of disks");
    let mut keeper = vm("a", "keeper", "Halted");
    disk(&mut keeper, "kept");
    world.apply(&keeper);
    let dv = world
        .until(("dv", "a", "kept"), |dv| {
            dv["status"]["phase"] == "Succeeded"
        })
        .await;
    tokio::time::sleep(COLLECTOR).await;
    // The VM goes, its disk stays without owner.
    world.kubectl(&["delete", "vm", "-n", "a", "keeper", "--cascade=orphan"]);
    let orphan = world.get("dv", "a", "kept");
    assert!(orphan["metadata"]["ownerReferences"].is_null());
    // A second owner is lost when the VM comes back: claiming replaces the list.
    world.kubectl(&["create", "configmap", "-n", "a", "holder"]);
    let holder = world.get("configmap", "a", "holder")["metadata"]["uid"].clone();
    let patch = json!([{"op": "add", "path": "/metadata/ownerReferences", "value": [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": "holder", "uid": holder}]}])
    .to_string();
    let args = ["patch", "dv", "-n", "a", "kept", "--type=json", "-p"];
    world.kubectl(&[&args[..], &[&patch]].concat());
    world.apply(&keeper);
    let claimed = world
        .until(("dv", "a", "kept"), |dv| {
            dv["metadata"]["ownerReferences"][0]["name"] == "keeper"
        })
        .await;
    assert_eq!(claimed["metadata"]["uid"], dv["metadata"]["uid"]);
    assert_eq!(
        claimed["metadata"]["ownerReferences"]
            .as_array()
            .unwrap()
            .len(),
        1
    );

    // Only the claim is left: CDI adopts it.
    tokio::time::sleep(COLLECTOR).await;
    let args = ["delete", "dv", "-n", "a", "kept", "--cascade=orphan"];
    let claim = world.get("pvc", "a", "kept");
    world.kubectl(&args);
    let adopted = world
        .until(("pvc", "a", "kept"), |pvc| {
            pvc["metadata"]["ownerReferences"][0]["uid"].is_string()
                && pvc["metadata"]["ownerReferences"][0]["uid"] != dv["metadata"]["uid"]
        })
        .await;
    assert_eq!(adopted["metadata"]["uid"], claim["metadata"]["uid"]);
    world.kubectl(&["delete", "vm", "-n", "a", "keeper", "--wait=true"]);
    world.until_gone("pvc", "a", "kept").await;
}
