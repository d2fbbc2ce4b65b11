//! Ends what this process started when it can no longer do so itself: after Ctrl-C, a panic that
//! aborts, `kill -9`, or the plain exit of a test binary, which never drops its statics.
//!
//! A small `sh` holds the read end of a pipe that closes whenever we are gone, however that came
//! about, and then kills exactly the process ids it was told. The kernel's parent death signal
//! would be shorter, but is sent when the *thread* that spawned ends, and a control plane shared
//! by tests is spawned by whichever test ran first.
//!
//! It must never find processes by name, and never hold our stdout open: `cargo test | tail`
//! would wait for it.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

/// Reads `+ pid`, `- pid` and `dir path` until the pipe closes; the traps are for terminals that
/// signal every process of the session.
const SCRIPT: &str = r#"
trap '' HUP INT TERM
pids=""
while read -r op arg; do
  case "$op" in
    +) pids="$pids $arg" ;;
    -) kept=""
       for pid in $pids; do [ "$pid" = "$arg" ] || kept="$kept $pid"; done
       pids="$kept" ;;
    dir) set -- "$@" "$arg" ;;
  esac
done
for pid in $pids; do kill -9 "$pid"; done
for dir in "$@"; do rm -rf "$dir"; done
"#;

static REAPER: Mutex<Option<Child>> = Mutex::new(None);

/// Has `pid` killed when this process ends.
pub fn watch(pid: u32) {
    tell(&format!("+ {pid}"));
}

/// Forgets `pid`, which has been waited for: its number may be another process soon.
pub fn forget(pid: u32) {
    tell(&format!("- {pid}"));
}

/// Has the temporary folder `dir` removed when this process ends.
pub fn remove_at_exit(dir: &Path) {
    tell(&format!("dir {}", dir.display()));
}

/// A reaper that cannot be started or has died costs leftovers, not correctness, so this only
/// warns.
fn tell(line: &str) {
    let mut reaper = REAPER.lock().unwrap_or_else(PoisonError::into_inner);
    if reaper.is_none() {
        match start() {
            Ok(child) => *reaper = Some(child),
            Err(error) => {
                tracing::warn!(%error, "Failed to start the reaper");
                return;
            }
        }
    }
    let pipe = reaper.as_mut().and_then(|child| child.stdin.as_mut());
    if let Some(Err(error)) = pipe.map(|pipe| writeln!(pipe, "{line}")) {
        tracing::warn!(%error, "Failed to tell the reaper");
    }
}

fn start() -> std::io::Result<Child> {
    Command::new("sh")
        .args(["-c", SCRIPT, "vmpool-reaper"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // A group of its own, so that Ctrl-C in the terminal reaches us and not it.
        .process_group(0)
        .spawn()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kills_what_it_watches_once_the_pipe_closes_and_nothing_else() {
        let sleep = || {
            Command::new("sleep")
                .arg("60")
                .process_group(0)
                .spawn()
                .unwrap()
        };
        let (mut watched, mut forgotten) = (sleep(), sleep());
        let dir = tempfile::tempdir().unwrap();
        let mut reaper = start().unwrap();
        let mut pipe = reaper.stdin.take().unwrap();
        writeln!(pipe, "+ {}", watched.id()).unwrap();
        writeln!(pipe, "+ {}", forgotten.id()).unwrap();
        writeln!(pipe, "- {}", forgotten.id()).unwrap();
        writeln!(pipe, "dir {}", dir.path().display()).unwrap();
        drop(pipe);
        reaper.wait().unwrap();
        assert!(!watched.wait().unwrap().success());
        assert!(!dir.path().exists());
        assert!(forgotten.try_wait().unwrap().is_none());
        forgotten.kill().unwrap();
        forgotten.wait().unwrap();
    }
}
