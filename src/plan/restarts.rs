//! How often a member was restarted for one and the same target. Once is enough, unless something puts its template
//! back each time (a tool that applies its own copy of the VM), or starts its instance from another one: then each
//! restart leads to the next one, and the guest never gets to work. So after each that didn't help the next one
//! waits twice as long. It lives in memory: a new leader restarts once more.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;

use super::scale_out::deadline;
use super::{Member, Target};

/// How long it is waited after the first restart that didn't help. Long enough for KubeVirt to have caught up, had it
/// started the instance from a VM that it had seen before our write.
const FIRST_WAIT_SECONDS: i64 = 60;
/// How long at most.
const LONGEST_WAIT_SECONDS: i64 = 3600;

/// How often one member was restarted for a target.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Restarts {
    /// The target's stamp.
    stamp_hash: String,
    /// How many of its instances were.
    instances: u32,
    /// UID of the last one.
    last: String,
    /// When that was chosen.
    since: Timestamp,
}

/// By UID of the VM.
pub(super) type ByMember = BTreeMap<String, Restarts>;

/// Those who were restarted for this target, of members that are there and whose instance isn't of it.
pub(super) fn known(before: &ByMember, target: &Target, members: &[&Member]) -> ByMember {
    let known = members.iter().filter_map(|member| {
        let restarts = before.get(&member.vm.uid)?;
        let has_helped = member.vmi.as_ref().is_some_and(|vmi| {
            !vmi.deleting && vmi.stamp_hash.as_ref() == Some(&target.stamp_hash)
        });
        let is_of_target = restarts.stamp_hash == target.stamp_hash;
        (is_of_target && !has_helped).then(|| (member.vm.uid.clone(), restarts.clone()))
    });
    known.collect()
}

/// How often the member was restarted to no avail, and until when it is left alone.
pub(super) fn in_vain(
    known: &ByMember,
    member: &Member,
    now: Timestamp,
) -> Option<(u32, Timestamp)> {
    let restarts = known.get(&member.vm.uid)?;
    if is_last(restarts, member) {
        return None;
    }
    let doubled = restarts.instances.saturating_sub(1).min(16);
    let wait = (FIRST_WAIT_SECONDS << doubled).min(LONGEST_WAIT_SECONDS);
    // A time to come: the clock was set back.
    Some((restarts.instances, deadline(restarts.since.min(now), wait)))
}

/// Notes that the member is restarted. One that is asked for again, since it has not come about, counts once.
pub(super) fn note(known: &mut ByMember, target: &Target, member: &Member, now: Timestamp) {
    let before = known.get(&member.vm.uid);
    if before.is_some_and(|restarts| is_last(restarts, member)) {
        return;
    }
    let restarts = Restarts {
        stamp_hash: target.stamp_hash.clone(),
        instances: before.map_or(0, |restarts| restarts.instances) + 1,
        last: instance(member).to_owned(),
        since: now,
    };
    known.insert(member.vm.uid.clone(), restarts);
}

fn is_last(restarts: &Restarts, member: &Member) -> bool {
    restarts.last == instance(member)
}

fn instance(member: &Member) -> &str {
    member.vmi.as_ref().map_or("", |vmi| vmi.uid.as_str())
}
