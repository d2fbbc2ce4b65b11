//! Whom `proactive` writes and restarts now, within the budget: the columns of [`super::rollout`]'s table.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;

use super::budget::Budget;
use super::candidate::Candidate;
use super::membership::Membership;
use super::restarts;
use super::rollout::{Rollout, protected_ones};
use super::scale_out::deadline;
use super::selection::{self, Seed};
use super::stage::Stage;
use super::status::{State, earliest};
use super::{Kind, Member, Snapshot, Target};
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

/// Chooses among `candidates`, who are of `members.live`.
pub(super) fn choose<'a>(
    snapshot: &Snapshot,
    target: &Target,
    members: &Membership<'a>,
    candidates: Vec<Candidate<'a>>,
    policy: BasePolicy,
    now: Timestamp,
) -> Rollout<'a> {
    let mut round = Round::new(snapshot, target, now);
    round.rollout.restarts = restarts::known(&snapshot.memory.restarts, target, &members.live);
    round.spend(members, &candidates);
    round.choose(candidates, policy);
    round.note_restarts();
    round.rollout
}

/// One plan's choice.
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
