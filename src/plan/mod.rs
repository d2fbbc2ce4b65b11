//! Decides what is to be done for one pool, and says why. Pure: [`plan`] reads a [`Snapshot`] and the time,
//! and returns data; `controller::apply` turns it into calls. Nothing here reads a clock, a cache or the
//! network, and the same `plan` is to serve previews.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::Timestamp;

use crate::api::{VirtualMachinePoolSpec, VirtualMachinePoolStatus};
use crate::kubevirt::{VmView, VmiView};

/// Everything that one decision about one pool reads.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The pool itself.
    pub pool: Pool,
    /// Its config.
    pub config: Config,
    /// What new VMs are stamped from; `None` while there is no revision.
    pub target: Option<Target>,
    /// Every VM whose controller is this pool, by UID, the ones being deleted included.
    pub members: Vec<Member>,
    /// VMs that carry this pool's `member-of` annotation and are not its members any more.
    pub former: Vec<VmView>,
    /// Ordinals whose VM name, or the name of one of whose disks, is in use by something that is not a live
    /// member of this pool.
    pub occupied: BTreeMap<u32, Occupied>,
    /// Creates that were answered with success and whose VM the cache hasn't shown yet, by ordinal.
    pub expected_creates: Vec<u32>,
    /// UIDs of members whose deletion was answered with success and that the cache still shows alive.
    pub expected_deletes: Vec<String>,
    /// Since when each ordinal has been seen going away, from the last [`Plan::waiting`].
    pub waiting: BTreeMap<u32, Timestamp>,
    /// From the last [`Plan::memory`].
    pub memory: Memory,
    /// What went wrong in the last pass.
    pub failure: Option<Failure>,
    /// Whether KubeVirt's CRDs are installed.
    pub kubevirt_installed: bool,
    /// Whether CDI's CRDs are installed.
    pub cdi_installed: bool,
    /// Limits from the command line.
    pub limits: Limits,
}

/// What one plan hands to the next one of the same pool, beside [`Plan::waiting`]. It lives in memory only:
/// losing it (a restart, a new leader) costs one repeated event or a clock that starts anew.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Memory {
    /// Taken ordinals that an event has told of.
    pub reported_taken: BTreeSet<u32>,
    /// Since when members have been seen Ready, by UID, of those whose instance doesn't say or names a time
    /// to come.
    pub ready_since: BTreeMap<String, Timestamp>,
}

/// The pool itself.
#[derive(Clone, Debug)]
pub struct Pool {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// Generation of the spec.
    pub generation: i64,
    /// Whether it is being deleted: then nothing is done, the garbage collector takes the members.
    pub deleting: bool,
    /// What it should be.
    pub spec: VirtualMachinePoolSpec,
    /// What was last said of it.
    pub status: VirtualMachinePoolStatus,
}

/// State of the pool's config.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Config {
    /// It does not exist; the last revision, if there is one, goes on serving.
    Missing,
    /// Its newest spec has not become a revision yet.
    Pending,
    /// Its newest spec and its revision are there.
    Ready,
    /// KubeVirt refuses its newest spec; the message says why. An older revision goes on serving.
    Refused(String),
}

/// What new VMs are stamped from.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Target {
    /// Name of the ControllerRevision.
    pub revision: String,
    /// Hash of revision content and pool inputs (`stamp::revision::stamp_hash`).
    pub stamp_hash: String,
    /// Whether the revision has disk templates: then CDI is needed.
    pub has_disk_templates: bool,
}

/// A VM of the pool, and its instance if it has one (of the same UID).
#[derive(Clone, Debug)]
pub struct Member {
    /// The VM.
    pub vm: VmView,
    /// Its instance.
    pub vmi: Option<VmiView>,
    /// Its number, from its name; `None` if the name is no `<prefix>-<n>` of the pool.
    pub ordinal: Option<u32>,
}

/// What stands in the way of an ordinal.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Occupied {
    /// Something alive that is not this pool's: the ordinal is skipped.
    Taken {
        /// Such as `VirtualMachine web-3` or `DataVolume web-3-root`.
        by: String,
    },
    /// An earlier VM of this number, or a disk of one, is going away: the ordinal is waited for.
    GoingAway {
        /// Such as `VirtualMachine web-3`.
        what: String,
        /// How long it may take before the next free ordinal is used instead: the guest's grace period and
        /// two minutes.
        patience_seconds: i64,
    },
}

/// What went wrong in the last pass, and when to try again.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Failure {
    /// One of `conditions::reasons`.
    pub reason: &'static str,
    /// For people.
    pub message: String,
    /// No create before then.
    pub retry_at: Timestamp,
}

/// Limits from the command line.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most creates, and most deletes, in one pass of one pool.
    pub burst: u32,
}

/// What is to be done for one pool.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// In this order; each can fail without the others.
    pub actions: Vec<Action>,
    /// What to say of the pool. Conditions keep their transition time where their status stays.
    pub status: VirtualMachinePoolStatus,
    /// Events for the pool.
    pub events: Vec<Note>,
    /// When to look again if nothing happens before.
    pub wake_at: Option<Timestamp>,
    /// Since when each ordinal has been seen going away; to be handed back in the next snapshot.
    pub waiting: BTreeMap<u32, Timestamp>,
    /// To be handed back in the next snapshot.
    pub memory: Memory,
}

/// One deed. The reason reaches log and event.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Action {
    /// Stamp and create the VM with this ordinal.
    Create {
        /// Its number.
        ordinal: u32,
    },
    /// Delete this member, disks and all.
    Delete {
        /// Name of the VM.
        name: String,
        /// Precondition.
        uid: String,
        /// Precondition.
        resource_version: String,
    },
    /// Take our labels, marks and annotations off a VM that is no longer a member: launcher pod, instance,
    /// then VM.
    Release {
        /// Name of the VM.
        name: String,
        /// Precondition.
        uid: String,
    },
}

/// An event.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Note {
    /// Whether it is a warning.
    pub warning: bool,
    /// One of `conditions::reasons`.
    pub reason: &'static str,
    /// For people.
    pub message: String,
}
