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
    let status = status(&entry, &entry.status, None, 2, verdict, clock::now());
    assert_eq!(status.latest_revision, None);
    assert_eq!(status.conditions[0].observed_generation, Some(1));
}

#[test]
fn a_status_that_the_cache_does_not_show_yet_is_not_written_with_another_time() {
    let entry = config("desktop", json!({"runStrategy": "Always"})).config_entry();
    let start = clock::now();
    let verdict = || Accepted {
        status: "True",
        reason: reasons::ACCEPTED_BY_KUBEVIRT,
        message: String::new(),
    };
    let said = status(&entry, &entry.status, Some("a"), 1, verdict(), start);
    let later = start + Duration::from_secs(5);
    // The entry is as old as before.
    assert_eq!(status(&entry, &said, Some("a"), 1, verdict(), later), said);
    assert_ne!(
        status(&entry, &entry.status, Some("a"), 1, verdict(), later),
        said
    );
}
