//! What changes while the demo waits: each new state of a pool as a line, from `kubectl get --watch`.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use anyhow::{Context, Result};

use super::screen::Screen;
use crate::kubectl::Kubectl;
use crate::reaper;

/// Name, wanted, there, ready, at the newest revision. What is absent is printed as nothing.
const COLUMNS: &str = concat!(
    "jsonpath={.metadata.name}|{.spec.replicas}|{.status.replicas}|{.status.readyReplicas}|",
    "{.status.currentReplicas}",
    r#"{"\n"}"#
);

/// A running watch; ended when dropped.
pub(super) struct Film {
    kubectl: Child,
}

impl Film {
    pub(super) fn start(kubectl: &Kubectl, namespace: &str, screen: &Screen) -> Result<Self> {
        let mut command = kubectl.command();
        command
            .args(["-n", namespace, "get", "virtualmachinepools.vmpool.dev"])
            .args(["--watch", "-o", COLUMNS])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut kubectl = command.spawn().context("failed to start kubectl")?;
        reaper::watch(kubectl.id());
        let output = kubectl.stdout.take().expect("stdout is piped");
        let screen = screen.clone();
        // It ends with kubectl, whose end closes the pipe.
        std::thread::spawn(move || {
            let mut shown = BTreeMap::new();
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let pool = line.split('|').next().unwrap_or_default().to_owned();
                let frame = frame(&line);
                // A write that changes none of these, or the pool's deletion.
                if shown.get(&pool) != Some(&frame) {
                    screen.note(&frame);
                    shown.insert(pool, frame);
                }
            }
        });
        Ok(Self { kubectl })
    }
}

impl Drop for Film {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.kubectl.kill();
        let _ = self.kubectl.wait();
        reaper::forget(self.kubectl.id());
    }
}

/// A state as it is shown.
fn frame(line: &str) -> String {
    let mut words = line.split('|');
    let mut word = |absent: &str| match words.next() {
        None | Some("") => absent.to_owned(),
        Some(word) => word.to_owned(),
    };
    let (name, wanted, there, ready) = (word("?"), word("1"), word("0"), word("0"));
    let current = word("0");
    let old = match current == there {
        true => String::new(),
        false => format!(", {current} of the newest revision"),
    };
    format!("{name}: {there} of {wanted} VMs, {ready} ready{old}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_new_pool_has_not_said_yet_is_nothing() {
        assert_eq!(frame("web|10|||"), "web: 0 of 10 VMs, 0 ready");
        assert_eq!(frame("web|10|7|3|7"), "web: 7 of 10 VMs, 3 ready");
        assert_eq!(
            frame("web|10|10|9|4"),
            "web: 10 of 10 VMs, 9 ready, 4 of the newest revision"
        );
    }
}
