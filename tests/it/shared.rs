//! One cluster for all ordinary tests, started by whichever comes first; and clusters of their own
//! for the few that break things.
//!
//! The shared one lives on a thread with a runtime of its own, since every test's runtime ends with
//! the test. Nobody drops it: `dev`'s reaper ends its processes when this binary has ended, however
//! that came about.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::mpsc;
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};

use anyhow::{Context, Result};
use dev::controlplane::KEEP_ENV;
use dev::harness::{Binary, Harness, Options};
use futures::FutureExt as _;

use crate::Space;

/// How many lines of `vmpool`'s log a failed test shows.
const LOG_LINES: usize = 60;

/// The cluster that ordinary tests share.
pub(crate) fn shared() -> &'static Harness {
    static SHARED: OnceLock<Result<&'static Harness, String>> = OnceLock::new();
    match SHARED.get_or_init(|| start_for_good().map_err(|error| format!("{error:?}"))) {
        Ok(harness) => harness,
        Err(error) => panic!("the shared cluster did not start: {error}"),
    }
}

fn start_for_good() -> Result<&'static Harness> {
    let (sender, receiver) = mpsc::channel();
    std::thread::Builder::new()
        .name("shared cluster".to_owned())
        .spawn(move || {
            runtime().block_on(async move {
                let started = Harness::start(own_program(Options::default())).await;
                let stays = started.is_ok();
                let started = started.map(|harness| &*Box::leak(Box::new(harness)));
                // Nobody listens only if the starting test was ended.
                let _ = sender.send(started);
                if stays {
                    std::future::pending::<()>().await;
                }
            });
        })
        .context("failed to start the shared cluster's thread")?;
    let harness = receiver.recv().context("the start panicked")??;
    if keep() {
        let kubeconfig = harness.kubectl().kubeconfig().display().to_string();
        eprintln!("The shared cluster stays: KUBECONFIG={kubeconfig}");
    }
    Ok(harness)
}

/// The program that cargo built together with this test.
pub(crate) fn own_program(options: Options) -> Options {
    Options {
        binary: Binary::Path(env!("CARGO_BIN_EXE_vmpool").into()),
        ..options
    }
}

/// Runs a test in a namespace of its own of the shared cluster; `prefix` names it.
pub(crate) fn with_namespace(prefix: &str, test: impl AsyncFnOnce(&Space<'static>) -> Result<()>) {
    let harness = shared();
    runtime().block_on(async {
        let space = Space::new(harness, prefix)
            .await
            .expect("a namespace can be made");
        let outcome = caught(test(&space)).await;
        if outcome.is_err() {
            eprintln!("{}", space.describe());
            eprintln!(
                "vmpool's log:\n{}",
                tail(&harness.vmpool().log(), &space.name)
            );
        } else if !keep() {
            space.remove().expect("the namespace can be deleted");
        }
        finish(outcome);
    });
}

/// Runs a test on a cluster of its own.
pub(crate) fn with_own(options: Options, test: impl AsyncFnOnce(&mut Harness) -> Result<()>) {
    let _turn = Turn::take();
    runtime().block_on(async {
        let harness = Harness::start(own_program(options)).await;
        let mut harness = harness.expect("a cluster can be started");
        let outcome = caught(test(&mut harness)).await;
        if outcome.is_err() {
            let log = std::fs::read_to_string(harness.plane().dir().join("vmpool.log"));
            eprintln!("vmpool's log:\n{}", tail(&log.unwrap_or_default(), ""));
        }
        finish(outcome);
    });
}

/// The right to run a cluster beside the shared one. Each costs close to a gigabyte, and a machine with more
/// cores would start as many as it has.
struct Turn;

static TURNS: (Mutex<usize>, Condvar) = (Mutex::new(2), Condvar::new());

impl Turn {
    fn take() -> Self {
        let (left, freed) = &TURNS;
        let left = left.lock().unwrap_or_else(PoisonError::into_inner);
        let mut left = freed
            .wait_while(left, |left| *left == 0)
            .unwrap_or_else(PoisonError::into_inner);
        *left -= 1;
        Self
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let (left, freed) = &TURNS;
        *left.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        freed.notify_one();
    }
}

/// What came of a test: an error, or a panic to go on with.
type Outcome = Result<Result<()>, Box<dyn std::any::Any + Send>>;

async fn caught(test: impl Future<Output = Result<()>>) -> Result<(), Failure> {
    let outcome: Outcome = AssertUnwindSafe(test).catch_unwind().await;
    match outcome {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(Failure::Error(error)),
        Err(panic) => Err(Failure::Panic(panic)),
    }
}

enum Failure {
    Error(anyhow::Error),
    Panic(Box<dyn std::any::Any + Send>),
}

fn finish(outcome: Result<(), Failure>) {
    match outcome {
        Ok(()) => {}
        Err(Failure::Error(error)) => panic!("{error:?}"),
        Err(Failure::Panic(panic)) => std::panic::resume_unwind(panic),
    }
}

/// Several threads, since kubectl blocks one while it asks a stand-in that another one serves.
fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime can be made")
}

fn keep() -> bool {
    std::env::var_os(KEEP_ENV).is_some_and(|value| value != "0")
}

/// The last lines of a log that speak of `about`.
fn tail(log: &str, about: &str) -> String {
    let lines: Vec<&str> = log.lines().filter(|line| line.contains(about)).collect();
    lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
}
