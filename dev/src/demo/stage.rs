//! Runs kubectl, shows what it said, and waits. What is true of the objects is [`look`](super::look)'s.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::Value;

use super::screen::Screen;
use crate::kubectl::Kubectl;

/// Between two looks; kubectl itself takes about as long.
const POLL: Duration = Duration::from_millis(200);
/// What is shown of a long answer.
const SHOWN_LINES: usize = 20;
/// The same where nothing is to be seen.
const FEW_LINES: usize = 4;

/// Where the demo happens.
#[derive(Clone, Debug)]
pub(super) struct Stage {
    pub(super) screen: Screen,
    pub(super) kubectl: Kubectl,
    pub(super) namespace: String,
    /// For one thing to come true.
    pub(super) timeout: Duration,
}

impl Stage {
    /// Shows the command, runs it in the namespace, and shows what it said.
    pub(super) fn run(&self, command: &str) -> Result<()> {
        self.show(command, command, "", SHOWN_LINES)
    }

    /// Applies a manifest that a user would have in a file of this name.
    pub(super) fn apply(&self, file: &str, manifest: &str) -> Result<()> {
        self.show(
            &format!("apply -f {file}"),
            "apply -f -",
            manifest,
            SHOWN_LINES,
        )
    }

    /// Applies what another command prints.
    pub(super) fn pipe(&self, command: &str, manifest: &str) -> Result<()> {
        self.screen
            .command(&format!("{command} | kubectl apply -f -"));
        let said = self
            .kubectl
            .run_ok_with_input(&self.args("apply -f -"), manifest)?;
        self.screen.line(&shorten(&said, FEW_LINES));
        Ok(())
    }

    fn show(&self, shown: &str, command: &str, input: &str, lines: usize) -> Result<()> {
        self.screen.command(&format!("kubectl {shown}"));
        let output = self.kubectl.run_with_input(&self.args(command), input)?;
        let said = format!("{}{}", output.stderr, output.stdout);
        if !output.success {
            anyhow::bail!("kubectl {shown} failed: {}", said.trim());
        }
        self.screen.line(&shorten(&said, lines));
        Ok(())
    }

    /// `kubectl wait` with what is left of the patience.
    pub(super) fn wait(&self, command: &str) -> Result<()> {
        let seconds = self.timeout.as_secs();
        let command = format!("wait {command} --timeout={seconds}s");
        self.show(&command, &command, "", FEW_LINES)
    }

    /// Objects of a kind, all or those with a label.
    pub(super) fn list(&self, kind: &str, selector: &str) -> Result<Vec<Value>> {
        let mut args = self.args(&format!("get {kind} -o json"));
        if !selector.is_empty() {
            args.extend(["-l".to_owned(), selector.to_owned()]);
        }
        let list: Value = serde_json::from_str(&self.kubectl.run_ok(&args)?)
            .context("kubectl's answer is no JSON")?;
        Ok(list["items"].as_array().cloned().unwrap_or_default())
    }

    /// One object.
    pub(super) fn get(&self, kind: &str, name: &str) -> Result<Value> {
        let args = self.args(&format!("get {kind} {name} -o json"));
        serde_json::from_str(&self.kubectl.run_ok(&args)?).context("kubectl's answer is no JSON")
    }

    /// Asserts what `look` says, as soon as it succeeds; its last error is ours when it does not.
    pub(super) fn check<T>(&self, what: &str, look: impl Fn() -> Result<T>) -> Result<T> {
        let started = Instant::now();
        let value = self.quietly(what, look)?;
        self.screen.check(what, started.elapsed());
        Ok(value)
    }

    /// The same without showing it.
    pub(super) fn quietly<T>(&self, what: &str, look: impl Fn() -> Result<T>) -> Result<T> {
        let started = Instant::now();
        loop {
            match look() {
                Ok(value) => return Ok(value),
                Err(error) if started.elapsed() > self.timeout => {
                    let timeout = self.timeout;
                    return Err(error.context(format!("not within {timeout:?}: {what}")));
                }
                Err(_) => std::thread::sleep(POLL),
            }
        }
    }

    /// Asserts what must be true at once.
    pub(super) fn check_now<T>(&self, what: &str, look: impl Fn() -> Result<T>) -> Result<T> {
        let started = Instant::now();
        let value = look().with_context(|| what.to_owned())?;
        self.screen.check(what, started.elapsed());
        Ok(value)
    }

    /// No argument of ours has a space in it.
    fn args(&self, command: &str) -> Vec<String> {
        let words = ["-n", &self.namespace].into_iter();
        words
            .chain(command.split_whitespace())
            .map(str::to_owned)
            .collect()
    }
}

/// The beginning of a long answer.
fn shorten(text: &str, most: usize) -> String {
    let lines: Vec<&str> = text.trim_end().lines().collect();
    if lines.len() <= most {
        return lines.join("\n");
    }
    let rest = lines.len() - (most - 1);
    let shown = lines[..most - 1].join("\n");
    format!("{shown}\n… {rest} more")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_answer_is_cut() {
        assert_eq!(shorten("a\nb\n", 16), "a\nb");
        let long = "x\n".repeat(20);
        let shown = shorten(&long, 16);
        assert_eq!(shown.lines().count(), 16);
        assert!(shown.ends_with("… 5 more"));
    }
}
