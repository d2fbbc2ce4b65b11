//! What decisions read of a DataVolume or a PersistentVolumeClaim: its metadata and its phase.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{Owner, PERSISTENT_STATE_FOR};

/// Phases of a DataVolume in which KubeVirt starts the VM, or has CDI wait for that.
const FULL: [&str; 3] = ["PendingPopulation", "Succeeded", "WaitForFirstConsumer"];

/// A DataVolume or claim, cut down to what the disk check reads.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DiskView {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// All owners; the controller, if any, is the first.
    pub owners: Vec<Owner>,
    /// Whether it is going away.
    pub deleting: bool,
    /// Name of the VM whose vTPM or EFI state it holds: by its label or, where it has none, by its own name, as
    /// KubeVirt's `PVCForVMI` finds those that older versions made.
    pub persistent_state_for: Option<String>,
    /// Of a DataVolume: whether it is as full as KubeVirt waits for (its `handleDataVolumes`).
    pub has_data: bool,
}

impl DiskView {
    /// Reads `meta` and `status.phase`. `None` if it has no name, namespace or UID.
    pub fn read(meta: &ObjectMeta, phase: &str) -> Option<Self> {
        let mut references: Vec<_> = meta.owner_references.iter().flatten().collect();
        references.sort_by_key(|owner| owner.controller != Some(true));
        Some(Self {
            namespace: meta.namespace.clone()?,
            name: meta.name.clone()?,
            uid: meta.uid.clone()?,
            owners: references.into_iter().map(Owner::from).collect(),
            deleting: meta.deletion_timestamp.is_some(),
            persistent_state_for: persistent_state_for(meta),
            has_data: FULL.contains(&phase),
        })
    }
}

fn persistent_state_for(meta: &ObjectMeta) -> Option<String> {
    let label = meta
        .labels
        .as_ref()
        .and_then(|labels| labels.get(PERSISTENT_STATE_FOR));
    let by_name = || {
        let name = meta.name.as_deref()?;
        name.strip_prefix(PERSISTENT_STATE_FOR)?.strip_prefix('-')
    };
    label
        .map(String::as_str)
        .or_else(by_name)
        .map(str::to_owned)
}
