//! The deeds that a plan asks for, and how each is made from who it is about.

use super::Member;
use super::status;
use crate::api::annotations;
use crate::api::conditions::reasons;
use crate::kubevirt::{RunStrategy, VmView, VmiView};

/// What can fail by itself, and is held back by itself. In the order in which failures are told.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Kind {
    /// VMs are made.
    Create,
    /// Members are deleted.
    Delete,
    /// Members leave the pool, whole.
    Detach,
    /// Members' objects are written.
    Update,
    /// Members' instances are restarted.
    Restart,
    /// Former members lose what they have of ours.
    Release,
    /// What is over is taken off the pool.
    Clear,
}

impl Kind {
    /// The reason under which its failure is reported if nothing more is known; one of `conditions::reasons`.
    pub fn failed(self) -> &'static str {
        match self {
            Self::Create => reasons::FAILED_CREATE,
            Self::Delete => reasons::FAILED_DELETE,
            Self::Clear | Self::Detach => reasons::FAILED_DETACH,
            Self::Update => reasons::FAILED_UPDATE,
            Self::Restart => reasons::FAILED_RESTART,
            Self::Release => reasons::FAILED_RELEASE,
        }
    }
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
        /// Precondition: what the object is stamped with; another write may need no restart.
        stamp: Option<String>,
        /// It was chosen while it was not Ready: one that has become so meanwhile is for the next plan.
        while_down: bool,
    },
    /// Bring this member's VM object to the target revision.
    Update {
        /// Name of the VM.
        name: String,
        /// Precondition.
        uid: String,
        /// It is written at once since it doesn't run: not if it was started meanwhile.
        is_halted: bool,
        /// Leave the run strategy of a VM that is meant to run alone.
        keeps_run_strategy: bool,
    },
}

impl Action {
    /// What it fails together with.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Create { .. } => Kind::Create,
            Self::Delete { .. } => Kind::Delete,
            Self::ClearIntents { .. } => Kind::Clear,
            Self::Detach { .. } => Kind::Detach,
            Self::Release { .. } => Kind::Release,
            Self::Restart { .. } => Kind::Restart,
            Self::Update { .. } => Kind::Update,
        }
    }

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
        by_delete: restarts_by_delete(member),
        stamp: member.vm.annotations.get(annotations::STAMP).cloned(),
        while_down: !instance.is_some_and(VmiView::is_ready),
    }
}

pub(super) fn update_of(member: &Member, keeps_run_strategy: bool) -> Action {
    Action::Update {
        name: member.vm.name.clone(),
        uid: member.vm.uid.clone(),
        is_halted: status::is_halted(member),
        keeps_run_strategy,
    }
}

/// Whether an instance of this run strategy is started anew when it is deleted, and can't be restarted.
fn restarts_by_delete(member: &Member) -> bool {
    member.vm.run_strategy == RunStrategy::Once
}
