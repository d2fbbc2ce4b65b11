//! The loop of one supervised process. It alone writes [`State`], and it alone waits for the
//! process, so that a process id is known to be free before it is forgotten.

use std::fs::File;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio::process::{Child, Command};
use tokio::sync::watch;

use super::{ProbeSpec, ProcessSpec, Signal, State, signal};
use crate::probe::Probe;
use crate::reaper;

/// Having run so long, a process is not in a crash loop; a kubelet takes 10 min.
const WELL: Duration = Duration::from_secs(30);

/// Must be called inside the supervisor's runtime.
pub(super) fn spawn(spec: &ProcessSpec) -> Result<Child> {
    let log = File::options()
        .create(true)
        .append(true)
        .open(&spec.log)
        .with_context(|| format!("failed to open {:?}", spec.log))?;
    let child = Command::new(&spec.program)
        .args(&spec.args)
        .envs(&spec.env)
        .stdin(Stdio::null())
        .stdout(log.try_clone().context("failed to share the log")?)
        .stderr(log)
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("failed to start {:?}", spec.program))?;
    if let Some(pid) = child.id() {
        reaper::watch(pid);
    }
    Ok(child)
}

pub(super) async fn supervise(
    spec: &ProcessSpec,
    first: Child,
    state: &watch::Sender<State>,
    mut stop: watch::Receiver<bool>,
) {
    let mut child = Some(first);
    let mut backoff = Duration::ZERO;
    loop {
        let started = Instant::now();
        let end = match child.take().map_or_else(|| spawn(spec), Ok) {
            Ok(mut child) => run_once(spec, &mut child, state, &mut stop).await,
            Err(error) => format!("{error:#}"),
        };
        state.send_modify(|state| {
            state.pid = None;
            state.ready = false;
            state.ends.push(end);
        });
        if started.elapsed() > WELL {
            backoff = Duration::ZERO;
        }
        tokio::select! {
            // In this order: a wait of no time is over at once, and must not hide a stop.
            biased;
            _ = stop.wait_for(|stop| *stop) => break,
            () = tokio::time::sleep(backoff) => {}
        }
        backoff = (backoff * 2).clamp(spec.backoff, spec.max_backoff);
        state.send_modify(|state| state.restarts += 1);
    }
    state.send_modify(|state| state.stopped = true);
}

/// One life of the process; answers why it ended.
async fn run_once(
    spec: &ProcessSpec,
    child: &mut Child,
    state: &watch::Sender<State>,
    stop: &mut watch::Receiver<bool>,
) -> String {
    let pid = child.id();
    state.send_modify(|state| state.pid = pid);
    let ended = tokio::select! {
        status = child.wait() => Err(status),
        reason = probe(spec, state) => Ok(reason),
        _ = stop.wait_for(|stop| *stop) => Ok("stopped".to_owned()),
    };
    let end = match ended {
        Err(status) => describe(status),
        Ok(reason) => {
            state.send_modify(|state| state.ready = false);
            let status = terminate(child, spec.grace).await;
            format!("{reason}: {status}")
        }
    };
    if let Some(pid) = pid {
        reaper::forget(pid);
    }
    end
}

fn describe(status: std::io::Result<std::process::ExitStatus>) -> String {
    status.map_or_else(|error| error.to_string(), |status| status.to_string())
}

async fn terminate(child: &mut Child, grace: Duration) -> String {
    if let Some(pid) = child.id() {
        signal(pid, Signal::TERM);
    }
    if let Ok(status) = tokio::time::timeout(grace, child.wait()).await {
        return describe(status);
    }
    // An error means that it has ended in the meantime.
    let _ = child.start_kill();
    describe(child.wait().await)
}

/// Ends when the process should be restarted, with the reason.
async fn probe(spec: &ProcessSpec, state: &watch::Sender<State>) -> String {
    if let Some(startup) = &spec.startup
        && let Err(reason) = settle(startup, "startup").await
    {
        return reason;
    }
    let readiness = async {
        match &spec.readiness {
            None => set_ready(state, true),
            Some(readiness) => follow(readiness, |ready| set_ready(state, ready)).await,
        }
        std::future::pending::<()>().await;
    };
    let liveness = async {
        match &spec.liveness {
            None => std::future::pending().await,
            Some(liveness) => until_failed(liveness, "liveness").await,
        }
    };
    tokio::select! {
        () = readiness => unreachable!("readiness ends with a future that never does"),
        reason = liveness => reason,
    }
}

fn set_ready(state: &watch::Sender<State>, ready: bool) {
    state.send_if_modified(|state| std::mem::replace(&mut state.ready, ready) != ready);
}

/// Ends with the first success, or with as many failures as the threshold.
async fn settle(spec: &ProbeSpec, kind: &str) -> Result<(), String> {
    let mut failures = 0;
    let probe = begin(spec)
        .await
        .map_err(|error| format!("{kind}: {error:#}"))?;
    loop {
        match probe.check().await {
            Ok(()) => return Ok(()),
            Err(error) => failures = fail(spec, kind, failures, &error)?,
        }
        tokio::time::sleep(spec.period).await;
    }
}

/// Ends with as many failures in a row as the threshold.
async fn until_failed(spec: &ProbeSpec, kind: &str) -> String {
    let mut failures = 0;
    let probe = match begin(spec).await {
        Ok(probe) => probe,
        Err(error) => return format!("{kind}: {error:#}"),
    };
    loop {
        match probe.check().await {
            Ok(()) => failures = 0,
            Err(error) => match fail(spec, kind, failures, &error) {
                Ok(more) => failures = more,
                Err(reason) => return reason,
            },
        }
        tokio::time::sleep(spec.period).await;
    }
}

fn fail(spec: &ProbeSpec, kind: &str, failures: u32, error: &anyhow::Error) -> Result<u32, String> {
    if failures + 1 >= spec.failure_threshold {
        return Err(format!("{kind} probe failed: {error:#}"));
    }
    Ok(failures + 1)
}

/// Reports every change, for ever.
async fn follow(spec: &ProbeSpec, report: impl Fn(bool)) {
    let Ok(probe) = begin(spec).await else {
        return;
    };
    let (mut successes, mut failures) = (0, 0);
    loop {
        if probe.check().await.is_ok() {
            (successes, failures) = (successes + 1, 0);
        } else {
            (successes, failures) = (0, failures + 1);
        }
        if successes >= spec.success_threshold {
            report(true);
        } else if failures >= spec.failure_threshold {
            report(false);
        }
        tokio::time::sleep(spec.period).await;
    }
}

async fn begin(spec: &ProbeSpec) -> Result<Probe> {
    tokio::time::sleep(spec.initial_delay).await;
    Probe::new(&spec.url, spec.timeout)
}
