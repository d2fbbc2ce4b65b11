//! Whether a pool gets on: `progressDeadlineSeconds` without a member becoming updated, current or available,
//! while one is waited for, is too long. The clock starts anew with every one that does, and with every change of
//! the pool or its target. It lives in memory: a new leader starts it anew, unless the stored status says already
//! that nothing moves and nothing has moved since.

use k8s_openapi::jiff::Timestamp;

use super::Snapshot;
use super::rollout::Rollout;
use super::scale_out::deadline;
use crate::api::conditions::{reasons, types};
use crate::api::pool::VirtualMachinePoolStatus;

/// What there was at some time.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Progress {
    /// Updated, current and available members.
    counts: [i32; 3],
    generation: i64,
    target: String,
    /// Since when it has been so.
    since: Timestamp,
}

/// How a pool gets on.
#[derive(Debug, Default)]
pub(super) struct Judgement {
    /// For the next plan; `None` if nothing is waited for.
    pub(super) known: Option<Progress>,
    /// Whether it has been the same for too long.
    pub(super) is_stalled: bool,
    /// When it will have been.
    pub(super) next: Option<Timestamp>,
}

/// Judges a pool with these counts.
pub(super) fn judge(
    snapshot: &Snapshot,
    counts: &VirtualMachinePoolStatus,
    rollout: &Rollout<'_>,
    acts: bool,
    now: Timestamp,
) -> Judgement {
    let waits = rollout.pending > rollout.pending_blocked || counts.unavailable_replicas > 0;
    if !acts || !waits {
        return Judgement::default();
    }
    let target = snapshot.target.as_ref();
    let mut progress = Progress {
        counts: of(counts),
        generation: snapshot.pool.generation,
        target: target
            .map(|target| target.stamp_hash.clone())
            .unwrap_or_default(),
        since: now,
    };
    let patience = snapshot.pool.spec.progress_deadline_seconds();
    match &snapshot.memory.progress {
        Some(before) => {
            let since = before.since.min(now);
            let before = Progress {
                since: progress.since,
                ..before.clone()
            };
            if before == progress {
                progress.since = since;
            }
        }
        None if was_stalled(snapshot, counts) => {
            progress.since = deadline(now, -patience);
        }
        None => {}
    }
    let until = deadline(progress.since, patience);
    let is_stalled = until <= now;
    Judgement {
        known: Some(progress),
        is_stalled,
        next: (!is_stalled).then_some(until),
    }
}

fn of(status: &VirtualMachinePoolStatus) -> [i32; 3] {
    [
        status.updated_replicas,
        status.current_replicas,
        status.available_replicas,
    ]
}

fn was_stalled(snapshot: &Snapshot, counts: &VirtualMachinePoolStatus) -> bool {
    let before = &snapshot.pool.status;
    before.target_revision == counts.target_revision
        && of(before) == of(counts)
        && before.conditions.iter().any(|condition| {
            condition.type_ == types::PROGRESSING
                && condition.reason == reasons::DEADLINE_EXCEEDED
                && condition.observed_generation == Some(snapshot.pool.generation)
        })
}
