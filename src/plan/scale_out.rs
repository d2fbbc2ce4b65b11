//! Which ordinals are filled when members are missing: those whose VM somebody deleted, so that it comes back
//! under its number, then the lowest that no member holds. A number that something else has is skipped; one
//! that is only going away is chosen and waited for, but not for ever: past its patience the next free number
//! is used instead, and a stuck finalizer costs no replica.
//!
//! A member that *we* removed leaves no such claim: who scales in and out again gets the numbers that are free
//! at once.
//!
//! The clock of a number starts when it is first *seen* going away, whether or not it is needed by then: who
//! scales out over a VM that has been stuck for an hour doesn't wait again. It is our own clock, not the
//! `deletionTimestamp`, so that a skewed clock can't cut the wait short.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::membership::Membership;
use super::{Member, Occupied, Snapshot};
use crate::stamp::names::MAX_ORDINAL;

/// KubeVirt's grace period for a guest whose spec names none.
const DEFAULT_GRACE_SECONDS: i64 = 30;
/// What is added to the guest's grace period: time for launcher pod, finalizers and garbage collection.
const EXTRA_PATIENCE_SECONDS: i64 = 120;

/// How long it is waited for a VM that is going away, or a disk of it, before another number is used: seconds,
/// given the VM's `terminationGracePeriodSeconds`.
pub fn patience_seconds(grace_period_seconds: Option<i64>) -> i64 {
    let grace = grace_period_seconds.unwrap_or(DEFAULT_GRACE_SECONDS);
    grace.max(0).saturating_add(EXTRA_PATIENCE_SECONDS)
}

/// Something at an ordinal that is going away.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Departure {
    /// Such as `VirtualMachine web-3`.
    pub(super) what: String,
    patience_seconds: i64,
}

/// Ordinals for the missing members.
#[derive(Debug, Default)]
pub(super) struct ScaleOut {
    /// To be created now, lowest first.
    pub(super) create: Vec<u32>,
    /// Chosen, and not free yet: what is going away, and until when that is waited for.
    pub(super) waited: BTreeMap<u32, (String, Timestamp)>,
    /// Skipped, since something else has it.
    pub(super) taken: BTreeMap<u32, String>,
    /// Those whose VM somebody else deleted, and which are to be filled first.
    pub(super) vacated: BTreeSet<u32>,
}

/// Everything that is going away at some ordinal of the pool's, its own members first: a disk whose VM is
/// going away goes with it.
pub(super) fn departures(
    snapshot: &Snapshot,
    members: &Membership<'_>,
) -> BTreeMap<u32, Departure> {
    let occupied = snapshot
        .occupied
        .iter()
        .filter_map(|(ordinal, by)| match by {
            Occupied::GoingAway {
                what,
                patience_seconds,
            } => Some((
                *ordinal,
                Departure {
                    what: what.clone(),
                    patience_seconds: *patience_seconds,
                },
            )),
            Occupied::Taken { .. } => None,
        });
    let leaving = members
        .leaving
        .iter()
        .filter_map(|member| Some((member.ordinal?, departure_of(member))));
    let held = members.held();
    occupied
        .chain(leaving)
        .filter(|(ordinal, _)| !held.contains(ordinal))
        .collect()
}

fn departure_of(member: &Member) -> Departure {
    Departure {
        what: format!("VirtualMachine {}", member.vm.name),
        patience_seconds: patience_seconds(member.vm.grace_period_seconds),
    }
}

/// Since when each of them has been seen going away. A time to come (the clock was set back) counts as now.
/// While nobody is missing nobody looks whether a number is free ([`Snapshot::occupied`]): what is known of
/// numbers that no member holds is kept until somebody does.
pub(super) fn seen_since(
    snapshot: &Snapshot,
    members: &Membership<'_>,
    departures: &BTreeMap<u32, Departure>,
    now: Timestamp,
) -> BTreeMap<u32, Timestamp> {
    let mut since = snapshot.waiting.clone();
    if members.missing(snapshot.pool.spec.replicas()) > 0 {
        since.retain(|ordinal, _| departures.contains_key(ordinal));
    } else {
        let held = members.held();
        since.retain(|ordinal, _| !held.contains(ordinal));
    }
    for ordinal in departures.keys() {
        let seen = since.entry(*ordinal).or_insert(now);
        *seen = now.min(*seen);
    }
    since
}

/// Chooses an ordinal for each of `missing` members, as far as there are any.
pub(super) fn choose(
    snapshot: &Snapshot,
    members: &Membership<'_>,
    departures: &BTreeMap<u32, Departure>,
    since: &BTreeMap<u32, Timestamp>,
    vacated: &BTreeSet<u32>,
    now: Timestamp,
) -> ScaleOut {
    let missing = members.missing(snapshot.pool.spec.replicas());
    let held: BTreeSet<u32> = members.held();
    let first = snapshot.pool.spec.ordinal_start();
    let lowest = (first..=MAX_ORDINAL).filter(|ordinal| !vacated.contains(ordinal));
    let mut out = ScaleOut::default();
    for ordinal in vacated.iter().copied().chain(lowest) {
        if out.create.len() + out.waited.len() >= missing {
            break;
        }
        if held.contains(&ordinal) {
            continue;
        }
        if let Some(departure) = departures.get(&ordinal) {
            let since = since.get(&ordinal).copied().unwrap_or(now);
            let until = deadline(since, departure.patience_seconds);
            if now < until {
                out.waited.insert(ordinal, (departure.what.clone(), until));
            }
        } else if let Some(Occupied::Taken { by }) = snapshot.occupied.get(&ordinal) {
            out.taken.insert(ordinal, by.clone());
        } else {
            out.create.push(ordinal);
        }
    }
    out.create.sort_unstable();
    let chosen = out.create.iter().chain(out.waited.keys());
    out.vacated = chosen.filter(|n| vacated.contains(n)).copied().collect();
    out
}

/// Ordinals of members that are going away without us, and those of earlier passes that are not filled yet:
/// when the last trace of a VM is gone, nothing else tells which one it was. Only numbers that the pool may
/// use: it can have been given another first ordinal.
pub(super) fn vacated(snapshot: &Snapshot, members: &Membership<'_>) -> BTreeSet<u32> {
    let ours = |uid: &String| {
        snapshot.memory.removed.contains(uid) || snapshot.expected_deletes.contains(uid)
    };
    let first = snapshot.pool.spec.ordinal_start();
    let held = members.held();
    members
        .leaving
        .iter()
        .filter(|member| !ours(&member.vm.uid))
        .filter_map(|member| member.ordinal)
        .chain(snapshot.memory.vacated.iter().copied())
        .filter(|ordinal| (first..=MAX_ORDINAL).contains(ordinal) && !held.contains(ordinal))
        .collect()
}

/// `since` and so many seconds, or the end of time: a grace period can be any number.
pub(super) fn deadline(since: Timestamp, seconds: i64) -> Timestamp {
    since
        .checked_add(SignedDuration::from_secs(seconds))
        .unwrap_or(Timestamp::MAX)
}
