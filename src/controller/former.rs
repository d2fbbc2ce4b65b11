//! Looks after the VMs whose pool is gone and that were left behind, by `--cascade=orphan` or a hand-edited
//! owner: they keep working, without a trace of ours that would hinder them. Those whose pool is there are
//! the pool's task.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use tokio::time::Instant;

use super::Shared;
use super::calls::CallFailure;
use super::metrics::{Deed, Task};
use super::release::release;
use super::snapshot::is_former;
use super::supervise::{Actor, Next, earliest};
use super::window::Backoff;
use crate::api::annotations;
use crate::cache::Caches;
use crate::kubevirt::VmView;

/// Between two passes: an orphaned pool of 1000 comes as 1000 changes.
const PAUSE: Duration = Duration::from_millis(200);
/// Releases under way at once. Each is a few calls, and nobody waits for them.
const AT_ONCE: usize = 8;

/// The task.
pub(super) struct FormerTask {
    shared: Arc<Shared>,
    backoff: Backoff,
}

impl FormerTask {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            backoff: Backoff::default(),
        }
    }
}

/// VMs that carry the mark of a pool that is not there.
fn left_behind(caches: &Caches) -> Vec<Arc<VmView>> {
    let pools = caches.pools.all();
    let pools: BTreeSet<&str> = pools.iter().map(|pool| pool.id.uid.as_str()).collect();
    let mut vms = caches.vms.all();
    vms.retain(|vm| {
        vm.annotations
            .get(annotations::MEMBER_OF)
            .is_some_and(|uid| !pools.contains(uid.as_str()) && is_former(vm, uid))
    });
    vms
}

impl Actor for FormerTask {
    const TASK: Task = Task::Former;

    async fn pass(&mut self) -> Next {
        let shared = &self.shared;
        if !shared.caches.is_synced() || !shared.caches.kubevirt_installed() {
            return Next::Idle;
        }
        let failures = futures::stream::iter(left_behind(&shared.caches))
            .take_while(|_| {
                let goes_on = !shared.shutdown.is_cancelled();
                async move { goes_on }
            })
            .map(|vm| async move {
                let released = release(shared, &vm.namespace, &vm.name, &vm.uid).await;
                (vm, released)
            })
            .buffer_unordered(AT_ONCE)
            .filter_map(|(vm, released)| async move {
                match released {
                    Ok(released) if released.changed => {
                        tracing::info!(
                            vm.namespace = vm.namespace,
                            vm.name = vm.name,
                            "Released a VM whose pool is gone"
                        );
                        None
                    }
                    Ok(_) => None,
                    Err(failure) => {
                        shared.metrics.failed(Deed::Release, failure.category());
                        tracing::warn!(
                            vm.namespace = vm.namespace,
                            vm.name = vm.name,
                            error = %failure,
                            "Failed to release a VM whose pool is gone"
                        );
                        Some(failure)
                    }
                }
            })
            .collect::<Vec<_>>()
            .await;
        if failures.is_empty() {
            self.backoff.reset();
            return Next::Idle;
        }
        let asked = failures.iter().filter_map(CallFailure::retry_after);
        let delay = self.backoff.next(asked.max(), false);
        earliest(Next::Idle, Instant::now() + delay)
    }

    fn pause(&self) -> Duration {
        PAUSE
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{caches, pool, vm};
    use super::*;
    use crate::cache::Index;

    #[test]
    fn dt_06_only_vms_that_were_left_behind_are_released() {
        let caches = caches()
            .pool(pool("web", "uid-web"))
            .vm(vm("web-1").owner("web", "uid-web").member_of("uid-web"))
            .vm(vm("web-2").member_of("uid-web"))
            .vm(vm("old-1").member_of("uid-old"))
            .vm(vm("old-2").member_of("uid-old").deleting())
            .vm(vm("old-3").owner("old", "uid-old").member_of("uid-old"))
            .vm(vm("stranger"))
            .done();
        let names: Vec<_> = left_behind(&caches)
            .iter()
            .map(|vm| vm.name.clone())
            .collect();
        assert_eq!(names, ["old-1"]);
        assert!(caches.vms.count(&Index::MemberOf("uid-old".to_owned())) == 3);
    }
}
