//! Updates and restarts, against a played API server: what is read before, what is written, and what is made
//! of answers that are no success.

use serde_json::{Value, json};

use super::super::fixtures::{Filled, Object, caches, config, pool, revision, vm, vmi};
use super::super::supervise::{Actor as _, Next};
use super::played::{STATUS, VMS, api_server, shared, status, task};
use crate::api::{annotations, labels};
use crate::plan::Kind;
use crate::stamp::{PoolInputs, StampMark, revision_hash, revision_name};

/// The spec before the config was edited.
pub(super) fn old_spec() -> Value {
    json!({"runStrategy": "Always", "template": {"spec": {"domain": {}}}})
}

pub(super) fn new_spec() -> Value {
    let mut spec = old_spec();
    spec["template"]["spec"]["hostname"] = json!("new");
    spec
}

fn mark(spec: &Value) -> StampMark {
    let inputs = PoolInputs {
        vm_prefix: "web".to_owned(),
        ..PoolInputs::default()
    };
    StampMark::new(&revision_hash(spec.as_object().unwrap()), &inputs)
}

fn name_of(spec: &Value) -> String {
    revision_name("desktop", &revision_hash(spec.as_object().unwrap()))
}

/// A running member whose object is at `of`.
pub(super) fn member(name: &str, of: &Value) -> Object {
    let mut vm = vm(name).owner("web", "uid-web").member_of("uid-web");
    vm.0["spec"] = of.clone();
    vm.0["metadata"]["annotations"][annotations::STAMP] = mark(of).to_annotation().into();
    vm.0["metadata"]["generation"] = json!(2);
    vm.0["status"] = json!({"desiredGeneration": 2});
    vm.label(labels::REVISION, &name_of(of))
}

/// One whose object is at the new spec and whose instance has to be restarted.
pub(super) fn due(name: &str) -> Object {
    let mut vm = member(name, &new_spec());
    vm.0["status"]["conditions"] = json!([{"type": "RestartRequired", "status": "True"}]);
    vm
}

/// Its instance, started from the old spec and Ready.
pub(super) fn instance(name: &str) -> Object {
    let mut vmi = vmi(name);
    vmi.0["metadata"]["annotations"] = json!({annotations::STAMP_HASH: mark(&old_spec()).hash});
    vmi.0["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
    vmi.label(labels::REVISION, &name_of(&old_spec()))
}

/// A pool whose config has been edited.
pub(super) fn edited(replicas: u32, unavailable: u32) -> Filled {
    edited_to(new_spec(), replicas, unavailable)
}

/// The same, to this.
pub(super) fn edited_to(spec: Value, replicas: u32, unavailable: u32) -> Filled {
    let owned = |spec, number| {
        let revision = revision("desktop", spec, number);
        revision.owned_by(
            "vmpool.dev/v1alpha1",
            "VirtualMachinePool",
            "web",
            "uid-web",
        )
    };
    let pool = pool("web", "uid-web").replicas(replicas);
    caches()
        .pool(pool.set("/spec/maxUnavailable", unavailable.into()))
        .config(config("desktop", spec.clone()))
        .revision(owned(old_spec(), 1))
        .revision(owned(spec, 2))
}

pub(super) const GET_VM: &str = "GET virtualmachines/web-1";
pub(super) const GET_VMI: &str = "GET virtualmachineinstances/web-1";
pub(super) const PATCH: &str = "PATCH virtualmachines/web-1";
pub(super) const RESTART: &str = "PUT virtualmachines/web-1/restart";

fn one_outdated() -> Filled {
    let vm = member("web-1", &old_spec());
    edited(1, 1).vm(vm).vmi(instance("web-1"))
}

pub(super) fn one_due() -> Filled {
    edited(1, 1).vm(due("web-1")).vmi(instance("web-1"))
}

#[tokio::test]
async fn an_update_is_a_read_and_one_patch_with_preconditions() {
    let (client, calls) = api_server(|call, _| match call {
        GET_VM => Some((200, member("web-1", &old_spec()).0)),
        PATCH => Some((200, member("web-1", &new_spec()).version(200).0)),
        _ => None,
    });
    let mut task = task(&shared(client, one_outdated().done()));
    assert_eq!(task.pass().await, Next::AtOnce);
    let patch = calls.bodies(PATCH)[0].clone();
    assert_eq!(
        patch[0],
        json!({"op": "test", "path": "/metadata/uid", "value": "uid-web-1"})
    );
    assert_eq!(
        patch[1],
        json!({"op": "test", "path": "/metadata/resourceVersion", "value": "100"})
    );
    let hostname = json!({"op": "add", "path": "/spec/template/spec/hostname", "value": "new"});
    assert!(patch.as_array().unwrap().contains(&hostname), "{patch:#}");
    assert_eq!(calls.take(), [STATUS, GET_VM, PATCH]);
    // The cache doesn't show it: it is not done again, and nobody else is taken meanwhile.
    task.pass().await;
    let again = calls.take();
    assert!(!again.contains(&PATCH.to_owned()), "{again:?}");
}

#[tokio::test]
async fn a_vm_that_changed_meanwhile_is_left_to_the_next_pass() {
    let (client, calls) = api_server(|call, nth| match (call, nth) {
        (GET_VM, 1) => Some((200, member("web-1", &old_spec()).0)),
        (GET_VM, _) => Some((200, member("web-1", &old_spec()).version(150).0)),
        (PATCH, 1) => Some((422, status(422, "Invalid", "the test failed"))),
        (PATCH, _) => Some((200, member("web-1", &new_spec()).version(200).0)),
        _ => None,
    });
    let mut task = task(&shared(client, one_outdated().done()));
    let next = task.pass().await;
    assert!(
        matches!(next, Next::At(_)),
        "soon, and no failure: {next:?}"
    );
    assert_eq!(calls.take(), [STATUS, GET_VM, PATCH, GET_VM]);
    task.pass().await;
    let again = calls.take();
    assert!(again.contains(&PATCH.to_owned()), "{again:?}");
}

#[tokio::test]
async fn another_vm_of_that_name_or_a_busy_one_is_not_touched() {
    for live in [
        member("web-1", &old_spec()).uid("another"),
        member("web-1", &old_spec()).deleting(),
        member("web-1", &old_spec()).set("/status/snapshotInProgress", "s".into()),
        member("web-1", &old_spec()).set("/metadata/ownerReferences", json!([])),
    ] {
        static LIVE: std::sync::Mutex<Value> = std::sync::Mutex::new(Value::Null);
        *LIVE.lock().unwrap() = live.version(150).0;
        let (client, calls) = api_server(|call, _| match call {
            GET_VM => Some((200, LIVE.lock().unwrap().clone())),
            _ => None,
        });
        let mut task = task(&shared(client, one_outdated().done()));
        task.pass().await;
        assert_eq!(calls.take(), [STATUS, GET_VM]);
    }
}

#[tokio::test]
async fn a_refused_update_is_a_failure_that_is_said_and_tried_again_later() {
    let (client, calls) = api_server(|call, _| match call {
        GET_VM => Some((200, member("web-1", &old_spec()).0)),
        PATCH => Some((422, status(422, "Invalid", "virt-api says no"))),
        _ => None,
    });
    let mut task = task(&shared(client, one_outdated().done()));
    task.pass().await;
    let failure = task.remembered.failures[&Kind::Update].clone();
    assert_eq!(failure.reason, "FailedUpdate");
    assert!(
        failure.message.contains("virt-api says no"),
        "{}",
        failure.message
    );
    calls.take();
    task.pass().await;
    assert_eq!(calls.take(), [""; 0], "not before its time");
}

#[tokio::test]
async fn m115_a_restart_looks_first_and_is_not_repeated_on_a_stale_cache() {
    let (client, calls) = api_server(|call, _| match call {
        GET_VM => Some((200, due("web-1").0)),
        GET_VMI => Some((200, instance("web-1").0)),
        RESTART => Some((202, Value::Null)),
        _ => None,
    });
    let mut task = task(&shared(client, one_due().done()));
    assert_eq!(task.pass().await, Next::AtOnce);
    assert_eq!(calls.bodies(RESTART), [json!({})]);
    let mut made = calls.take();
    made.sort();
    assert_eq!(made, [GET_VMI, GET_VM, STATUS, RESTART]);
    for _ in 0..10 {
        task.pass().await;
    }
    let again = calls.take();
    assert!(!again.contains(&RESTART.to_owned()), "{again:?}");
}

#[tokio::test]
async fn an_instance_that_ends_already_is_not_restarted_again() {
    let (client, calls) = api_server(|call, _| match call {
        GET_VM => Some((200, due("web-1").0)),
        GET_VMI => Some((200, instance("web-1").uid("another").0)),
        _ => None,
    });
    let mut task = task(&shared(client, one_due().done()));
    task.pass().await;
    let made = calls.take();
    assert!(!made.contains(&RESTART.to_owned()), "{made:?}");
    task.pass().await;
    assert!(
        !calls.take().contains(&GET_VMI.to_owned()),
        "the cache will show it"
    );
}

#[tokio::test]
async fn m40_after_a_failed_restart_none_is_tried_in_that_pass_and_it_is_said() {
    let (client, calls) = api_server(|call, _| {
        let (verb, place) = call.split_once(' ')?;
        let (kind, name) = place.split_once('/')?;
        match (verb, kind) {
            ("GET", "virtualmachines") => Some((200, due(name).0)),
            ("GET", "virtualmachineinstances") => Some((200, instance(name).0)),
            ("PUT", _) => Some((500, status(500, "InternalError", "virt-api is down"))),
            _ => None,
        }
    });
    let names = ["web-1", "web-2", "web-3"];
    let filled = names.iter().fold(edited(3, 3), |all, name| {
        all.vm(due(name)).vmi(instance(name))
    });
    let mut task = task(&shared(client, filled.done()));
    assert_eq!(task.pass().await, Next::AtOnce);
    let puts = |calls: Vec<String>| calls.iter().filter(|call| call.starts_with("PUT")).count();
    let events = calls.bodies("POST events");
    assert!(
        events
            .iter()
            .any(|event| event["reason"] == "FailedRestart"),
        "{events:#?}"
    );
    assert_eq!(puts(calls.take()), 1);
    assert_eq!(task.remembered.failed_updates.len(), 1);
    task.pass().await;
    let written = calls.bodies(STATUS);
    let said = written
        .iter()
        .any(|status| status.to_string().contains("FailedRestart"));
    assert!(said || written.is_empty(), "{written:#?}");
    assert_eq!(puts(calls.take()), 0, "not before its time");
}

#[tokio::test]
async fn a_guest_that_ended_by_itself_or_whose_node_is_lost_is_not_restarted() {
    for phase in ["Succeeded", "Failed", "Unknown"] {
        static PHASE: std::sync::Mutex<&str> = std::sync::Mutex::new("");
        *PHASE.lock().unwrap() = phase;
        let (client, calls) = api_server(|call, _| match call {
            GET_VM => Some((200, due("web-1").0)),
            GET_VMI => {
                let live = instance("web-1").set("/status/phase", (*PHASE.lock().unwrap()).into());
                Some((200, live.0))
            }
            RESTART => Some((202, Value::Null)),
            _ => None,
        });
        let mut task = task(&shared(client, one_due().done()));
        task.pass().await;
        let made = calls.take();
        assert!(made.contains(&GET_VMI.to_owned()), "{phase}: {made:?}");
        assert!(!made.contains(&RESTART.to_owned()), "{phase}: {made:?}");
    }
}

#[tokio::test]
async fn a_restart_that_is_refused_to_one_vm_stops_no_other() {
    let (client, calls) = api_server(|call, _| {
        let (verb, place) = call.split_once(' ')?;
        let (kind, name) = place.split_once('/')?;
        match (verb, kind) {
            ("GET", "virtualmachines") => Some((200, due(name).0)),
            ("GET", "virtualmachineinstances") => Some((200, instance(name).0)),
            ("PUT", _) if name == "web-1/restart" => {
                Some((409, status(409, "Conflict", "VM is not running")))
            }
            ("PUT", _) => Some((202, Value::Null)),
            _ => None,
        }
    });
    let names = ["web-1", "web-2", "web-3"];
    let filled = names.iter().fold(edited(3, 3), |all, name| {
        all.vm(due(name)).vmi(instance(name))
    });
    let mut task = task(&shared(client, filled.done()));
    task.pass().await;
    let made = calls.take();
    for name in names {
        let put = format!("PUT virtualmachines/{name}/restart");
        assert!(made.contains(&put), "{put}: {made:?}");
    }
}

#[tokio::test]
async fn two_kinds_of_deed_that_fail_in_turn_are_both_held_back() {
    let (client, calls) = api_server(|call, _| match call {
        GET_VM => Some((200, due("web-1").0)),
        GET_VMI => Some((200, instance("web-1").0)),
        RESTART => Some((500, status(500, "InternalError", "virt-api is down"))),
        VMS => Some((403, status(403, "Forbidden", "exceeded quota: vms"))),
        _ => None,
    });
    let filled = edited(2, 2).vm(due("web-1")).vmi(instance("web-1"));
    let mut task = task(&shared(client, filled.done()));
    assert_eq!(task.pass().await, Next::AtOnce, "it is to be said");
    let held: Vec<Kind> = task.remembered.failures.keys().copied().collect();
    assert_eq!(held, [Kind::Create, Kind::Restart]);
    calls.take();
    for _ in 0..5 {
        let next = task.pass().await;
        assert!(matches!(next, Next::At(_)), "{next:?}");
        let made = calls.take();
        let tried = |call: &String| call == RESTART || call == VMS;
        assert!(!made.iter().any(tried), "{made:?}");
    }
}

#[tokio::test]
async fn halted_members_are_written_and_stay_as_their_user_left_them() {
    let stopped = || member("web-1", &old_spec()).set("/spec/runStrategy", "Halted".into());
    let filled = edited(1, 1).vm(stopped());
    let (client, calls) = api_server(|call, _| match call {
        GET_VM => {
            let stopped = member("web-1", &old_spec());
            Some((200, stopped.set("/spec/runStrategy", "Halted".into()).0))
        }
        _ => None,
    });
    let mut task = task(&shared(client, filled.done()));
    task.pass().await;
    let patch = calls.bodies(PATCH)[0].to_string();
    assert!(
        patch.contains("hostname") && !patch.contains("runStrategy"),
        "{patch}"
    );
}

#[tokio::test]
async fn a_template_that_was_put_back_gets_the_targets_content_again() {
    // The VM's own label and mark stay at the target; the template is another revision's, with that one's label.
    fn put_back() -> Object {
        let mut vm = member("web-1", &new_spec());
        vm.0["spec"] = old_spec();
        vm.0["spec"]["template"]["metadata"]["labels"][labels::REVISION] =
            name_of(&old_spec()).into();
        vm
    }
    let (client, calls) = api_server(|call, _| match call {
        GET_VM => Some((200, put_back().0)),
        PATCH => Some((200, member("web-1", &new_spec()).version(200).0)),
        _ => None,
    });
    let filled = edited(1, 1).vm(put_back()).vmi(instance("web-1"));
    task(&shared(client, filled.done())).pass().await;
    let patch = calls.bodies(PATCH)[0].clone();
    let hostname = json!({"op": "add", "path": "/spec/template/spec/hostname", "value": "new"});
    assert!(patch.as_array().unwrap().contains(&hostname), "{patch:#}");
}
