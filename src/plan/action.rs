//! The deeds that a plan asks for, and how each is made from who it is about.

use super::Member;
use super::rollout;
use crate::api::conditions::reasons;
use crate::kubevirt::VmView;

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
    /// Take this member out of the pool, whole: launcher pod, instance, then VM.
    Detach {
        /// Name of the VM.
        name: String,
        /// Precondition.
        uid: String,
        /// Why, in the words of whoever asked for it; may be empty.
        reason: String,
    },
    /// Take what was accepted for VMs of these UIDs off the pool: it is over.
    ClearIntents {
        /// UIDs of the VMs.
        uids: Vec<String>,
    },
    /// Take our labels, marks and annotations off a VM that is no longer a member: launcher pod, instance,
    /// then VM.
    Release {
        /// Name of the VM.
        name: String,
        /// Precondition.
        uid: String,
    },
    /// Restart this member's instance, so that it takes on what its object says.
    Restart {
        /// Name of the VM.
        name: String,
        /// Precondition.
        uid: String,
        /// The instance that is to end.
        vmi_uid: String,
        /// By deleting the instance: KubeVirt starts it anew, and refuses to restart it otherwise.
        by_delete: bool,
    },
    /// Bring this member's VM object to the target revision.
    Update {
        /// Name of the VM.
        name: String,
        /// Precondition.
        uid: String,
        /// Leave the run strategy of a VM that is meant to run alone.
        keeps_run_strategy: bool,
    },
}

impl Action {
    /// The reason under which it is reported when it was done; one of `conditions::reasons`.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Create { .. } => reasons::CREATED,
            Self::Delete { .. } => reasons::DELETED,
            Self::ClearIntents { .. } | Self::Detach { .. } => reasons::DETACHED,
            Self::Release { .. } => reasons::RELEASED,
            Self::Restart { .. } => reasons::RESTARTED,
            Self::Update { .. } => reasons::UPDATED,
        }
    }
}

pub(super) fn create(ordinal: u32) -> Action {
    Action::Create { ordinal }
}

pub(super) fn delete(member: &Member) -> Action {
    Action::Delete {
        name: member.vm.name.clone(),
        uid: member.vm.uid.clone(),
        resource_version: member.vm.resource_version.clone(),
    }
}

pub(super) fn release(vm: &VmView) -> Action {
    Action::Release {
        name: vm.name.clone(),
        uid: vm.uid.clone(),
    }
}

pub(super) fn restart(member: &Member) -> Action {
    let instance = member.vmi.as_ref();
    Action::Restart {
        name: member.vm.name.clone(),
        uid: member.vm.uid.clone(),
        vmi_uid: instance.map(|vmi| vmi.uid.clone()).unwrap_or_default(),
        by_delete: rollout::restarts_by_delete(member),
    }
}

pub(super) fn update_of(member: &Member, keeps_run_strategy: bool) -> Action {
    Action::Update {
        name: member.vm.name.clone(),
        uid: member.vm.uid.clone(),
        keeps_run_strategy,
    }
}
