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

use super::budget::Budget;
use super::membership::{Membership, is_marked};
use super::restarts;
use super::rewrites;
use super::scale_in::Blocked;
use super::scale_out::deadline;
use super::selection::{self, Seed};
use super::stage::{Stage, stage};
use super::status::{State, earliest};
use super::update_strategy::{Strategy, strategy};
use super::{Config, Kind, Member, Snapshot, Target};
use crate::api::conditions::reasons;
use crate::api::pool::BasePolicy;
use crate::api::{annotations, quantity};
use crate::kubevirt::{Phase, Plug};

/// KubeVirt's words for an instance that doesn't get well by being waited for.
const STUCK: [&str; 6] = [
    "CrashLoopBackOff",
    "DataVolumeError",
    "ErrImagePull",
    "ErrorPvcNotFound",
    "ErrorUnschedulable",
    "ImagePullBackOff",
];

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
            let mut round = Round::new(snapshot, target, now);
            round.rollout.restarts =
                restarts::known(&snapshot.memory.restarts, target, &members.live);
            round.spend(members, &candidates);
            round.choose(candidates, policy);
            round.note_restarts();
            round.rollout
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

#[derive(Clone, Copy, Debug)]
struct Candidate<'a> {
    member: &'a Member,
    state: State,
    stage: Stage,
    /// It is available, and its restart was asked for, to whichever revision.
    is_going_down: bool,
    /// Until when it is not written again, if something puts it back.
    put_back: Option<Timestamp>,
}

impl Candidate<'_> {
    /// What keeps it from being updated now, beside its user.
    fn deferred(&self) -> Option<String> {
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
    fn unanswered(&self) -> &'static str {
        if self.member.is_filling {
            "a disk of it is being filled"
        } else {
            "KubeVirt has not answered yet"
        }
    }

    fn is_outdated(&self) -> bool {
        matches!(self.stage, Stage::Outdated { .. })
    }

    fn is_protected(&self) -> bool {
        self.member.vm.is_protected_from("update")
    }
}

/// One plan's choice under `proactive`.
struct Round<'s, 'a> {
    snapshot: &'s Snapshot,
    target: &'s Target,
    now: Timestamp,
    budget: Budget,
    rollout: Rollout<'a>,
}

impl<'s, 'a> Round<'s, 'a> {
    fn new(snapshot: &'s Snapshot, target: &'s Target, now: Timestamp) -> Self {
        let spec = &snapshot.pool.spec;
        let most = quantity::max_unavailable(spec.max_unavailable.as_ref(), spec.replicas());
        Self {
            snapshot,
            target,
            now,
            budget: Budget::of(most),
            rollout: Rollout::default(),
        }
    }

    /// Takes what is down, or about to be, from the budget.
    fn spend(&mut self, members: &Membership<'_>, candidates: &[Candidate<'_>]) {
        let down = candidates.iter().filter(|candidate| {
            candidate.state == State::Unavailable
                || candidate.is_going_down
                || (candidate.state == State::Available
                    && matches!(candidate.stage, Stage::Restarting | Stage::Unseen)
                    && !self.waits_for_an_old_disk(candidate))
        });
        self.budget.spend(down.count() + members.awaited.len());
    }

    fn choose(&mut self, candidates: Vec<Candidate<'a>>, policy: BasePolicy) {
        let mut protected = 0;
        let mut within_budget = Vec::new();
        for candidate in candidates {
            if candidate.stage == Stage::Current {
                continue;
            }
            self.rollout.pending += 1;
            if candidate.is_going_down
                || matches!(candidate.stage, Stage::Restarting | Stage::Unseen)
            {
                self.wait(candidate, candidate.unanswered());
            } else if candidate.is_protected() {
                protected += 1;
            } else if let Some(why) = candidate.deferred() {
                self.wait(candidate, &why);
            } else if self.was_in_vain(candidate) {
                self.wait(
                    candidate,
                    "it was restarted, and its instance is of another revision again: does something put its \
                     template back?",
                );
            } else if candidate.is_outdated() && self.is_being_plugged(candidate) {
                self.wait(candidate, "CPUs or memory are being plugged");
            } else if self.is_due_at_once(candidate) {
                self.take(candidate);
            } else if candidate.state == State::Unavailable {
                // It is in the account itself, so restarting it takes nobody down as long as that is kept.
                if candidate.stage == Stage::RestartDue && self.budget.is_kept() {
                    self.take(candidate);
                } else {
                    self.wait(candidate, "it is starting");
                }
            } else {
                within_budget.push(candidate);
            }
        }
        self.rollout.pending_blocked = protected;
        self.rollout.blocked = protected_ones(protected);
        self.take_in_order(within_budget, policy);
        let failed = &self.snapshot.failed_updates;
        for chosen in [&mut self.rollout.update, &mut self.rollout.restart] {
            chosen.sort_by_key(|m| failed.contains(&m.vm.name));
        }
    }

    fn wait(&mut self, candidate: Candidate<'_>, why: &str) {
        let name = &candidate.member.vm.name;
        self.rollout.waiting.push(format!("{name} ({why})"));
    }

    fn take(&mut self, candidate: Candidate<'a>) {
        if candidate.is_outdated() {
            self.rollout.update.push(candidate.member);
        } else {
            self.rollout.restart.push(candidate.member);
        }
    }

    /// Whether it was restarted for this target already and is left alone for now.
    fn was_in_vain(&mut self, candidate: Candidate<'_>) -> bool {
        let until = Some(candidate)
            .filter(|candidate| candidate.stage == Stage::RestartDue)
            .and_then(|due| restarts::in_vain(&self.rollout.restarts, due.member, self.now))
            .map(|(_, until)| until)
            .filter(|until| *until > self.now);
        self.rollout.next = until.into_iter().fold(self.rollout.next, earliest);
        until.is_some()
    }

    fn note_restarts(&mut self) {
        if self.held(Kind::Restart).is_some() {
            return;
        }
        let known = &mut self.rollout.restarts;
        for member in &self.rollout.restart {
            if let Some((times, _)) = restarts::in_vain(known, member, self.now) {
                let name = &member.vm.name;
                let again = format!("{name} ({times} times before)");
                self.rollout.restarted_again.push(again);
            }
            restarts::note(known, self.target, member, self.now);
        }
    }

    /// Whether what it waits for is a disk of another revision's template, which members keep: the target may be what
    /// is to end that wait for all others, so it takes nothing from the budget.
    fn waits_for_an_old_disk(&self, candidate: &Candidate<'_>) -> bool {
        let made_of = candidate.member.vm.annotations.get(annotations::DISKS_OF);
        candidate.member.is_filling
            && made_of.is_some_and(|made_of| *made_of != self.target.disks_hash)
    }

    /// Whether CPUs or memory are awaited, and not longer than anything else is. Where no workload update method
    /// is configured KubeVirt never plugs them, and says nothing.
    fn is_being_plugged(&mut self, candidate: Candidate<'_>) -> bool {
        let vmi = candidate.member.vmi.as_ref();
        let pending = vmi.filter(|vmi| {
            candidate.state != State::Halted
                && !vmi.phase.is_final()
                && vmi.plug == Some(Plug::Pending)
        });
        let Some(vmi) = pending else {
            return false;
        };
        let seen = self
            .snapshot
            .memory
            .unavailable_since
            .get(&vmi.uid)
            .copied();
        let since = seen.unwrap_or(self.now).min(self.now);
        let known = &mut self.rollout.unavailable_since;
        known.insert(vmi.uid.clone(), since);
        let until = deadline(since, self.snapshot.pool.spec.progress_deadline_seconds());
        if until > self.now {
            self.rollout.next = earliest(self.rollout.next, until);
        }
        until > self.now
    }

    /// Whether nobody loses anything by it.
    fn is_due_at_once(&mut self, candidate: Candidate<'_>) -> bool {
        let reaches_nobody = Stage::Outdated {
            reaches_instance: false,
        };
        match candidate.state {
            State::Halted => true,
            _ if candidate.stage == reaches_nobody => true,
            State::Unavailable => {
                let vmi = candidate.member.vmi.as_ref();
                let never_ran = vmi.is_none_or(|vmi| vmi.phase != Phase::Running);
                (candidate.stage == Stage::RestartDue && never_ran)
                    || self.is_stuck(candidate.member)
            }
            State::Available => false,
        }
    }

    /// Whether a member that is meant to run and is not available won't become so by itself.
    fn is_stuck(&mut self, member: &Member) -> bool {
        let vm = &member.vm;
        let conditions = [
            member.vmi.as_ref().and_then(|vmi| vmi.ready.as_ref()),
            vm.ready.as_ref(),
        ];
        let said = conditions
            .into_iter()
            .flatten()
            .find(|ready| !ready.is_true())
            .and_then(|ready| ready.since)
            .filter(|since| *since <= self.now);
        let since = said.unwrap_or_else(|| {
            let seen = self.snapshot.memory.unavailable_since.get(&vm.uid).copied();
            let since = seen.unwrap_or(self.now).min(self.now);
            let known = &mut self.rollout.unavailable_since;
            known.insert(vm.uid.clone(), since);
            since
        });
        let is_failing = vm.start_failures > 0
            || STUCK.contains(&vm.printable_status.as_str())
            || member.vmi.as_ref().is_some_and(|vmi| vmi.unschedulable);
        let until = deadline(since, self.snapshot.pool.spec.progress_deadline_seconds());
        let is_stuck = is_failing || until <= self.now;
        if !is_stuck {
            self.rollout.next = earliest(self.rollout.next, until);
        }
        is_stuck
    }

    /// Available members, those whose restart is due first, as far as the budget goes. Whose restart failed last
    /// comes after all: it must not take the budget from those with whom it may succeed.
    fn take_in_order(&mut self, candidates: Vec<Candidate<'a>>, policy: BasePolicy) {
        let (outdated, due): (Vec<_>, Vec<_>) =
            candidates.into_iter().partition(Candidate::is_outdated);
        let failed = &self.snapshot.failed_updates;
        let (due_again, due): (Vec<_>, Vec<_>) = due
            .into_iter()
            .partition(|due| failed.contains(&due.member.vm.name));
        let mut left = 0;
        for (kind, group) in [
            (Kind::Restart, due),
            (Kind::Update, outdated),
            (Kind::Restart, due_again),
        ] {
            if let Some(until) = self.held(kind) {
                if !group.is_empty() {
                    self.rollout.next = earliest(self.rollout.next, until);
                }
                continue;
            }
            for (at, candidate) in self.sorted(&group, policy).into_iter().enumerate() {
                if !self.budget.take() {
                    left += group.len() - at;
                    break;
                }
                self.take(candidate);
            }
        }
        if left > 0 && self.rollout.update.is_empty() && self.rollout.restart.is_empty() {
            let down = self.budget.spent();
            let waiting = format!("{left} more (maxUnavailable is spent on {down})");
            self.rollout.waiting.push(waiting);
        }
    }

    /// Until when no available member takes part in deeds of that kind: what is held back by a failure must not
    /// take the budget from what isn't. And nobody is written whom nobody could restart, or a revision that nobody
    /// has tried would spread through the pool.
    fn held(&self, kind: Kind) -> Option<Timestamp> {
        let held = |kind| self.snapshot.held(kind, self.now);
        match kind {
            Kind::Update => held(Kind::Update).max(held(Kind::Restart)),
            _ => held(kind),
        }
    }

    /// First choice first; those with whom it failed last come last, so that they hold up nobody.
    fn sorted(&self, group: &[Candidate<'a>], policy: BasePolicy) -> Vec<Candidate<'a>> {
        let by_uid: BTreeMap<&str, Candidate<'a>> = group
            .iter()
            .map(|one| (one.member.vm.uid.as_str(), *one))
            .collect();
        let mut sorted: Vec<&Member> = group.iter().map(|one| one.member).collect();
        let hash = self.target.stamp_hash.bytes();
        let seed = Seed {
            pool_uid: &self.snapshot.pool.uid,
            // Another order for every target.
            wanted: hash.fold(0, |seed, byte| (seed << 5) ^ u32::from(byte)),
        };
        selection::sort(&mut sorted, policy, seed);
        sorted.sort_by_key(|m| self.snapshot.failed_updates.contains(&m.vm.name));
        let uids = sorted.iter().map(|member| member.vm.uid.as_str());
        uids.filter_map(|uid| by_uid.get(uid).copied()).collect()
    }
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

fn protected_ones(count: usize) -> Option<Blocked> {
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
