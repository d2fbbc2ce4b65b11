//! How long we may write, for everybody who writes: one number that is read before each call.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::clock;

/// Whether the controller of this process may write. A cheap handle; all copies know the same.
#[derive(Clone, Debug)]
pub struct Leadership(Arc<AtomicU64>);

/// Nanoseconds since boot that never come.
const FOREVER: u64 = u64::MAX;

impl Leadership {
    /// Until then, on the clock of [`clock::since_boot`].
    pub fn until(until: Duration) -> Self {
        Self(Arc::new(AtomicU64::new(nanoseconds(until))))
    }

    /// One that never ends, for a program of which there is only one, such as in tests.
    pub fn forever() -> Self {
        Self(Arc::new(AtomicU64::new(FOREVER)))
    }

    /// Whether a write may be begun now.
    pub fn is_held(&self) -> bool {
        self.left().is_some()
    }

    /// Resolves when it is not held any more.
    pub async fn lost(&self) {
        while let Some(left) = self.left() {
            // Looked at again, since it may have been extended, and since timers stand still where the clock of
            // `since_boot` does not: while the machine sleeps.
            tokio::time::sleep(left.min(Duration::from_secs(1))).await;
        }
    }

    /// What is left of it.
    fn left(&self) -> Option<Duration> {
        let until = self.0.load(Ordering::Acquire);
        if until == FOREVER {
            return Some(Duration::MAX);
        }
        let now = nanoseconds(clock::since_boot());
        until
            .checked_sub(now)
            .filter(|left| *left > 0)
            .map(Duration::from_nanos)
    }

    /// A renewal was sent at a time that makes it last until then. Too late, it changes nothing: what was lost once
    /// is not had back.
    pub(super) fn extend(&self, until: Duration) {
        if self.is_held() {
            self.0.store(nanoseconds(until), Ordering::Release);
        }
    }

    /// No write from now on.
    pub(super) fn end(&self) {
        self.0.store(0, Ordering::Release);
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).expect("no machine runs for 500 years")
}
