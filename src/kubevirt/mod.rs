//! Views of KubeVirt's and CDI's objects over opaque JSON: only what decisions read, and the one place where
//! the names of their fields stand. Reading is lenient: an odd value is an absent one, so that one strange
//! object never stops a watch. Nothing here writes.

mod disk;
mod live;
pub mod verdict;
mod vm;
mod vmi;

pub use disk::DiskView;
pub use live::Live;
pub use vm::{RunStrategy, VmView};
pub use vmi::{Phase, Plug, VmiView};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use k8s_openapi::jiff::Timestamp;
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::Value;

/// KubeVirt's API group.
pub const GROUP: &str = "kubevirt.io";
/// Group of the API that KubeVirt aggregates: verbs on VMs.
pub const SUBRESOURCES_GROUP: &str = "subresources.kubevirt.io";
/// CDI's API group.
pub const CDI_GROUP: &str = "cdi.kubevirt.io";
/// Label on a claim that holds a VM's vTPM or EFI state; the value is the VM's name (facts, section 2.6).
pub const PERSISTENT_STATE_FOR: &str = "persistent-state-for";
/// Annotation on a VM; `false` has KubeVirt make its disks when it is started (`ImmediateDataVolumeCreation` in its API).
pub const IMMEDIATE_DATA_VOLUMES: &str = "kubevirt.io/immediate-data-volume-creation";
/// Annotation by which KubeVirt notes on a VM what it was last restored from (`lastRestoreAnnotation` in
/// `pkg/storage/snapshot/restore.go`).
pub const LAST_RESTORE: &str = "restore.kubevirt.io/lastRestoreUID";

/// `kubevirt.io/v1 VirtualMachine`.
pub fn virtual_machine() -> ApiResource {
    ApiResource::from_gvk_with_plural(
        &GroupVersionKind::gvk(GROUP, "v1", "VirtualMachine"),
        "virtualmachines",
    )
}

/// `kubevirt.io/v1 VirtualMachineInstance`.
pub fn virtual_machine_instance() -> ApiResource {
    ApiResource::from_gvk_with_plural(
        &GroupVersionKind::gvk(GROUP, "v1", "VirtualMachineInstance"),
        "virtualmachineinstances",
    )
}

/// Path of the call (a PUT) that restarts a VM.
pub fn restart_path(namespace: &str, name: &str) -> String {
    format!("/apis/{SUBRESOURCES_GROUP}/v1/namespaces/{namespace}/virtualmachines/{name}/restart")
}

/// `cdi.kubevirt.io/v1beta1 DataVolume`.
pub fn data_volume() -> ApiResource {
    ApiResource::from_gvk_with_plural(
        &GroupVersionKind::gvk(CDI_GROUP, "v1beta1", "DataVolume"),
        "datavolumes",
    )
}

/// The controller among the owners of an object.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Owner {
    /// API group, without the version.
    pub group: String,
    /// Kind.
    pub kind: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
}

impl Owner {
    /// The controller owner in `meta`, if any.
    pub fn controller_of(meta: &ObjectMeta) -> Option<Self> {
        meta.owner_references
            .iter()
            .flatten()
            .find(|owner| owner.controller == Some(true))
            .map(Self::from)
    }

    /// Whether it is a VirtualMachinePool of ours.
    pub fn is_pool(&self) -> bool {
        self.group == crate::api::GROUP && self.kind == crate::api::POOL_KIND
    }
}

impl From<&OwnerReference> for Owner {
    fn from(owner: &OwnerReference) -> Self {
        let group = owner
            .api_version
            .split_once('/')
            .map_or("", |(group, _)| group);
        Self {
            group: group.to_owned(),
            kind: owner.kind.clone(),
            name: owner.name.clone(),
            uid: owner.uid.clone(),
        }
    }
}

/// The names of the disk templates of a VirtualMachineSpec.
pub fn disk_template_names(spec: &Value) -> Vec<String> {
    spec.get("dataVolumeTemplates")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|template| template.pointer("/metadata/name").and_then(Value::as_str))
        .map(str::to_owned)
        .collect()
}

/// A condition of a VM or an instance.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ConditionView {
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Reason, empty when none is given.
    pub reason: String,
    /// When the status last changed; KubeVirt may leave it null.
    pub since: Option<Timestamp>,
}

impl ConditionView {
    /// The condition of that type below `/status/conditions`.
    fn of(object: &Value, kind: &str) -> Option<Self> {
        let condition = object
            .pointer("/status/conditions")?
            .as_array()?
            .iter()
            .find(|condition| text(condition, "/type") == kind)?;
        Some(Self {
            status: text(condition, "/status").to_owned(),
            reason: text(condition, "/reason").to_owned(),
            since: text(condition, "/lastTransitionTime").parse().ok(),
        })
    }

    /// Whether the status is `True`.
    pub fn is_true(&self) -> bool {
        self.status == "True"
    }
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or("")
}

/// The time in Kubernetes' wrapper.
fn seconds(
    time: Option<&k8s_openapi::apimachinery::pkg::apis::meta::v1::Time>,
) -> Option<Timestamp> {
    time.map(|time| time.0)
}

#[cfg(test)]
mod tests;
