//! How many creates are under way at once, and how long is waited after a failure. Pure.
//!
//! A window slides where ReplicaSet's slow start works in batches: it starts at one call under way, each
//! success lets one more in, which doubles it per round trip, and once it has grown there is no barrier
//! between batches at which the API server idles.

use std::time::Duration;

/// Failures in a row after which a pass is over: so many are no accident of one VM.
const FAILURES_IN_A_ROW: u32 = 3;

/// First delay after a failure. As long as a ReplicaSet takes after some five retries.
const FIRST_DELAY: Duration = Duration::from_secs(1);

/// Longest delay while nothing succeeds. No event tells that a quota has room again, so this is how late
/// that is noticed.
const LONGEST_DELAY: Duration = Duration::from_mins(2);

/// Longest delay while others succeed: the failure is that of single VMs.
const LONGEST_DELAY_OF_ONE: Duration = Duration::from_secs(30);

/// Most that an API server can ask us to wait.
const LONGEST_RETRY_AFTER: Duration = Duration::from_mins(10);

/// How many calls may be under way.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Window {
    size: usize,
    max: usize,
    failures_in_row: u32,
    stopped: bool,
}

impl Window {
    /// One call, at most `max` later.
    pub(super) fn new(max: usize) -> Self {
        Self {
            size: 1,
            max: max.max(1),
            failures_in_row: 0,
            stopped: false,
        }
    }

    /// A new pass; the size stays.
    pub(super) fn begin(&mut self) {
        self.failures_in_row = 0;
        self.stopped = false;
    }

    /// Starts small again: what the API server bore a while ago says nothing.
    pub(super) fn shrink(&mut self) {
        self.size = 1;
    }

    /// Whether another call may start beside `under_way` ones.
    pub(super) fn may_start(&self, under_way: usize) -> bool {
        !self.stopped && under_way < self.size
    }

    /// A call succeeded.
    pub(super) fn succeeded(&mut self) {
        self.failures_in_row = 0;
        self.size = (self.size + 1).min(self.max);
    }

    /// A call failed for reasons that may be those of its VM alone.
    pub(super) fn failed(&mut self) {
        self.failures_in_row += 1;
        self.size = (self.size / 2).max(1);
        self.stopped |= self.failures_in_row >= FAILURES_IN_A_ROW;
    }

    /// A call was refused for reasons that hold for all: a quota, a busy API server. The other calls under
    /// way that meet the same fate don't shrink it again.
    pub(super) fn refused(&mut self) {
        if !self.stopped {
            self.size = (self.size / 2).max(1);
        }
        self.stopped = true;
    }
}

/// Doubling delays.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// The delay after one more failure. `others_succeed`: in the same pass.
    pub(super) fn next(&mut self, retry_after: Option<Duration>, others_succeed: bool) -> Duration {
        let longest = if others_succeed {
            LONGEST_DELAY_OF_ONE
        } else {
            LONGEST_DELAY
        };
        let delay = FIRST_DELAY
            .saturating_mul(1 << self.failures.min(16))
            .min(longest);
        self.failures = self.failures.saturating_add(1);
        delay.max(retry_after.unwrap_or_default().min(LONGEST_RETRY_AFTER))
    }

    /// All is well.
    pub(super) fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_doubles_per_round_trip_up_to_its_maximum() {
        let mut window = Window::new(10);
        let mut sizes = Vec::new();
        for _ in 0..5 {
            let under_way = (0..1000).find(|&n| !window.may_start(n)).unwrap();
            sizes.push(under_way);
            (0..under_way).for_each(|_| window.succeeded());
        }
        assert_eq!(sizes, [1, 2, 4, 8, 10]);
    }

    #[test]
    fn a_refusal_ends_the_pass_and_halves_the_window_once() {
        let mut window = Window::new(32);
        (0..31).for_each(|_| window.succeeded());
        assert!(window.may_start(31));
        (0..20).for_each(|_| window.refused());
        assert!(!window.may_start(0));
        window.begin();
        assert!(window.may_start(15) && !window.may_start(16));
    }

    #[test]
    fn three_failures_in_a_row_end_the_pass_and_single_ones_do_not() {
        let mut window = Window::new(32);
        for _ in 0..10 {
            window.failed();
            window.failed();
            window.succeeded();
            assert!(window.may_start(0));
        }
        (0..3).for_each(|_| window.failed());
        assert!(!window.may_start(0));
        window.begin();
        assert!(window.may_start(0), "the next pass tries again");
    }

    #[test]
    fn delays_double_and_obey_retry_after() {
        let seconds = |delay: Duration| delay.as_secs();
        let mut backoff = Backoff::default();
        let delays: Vec<_> = (0..9).map(|_| seconds(backoff.next(None, false))).collect();
        assert_eq!(delays, [1, 2, 4, 8, 16, 32, 64, 120, 120]);
        assert_eq!(seconds(backoff.next(None, true)), 30);
        backoff.reset();
        let asked = Some(Duration::from_secs(7));
        assert_eq!(seconds(backoff.next(asked, false)), 7);
        let absurd = Some(Duration::from_secs(u64::MAX));
        assert_eq!(seconds(backoff.next(absurd, false)), 600);
    }
}
