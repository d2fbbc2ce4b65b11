//! `cargo dev test`: everything that CI runs, in the same way. CI calls this and nothing else.
//!
//! Every step runs even if one before it failed, so that one run tells all. The tests come last,
//! and the last line counts them. A few tests that fail run once more, alone: those of the control plane
//! wait for things on a busy machine. One that passes then is told of as flaky, which is a fault to mend; why it
//! failed stands above, in the output of the first run.

use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result};

use crate::binaries::find_or_build;
use crate::cargo::command as cargo;
use crate::crds::KUBEVIRT_CRDS_ENV;
use crate::workspace;

/// What `cargo dev test` can be told.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Given to `cargo test`; with any of these only the tests run: `cargo dev test -p vmpool nr_`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

/// A check of sources: arguments of cargo, and a variable to set.
struct Check {
    name: &'static str,
    args: &'static [&'static str],
    env: Option<(&'static str, &'static str)>,
}

const CHECKS: [Check; 3] = [
    Check {
        name: "format",
        args: &["fmt", "--all", "--check"],
        env: None,
    },
    Check {
        name: "lints",
        args: &[
            "clippy",
            "--workspace",
            "--all-targets",
            "--locked",
            "--",
            "-D",
            "warnings",
        ],
        env: None,
    },
    Check {
        name: "documentation",
        args: &["doc", "--workspace", "--no-deps", "--locked"],
        env: Some(("RUSTDOCFLAGS", "-D warnings")),
    },
];

/// Most tests that are run once more: when more fail it is no accident.
const MOST_AGAIN: usize = 3;

/// How many tests passed and failed, over all test binaries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    passed: u64,
    failed: u64,
    /// Failed, and passed when they were run alone.
    flaky: u64,
}

impl fmt::Display for Counts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} passed, {} failed", self.passed, self.failed)?;
        match self.flaky {
            0 => Ok(()),
            flaky => write!(formatter, ", {flaky} flaky"),
        }
    }
}

impl Counts {
    /// Adds a line like `test result: ok. 9 passed; 0 failed; 0 ignored; …`; others are nothing.
    fn add_line(&mut self, line: &str) {
        let Some(result) = line.strip_prefix("test result: ") else {
            return;
        };
        let count = |what: &str| {
            let mut words = result
                .split([' ', ';', '.'])
                .filter(|word| !word.is_empty());
            let mut last = words.next();
            for word in words {
                if word == what {
                    return last.and_then(|number| number.parse().ok()).unwrap_or(0);
                }
                last = Some(word);
            }
            0
        };
        self.passed += count("passed");
        self.failed += count("failed");
    }
}

/// Runs everything; whether all of it succeeded. What failed has been printed, the counts last.
pub fn run(args: &Args) -> Result<bool> {
    // First, so that no test waits for it.
    find_or_build(&|line| println!("{line}"))?;
    let (mut failures, mut skipped) = (Vec::new(), None);
    if args.args.is_empty() {
        for check in &CHECKS {
            let mut command = cargo(check.args);
            command.envs(check.env);
            failures.extend(step(check.name, &mut command)?);
        }
        match has_deny() {
            true => failures.extend(dependencies()?),
            false => skipped = Some(WITHOUT_DENY),
        }
    }
    println!("== tests");
    let mut outcome = tests(&args.args)?;
    if args.args.is_empty() && outcome.may_be_chance() {
        again(&mut outcome)?;
    }
    if !outcome.succeeded {
        failures.push("tests");
    }
    for failure in &failures {
        println!("FAILED: {failure}");
    }
    if let Some(skipped) = skipped {
        println!("SKIPPED: {skipped}");
    }
    println!("{}", outcome.counts);
    Ok(failures.is_empty())
}

/// Runs one step; answers its name if it failed.
fn step(name: &'static str, command: &mut Command) -> Result<Option<&'static str>> {
    println!("== {name}");
    let started = Instant::now();
    let status = command
        .status()
        .with_context(|| format!("failed to run the step {name}"))?;
    println!("== {name}: {status}, {} s", started.elapsed().as_secs());
    Ok((!status.success()).then_some(name))
}

/// Not every machine has the tool, and what it finds changes only with `Cargo.lock`.
const WITHOUT_DENY: &str = "dependencies (licenses, sources): `cargo install cargo-deny` for these";

fn has_deny() -> bool {
    let found = cargo(&["deny", "--version"]).output();
    found.is_ok_and(|output| output.status.success())
}

/// Licenses, duplicates and sources; advisories need the network and are left out.
fn dependencies() -> Result<Option<&'static str>> {
    let args = ["deny", "--locked", "check", "bans", "licenses", "sources"];
    step("dependencies", &mut cargo(&args))
}

/// What became of a run of tests.
#[derive(Debug)]
struct Outcome {
    counts: Counts,
    /// Names of the tests that failed.
    failed: Vec<String>,
    succeeded: bool,
}

impl Outcome {
    /// Whether few failed, and nothing but tests did.
    fn may_be_chance(&self) -> bool {
        let failed = u64::try_from(self.failed.len()) == Ok(self.counts.failed);
        !self.succeeded && failed && (1..=MOST_AGAIN).contains(&self.failed.len())
    }
}

/// Runs what failed once more, alone.
fn again(outcome: &mut Outcome) -> Result<()> {
    println!("== tests that failed, once more");
    let mut args = ["--workspace", "--", "--test-threads=1", "--exact"]
        .map(str::to_owned)
        .to_vec();
    args.extend(outcome.failed.iter().cloned());
    let second = tests(&args)?;
    if second.succeeded && second.counts.passed == outcome.counts.failed {
        for name in &outcome.failed {
            println!(
                "FLAKY: {name} failed once and passed alone; why, is above: search for its name"
            );
        }
        outcome.counts.passed += outcome.counts.failed;
        outcome.counts.flaky = std::mem::take(&mut outcome.counts.failed);
        outcome.succeeded = true;
    }
    Ok(())
}

/// The name in a line like `test scaling::m25 ... FAILED`.
fn failed_test(line: &str) -> Option<&str> {
    line.trim_end()
        .strip_prefix("test ")?
        .strip_suffix(" ... FAILED")
}

/// Runs the tests, shows their output as it comes, and counts.
fn tests(args: &[String]) -> Result<Outcome> {
    let mut command = cargo(&["test", "--locked", "--no-fail-fast"]);
    if args.is_empty() {
        command.arg("--workspace");
    }
    command.args(args).stdout(Stdio::piped());
    let crds = workspace().join("../shared/kubevirt/crds");
    if std::env::var_os(KUBEVIRT_CRDS_ENV).is_none() && crds.is_dir() {
        command.env(KUBEVIRT_CRDS_ENV, crds);
    }
    let mut child = command.spawn().context("failed to run cargo test")?;
    let output = child.stdout.take().expect("stdout is piped");
    let (mut counts, mut failed) = (Counts::default(), Vec::new());
    let mut lines = BufReader::new(output);
    let mut line = Vec::new();
    while lines
        .read_until(b'\n', &mut line)
        .context("failed to read the tests' output")?
        > 0
    {
        let mut stdout = std::io::stdout();
        stdout
            .write_all(&line)
            .context("failed to show the tests' output")?;
        let text = String::from_utf8_lossy(&line);
        counts.add_line(&text);
        failed.extend(failed_test(&text).map(str::to_owned));
        line.clear();
    }
    let status = child.wait().context("failed to wait for cargo test")?;
    Ok(Outcome {
        counts,
        failed,
        succeeded: status.success(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_summed_over_test_binaries() {
        let mut counts = Counts::default();
        for line in [
            "running 3 tests",
            "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 3 filtered out; \
             finished in 0.01s",
            "test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out",
        ] {
            counts.add_line(line);
        }
        assert_eq!(counts.to_string(), "15 passed, 2 failed");
        counts.flaky = 1;
        assert_eq!(counts.to_string(), "15 passed, 2 failed, 1 flaky");
    }

    #[test]
    fn only_a_few_failed_tests_may_be_chance() {
        assert_eq!(
            failed_test("test scaling::m25 ... FAILED\n"),
            Some("scaling::m25")
        );
        assert_eq!(failed_test("test scaling::m25 ... ok"), None);
        let may = |failed: usize, counted: u64| {
            let outcome = Outcome {
                counts: Counts {
                    passed: 9,
                    failed: counted,
                    flaky: 0,
                },
                failed: vec!["a".to_owned(); failed],
                succeeded: false,
            };
            outcome.may_be_chance()
        };
        assert!(may(1, 1) && may(3, 3));
        assert!(!may(4, 4), "many");
        assert!(!may(0, 0), "it is not tests that failed");
        assert!(!may(1, 2), "not all are known by name");
    }
}
