//! What decisions read of a VirtualMachineInstance.

use kube::core::DynamicObject;
use serde_json::Value;

use super::{ConditionView, Live, Owner, text};
use crate::api::{annotations, labels};

/// A VirtualMachineInstance, cut down.
#[derive(Clone, Debug, PartialEq)]
pub struct VmiView {
    /// Namespace.
    pub namespace: String,
    /// Name, the same as its VM's.
    pub name: String,
    /// UID.
    pub uid: String,
    /// UID of the VM that controls it: an instance of another VM of that name doesn't count.
    pub vm_uid: Option<String>,
    /// Whether it is going away.
    pub deleting: bool,
    /// Phase.
    pub phase: Phase,
    /// `Ready`.
    pub ready: Option<ConditionView>,
    /// Whether it is paused.
    pub paused: bool,
    /// What is being done to it that a restart would disturb.
    pub busy: Option<&'static str>,
    /// CPUs or memory that it is to get.
    pub plug: Option<Plug>,
    /// Whether no node has room for it.
    pub unschedulable: bool,
    /// Node that it runs on.
    pub node: String,
    /// Revision that it was started from, by our label.
    pub revision: Option<String>,
    /// Hash of the stamp that it was started from.
    pub stamp_hash: Option<String>,
    /// What KubeVirt may have changed since it was started.
    pub live: Live,
    /// Pool UID in our label: on a former member's instance it is to be taken off.
    pub pool_uid: Option<String>,
}

/// CPUs or memory that an instance is to get while it runs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Plug {
    /// It can't be migrated, so that it never gets them unless it is restarted.
    Impossible,
    /// KubeVirt is to migrate it, if its administrator lets it (`workloadUpdateMethods`).
    Pending,
}

/// Phase of an instance.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Phase {
    /// Ended with a failure.
    Failed,
    /// Before its launcher pod exists, or one that a newer KubeVirt brings.
    Pending,
    /// Running.
    Running,
    /// On a node, not started.
    Scheduled,
    /// Waiting for a node.
    Scheduling,
    /// Ended by itself.
    Succeeded,
    /// Its node doesn't answer.
    Unknown,
}

impl Phase {
    fn of(text: &str) -> Self {
        match text {
            "Failed" => Self::Failed,
            "Running" => Self::Running,
            "Scheduled" => Self::Scheduled,
            "Scheduling" => Self::Scheduling,
            "Succeeded" => Self::Succeeded,
            "Unknown" => Self::Unknown,
            _ => Self::Pending,
        }
    }

    /// Whether it has ended.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Failed | Self::Succeeded)
    }
}

impl VmiView {
    /// Reads `object`. `None` if it has no name, namespace or UID.
    pub fn read(object: &DynamicObject) -> Option<Self> {
        let meta = &object.metadata;
        let label = |key: &str| {
            meta.labels
                .as_ref()
                .and_then(|labels| labels.get(key))
                .cloned()
        };
        Some(Self {
            namespace: meta.namespace.clone()?,
            name: meta.name.clone()?,
            uid: meta.uid.clone()?,
            vm_uid: Owner::controller_of(meta)
                .filter(|owner| owner.group == super::GROUP && owner.kind == "VirtualMachine")
                .map(|owner| owner.uid),
            deleting: meta.deletion_timestamp.is_some(),
            phase: Phase::of(text(&object.data, "/status/phase")),
            ready: ConditionView::of(&object.data, "Ready"),
            paused: ConditionView::of(&object.data, "Paused")
                .is_some_and(|paused| paused.is_true()),
            busy: busy(&object.data),
            plug: plug(&object.data),
            unschedulable: ConditionView::of(&object.data, "PodScheduled").is_some_and(
                |scheduled| scheduled.status == "False" && scheduled.reason == "Unschedulable",
            ),
            node: text(&object.data, "/status/nodeName").to_owned(),
            revision: label(labels::REVISION),
            stamp_hash: meta
                .annotations
                .as_ref()
                .and_then(|map| map.get(annotations::STAMP_HASH))
                .cloned(),
            live: object.data.get("spec").map(Live::of).unwrap_or_default(),
            pool_uid: label(labels::POOL_UID),
        })
    }

    /// Whether it runs and is Ready, and is not going away.
    pub fn is_ready(&self) -> bool {
        !self.deleting
            && self.phase == Phase::Running
            && self.ready.as_ref().is_some_and(ConditionView::is_true)
    }
}

/// What a restart would disturb, and what ends by itself or by somebody's decision. Facts, section 3.2, and
/// KubeVirt's `migrations.IsBackupInProgress`: a backup fails when its instance goes.
///
/// CPUs or memory that are to be plugged are none: they wait for a migration, which may never come, and a restart
/// gives the guest what it waits for.
fn busy(object: &Value) -> Option<&'static str> {
    let is_true = |kind| ConditionView::of(object, kind).is_some_and(|c| c.is_true());
    let is_set = |pointer: &str| {
        object
            .pointer(pointer)
            .is_some_and(|value| !value.is_null())
    };
    let backup = "/status/changedBlockTracking/backupStatus";
    let is_backed_up = !text(object, &format!("{backup}/backupName")).is_empty()
        && object.pointer(&format!("{backup}/completed")) != Some(&Value::Bool(true));
    if is_set("/status/migrationState/startTimestamp")
        && !is_set("/status/migrationState/endTimestamp")
    {
        Some("it is being migrated")
    } else if !text(object, "/status/evacuationNodeName").is_empty() && !cannot_migrate(object) {
        Some("its node is being drained")
    } else if is_true("VolumesChange") {
        Some("its volumes are being changed")
    } else if is_backed_up {
        Some("a backup of it is being made")
    } else if text(object, "/status/fsFreezeStatus") == "frozen" {
        Some("its file systems are frozen")
    } else {
        None
    }
}

/// KubeVirt plugs by a migration, and only into what can be migrated; it asks for a restart because of memory that
/// it can't plug, and not because of CPUs (`handleCPUChangeRequest` in `pkg/virt-controller/watch/vm/vm.go`).
fn plug(object: &Value) -> Option<Plug> {
    let is_true = |kind| ConditionView::of(object, kind).is_some_and(|c| c.is_true());
    if !is_true("HotVCPUChange") && !is_true("HotMemoryChange") {
        return None;
    }
    Some(if cannot_migrate(object) {
        Plug::Impossible
    } else {
        Plug::Pending
    })
}

fn cannot_migrate(object: &Value) -> bool {
    ConditionView::of(object, "LiveMigratable").is_some_and(|condition| condition.status == "False")
}
