//! `cargo dev bench`: how fast a pool is made, what it writes, and how much memory that takes.
//!
//! Times are ratios within one run, in alternating rounds, so that neither the machine nor its
//! mood is measured. The release build of `vmpool` is measured from outside, through the API
//! server's audit log, a watch and /proc; there is no measuring code in it. Nothing here fails
//! because a number is bad.

mod cluster;
mod memory;
mod numbers;
mod report;
mod rounds;
mod writes;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use self::cluster::Cluster;
use self::report::Report;
use crate::cargo;
use crate::harness::{Binary, Harness, Options, Profile};

/// Measures speed, writes and memory.
#[derive(clap::Args, Clone, Debug)]
pub struct BenchArgs {
    /// Write the results to this file too, as one flat JSON object.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// One round with a tenth of the VMs: shows that the benchmark works, measures nothing.
    #[arg(long)]
    pub quick: bool,
    /// Rounds of each kind; the median counts.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
}

/// How much of everything.
#[derive(Clone, Copy, Debug)]
struct Size {
    rounds: u32,
    /// VMs of a round.
    vms: u32,
    /// VMs of the large pool, and of those who are not ours.
    many: u32,
    /// How long nothing is done while writes at rest are counted.
    rest: Duration,
}

impl Size {
    fn of(args: &BenchArgs) -> Self {
        match args.quick {
            true => Self {
                rounds: 1,
                vms: 100,
                many: 500,
                rest: Duration::from_secs(10),
            },
            false => Self {
                rounds: args.rounds,
                vms: 1000,
                many: 5000,
                rest: Duration::from_secs(60),
            },
        }
    }
}

/// Runs all of it with hardly anything, and any build of `vmpool`: shows that it works. Answers what
/// `--json` would write.
pub async fn rehearse(binary: Binary) -> Result<Value> {
    let size = Size {
        rounds: 2,
        vms: 10,
        many: 20,
        rest: Duration::from_secs(1),
    };
    let mut report = Report::new(size);
    measure(size, binary, &mut report).await?;
    Ok(report.json())
}

/// Runs it and prints a table; also of what was measured before something failed.
pub async fn run(args: BenchArgs) -> Result<()> {
    if cfg!(debug_assertions) {
        return again_for_release(&args).await;
    }
    let size = Size::of(&args);
    let mut report = Report::new(size);
    let outcome = tokio::select! {
        outcome = measure(size, Binary::Build(Profile::Release), &mut report) => outcome,
        _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted")),
    };
    println!("{}", report.table());
    if let Some(path) = &args.json {
        let json = format!("{:#}\n", report.json());
        std::fs::write(path, json)
            .with_context(|| format!("failed to write {}", path.display()))?;
    }
    outcome
}

/// The plain limit is measured by this very program: unoptimised, it would be a low one.
async fn again_for_release(args: &BenchArgs) -> Result<()> {
    let mut command = cargo::command(&["run", "--release", "--quiet", "--locked"]);
    command
        .args(["--package", "dev", "--", "bench"])
        .arg(format!("--rounds={}", args.rounds));
    if args.quick {
        command.arg("--quick");
    }
    if let Some(path) = &args.json {
        let path = std::path::absolute(path).context("the current folder is unknown")?;
        command.arg("--json").arg(path);
    }
    eprintln!("Building the benchmark for release (minutes the first time)");
    let status = tokio::task::spawn_blocking(move || command.status())
        .await
        .context("the benchmark panicked")?
        .context("failed to start cargo")?;
    ensure!(status.success(), "the benchmark failed ({status})");
    Ok(())
}

async fn measure(size: Size, binary: Binary, report: &mut Report) -> Result<()> {
    let mut harness = Harness::start(Options {
        // KubeVirt writes to every VM several times. In the rounds it would take the processor
        // from what is compared, so that nobody plays it on either side; it joins for memory.
        without_standin: true,
        binary,
        ..Options::default()
    })
    .await?;
    let cluster = Cluster::new(&harness)?;
    rounds::measure(&harness, &cluster, size, report).await?;
    harness.start_standin().await?;
    memory::measure(&harness, &cluster, size, report).await
}

/// Progress goes to standard error: standard output is the table.
fn tell(line: &str) {
    eprintln!("{line}");
}
