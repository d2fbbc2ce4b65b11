//! A VM to ask KubeVirt about: stamped as a pool's would be, and nobody's. Nothing of ours is on it, so that no
//! webhook of ours takes it for a member.

use serde_json::{Map, Value, json};

use super::names::MAX_ORDINAL;
use super::{Naming, PoolInputs, revision, rewrite, vm_name};

/// Prefix of the trial's name where no pool gives one.
const PREFIX: &str = "vmpool-trial";

/// A VM from a config's spec, named and postfixed as the last one of a pool with these inputs would be; without
/// a pool, with no postfixes.
pub fn trial(namespace: &str, spec: &Map<String, Value>, pool: Option<&PoolInputs>) -> Value {
    let without = PoolInputs {
        vm_prefix: PREFIX.to_owned(),
        ..PoolInputs::default()
    };
    let inputs = pool.unwrap_or(&without);
    let name = vm_name(&inputs.vm_prefix, MAX_ORDINAL);
    let ordinal = MAX_ORDINAL.to_string();
    let mut spec = spec.clone();
    revision::set_run_strategy(&mut spec);
    let mut spec = Value::Object(spec);
    let naming = Naming {
        vm_name: &name,
        postfix: Some(&ordinal),
        inputs,
    };
    rewrite(&mut spec, &naming);
    json!({
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": inputs.virtual_machine_metadata.labels,
            "annotations": inputs.virtual_machine_metadata.annotations,
        },
        "spec": spec,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_is_stamped_like_a_member_and_bears_no_mark_of_ours() {
        let spec = json!({
            "running": true,
            "dataVolumeTemplates": [{"metadata": {"name": "root"}, "spec": {}}],
            "template": {"spec": {"volumes": [
                {"name": "root", "dataVolume": {"name": "root"}},
                {"name": "init", "cloudInitNoCloud": {"secretRef": {"name": "init"}}},
            ]}},
        });
        let spec = spec.as_object().unwrap();
        let plain = trial("team", spec, None);
        assert_eq!(plain["metadata"]["name"], "vmpool-trial-999999");
        assert_eq!(plain["spec"]["runStrategy"], "Always");
        assert_eq!(
            plain["spec"]["dataVolumeTemplates"][0]["metadata"]["name"],
            "vmpool-trial-999999-root"
        );
        assert_eq!(
            plain["spec"]["template"]["spec"]["volumes"][1]["cloudInitNoCloud"]["secretRef"]["name"],
            "init"
        );
        assert!(!plain.to_string().contains("vmpool.dev/"), "{plain}");
        let inputs = PoolInputs {
            vm_prefix: "web".to_owned(),
            append_postfix_to_secret_references: true,
            ..PoolInputs::default()
        };
        let of_pool = trial("team", spec, Some(&inputs));
        assert_eq!(of_pool["metadata"]["name"], "web-999999");
        assert_eq!(
            of_pool["spec"]["template"]["spec"]["volumes"][1]["cloudInitNoCloud"]["secretRef"]["name"],
            "init-999999"
        );
        assert!(!of_pool.to_string().contains("vmpool.dev/"), "{of_pool}");
    }
}
