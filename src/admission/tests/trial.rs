//! KubeVirt's verdict, as it comes out of the webhooks.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::super::hooks::TIMEOUT_SECONDS;
use super::super::{validate_config, validate_pool};
use super::http::reviewed;
use super::{Fake, body, config, pool};
use crate::kubevirt::verdict::{Fault, Verdict as Kubevirts};

fn fault(field: &str, message: &str) -> Fault {
    Fault {
        field: field.to_owned(),
        message: message.to_owned(),
    }
}

fn saying(verdicts: &[Kubevirts]) -> Fake {
    Fake {
        configs: vec![config("desktop", json!({}))],
        kubevirt: Arc::new(Mutex::new(verdicts.to_vec())),
        ..Fake::default()
    }
}

fn causes(response: &Value) -> Vec<(&str, &str)> {
    let causes = response["status"]["details"]["causes"].as_array();
    causes
        .into_iter()
        .flatten()
        .map(|cause| {
            (
                cause["field"].as_str().unwrap(),
                cause["message"].as_str().unwrap(),
            )
        })
        .collect()
}

#[tokio::test]
async fn m71_what_kubevirt_refuses_is_refused_at_its_own_path_in_its_own_words() {
    let faults = vec![
        fault(
            "spec.template.spec.domain.devices.disks[0].name",
            "no such volume",
        ),
        fault("spec", "something else"),
    ];
    let fake = saying(&[Kubevirts::Refused(faults)]);
    let review = body(&config("desktop", json!({})), &Value::Null);
    let response = reviewed(&fake, validate_config::PATH, &review).await;
    assert_eq!(response["status"]["code"], 422);
    assert_eq!(
        causes(&response),
        [
            (
                "spec.template.spec.domain.devices.disks[0].name",
                "KubeVirt: no such volume"
            ),
            ("spec", "KubeVirt: something else"),
        ]
    );
    let tried = fake.tried.lock().unwrap();
    assert_eq!(tried.len(), 1);
    assert!(!tried[0].to_string().contains("vmpool.dev/"), "no re-entry");
}

#[tokio::test]
async fn an_open_verdict_is_a_warning_and_no_more() {
    let fake = saying(&[Kubevirts::Open("exceeded quota".to_owned())]);
    let review = body(&config("desktop", json!({})), &Value::Null);
    let response = reviewed(&fake, validate_config::PATH, &review).await;
    assert_eq!(response["allowed"], true);
    assert_eq!(
        response["warnings"],
        json!(["KubeVirt's verdict is not known yet: exceeded quota"])
    );
}

#[tokio::test]
async fn what_was_stored_with_a_fault_stays_editable_in_all_that_makes_it_no_worse() {
    let (old, new) = (fault("spec.a", "bad"), fault("spec.b", "worse"));
    let update = body(
        &config("desktop", json!({"template": {"spec": {"hostname": "b"}}})),
        &config("desktop", json!({"template": {"spec": {"hostname": "a"}}})),
    );
    let refused =
        |faults: &[&Fault]| Kubevirts::Refused(faults.iter().map(|&fault| fault.clone()).collect());
    let fake = saying(&[refused(&[&old]), refused(&[&old])]);
    let response = reviewed(&fake, validate_config::PATH, &update).await;
    assert_eq!(response["allowed"], true);
    assert_eq!(fake.tried.lock().unwrap().len(), 2);
    let fake = saying(&[refused(&[&old, &new]), refused(&[&old])]);
    let response = reviewed(&fake, validate_config::PATH, &update).await;
    assert_eq!(causes(&response), [("spec.b", "KubeVirt: worse")]);
}

#[tokio::test]
async fn kubevirt_is_asked_only_where_the_answer_matters() {
    let plain = config("desktop", json!({}));
    let labelled = {
        let mut config = plain.clone();
        config["metadata"]["labels"] = json!({"a": "b"});
        config
    };
    let other_form = {
        let mut config = plain.clone();
        config["spec"]["running"] = json!(true);
        config["spec"]
            .as_object_mut()
            .unwrap()
            .remove("runStrategy");
        config
    };
    let bad = config("desktop", json!({"template": null}));
    for (what, object, stored) in [
        ("metadata alone", &labelled, &plain),
        ("another form of the same", &other_form, &plain),
        ("refused by ourselves", &bad, &Value::Null),
    ] {
        let fake = saying(&[]);
        reviewed(&fake, validate_config::PATH, body(object, stored)).await;
        assert_eq!(fake.tried.lock().unwrap().len(), 0, "{what}");
    }
    let one = pool("web", json!({"replicas": 1}));
    let two = pool("web", json!({"replicas": 2}));
    let renamed = pool("web", json!({"nameGeneration": {"vmPrefix": "w"}}));
    let other = pool("web", json!({"config": {"name": "other"}}));
    for (what, object, stored, times) in [
        ("a new pool", &one, &Value::Null, 1),
        ("another number", &two, &one, 0),
        ("other names", &renamed, &one, 1),
        ("a config that does not exist", &other, &one, 0),
    ] {
        let fake = saying(&[]);
        reviewed(&fake, validate_pool::PATH, body(object, stored)).await;
        assert_eq!(fake.tried.lock().unwrap().len(), times, "{what}");
    }
}

#[tokio::test]
async fn pools_are_tried_with_their_own_names() {
    let fake = saying(&[Kubevirts::Refused(vec![fault("spec.template", "too long")])]);
    let review = body(&pool("web", json!({})), &Value::Null);
    let response = reviewed(&fake, validate_pool::PATH, &review).await;
    assert_eq!(
        causes(&response),
        [(
            "spec.config.name",
            "KubeVirt refuses VMs of VirtualMachineConfig \"desktop\": spec.template: too long"
        )]
    );
    assert_eq!(
        fake.tried.lock().unwrap()[0]["metadata"]["name"],
        "web-999999"
    );
}

#[tokio::test(start_paused = true)]
async fn an_answer_does_not_wait_for_those_who_take_too_long() {
    let spec = json!({"template": {"spec": {"domain": {}, "volumes": [
        {"name": "files", "configMap": {"name": "files"}},
    ]}}});
    let fake = Fake {
        configs: vec![config("desktop", spec.clone())],
        is_slow: true,
        ..Fake::default()
    };
    let pool = pool("web", json!({"replicas": 5}));
    for (path, object) in [
        (validate_config::PATH, config("desktop", spec)),
        (validate_pool::PATH, pool),
    ] {
        let start = tokio::time::Instant::now();
        let response = reviewed(&fake, path, body(&object, &Value::Null)).await;
        assert_eq!(response["allowed"], true, "{response}");
        let warnings = response["warnings"].to_string();
        let expected =
            "KubeVirt's verdict is not known yet: the API server took too long to answer";
        assert!(warnings.contains(expected), "{response}");
        let took = start.elapsed().as_secs_f64();
        assert!(took < f64::from(TIMEOUT_SECONDS), "{path}: {took} s");
    }
}
