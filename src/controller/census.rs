//! Who is a member, from the API server, before members are deleted: pool and VMs come by two watches, and the one
//! of VMs may be behind. To a cache that still shows a member that has left, or is going, by somebody else's deed
//! (another replica's that led until now, a user's own), the pool has one too many, and another member would be
//! deleted for it: no precondition on that one tells. So members are counted once per generation of the pool
//! and per process, and as long as the cache is found behind. What this process does itself it remembers.

use std::collections::BTreeSet;

use super::calls::CallFailure;
use super::pool_task::PoolTask;
use crate::api::labels;
use crate::cache::Identity;
use crate::clock;
use crate::kubevirt::{self, Owner};
use crate::plan::Snapshot;

impl PoolTask {
    /// Whether the members of `snapshot`, from which deletes are planned, are there. If not, it is known by the next
    /// plan.
    pub(super) async fn are_there(
        &mut self,
        pool: &Identity,
        snapshot: &Snapshot,
    ) -> Result<bool, CallFailure> {
        if self.counted == Some(pool.generation) {
            return Ok(true);
        }
        let there = self.listed(pool).await?;
        let going = self.remembered.expectations.deletes();
        let mut behind = self.shared.caches.members_of(&pool.uid);
        behind.retain(|vm| {
            vm.namespace == pool.namespace
                && vm.deleting_since.is_none()
                && !there.contains(&vm.uid)
                && !going.contains(&vm.uid)
        });
        let mut are_there = true;
        let mut is_behind = false;
        for vm in behind {
            let live = self.shared.calls.vm(&pool.namespace, &vm.name).await?;
            let is_member = live.as_ref().is_some_and(|live| {
                live.uid == vm.uid && live.is_member_of(&pool.uid) && live.deleting_since.is_none()
            });
            if is_member {
                // It has lost the label that it was looked for by.
                continue;
            }
            is_behind = true;
            let members = &snapshot.members;
            are_there &= !members
                .iter()
                .any(|member| member.vm.uid == vm.uid && member.vm.deleting_since.is_none());
            let (caches, now) = (&self.shared.caches, clock::now());
            let known = &mut self.remembered.live;
            known.keep(caches, &pool.namespace, &vm.name, live, now);
        }
        if !is_behind {
            self.counted = Some(pool.generation);
        }
        Ok(are_there)
    }

    /// UIDs of the VMs that are the pool's and stay.
    async fn listed(&self, pool: &Identity) -> Result<BTreeSet<String>, CallFailure> {
        let selector = format!("{}={}", labels::POOL_UID, pool.uid);
        let resource = kubevirt::virtual_machine();
        let calls = &self.shared.calls;
        let found = calls.list(&resource, &pool.namespace, &selector).await?;
        let is_member = |owner: Owner| owner.is_pool() && owner.uid == pool.uid;
        let there = found
            .into_iter()
            .map(|vm| vm.metadata)
            .filter(|meta| meta.deletion_timestamp.is_none())
            .filter(|meta| Owner::controller_of(meta).is_some_and(is_member))
            .filter_map(|meta| meta.uid);
        Ok(there.collect())
    }
}
