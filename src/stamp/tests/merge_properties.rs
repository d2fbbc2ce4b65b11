//! What holds for every merge: nothing is done where nothing changed, an untouched member gets the new stamp,
//! what others added stays, and doing it twice is doing it once.

use proptest::prelude::*;

use super::*;
use crate::stamp::merge::{Input, merge};
use crate::stamp::merge_tree::without_nulls;

fn element(name: &'static str) -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!({"name": name})),
        Just(json!({"name": name, "disk": {"bus": "virtio"}})),
        Just(json!({"name": name, "disk": {"bus": "sata"}, "bootOrder": 1})),
        Just(json!({"name": name, "cdrom": {}})),
    ]
}

fn volume(name: &'static str) -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!({"name": name, "emptyDisk": {"capacity": "1Gi"}})),
        Just(json!({"name": name, "containerDisk": {"image": "v1"}})),
        Just(json!({"name": name, "containerDisk": {"image": "v2"}})),
        Just(json!({"name": name, "cloudInitNoCloud": {"secretRef": {"name": "s"}}})),
    ]
}

/// Some of the elements, in some order.
fn list<S: Strategy<Value = Value> + 'static>(
    of: fn(&'static str) -> S,
) -> impl Strategy<Value = Vec<Value>> {
    let all: Vec<_> = ["root", "data", "init"].into_iter().map(of).collect();
    (Just(()), all)
        .prop_flat_map(|((), all)| prop::sample::subsequence(all, 0..=3))
        .prop_shuffle()
}

prop_compose! {
    /// Specs of one config over time.
    fn any_spec()(
        strategy in prop_oneof![Just("Always"), Just("Halted"), Just("Manual")],
        volumes in list(volume),
        disks in list(element),
        label in prop::option::of(prop_oneof![Just("a"), Just("b")]),
        hostname in prop::option::of(prop_oneof![Just("a"), Just("b")]),
        memory in prop_oneof![Just(json!(null)), Just(json!({"guest": "1Gi"})), Just(json!({"guest": "2Gi"}))],
        tolerations in prop::collection::vec(prop_oneof![Just(json!({"key": "a"})), Just(json!({"key": "b"}))], 0..3),
        instancetype in prop_oneof![Just(json!(null)), Just(json!({"name": "s"})), Just(json!({"name": "l"}))],
        keeps_lists in any::<bool>(),
    ) -> Value {
        let mut spec = json!({
            "runStrategy": strategy,
            "instancetype": instancetype,
            "template": {
                "metadata": {"labels": label.map(|label| json!({"app": label}))},
                "spec": {"hostname": hostname, "domain": {"memory": memory, "devices": {"disks": disks}},
                         "volumes": volumes, "tolerations": tolerations},
            },
        });
        if !keeps_lists {
            for list in ["volumes", "tolerations"] {
                let template = spec["template"]["spec"].as_object_mut().unwrap();
                if template[list].as_array().unwrap().is_empty() {
                    template.remove(list);
                }
            }
        }
        spec
    }
}

/// What others add to a VM.
fn touched(vm: &Value) -> Value {
    let mut vm = vm.clone();
    vm["metadata"]["labels"]["theirs"] = json!("1");
    vm["metadata"]["annotations"]["theirs"] = json!("1");
    let template = &mut vm["spec"]["template"];
    template["metadata"]["annotations"]["theirs"] = json!("1");
    let spec = &mut template["spec"];
    spec["architecture"] = json!("amd64");
    spec["domain"]["firmware"] = json!({"uuid": "u"});
    for (list, element) in [
        ("tolerations", json!({"key": "theirs"})),
        (
            "volumes",
            json!({"name": "theirs", "dataVolume": {"name": "theirs"}}),
        ),
    ] {
        match &mut spec[list] {
            Value::Array(list) => list.push(element),
            none => *none = json!([element]),
        }
    }
    vm
}

fn merged(base: Option<&Value>, target: &Value, live: &Value) -> Value {
    merge(&Input {
        base,
        target,
        live,
        keeps_run_strategy: false,
    })
}

/// As the API server has it.
fn stored(spec: &Value) -> Value {
    without_nulls(&stamped(spec, &inputs(json!({})), 1))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_changes_where_the_config_has_not(spec in any_spec(), other in any_spec()) {
        let base = stamped(&spec, &inputs(json!({})), 1);
        for live in [stored(&spec), touched(&stored(&spec))] {
            prop_assert_eq!(merged(Some(&base), &base, &live), live);
        }
        // Whatever the VM has become, but for our own marks.
        let mut live = stored(&other);
        for place in ["/metadata", "/spec/template/metadata"] {
            *live.pointer_mut(place).unwrap() = stored(&spec).pointer(place).unwrap().clone();
        }
        prop_assert_eq!(merged(Some(&base), &base, &live), live);
    }

    #[test]
    fn an_untouched_member_gets_exactly_the_new_stamp(old in any_spec(), new in any_spec()) {
        let base = stamped(&old, &inputs(json!({})), 1);
        let target = stamped(&new, &inputs(json!({})), 1);
        prop_assert_eq!(merged(Some(&base), &target, &stored(&old)), stored(&new));
    }

    #[test]
    fn what_others_added_survives_and_once_is_enough(old in any_spec(), new in any_spec()) {
        let base = stamped(&old, &inputs(json!({})), 1);
        let target = stamped(&new, &inputs(json!({})), 1);
        for base in [Some(&base), None] {
            let vm = merged(base, &target, &touched(&stored(&old)));
            prop_assert_eq!(&vm["metadata"]["labels"]["theirs"], "1");
            prop_assert_eq!(&vm["metadata"]["annotations"]["theirs"], "1");
            prop_assert_eq!(&vm["spec"]["template"]["metadata"]["annotations"]["theirs"], "1");
            let spec = &vm["spec"]["template"]["spec"];
            prop_assert_eq!(&spec["architecture"], "amd64");
            prop_assert_eq!(&spec["domain"]["firmware"], &json!({"uuid": "u"}));
            let has = |list: &str, key: &str| {
                spec[list].as_array().unwrap().iter().any(|one| one[key] == "theirs")
            };
            prop_assert!(has("tolerations", "key") && has("volumes", "name"), "{:#}", vm);
            prop_assert_eq!(merged(Some(&target), &target, &vm), vm.clone());
            prop_assert_eq!(merged(base, &target, &vm), vm.clone());
        }
    }

    #[test]
    fn there_and_back_is_nothing(old in any_spec(), new in any_spec()) {
        let base = stamped(&old, &inputs(json!({})), 1);
        let target = stamped(&new, &inputs(json!({})), 1);
        let there = merged(Some(&base), &target, &stored(&old));
        prop_assert_eq!(merged(Some(&target), &base, &there), stored(&old));
    }
}
