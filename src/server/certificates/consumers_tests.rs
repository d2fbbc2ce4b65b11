//! Which `caBundle`s are written, and which are left alone.

use serde_json::{Value, json};

use super::super::tests::made;
use super::*;
use crate::clock;

fn object(data: &Value) -> DynamicObject {
    let mut object = json!({"metadata": {"name": "x", "resourceVersion": "7"}});
    for (key, value) in data.as_object().unwrap() {
        object[key] = value.clone();
    }
    serde_json::from_value(object).unwrap()
}

fn bundle(text: &str) -> Value {
    json!(ByteString(text.as_bytes().to_vec()))
}

/// The object after the patch, if there is one.
fn patched(consumer: Consumer, data: &Value, trust: &Trust) -> Option<Value> {
    let object = object(data);
    let patch = patch(consumer, &object, trust, clock::now())?;
    let mut patched = serde_json::to_value(&object).unwrap();
    json_patch::patch(&mut patched, &patch).unwrap();

    let mut newer = serde_json::to_value(&object).unwrap();
    newer["metadata"]["resourceVersion"] = json!("8");
    assert!(
        json_patch::patch(&mut newer, &patch).is_err(),
        "another version is left alone"
    );
    Some(patched)
}

#[test]
fn every_ca_bundle_that_differs_is_written_and_at_rest_none() {
    let trust = Trust::Exactly("ours".to_owned());
    let data = json!({"webhooks": [
        {"name": "a", "clientConfig": {"service": {"name": "vmpool"}}},
        {"name": "b", "clientConfig": {"caBundle": bundle("ours")}},
        {"name": "c", "clientConfig": {"caBundle": bundle("old")}},
    ]});
    let after = patched(Consumer::Mutating, &data, &trust).unwrap();
    for webhook in after["webhooks"].as_array().unwrap() {
        assert_eq!(webhook["clientConfig"]["caBundle"], bundle("ours"));
    }
    let service = &after["webhooks"][0]["clientConfig"]["service"]["name"];
    assert_eq!(service, "vmpool");
    assert_eq!(patched(Consumer::Validating, &after, &trust), None);
    assert_eq!(patched(Consumer::Validating, &json!({}), &trust), None);

    let service = json!({"spec": {"group": "x"}});
    let after = patched(Consumer::ApiService, &service, &trust).unwrap();
    assert_eq!(after["spec"]["caBundle"], bundle("ours"));
    assert_eq!(after["spec"]["group"], "x");
    assert_eq!(patched(Consumer::ApiService, &after, &trust), None);
}

#[test]
fn of_another_ones_cas_those_are_added_that_are_missing() {
    let (one, two) = (made().ca_pem, made().ca_pem);
    let at_least = Trust::AtLeast(one.clone());
    let spec = |text: &str| json!({"spec": {"caBundle": bundle(text)}});
    let after = |text: &str| {
        patched(Consumer::ApiService, &spec(text), &at_least)
            .map(|after| after["spec"]["caBundle"].clone())
    };
    assert_eq!(after(""), Some(bundle(&one)));
    assert_eq!(after(&two), Some(bundle(&format!("{one}{two}"))));
    assert_eq!(after(&format!("{two}{one}")), None, "newer ones stay");
    assert_eq!(after("junk"), Some(bundle(&one)));
}

fn found(objects: Vec<(Consumer, DynamicObject)>) -> Found {
    let (service, _) = tower_test::mock::pair::<
        http::Request<kube::client::Body>,
        http::Response<kube::client::Body>,
    >();
    Found {
        client: Client::new(service, "default"),
        objects,
        missing: Vec::new(),
        missing_needed: Vec::new(),
    }
}

#[tokio::test]
async fn ag_10_one_consumer_without_the_new_ca_is_enough_to_wait() {
    let (one, two) = (made().ca_pem, made().ca_pem);
    let both = format!("{one}{two}");
    let webhook =
        |text: &str| object(&json!({"webhooks": [{"clientConfig": {"caBundle": bundle(text)}}]}));
    let service = |text: &str| object(&json!({"spec": {"caBundle": bundle(text)}}));
    let all_trust = |mutating: &str, validating: &str, api: &str| {
        found(vec![
            (Consumer::Mutating, webhook(mutating)),
            (Consumer::Validating, webhook(validating)),
            (Consumer::ApiService, service(api)),
        ])
        .all_trust(&certificates_in(one.as_bytes()))
    };
    assert!(all_trust(&both, &one, &both));
    assert!(!all_trust(&two, &both, &both));
    assert!(!all_trust(&both, &two, &both));
    assert!(!all_trust(&both, &both, &two));
    assert!(!all_trust(&both, &both, ""));
    let of_one = found(vec![(Consumer::Mutating, webhook(&both))]);
    assert!(of_one.all_trust(&certificates_in(one.as_bytes())));
    assert_eq!(of_one.trusted(), [one, two]);
}
