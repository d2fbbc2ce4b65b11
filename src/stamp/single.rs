//! A single VM from a config, without a pool: what somebody gets who creates a VM that names the config in an
//! annotation. Pure.
//!
//! Its disks are named after it, as a member's are. What it says itself wins: its fields are laid over the
//! config's, its disks, volumes, networks and the like by their names. A volume with a source of its own is taken
//! whole, and a disk template that only the replaced one used is left out.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::references::disk_templates;
use super::{Naming, PoolInputs, repair, revision, rewrite};

/// The spec of a VM of this name: a config's, under what the VM says itself. `postfix` is what references get
/// behind a dash. A spec of another type than an object is left as it is, for KubeVirt to refuse.
pub fn single(
    config: &Map<String, Value>,
    vm_name: &str,
    postfix: Option<&str>,
    own: Option<&Value>,
) -> Value {
    let mut spec = config.clone();
    revision::set_run_strategy(&mut spec);
    let mut spec = Value::Object(spec);
    let everything = PoolInputs {
        append_postfix_to_secret_references: true,
        append_postfix_to_config_map_references: true,
        append_postfix_to_volume_claim_references: true,
        ..PoolInputs::default()
    };
    let naming = Naming {
        vm_name,
        postfix,
        inputs: &everything,
    };
    rewrite(&mut spec, &naming);
    match own {
        None | Some(Value::Null) => spec,
        Some(own @ Value::Object(_)) => lay_over(spec, own),
        Some(other) => other.clone(),
    }
}

fn lay_over(mut spec: Value, own: &Value) -> Value {
    if own.get("running").is_some_and(|running| !running.is_null()) {
        // KubeVirt refuses both.
        remove(&mut spec, "runStrategy");
    }
    let before = used_disks(&spec);
    replace_volumes(&mut spec, own);
    let whole = |spec: Value| Value::Object(Map::from_iter([("spec".to_owned(), spec)]));
    let mut merged = whole(spec);
    let patch = repair(&merged, &whole(own.clone()));
    json_patch::patch(&mut merged, &patch).expect("the patch was made for this value");
    let mut spec = merged["spec"].take();
    let after = used_disks(&spec);
    let kept = disk_templates(own);
    let is_replaced =
        |name: &str| before.contains(name) && !after.contains(name) && !kept.contains(name);
    if let Some(templates) = spec
        .get_mut("dataVolumeTemplates")
        .and_then(Value::as_array_mut)
    {
        templates.retain(|template| {
            let name = template.pointer("/metadata/name").and_then(Value::as_str);
            !name.is_some_and(is_replaced)
        });
    }
    spec
}

/// Puts volumes that have a source of their own in the place of those of the same name.
fn replace_volumes(spec: &mut Value, own: &Value) {
    const VOLUMES: &str = "/template/spec/volumes";
    let Some(volumes) = spec.pointer_mut(VOLUMES).and_then(Value::as_array_mut) else {
        return;
    };
    let own = own.pointer(VOLUMES).and_then(Value::as_array);
    let with_source = own.into_iter().flatten().filter(|volume| {
        let volume = volume.as_object();
        volume.is_some_and(|volume| volume.keys().any(|key| key != "name"))
    });
    for volume in with_source {
        let name = volume.get("name");
        let present = volumes
            .iter_mut()
            .find(|present| present.get("name") == name);
        if let Some(present) = present {
            *present = volume.clone();
        }
    }
}

/// Names of the DataVolumes and claims that the volumes of a spec name.
fn used_disks(spec: &Value) -> BTreeSet<String> {
    let volumes = spec
        .pointer("/template/spec/volumes")
        .and_then(Value::as_array);
    let names = volumes.into_iter().flatten().filter_map(|volume| {
        let claim = volume.pointer("/persistentVolumeClaim/claimName");
        volume.pointer("/dataVolume/name").or(claim)?.as_str()
    });
    names.map(str::to_owned).collect()
}

fn remove(object: &mut Value, key: &str) {
    if let Some(object) = object.as_object_mut() {
        object.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn config() -> Map<String, Value> {
        let config = json!({
            "running": true,
            "dataVolumeTemplates": [
                {"metadata": {"name": "root"}, "spec": {"storage": {}}},
                {"metadata": {"name": "data"}, "spec": {"storage": {}}},
            ],
            "template": {
                "metadata": {"labels": {"app": "desktop"}},
                "spec": {
                    "domain": {"memory": {"guest": "2Gi"}, "devices": {"disks": [{"name": "root", "disk": {}}]}},
                    "volumes": [
                        {"name": "root", "dataVolume": {"name": "root"}},
                        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
                        {"name": "init", "cloudInitNoCloud": {"secretRef": {"name": "init"}}},
                    ],
                },
            },
        });
        config.as_object().unwrap().clone()
    }

    fn made(own: Value) -> Value {
        single(&config(), "mine", None, Some(&own))
    }

    #[test]
    fn an_empty_spec_gets_the_configs_with_disks_of_its_own() {
        for own in [json!({}), Value::Null, json!({"template": {}})] {
            let spec = made(own);
            assert_eq!(spec["runStrategy"], "Always");
            assert_eq!(spec["running"], Value::Null);
            assert_eq!(
                spec["dataVolumeTemplates"][0]["metadata"]["name"],
                "mine-root"
            );
            let volumes = &spec["template"]["spec"]["volumes"];
            assert_eq!(volumes[0]["dataVolume"]["name"], "mine-root");
            assert_eq!(
                volumes[1]["persistentVolumeClaim"]["claimName"],
                "mine-data"
            );
            assert_eq!(volumes[2]["cloudInitNoCloud"]["secretRef"]["name"], "init");
        }
        assert_eq!(single(&config(), "mine", None, None), made(json!({})));
        assert!(!made(json!({})).to_string().contains("vmpool.dev/"));
    }

    #[test]
    fn references_get_the_postfix_that_was_asked_for() {
        let spec = single(&config(), "mine", Some("7"), None);
        let volumes = &spec["template"]["spec"]["volumes"];
        assert_eq!(
            volumes[2]["cloudInitNoCloud"]["secretRef"]["name"],
            "init-7"
        );
        assert_eq!(volumes[0]["dataVolume"]["name"], "mine-root");
    }

    #[test]
    fn what_the_vm_says_itself_wins_and_the_rest_is_the_configs() {
        let spec = made(json!({
            "running": false,
            "template": {
                "metadata": {"labels": {"team": "a"}},
                "spec": {
                    "domain": {"memory": {"guest": "8Gi"}, "devices": {"disks": [{"name": "root", "bootOrder": 1}]}},
                    "volumes": [{"name": "extra", "emptyDisk": {"capacity": "1Gi"}}],
                },
            },
        }));
        assert_eq!(spec["running"], false);
        assert_eq!(spec.get("runStrategy"), None, "KubeVirt refuses both");
        let template = &spec["template"];
        assert_eq!(
            template["metadata"]["labels"],
            json!({"app": "desktop", "team": "a"})
        );
        assert_eq!(template["spec"]["domain"]["memory"]["guest"], "8Gi");
        assert_eq!(
            template["spec"]["domain"]["devices"]["disks"],
            json!([{"name": "root", "disk": {}, "bootOrder": 1}])
        );
        assert_eq!(template["spec"]["volumes"].as_array().unwrap().len(), 4);
        assert_eq!(
            made(json!({"runStrategy": "Manual"}))["runStrategy"],
            "Manual"
        );
    }

    #[test]
    fn a_volume_with_another_source_takes_the_disk_templates_place() {
        let spec = made(json!({"template": {"spec": {"volumes": [
            {"name": "root", "containerDisk": {"image": "x"}},
            {"name": "data", "dataVolume": {"name": "mine-data"}},
        ]}}}));
        let volumes = &spec["template"]["spec"]["volumes"];
        assert_eq!(
            volumes[0],
            json!({"name": "root", "containerDisk": {"image": "x"}})
        );
        assert_eq!(
            volumes[1],
            json!({"name": "data", "dataVolume": {"name": "mine-data"}})
        );
        let templates = spec["dataVolumeTemplates"].as_array().unwrap();
        assert_eq!(templates.len(), 1, "{templates:?}");
        assert_eq!(templates[0]["metadata"]["name"], "mine-data");
    }

    #[test]
    fn making_it_again_changes_nothing_and_odd_specs_are_kubevirts_to_refuse() {
        for own in [
            json!({}),
            json!({"template": {"spec": {"volumes": [{"name": "root", "containerDisk": {}}]}}}),
        ] {
            let once = made(own);
            assert_eq!(made(once.clone()), once);
        }
        for odd in [json!(3), json!([]), json!("x")] {
            assert_eq!(made(odd.clone()), odd);
        }
        for odd in [
            json!({"template": 3}),
            json!({"template": {"spec": {"volumes": "x"}}}),
            json!({"dataVolumeTemplates": [3]}),
        ] {
            made(odd);
        }
    }
}
