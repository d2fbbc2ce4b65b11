//! What decisions read of a VirtualMachine.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use kube::core::{DynamicObject, ObjectMeta};
use serde_json::Value;

use super::{
    ConditionView, IMMEDIATE_DATA_VOLUMES, LAST_RESTORE, Live, Owner, disk_template_names, seconds,
    text,
};
use crate::api::{annotations, labels};

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
    /// Generation of the spec.
    pub generation: i64,
    /// Generation that KubeVirt's VM controller has compared the running instance with
    /// (`status.desiredGeneration`); of no VM that never ran.
    pub seen_generation: Option<i64>,
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
    /// Whether KubeVirt has run it by its run strategy (`status.runStrategy`): one that is `RerunOnFailure` is started
    /// until then.
    pub ran_by_strategy: bool,
    /// `spec.template.spec.terminationGracePeriodSeconds`.
    pub grace_period_seconds: Option<i64>,
    /// Names of the disk templates, as they stand in the VM.
    pub disks: Vec<String>,
    /// Whether its disks are made when it is started, and not before.
    pub makes_disks_at_start: bool,
    /// Whether a start was asked for and not carried out yet.
    pub start_requested: bool,
    /// Whether a start, a stop or both were asked for and not carried out yet.
    pub has_requests: bool,
    /// What is being done to it that an update would disturb, or what keeps it from starting.
    pub busy: Option<&'static str>,
    /// What KubeVirt noted of its last restore.
    pub restored: Option<String>,
    /// `Ready`, as the VM shows it: lags behind the instance's.
    pub ready: Option<ConditionView>,
    /// Whether KubeVirt says that the running instance needs a restart for a change to take effect.
    pub restart_required: bool,
    /// What of the template KubeVirt changes live.
    pub live: Live,
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
            generation: meta.generation.unwrap_or_default(),
            seen_generation: object
                .data
                .pointer("/status/desiredGeneration")
                .and_then(Value::as_i64),
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
            ran_by_strategy: spec.get("runStrategy").is_some_and(|declared| {
                object.data.pointer("/status/runStrategy") == Some(declared)
            }),
            grace_period_seconds: spec
                .pointer("/template/spec/terminationGracePeriodSeconds")
                .and_then(Value::as_i64),
            disks: if concerns_us {
                disk_template_names(spec)
            } else {
                Vec::new()
            },
            makes_disks_at_start: annotation(meta, IMMEDIATE_DATA_VOLUMES) == Some("false"),
            start_requested: requests(&object.data)
                .iter()
                .any(|request| text(request, "/action") == "Start"),
            has_requests: !requests(&object.data).is_empty(),
            busy: busy(&object.data),
            restored: annotation(meta, LAST_RESTORE).map(str::to_owned),
            ready: ConditionView::of(&object.data, "Ready"),
            restart_required: ConditionView::of(&object.data, "RestartRequired")
                .is_some_and(|condition| condition.is_true()),
            live: Live::of_template(spec.get("template").filter(|_| concerns_us)),
            start_failures: start_failures(&object.data),
            printable_status: text(&object.data, "/status/printableStatus").to_owned(),
        })
    }

    /// Whether its user protects it from that: `scale-in` or `update`.
    pub fn is_protected_from(&self, verb: &str) -> bool {
        let verbs = self.annotations.get(annotations::PROTECTED);
        verbs.is_some_and(|verbs| verbs.split(',').any(|one| one.trim() == verb))
    }

    /// Whether it is a member of the pool with that UID: by its controller reference alone.
    pub fn is_member_of(&self, pool_uid: &str) -> bool {
        self.owner
            .as_ref()
            .is_some_and(|owner| owner.is_pool() && owner.uid == pool_uid)
    }
}

fn annotation<'m>(meta: &'m ObjectMeta, key: &str) -> Option<&'m str> {
    meta.annotations.as_ref()?.get(key).map(String::as_str)
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

fn requests(object: &Value) -> &[Value] {
    let requests = object.pointer("/status/stateChangeRequests");
    requests
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

fn start_failures(object: &Value) -> u32 {
    object
        .pointer("/status/startFailure/consecutiveFailCount")
        .and_then(Value::as_u64)
        .and_then(|count| u32::try_from(count).ok())
        .unwrap_or(0)
}

/// Facts, sections 1 and 3.1: KubeVirt refuses updates of a VM that is being snapshotted or restored, and what
/// is plugged in or dumped would be lost with a restart.
fn busy(object: &Value) -> Option<&'static str> {
    let status = object.get("status")?;
    let is_set = |key: &str| match status.get(key) {
        None | Some(Value::Null) => false,
        Some(Value::Array(list)) => !list.is_empty(),
        Some(Value::Object(map)) => !map.is_empty(),
        Some(Value::String(text)) => !text.is_empty(),
        Some(_) => true,
    };
    let dump = text(status, "/memoryDumpRequest/phase");
    if is_set("snapshotInProgress") {
        Some("a snapshot of it is being made")
    } else if is_set("restoreInProgress") {
        Some("it is being restored")
    } else if is_set("volumeRequests") {
        Some("volumes are being plugged")
    } else if is_set("memoryDumpRequest") && !matches!(dump, "Completed" | "Failed") {
        Some("its memory is being dumped")
    } else if ConditionView::of(object, "ManualRecoveryRequired").is_some_and(|c| c.is_true()) {
        Some("it has to be recovered by hand")
    } else {
        None
    }
}
