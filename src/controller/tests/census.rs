//! A cache of VMs that is behind its pool's deletes nobody.

use serde_json::{Value, json};

use super::super::expectations::Expectations;
use super::super::fixtures::{Filled, NAMESPACE, Object, caches, config, pool, vm};
use super::super::supervise::Actor as _;
use super::played::{api_server, list, owned_revision, shared, spec, status, task};
use crate::cache::{Key, Step};

const LIST: &str = "GET virtualmachines";
const GET_VM: &str = "GET virtualmachines/web-2";

fn member(name: &str) -> Object {
    vm(name)
        .owner("web", "uid-web")
        .member_of("uid-web")
        .set("/spec/runStrategy", "Halted".into())
}

fn web(replicas: u32) -> Object {
    let web = pool("web", "uid-web").replicas(replicas);
    web.set("/spec/updateStrategy", json!({"unmanaged": {}}))
}

/// A pool that was scaled in by one as far as its own watch tells, and members of which one has left.
fn behind(replicas: u32) -> Filled {
    let members = ["web-1", "web-2", "web-3"].map(member);
    let filled = caches()
        .pool(web(replicas))
        .config(config("desktop", spec()))
        .revision(owned_revision());
    members.into_iter().fold(filled, Filled::vm)
}

fn deletes(calls: &[String]) -> Vec<&String> {
    let deletes = calls.iter().filter(|call| call.starts_with("DELETE"));
    deletes.collect()
}

#[tokio::test]
async fn a_member_that_left_while_another_replica_led_costs_no_other_one() {
    let (client, calls) = api_server(|call, _| match call {
        LIST => Some((200, list(["web-1", "web-3"].map(member)))),
        GET_VM => Some((200, vm("web-2").version(200).0)),
        _ => None,
    });
    let mut task = task(&shared(client, behind(2).done()));
    for _ in 0..5 {
        task.pass().await;
    }
    let made = calls.take();
    assert!(made.contains(&GET_VM.to_owned()), "{made:?}");
    assert_eq!(deletes(&made), [&""; 0], "{made:?}");
    let lists = made.iter().filter(|call| *call == LIST).count();
    assert_eq!(lists, 1, "{made:?}");
}

#[tokio::test]
async fn what_is_too_many_without_those_who_left_goes_and_the_cache_is_not_believed_after() {
    let (client, calls) = api_server(|call, _| match call {
        LIST => Some((200, list(["web-1", "web-3"].map(member)))),
        GET_VM => Some((404, status(404, "NotFound", "gone"))),
        _ => None,
    });
    let shared = shared(client, behind(1).done());
    let mut task = task(&shared);
    task.pass().await;
    assert_eq!(deletes(&calls.take()), [&""; 0], "it is decided anew");
    task.pass().await;
    assert_eq!(deletes(&calls.take()).len(), 1);
    assert_eq!(task.counted, None);
    // Once it has caught up there is nothing left to ask.
    shared
        .caches
        .vms
        .take(Step::Delete(Key::new(NAMESPACE, "web-2")));
    let caches = &shared.caches;
    caches.pools.take(Step::Apply(web(0).pool_entry()));
    task.pass().await;
    assert_eq!(task.counted, Some(1));
}

#[tokio::test]
async fn members_are_counted_once_per_generation_and_one_that_lost_its_label_counts() {
    let (client, calls) = api_server(|call, _| match call {
        LIST => Some((200, list(["web-1", "web-3"].map(member)))),
        GET_VM => Some((200, member("web-2").0)),
        _ => None,
    });
    let mut task = task(&shared(client, behind(2).done()));
    task.pass().await;
    assert_eq!(deletes(&calls.take()).len(), 1);
    task.remembered.expectations = Expectations::default();
    task.pass().await;
    let made = calls.take();
    assert_eq!(
        deletes(&made).len(),
        1,
        "as if the first had come to nothing"
    );
    assert!(!made.contains(&LIST.to_owned()), "{made:?}");
}

#[tokio::test]
async fn who_can_not_be_counted_is_not_deleted_and_it_is_said() {
    let (client, calls) = api_server(|call, _| {
        (call == LIST).then(|| (500, status(500, "InternalError", "etcd is slow")))
    });
    let mut task = task(&shared(client, behind(2).done()));
    for _ in 0..3 {
        task.pass().await;
    }
    let events = calls.bodies("POST events");
    let told: Vec<&Value> = events.iter().map(|event| &event["reason"]).collect();
    assert!(told.contains(&&Value::from("FailedDelete")), "{told:?}");
    let made = calls.take();
    assert_eq!(deletes(&made), [&""; 0]);
    assert_eq!(made.iter().filter(|call| *call == LIST).count(), 1);
}
