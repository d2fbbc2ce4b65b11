//! How much of a plan is carried out in one pass: so many deeds of a kind, and none of a kind that has just
//! failed.

use k8s_openapi::jiff::Timestamp;

use super::status::earliest;
use super::{Action, Failure, Snapshot, kind_of_failure};
use crate::api::conditions::reasons;

/// How much of what is to be done is done in this pass, and when the rest is.
pub(super) struct Pace<'a> {
    failure: Option<&'a Failure>,
    burst: usize,
    now: Timestamp,
    pub(super) wake_at: Option<Timestamp>,
}

impl<'a> Pace<'a> {
    pub(super) fn new(snapshot: &'a Snapshot, now: Timestamp) -> Self {
        Self {
            failure: snapshot
                .failure
                .as_ref()
                .filter(|failure| failure.retry_at > now),
            burst: snapshot.limits.burst.max(1) as usize,
            now,
            wake_at: None,
        }
    }

    /// The first of `deeds`; `kind` is the reason under which their failure is reported.
    pub(super) fn take(
        &mut self,
        kind: &'static str,
        deeds: impl ExactSizeIterator<Item = Action>,
    ) -> Vec<Action> {
        let held = self.failure.filter(|failure| holds(failure, kind));
        if let Some(failure) = held {
            if deeds.len() > 0 {
                self.wake_at = earliest(self.wake_at, failure.retry_at);
            }
            return Vec::new();
        }
        if deeds.len() > self.burst {
            self.wake_at = earliest(self.wake_at, self.now);
        }
        deeds.take(self.burst).collect()
    }
}

fn holds(failure: &Failure, kind: &str) -> bool {
    kind == kind_of_failure(failure.reason) || kind == reasons::FAILED_RELEASE
}
