//! What is said of configs that no VM can come of.

use serde_json::json;

use super::*;
use crate::controller::fixtures::config;
use crate::json;

#[test]
fn what_no_vm_can_come_of_is_refused_with_its_reason() {
    let plain = config("desktop", json!({"runStrategy": "Always"}));
    assert_eq!(refused(&plain.config_entry(), None), None);
    let declined = refused(&plain.config_entry(), Some("because".to_owned())).unwrap();
    assert_eq!(
        (declined.status, declined.reason, declined.message.as_str()),
        ("False", reasons::OWN_NAMESPACE, "because")
    );
    let cut = json::Object {
        object: plain.dynamic(),
        is_cut: true,
    };
    let entry = ConfigEntry::read(cut).unwrap();
    assert!(entry.spec.is_empty(), "no VM of a part of a spec");
    let verdict = refused(&entry, None).unwrap();
    assert_eq!(
        (verdict.status, verdict.reason),
        ("False", reasons::INVALID_SPEC)
    );
    assert!(
        verdict.message.contains("at most 100 levels"),
        "{verdict:?}"
    );
    let status = status(&entry, None, 2, verdict, clock::now());
    assert_eq!(status.latest_revision, None);
    assert_eq!(status.conditions[0].observed_generation, Some(1));
}
