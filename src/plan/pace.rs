//! How much of a plan is carried out in one pass: so many deeds of a kind, and none of a kind that has failed
//! and whose time has not come.

use k8s_openapi::jiff::Timestamp;

use super::status::earliest;
use super::{Action, Kind, Snapshot};

/// How much of what is to be done is done in this pass, and when the rest is.
pub(super) struct Pace<'a> {
    snapshot: &'a Snapshot,
    burst: usize,
    now: Timestamp,
    pub(super) wake_at: Option<Timestamp>,
}

impl<'a> Pace<'a> {
    pub(super) fn new(snapshot: &'a Snapshot, now: Timestamp) -> Self {
        Self {
            snapshot,
            burst: snapshot.limits.burst.max(1) as usize,
            now,
            wake_at: None,
        }
    }

    /// The first of `deeds`, all of that kind.
    pub(super) fn take(
        &mut self,
        kind: Kind,
        deeds: impl ExactSizeIterator<Item = Action>,
    ) -> Vec<Action> {
        if let Some(until) = self.snapshot.held(kind, self.now) {
            if deeds.len() > 0 {
                self.wake_at = earliest(self.wake_at, until);
            }
            return Vec::new();
        }
        if deeds.len() > self.burst {
            self.wake_at = earliest(self.wake_at, self.now);
        }
        deeds.take(self.burst).collect()
    }
}
