//! The order of calls, against a played API server. "Radio silence" is an order too.

use serde_json::json;

use super::super::fixtures::{NAMESPACE, Object, caches, config, pool, revision, vm, vmi};
use super::super::release::release;
use super::super::snapshot::{Remembered, build};
use super::super::supervise::{Actor as _, Next};
use super::played::{
    STATUS, VMS, api_server, list, owned_revision, shared, spec, status, task, world,
};
use crate::api::annotations;
use crate::cache::Step;
use crate::plan::{self, Limits};
use crate::stamp::{PoolInputs, StampMark, revision_hash};

#[tokio::test]
async fn m126_a_pool_at_rest_is_radio_silence() {
    let mut member = vm("web-1")
        .owner("web", "uid-web")
        .member_of("uid-web")
        .set("/spec/runStrategy", "Halted".into());
    let inputs = PoolInputs {
        vm_prefix: "web".to_owned(),
        ..PoolInputs::default()
    };
    let mark = StampMark::new(&revision_hash(spec().as_object().unwrap()), &inputs);
    member.0["metadata"]["annotations"][annotations::STAMP] = mark.to_annotation().into();
    let filled = || world(1).vm(member.clone());
    let settled = {
        let caches = filled().done();
        let entry = caches.pool(NAMESPACE, "web").unwrap();
        let object = entry.object.clone().unwrap();
        let view = build(
            &caches,
            &entry,
            &object,
            &Remembered::default(),
            Limits { burst: 250 },
        );
        plan::plan(&view.snapshot, crate::clock::now()).status
    };
    let caches = filled().done();
    let settled = serde_json::to_value(settled).unwrap();
    let stored = pool("web", "uid-web").set("/status", settled);
    caches.pools.take(Step::Apply(stored.pool_entry()));
    let (client, calls) = api_server(|_, _| None);
    let mut task = task(&shared(client, caches));
    for _ in 0..3 {
        assert_eq!(task.pass().await, Next::Idle);
    }
    assert_eq!(calls.0.lock().unwrap().len(), 0, "not even an event");
}

#[tokio::test]
async fn cc_01_nothing_is_done_before_the_caches_are_complete() {
    let caches = world(3).done();
    caches.vms.take(Step::Init);
    let (client, calls) = api_server(|_, _| None);
    let mut task = task(&shared(client, caches));
    assert_eq!(task.pass().await, Next::Idle);
    assert_eq!(calls.take(), [""; 0]);
}

#[tokio::test]
async fn a_scale_out_is_one_write_per_vm_and_is_not_repeated_on_a_stale_cache() {
    let (client, calls) = api_server(|_, _| None);
    let mut task = task(&shared(client, world(3).done()));
    assert_eq!(task.pass().await, Next::AtOnce);
    let made = calls.bodies(VMS);
    let names: Vec<_> = made.iter().map(|vm| &vm["metadata"]["name"]).collect();
    assert_eq!(names, ["web-1", "web-2", "web-3"]);
    assert_eq!(made[0]["metadata"]["ownerReferences"][0]["uid"], "uid-web");
    assert_eq!(calls.take(), [STATUS, VMS, VMS, VMS]);
    // The cache shows none of them.
    task.pass().await;
    let again = calls.take();
    assert!(!again.contains(&VMS.to_owned()), "{again:?}");
}

#[tokio::test]
async fn the_pool_owns_its_revision_before_anything_is_made_from_it() {
    let caches = caches()
        .pool(pool("web", "uid-web"))
        .config(config("desktop", spec()))
        .revision(revision("desktop", spec(), 1))
        .done();
    let (client, calls) = api_server(|_, _| None);
    let mut task = task(&shared(client, caches));
    task.pass().await;
    let name = owned_revision().revision_entry().id.name;
    let own = format!("PATCH controllerrevisions/{name}");
    assert_eq!(calls.take(), [STATUS, &own, VMS]);
}

#[tokio::test]
async fn a_name_that_is_somebody_elses_is_skipped() {
    let (client, calls) = api_server(|call, nth| match (call, nth) {
        (VMS, 1) => Some((409, status(409, "AlreadyExists", "web-1 exists"))),
        ("GET virtualmachines/web-1", _) => Some((200, vm("web-1").0)),
        _ => None,
    });
    let mut task = task(&shared(client, world(1).done()));
    task.pass().await;
    assert_eq!(calls.take(), [STATUS, VMS, "GET virtualmachines/web-1"]);
    task.pass().await;
    let names: Vec<_> = calls
        .bodies(VMS)
        .iter()
        .map(|vm| vm["metadata"]["name"].clone())
        .collect();
    assert_eq!(names, ["web-2"]);
}

#[tokio::test]
async fn cc_02_a_name_that_is_taken_by_our_own_vm_is_no_failure_and_no_other_is_made() {
    // As after a change of leader: the other one made it, and the cache doesn't show it.
    let (client, calls) = api_server(|call, _| match call {
        VMS => Some((409, status(409, "AlreadyExists", "web-1 exists"))),
        "GET virtualmachines/web-1" => Some((200, vm("web-1").owner("web", "uid-web").0)),
        _ => None,
    });
    let mut task = task(&shared(client, world(1).done()));
    task.pass().await;
    assert!(task.remembered.failures.is_empty());
    task.pass().await;
    let posts = calls.bodies(VMS);
    let names: Vec<_> = posts.iter().map(|vm| &vm["metadata"]["name"]).collect();
    assert_eq!(names, ["web-1"]);
}

#[tokio::test]
async fn a_lost_answer_is_settled_by_looking_before_anything_is_repeated() {
    let (client, calls) = api_server(|call, _| match call {
        VMS => Some((504, status(504, "Timeout", "request timed out"))),
        "GET virtualmachines/web-1" => Some((200, vm("web-1").owner("web", "uid-web").0)),
        _ => None,
    });
    let mut task = task(&shared(client, world(1).done()));
    task.pass().await;
    task.pass().await;
    let made: Vec<_> = calls.take();
    let posts = made.iter().filter(|call| *call == VMS).count();
    assert_eq!(posts, 1, "{made:?}");
}

#[tokio::test]
async fn a_quota_is_met_once_per_delay_and_told_once() {
    let (client, calls) = api_server(|call, _| match call {
        VMS => Some((
            403,
            status(403, "Forbidden", "web-1 is forbidden: exceeded quota: vms"),
        )),
        _ => None,
    });
    let mut task = task(&shared(client, world(50).done()));
    for _ in 0..5 {
        task.pass().await;
    }
    let told = calls.bodies("POST events");
    let quota: Vec<_> = told
        .iter()
        .filter(|event| event["reason"] == "QuotaExceeded")
        .collect();
    assert_eq!(quota.len(), 1);
    let made = calls.take();
    let posts = made.iter().filter(|call| *call == VMS).count();
    assert_eq!(posts, 1, "{made:?}");
}

#[tokio::test]
async fn m09_a_vm_that_cannot_be_made_holds_up_no_other() {
    let (client, calls) = api_server(|call, nth| match (call, nth) {
        (VMS, 1) => Some((422, status(422, "Invalid", "web-1 is wrong"))),
        _ => None,
    });
    let mut task = task(&shared(client, world(4).done()));
    task.pass().await;
    let made = calls.bodies(VMS);
    assert_eq!(made.len(), 4);
    task.pass().await;
    let said = calls.bodies(STATUS);
    assert!(!said.is_empty());
}

#[tokio::test]
async fn a_delete_of_a_vm_that_has_moved_on_is_decided_anew() {
    let member = |version| {
        vm("web-1")
            .owner("web", "uid-web")
            .member_of("uid-web")
            .version(version)
    };
    let caches = world(0).vm(member(100)).done();
    let (client, calls) = api_server(|call, nth| match (call, nth) {
        ("DELETE virtualmachines/web-1", 1) => Some((409, status(409, "Conflict", "has changed"))),
        ("GET virtualmachines", _) => {
            let there = vm("web-1").owner("web", "uid-web").member_of("uid-web");
            Some((200, list([there])))
        }
        ("GET virtualmachines/web-1", _) => {
            let newer = vm("web-1").owner("web", "uid-web").version(150);
            Some((200, newer.member_of("uid-web").0))
        }
        _ => None,
    });
    let mut task = task(&shared(client, caches));
    task.pass().await;
    task.pass().await;
    let deletes = calls.bodies("DELETE virtualmachines/web-1");
    let versions: Vec<_> = deletes
        .iter()
        .map(|body| body["preconditions"]["resourceVersion"].clone())
        .collect();
    assert_eq!(versions, ["100", "150"]);
    assert_eq!(deletes[0]["propagationPolicy"], "Background");
    assert_eq!(deletes[0]["preconditions"]["uid"], "uid-web-1");
    calls.take();
    task.pass().await;
    assert!(!calls.take().iter().any(|call| call.starts_with("DELETE")));
}

#[tokio::test]
async fn a_release_goes_from_the_pod_over_the_instance_to_the_vm() {
    let (client, calls) = api_server(|call, nth| {
        let marks = |object: Object| {
            object
                .label("vmpool.dev/pool-uid", "uid-web")
                .label("vmpool.dev/ordinal", "1")
                .label("app", "desktop")
        };
        match call {
            "GET virtualmachines/web-1" => Some((200, marks(vm("web-1")).member_of("uid-web").0)),
            "GET virtualmachineinstances/web-1" => Some((200, marks(vmi("web-1")).0)),
            // It changes under our hands.
            "PATCH virtualmachineinstances/web-1" if nth == 1 => {
                Some((409, status(409, "Conflict", "it is another one")))
            }
            "GET pods" => {
                let pod = |name: &str, vmi: &str| {
                    let owner = json!([{
                        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
                        "name": "web-1", "uid": vmi, "controller": true,
                    }]);
                    marks(vm(name)).set("/metadata/ownerReferences", owner).0
                };
                let items = [
                    pod("launcher-1", "uid-vmi-web-1"),
                    pod("other", "uid-other"),
                ];
                Some((
                    200,
                    json!({"metadata": {"resourceVersion": "1"}, "items": items}),
                ))
            }
            _ => None,
        }
    });
    let shared = shared(client, caches().done());
    let released = release(&shared, NAMESPACE, "web-1", "uid-web-1").await;
    assert!(released.unwrap().changed);
    let patch = calls.bodies("PATCH virtualmachines/web-1").remove(0);
    assert_eq!(
        patch[0],
        json!({"op": "test", "path": "/metadata/resourceVersion", "value": "100"})
    );
    let pod = calls.bodies("PATCH pods/launcher-1").remove(0);
    assert_eq!(
        pod["metadata"]["labels"],
        json!({"vmpool.dev/pool-uid": null, "vmpool.dev/ordinal": null})
    );
    let instance = [
        "GET virtualmachineinstances/web-1",
        "GET pods",
        "PATCH pods/launcher-1",
        "PATCH virtualmachineinstances/web-1",
    ];
    let (get, patch) = (
        ["GET virtualmachines/web-1"],
        ["PATCH virtualmachines/web-1"],
    );
    // Read again after the conflict, and once more after the VM: what was made until then has the marks.
    let wanted = [&get[..], &instance, &instance, &patch, &instance].concat();
    assert_eq!(calls.take(), wanted);
}

#[tokio::test]
async fn a_vm_that_a_pool_controls_is_not_released() {
    let (client, calls) = api_server(|call, _| match call {
        "GET virtualmachines/web-1" => {
            let attached = vm("web-1").owner("other", "uid-other");
            Some((200, attached.member_of("uid-web").0))
        }
        _ => None,
    });
    let shared = shared(client, caches().done());
    let released = release(&shared, NAMESPACE, "web-1", "uid-web-1").await;
    assert!(!released.unwrap().changed);
    assert_eq!(calls.take(), ["GET virtualmachines/web-1"]);
}

#[tokio::test]
async fn cc_09_a_pool_that_cannot_be_decoded_is_told_so_once_and_its_vms_are_left_alone() {
    let odd = pool("web", "uid-web").set("/spec/replicas", "many".into());
    let caches = caches()
        .pool(odd)
        .vm(vm("web-1").owner("web", "uid-web"))
        .done();
    let (client, calls) = api_server(|_, _| None);
    let mut task = task(&shared(client, caches));
    for _ in 0..3 {
        task.pass().await;
    }
    assert_eq!(calls.bodies("POST events").len(), 1);
    let said = calls.bodies(STATUS);
    assert_eq!(said.len(), 1);
    let condition = &said[0]["status"]["conditions"][0];
    assert_eq!(condition["reason"], "InvalidSpec");
    assert_eq!(calls.take(), [STATUS]);
}
