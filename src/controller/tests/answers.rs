//! Answers that are not what was asked for: VMs of others, answers that are lost.

use serde_json::{Value, json};

use super::super::fixtures::{NAMESPACE, caches, vm};
use super::super::release::release;
use super::super::supervise::Actor as _;
use super::played::{VMS, api_server, shared, stored, task, world};

#[tokio::test]
async fn a_vm_that_came_back_without_its_owner_is_deleted_again_and_told() {
    let (client, calls) = api_server(|call, _| {
        (call == VMS).then(|| {
            let mut made = stored(vm("web-1").0);
            made["metadata"]["ownerReferences"] = Value::Null;
            (201, made)
        })
    });
    let mut task = task(&shared(client, world(1).done()));
    task.pass().await;
    let deletes = calls.bodies("DELETE virtualmachines/web-1");
    assert_eq!(deletes.len(), 1);
    assert_eq!(deletes[0]["preconditions"]["uid"], "uid-web-1");
    let told = calls.bodies("POST events");
    let failed = told.iter().find(|event| event["reason"] == "FailedCreate");
    let note = failed.unwrap()["note"].as_str().unwrap();
    assert!(
        note.contains("took this pool's owner reference off"),
        "{note}"
    );
    // Its number is not passed over.
    calls.take();
    task.pass().await;
    let again = calls.bodies(VMS);
    assert!(
        again.iter().all(|vm| vm["metadata"]["name"] == "web-1"),
        "{again:?}"
    );
}

#[tokio::test]
async fn an_answer_that_can_not_be_read_is_settled_by_looking() {
    let (client, calls) = api_server(|call, _| match call {
        VMS => Some((201, json!("half an ans"))),
        "GET virtualmachines/web-1" => Some((200, vm("web-1").owner("web", "uid-web").0)),
        _ => None,
    });
    let mut task = task(&shared(client, world(1).done()));
    task.pass().await;
    task.pass().await;
    let told = calls.bodies("POST events");
    assert!(
        told.iter()
            .any(|event| event["reason"] == "SuccessfulCreate")
            && !told.iter().any(|event| event["reason"] == "FailedCreate"),
        "{told:?}"
    );
    let made = calls.take();
    assert!(
        made.contains(&"GET virtualmachines/web-1".to_owned()),
        "{made:?}"
    );
    assert_eq!(made.iter().filter(|call| *call == VMS).count(), 1);
}

#[tokio::test]
async fn another_vm_under_the_name_of_a_former_member_is_not_released() {
    let (client, calls) = api_server(|call, _| match call {
        "GET virtualmachines/web-1" => {
            Some((200, vm("web-1").uid("uid-newer").member_of("uid-web").0))
        }
        _ => None,
    });
    let shared = shared(client, caches().done());
    let released = release(&shared, NAMESPACE, "web-1", "uid-web-1").await;
    assert!(!released.unwrap().changed);
    assert_eq!(calls.take(), ["GET virtualmachines/web-1"]);
}
