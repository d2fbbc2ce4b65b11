//! Names, numbers and pruning of revisions.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};

use super::super::fixtures::{Object, caches, config, pool, revision, vm, vmi};
use super::super::revisions::{Step, prunable, step, used};
use crate::api::labels;
use crate::cache::{Key, RevisionEntry};

fn spec(memory: &str) -> Value {
    json!({"runStrategy": "Always", "template": {"spec": {"domain": {"memory": {"guest": memory}}}}})
}

fn entries(revisions: &[Object]) -> Vec<Arc<RevisionEntry>> {
    revisions
        .iter()
        .map(|revision| Arc::new(revision.revision_entry()))
        .collect()
}

fn name(memory: &str) -> String {
    revision("desktop", spec(memory), 1)
        .revision_entry()
        .id
        .name
}

#[test]
fn the_first_spec_becomes_revision_1_and_a_changed_one_the_next() {
    let first = config("desktop", spec("1Gi")).config_entry();
    let expected = Step::Create {
        name: name("1Gi"),
        number: 1,
    };
    assert_eq!(step(&first, &[]), expected);
    let known = entries(&[revision("desktop", spec("1Gi"), 1)]);
    let changed = config("desktop", spec("2Gi")).config_entry();
    let expected = Step::Create {
        name: name("2Gi"),
        number: 2,
    };
    assert_eq!(step(&changed, &known), expected);
}

#[test]
fn another_form_of_the_same_spec_makes_no_revision() {
    let known = entries(&[revision("desktop", spec("1Gi"), 1)]);
    let mut other = spec("1Gi");
    other["dataVolumeTemplates"] = json!([]);
    other["running"] = Value::Null;
    let entry = config("desktop", other).config_entry();
    assert_eq!(step(&entry, &known), Step::Keep { name: name("1Gi") });
}

#[test]
fn going_back_uses_the_old_revision_with_a_new_number() {
    let known = entries(&[
        revision("desktop", spec("1Gi"), 1),
        revision("desktop", spec("2Gi"), 2),
    ]);
    let entry = config("desktop", spec("1Gi")).config_entry();
    let expected = Step::Renumber {
        name: name("1Gi"),
        number: 3,
    };
    assert_eq!(step(&entry, &known), expected);
}

#[test]
fn two_revisions_with_one_number_are_told_apart_again() {
    let known = entries(&[
        revision("desktop", spec("1Gi"), 2),
        revision("desktop", spec("2Gi"), 2),
    ]);
    let entry = config("desktop", spec("1Gi")).config_entry();
    let expected = Step::Renumber {
        name: name("1Gi"),
        number: 3,
    };
    assert_eq!(step(&entry, &known), expected);
}

#[test]
fn a_revision_of_that_name_with_other_content_is_not_used() {
    let forged = revision("desktop", spec("1Gi"), 1).set("/data/spec", spec("9Gi"));
    let entry = config("desktop", spec("1Gi")).config_entry();
    let expected = Step::Collide { name: name("1Gi") };
    assert_eq!(step(&entry, &entries(&[forged])), expected);
}

#[test]
fn m07_what_is_in_use_is_never_pruned_and_the_oldest_go_first() {
    let memory = |n: i64| format!("{n}Gi");
    let revisions: Vec<_> = (1..=8)
        .map(|n| revision("desktop", spec(&memory(n)), n))
        .collect();
    let pinned = pool("pinned", "uid-pinned").set("/spec/config/revision", name("2Gi").into());
    let targeting = pool("web", "uid-web").set(
        "/status",
        json!({"replicas": 0, "readyReplicas": 0, "availableReplicas": 0, "targetRevision": name("3Gi")}),
    );
    let mut filled = caches().pool(pinned).pool(targeting);
    for revision in &revisions {
        filled = filled.revision(revision.clone());
    }
    let old_vm = vm("web-1")
        .owner("web", "uid-web")
        .label(labels::REVISION, &name("1Gi"));
    let older_instance = vmi("web-1").label(labels::REVISION, &name("4Gi"));
    let caches = filled.vm(old_vm).vmi(older_instance).done();

    let used = used(&caches, &Key::new("tests", "desktop"), &name("8Gi"));
    let expected: BTreeSet<_> = [1, 2, 3, 4, 8].map(|n| name(&memory(n))).into();
    assert_eq!(used, expected);
    let known = entries(&revisions);
    let pruned = |limit| -> Vec<i64> {
        prunable(&known, limit, &used)
            .iter()
            .map(|revision| revision.number)
            .collect()
    };
    assert_eq!(pruned(10), [0; 0]);
    assert_eq!(pruned(7), [5]);
    assert_eq!(pruned(2), [5, 6, 7]);
    assert_eq!(pruned(0), [5, 6, 7]);
}
