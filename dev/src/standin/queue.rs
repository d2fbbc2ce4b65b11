//! The work queue: each piece of work waits at most once, is done by one worker at a time, and
//! comes again when it was asked for meanwhile. Like client-go's, with delays and backoff.
//!
//! Knows nothing of what the work is.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::object::Key;

/// First wait after a failure, doubled by each further one.
const FIRST_BACKOFF: Duration = Duration::from_millis(20);

/// client-go's default reaches 1000 s; no test waits that long.
const LONGEST_BACKOFF: Duration = Duration::from_secs(2);

/// An object to look at.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Work {
    DataVolume(Key),
    /// A launcher pod on its way out, whose VMI may be gone already.
    Pod(Key),
    Vm(Key),
    Vmi(Key),
}

#[derive(Default)]
struct State {
    ready: VecDeque<Work>,
    waiting: HashSet<Work>,
    running: HashSet<Work>,
    again: HashSet<Work>,
    later: BinaryHeap<Reverse<(Instant, Work)>>,
    failures: HashMap<Work, u32>,
}

/// The queue.
#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    filled: Notify,
    timed: Notify,
}

impl Queue {
    pub(super) fn add(&self, work: Work) {
        self.lock().add(work);
        self.filled.notify_one();
    }

    pub(super) fn add_after(&self, work: Work, delay: Duration) {
        self.lock()
            .later
            .push(Reverse((Instant::now() + delay, work)));
        self.timed.notify_one();
    }

    /// The next piece of work. The caller must hand it to [`Queue::done`].
    pub(super) async fn next(&self) -> Work {
        loop {
            if let Some((work, more)) = self.lock().pop() {
                if more {
                    self.filled.notify_one();
                }
                return work;
            }
            self.filled.notified().await;
        }
    }

    /// Ends a piece of work; a failed one comes again, each time later.
    pub(super) fn done(&self, work: Work, failed: bool) {
        let mut state = self.lock();
        state.running.remove(&work);
        if state.again.remove(&work) {
            state.add(work.clone());
            self.filled.notify_one();
        }
        if failed {
            let count = state.failures.entry(work.clone()).or_default();
            let delay = FIRST_BACKOFF * 2_u32.saturating_pow((*count).min(16));
            *count += 1;
            drop(state);
            self.add_after(work, delay.min(LONGEST_BACKOFF));
        } else {
            state.failures.remove(&work);
        }
    }

    /// Moves delayed work to the ready when its time comes; runs until aborted.
    pub(super) async fn run_timers(&self) {
        loop {
            let next = self.lock().release(Instant::now());
            self.filled.notify_one();
            match next {
                Some(at) => {
                    tokio::select! {
                        () = tokio::time::sleep_until(at) => {}
                        () = self.timed.notified() => {}
                    }
                }
                None => self.timed.notified().await,
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn add(&mut self, work: Work) {
        if self.running.contains(&work) {
            self.again.insert(work);
        } else if self.waiting.insert(work.clone()) {
            self.ready.push_back(work);
        }
    }

    fn pop(&mut self) -> Option<(Work, bool)> {
        let work = self.ready.pop_front()?;
        self.waiting.remove(&work);
        self.running.insert(work.clone());
        Some((work, !self.ready.is_empty()))
    }

    /// Readies what is due; returns when the next is.
    fn release(&mut self, now: Instant) -> Option<Instant> {
        while let Some(Reverse((at, _))) = self.later.peek() {
            if *at > now {
                return Some(*at);
            }
            if let Some(Reverse((_, work))) = self.later.pop() {
                self.add(work);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(name: &str) -> Work {
        Work::Vm(Key::new("a", name))
    }

    #[tokio::test]
    async fn work_waits_once_and_comes_again_when_asked_for_meanwhile() {
        let queue = Queue::default();
        queue.add(work("x"));
        queue.add(work("x"));
        queue.add(work("y"));
        assert_eq!(queue.next().await, work("x"));
        queue.add(work("x"));
        assert_eq!(queue.next().await, work("y"), "x is being done");
        queue.done(work("x"), false);
        assert_eq!(queue.next().await, work("x"));
        queue.done(work("x"), false);
        queue.done(work("y"), false);
        assert!(queue.lock().ready.is_empty());
    }

    #[tokio::test]
    async fn delayed_and_failed_work_comes_later() {
        let queue = std::sync::Arc::new(Queue::default());
        let timers = queue.clone();
        let task = tokio::spawn(async move { timers.run_timers().await });
        let start = Instant::now();
        queue.add_after(work("late"), Duration::from_millis(200));
        queue.add(work("bad"));
        queue.done(queue.next().await, true);
        assert_eq!(queue.next().await, work("bad"));
        assert!(start.elapsed() >= FIRST_BACKOFF);
        queue.done(work("bad"), false);
        assert_eq!(queue.next().await, work("late"));
        assert!(start.elapsed() >= Duration::from_millis(200));
        task.abort();
    }
}
