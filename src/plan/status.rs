//! Counts of a pool's members, all from what the cache shows before the plan is carried out.
//!
//! Each member that the cache shows is exactly one of available, unavailable and halted. *Halted* is a
//! member that is meant not to run (facts, section 3.2), whatever its instance still does. `replicas` also
//! counts members that were created and are not shown yet: they are in none of the three for that moment.
//! `leavingReplicas` stays 0 as long as only `Disabled` is built: its delete is one call, after which the
//! member counts nowhere.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;

use super::membership::Membership;
use super::scale_out::deadline;
use super::stage::{self, Stage};
use super::{Member, Snapshot};
use crate::api::labels;
use crate::api::pool::VirtualMachinePoolStatus;
use crate::kubevirt::{Phase, RunStrategy, VmView, VmiView};

/// What every live member is exactly one of.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum State {
    /// Ready for `minReadySeconds`.
    Available,
    /// Meant not to run.
    Halted,
    /// Meant to run, and not available.
    Unavailable,
}

/// Counts, and what becomes of them by the mere passing of time.
#[derive(Debug, Default)]
pub(super) struct Observed {
    /// The status, without conditions.
    pub(super) status: VirtualMachinePoolStatus,
    /// When the next Ready member becomes available.
    pub(super) next_available: Option<Timestamp>,
    /// For [`super::Memory::ready_since`].
    pub(super) ready_since: BTreeMap<String, Timestamp>,
    /// Of the live members, in their order.
    pub(super) states: Vec<State>,
}

/// Counts the members.
pub(super) fn observe(snapshot: &Snapshot, members: &Membership<'_>, now: Timestamp) -> Observed {
    let pool = &snapshot.pool;
    let mut observed = Observed::default();
    let status = &mut observed.status;
    status.observed_generation = Some(pool.generation);
    status.label_selector = Some(format!("{}={}", labels::POOL_UID, pool.uid));
    status.target_revision = snapshot
        .target
        .as_ref()
        .map(|target| target.revision.clone());
    status.replicas = i32::try_from(members.count()).unwrap_or(i32::MAX);
    for member in &members.live {
        let ready = member.vmi.as_ref().filter(|vmi| vmi.is_ready());
        status.ready_replicas += i32::from(ready.is_some());
        let mut state = State::Unavailable;
        if is_halted(member) {
            state = State::Halted;
            status.halted_replicas += 1;
        } else {
            let at =
                ready.and_then(|vmi| available_at(snapshot, vmi, now, &mut observed.ready_since));
            if at.is_some_and(|at| at <= now) {
                state = State::Available;
                status.available_replicas += 1;
            } else {
                status.unavailable_replicas += 1;
            }
            let later = at.filter(|at| *at > now);
            observed.next_available = later.into_iter().fold(observed.next_available, earliest);
        }
        count_revisions(snapshot, member, state, status);
        observed.states.push(state);
    }
    observed
}

/// When a member whose instance is Ready counts as available. An instance that doesn't say since when it is
/// Ready, or names a time to come, is timed from when it was first seen so.
fn available_at(
    snapshot: &Snapshot,
    vmi: &VmiView,
    now: Timestamp,
    ready_since: &mut BTreeMap<String, Timestamp>,
) -> Option<Timestamp> {
    let needed = snapshot.pool.spec.min_ready_seconds.unwrap_or(0).max(0);
    if needed == 0 {
        return Some(now);
    }
    let said = vmi.ready.as_ref()?.since.filter(|since| *since <= now);
    let since = said.unwrap_or_else(|| {
        let seen = snapshot.memory.ready_since.get(&vmi.uid).copied();
        let since = seen.unwrap_or(now).min(now);
        ready_since.insert(vmi.uid.clone(), since);
        since
    });
    Some(deadline(since, i64::from(needed)))
}

/// A member is updated by its object, and current if its instance, too, has all that the object says: since it
/// was started from it, or since KubeVirt has compared the two and asks for no restart.
fn count_revisions(
    snapshot: &Snapshot,
    member: &Member,
    state: State,
    status: &mut VirtualMachinePoolStatus,
) {
    let Some(target) = &snapshot.target else {
        return;
    };
    if !stage::is_updated(member, target) {
        return;
    }
    status.updated_replicas += 1;
    let runs_it = member.vmi.as_ref().is_some_and(|vmi| {
        !vmi.deleting
            && !vmi.phase.is_final()
            && !member.vm.restart_required
            && stage::stage(snapshot, target, member, state) == Stage::Current
    });
    status.current_replicas += i32::from(state == State::Halted || runs_it);
}

/// Whether a member is meant not to run: declared so, never asked to, or it ended by itself under a strategy
/// that leaves it at that. A `Manual` guest that shut itself down is as good as one that was stopped. One whose
/// instance is going away to be started anew is none: where that can't be told from the instance, whose cache may
/// be behind, the VM has to show that it has stopped.
pub(super) fn is_halted(member: &Member) -> bool {
    let phase = member.vmi.as_ref().map(|vmi| vmi.phase);
    let ended = phase == Some(Phase::Succeeded);
    may_be_halted(&member.vm)
        && match &member.vm.run_strategy {
            RunStrategy::Once => ended && member.vmi.as_ref().is_some_and(|vmi| !vmi.deleting),
            RunStrategy::Manual | RunStrategy::RerunOnFailure => phase.is_none() || ended,
            RunStrategy::Always | RunStrategy::Halted | RunStrategy::Other(_) => true,
        }
}

/// Whether a VM is meant not to run, as far as its object alone tells.
pub fn may_be_halted(vm: &VmView) -> bool {
    match &vm.run_strategy {
        RunStrategy::Halted => true,
        RunStrategy::RerunOnFailure if !vm.ran_by_strategy => false,
        RunStrategy::Manual | RunStrategy::RerunOnFailure => {
            !vm.start_requested && matches!(vm.printable_status.as_str(), "" | "Stopped")
        }
        RunStrategy::Once => !vm.start_requested,
        RunStrategy::Always | RunStrategy::Other(_) => false,
    }
}

/// The earlier of the two.
pub(super) fn earliest(known: Option<Timestamp>, at: Timestamp) -> Option<Timestamp> {
    known.into_iter().chain([at]).min()
}
