//! What becomes of VMs on their way into the cluster.

use std::sync::Arc;

use serde_json::{Value, json};

use super::super::objects::{StoredRevision, Unavailable};
use super::super::review::Request;
use super::super::stamping::{Facts, review_member, review_stranger};
use super::super::verdict::Verdict;
use super::{config, create, fields, patched, pool};
use crate::api::VirtualMachinePool;
use crate::stamp::{PoolIdentity, PoolInputs, Revision, StampInput, revision_hash, stamp};

fn web() -> Arc<VirtualMachinePool> {
    let names = json!({"vmPrefix": "web", "appendPostfixToSecretReferences": true});
    let object = pool("web", json!({"replicas": 3, "nameGeneration": names}));
    Arc::new(serde_json::from_value(object).unwrap())
}

pub(super) fn revision() -> Arc<StoredRevision> {
    let spec = config(
        "desktop",
        json!({
            "dataVolumeTemplates": [{"metadata": {"name": "root"}, "spec": {"storage": {}}}],
            "template": {"spec": {"volumes": [
                {"name": "root", "dataVolume": {"name": "root"}},
                {"name": "init", "cloudInitNoCloud": {"secretRef": {"name": "init"}}},
            ]}},
        }),
    )["spec"]
        .as_object()
        .unwrap()
        .clone();
    Arc::new(StoredRevision {
        name: "desktop-bcdfghjklm".to_owned(),
        config: "desktop".to_owned(),
        content_hash: revision_hash(&spec),
        spec: Arc::new(spec),
    })
}

fn facts() -> Facts {
    Facts {
        pool: Ok(Some(web())),
        revision: Ok(Some(revision())),
    }
}

pub(super) fn stamped(ordinal: u32) -> Value {
    let revision = revision();
    stamp(&StampInput {
        namespace: "team",
        pool: PoolIdentity {
            name: "web",
            uid: "uid-of-web",
        },
        config: "desktop",
        revision: Revision {
            name: &revision.name,
            content_hash: &revision.content_hash,
            spec: &revision.spec,
        },
        inputs: &PoolInputs::of(&web()),
        ordinal,
    })
}

fn judged(vm: &Value) -> Verdict {
    review_member(&create(vm), &facts()).unwrap()
}

#[test]
fn a_vm_that_is_its_stamp_passes_untouched() {
    assert_eq!(judged(&stamped(2)), Verdict::allowed());
}

#[test]
fn what_was_changed_on_the_way_is_put_right_and_additions_stay() {
    let mut vm = stamped(2);
    vm["metadata"]["labels"]["vmpool.dev/ordinal"] = json!("7");
    vm["metadata"]["labels"]["another/label"] = json!("kept");
    vm["spec"]["template"]["spec"]["volumes"][1]["cloudInitNoCloud"]["secretRef"]["name"] =
        json!("init");
    vm["spec"]["template"]["spec"]["nodeSelector"] = json!({"zone": "a"});
    let verdict = judged(&vm);
    let result = patched(&vm, &verdict);
    let mut wanted = stamped(2);
    wanted["metadata"]["labels"]["another/label"] = json!("kept");
    wanted["spec"]["template"]["spec"]["nodeSelector"] = json!({"zone": "a"});
    assert_eq!(result, wanted);
    assert_eq!(
        judged(&result),
        Verdict::allowed(),
        "twice is as good as once"
    );
}

#[test]
fn what_is_not_real_is_refused_by_name() {
    let cases: [(&str, Value, &str); 6] = [
        (
            "/metadata/ownerReferences",
            json!([]),
            "metadata.ownerReferences",
        ),
        (
            "/metadata/ownerReferences/0/name",
            json!("db"),
            "metadata.ownerReferences",
        ),
        (
            "/metadata/ownerReferences/0/uid",
            json!("old"),
            "metadata.ownerReferences",
        ),
        (
            "/metadata/ownerReferences/0/apiVersion",
            json!("pool.kubevirt.io/v1beta1"),
            "metadata.ownerReferences",
        ),
        ("/metadata/name", json!("web-x"), "metadata.name"),
        (
            "/metadata/labels/vmpool.dev~1revision",
            json!("gone"),
            "metadata.labels[vmpool.dev/revision]",
        ),
    ];
    for (pointer, value, path) in cases {
        let mut vm = stamped(2);
        *vm.pointer_mut(pointer).unwrap() = value;
        let named = |found: bool| if found { Some(()) } else { None };
        let owner = vm.pointer("/metadata/ownerReferences/0/name") == Some(&json!("web"));
        let known = vm.pointer("/metadata/labels/vmpool.dev~1revision") != Some(&json!("gone"));
        let facts = Facts {
            pool: Ok(named(owner).map(|()| web())),
            revision: Ok(named(known).map(|()| revision())),
        };
        let verdict = review_member(&create(&vm), &facts).unwrap();
        assert_eq!(fields(&verdict), [path], "{pointer}");
    }
    let mut going = (*web()).clone();
    going.metadata.deletion_timestamp =
        Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
    let facts = Facts {
        pool: Ok(Some(Arc::new(going))),
        ..facts()
    };
    let verdict = review_member(&create(&stamped(1)), &facts).unwrap();
    assert_eq!(fields(&verdict), ["metadata.ownerReferences"]);
}

#[test]
fn what_can_not_be_looked_up_is_no_verdict() {
    let down = Unavailable {
        what: "pool web".to_owned(),
        why: "no answer within 3 s".to_owned(),
    };
    let facts = Facts {
        pool: Err(down),
        ..facts()
    };
    assert!(review_member(&create(&stamped(1)), &facts).is_err());
}

fn strangers(vm: &Value) -> (Value, Vec<String>) {
    let request: Request = create(vm);
    let verdict = review_stranger(&request);
    assert!(verdict.causes.is_empty());
    (patched(vm, &verdict), verdict.warnings)
}

#[test]
fn a_strangers_copy_is_admitted_as_the_plain_vm_that_it_is() {
    let mut copy = stamped(2);
    copy["metadata"]["name"] = json!("restored");
    copy["metadata"]["labels"]["team"] = json!("a");
    let other = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "u"});
    copy["metadata"]["ownerReferences"]
        .as_array_mut()
        .unwrap()
        .push(other.clone());
    let (plain, warnings) = strangers(&copy);
    assert_eq!(plain["metadata"]["labels"], json!({"team": "a"}));
    assert_eq!(plain["metadata"]["ownerReferences"], json!([other]));
    assert_eq!(plain["spec"]["template"]["metadata"]["labels"], json!({}));
    assert_eq!(
        plain["spec"]["template"]["spec"]["volumes"],
        copy["spec"]["template"]["spec"]["volumes"]
    );
    assert_eq!(warnings.len(), 1);
    assert!(warnings[0].len() <= 256);
    assert_eq!(strangers(&plain), (plain.clone(), Vec::new()));
}

#[test]
fn a_member_of_kubevirts_own_pool_is_not_touched() {
    let vm = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
        "metadata": {"name": "a-1", "labels": {"kubevirt.io/vmpool": "a"}, "ownerReferences": [
            {"apiVersion": "pool.kubevirt.io/v1beta1", "kind": "VirtualMachinePool", "name": "a", "uid": "u", "controller": true},
        ]},
        "spec": {},
    });
    assert_eq!(strangers(&vm), (vm.clone(), Vec::new()));
}
