//! When two specs are one revision.

use serde_json::{Value, json};

use super::*;

fn hash(spec: &Value) -> String {
    revision_hash(object(spec))
}

#[test]
fn forms_that_mean_the_same_are_one_revision() {
    let plain = json!({"runStrategy": "Always", "template": {"spec": {"domain": {"cpu": {"cores": 1}, "devices": {}}, "volumes": [{"name": "a", "emptyDisk": {}}]}}});
    for same in [
        r#"{"template": {"spec": {"volumes": [{"emptyDisk": {}, "name": "a"}], "domain": {"devices": {}, "cpu": {"cores": 1}}}}, "runStrategy": "Always"}"#,
        r#"{"running": true, "template": {"spec": {"domain": {"cpu": {"cores": 1}, "devices": {}}, "volumes": [{"name": "a", "emptyDisk": {}}]}}}"#,
        r#"{"runStrategy": "Always", "running": null, "template": {"spec": {"domain": {"cpu": {"cores": 1.0}, "devices": {}}, "volumes": [{"name": "a", "emptyDisk": {}}]}}}"#,
        r#"{"runStrategy": "Always", "dataVolumeTemplates": [], "template": {"metadata": {"creationTimestamp": null, "labels": {}}, "spec": {"networks": [], "hostname": null, "domain": {"resources": {}, "cpu": {"cores": 1e0}, "devices": {"disks": [], "interfaces": null}}, "volumes": [{"name": "a", "emptyDisk": {}}]}}}"#,
    ] {
        let same: Value = serde_json::from_str(same).unwrap();
        assert_eq!(hash(&same), hash(&plain), "{same}");
    }
}

#[test]
fn forms_that_mean_something_else_are_another_revision() {
    let specs = [
        json!({"runStrategy": "Always", "template": {"spec": {"domain": {"devices": {}}}}}),
        json!({"runStrategy": "Halted", "template": {"spec": {"domain": {"devices": {}}}}}),
        json!({"runStrategy": "Always", "running": true, "template": {"spec": {"domain": {"devices": {}}}}}),
        // An empty map that is not nothing.
        json!({"runStrategy": "Always", "template": {"spec": {"domain": {"devices": {"tpm": {}}}}}}),
        json!({"runStrategy": "Always", "template": {"spec": {"domain": {"devices": {"rng": {}}}}}}),
        json!({"runStrategy": "Always", "template": {"spec": {"domain": {"devices": {}}, "brandNew": {}}}}),
        json!({"runStrategy": "Always", "template": {"spec": {"domain": {"devices": {}}, "brandNew": []}}}),
        // Lists have an order, and nulls in them a place.
        json!({"runStrategy": "Always", "template": {"spec": {"domain": {"devices": {}}, "volumes": [{"name": "a"}, {"name": "b"}]}}}),
        json!({"runStrategy": "Always", "template": {"spec": {"domain": {"devices": {}}, "volumes": [{"name": "b"}, {"name": "a"}]}}}),
        json!({"runStrategy": "Always", "template": {"spec": {"domain": {"devices": {}}, "volumes": [null]}}}),
        // A number and its text.
        json!({"runStrategy": "Always", "template": {"spec": {"domain": {"devices": {}}, "x": 1}}}),
        json!({"runStrategy": "Always", "template": {"spec": {"domain": {"devices": {}}, "x": "1"}}}),
        json!({"runStrategy": "Always", "template": {"spec": {"domain": {"devices": {}}, "x": 1.5}}}),
        json!({"runStrategy": "Always", "template": {"spec": {"domain": {"devices": {}}, "x": true}}}),
        json!({"runStrategy": "Always", "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"domain": {"devices": {}}}}}),
        json!({"runStrategy": "Always", "template": {"metadata": {"annotations": {"a": "b"}}, "spec": {"domain": {"devices": {}}}}}),
    ];
    let mut hashes: Vec<String> = specs.iter().map(hash).collect();
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), specs.len());
}

#[test]
fn whole_numbers_are_integers_and_great_ones_what_they_are() {
    let number = |text: &str| {
        let spec: Value = serde_json::from_str(&format!(r#"{{"x": {text}}}"#)).unwrap();
        normalise(object(&spec))["x"].to_string()
    };
    for (text, expected) in [
        ("1", "1"),
        ("1.0", "1"),
        ("1e3", "1000"),
        ("-0.0", "0"),
        ("-5.0", "-5"),
        ("0.5", "0.5"),
        ("18446744073709551615", "18446744073709551615"),
        ("-9223372036854775808", "-9223372036854775808"),
        ("1e300", "1e+300"),
    ] {
        assert_eq!(number(text), expected, "{text}");
    }
}

#[test]
fn nr_07_hashes_have_one_length_and_fit_labels() {
    for seed in 0..1000 {
        let hash = hash(&json!({"seed": seed}));
        assert_eq!(hash.len(), crate::stamp::revision::HASH_LENGTH);
        assert!(
            hash.bytes()
                .all(|byte| b"bcdfghjklmnpqrstvwxz2456789".contains(&byte)),
            "{hash}"
        );
    }
    let name = revision_name(&"c".repeat(names::CONFIG_BUDGET), &hash(&json!({})));
    assert_eq!(name.len(), names::LABEL_BUDGET);
}

#[test]
fn hashes_are_what_they_were_in_every_release() {
    let spec = json!({"running": true, "template": {"spec": {"domain": {"devices": {"tpm": {}}, "cpu": {"cores": 2.0}}, "text": "ä\n\"\u{7}"}}});
    let hashes = [
        hash(&json!({})),
        hash(&spec),
        stamp_hash("content", &inputs(json!({}))),
        stamp_hash("content", &all_flags()),
    ];
    assert_eq!(
        hashes,
        ["vwps2lfkg2", "x6vxjlbzdb", "xc9jfwncxw", "pp82vwnh5x"]
    );
}

#[test]
fn a_stamps_hash_follows_the_content_and_every_input_and_nothing_else() {
    let plain = inputs(json!({}));
    let variants = [
        json!({"appendPostfixToSecretReferences": true}),
        json!({"appendPostfixToConfigMapReferences": true}),
        json!({"appendPostfixToVolumeClaimReferences": true}),
        json!({"sharedSecrets": ["x"]}),
        json!({"sharedConfigMaps": ["x"]}),
        json!({"sharedVolumeClaims": ["x"]}),
        json!({"virtualMachineMetadata": {"labels": {"x": "y"}}}),
        json!({"virtualMachineMetadata": {"annotations": {"x": "y"}}}),
        json!({"vmPrefix": "b"}),
    ];
    let mut hashes: Vec<String> = variants
        .map(|extra| stamp_hash("c", &inputs(extra)))
        .to_vec();
    hashes.push(stamp_hash("c", &plain));
    hashes.push(stamp_hash("d", &plain));
    let count = hashes.len();
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), count);

    let explicit = inputs(
        json!({"appendPostfixToSecretReferences": false, "sharedSecrets": [], "virtualMachineMetadata": {"labels": {}}}),
    );
    assert_eq!(stamp_hash("c", &explicit), stamp_hash("c", &plain));
    let shared = |names: Value| stamp_hash("c", &inputs(json!({"sharedSecrets": names})));
    assert_eq!(shared(json!(["a", "b"])), shared(json!(["b", "a", "b"])));
}
