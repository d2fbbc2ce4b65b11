//! What was accepted for a pool is carried out in an order in which each step can be the last.

use serde_json::{Value, json};

use super::super::delete::{Deletes, Victim};
use super::super::fixtures::{Filled, NAMESPACE, Object, caches, config, pool, vm};
use super::super::pool_task::PoolTask;
use super::super::supervise::Actor as _;
use super::super::window::Window;
use super::super::{Caches, Shared};
use super::played::{Calls, Script, api_server, list, owned_revision, shared, spec, status, task};
use crate::cache::Step;

use std::sync::Arc;

const GET_VM: &str = "GET virtualmachines/web-2";
const PATCH_VM: &str = "PATCH virtualmachines/web-2";
const GET_POOL: &str = "GET virtualmachinepools/web";
const PATCH_POOL: &str = "PATCH virtualmachinepools/web";

/// A pool of none with `web-2` to be detached.
fn web() -> Object {
    let intent = json!([
        {"verb": "reheat", "uid": "uid-of-a-newer-version"},
        {"verb": "detach", "name": "web-2", "uid": "uid-web-2", "version": "100", "replace": false,
            "by": "jane", "reason": "evidence"},
    ]);
    let intent = json!({"vmpool.dev/intent": intent.to_string(), "team": "a"});
    pool("web", "uid-web")
        .replicas(0)
        .set("/spec/updateStrategy", json!({"unmanaged": {}}))
        .set("/metadata/annotations", intent)
}

fn member(name: &str) -> Object {
    vm(name)
        .owner("web", "uid-web")
        .member_of("uid-web")
        .set("/spec/runStrategy", "Halted".into())
}

fn detached() -> Object {
    vm("web-2").version(200).set(
        "/metadata/annotations",
        json!({"vmpool.dev/detached-from": "web"}),
    )
}

fn answers(call: &str, nth: usize) -> Option<(u16, Value)> {
    match (call, nth) {
        (GET_VM, _) => Some((200, member("web-2").0)),
        (PATCH_VM, _) => Some((200, detached().0)),
        (GET_POOL, _) => Some((200, web().0)),
        _ => None,
    }
}

/// The pool and its members `web-1` to `web-3`.
fn filled() -> Caches {
    let filled = caches()
        .pool(web())
        .config(config("desktop", spec()))
        .revision(owned_revision());
    let members = ["web-1", "web-2", "web-3"].map(member);
    members.into_iter().fold(filled, Filled::vm).done()
}

fn start(script: Script) -> (Arc<Shared>, PoolTask, Calls) {
    let (client, calls) = api_server(script);
    let shared = shared(client, filled());
    let task = task(&shared);
    (shared, task, calls)
}

fn apply(object: &mut Value, patch: &Value) {
    let patch: json_patch::Patch = serde_json::from_value(patch.clone()).unwrap();
    json_patch::patch(object, &patch).unwrap();
}

/// Without statuses.
fn taken(calls: &Calls) -> Vec<String> {
    let mut taken = calls.take();
    taken.retain(|call| !call.ends_with("/status"));
    taken
}

#[tokio::test]
async fn dt_07_a_member_leaves_in_one_last_write_and_its_entry_goes_when_that_is_seen() {
    let (shared, mut task, calls) = start(answers);
    task.pass().await;
    let patch = calls.bodies(PATCH_VM).remove(0);
    let operations = patch.as_array().unwrap();
    assert_eq!(
        operations[0],
        json!({"op": "test", "path": "/metadata/resourceVersion", "value": "100"})
    );
    let mut left = member("web-2").0;
    apply(&mut left, &patch);
    assert!(left["metadata"].get("ownerReferences").is_none(), "{left}");
    assert_eq!(
        left["metadata"]["annotations"],
        json!({"vmpool.dev/detached-from": "web"})
    );
    let event = calls.bodies("POST events");
    let event = event.iter().find(|event| event["reason"] == "Detached");
    assert_eq!(event.unwrap()["note"], "detached VM web-2: evidence");
    let made = taken(&calls);
    assert_eq!(
        made[..3],
        [GET_VM, "GET virtualmachineinstances/web-2", PATCH_VM]
    );
    // What the newer version asked for may concern the others: none of them goes.
    assert!(
        !made.iter().any(|call| call.starts_with("DELETE")),
        "{made:?}"
    );

    // The cache is behind: it is not done twice, and the entry stays.
    task.pass().await;
    assert_eq!(taken(&calls), [""; 0]);

    shared.caches.vms.take(Step::Apply(detached().vm_view()));
    task.pass().await;
    let patch = calls.bodies(PATCH_POOL).remove(0);
    let mut cleared = web().0;
    apply(&mut cleared, &patch);
    let intent = cleared["metadata"]["annotations"]["vmpool.dev/intent"].as_str();
    let rest: Value = serde_json::from_str(intent.unwrap()).unwrap();
    assert_eq!(
        rest,
        json!([{"verb": "reheat", "uid": "uid-of-a-newer-version"}])
    );
    assert_eq!(taken(&calls), [GET_POOL, PATCH_POOL]);
    // The cache of pools is behind: it is not cleared twice.
    task.pass().await;
    assert_eq!(taken(&calls), [""; 0]);
}

#[tokio::test]
async fn dt_02_a_vm_that_changes_under_our_hands_is_read_again() {
    let (_, mut task, calls) = start(|call, nth| match (call, nth) {
        (PATCH_VM, 1 | 2) => Some((422, status(422, "Invalid", "the test failed"))),
        _ => answers(call, nth),
    });
    task.pass().await;
    let made = taken(&calls);
    let count = |wanted| made.iter().filter(|call| *call == wanted).count();
    assert_eq!((count(GET_VM), count(PATCH_VM)), (3, 3));
}

#[tokio::test]
async fn a_vm_that_is_gone_or_another_one_is_left_alone_and_the_entry_goes() {
    for there in [false, true] {
        let script: Script = match there {
            false => |call, nth| match call {
                GET_VM => None,
                _ => answers(call, nth),
            },
            true => |call, nth| match call {
                GET_VM => Some((200, member("web-2").uid("uid-another").0)),
                _ => answers(call, nth),
            },
        };
        let (shared, mut task, calls) = start(script);
        task.pass().await;
        assert!(!taken(&calls).contains(&PATCH_VM.to_owned()));
        let key = crate::cache::Key::new(NAMESPACE, "web-2");
        shared.caches.vms.take(Step::Delete(key));
        if there {
            let another = member("web-2").uid("uid-another").version(201);
            shared.caches.vms.take(Step::Apply(another.vm_view()));
        }
        task.pass().await;
        task.pass().await;
        let made = taken(&calls);
        assert!(!made.contains(&PATCH_VM.to_owned()), "{made:?}");
        assert!(made.contains(&PATCH_POOL.to_owned()), "{made:?}");
    }
}

#[tokio::test]
async fn a_failure_is_told_and_waited_for() {
    let (_, mut task, calls) = start(|call, nth| match call {
        PATCH_VM => Some((500, status(500, "InternalError", "no"))),
        _ => answers(call, nth),
    });
    task.pass().await;
    let told = calls.bodies("POST events");
    assert!(told.iter().any(|event| event["reason"] == "FailedDetach"));
    assert!(taken(&calls).contains(&PATCH_VM.to_owned()));
    task.pass().await;
    assert_eq!(taken(&calls), [""; 0]);
}

#[tokio::test]
async fn what_was_accepted_stops_the_deletes_that_were_planned_without_it() {
    let (client, calls) = api_server(answers);
    let before = web().set("/metadata/annotations", json!({"team": "a"}));
    let shared = shared(client, caches().pool(before.clone()).done());
    let mut task = task(&shared);
    let id = before.pool_entry().id;
    let (goes_on, stands) = (task.goes_on(&id), task.stands(&id));
    assert!(goes_on() && stands());
    // The annotation alone: the generation stays.
    let accepted = web().version(101).pool_entry();
    assert_eq!(accepted.id.generation, id.generation);
    shared.caches.pools.take(Step::Apply(accepted));
    assert!(!goes_on() && !stands());

    // One that has begun, and waited for its turn to be sent.
    let victim = Victim {
        name: "web-2".to_owned(),
        uid: "uid-web-2".to_owned(),
        resource_version: "100".to_owned(),
    };
    let deletes = Deletes {
        shared: &shared,
        namespace: NAMESPACE,
        stands: &stands,
    };
    let remembered = &mut task.remembered;
    let report = deletes
        .run(vec![victim], &mut Window::new(4), remembered, || true)
        .await;
    assert_eq!(calls.take(), [""; 0]);
    assert!(report.deleted.is_empty() && report.failed.is_empty());
    assert!(remembered.expectations.deletes().is_empty());
}

#[tokio::test]
async fn dt_07_a_delete_that_meets_a_mark_is_given_up_for_what_the_vm_says_now() {
    // The cache shows neither mark nor record. The API server refuses by version, and shows the mark.
    let marked = || {
        let marks = json!({"vmpool.dev/member-of": "uid-web", "vmpool.dev/detaching": "100"});
        member("web-1")
            .set("/metadata/annotations", marks)
            .version(150)
    };
    let script: Script = |call, _| match call {
        "GET virtualmachines" => Some((200, list([member("web-1")]))),
        "DELETE virtualmachines/web-1" => Some((409, status(409, "Conflict", "another version"))),
        "GET virtualmachines/web-1" => {
            let marks = json!({"vmpool.dev/member-of": "uid-web", "vmpool.dev/detaching": "100"});
            let vm = member("web-1").set("/metadata/annotations", marks);
            Some((200, vm.version(150).0))
        }
        _ => None,
    };
    let (client, calls) = api_server(script);
    let web = pool("web", "uid-web")
        .replicas(0)
        .set("/spec/updateStrategy", json!({"unmanaged": {}}));
    let filled = caches()
        .pool(web.clone())
        .config(config("desktop", spec()))
        .revision(owned_revision())
        .vm(member("web-1"));
    let shared = shared(client, filled.done());
    let mut task = task(&shared);
    task.pass().await;
    let delete = calls.bodies("DELETE virtualmachines/web-1").remove(0);
    assert_eq!(
        delete["preconditions"],
        json!({"uid": "uid-web-1", "resourceVersion": "100"})
    );
    let deletes = |calls: &Calls| {
        let taken = taken(calls);
        taken
            .iter()
            .filter(|call| call.starts_with("DELETE"))
            .count()
    };
    assert_eq!(deletes(&calls), 1);
    task.pass().await;
    assert_eq!(deletes(&calls), 0, "as it was read");
    shared.caches.vms.take(Step::Apply(marked().vm_view()));
    task.pass().await;
    assert_eq!(deletes(&calls), 0, "as the cache shows it");
    // The pool is in a later version, and has no record: there will be none.
    shared
        .caches
        .pools
        .take(Step::Apply(web.version(151).pool_entry()));
    task.pass().await;
    assert_eq!(deletes(&calls), 1);
}
