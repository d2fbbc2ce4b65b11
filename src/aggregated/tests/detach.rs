//! Verdicts of `detach`, and what is recorded. Case DT-11.

use axum::http::Method;
use serde_json::{Value, json};

use super::fake::{Fake, VmChange};
use super::{Answer, path, request, send};
use crate::api::intent::Intents;

fn member(name: &str) -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
        "metadata": {
            "name": name, "namespace": "team", "uid": format!("uid-{name}"), "resourceVersion": "5",
            "annotations": {"vmpool.dev/member-of": "uid-web"},
            "ownerReferences": [{
                "apiVersion": "vmpool.dev/v1alpha1", "kind": "VirtualMachinePool",
                "name": "web", "uid": "uid-web", "controller": true,
            }],
        },
        "spec": {"runStrategy": "Always"},
    })
}

fn detached(name: &str) -> Value {
    let mut vm = member(name);
    vm["metadata"]["ownerReferences"] = json!([]);
    vm["metadata"]["annotations"] = json!({"vmpool.dev/detached-from": "web"});
    vm
}

/// A pool of four with the members `web-1` to `web-4`.
fn fake() -> Fake {
    let fake = Fake::with_pool();
    for name in ["web-1", "web-2", "web-3", "web-4"] {
        fake.has_vm(member(name));
    }
    fake
}

async fn detach(fake: &Fake, body: Value) -> Answer {
    post(fake, "", body.to_string()).await
}

async fn post(fake: &Fake, query: &str, body: String) -> Answer {
    let path = path(&format!("/detach{query}"));
    send(fake, request(Method::POST, &path, "application/json", body)).await
}

/// The leader detaches whatever is recorded, as soon as it is.
fn lead(fake: &Fake) {
    lead_after(fake, 0);
}

/// The same when so many milliseconds have passed.
fn lead_after(fake: &Fake, delay: u64) {
    let fake = fake.clone();
    tokio::spawn(async move {
        tokio::time::sleep(std::time::Duration::from_millis(delay)).await;
        loop {
            for name in recorded(&fake) {
                fake.has_vm(detached(&name));
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    });
}

fn intents(fake: &Fake) -> Intents {
    let stored = fake.stored();
    let text = stored["metadata"]["annotations"]["vmpool.dev/intent"].as_str();
    Intents::read(text).unwrap()
}

fn recorded(fake: &Fake) -> Vec<String> {
    let intents = intents(fake);
    intents.known().map(|intent| intent.name.clone()).collect()
}

fn replicas(fake: &Fake) -> i64 {
    fake.stored()["spec"]["replicas"].as_i64().unwrap()
}

/// `name: Verdict` of each VM.
fn verdicts(answer: &Answer) -> Vec<String> {
    let vms = answer.body["virtualMachines"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    vms.map(|vm| format!("{}: {}", text(&vm["name"]), text(&vm["verdict"])))
        .collect()
}

#[tokio::test]
async fn what_is_asked_for_is_recorded_in_one_write_and_waited_for() {
    let fake = fake();
    lead(&fake);
    let body = json!({"virtualMachines": ["web-2"], "reason": "evidence"});
    let answer = detach(&fake, body).await;
    assert_eq!(answer.code, 200, "{answer:?}");
    assert_eq!(answer.body["kind"], "DetachResult");
    assert_eq!(verdicts(&answer), ["web-2: Done"]);
    assert_eq!(answer.body["replicas"], 4);
    assert_eq!(replicas(&fake), 4);
    let recorded = intents(&fake);
    let intent = recorded.of_vm("uid-web-2").unwrap();
    assert!(intent.replace);
    assert_eq!((&*intent.by, &*intent.reason), ("jane", "evidence"));
    assert_eq!(intent.version, "6");
    let (line, patch) = fake.calls("PATCH").remove(1);
    assert!(line.contains("fieldManager=vmpool"), "{line}");
    assert_eq!(
        patch[0],
        json!({"op": "test", "path": "/metadata/resourceVersion", "value": "7"})
    );
}

/// The mark on a VM.
fn mark(fake: &Fake, name: &str) -> Value {
    fake.stored_vm(name)["metadata"]["annotations"]["vmpool.dev/detaching"].clone()
}

#[tokio::test]
async fn dt_07_the_vm_is_marked_in_the_version_that_was_judged_before_anything_is_recorded() {
    let fake = fake();
    // Somebody writes the VM, and then the pool, just before we do.
    fake.state().vm_changes = vec![VmChange::Touched];
    fake.state().overtaken = 1;
    lead_after(&fake, 300);
    let answer = detach(&fake, json!({"virtualMachines": ["web-2"]})).await;
    assert_eq!(verdicts(&answer), ["web-2: Done"]);
    let marks = fake.calls("PATCH /apis/kubevirt.io");
    let versions: Vec<&Value> = marks
        .iter()
        .map(|(_, mark)| &mark["metadata"]["resourceVersion"])
        .collect();
    assert_eq!(versions, ["5", "6", "7"]);
    let judged: Vec<&Value> = marks
        .iter()
        .map(|(_, mark)| &mark["metadata"]["annotations"]["vmpool.dev/detaching"])
        .collect();
    assert_eq!(judged, ["7", "7", "8"], "the pool that the record goes by");
    let patches = fake.calls("PATCH");
    let (_, record) = &patches[patches.len() - 1];
    assert_eq!(record[0]["value"], "8");
    assert_eq!(intents(&fake).of_vm("uid-web-2").unwrap().version, "8");
}

#[tokio::test]
async fn dt_07_a_vm_that_is_deleted_before_it_is_marked_was_not_accepted() {
    let fake = fake();
    lead(&fake);
    fake.state().vm_changes = vec![VmChange::Deleted];
    let body = json!({"virtualMachines": ["web-2"], "replace": false});
    let answer = detach(&fake, body.clone()).await;
    let message = answer.refused(409, "Conflict");
    assert!(message.contains("it is being deleted"), "{message}");
    assert_eq!((replicas(&fake), recorded(&fake).len()), (4, 0));

    // One that can't be marked takes nothing from the others.
    fake.state().vm_changes = vec![VmChange::Refused];
    let body = json!({"virtualMachines": ["web-1", "web-3"], "replace": false});
    let answer = detach(&fake, body).await;
    assert_eq!(answer.code, 200, "{answer:?}");
    let verdicts = verdicts(&answer);
    let refused = verdicts.iter().filter(|it| it.ends_with("Refused"));
    assert_eq!(refused.count(), 1, "{verdicts:?}");
    assert_eq!(answer.body["replicas"], 3);
    assert_eq!((replicas(&fake), recorded(&fake).len()), (3, 1));

    fake.state().vm_changes = vec![VmChange::Touched; 9];
    let answer = detach(&fake, json!({"virtualMachines": ["web-4"]})).await;
    let message = answer.refused(409, "Conflict");
    assert!(message.contains("keeps changing"), "{message}");
}

#[tokio::test]
async fn dt_11_without_replacement_the_replicas_go_down_by_as_many_and_once() {
    let fake = fake();
    lead_after(&fake, 300);
    let body = json!({
        "apiVersion": "subresources.vmpool.dev/v1alpha1", "kind": "DetachOptions",
        "virtualMachines": ["web-2", "web-3"], "replace": false,
    });
    // Two at once, and the pool changes under their hands.
    fake.state().overtaken = 2;
    let (first, second) = tokio::join!(detach(&fake, body.clone()), detach(&fake, body.clone()));
    for answer in [first, second] {
        assert_eq!(answer.code, 200, "{answer:?}");
        assert_eq!(answer.body["replicas"], 2);
        assert_eq!(verdicts(&answer), ["web-2: Done", "web-3: Done"]);
    }
    assert_eq!(replicas(&fake), 2);
    assert_eq!(recorded(&fake), ["web-2", "web-3"]);
    let again = detach(&fake, body).await;
    let message = again.refused(409, "Conflict");
    assert!(message.contains("it is no member of pool web"), "{message}");
    assert_eq!(replicas(&fake), 2);
}

#[tokio::test]
async fn each_vm_has_its_verdict_and_none_stands_in_anothers_way() {
    let fake = fake();
    lead(&fake);
    let mut strangers = member("db-1");
    strangers["metadata"]["ownerReferences"][0]["name"] = "db".into();
    strangers["metadata"]["ownerReferences"][0]["uid"] = "uid-db".into();
    fake.has_vm(strangers);
    let mut alone = member("alone");
    alone["metadata"]["ownerReferences"] = json!([]);
    fake.has_vm(alone);
    let mut going = member("web-4");
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    fake.has_vm(going);
    let names = ["web-1", "none", "db-1", "alone", "web-4", "../../secrets/x"];
    let answer = detach(&fake, json!({"virtualMachines": names, "replace": false})).await;
    assert_eq!(answer.code, 200, "{answer:?}");
    let vms = answer.body["virtualMachines"].as_array().unwrap();
    let reasons: Vec<&str> = vms.iter().filter_map(|vm| vm["reason"].as_str()).collect();
    assert_eq!(
        reasons,
        [
            "it is no member of pool web",
            "it is no member of pool web",
            "it is no member of pool web",
            "it is being deleted",
            "it is no member of pool web",
        ]
    );
    assert_eq!(vms[0]["verdict"], "Done");
    assert_eq!(answer.body["replicas"], 3);
    assert_eq!(recorded(&fake), ["web-1"]);
    assert_eq!(fake.calls("secrets").len(), 0);

    let none = detach(&fake, json!({"virtualMachines": ["none", "alone"]})).await;
    none.refused(409, "Conflict");
    let causes = none.body["details"]["causes"].as_array().unwrap();
    assert_eq!(causes[1]["field"], "virtualMachines[1]");
    assert_eq!(causes[1]["message"], "alone: it is no member of pool web");
}

#[tokio::test]
async fn what_was_asked_for_before_is_joined_and_not_turned_round() {
    let fake = fake();
    fake.change_pool(|pool| pool["spec"]["paused"] = true.into());
    let first = detach(&fake, json!({"virtualMachines": ["web-1"]})).await;
    assert_eq!(first.code, 202, "{first:?}");
    assert_eq!(verdicts(&first), ["web-1: Recorded"]);
    let reason = first.body["virtualMachines"][0]["reason"].as_str().unwrap();
    assert!(reason.contains("paused"), "{reason}");
    let version = fake.stored()["metadata"]["resourceVersion"].clone();
    let again = detach(
        &fake,
        json!({"virtualMachines": ["web-1"], "replace": true}),
    )
    .await;
    assert_eq!(verdicts(&again), ["web-1: Recorded"]);
    assert_eq!(
        fake.stored()["metadata"]["resourceVersion"],
        version,
        "nothing new"
    );
    let other = detach(
        &fake,
        json!({"virtualMachines": ["web-1"], "replace": false}),
    )
    .await;
    let message = other.refused(409, "Conflict");
    assert!(message.contains("already, with replace: true"), "{message}");
    assert_eq!(replicas(&fake), 4);
}

#[tokio::test]
async fn a_dry_run_records_nothing_and_waits_for_nothing() {
    let fake = fake();
    let body = json!({"virtualMachines": ["web-1"], "replace": false}).to_string();
    let answer = post(&fake, "?dryRun=All", body).await;
    assert_eq!(answer.code, 202, "{answer:?}");
    assert_eq!(verdicts(&answer), ["web-1: Recorded"]);
    assert_eq!(answer.body["replicas"], 3);
    assert_eq!((replicas(&fake), recorded(&fake).len()), (4, 0));
    assert_eq!(mark(&fake, "web-1"), Value::Null);
}

#[tokio::test]
async fn no_pool_and_pools_that_let_nobody_go() {
    let body = json!({"virtualMachines": ["web-1"]});
    let empty = Fake::empty();
    detach(&empty, body.clone()).await.refused(404, "NotFound");

    let deleting = fake();
    let time = json!("2026-01-01T00:00:00Z");
    deleting.change_pool(|pool| pool["metadata"]["deletionTimestamp"] = time);
    let answer = detach(&deleting, body.clone()).await;
    assert!(answer.refused(409, "Conflict").contains("is being deleted"));

    let odd = fake();
    odd.change_pool(|pool| pool["metadata"]["annotations"] = json!({"vmpool.dev/intent": "{"}));
    let answer = detach(&odd, body.clone()).await;
    assert!(
        answer
            .refused(409, "Conflict")
            .contains("take the annotation off")
    );

    let full = fake();
    let many: Vec<Value> = (0..400)
        .map(|n| json!({"verb": "detach", "name": n.to_string(), "uid": n.to_string(), "version": "1"}))
        .collect();
    let many = json!({"vmpool.dev/intent": Value::from(many).to_string()});
    full.change_pool(|pool| pool["metadata"]["annotations"] = many);
    let answer = detach(&full, body).await;
    answer.refused(429, "TooManyRequests");
    assert_eq!(full.calls("PATCH").len(), 0);
}

#[tokio::test]
async fn options_that_say_something_else_are_refused() {
    let fake = fake();
    let many: Vec<String> = (0..101).map(|n| format!("web-{n}")).collect();
    for (body, code, reason) in [
        (json!({"virtualMachines": []}), 422, "Invalid"),
        (
            json!({"virtualMachines": ["web-1", "web-1"]}),
            422,
            "Invalid",
        ),
        (json!({"virtualMachines": many}), 422, "Invalid"),
        (
            json!({"virtualMachines": ["web-1"], "reason": "a".repeat(1025)}),
            422,
            "Invalid",
        ),
        (json!({}), 400, "BadRequest"),
        (json!({"virtualMachines": "web-1"}), 400, "BadRequest"),
        (
            json!({"virtualMachines": ["web-1"], "replcae": false}),
            400,
            "BadRequest",
        ),
        (
            json!({"virtualMachines": ["web-1"], "replace": "no"}),
            400,
            "BadRequest",
        ),
        (
            json!({"virtualMachines": ["web-1"], "kind": "Scale"}),
            400,
            "BadRequest",
        ),
        (
            json!({"virtualMachines": ["web-1"], "apiVersion": "v1"}),
            400,
            "BadRequest",
        ),
        (json!(["web-1"]), 400, "BadRequest"),
        (Value::Null, 400, "BadRequest"),
    ] {
        detach(&fake, body).await.refused(code, reason);
    }
    post(&fake, "", String::new())
        .await
        .refused(400, "BadRequest");
    post(&fake, "?dryRun=no", "{}".to_owned())
        .await
        .refused(400, "BadRequest");
    let yaml = request(Method::POST, &path("/detach"), "application/yaml", "a: b");
    send(&fake, yaml).await.refused(415, "UnsupportedMediaType");
    assert_eq!(fake.calls("PATCH").len(), 0);

    fake.state().allowed.clear();
    let answer = detach(&fake, json!({"virtualMachines": ["web-1"]})).await;
    let message = answer.refused(403, "Forbidden");
    assert!(
        message.contains("cannot create resource \"virtualmachinepools/detach\""),
        "{message}"
    );
    assert_eq!(fake.calls("virtualmachines/").len(), 0);
}

#[tokio::test]
async fn what_is_recorded_has_room_in_bytes_and_not_only_in_number() {
    let fake = fake();
    let names: Vec<String> = (0..40).map(|n| format!("vm-{n}")).collect();
    for name in &names {
        fake.has_vm(member(name));
    }
    let body = json!({"virtualMachines": names, "reason": "\u{1}".repeat(1024)});
    let message = detach(&fake, body).await;
    let message = message.refused(422, "Invalid");
    assert!(message.contains("name fewer VMs"), "{message}");
    let open = json!([{"verb": "detach", "name": "a", "uid": "a", "version": "1", "reason": "a".repeat(65_400)}]);
    let open = json!({"vmpool.dev/intent": open.to_string()});
    fake.change_pool(|pool| pool["metadata"]["annotations"] = open);
    let body = json!({"virtualMachines": names[..5]});
    let message = detach(&fake, body).await;
    let message = message.refused(429, "TooManyRequests");
    assert!(message.contains("1 operations wait"), "{message}");
    assert_eq!(fake.calls("PATCH").len(), 0);
}

#[tokio::test]
async fn a_write_that_is_refused_for_what_it_is_is_not_tried_again() {
    let fake = fake();
    fake.state().refuses = true;
    let answer = detach(&fake, json!({"virtualMachines": ["web-1"]})).await;
    answer.refused(422, "Invalid");
    assert_eq!(fake.calls("PATCH /apis/vmpool.dev").len(), 1);
}
