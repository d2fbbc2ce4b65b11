//! `VirtualMachinePool`: all fields from the start. What a field does not do yet is refused at admission
//! (`admission::unsupported`), never accepted and ignored. Defaults are applied at read time by the methods
//! here and not written back, save `replicas` and `vmPrefix` (see `admission::defaulting`).

#![allow(
    unreachable_pub,
    reason = "kube's KubeSchema derive repeats each struct inside a function"
)]

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::NodeSelector;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Most replicas that a pool can have. With `ordinalStart` at its most, ordinals fit six digits.
pub const MAX_REPLICAS: i32 = 100_000;
/// Largest first ordinal.
pub const MAX_ORDINAL_START: i32 = 100_000;
/// Longest prefix: a VM name is a label value and a host name (63), less a dash and six digits.
pub const MAX_PREFIX: usize = 56;
/// Replicas of a pool that names none when it is created.
pub const DEFAULT_REPLICAS: i32 = 1;
/// Seconds without progress before that is said, where none are given: a Deployment's.
pub const DEFAULT_PROGRESS_DEADLINE_SECONDS: i32 = 600;
/// First ordinal where none is given.
pub const DEFAULT_ORDINAL_START: i32 = 1;

/// What a pool should be.
#[derive(CustomResource, Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[kube(
    group = "vmpool.dev",
    version = "v1alpha1",
    kind = "VirtualMachinePool",
    plural = "virtualmachinepools",
    shortname = "vpool",
    category = "vpools",
    namespaced,
    status = "VirtualMachinePoolStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "A pool of stateful KubeVirt VirtualMachines stamped from one VirtualMachineConfig.",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.labelSelector"
    ),
    validation = Rule::new("size(self.metadata.name) <= 63")
        .message("the pool's name becomes a label value of its VMs: it can have at most 63 characters"),
    validation = Rule::new("!has(oldSelf.status) || !has(oldSelf.status.replicas) || oldSelf.status.replicas == 0 || !has(oldSelf.spec.nameGeneration) || !has(oldSelf.spec.nameGeneration.vmPrefix) || (has(self.spec.nameGeneration) && has(self.spec.nameGeneration.vmPrefix) && self.spec.nameGeneration.vmPrefix == oldSelf.spec.nameGeneration.vmPrefix)")
        .message("vmPrefix can't be changed while the pool has VMs: scale to 0 first, or make another pool")
        .field_path(".spec.nameGeneration.vmPrefix"),
    printcolumn(name = "Config", type_ = "string", json_path = ".spec.config.name"),
    printcolumn(name = "Desired", type_ = "integer", json_path = ".spec.replicas"),
    printcolumn(name = "Current", type_ = "integer", json_path = ".status.replicas"),
    printcolumn(name = "Ready", type_ = "integer", json_path = ".status.readyReplicas"),
    printcolumn(name = "Updated", type_ = "integer", json_path = ".status.updatedReplicas"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Revision", type_ = "string", json_path = ".status.targetRevision", priority = 1),
    printcolumn(name = "Strategy", type_ = "string", json_path = ".spec.updateStrategy", priority = 1),
    printcolumn(name = "Parked", type_ = "integer", json_path = ".status.parkedReplicas", priority = 1),
    printcolumn(name = "Preserved", type_ = "integer", json_path = ".status.preservedReplicas", priority = 1)
)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachinePoolSpec {
    /// How many VM objects the pool has, halted ones included. 1 when absent at creation; absent later means
    /// "as it is", so that an autoscaler's number survives a re-apply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100_000))]
    pub replicas: Option<i32>,
    /// The config that the VMs are stamped from.
    pub config: ConfigReference,
    /// How VMs and what they refer to are named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name_generation: Option<NameGeneration>,
    /// Labels and annotations added to every VM object of this pool (not to their instances).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub virtual_machine_metadata: Option<VirtualMachineMetadata>,
    /// What becomes of disks that were kept. Nothing in it is supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preserved_disks: Option<PreservedDisks>,
    /// No action on any VM while true; the status goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// Seconds that a VM must have been Ready to count as available. Default 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub min_ready_seconds: Option<i32>,
    /// How many members may be unavailable because of this program: a number from 1, or 1% to 100% of
    /// `replicas` rounded down and at least 1. Default 25%.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("type(self) == int ? self >= 1 && self <= 2147483647 : self.matches('^([1-9][0-9]?|100)%$')")
        .message("maxUnavailable must be a whole number of at least 1, or a percentage from 1% to 100%"))]
    pub max_unavailable: Option<IntOrString>,
    /// How existing VMs follow a changed config: at most one member; none means proactive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update_strategy: Option<UpdateStrategy>,
    /// Which VMs go when there are more than `replicas`, and what is kept of them: at most one member; none
    /// means proactive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale_in_strategy: Option<ScaleInStrategy>,
    /// Replacement of VMs that don't get well. Absent: off. Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub autohealing: Option<Autohealing>,
    /// Seconds without progress after which `Progressing` turns False. Default 600.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub progress_deadline_seconds: Option<i32>,
}

/// Which config, and optionally which revision of it.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfigReference {
    /// Name of a VirtualMachineConfig in the pool's namespace.
    #[schemars(length(min = 1))]
    pub name: String,
    /// Name of a ControllerRevision of that config to stay on. Absent: follow the config.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub revision: Option<String>,
}

/// Names of VMs, and of the objects they refer to.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NameGeneration {
    /// VMs are named `<vmPrefix>-<ordinal>`. Default: the pool's name. Can't change while the pool has VMs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("size(self) <= 56 && self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')")
        .message("vmPrefix must be a DNS label (a-z, 0-9, '-') of at most 56 characters: with a dash and six digits it is a VM name, which can have 63"))]
    pub vm_prefix: Option<String>,
    /// First ordinal. Default 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100_000))]
    pub ordinal_start: Option<i32>,
    /// Append `-<ordinal>` to the names of Secrets. Default false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub append_postfix_to_secret_references: Option<bool>,
    /// Append `-<ordinal>` to the names of ConfigMaps. Default false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub append_postfix_to_config_map_references: Option<bool>,
    /// Append `-<ordinal>` to the names of claims and DataVolumes that are no disk template. Default false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub append_postfix_to_volume_claim_references: Option<bool>,
    /// Secrets whose names are never postfixed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shared_secrets: Vec<String>,
    /// ConfigMaps whose names are never postfixed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shared_config_maps: Vec<String>,
    /// Claims and DataVolumes whose names are never postfixed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shared_volume_claims: Vec<String>,
}

/// Labels and annotations of VM objects.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineMetadata {
    /// Labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// What becomes of kept disks.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PreservedDisks {
    /// When the pool is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when_pool_deleted: Option<WhenPoolDeleted>,
    /// How long they are kept, such as `720h`. Default: for ever. Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^([0-9]+(s|m|h))+$"))]
    pub expire_after: Option<String>,
}

/// What becomes of kept disks when their pool is deleted. Default Delete: they go with it. Not supported yet.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum WhenPoolDeleted {
    /// They go with it.
    #[default]
    Delete,
    /// They stay.
    Retain,
}

/// How existing VMs follow a changed config.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("(has(self.proactive) ? 1 : 0) + (has(self.opportunistic) ? 1 : 0) + (has(self.unmanaged) ? 1 : 0) <= 1")
    .message("at most one of proactive, opportunistic and unmanaged can be set"))]
pub struct UpdateStrategy {
    /// VMs are updated and restarted within `maxUnavailable`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proactive: Option<ProactiveUpdate>,
    /// VM objects are updated at once; guests pick it up at their next restart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opportunistic: Option<Empty>,
    /// Existing VMs are never touched; new VMs get the new revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unmanaged: Option<Empty>,
}

/// A strategy without settings.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Empty {}

/// Settings of the proactive update.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProactiveUpdate {
    /// Which running VM is restarted first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selection_policy: Option<SelectionPolicy>,
    /// How many members stay on the old revision: a number, or a percentage of `replicas`. Default 0.
    /// Not supported yet: anything but 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("type(self) == int ? self >= 0 && self <= 2147483647 : self.matches('^([1-9]?[0-9]|100)%$')")
        .message("partition must be a whole number of at least 0, or a percentage from 0% to 100%"))]
    pub partition: Option<IntOrString>,
    /// What a changed disk template means for existing VMs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_disk_template_change: Option<OnDiskTemplateChange>,
}

/// What a changed disk template means for existing VMs. Default Keep: disks are never destroyed by an update.
/// Not supported yet: Reprovision, by which member and disks are replaced, within the budget.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum OnDiskTemplateChange {
    /// Disks are never destroyed by an update.
    #[default]
    Keep,
    /// Member and disks are replaced, within the budget.
    Reprovision,
}

/// Which VMs go when there are more than `replicas`.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("(has(self.proactive) ? 1 : 0) + (has(self.opportunistic) ? 1 : 0) + (has(self.unmanaged) ? 1 : 0) <= 1")
    .message("at most one of proactive, opportunistic and unmanaged can be set"))]
pub struct ScaleInStrategy {
    /// Surplus VMs are removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proactive: Option<ProactiveScaleIn>,
    /// Only VMs whose run strategy is Halted are removed. Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opportunistic: Option<OpportunisticScaleIn>,
    /// No VM is ever removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unmanaged: Option<Empty>,
}

/// Settings of the proactive scale-in.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProactiveScaleIn {
    /// Which VM goes first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selection_policy: Option<SelectionPolicy>,
    /// What is kept of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_preservation: Option<StatePreservation>,
}

/// Settings of the opportunistic scale-in.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OpportunisticScaleIn {
    /// What is kept of a removed VM. Default Disabled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_preservation: Option<StatePreservation>,
}

/// What is kept of a VM that is scaled in. Default Disabled: nothing, its disks go with it.
/// Not supported yet: Offline (its disks) and Online (its memory and disks).
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum StatePreservation {
    /// Nothing: its disks go with it.
    #[default]
    Disabled,
    /// Its disks.
    Offline,
    /// Its memory and disks.
    Online,
}

/// Which VM is chosen first.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SelectionPolicy {
    /// Tried in order, before the base; a VM belongs to the first entry it matches. Not supported yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ordered_policies: Vec<OrderedPolicy>,
    /// Orders inside each entry, and the VMs that match none. Default Random where there are no ordered
    /// policies; with only ordered policies, VMs that match none are not eligible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_policy: Option<BasePolicy>,
}

/// One entry of `orderedPolicies`: exactly one member.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("(has(self.labelSelector) ? 1 : 0) + (has(self.nodeSelector) ? 1 : 0) + (has(self.state) ? 1 : 0) == 1")
    .message("exactly one of labelSelector, nodeSelector and state must be set"))]
pub struct OrderedPolicy {
    /// VMs whose labels match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
    /// VMs whose instance runs on a node that matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<NodeSelector>,
    /// VMs in this state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<MemberState>,
}

/// State of a VM, as policies speak of it.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum MemberState {
    /// Start attempts failed.
    Failing,
    /// Meant not to run.
    Halted,
    /// Running and not Ready.
    NotReady,
    /// Its disks are being made.
    Provisioning,
    /// Ready.
    Ready,
}

/// Order of choice: Random (shuffled with a seed from the pool, the least disturbing first; the default), Oldest,
/// Newest, LowestOrdinal or HighestOrdinal first.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum BasePolicy {
    /// Shuffled with a seed from the pool, the least disturbing first.
    #[default]
    Random,
    /// Oldest first.
    Oldest,
    /// Newest first.
    Newest,
    /// Lowest ordinal first.
    LowestOrdinal,
    /// Highest ordinal first.
    HighestOrdinal,
}

/// When a VM is replaced because it doesn't get well.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Autohealing {
    /// Consecutive start failures. Default 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub start_failure_threshold: Option<i32>,
    /// How long a started VM may be not Ready, such as `10m`. Default: for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^([0-9]+(s|m|h))+$"))]
    pub unready_timeout: Option<String>,
    /// Least time between two heals of one VM name, such as `5m`. Default 5m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^([0-9]+(s|m|h))+$"))]
    pub min_time_between_heals: Option<String>,
    /// At or over this share unhealthy nothing is healed. Default 50%.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("type(self) == int ? self >= 1 && self <= 2147483647 : self.matches('^([1-9][0-9]?|100)%$')")
        .message("maxUnhealthy must be a whole number of at least 1, or a percentage from 1% to 100%"))]
    pub max_unhealthy: Option<IntOrString>,
}

/// What the program says of a pool.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachinePoolStatus {
    /// Generation of the spec that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// VM objects in the pool, parked and deleting ones excluded.
    #[serde(default)]
    pub replicas: i32,
    /// Members whose instance is Ready.
    #[serde(default)]
    pub ready_replicas: i32,
    /// Members that have been Ready for `minReadySeconds`.
    #[serde(default)]
    pub available_replicas: i32,
    /// Members meant to run and not available.
    #[serde(default)]
    pub unavailable_replicas: i32,
    /// Members meant not to run.
    #[serde(default)]
    pub halted_replicas: i32,
    /// Members whose VM object is at the target revision.
    #[serde(default)]
    pub updated_replicas: i32,
    /// Members whose running instance is at the target revision too; halted ones count with their object.
    #[serde(default)]
    pub current_replicas: i32,
    /// Members whose memory is kept. 0: not supported yet.
    #[serde(default)]
    pub parked_replicas: i32,
    /// Ordinals whose disks are kept. 0: not supported yet.
    #[serde(default)]
    pub preserved_replicas: i32,
    /// Members chosen for scale-in and not gone yet.
    #[serde(default)]
    pub leaving_replicas: i32,
    /// Selects the members' instances and launcher pods; what the scale subresource hands to an HPA.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<String>,
    /// Name of the revision that new VMs are stamped from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_revision: Option<String>,
    /// Available, Progressing, ReplicaFailure, ScaleInBlocked, UpdateBlocked, DisksOutdated, Paused, ConfigReady.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

impl VirtualMachinePoolSpec {
    /// Wanted number of VM objects.
    pub fn replicas(&self) -> u32 {
        u32::try_from(self.replicas.unwrap_or(DEFAULT_REPLICAS)).unwrap_or(0)
    }

    /// Prefix of VM names, given the pool's own name.
    pub fn vm_prefix<'a>(&'a self, pool_name: &'a str) -> &'a str {
        self.name_generation
            .as_ref()
            .and_then(|names| names.vm_prefix.as_deref())
            .unwrap_or(pool_name)
    }

    /// First ordinal.
    pub fn ordinal_start(&self) -> u32 {
        let start = self
            .name_generation
            .as_ref()
            .and_then(|names| names.ordinal_start);
        u32::try_from(start.unwrap_or(DEFAULT_ORDINAL_START)).unwrap_or(0)
    }

    /// Seconds without progress after which `Progressing` turns False.
    pub fn progress_deadline_seconds(&self) -> i64 {
        let seconds = self.progress_deadline_seconds;
        i64::from(seconds.unwrap_or(DEFAULT_PROGRESS_DEADLINE_SECONDS).max(1))
    }

    /// Whether nothing may be done to VMs.
    pub fn is_paused(&self) -> bool {
        self.paused.unwrap_or(false)
    }
}
