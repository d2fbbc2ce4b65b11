//! Ends what this process started when it can no longer do so itself: after Ctrl-C, a panic that
//! aborts, `kill -9`, or the plain exit of a test binary, which never drops its statics.
//!
//! A small `sh` holds the read end of a pipe that closes whenever we are gone, however that came
//! about, and then kills exactly the processes it was told: those that still have the start time that
//! they had then, since a number may be another process's by now. The kernel's parent death signal
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

/// Reads `+ pid:start`, `- pid` and `dir path` until the pipe closes; the traps are for terminals that
/// signal every process of the session.
const SCRIPT: &str = r#"
trap '' HUP INT TERM
start_of() {
  read -r stat 2>/dev/null < "/proc/$1/stat" || return
  # Behind the command's name, which may have blanks and brackets in it, the state is the first field.
  set -- ${stat##*) }
  echo "${20}"
}
watched=""
while read -r op arg; do
  case "$op" in
    +) watched="$watched $arg" ;;
    -) kept=""
       for one in $watched; do [ "${one%:*}" = "$arg" ] || kept="$kept $one"; done
       watched="$kept" ;;
    dir) set -- "$@" "$arg" ;;
  esac
done
for one in $watched; do
  pid="${one%:*}" start="${one#*:}"
  [ -n "$start" ] && [ "$(start_of "$pid")" != "$start" ] || kill -9 "$pid"
done
for dir in "$@"; do rm -rf "$dir"; done
"#;

static REAPER: Mutex<Option<Child>> = Mutex::new(None);

/// Has `pid` killed when this process ends.
pub fn watch(pid: u32) {
    tell(&format!("+ {pid}:{}", start_of(pid).unwrap_or_default()));
}

/// The start time of a process, in the kernel's ticks; `None` where the system doesn't say.
fn start_of(pid: u32) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(") ")?;
    fields.split(' ').nth(19).map(str::to_owned)
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
        let (mut watched, forgotten) = (sleep(), sleep());
        // Its number was another process's when it was watched.
        let (another, mut unknown) = (sleep(), sleep());
        let dir = tempfile::tempdir().unwrap();
        let mut reaper = start().unwrap();
        let mut pipe = reaper.stdin.take().unwrap();
        let watch = |child: &Child| format!("+ {}:{}", child.id(), start_of(child.id()).unwrap());
        writeln!(pipe, "{}", watch(&watched)).unwrap();
        writeln!(pipe, "{}", watch(&forgotten)).unwrap();
        writeln!(pipe, "{}1", watch(&another)).unwrap();
        writeln!(pipe, "+ {}:", unknown.id()).unwrap();
        writeln!(pipe, "- {}", forgotten.id()).unwrap();
        writeln!(pipe, "dir {}", dir.path().display()).unwrap();
        drop(pipe);
        reaper.wait().unwrap();
        assert!(!watched.wait().unwrap().success());
        assert!(!dir.path().exists());
        assert!(!unknown.wait().unwrap().success());
        for mut alive in [forgotten, another] {
            assert!(alive.try_wait().unwrap().is_none());
            alive.kill().unwrap();
            alive.wait().unwrap();
        }
    }
}
