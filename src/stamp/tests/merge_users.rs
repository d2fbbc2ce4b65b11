//! What users, webhooks and KubeVirt did to a member, and what a config changes of it.

#![expect(
    clippy::too_many_lines,
    reason = "tables of what is done to a VM, and what it is to be after that"
)]

use super::merge::{Change, TEMPLATE, created, holds, merged, set, spec, with};
use super::*;

#[test]
fn ro_09_what_users_and_webhooks_did_to_a_member_stays() {
    let old = spec();
    let mut new = with(&old, "/template/spec/hostname", json!("b"));
    set(
        &mut new,
        "/template/spec/domain/devices/disks/1/disk/bus",
        json!("sata"),
    );
    set(
        &mut new,
        "/template/spec/domain/devices/interfaces/0",
        json!({"name": "default", "bridge": {}}),
    );
    set(
        &mut new,
        "/template/spec/tolerations",
        json!([{"key": "b"}]),
    );
    let vm = merged(&old, &new, |vm| {
        set(vm, "/metadata/labels/keep", json!("yes"));
        set(vm, "/metadata/annotations/note", json!("mine"));
        set(
            vm,
            "/metadata/annotations/vmpool.dev~1protected",
            json!("scale-in"),
        );
        set(vm, "/spec/runStrategy", json!("Halted"));
        set(vm, "/spec/instancetype/revisionName", json!("small-v1-x"));
        let spec = &mut vm["spec"]["template"]["spec"];
        spec["architecture"] = json!("amd64");
        spec["domain"]["machine"] = json!({"type": "pc-q35-9"});
        spec["domain"]["firmware"] = json!({"uuid": "f", "serial": "s"});
        spec["domain"]["devices"]["interfaces"][0]["macAddress"] = json!("02:00:00:00:00:01");
        set(spec, "/tolerations/-", json!({"key": "webhook"}));
        set(
            spec,
            "/volumes/-",
            json!({"name": "plugged", "dataVolume": {"name": "p", "hotpluggable": true}}),
        );
        set(
            spec,
            "/domain/devices/disks/-",
            json!({"name": "plugged", "disk": {"bus": "scsi"}}),
        );
        vm["spec"]["template"]["metadata"]["annotations"]["kubevirt.io/pci-topology-version"] =
            json!("v3");
    });
    let at = |path: &str| format!("{TEMPLATE}{path}");
    holds(
        &vm,
        &[
            ("/metadata/labels/keep", json!("yes")),
            ("/metadata/annotations/note", json!("mine")),
            (
                "/metadata/annotations/vmpool.dev~1protected",
                json!("scale-in"),
            ),
            ("/spec/runStrategy", json!("Halted")),
            ("/spec/instancetype/revisionName", json!("small-v1-x")),
            (
                "/spec/template/metadata/annotations/kubevirt.io~1pci-topology-version",
                json!("v3"),
            ),
            (&at("/hostname"), json!("b")),
            (&at("/architecture"), json!("amd64")),
            (&at("/domain/machine/type"), json!("pc-q35-9")),
            (&at("/domain/firmware"), json!({"uuid": "f", "serial": "s"})),
            (
                &at("/domain/devices/interfaces"),
                json!([
                    {"name": "default", "bridge": {}, "macAddress": "02:00:00:00:00:01"},
                ]),
            ),
            (
                &at("/domain/devices/disks/1"),
                json!({"name": "image", "disk": {"bus": "sata"}}),
            ),
            (&at("/domain/devices/disks/3/name"), json!("plugged")),
            (&at("/volumes/3/name"), json!("plugged")),
            (
                &at("/tolerations"),
                json!([{"key": "webhook"}, {"key": "b"}]),
            ),
        ],
    );
}

#[test]
fn what_the_config_changes_it_decides_and_what_it_drops_stays_if_it_is_somebody_elses() {
    let old = spec();
    let touch = |vm: &mut Value| set(vm, "/spec/template/spec/hostname", json!("users"));
    let other = with(&old, "/template/spec/domain/memory/guest", json!("2Gi"));
    holds(
        &merged(&old, &other, touch),
        &[("/spec/template/spec/hostname", json!("users"))],
    );
    let changed = with(&old, "/template/spec/hostname", json!("b"));
    holds(
        &merged(&old, &changed, touch),
        &[("/spec/template/spec/hostname", json!("b"))],
    );
    let dropped = with(&old, "/template/spec/hostname", Value::Null);
    holds(
        &merged(&old, &dropped, touch),
        &[("/spec/template/spec/hostname", json!("users"))],
    );
}

#[test]
fn dropped_firmware_leaves_the_identity_that_kubevirt_gave() {
    let old = with(
        &spec(),
        "/template/spec/domain/firmware",
        json!({"bootloader": {"efi": {}}}),
    );
    let vm = merged(&old, &spec(), |vm| {
        set(vm, "/spec/template/spec/domain/firmware/uuid", json!("f"));
    });
    holds(
        &vm,
        &[("/spec/template/spec/domain/firmware", json!({"uuid": "f"}))],
    );
}

#[test]
fn a_run_strategy_that_somebody_changed_stays_and_another_one_follows_the_config() {
    let to = |strategy: &str| with(&spec(), "/runStrategy", json!(strategy));
    // Strategy of the old and the new config, run fields of the VM, and what they become.
    for (from, new, live, expected) in [
        (
            "Always",
            "Manual",
            json!({"runStrategy": "Always"}),
            json!({"runStrategy": "Manual"}),
        ),
        (
            "Always",
            "Manual",
            json!({"runStrategy": "Halted"}),
            json!({"runStrategy": "Halted"}),
        ),
        (
            "Halted",
            "Manual",
            json!({"runStrategy": "Always"}),
            json!({"runStrategy": "Always"}),
        ),
        (
            "Always",
            "Always",
            json!({"runStrategy": "Halted"}),
            json!({"runStrategy": "Halted"}),
        ),
        (
            "Always",
            "Halted",
            json!({"running": true}),
            json!({"running": false}),
        ),
        (
            "Halted",
            "Always",
            json!({"running": false}),
            json!({"running": true}),
        ),
        (
            "Always",
            "Manual",
            json!({"running": true}),
            json!({"runStrategy": "Manual"}),
        ),
        (
            "Always",
            "Manual",
            json!({"running": false}),
            json!({"running": false}),
        ),
    ] {
        let vm = merged(&to(from), &to(new), |vm| {
            set(vm, "/spec/runStrategy", Value::Null);
            vm["spec"]
                .as_object_mut()
                .unwrap()
                .append(live.clone().as_object_mut().unwrap());
        });
        let run: Map<_, _> = vm["spec"]
            .as_object()
            .unwrap()
            .clone()
            .into_iter()
            .filter(|(key, _)| key.starts_with("run"))
            .collect();
        assert_eq!(Value::Object(run), expected, "{from} to {new} on {live}");
    }
    let (old, halted, inputs) = (spec(), to("Halted"), inputs(json!({})));
    let kept = Change {
        from: Some((&old, &inputs)),
        to: (&halted, &inputs),
        keeps_run_strategy: true,
    };
    holds(
        &kept.done(&created(&old, &inputs)),
        &[("/spec/runStrategy", json!("Always"))],
    );
}

#[test]
fn a_changed_instance_type_clears_the_revision_that_was_resolved() {
    let old = spec();
    let resolved = |vm: &mut Value| {
        vm["spec"]["instancetype"] = json!({"name": "small", "kind": "VirtualMachineClusterInstancetype", "revisionName": "r"});
        vm["spec"]["preference"]["revisionName"] = json!("p");
    };
    let new = with(&old, "/instancetype", json!({"name": "large"}));
    let vm = merged(&old, &new, resolved);
    holds(
        &vm,
        &[
            ("/spec/instancetype", json!({"name": "large"})),
            ("/spec/preference/revisionName", json!("p")),
        ],
    );
    // Said in another way, it is the same.
    let same = with(
        &old,
        "/instancetype",
        json!({"name": "small", "kind": "virtualmachineclusterinstancetype"}),
    );
    holds(
        &merged(&old, &same, resolved),
        &[("/spec/instancetype/revisionName", json!("r"))],
    );
    let kind = with(
        &old,
        "/instancetype",
        json!({"name": "small", "kind": "VirtualMachineInstancetype"}),
    );
    holds(
        &merged(&old, &kind, resolved),
        &[("/spec/instancetype/revisionName", Value::Null)],
    );
    // One that KubeVirt found by a volume is no change of somebody's.
    let inferred = with(&old, "/instancetype", json!({"inferFromVolume": "root"}));
    let none = with(&old, "/instancetype", Value::Null);
    holds(
        &merged(&inferred, &none, resolved),
        &[("/spec/instancetype", Value::Null)],
    );
    holds(
        &merged(&inferred, &old, resolved),
        &[("/spec/instancetype/revisionName", json!("r"))],
    );
}

#[test]
fn m75_labels_and_annotations_of_the_pool_come_and_go_and_users_stay() {
    let spec = spec();
    let metadata = |labels: Value| inputs(json!({"virtualMachineMetadata": {"labels": labels}}));
    let (before, after) = (
        metadata(json!({"team": "a", "tier": "1"})),
        metadata(json!({"team": "b"})),
    );
    let change = Change {
        from: Some((&spec, &before)),
        to: (&spec, &after),
        keeps_run_strategy: false,
    };
    let mut live = created(&spec, &before);
    assert_eq!(change.done(&live), created(&spec, &after));
    set(&mut live, "/metadata/labels/tier", json!("users"));
    set(&mut live, "/metadata/labels/own", json!("x"));
    let vm = change.done(&live);
    holds(
        &vm,
        &[
            ("/metadata/labels/team", json!("b")),
            ("/metadata/labels/tier", json!("users")),
            ("/metadata/labels/own", json!("x")),
        ],
    );
    assert_eq!(
        vm["spec"]["template"]["spec"],
        live["spec"]["template"]["spec"]
    );
}
