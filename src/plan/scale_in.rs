//! Which members go when there are more than wanted. Members that are going away anyway are no surplus, and
//! members whose user protects them are no candidates; if that leaves too few, what can be done is done and
//! the rest is said in `ScaleInBlocked`.
//!
//! A strategy that this version can't carry out removes nobody: admission refuses it, but a stored pool may
//! have it, and deleting a VM whose disks its user asked to keep can't be taken back.

use std::collections::BTreeSet;

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::membership::{Membership, is_marked};
use super::selection::{self, Seed};
use super::{Member, Snapshot};
use crate::api::annotations;
use crate::api::conditions::reasons;
use crate::api::pool::{BasePolicy, ScaleInStrategy, StatePreservation};

/// How long a surplus waits for the record of a detach that was announced, before the status says so. That write
/// is also the end of it: the record is made only of the pool that was judged. Longer than any request takes
/// that is still at work.
const PATIENCE: SignedDuration = SignedDuration::from_secs(20);

/// What the pool's scale-in strategy amounts to.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Strategy {
    /// Delete, in this order.
    Proactive(BasePolicy),
    /// Delete nobody; a surplus is a normal state.
    Unmanaged,
    /// Delete nobody, since this version doesn't know how.
    Unsupported(&'static str),
}

/// Members that go, and what stands in the way of the others.
#[derive(Debug, Default)]
pub(super) struct ScaleIn<'a> {
    /// Members that are to go, first choice first.
    pub(super) remove: Vec<&'a Member>,
    /// Too few could be chosen.
    pub(super) blocked: Option<Blocked>,
    /// Since when members are kept that a request has announced to leave.
    pub(super) held_back_since: Option<Timestamp>,
}

impl ScaleIn<'_> {
    fn blocked(reason: &'static str, message: String) -> Self {
        Self {
            blocked: Some(Blocked { reason, message }),
            ..Self::default()
        }
    }

    /// When it is to be said that members are kept; also a time that has passed.
    pub(super) fn next(&self) -> Option<Timestamp> {
        self.held_back_since?.checked_add(PATIENCE).ok()
    }
}

/// Why there are more members than wanted and will be.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Blocked {
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// How many members are to go. None under `unmanaged`, whatever there is.
pub(super) fn surplus(snapshot: &Snapshot, members: &Membership<'_>) -> usize {
    match strategy(snapshot.pool.spec.scale_in_strategy.as_ref()) {
        Strategy::Unmanaged => 0,
        Strategy::Proactive(_) | Strategy::Unsupported(_) => {
            members.surplus(snapshot.pool.spec.replicas())
        }
    }
}

/// Chooses who goes. While members were created that the cache doesn't show yet nobody is chosen: the order
/// would be one among the others only.
pub(super) fn choose<'a>(
    snapshot: &Snapshot,
    members: &Membership<'a>,
    now: Timestamp,
) -> ScaleIn<'a> {
    let surplus = surplus(snapshot, members);
    if let Some(why) = &snapshot.intents.unclear {
        let message = match surplus {
            0 => format!("none would be removed: {why}"),
            _ => format!("{surplus} more than wanted, and none is removed: {why}"),
        };
        return ScaleIn::blocked(reasons::INTENT_UNCLEAR, message);
    }
    if surplus == 0 || !members.awaited.is_empty() {
        return ScaleIn::default();
    }
    match strategy(snapshot.pool.spec.scale_in_strategy.as_ref()) {
        Strategy::Unmanaged => ScaleIn::default(),
        Strategy::Unsupported(what) => {
            let message = format!(
                "{surplus} more than wanted, and none is removed: {what} is not supported yet"
            );
            ScaleIn::blocked(reasons::NOT_SUPPORTED, message)
        }
        Strategy::Proactive(policy) => {
            let announced = announced(snapshot, members);
            // They may be gone in a moment, and then nobody goes in their place.
            let sure = surplus.saturating_sub(announced.len());
            let chosen = choose_proactive(snapshot, members, policy, sure);
            hold_back(chosen, snapshot, &announced, now)
        }
    }
}

/// Members that are announced to leave, of those that could be removed.
fn announced<'a>(snapshot: &Snapshot, members: &Membership<'a>) -> Vec<&'a Member> {
    let live = members.live.iter().copied();
    live.filter(|member| is_marked(member) && is_announced(snapshot, member))
        .collect()
}

fn is_announced(snapshot: &Snapshot, member: &Member) -> bool {
    snapshot.intents.announced.contains_key(&member.vm.uid)
}

/// Keeps in mind since when `announced` are kept, and says so when that is long ago.
fn hold_back<'a>(
    mut chosen: ScaleIn<'a>,
    snapshot: &Snapshot,
    announced: &[&Member],
    now: Timestamp,
) -> ScaleIn<'a> {
    let Some(first) = announced.first() else {
        return chosen;
    };
    let since = snapshot.memory.held_back_since.unwrap_or(now).min(now);
    chosen.held_back_since = Some(since);
    if now.duration_since(since) >= PATIENCE {
        let version = &snapshot.intents.announced[&first.vm.uid];
        // The version, so that this is said anew, and so written, of each that was given up.
        let message = format!(
            "{} to be detached, by a request at version {version} of the pool that was not recorded: kept until now",
            first.vm.name
        );
        let (reason, message) = match chosen.blocked.take() {
            Some(other) => (other.reason, format!("{}; {message}", other.message)),
            None => (reasons::DETACH_UNRECORDED, message),
        };
        chosen.blocked = Some(Blocked { reason, message });
    }
    chosen
}

/// UIDs of members that go because of us: chosen now, or chosen before and still going. Others that go were
/// deleted by somebody.
pub(super) fn removed(
    snapshot: &Snapshot,
    members: &Membership<'_>,
    chosen: &ScaleIn<'_>,
) -> BTreeSet<String> {
    let before = &snapshot.memory.removed;
    members
        .leaving
        .iter()
        .map(|member| &member.vm.uid)
        .filter(|uid| before.contains(*uid) || snapshot.expected_deletes.contains(uid))
        .chain(chosen.remove.iter().map(|member| &member.vm.uid))
        .cloned()
        .collect()
}

fn choose_proactive<'a>(
    snapshot: &Snapshot,
    members: &Membership<'a>,
    policy: BasePolicy,
    surplus: usize,
) -> ScaleIn<'a> {
    let mut candidates: Vec<&Member> = members
        .live
        .iter()
        .copied()
        .filter(|member| is_marked(member) && !member.vm.is_protected_from("scale-in"))
        .filter(|member| !is_announced(snapshot, member))
        .collect();
    let short = surplus.saturating_sub(candidates.len());
    let seed = Seed {
        pool_uid: &snapshot.pool.uid,
        wanted: snapshot.pool.spec.replicas(),
    };
    selection::sort(&mut candidates, policy, seed);
    candidates.truncate(surplus);
    ScaleIn {
        remove: candidates,
        blocked: (short > 0).then(|| Blocked {
            reason: reasons::TOO_FEW_CANDIDATES,
            message: format!(
                "{short} more than wanted can't be removed: the members left are protected by the annotation {}",
                annotations::PROTECTED
            ),
        }),
        held_back_since: None,
    }
}

fn strategy(spec: Option<&ScaleInStrategy>) -> Strategy {
    let Some(spec) = spec else {
        return Strategy::Proactive(BasePolicy::default());
    };
    let proactive = match (&spec.proactive, &spec.opportunistic, &spec.unmanaged) {
        (None, None, None) => return Strategy::Proactive(BasePolicy::default()),
        (Some(proactive), None, None) => proactive,
        (None, Some(_), None) => return Strategy::Unsupported("scaleInStrategy.opportunistic"),
        (None, None, Some(_)) => return Strategy::Unmanaged,
        _ => return Strategy::Unsupported("more than one scaleInStrategy"),
    };
    match proactive.state_preservation.unwrap_or_default() {
        StatePreservation::Disabled => {}
        StatePreservation::Offline => return Strategy::Unsupported("statePreservation Offline"),
        StatePreservation::Online => return Strategy::Unsupported("statePreservation Online"),
    }
    match &proactive.selection_policy {
        Some(policy) if !policy.ordered_policies.is_empty() => {
            Strategy::Unsupported("selectionPolicy.orderedPolicies")
        }
        Some(policy) => Strategy::Proactive(policy.base_policy.unwrap_or_default()),
        None => Strategy::Proactive(BasePolicy::default()),
    }
}
