//! In which order members are chosen. Every order is total (the name comes last), so that two reconciles and
//! a preview agree. What `orderedPolicies` add is not built yet; [`super::scale_in`] removes nobody then.

use std::cmp::Reverse;

use sha2::{Digest as _, Sha256};

use super::Member;
use crate::api::pool::BasePolicy;

/// What makes the shuffle of [`BasePolicy::Random`] the same each time the same decision is taken, and
/// another one for another pool or another number of replicas.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seed<'a> {
    pub(super) pool_uid: &'a str,
    pub(super) wanted: u32,
}

/// Sorts `members`, first choice first. Members without a number come last where numbers decide.
pub(super) fn sort(members: &mut [&Member], policy: BasePolicy, seed: Seed<'_>) {
    let number = |member: &Member| member.ordinal.unwrap_or(u32::MAX);
    let name = |member: &Member| member.vm.name.clone();
    match policy {
        BasePolicy::Random => {
            members.sort_by_cached_key(|m| (disturbance(m), shuffled(m, seed), name(m)));
        }
        BasePolicy::Oldest => {
            members.sort_by_cached_key(|m| (m.vm.created_at, number(m), name(m)));
        }
        // Creation times are whole seconds, and numbers are given out upwards: of two VMs of one second,
        // the higher number is the newer one.
        BasePolicy::Newest => {
            members.sort_by_cached_key(|m| (Reverse((m.vm.created_at, m.ordinal)), name(m)));
        }
        BasePolicy::LowestOrdinal => members.sort_by_cached_key(|m| (number(m), name(m))),
        BasePolicy::HighestOrdinal => {
            members.sort_by_cached_key(|m| (Reverse(m.ordinal), name(m)));
        }
    }
}

/// How much a member's user would notice: nothing runs, something runs that is not Ready, it is Ready.
fn disturbance(member: &Member) -> u8 {
    match &member.vmi {
        None => 0,
        Some(vmi) if vmi.phase.is_final() => 0,
        Some(vmi) => 1 + u8::from(vmi.is_ready()),
    }
}

fn shuffled(member: &Member, seed: Seed<'_>) -> [u8; 32] {
    Sha256::new()
        .chain_update(seed.pool_uid)
        .chain_update(seed.wanted.to_be_bytes())
        .chain_update(&member.vm.uid)
        .finalize()
        .into()
}
