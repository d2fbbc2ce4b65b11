//! The VM object as a whole: metadata, marks, run strategy, and what is left alone.

use serde_json::{Value, json};

use super::*;

#[test]
fn a_vm_has_its_name_labels_marks_and_owner() {
    let spec = json!({"runStrategy": "Halted", "template": {"metadata": {"labels": {"app": "w"}}, "spec": {}}});
    let inputs = inputs(
        json!({"virtualMachineMetadata": {"labels": {"team": "x"}, "annotations": {"note": "y"}}}),
    );
    let vm = stamped(&spec, &inputs, 7);
    let content = revision_hash(object(&spec));
    let mark = StampMark::new(&content, &inputs);
    let identity = json!({
        "vmpool.dev/pool": "a",
        "vmpool.dev/pool-uid": "1f0c",
        "vmpool.dev/ordinal": "7",
        "vmpool.dev/config": "cfg",
        "vmpool.dev/revision": format!("cfg-{content}"),
    });
    let and = |key: &str, value: &str| {
        let mut labels = identity.clone();
        labels[key] = json!(value);
        labels
    };
    assert_eq!(
        vm,
        json!({
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachine",
            "metadata": {
                "name": "a-7",
                "namespace": "t",
                "labels": and("team", "x"),
                "annotations": {
                    "note": "y",
                    "vmpool.dev/member-of": "1f0c",
                    "vmpool.dev/stamp": mark.to_annotation(),
                },
                "ownerReferences": [{
                    "apiVersion": "vmpool.dev/v1alpha1",
                    "kind": "VirtualMachinePool",
                    "name": "a",
                    "uid": "1f0c",
                    "controller": true,
                    "blockOwnerDeletion": true,
                }],
            },
            "spec": {
                "runStrategy": "Halted",
                "template": {
                    "metadata": {
                        "labels": and("app", "w"),
                        "annotations": {"vmpool.dev/stamp-hash": mark.hash},
                    },
                    "spec": {},
                },
            },
        })
    );
}

#[test]
fn our_labels_and_marks_win_over_users_of_the_same_key() {
    let spec = json!({"template": {"metadata": {
        "labels": {"vmpool.dev/pool": "theirs"},
        "annotations": {"vmpool.dev/stamp-hash": "theirs"},
    }}});
    let inputs = inputs(json!({"virtualMachineMetadata": {
        "labels": {"vmpool.dev/ordinal": "theirs"},
        "annotations": {"vmpool.dev/stamp": "theirs", "vmpool.dev/member-of": "theirs"},
    }}));
    let vm = stamped(&spec, &inputs, 1);
    let mut metadata = vm["metadata"].clone();
    // The mark quotes the inputs, theirs included.
    metadata["annotations"]["vmpool.dev/stamp"].take();
    assert!(!metadata.to_string().contains("theirs"), "{vm}");
    assert!(!vm["spec"].to_string().contains("theirs"), "{vm}");
    assert!(
        StampMark::parse(
            vm["metadata"]["annotations"]["vmpool.dev/stamp"]
                .as_str()
                .unwrap()
        )
        .is_some()
    );
}

#[test]
fn running_becomes_a_run_strategy() {
    for (spec, expected) in [
        (json!({"running": true}), json!({"runStrategy": "Always"})),
        (json!({"running": false}), json!({"runStrategy": "Halted"})),
        (
            json!({"running": true, "runStrategy": null}),
            json!({"runStrategy": "Always"}),
        ),
        (
            json!({"runStrategy": "Manual"}),
            json!({"runStrategy": "Manual"}),
        ),
        // Refused at admission, by KubeVirt too; what is wrong stays to be seen.
        (
            json!({"running": true, "runStrategy": "Halted"}),
            json!({"running": true, "runStrategy": "Halted"}),
        ),
        (json!({"running": "yes"}), json!({"running": "yes"})),
        (json!({}), json!({})),
    ] {
        assert_eq!(
            stamped(&spec, &inputs(json!({})), 1)["spec"],
            expected,
            "{spec}"
        );
    }
}

#[test]
fn cc_07_unknown_fields_and_values_arrive_at_every_depth() {
    let spec = json!({
        "runStrategy": "WhenTheMoonIsFull",
        "brandNewField": {"deep": [1, 2.5, 18_446_744_073_709_551_615_u64, -1, null, {"x": []}]},
        "dataVolumeTemplates": [{"metadata": {"name": "root", "brandNew": 1}, "brandNew": {}}],
        "template": {
            "brandNew": "",
            "metadata": {"name": "ignored", "labels": {}, "brandNew": false},
            "spec": {
                "domain": {"brandNewField": 1, "devices": {"brandNew": [{"name": "x"}]}},
                "volumes": [{"name": "v", "brandNew": {"secretName": "s", "name": "root"}}],
            },
        },
    });
    let vm = stamped(&spec, &all_flags(), 3);
    let mut expected = spec.clone();
    expected["dataVolumeTemplates"][0]["metadata"]["name"] = json!("a-3-root");
    expected["template"]["metadata"]["labels"] =
        vm["spec"]["template"]["metadata"]["labels"].clone();
    expected["template"]["metadata"]["annotations"] =
        vm["spec"]["template"]["metadata"]["annotations"].clone();
    assert_eq!(vm["spec"], expected);
}

#[test]
fn vd_06_labels_and_annotations_of_embedded_metadata_arrive() {
    let spec = json!({
        "runStrategy": "Always",
        "dataVolumeTemplates": [{"metadata": {"name": "root", "labels": {"l": "1"}, "annotations": {"cdi.kubevirt.io/storage.bind.immediate.requested": "true"}}, "spec": {}}],
        "template": {
            "metadata": {"labels": {"app": "w", "kubevirt.io/size": "small"}, "annotations": {"a/b": "c"}, "creationTimestamp": null},
            "spec": {"domain": {}},
        },
    });
    let vm = stamped(&spec, &inputs(json!({})), 2);
    let disk = &vm["spec"]["dataVolumeTemplates"][0]["metadata"];
    assert_eq!(
        disk["labels"],
        spec["dataVolumeTemplates"][0]["metadata"]["labels"]
    );
    assert_eq!(
        disk["annotations"],
        spec["dataVolumeTemplates"][0]["metadata"]["annotations"]
    );
    let metadata = &vm["spec"]["template"]["metadata"];
    assert_eq!(metadata["labels"]["app"], "w");
    assert_eq!(metadata["labels"]["kubevirt.io/size"], "small");
    assert_eq!(metadata["annotations"]["a/b"], "c");
    assert_eq!(metadata["creationTimestamp"], Value::Null);
}

#[test]
fn vd_04_odd_and_missing_parts_are_left_as_they_are() {
    for odd in [
        json!({}),
        json!({"template": null}),
        json!({"template": []}),
        json!({"template": "x", "dataVolumeTemplates": {"metadata": {"name": "x"}}}),
        json!({"template": {"metadata": 7, "spec": null}}),
        json!({"dataVolumeTemplates": [null, 1, [], {}, {"metadata": null}, {"metadata": {"name": null}}]}),
    ] {
        assert_eq!(stamped(&odd, &all_flags(), 1)["spec"], odd);
    }
    for odd in [
        json!({"spec": {"domain": {}}}),
        json!({"spec": {"volumes": {}}}),
        json!({"spec": {"volumes": [null, [], "x", {"name": "x"}, {"name": "x", "secret": null}, {"secret": {"secretName": ["x"]}}]}}),
        json!({"metadata": {"labels": [], "annotations": "x"}}),
    ] {
        let vm = stamped(&json!({"template": odd}), &all_flags(), 1);
        assert_eq!(vm["spec"]["template"]["spec"], odd["spec"]);
        for key in ["labels", "annotations"] {
            if !odd["metadata"][key].is_null() {
                assert_eq!(
                    vm["spec"]["template"]["metadata"][key],
                    odd["metadata"][key]
                );
            }
        }
    }
    // What is there or null in the place of metadata gets our marks.
    for odd in [
        json!({}),
        json!({"metadata": null}),
        json!({"metadata": {"labels": null}}),
    ] {
        let vm = stamped(&json!({"template": odd}), &all_flags(), 1);
        assert_eq!(
            vm["spec"]["template"]["metadata"]["labels"]["vmpool.dev/pool"],
            "a"
        );
    }
}

#[test]
fn vd_04_no_part_of_a_whole_spec_is_needed() {
    let golden: Value =
        serde_json::from_str(include_str!("../testdata/every-reference.json")).unwrap();
    let spec = golden["input"]["spec"].clone();
    let mut pointers = Vec::new();
    collect_pointers(&spec, String::new(), &mut pointers);
    assert!(pointers.len() > 100);
    for pointer in pointers {
        let (parent, last) = pointer.rsplit_once('/').unwrap();
        let mut removed = spec.clone();
        match removed.pointer_mut(parent).unwrap() {
            Value::Object(object) => drop(object.remove(&last.replace("~1", "/"))),
            Value::Array(elements) => drop(elements.remove(last.parse().unwrap())),
            other => panic!("{other} has no members"),
        }
        let mut nulled = spec.clone();
        *nulled.pointer_mut(&pointer).unwrap() = Value::Null;
        for odd in [removed, nulled] {
            let vm = stamped(&odd, &all_flags(), 1);
            assert_eq!(json_patch::Patch::default(), repair(&vm, &vm));
            revision_hash(object(&odd));
            crate::stamp::sharing::for_several_vms(&odd, &all_flags());
        }
    }
}

fn collect_pointers(value: &Value, at: String, pointers: &mut Vec<String>) {
    match value {
        Value::Array(list) => {
            for (index, element) in list.iter().enumerate() {
                collect_pointers(element, format!("{at}/{index}"), pointers);
            }
        }
        Value::Object(object) => {
            for (key, member) in object {
                collect_pointers(member, format!("{at}/{}", key.replace('/', "~1")), pointers);
            }
        }
        _ => {}
    }
    if !at.is_empty() {
        pointers.push(at);
    }
}
