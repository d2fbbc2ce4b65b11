//! Runs one of our processes as a kubelet would: starts it, probes it, restarts it when it ends or
//! fails its liveness probe, and ends it gently.
//!
//! The work is done on a thread with a runtime of its own, so that a process outlives the test
//! that happened to start it and is probed in time however busy a test is. It knows nothing of
//! pods; [`ProcessSpec::from_container`] reads what a generated Deployment says.

mod container;
mod run;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::Pid;
pub use rustix::process::Signal;
use tokio::sync::watch;

pub use self::container::Placement;

/// What to run and how to tell that it is well.
#[derive(Clone, Debug)]
pub struct ProcessSpec {
    /// Names it in messages.
    pub name: String,
    /// The executable.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// Added to the environment that it inherits.
    pub env: BTreeMap<String, String>,
    /// Where its output goes, appended.
    pub log: PathBuf,
    /// Holds the other two back until it has succeeded once; fails like liveness.
    pub startup: Option<ProbeSpec>,
    /// Restarts the process when it fails.
    pub liveness: Option<ProbeSpec>,
    /// Decides whether it is ready; without one it is as soon as it runs.
    pub readiness: Option<ProbeSpec>,
    /// From SIGTERM to SIGKILL; a kubelet's default.
    pub grace: Duration,
    /// Before the second restart in a row, doubled for each further one.
    pub backoff: Duration,
    /// The longest wait between restarts.
    pub max_backoff: Duration,
}

impl ProcessSpec {
    /// Without arguments or probes.
    pub fn new(name: &str, program: &Path, log: &Path) -> Self {
        Self {
            name: name.to_owned(),
            program: program.to_path_buf(),
            args: Vec::new(),
            env: BTreeMap::new(),
            log: log.to_path_buf(),
            startup: None,
            liveness: None,
            readiness: None,
            grace: Duration::from_secs(30),
            // A kubelet waits 10 s, doubled up to 5 min; scaled down with all other times.
            backoff: Duration::from_millis(200),
            max_backoff: Duration::from_secs(5),
        }
    }

    /// With these arguments added.
    pub fn args(mut self, args: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// With this variable set.
    pub fn env(mut self, name: &str, value: impl Into<String>) -> Self {
        self.env.insert(name.to_owned(), value.into());
        self
    }
}

/// A probe by HTTP GET; the defaults are those of Kubernetes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeSpec {
    /// `http` or `https`; certificates are not verified, as a kubelet's probes do not.
    pub url: String,
    /// Before the first one.
    pub initial_delay: Duration,
    /// Between two.
    pub period: Duration,
    /// For an answer.
    pub timeout: Duration,
    /// So many in a row make a failure.
    pub failure_threshold: u32,
    /// So many in a row make a success.
    pub success_threshold: u32,
}

impl ProbeSpec {
    /// Of this URL, every 10 s.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            initial_delay: Duration::ZERO,
            period: Duration::from_secs(10),
            timeout: Duration::from_secs(1),
            failure_threshold: 3,
            success_threshold: 1,
        }
    }

    /// At this pace.
    pub fn every(mut self, period: Duration) -> Self {
        self.period = period;
        self
    }

    /// With this many failures in a row.
    pub fn failures(mut self, threshold: u32) -> Self {
        self.failure_threshold = threshold;
        self
    }
}

/// What is known of the process now.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// Its process id, while it runs.
    pub pid: Option<u32>,
    /// Whether its readiness probe says so.
    pub ready: bool,
    /// How often it was started again.
    pub restarts: u32,
    /// Why it ended, each time.
    pub ends: Vec<String>,
    /// Stopped for good.
    pub stopped: bool,
}

/// A supervised process; ended at once when dropped.
pub struct Supervisor {
    spec: Arc<ProcessSpec>,
    state: watch::Receiver<State>,
    stop: watch::Sender<bool>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Supervisor {
    /// Starts it. A program that cannot be started is an error here, and an entry in
    /// [`State::ends`] when it is restarted.
    pub fn start(spec: ProcessSpec) -> Result<Self> {
        let spec = Arc::new(spec);
        let (state_sender, state) = watch::channel(State::default());
        let (stop, stop_receiver) = watch::channel(false);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("failed to make a supervisor's runtime")?;
        let first = {
            let _inside = runtime.enter();
            run::spawn(&spec)?
        };
        state_sender.send_modify(|state| state.pid = first.id());
        let supervised = Arc::clone(&spec);
        let thread = std::thread::Builder::new()
            .name(format!("supervisor of {}", spec.name))
            .spawn(move || {
                runtime.block_on(run::supervise(
                    &supervised,
                    first,
                    &state_sender,
                    stop_receiver,
                ));
            })
            .context("failed to start a supervisor's thread")?;
        Ok(Self {
            spec,
            state,
            stop,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// What is known of it now.
    pub fn state(&self) -> State {
        self.state.borrow().clone()
    }

    /// Follows what is known of it.
    pub fn watch(&self) -> watch::Receiver<State> {
        self.state.clone()
    }

    /// Its process id, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.state.borrow().pid
    }

    /// Whether it is ready.
    pub fn is_ready(&self) -> bool {
        self.state.borrow().ready
    }

    /// How often it was started again.
    pub fn restarts(&self) -> u32 {
        self.state.borrow().restarts
    }

    /// Where its output is.
    pub fn log_path(&self) -> &Path {
        &self.spec.log
    }

    /// What it has written so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.spec.log).unwrap_or_default()
    }

    /// Sends it a signal: KILL and TERM make it restart, STOP makes it hang, CONT go on.
    pub fn kill(&self, with: Signal) {
        if let Some(pid) = self.pid() {
            signal(pid, with);
        }
    }

    /// Waits until it is ready.
    pub async fn wait_ready(&self, timeout: Duration) -> Result<()> {
        self.wait(timeout, "ready", |state| state.ready).await
    }

    /// Waits until it has been started again so many times.
    pub async fn wait_restarts(&self, restarts: u32, timeout: Duration) -> Result<()> {
        let wanted = format!("restarted {restarts} times");
        self.wait(timeout, &wanted, |state| state.restarts >= restarts)
            .await
    }

    /// Waits for a state, and says what was found instead if it does not come.
    pub async fn wait(
        &self,
        timeout: Duration,
        wanted: &str,
        is_wanted: impl FnMut(&State) -> bool,
    ) -> Result<()> {
        let mut state = self.state.clone();
        match tokio::time::timeout(timeout, state.wait_for(is_wanted)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) => bail!("{} was stopped before it was {wanted}", self.spec.name),
            Err(_) => {
                let (name, state, log) = (&self.spec.name, self.state(), self.log());
                let tail: Vec<&str> = log.lines().rev().take(30).collect();
                let tail: Vec<&str> = tail.into_iter().rev().collect();
                let tail = tail.join("\n");
                bail!("{name} was not {wanted} in {timeout:?}: {state:?}\n{tail}")
            }
        }
    }

    /// Ends it for good: SIGTERM, and SIGKILL after the grace period.
    pub async fn stop(&self) {
        let _ = self.stop.send(true);
        let mut state = self.state.clone();
        // An error means that the thread is gone, and the process with it.
        let _ = state.wait_for(|state| state.stopped).await;
        self.join();
    }

    fn join(&self) {
        let thread = self.thread().take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }

    fn thread(&self) -> MutexGuard<'_, Option<JoinHandle<()>>> {
        self.thread.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
        self.kill(Signal::KILL);
        self.join();
    }
}

/// Sends a signal; a process that is gone needs none.
pub(crate) fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = rustix::process::kill_process(pid, signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(10);

    fn shell(dir: &tempfile::TempDir, script: &str) -> ProcessSpec {
        ProcessSpec::new("it", Path::new("sh"), &dir.path().join("log")).args(["-c", script])
    }

    #[tokio::test]
    async fn a_process_that_ends_is_started_again_and_a_stopped_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let it = Supervisor::start(shell(&dir, "echo up $V; sleep 60").env("V", "v")).unwrap();
        it.wait_ready(SOON).await.unwrap();
        let first = it.pid();
        it.kill(Signal::KILL);
        it.wait_restarts(1, SOON).await.unwrap();
        it.wait_ready(SOON).await.unwrap();
        while it.log().is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_ne!(it.pid(), first);
        it.stop().await;
        let state = it.state();
        assert_eq!((state.pid, state.ready, state.restarts), (None, false, 1));
        assert!(it.log().starts_with("up v\n"), "{}", it.log());
    }

    #[tokio::test]
    async fn one_that_ignores_sigterm_is_killed_after_the_grace_period() {
        let dir = tempfile::tempdir().unwrap();
        let mut spec = shell(&dir, "trap '' TERM; echo up; while :; do sleep 0.05; done");
        spec.grace = Duration::from_millis(200);
        let it = Supervisor::start(spec).unwrap();
        while it.log().is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let started = std::time::Instant::now();
        it.stop().await;
        assert!(started.elapsed() >= Duration::from_millis(200));
        assert!(it.state().ends[0].contains("stopped"), "{:?}", it.state());
    }

    #[tokio::test]
    async fn a_failed_liveness_probe_restarts_and_a_failed_readiness_probe_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let port = crate::controlplane::ports::free().unwrap();
        let closed = format!("http://127.0.0.1:{port}/");
        let probe = ProbeSpec::new(closed)
            .every(Duration::from_millis(20))
            .failures(2);
        let mut spec = shell(&dir, "sleep 60");
        spec.grace = Duration::from_millis(100);
        spec.readiness = Some(probe.clone());
        let unready = Supervisor::start(spec.clone()).unwrap();
        spec.liveness = Some(probe);
        let unwell = Supervisor::start(spec).unwrap();
        unwell.wait_restarts(2, SOON).await.unwrap();
        let end = unwell.state().ends[0].clone();
        assert!(end.contains("liveness"), "{end}");
        assert_eq!((unready.restarts(), unready.is_ready()), (0, false));
    }

    #[test]
    fn a_program_that_does_not_exist_is_an_error_at_once() {
        let spec = ProcessSpec::new("it", Path::new("/does/not/exist"), Path::new("/dev/null"));
        assert!(Supervisor::start(spec).is_err());
    }
}
