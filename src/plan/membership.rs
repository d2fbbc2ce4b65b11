//! Who is in the pool: told by the controller reference alone, and by what was answered but is not seen yet.
//! Labels and names never make a member. Everything that counts or chooses starts from here, so that a
//! stranger or a VM that is going away can reach no decision.

use std::collections::BTreeSet;

use super::{Member, Snapshot, intents};
use crate::api::annotations;

/// The members of one pool at one moment.
#[derive(Debug)]
pub(super) struct Membership<'a> {
    /// Members that are there to stay.
    pub(super) live: Vec<&'a Member>,
    /// Members that are going away: being deleted, or with a delete that was answered. They count neither
    /// as surplus nor as there.
    pub(super) leaving: Vec<&'a Member>,
    /// Members that were asked to leave the pool and work on alone. They count as gone, but hold their number.
    pub(super) detaching: Vec<&'a Member>,
    /// Ordinals of VMs that were created and that the cache doesn't show yet. They count as live.
    pub(super) awaited: BTreeSet<u32>,
}

impl<'a> Membership<'a> {
    pub(super) fn of(snapshot: &'a Snapshot) -> Self {
        let gone: BTreeSet<&str> = snapshot
            .expected_deletes
            .iter()
            .map(String::as_str)
            .collect();
        let (leaving, live): (Vec<_>, Vec<_>) = snapshot
            .members
            .iter()
            .filter(|member| member.vm.is_member_of(&snapshot.pool.uid))
            .partition(|member| {
                member.vm.deleting_since.is_some() || gone.contains(member.vm.uid.as_str())
            });
        let asked = intents::leaving(snapshot);
        let (detaching, live): (Vec<_>, Vec<_>) = live
            .into_iter()
            .partition(|member| asked.contains(member.vm.uid.as_str()));
        let shown: BTreeSet<u32> = live
            .iter()
            .chain(&detaching)
            .filter_map(|member| member.ordinal)
            .collect();
        let awaited = snapshot
            .expected_creates
            .iter()
            .copied()
            .filter(|ordinal| !shown.contains(ordinal))
            .collect();
        Self {
            live,
            leaving,
            detaching,
            awaited,
        }
    }

    /// How many members there are, those that the cache doesn't show yet included.
    pub(super) fn count(&self) -> usize {
        self.live.len() + self.awaited.len()
    }

    /// How many are missing to `wanted`. Never positive together with [`Self::surplus`].
    pub(super) fn missing(&self, wanted: u32) -> usize {
        (wanted as usize).saturating_sub(self.count())
    }

    /// How many there are beyond `wanted`. A VM that got its controller reference from somebody else's hand, and
    /// so lacks our mark, fills a place and is no surplus: a forged reference costs no VM, nor a member its.
    pub(super) fn surplus(&self, wanted: u32) -> usize {
        let marked = self.live.iter().filter(|member| is_marked(member)).count();
        (marked + self.awaited.len()).saturating_sub(wanted as usize)
    }

    /// Ordinals that members hold.
    pub(super) fn held(&self) -> BTreeSet<u32> {
        self.live
            .iter()
            .chain(&self.detaching)
            .filter_map(|member| member.ordinal)
            .chain(self.awaited.iter().copied())
            .collect()
    }
}

/// Whether a member carries the mark that every VM has which this program made or took in.
pub(super) fn is_marked(member: &Member) -> bool {
    let mark = member.vm.annotations.get(annotations::MEMBER_OF);
    let owner = member.vm.owner.as_ref();
    mark.is_some() && mark == owner.map(|owner| &owner.uid)
}
