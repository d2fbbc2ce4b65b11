//! A member that was written and is not as written any more is written again, but not for one and the same target
//! within a minute: something else may put it back each time, and then the two would write it without end.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;

use super::scale_out::deadline;
use super::stage::is_at_target;
use super::{Member, Target};

/// Least time between two writes of one member for one target, the first of which has been seen.
const BETWEEN_SECONDS: i64 = 60;

/// When a member was written for a target.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Written {
    /// The target's stamp.
    stamp_hash: String,
    /// When it was chosen for it.
    since: Timestamp,
    /// Whether it has been seen at the target since. Until then it is the same write that is tried again.
    is_seen: bool,
}

/// By UID of the VM.
pub(super) type ByMember = BTreeMap<String, Written>;

/// Those who were written for this target of late, of members that are there.
pub(super) fn known(
    before: &ByMember,
    target: &Target,
    members: &[&Member],
    now: Timestamp,
) -> ByMember {
    let known = members.iter().filter_map(|member| {
        let mut written = before.get(&member.vm.uid)?.clone();
        // A time to come: the clock was set back.
        written.since = written.since.min(now);
        written.is_seen |= is_at_target(member, target);
        let counts = written.stamp_hash == target.stamp_hash && until(&written) > now;
        counts.then(|| (member.vm.uid.clone(), written))
    });
    known.collect()
}

/// Until when the member is not written again.
pub(super) fn held(known: &ByMember, member: &Member) -> Option<Timestamp> {
    let written = known.get(&member.vm.uid)?;
    written.is_seen.then(|| until(written))
}

/// Notes that the member is written.
pub(super) fn note(known: &mut ByMember, target: &Target, member: &Member, now: Timestamp) {
    let written = Written {
        stamp_hash: target.stamp_hash.clone(),
        since: now,
        is_seen: false,
    };
    known.insert(member.vm.uid.clone(), written);
}

fn until(written: &Written) -> Timestamp {
    deadline(written.since, BETWEEN_SECONDS)
}
