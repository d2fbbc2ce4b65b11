//! Which members follow the pool's target revision now, and how. One member goes through up to two deeds: its
//! VM object is written (a merge, `stamp::update`), and then, once KubeVirt's VM controller has compared the
//! running instance with it, the instance is restarted if that is needed. Whether it is can't be known before:
//! KubeVirt applies some changes live, and says `RestartRequired` of the others. It compares `template.spec`
//! only, so labels and annotations of the template that are not ours are compared here.
//!
//! | | halted member | running, available | running, not available |
//! |---|---|---|---|
//! | `unmanaged` | - | - | - |
//! | `opportunistic` | written | written | written |
//! | `proactive` | written at once | written and restarted within the budget ([`super::budget`]) | written and restarted at once if it can't become ready by itself; one that is just starting is left to become ready, and one that ran and is not ready for a moment is restarted only while no more than the budget are down |
//!
//! - Under `proactive` a running member is written only when its restart is due, so that an unplanned reboot
//!   can't pull an unproven revision into the whole pool. What reaches no instance (labels and annotations of
//!   the VM object) is written at once.
//! - A member that is paused, migrated, snapshotted, restored, dumped, being plugged into or on a lost node is
//!   left for later; that is no failure. CPUs and memory that KubeVirt doesn't plug are waited for as long as the
//!   progress deadline says, and not at all where they can't be plugged. One whose user protects it from updates is not chosen, and
//!   `UpdateBlocked` says so.
//! - An instance is restarted for our write only: who edits a VM by hand restarts it by hand. So one that was
//!   started from the target is not restarted, whatever `RestartRequired` says, and A → B → A restarts nothing,
//!   unless KubeVirt has applied B live and can't take it back (sockets can be plugged, not unplugged).
//! - Everybody goes straight to the newest target, wherever they were on the way to another.
//! - While the config is missing, refused or not a revision yet nobody is changed.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::Timestamp;

use super::candidate::Candidate;
use super::membership::{Membership, is_marked};
use super::rewrites;
use super::scale_in::Blocked;
use super::stage::stage;
use super::status::{State, earliest};
use super::update_strategy::{Strategy, strategy};
use super::{Config, Kind, Member, Snapshot, Target};
use super::{proactive, restarts};
use crate::api::annotations;
use crate::api::conditions::reasons;

/// What is done for the target revision, and what is left.
#[derive(Debug, Default)]
pub(super) struct Rollout<'a> {
    /// To be written now.
    pub(super) update: Vec<&'a Member>,
    /// To be restarted now.
    pub(super) restart: Vec<&'a Member>,
    /// Whether a write leaves running members' run strategy alone.
    pub(super) keeps_run_strategy: bool,
    /// How many members are not there yet, those in the following ones included.
    pub(super) pending: usize,
    /// Those who can't be updated as they are now, with what is waited for.
    pub(super) waiting: Vec<String>,
    /// Members who may not be updated at all, and why.
    pub(super) blocked: Option<Blocked>,
    /// How many of `pending` are blocked.
    pub(super) pending_blocked: usize,
    /// When a member that is waited for counts as one that doesn't get ready by itself.
    pub(super) next: Option<Timestamp>,
    /// For [`super::Memory::unavailable_since`].
    pub(super) unavailable_since: BTreeMap<String, Timestamp>,
    /// For [`super::Memory::restarts`].
    pub(super) restarts: restarts::ByMember,
    /// For [`super::Memory::written`].
    pub(super) written: rewrites::ByMember,
    /// Names of those who are restarted now, and were before for this very target.
    pub(super) restarted_again: Vec<String>,
}

/// Chooses who is written and who is restarted. `states` are those of `members.live`; those in `leaving` are
/// to be removed by this very plan.
pub(super) fn choose<'a>(
    snapshot: &Snapshot,
    members: &Membership<'a>,
    states: &[State],
    leaving: &[&Member],
    now: Timestamp,
) -> Rollout<'a> {
    let Some(target) = target(snapshot) else {
        return Rollout::default();
    };
    let leaving: BTreeSet<&str> = leaving.iter().map(|gone| gone.vm.uid.as_str()).collect();
    let is_leaving = |member: &Member| leaving.contains(member.vm.uid.as_str());
    let live = &members.live;
    let mut written = rewrites::known(&snapshot.memory.written, target, live, now);
    let candidates: Vec<Candidate<'a>> = members
        .live
        .iter()
        .zip(states)
        .filter(|(member, _)| member.ordinal.is_some())
        .filter(|(member, _)| is_marked(member) && !is_leaving(member))
        .map(|(member, state)| Candidate {
            member,
            state: *state,
            stage: stage(snapshot, target, member, *state),
            is_going_down: *state == State::Available && is_asked_to_restart(snapshot, member),
            put_back: rewrites::held(&written, member),
        })
        .collect();
    let outdated = candidates.iter().filter(|one| one.is_outdated());
    let again = outdated.filter_map(|one| one.put_back).min();
    let mut rollout = match strategy(snapshot.pool.spec.update_strategy.as_ref()) {
        Strategy::Unmanaged => Rollout::default(),
        Strategy::Unsupported(what) => unsupported(&candidates, what),
        Strategy::Opportunistic => opportunistic(&candidates),
        Strategy::Proactive(policy) => {
            proactive::choose(snapshot, target, members, candidates, policy, now)
        }
    };
    rollout.next = again.into_iter().fold(rollout.next, earliest);
    if snapshot.held(Kind::Update, now).is_none() {
        for member in &rollout.update {
            rewrites::note(&mut written, target, member, now);
        }
    }
    rollout.written = written;
    rollout
}

/// The revision that existing members are to follow.
fn target(snapshot: &Snapshot) -> Option<&Target> {
    let is_pinned = snapshot.pool.spec.config.revision.is_some();
    snapshot
        .target
        .as_ref()
        .filter(|_| is_pinned || snapshot.config == Config::Ready)
        .filter(|target| snapshot.cdi_installed || !target.has_disk_templates)
}

/// Whether its instance is to be replaced, and only that it ends hasn't been seen yet.
fn is_asked_to_restart(snapshot: &Snapshot, member: &Member) -> bool {
    let vmi = member.vmi.as_ref();
    member.vm.has_requests || vmi.is_some_and(|vmi| snapshot.expected_restarts.contains(&vmi.uid))
}

fn opportunistic<'a>(candidates: &[Candidate<'a>]) -> Rollout<'a> {
    let mut rollout = Rollout {
        keeps_run_strategy: true,
        ..Rollout::default()
    };
    for candidate in candidates.iter().filter(|one| one.is_outdated()) {
        rollout.pending += 1;
        if candidate.is_protected() {
            rollout.pending_blocked += 1;
        } else if let Some(why) = candidate.deferred() {
            let name = &candidate.member.vm.name;
            rollout.waiting.push(format!("{name} ({why})"));
        } else {
            rollout.update.push(candidate.member);
        }
    }
    rollout.blocked = protected_ones(rollout.pending_blocked);
    rollout
}

pub(super) fn protected_ones(count: usize) -> Option<Blocked> {
    (count > 0).then(|| Blocked {
        reason: reasons::TOO_FEW_CANDIDATES,
        message: format!(
            "{count} not at the target revision can't be updated: they are protected by the annotation {}",
            annotations::PROTECTED
        ),
    })
}

fn unsupported<'a>(candidates: &[Candidate<'a>], what: &str) -> Rollout<'a> {
    let outdated = candidates.iter().filter(|one| one.is_outdated()).count();
    Rollout {
        pending: outdated,
        pending_blocked: outdated,
        blocked: (outdated > 0).then(|| Blocked {
            reason: reasons::NOT_SUPPORTED,
            message: format!(
                "{outdated} not at the target revision, and none is updated: {what} is not supported yet"
            ),
        }),
        ..Rollout::default()
    }
}
