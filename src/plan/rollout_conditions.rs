//! What conditions say of a rollout: who is waited for, what is blocked, who keeps other disks.

use std::collections::BTreeSet;

use super::conditions::{Findings, Verdict, listed};
use super::membership::Membership;
use super::scale_in::Blocked;
use super::{Member, Note, Snapshot};
use crate::api::annotations;
use crate::api::conditions::reasons;

/// What is under way, or has been for too long.
pub(super) fn waiting(findings: &Findings<'_>, reason: &'static str, message: String) -> Verdict {
    if !findings.is_stalled {
        return Verdict::new("True", reason, message);
    }
    let seconds = findings.snapshot.pool.spec.progress_deadline_seconds();
    let message = format!("nothing became updated or available for {seconds} s: {message}");
    Verdict::new("False", reasons::DEADLINE_EXCEEDED, message)
}

pub(super) fn rolling_out(findings: &Findings<'_>) -> String {
    let (counts, rollout) = (findings.counts, findings.rollout);
    let so_far = format!(
        "{} of {} updated, {} to go, {} not available",
        counts.updated_replicas, counts.replicas, rollout.pending, counts.unavailable_replicas
    );
    if rollout.waiting.is_empty() {
        return so_far;
    }
    format!("{so_far}; waiting for {}", listed(&rollout.waiting))
}

/// Of whom it is told that a restart has not helped.
pub(super) fn restarted_again(findings: &Findings<'_>) -> Option<Note> {
    let again = &findings.rollout.restarted_again;
    (!again.is_empty()).then(|| Note {
        warning: true,
        reason: reasons::RESTARTED_AGAIN,
        message: format!(
            "restarted for one and the same revision again, since their instances are of another one again: {}; if \
             something puts the template of these VMs back, it has to stop",
            listed(again)
        ),
    })
}

pub(super) fn disks_outdated(findings: &Findings<'_>) -> Option<Verdict> {
    let names = with_other_disks(findings.snapshot, findings.members);
    if names.is_empty() {
        return None;
    }
    let count = names.len();
    let names: Vec<String> = names.into_iter().collect();
    let message = format!(
        "{count} keep the disks that they have, which are not of the config's disk templates: {}",
        listed(&names)
    );
    Some(Verdict::new("True", reasons::DISKS_KEPT, message))
}

pub(super) fn blocked(why: Option<&Blocked>) -> Option<Verdict> {
    why.map(|why| Verdict::new("True", why.reason, why.message.clone()))
}

/// Names of live members that keep disks which are not of the target's templates.
fn with_other_disks(snapshot: &Snapshot, members: &Membership<'_>) -> BTreeSet<String> {
    let Some(target) = &snapshot.target else {
        return BTreeSet::new();
    };
    let keeps = |member: &&&Member| {
        let made_of = member.vm.annotations.get(annotations::DISKS_OF);
        made_of.is_some_and(|made_of| *made_of != target.disks_hash)
    };
    let names = members.live.iter().filter(keeps);
    names.map(|member| member.vm.name.clone()).collect()
}
