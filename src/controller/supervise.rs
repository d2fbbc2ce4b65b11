//! Runs one task per pool and config, each by itself: a task is woken when something that concerns it has
//! changed or its time has come, and makes one pass. One that panics is counted, reported, and begun anew
//! after a growing delay; the others don't notice. Decides nothing about objects.

use std::any::Any;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::metrics::{Metrics, Task};
use super::window::Backoff;

/// After so long without a panic the next one is a new one.
const PANIC_FORGOTTEN: Duration = Duration::from_mins(10);

/// When a task makes its next pass. It makes one earlier when it is woken.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Next {
    /// Then.
    At(Instant),
    /// At once: the last pass has left work that it knows of.
    AtOnce,
    /// When it is woken.
    Idle,
    /// Never: its object is gone.
    Over,
}

/// `next`, but no later than `at`.
pub(super) fn earliest(next: Next, at: Instant) -> Next {
    match next {
        Next::At(other) => Next::At(other.min(at)),
        Next::Idle => Next::At(at),
        Next::AtOnce | Next::Over => next,
    }
}

/// What a task does.
pub(super) trait Actor: Send {
    /// Its kind.
    const TASK: Task;

    /// Looks at its object once and does what is due.
    fn pass(&mut self) -> impl Future<Output = Next> + Send;

    /// At least so long between two passes that are made because something changed: changes come in
    /// bunches.
    fn pause(&self) -> Duration;
}

/// How a task is reached from outside.
#[derive(Clone, Debug)]
pub(super) struct Handle {
    wake: Arc<Notify>,
    stop: CancellationToken,
}

impl Handle {
    /// Of a new task, which stops when `parent` does.
    pub(super) fn new(parent: &CancellationToken) -> Self {
        Self {
            wake: Arc::new(Notify::new()),
            stop: parent.child_token(),
        }
    }

    /// Something that concerns it has changed.
    pub(super) fn wake(&self) {
        self.wake.notify_one();
    }

    /// It is to end after the pass that it is in.
    pub(super) fn stop(&self) {
        self.stop.cancel();
    }
}

/// Runs the actors that `make` makes, one after the other's panic, until told to stop. `make` is given the
/// panic's message.
pub(super) async fn run<A: Actor>(
    handle: Handle,
    metrics: Metrics,
    mut make: impl FnMut(Option<String>) -> A,
) {
    metrics.started(A::TASK);
    let mut backoff = Backoff::default();
    let mut fault = None;
    loop {
        let begun = Instant::now();
        let actor = make(fault.take());
        let Some(message) = run_until_panic(&handle, &metrics, actor).await else {
            break;
        };
        metrics.panicked(A::TASK);
        if begun.elapsed() > PANIC_FORGOTTEN {
            backoff.reset();
        }
        let delay = backoff.next(None, false);
        tracing::error!(
            task = ?A::TASK,
            panic = message,
            retry_in = ?delay,
            "Task panicked"
        );
        fault = Some(format!("the program failed inside: {message}"));
        tokio::select! {
            () = tokio::time::sleep(delay) => {}
            () = handle.stop.cancelled() => break,
        }
    }
    metrics.ended(A::TASK);
}

/// Makes passes until there are no more (`None`) or one panics (its message).
async fn run_until_panic<A: Actor>(
    handle: &Handle,
    metrics: &Metrics,
    mut actor: A,
) -> Option<String> {
    let mut next = Next::AtOnce;
    let mut rested = Instant::now();
    loop {
        let timer = async {
            match next {
                Next::At(at) => tokio::time::sleep_until(at).await,
                Next::AtOnce => {}
                Next::Idle | Next::Over => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = handle.stop.cancelled() => return None,
            () = timer => {}
            () = handle.wake.notified() => {
                tokio::select! {
                    () = handle.stop.cancelled() => return None,
                    () = tokio::time::sleep_until(rested) => {}
                }
            }
        }
        metrics.passed(A::TASK);
        match AssertUnwindSafe(actor.pass()).catch_unwind().await {
            Ok(Next::Over) => return None,
            Ok(then) => next = then,
            Err(panic) => return Some(message_of(&*panic)),
        }
        rested = Instant::now() + actor.pause();
    }
}

fn message_of(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".to_owned())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    struct Scripted {
        passes: Arc<AtomicUsize>,
        panics: bool,
    }

    impl Actor for Scripted {
        const TASK: Task = Task::Pool;

        async fn pass(&mut self) -> Next {
            self.passes.fetch_add(1, Ordering::SeqCst);
            assert!(!self.panics, "a bad object");
            Next::Idle
        }

        fn pause(&self) -> Duration {
            Duration::from_millis(50)
        }
    }

    async fn eventually(what: &str, holds: impl Fn() -> bool) {
        for _ in 0..500 {
            if holds() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("never: {what}");
    }

    #[tokio::test]
    async fn cc_09_a_panic_is_counted_and_the_task_begun_anew_with_the_message() {
        let stop = CancellationToken::new();
        let handle = Handle::new(&stop);
        let passes = Arc::new(AtomicUsize::new(0));
        let faults = Arc::new(std::sync::Mutex::new(Vec::new()));
        let task = {
            let (passes, faults) = (Arc::clone(&passes), Arc::clone(&faults));
            tokio::spawn(run(handle.clone(), Metrics::default(), move |fault| {
                let panics = fault.is_none();
                faults.lock().unwrap().extend(fault);
                Scripted {
                    passes: Arc::clone(&passes),
                    panics,
                }
            }))
        };
        eventually("a second pass", || passes.load(Ordering::SeqCst) == 2).await;
        let told = faults.lock().unwrap().clone();
        assert_eq!(told, ["the program failed inside: a bad object"]);
        stop.cancel();
        task.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn cc_09_what_panics_again_and_again_is_begun_anew_ever_later_and_each_panic_counts() {
        let stop = CancellationToken::new();
        let (metrics, started) = (Metrics::default(), Instant::now());
        let begun = Arc::new(std::sync::Mutex::new(Vec::new()));
        let task = {
            let begun = Arc::clone(&begun);
            let handle = Handle::new(&stop);
            tokio::spawn(run(handle, metrics.clone(), move |_| {
                begun.lock().unwrap().push(started.elapsed());
                Scripted {
                    passes: Arc::default(),
                    panics: true,
                }
            }))
        };
        tokio::time::sleep(Duration::from_secs(100)).await;
        stop.cancel();
        task.await.unwrap();
        let begun = begun.lock().unwrap().clone();
        let delays: Vec<Duration> = begun
            .windows(2)
            .map(|two| two[1].saturating_sub(two[0]))
            .collect();
        let mut expected = Backoff::default();
        for delay in &delays {
            let least = expected.next(None, false);
            assert!(*delay >= least, "{delays:?}");
        }
        assert!((4..20).contains(&delays.len()), "{delays:?}");
        let mut registry = prometheus_client::registry::Registry::default();
        metrics.register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let counted = format!("vmpool_panics_total{{task=\"Pool\"}} {}", begun.len());
        assert!(text.contains(&counted), "{text}");
    }

    #[tokio::test]
    async fn many_wakes_are_few_passes_and_none_makes_none() {
        let stop = CancellationToken::new();
        let handle = Handle::new(&stop);
        let passes = Arc::new(AtomicUsize::new(0));
        let task = {
            let passes = Arc::clone(&passes);
            tokio::spawn(run(handle.clone(), Metrics::default(), move |_| Scripted {
                passes: Arc::clone(&passes),
                panics: false,
            }))
        };
        eventually("the first pass", || passes.load(Ordering::SeqCst) == 1).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(passes.load(Ordering::SeqCst), 1, "at rest");
        for _ in 0..1000 {
            handle.wake();
            tokio::task::yield_now().await;
        }
        tokio::time::sleep(Duration::from_millis(150)).await;
        let made = passes.load(Ordering::SeqCst);
        assert!((2..=5).contains(&made), "{made}");
        handle.stop();
        task.await.unwrap();
    }
}
