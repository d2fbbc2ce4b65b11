//! What a stamp takes from a pool, and the mark that a VM carries about it.
//!
//! The mark holds the inputs themselves, so that the stamp that a VM was made with can be made again
//! whatever has been changed in the pool since. Whatever is added here must be left out of the JSON
//! at its default: the hash of an unchanged pool must not change with an upgrade of this program.

use std::collections::{BTreeMap, BTreeSet};

use kube::ResourceExt as _;
use serde::{Deserialize, Serialize};

use super::references::Flag;
use super::revision::stamp_hash;
use crate::api::VirtualMachinePool;

/// The part of a pool's spec that shows in its VMs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PoolInputs {
    /// What VM names begin with.
    pub vm_prefix: String,
    /// Secret references get the ordinal.
    #[serde(default, skip_serializing_if = "is_false")]
    pub append_postfix_to_secret_references: bool,
    /// `ConfigMap` references get the ordinal.
    #[serde(default, skip_serializing_if = "is_false")]
    pub append_postfix_to_config_map_references: bool,
    /// Claims that don't come from a disk template get the ordinal.
    #[serde(default, skip_serializing_if = "is_false")]
    pub append_postfix_to_volume_claim_references: bool,
    /// Secrets that all VMs have in common. A set, since the order says nothing.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub shared_secrets: BTreeSet<String>,
    /// `ConfigMap`s that all VMs have in common.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub shared_config_maps: BTreeSet<String>,
    /// Claims that all VMs have in common.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub shared_volume_claims: BTreeSet<String>,
    /// Labels and annotations of the VM objects, not of their instances.
    #[serde(default, skip_serializing_if = "VmMetadata::is_empty")]
    pub virtual_machine_metadata: VmMetadata,
}

/// Labels and annotations that a pool adds to its VM objects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VmMetadata {
    /// Added labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Added annotations.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// What the annotation `vmpool.dev/stamp` says: which stamp a VM object is at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StampMark {
    /// Hash over the content of the revision and the inputs.
    pub hash: String,
    /// The inputs.
    pub inputs: PoolInputs,
    /// What KubeVirt had noted of its last restore of the VM when this was written (`kubevirt::LAST_RESTORE`). With
    /// another note there now, the VM is not what the stamp made of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restored: Option<String>,
}

impl PoolInputs {
    /// What a pool says about its VMs, with the defaults of what it doesn't say.
    pub fn of(pool: &VirtualMachinePool) -> Self {
        let naming = pool.spec.name_generation.clone().unwrap_or_default();
        let metadata = pool
            .spec
            .virtual_machine_metadata
            .clone()
            .unwrap_or_default();
        Self {
            vm_prefix: naming.vm_prefix.unwrap_or_else(|| pool.name_any()),
            append_postfix_to_secret_references: naming
                .append_postfix_to_secret_references
                .unwrap_or_default(),
            append_postfix_to_config_map_references: naming
                .append_postfix_to_config_map_references
                .unwrap_or_default(),
            append_postfix_to_volume_claim_references: naming
                .append_postfix_to_volume_claim_references
                .unwrap_or_default(),
            shared_secrets: naming.shared_secrets.into_iter().collect(),
            shared_config_maps: naming.shared_config_maps.into_iter().collect(),
            shared_volume_claims: naming.shared_volume_claims.into_iter().collect(),
            virtual_machine_metadata: VmMetadata {
                labels: metadata.labels,
                annotations: metadata.annotations,
            },
        }
    }

    /// Whether references of this kind get the ordinal.
    pub fn appends(&self, flag: Flag) -> bool {
        match flag {
            Flag::ConfigMaps => self.append_postfix_to_config_map_references,
            Flag::Secrets => self.append_postfix_to_secret_references,
            Flag::VolumeClaims => self.append_postfix_to_volume_claim_references,
        }
    }

    /// Whether a name is listed as one that never gets the ordinal.
    pub fn shares(&self, flag: Flag, name: &str) -> bool {
        let listed = match flag {
            Flag::ConfigMaps => &self.shared_config_maps,
            Flag::Secrets => &self.shared_secrets,
            Flag::VolumeClaims => &self.shared_volume_claims,
        };
        listed.contains(name)
    }
}

impl VmMetadata {
    fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.annotations.is_empty()
    }
}

impl StampMark {
    /// The mark of a stamp from revision content with this hash and these inputs.
    pub fn new(content_hash: &str, inputs: &PoolInputs) -> Self {
        Self {
            hash: stamp_hash(content_hash, inputs),
            inputs: inputs.clone(),
            restored: None,
        }
    }

    /// Reads a VM's annotation. None when it is not one of ours, or one of a newer version with
    /// inputs that this one doesn't know: a stamp made without them would be another one.
    pub fn parse(annotation: &str) -> Option<Self> {
        serde_json::from_str(annotation).ok()
    }

    /// The annotation's value: compact JSON.
    #[expect(clippy::missing_panics_doc, reason = "it can't")]
    pub fn to_annotation(&self) -> String {
        serde_json::to_string(self).expect("strings, booleans, maps with string keys are JSON")
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde calls it with a reference"
)]
fn is_false(flag: &bool) -> bool {
    !flag
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_left_out_of_the_mark_and_it_reads_back() {
        let plain = PoolInputs {
            vm_prefix: "web".to_owned(),
            ..PoolInputs::default()
        };
        let mark = StampMark::new("content", &plain);
        let text = mark.to_annotation();
        assert!(text.ends_with(r#""inputs":{"vmPrefix":"web"}}"#), "{text}");
        assert_eq!(StampMark::parse(&text), Some(mark));
    }

    #[test]
    fn the_inputs_of_a_pool_are_what_it_says_and_defaults() {
        let pool = |spec: serde_json::Value| {
            let pool = serde_json::json!({
                "apiVersion": "vmpool.dev/v1alpha1",
                "kind": "VirtualMachinePool",
                "metadata": {"name": "web"},
                "spec": spec,
            });
            PoolInputs::of(&serde_json::from_value(pool).unwrap())
        };
        let plain = PoolInputs {
            vm_prefix: "web".to_owned(),
            ..PoolInputs::default()
        };
        assert_eq!(pool(serde_json::json!({"config": {"name": "cfg"}})), plain);

        let said = serde_json::json!({
            "vmPrefix": "w",
            "appendPostfixToSecretReferences": true,
            "appendPostfixToConfigMapReferences": true,
            "appendPostfixToVolumeClaimReferences": true,
            "sharedSecrets": ["a"],
            "sharedConfigMaps": ["b"],
            "sharedVolumeClaims": ["c"],
        });
        let metadata = serde_json::json!({"labels": {"l": "1"}, "annotations": {"a": "2"}});
        let inputs = pool(serde_json::json!({
            "config": {"name": "cfg"},
            "nameGeneration": said,
            "virtualMachineMetadata": metadata,
        }));
        let mut expected = said;
        expected["virtualMachineMetadata"] = metadata;
        assert_eq!(serde_json::to_value(inputs).unwrap(), expected);
    }

    #[test]
    fn a_mark_with_inputs_of_a_newer_version_is_not_understood_rather_than_half_understood() {
        for text in [
            "",
            "null",
            "[]",
            r#"{"hash":"x"}"#,
            r#"{"hash":"x","inputs":{"vmPrefix":"web","appendPostfixToEverything":true}}"#,
        ] {
            assert_eq!(StampMark::parse(text), None, "{text}");
        }
    }
}
