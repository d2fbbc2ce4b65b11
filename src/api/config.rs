//! `VirtualMachineConfig`: a KubeVirt VirtualMachine that can't be started. Its spec *is* a
//! `VirtualMachineSpec`, carried as opaque JSON so that no field of any KubeVirt version is lost.

#![allow(
    clippy::duplicated_attributes,
    reason = "printer columns are repeated attributes with equal parts"
)]
#![allow(
    unreachable_pub,
    reason = "kube's KubeSchema derive repeats each struct inside a function"
)]

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A KubeVirt `VirtualMachineSpec`, field for field and opaque.
#[derive(CustomResource, Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[kube(
    group = "vmpool.dev",
    version = "v1alpha1",
    kind = "VirtualMachineConfig",
    plural = "virtualmachineconfigs",
    shortname = "vconf",
    category = "vpools",
    namespaced,
    status = "VirtualMachineConfigStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "A KubeVirt VirtualMachine without status that can't be started: VirtualMachinePools stamp their VMs from it. One config serves many pools.",
    printcolumn(
        name = "RunStrategy",
        type_ = "string",
        json_path = ".spec.runStrategy"
    ),
    printcolumn(
        name = "Revision",
        type_ = "string",
        json_path = ".status.latestRevision"
    ),
    printcolumn(name = "Pools", type_ = "integer", json_path = ".status.pools"),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
pub struct VirtualMachineConfigSpec {
    /// Everything, unread: what decisions need is read from here by `kubevirt` and `stamp`.
    #[serde(flatten)]
    pub fields: Map<String, Value>,
}

impl JsonSchema for VirtualMachineConfigSpec {
    fn schema_name() -> Cow<'static, str> {
        "VirtualMachineConfigSpec".into()
    }

    fn inline_schema() -> bool {
        true
    }

    /// Open, but for what can be said without KubeVirt: one of `runStrategy` and `running`, a template, and
    /// disk templates with names. `template` and `dataVolumeTemplates` items are plain objects, not embedded
    /// resources: the API server prunes unknown metadata of those.
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A KubeVirt VirtualMachineSpec, field for field: a VM manifest becomes a config by changing apiVersion and kind.",
            "type": "object",
            "required": ["template"],
            "properties": {
                "runStrategy": {
                    "type": "string",
                    "minLength": 1,
                    "description": "KubeVirt's run strategy of the VMs: Always, Halted, Manual, RerunOnFailure or Once. Exactly one of runStrategy and running."
                },
                "running": {
                    "type": "boolean",
                    "description": "Deprecated by KubeVirt: true is understood as runStrategy Always, false as Halted; never rewritten."
                },
                "template": {
                    "type": "object",
                    "description": "The VirtualMachineInstance template of the VMs.",
                    "required": ["spec"],
                    "properties": {
                        "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}
                    },
                    "x-kubernetes-preserve-unknown-fields": true
                },
                "dataVolumeTemplates": {
                    "type": "array",
                    "description": "Disks that each VM gets of its own; names become <vm name>-<template name>.",
                    "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}
                }
            },
            "x-kubernetes-preserve-unknown-fields": true,
            "x-kubernetes-validations": [{
                "rule": "has(self.runStrategy) != has(self.running)",
                "message": "exactly one of runStrategy and running must be set (runStrategy: Always starts the VMs, Halted does not)",
                "fieldPath": ".runStrategy"
            }]
        })
    }
}

/// What the program says of a config.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineConfigStatus {
    /// Generation of the spec that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Name of the ControllerRevision of the newest accepted spec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latest_revision: Option<String>,
    /// How many pools use the config.
    #[serde(default)]
    pub pools: i32,
    /// `Accepted`: what KubeVirt's own admission says of a VM stamped from it. Unknown lets pools proceed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}
