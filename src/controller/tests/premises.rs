//! What a plan went by is looked at once more right before it is acted on, on the API server.

use std::sync::Mutex;

use serde_json::{Value, json};

use super::super::fixtures::{Filled, Object};
use super::super::supervise::Actor as _;
use super::follow::{
    GET_VM, GET_VMI, PATCH, RESTART, due, edited, instance, member, old_spec, one_due,
};
use super::played::{api_server, shared, status, task};
use crate::api::annotations;

/// What the API server has.
static VM: Mutex<Value> = Mutex::new(Value::Null);
static VMI: Mutex<Value> = Mutex::new(Value::Null);
/// The tests here share it.
static ONE_AT_A_TIME: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// Calls of a pass on these caches against an API server that has other objects.
async fn calls(filled: Filled, vm: Object, vmi: Object) -> Vec<String> {
    let _turn = ONE_AT_A_TIME.lock().await;
    *VM.lock().unwrap() = vm.0;
    *VMI.lock().unwrap() = vmi.0;
    let (client, calls) = api_server(|call, _| match call {
        GET_VM => Some((200, VM.lock().unwrap().clone())),
        GET_VMI => Some((200, VMI.lock().unwrap().clone())),
        RESTART => Some((202, Value::Null)),
        _ => None,
    });
    task(&shared(client, filled.done())).pass().await;
    calls.take()
}

fn protected(mut vm: Object) -> Object {
    vm.0["metadata"]["annotations"][annotations::PROTECTED] = "scale-in,update".into();
    vm.version(150)
}

#[tokio::test]
async fn a_member_that_was_started_or_protected_meanwhile_is_not_written() {
    let stopped = || member("web-1", &old_spec()).set("/spec/runStrategy", "Halted".into());
    let manual = |requests: Value| {
        let manual = member("web-1", &old_spec()).set("/spec/runStrategy", "Manual".into());
        manual.set("/status/stateChangeRequests", requests)
    };
    let started = manual(json!([{"action": "Start"}])).version(150);
    for (what, cached, live, is_written) in [
        ("as it was", stopped(), stopped(), true),
        (
            "runs",
            stopped(),
            member("web-1", &old_spec()).version(150),
            false,
        ),
        ("protected", stopped(), protected(stopped()), false),
        (
            "as it was, Manual",
            manual(json!([])),
            manual(json!([])),
            true,
        ),
        ("started", manual(json!([])), started, false),
    ] {
        let made = calls(edited(1, 1).vm(cached), live, instance("web-1")).await;
        assert!(made.contains(&GET_VM.to_owned()), "{what}: {made:?}");
        assert_eq!(
            made.contains(&PATCH.to_owned()),
            is_written,
            "{what}: {made:?}"
        );
    }
}

#[tokio::test]
async fn a_member_that_was_protected_or_written_anew_meanwhile_is_not_restarted() {
    let mut put_back = member("web-1", &old_spec()).version(150);
    put_back.0["status"]["conditions"] = json!([{"type": "RestartRequired", "status": "True"}]);
    for (what, live, is_restarted) in [
        ("as it was", due("web-1"), true),
        ("protected", protected(due("web-1")), false),
        ("of another stamp", put_back, false),
    ] {
        let made = calls(one_due(), live, instance("web-1")).await;
        assert!(made.contains(&GET_VMI.to_owned()), "{what}: {made:?}");
        assert_eq!(
            made.contains(&RESTART.to_owned()),
            is_restarted,
            "{what}: {made:?}"
        );
    }
}

#[tokio::test]
async fn who_was_down_when_chosen_and_is_ready_by_now_is_not_restarted() {
    let starting = || {
        let starting = instance("web-1").set("/status/phase", "Scheduling".into());
        starting.set("/status/conditions", json!([]))
    };
    for (what, live, is_restarted) in [("down", starting(), true), ("up", instance("web-1"), false)]
    {
        let made = calls(
            edited(1, 1).vm(due("web-1")).vmi(starting()),
            due("web-1"),
            live,
        )
        .await;
        assert!(made.contains(&GET_VMI.to_owned()), "{what}: {made:?}");
        assert_eq!(
            made.contains(&RESTART.to_owned()),
            is_restarted,
            "{what}: {made:?}"
        );
    }
}

#[tokio::test]
async fn an_instance_is_deleted_only_as_it_was_read_and_one_that_changed_is_no_failure() {
    const DELETE: &str = "DELETE virtualmachineinstances/web-1";
    fn once() -> Object {
        due("web-1").set("/spec/runStrategy", "Once".into())
    }
    let (client, calls) = api_server(|call, _| match call {
        GET_VM => Some((200, once().0)),
        GET_VMI => Some((200, instance("web-1").0)),
        DELETE => Some((409, status(409, "Conflict", "it has changed"))),
        _ => None,
    });
    let filled = edited(1, 1).vm(once()).vmi(instance("web-1"));
    let mut task = task(&shared(client, filled.done()));
    task.pass().await;
    let preconditions = &calls.bodies(DELETE)[0]["preconditions"];
    assert_eq!(
        *preconditions,
        json!({"uid": "uid-vmi-web-1", "resourceVersion": "100"})
    );
    assert!(task.remembered.failures.is_empty());
}
