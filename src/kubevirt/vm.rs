//! What decisions read of a VirtualMachine.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use kube::core::DynamicObject;
use serde_json::Value;

use super::{ConditionView, Owner, disk_template_names, seconds, text};
use crate::api::labels;

/// A VirtualMachine, cut down. Of a VM that never was ours only name, UID and owner are kept (`labels`,
/// `annotations` and `disks` are empty), since a cluster may have thousands of them.
#[derive(Clone, Debug, PartialEq)]
pub struct VmView {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// Resource version, for preconditions.
    pub resource_version: String,
    /// Creation time.
    pub created_at: Option<Timestamp>,
    /// When deletion began.
    pub deleting_since: Option<Timestamp>,
    /// The controller owner.
    pub owner: Option<Owner>,
    /// Labels of the VM object.
    pub labels: BTreeMap<String, String>,
    /// Annotations of ours.
    pub annotations: BTreeMap<String, String>,
    /// Labels of ours on the template.
    pub template_labels: BTreeMap<String, String>,
    /// Declared run strategy.
    pub run_strategy: RunStrategy,
    /// `spec.template.spec.terminationGracePeriodSeconds`.
    pub grace_period_seconds: Option<i64>,
    /// Names of the disk templates, as they stand in the VM.
    pub disks: Vec<String>,
    /// Whether a start was asked for and not carried out yet.
    pub start_requested: bool,
    /// `Ready`, as the VM shows it: lags behind the instance's.
    pub ready: Option<ConditionView>,
    /// Whether KubeVirt says that the running instance needs a restart for a change to take effect.
    pub restart_required: bool,
    /// Start failures in a row.
    pub start_failures: u32,
    /// KubeVirt's word for the state, for people.
    pub printable_status: String,
}

/// KubeVirt's run strategy.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum RunStrategy {
    /// Meant to run.
    Always,
    /// Meant not to run.
    Halted,
    /// Runs when asked.
    Manual,
    /// Runs once.
    Once,
    /// Runs again after a failure, not after a shutdown.
    RerunOnFailure,
    /// One that a newer KubeVirt brings.
    Other(String),
}

impl RunStrategy {
    /// Read from a VirtualMachineSpec; the deprecated `running` counts, and neither means halted (facts 3.1).
    pub fn of(spec: &Value) -> Self {
        match (
            spec.get("runStrategy").and_then(Value::as_str),
            spec.get("running").and_then(Value::as_bool),
        ) {
            (Some("Always"), _) | (None, Some(true)) => Self::Always,
            (Some("Halted") | None, _) => Self::Halted,
            (Some("Manual"), _) => Self::Manual,
            (Some("Once"), _) => Self::Once,
            (Some("RerunOnFailure"), _) => Self::RerunOnFailure,
            (Some(other), _) => Self::Other(other.to_owned()),
        }
    }
}

impl VmView {
    /// Reads `object`. `None` if it has no name, namespace or UID, which no stored object lacks.
    pub fn read(object: &DynamicObject) -> Option<Self> {
        let meta = &object.metadata;
        let owner = Owner::controller_of(meta);
        let ours = |map: &Option<BTreeMap<String, String>>| -> BTreeMap<String, String> {
            map.iter()
                .flatten()
                .filter(|(key, _)| key.starts_with(labels::PREFIX))
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect()
        };
        let annotations = ours(&meta.annotations);
        let concerns_us = owner.as_ref().is_some_and(Owner::is_pool) || !annotations.is_empty();
        let spec = object.data.get("spec").unwrap_or(&Value::Null);
        Some(Self {
            namespace: meta.namespace.clone()?,
            name: meta.name.clone()?,
            uid: meta.uid.clone()?,
            resource_version: meta.resource_version.clone().unwrap_or_default(),
            created_at: seconds(meta.creation_timestamp.as_ref()),
            deleting_since: seconds(meta.deletion_timestamp.as_ref()),
            owner,
            labels: if concerns_us {
                meta.labels.clone().unwrap_or_default()
            } else {
                BTreeMap::new()
            },
            annotations,
            template_labels: template_labels(spec),
            run_strategy: RunStrategy::of(spec),
            grace_period_seconds: spec
                .pointer("/template/spec/terminationGracePeriodSeconds")
                .and_then(Value::as_i64),
            disks: if concerns_us {
                disk_template_names(spec)
            } else {
                Vec::new()
            },
            start_requested: has_start_request(&object.data),
            ready: ConditionView::of(&object.data, "Ready"),
            restart_required: ConditionView::of(&object.data, "RestartRequired")
                .is_some_and(|condition| condition.is_true()),
            start_failures: object
                .data
                .pointer("/status/startFailure/consecutiveFailCount")
                .and_then(Value::as_u64)
                .and_then(|count| u32::try_from(count).ok())
                .unwrap_or(0),
            printable_status: text(&object.data, "/status/printableStatus").to_owned(),
        })
    }

    /// Whether it is a member of the pool with that UID: by its controller reference alone.
    pub fn is_member_of(&self, pool_uid: &str) -> bool {
        self.owner
            .as_ref()
            .is_some_and(|owner| owner.is_pool() && owner.uid == pool_uid)
    }
}

fn template_labels(spec: &Value) -> BTreeMap<String, String> {
    spec.pointer("/template/metadata/labels")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .filter(|(key, _)| key.starts_with(labels::PREFIX))
        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
        .collect()
}

fn has_start_request(object: &Value) -> bool {
    object
        .pointer("/status/stateChangeRequests")
        .and_then(Value::as_array)
        .is_some_and(|requests| {
            requests
                .iter()
                .any(|request| text(request, "/action") == "Start")
        })
}
