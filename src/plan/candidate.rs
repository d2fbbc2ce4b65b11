//! A member as the rollout looks at it: where it is on its way to the target revision, and what keeps it from being
//! updated now.

use k8s_openapi::jiff::Timestamp;

use super::Member;
use super::stage::Stage;
use super::status::State;
use crate::kubevirt::Phase;

/// A member that may follow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate<'a> {
    pub(super) member: &'a Member,
    pub(super) state: State,
    pub(super) stage: Stage,
    /// It is available, and its restart was asked for, to whichever revision.
    pub(super) is_going_down: bool,
    /// Until when it is not written again, if something puts it back.
    pub(super) put_back: Option<Timestamp>,
}

impl Candidate<'_> {
    /// What keeps it from being updated now, beside its user.
    pub(super) fn deferred(&self) -> Option<String> {
        if self.is_outdated() && self.put_back.is_some() {
            return Some("it was written, and something has put it back".to_owned());
        }
        self.busy().map(str::to_owned).or_else(|| {
            let disk = self.member.taken_disk.as_ref();
            let disk = disk.filter(|_| self.is_outdated())?;
            Some(format!("{disk} exists already and is not its own"))
        })
    }

    fn busy(&self) -> Option<&'static str> {
        let vmi = self.member.vmi.as_ref();
        let vmi = vmi.filter(|vmi| self.state != State::Halted && !vmi.phase.is_final());
        self.member.vm.busy.or_else(|| {
            let vmi = vmi?;
            if vmi.paused {
                Some("it is paused")
            } else if vmi.phase == Phase::Unknown {
                Some("its node doesn't answer")
            } else {
                vmi.busy
            }
        })
    }

    /// What KubeVirt has to do first.
    pub(super) fn unanswered(&self) -> &'static str {
        if self.member.is_filling {
            "a disk of it is being filled"
        } else {
            "KubeVirt has not answered yet"
        }
    }

    pub(super) fn is_outdated(&self) -> bool {
        matches!(self.stage, Stage::Outdated { .. })
    }

    pub(super) fn is_protected(&self) -> bool {
        self.member.vm.is_protected_from("update")
    }
}
