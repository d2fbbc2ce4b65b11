//! The workers: take an object from the queue, gather what there is about it, do step after step.
//!
//! The thin shell around the decisions in `vm.rs`, `vmi.rs` and `datavolume.rs`.

use anyhow::Result;

use super::queue::Work;
use super::shared::Shared;
use super::{work_disk, work_vm, work_vmi};

/// More steps than any object needs at a time; ends the turn of one that never comes to rest.
pub(super) const MOST_STEPS: usize = 30;

/// Works until the task is aborted.
pub(super) async fn run(shared: &Shared) {
    loop {
        let work = shared.queue.next().await;
        let result = turn(shared, &work).await;
        if let Err(error) = &result {
            tracing::debug!(?work, error = %format!("{error:#}"), "Failed to work");
        }
        shared.queue.done(work, result.is_err());
    }
}

async fn turn(shared: &Shared, work: &Work) -> Result<()> {
    match work {
        Work::DataVolume(key) => work_disk::turn(shared, work, key).await,
        Work::Pod(key) => work_vmi::bury(shared, work, key).await,
        Work::Vm(key) => work_vm::turn(shared, work, key).await,
        Work::Vmi(key) => work_vmi::turn(shared, work, key).await,
    }
}
