//! Which members were down, at every instant, as a watch of their instances tells it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result, ensure};

use super::look::VMI;
use super::stage::Stage;
use crate::reaper;

/// What happened, to whose instance, which one it is, and whether it is Ready now.
const COLUMNS: &str = concat!(
    "jsonpath={.type}|{.object.metadata.name}|{.object.metadata.uid}|",
    r#"{.object.status.conditions[?(@.type=="Ready")].status}{"\n"}"#
);

/// A running watch; ended when dropped.
pub(super) struct Trace {
    kubectl: Child,
    seen: Arc<Mutex<Seen>>,
}

/// What has been seen so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Seen {
    ready: BTreeSet<String>,
    /// The most that were Ready at once, and the fewest since then.
    most: usize,
    fewest: usize,
    /// The instances that each VM had.
    instances: BTreeMap<String, BTreeSet<String>>,
}

impl Seen {
    fn take(&mut self, line: &str) {
        let mut words = line.split('|');
        let mut word = || words.next().unwrap_or_default().to_owned();
        let (kind, name, uid, ready) = (word(), word(), word(), word());
        if name.is_empty() {
            return;
        }
        let instances = self.instances.entry(name.clone()).or_default();
        instances.insert(uid);
        if kind != "DELETED" && ready == "True" {
            self.ready.insert(name);
        } else {
            self.ready.remove(&name);
        }
        let now = self.ready.len();
        if now > self.most {
            (self.most, self.fewest) = (now, now);
        }
        self.fewest = self.fewest.min(now);
    }
}

impl Trace {
    /// Begins with so many running members, all of them Ready.
    pub(super) fn start(stage: &Stage, pool: &str, running: usize) -> Result<Self> {
        let mut command = stage.kubectl.command();
        command
            .args(["-n", &stage.namespace, "get", VMI])
            .args(["-l", &format!("vmpool.dev/pool={pool}")])
            .args(["--watch", "--output-watch-events", "-o", COLUMNS])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut kubectl = command.spawn().context("failed to start kubectl")?;
        reaper::watch(kubectl.id());
        let output = kubectl.stdout.take().expect("stdout is piped");
        let seen = Arc::new(Mutex::new(Seen::default()));
        let trace = Self {
            kubectl,
            seen: Arc::clone(&seen),
        };
        // It ends with kubectl, whose end closes the pipe.
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                lock(&seen).take(&line);
            }
        });
        stage.quietly("the watch shows all members", || {
            let ready = trace.seen().ready.len();
            ensure!(ready == running, "{ready} of {running} are Ready");
            Ok(())
        })?;
        Ok(trace)
    }

    /// The most that were down at once since all were up.
    pub(super) fn most_down(&self) -> usize {
        let seen = self.seen();
        seen.most - seen.fewest
    }

    /// How many instances each VM had.
    pub(super) fn instances(&self) -> BTreeMap<String, usize> {
        let seen = self.seen();
        let counts = seen.instances.iter();
        counts
            .map(|(name, uids)| (name.clone(), uids.len()))
            .collect()
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        lock(&self.seen)
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.kubectl.kill();
        let _ = self.kubectl.wait();
        reaper::forget(self.kubectl.id());
    }
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(lines: &[&str]) -> Seen {
        let mut seen = Seen::default();
        lines.iter().for_each(|line| seen.take(line));
        seen
    }

    #[test]
    fn who_is_gone_or_not_ready_is_down() {
        let start = ["ADDED|a|1|True", "ADDED|b|2|True", "ADDED|c|3|True"];
        let one = ["MODIFIED|a|1|False", "DELETED|a|1|False", "ADDED|a|4|"];
        let back = ["MODIFIED|a|4|True"];
        let seen_one = seen(&[&start[..], &one[..], &back[..]].concat());
        assert_eq!((seen_one.most, seen_one.fewest), (3, 2));
        assert_eq!(seen_one.instances["a"].len(), 2);
        let two = seen(&[&start[..], &one[..], &["DELETED|b|2|True"]].concat());
        assert_eq!((two.most, two.fewest), (3, 1));
    }

    #[test]
    fn while_they_come_up_nobody_is_down() {
        let seen = seen(&["ADDED|a|1|", "MODIFIED|a|1|True", "ADDED|b|2|True"]);
        assert_eq!((seen.most, seen.fewest), (2, 2));
    }
}
