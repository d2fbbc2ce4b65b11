//! Disks that an update brings: never somebody else's, and not there before they are full.

use serde_json::{Value, json};

use super::super::fixtures::{Filled, Object, disk};
use super::super::snapshot::{Remembered, build};
use super::super::supervise::Actor as _;
use super::follow::{GET_VM, PATCH, edited_to, instance, member, old_spec};
use super::played::{api_server, shared, task};
use crate::plan::{Limits, Member};

const DATA_VOLUME: &str = "GET datavolumes/web-1-data";
const CLAIM: &str = "GET persistentvolumeclaims/web-1-data";

/// The old spec with a disk more.
fn with_a_disk() -> Value {
    let mut spec = old_spec();
    spec["dataVolumeTemplates"] = json!([{"metadata": {"name": "data"}, "spec": {}}]);
    let volumes = json!([{"name": "data", "dataVolume": {"name": "data"}}]);
    spec["template"]["spec"]["volumes"] = volumes;
    spec
}

fn edited() -> Filled {
    let vm = member("web-1", &old_spec());
    edited_to(with_a_disk(), 1, 1).vm(vm).vmi(instance("web-1"))
}

fn of_vm(disk: Object, uid: &str) -> Object {
    let mut disk = disk.owned_by("kubevirt.io/v1", "VirtualMachine", "web-1", uid);
    disk.0["metadata"]["ownerReferences"][0]["controller"] = true.into();
    disk
}

fn in_phase(disk: Object, phase: &str) -> Object {
    disk.set("/status", json!({"phase": phase}))
}

fn seen(filled: Filled) -> Member {
    let caches = filled.done();
    let pools = caches.pools.all();
    let pool = pools[0].object.clone().unwrap();
    let limits = Limits { burst: 250 };
    let view = build(&caches, &pools[0], &pool, &Remembered::default(), limits);
    view.snapshot.members[0].clone()
}

#[test]
fn nr_06_a_disk_that_an_update_would_bring_is_its_own_or_none() {
    let data = || disk("web-1-data");
    let name = |kind: &str| Some(format!("{kind} web-1-data"));
    for (what, filled, taken) in [
        ("no disk", edited(), None),
        ("nobody's", edited().data_volume(data()), name("DataVolume")),
        (
            "another's",
            edited().data_volume(of_vm(data(), "uid-other")),
            name("DataVolume"),
        ),
        (
            "its own",
            edited()
                .data_volume(of_vm(data(), "uid-web-1"))
                .claim(data()),
            None,
        ),
        (
            "its own, going away",
            edited().data_volume(of_vm(data(), "uid-web-1").deleting()),
            name("DataVolume"),
        ),
        (
            "nobody's claim",
            edited().claim(data()),
            name("PersistentVolumeClaim"),
        ),
    ] {
        assert_eq!(seen(filled).taken_disk, taken, "{what}");
    }
}

#[test]
fn a_disk_fills_until_it_is_as_full_as_kubevirt_waits_for() {
    let with = |phase: &str| {
        let vm = member("web-1", &with_a_disk());
        let mut vm = vm.set("/spec/dataVolumeTemplates", json!([]));
        vm.0["spec"]["dataVolumeTemplates"] = json!([{"metadata": {"name": "web-1-data"}}]);
        let filled = edited_to(with_a_disk(), 1, 1).vm(vm);
        let data = of_vm(disk("web-1-data"), "uid-web-1");
        match phase {
            "no DataVolume" => filled,
            "a claim alone" => filled.claim(data),
            _ => filled.data_volume(in_phase(data, phase)),
        }
    };
    for (phase, is_filling) in [
        ("no DataVolume", true),
        ("", true),
        ("ImportInProgress", true),
        ("Failed", true),
        ("Succeeded", false),
        ("WaitForFirstConsumer", false),
        ("PendingPopulation", false),
        ("a claim alone", false),
    ] {
        assert_eq!(seen(with(phase)).is_filling, is_filling, "{phase}");
    }
}

#[test]
fn no_disk_is_waited_for_that_is_made_at_the_next_start() {
    let vm = member("web-1", &with_a_disk());
    let mut vm = vm.set(
        "/spec/dataVolumeTemplates",
        json!([{"metadata": {"name": "web-1-data"}}]),
    );
    assert!(seen(edited_to(with_a_disk(), 1, 1).vm(vm.clone())).is_filling);
    vm.0["metadata"]["annotations"]["kubevirt.io/immediate-data-volume-creation"] = "false".into();
    assert!(!seen(edited_to(with_a_disk(), 1, 1).vm(vm)).is_filling);
}

#[tokio::test]
async fn nr_06_the_api_server_is_asked_before_a_disk_is_brought() {
    // The cache doesn't show the stranger's disk.
    let (client, calls) = api_server(|call, _| match call {
        GET_VM => Some((200, member("web-1", &old_spec()).0)),
        DATA_VOLUME => Some((200, disk("web-1-data").0)),
        _ => None,
    });
    let mut theirs = task(&shared(client, edited().done()));
    theirs.pass().await;
    let made = calls.take();
    assert!(made.contains(&CLAIM.to_owned()), "{made:?}");
    assert!(!made.contains(&PATCH.to_owned()), "{made:?}");
    let failures = format!("{:?}", theirs.remembered.failures);
    let expected = "DataVolume web-1-data exists already and is not web-1's own";
    assert!(failures.contains(expected), "{failures}");

    let (client, calls) = api_server(|call, _| match call {
        GET_VM => Some((200, member("web-1", &old_spec()).0)),
        PATCH => Some((200, member("web-1", &with_a_disk()).version(200).0)),
        _ => None,
    });
    task(&shared(client, edited().done())).pass().await;
    let made = calls.take();
    assert!(made.contains(&PATCH.to_owned()), "{made:?}");
}
