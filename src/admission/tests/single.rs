//! Single VMs that their users make from a config.

use serde_json::{Value, json};

use super::super::objects::Named;
use super::super::stamping::PATH;
use super::http::reviewed;
use super::{Fake, body, config};

fn desktop() -> Fake {
    let spec = json!({
        "dataVolumeTemplates": [{"metadata": {"name": "root"}, "spec": {}}],
        "template": {"spec": {"volumes": [
            {"name": "root", "dataVolume": {"name": "root"}},
            {"name": "init", "cloudInitNoCloud": {"secretRef": {"name": "init"}}},
        ]}},
    });
    Fake {
        configs: vec![config("desktop", spec)],
        existing: Some(Vec::new()),
        ..Fake::default()
    }
}

fn asking(annotations: Value, more: Value) -> Value {
    let mut vm = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
        "metadata": {"name": "mine", "annotations": annotations}, "spec": {},
    });
    super::merge(&mut vm, more);
    vm
}

/// The VM as it is admitted, and the warnings.
async fn made(vm: &Value) -> (Value, Value) {
    let response = reviewed(&desktop(), PATH, &body(vm, &Value::Null)).await;
    assert_eq!(response["allowed"], true, "{response}");
    let mut made = vm.clone();
    if response["patch"].is_string() {
        let bytes: k8s_openapi::ByteString =
            serde_json::from_value(response["patch"].clone()).unwrap();
        let patch: json_patch::Patch = serde_json::from_slice(&bytes.0).unwrap();
        json_patch::patch(&mut made, &patch).unwrap();
    }
    (made, response["warnings"].clone())
}

/// Field and message of the one cause.
async fn refused(fake: &Fake, vm: &Value) -> (String, String) {
    let response = reviewed(fake, PATH, &body(vm, &Value::Null)).await;
    assert_eq!(response["status"]["code"], 422, "{response}");
    let causes = &response["status"]["details"]["causes"];
    let text = |key: &str| causes[0][key].as_str().unwrap_or_default().to_owned();
    (text("field"), text("message"))
}

#[tokio::test]
async fn an_annotation_asks_for_a_configs_spec_once() {
    let vm = asking(json!({"vmpool.dev/config": "desktop"}), json!({}));
    let (once, warnings) = made(&vm).await;
    assert_eq!(once["spec"]["runStrategy"], "Always");
    let volumes = &once["spec"]["template"]["spec"]["volumes"];
    assert_eq!(volumes[0]["dataVolume"]["name"], "mine-root");
    assert_eq!(volumes[1]["cloudInitNoCloud"]["secretRef"]["name"], "init");
    let note = once["metadata"]["annotations"]["vmpool.dev/stamped-from"]
        .as_str()
        .unwrap();
    assert!(note.starts_with("desktop-"), "{note}");
    assert_eq!(warnings, Value::Null);
    assert_eq!(made(&once).await.0, once, "again");

    // A clone has the note, another name, and what the first one had.
    let mut clone = once.clone();
    clone["metadata"]["name"] = json!("other");
    assert_eq!(made(&clone).await.0, clone);
    let forbidden = Fake {
        is_forbidden: true,
        ..desktop()
    };
    let response = reviewed(&forbidden, PATH, &body(&clone, &Value::Null)).await;
    assert_eq!(response["allowed"], true, "it asks for nothing");
}

#[tokio::test]
async fn a_postfix_and_marks_of_a_member_beside_it() {
    let mut vm = asking(
        json!({"vmpool.dev/config": "desktop", "vmpool.dev/postfix": "7"}),
        json!({"metadata": {"labels": {"vmpool.dev/pool": "web", "app": "x"}}, "spec": {"runStrategy": "Manual"}}),
    );
    vm["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "vmpool.dev/v1alpha1", "kind": "VirtualMachinePool", "name": "web", "uid": "u", "controller": true,
    }]);
    let (made, warnings) = made(&vm).await;
    assert_eq!(made["metadata"]["labels"], json!({"app": "x"}));
    assert_eq!(made["metadata"].get("ownerReferences"), None);
    assert_eq!(warnings.as_array().unwrap().len(), 1);
    assert_eq!(made["spec"]["runStrategy"], "Manual");
    let volumes = &made["spec"]["template"]["spec"]["volumes"];
    assert_eq!(
        volumes[1]["cloudInitNoCloud"]["secretRef"]["name"],
        "init-7"
    );
}

#[tokio::test]
async fn what_can_not_be_made_is_refused_by_what_asks_for_it() {
    const CONFIG: &str = "metadata.annotations[vmpool.dev/config]";
    let of = |name: &str| asking(json!({"vmpool.dev/config": name}), json!({}));
    let (field, message) = refused(&desktop(), &of("gone")).await;
    assert_eq!(field, CONFIG);
    assert!(message.contains("\"gone\" does not exist"), "{message}");
    // A name is part of a path.
    for odd in ["", "../pods/x", "a/b", "A", "x?y"] {
        let (field, message) = refused(&desktop(), &of(odd)).await;
        assert_eq!(field, CONFIG);
        assert!(message.contains("no name of an object"), "{message}");
    }
    // Whether it exists is nobody's business who may not read it.
    let forbidden = Fake {
        is_forbidden: true,
        ..desktop()
    };
    for name in ["desktop", "gone"] {
        let (field, message) = refused(&forbidden, &of(name)).await;
        assert_eq!(field, CONFIG);
        assert!(message.contains("\"jane\" cannot get"), "{message}");
    }
    for odd in ["", "a/b", "-", "A b"] {
        let vm = asking(
            json!({"vmpool.dev/config": "desktop", "vmpool.dev/postfix": odd}),
            json!({}),
        );
        let (field, _) = refused(&desktop(), &vm).await;
        assert_eq!(field, "metadata.annotations[vmpool.dev/postfix]");
    }
    let generated = asking(
        json!({"vmpool.dev/config": "desktop"}),
        json!({"metadata": {"name": null, "generateName": "mine-"}}),
    );
    let (field, message) = refused(&desktop(), &generated).await;
    assert_eq!(field, "metadata.name");
    assert!(message.contains("generateName"), "{message}");
    // 58 characters and "-root" are 63.
    let named = |length: usize| {
        asking(
            json!({"vmpool.dev/config": "desktop"}),
            json!({"metadata": {"name": "x".repeat(length)}}),
        )
    };
    made(&named(58)).await;
    let (field, message) = refused(&desktop(), &named(61)).await;
    assert_eq!(field, "metadata.name");
    assert!(message.contains("at most 58 are left"), "{message}");
}

#[tokio::test]
async fn a_disk_that_is_there_is_not_taken_for_its_own() {
    let vm = |more| asking(json!({"vmpool.dev/config": "desktop"}), more);
    for (there, kind) in [
        (Named::DataVolume("mine-root".to_owned()), "DataVolume"),
        (
            Named::Claim("mine-root".to_owned()),
            "PersistentVolumeClaim",
        ),
    ] {
        let fake = Fake {
            existing: Some(vec![there]),
            ..desktop()
        };
        let (field, message) = refused(&fake, &vm(json!({}))).await;
        assert_eq!(field, "metadata.name");
        let expected = format!("{kind} mine-root exists already");
        assert!(message.contains(&expected), "{message}");
        // Who names it in a template of the VM's own means it.
        let own = json!({"spec": {"dataVolumeTemplates": [{"metadata": {"name": "mine-root"}, "spec": {}}]}});
        let response = reviewed(&fake, PATH, &body(&vm(own), &Value::Null)).await;
        assert_eq!(response["allowed"], true, "{response}");
    }
}

#[tokio::test]
async fn while_nobody_knows_it_waits() {
    let down = Fake {
        is_down: true,
        ..desktop()
    };
    let vm = asking(json!({"vmpool.dev/config": "desktop"}), json!({}));
    let response = reviewed(&down, PATH, &body(&vm, &Value::Null)).await;
    assert_eq!(response["allowed"], false);
    assert_eq!(response["status"]["code"], 500);
}
