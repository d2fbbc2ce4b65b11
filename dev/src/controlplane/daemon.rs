//! One program of the control plane: started, watched, ended by process id.
//!
//! It is not restarted when it dies: a control plane program that ends by itself is a fault of
//! the setup that should be seen. What *we* develop runs under [`crate::supervisor`].

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::reaper;

/// How much of a log an error shows: enough for the flag or the port that was wrong.
const TAIL_BYTES: u64 = 4096;

pub(super) struct Daemon {
    name: &'static str,
    program: PathBuf,
    args: Vec<OsString>,
    log: PathBuf,
    pid_file: PathBuf,
    /// Left to itself: neither the reaper nor we end it.
    kept: bool,
    child: Mutex<Option<Child>>,
}

impl Daemon {
    pub(super) fn new(
        name: &'static str,
        program: &Path,
        args: Vec<impl Into<OsString>>,
        dir: &Path,
        kept: bool,
    ) -> Self {
        Self {
            name,
            program: program.to_path_buf(),
            args: args.into_iter().map(Into::into).collect(),
            log: dir.join(format!("{name}.log")),
            pid_file: dir.join(format!("{name}.pid")),
            kept,
            child: Mutex::new(None),
        }
    }

    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    /// Starts it; the log is appended to, so that it tells of earlier runs too.
    pub(super) fn spawn(&self) -> Result<()> {
        let log = File::options()
            .create(true)
            .append(true)
            .open(&self.log)
            .with_context(|| format!("failed to open {:?}", self.log))?;
        let child = Command::new(&self.program)
            .args(&self.args)
            // An API server under load spends a seventh of its time on collecting garbage at Go's default of 100,
            // which on one machine is time of all others.
            .env("GOGC", "200")
            .stdin(Stdio::null())
            .stdout(log.try_clone().context("failed to share the log")?)
            .stderr(log)
            // A group of its own: Ctrl-C is for us, who then end these in order.
            .process_group(0)
            .spawn()
            .with_context(|| format!("failed to start {:?}", self.program))?;
        if !self.kept {
            reaper::watch(child.id());
        }
        let written = fs::write(&self.pid_file, format!("{}\n", child.id()));
        *self.child() = Some(child);
        written.with_context(|| format!("failed to write {:?}", self.pid_file))
    }

    pub(super) fn pid(&self) -> Option<u32> {
        self.child().as_ref().map(Child::id)
    }

    /// Its exit status, if it ended by itself.
    pub(super) fn exited(&self) -> Option<ExitStatus> {
        let mut child = self.child();
        child
            .as_mut()
            .and_then(|child| child.try_wait().ok())
            .flatten()
    }

    /// Ends it at once.
    pub(super) fn kill(&self) {
        let Some(mut child) = self.child().take() else {
            return;
        };
        // An error means that it has ended already, and then waiting is all there is to do.
        let _ = child.kill();
        let _ = child.wait();
        reaper::forget(child.id());
    }

    /// Asks it to end, and ends it after `grace`.
    pub(super) fn terminate(&self, grace: Duration) {
        if let Some(pid) = self.pid() {
            crate::supervisor::signal(pid, rustix::process::Signal::TERM);
            let deadline = Instant::now() + grace;
            while self.exited().is_none() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        self.kill();
    }

    /// The end of its log, for error texts.
    pub(super) fn log_tail(&self) -> String {
        tail(&self.log).unwrap_or_else(|error| format!("(no log: {error})"))
    }

    fn child(&self) -> MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if !self.kept {
            self.kill();
        }
    }
}

fn tail(path: &Path) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let length = fs::metadata(path)?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
