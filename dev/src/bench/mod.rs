//! `cargo dev bench`: how fast a pool is made and rolled, how fast it answers, what it writes, and how
//! much memory that takes.
//!
//! Times are ratios within one run, in alternating rounds, so that neither the machine nor its
//! mood is measured. The release build of `vmpool` is measured from outside, through the API
//! server's audit log, a watch and /proc; there is no measuring code in it. Nothing here fails
//! because a number is bad.

mod cluster;
mod latency;
mod memory;
mod numbers;
mod report;
mod restarts;
mod review;
mod rollout;
mod rounds;
mod writes;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use self::cluster::Cluster;
use self::report::Report;
use crate::audit::Filter;
use crate::cargo;
use crate::harness::{Binary, Harness, NAMESPACE, Options, Profile, SERVICE_ACCOUNT};
use crate::standin;

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
    /// Only this part; may be given several times. All of them by default.
    #[arg(long, value_name = "NAME")]
    pub only: Vec<Part>,
}

/// What can be measured by itself.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Making a pool: create_ratio, writes_per_vm, status_writes_per_s, idle_writes_per_min.
    Create,
    /// Answers of the webhook: webhook_p50_ms, webhook_p99_ms.
    Webhook,
    /// Answers to admission reviews: review_ratio_pool_10k, review_ratio_stamp_10k.
    Review,
    /// Answers of the aggregated scale: scale_get_p50_ms, scale_get_proxied_ratio.
    Scale,
    /// Rolling running members: rollout_ratio, rollout_plain_ratio, writes_per_update.
    Rollout,
    /// Peak memory: rss_mib_1000, rss_mib_foreign, rss_mib_5000.
    Memory,
}

impl Part {
    /// All of them, in the order in which they are measured.
    pub const ALL: [Self; 6] = [
        Self::Create,
        Self::Webhook,
        Self::Review,
        Self::Scale,
        Self::Rollout,
        Self::Memory,
    ];

    /// As it is written on the command line.
    const fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Webhook => "webhook",
            Self::Review => "review",
            Self::Scale => "scale",
            Self::Rollout => "rollout",
            Self::Memory => "memory",
        }
    }
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
    /// Running members of the pool that is rolled.
    members: u32,
    /// What each of them takes to boot.
    boot: Duration,
    /// Requests of each kind in a round.
    requests: usize,
}

impl Size {
    fn of(args: &BenchArgs) -> Self {
        match args.quick {
            true => Self {
                rounds: 1,
                vms: 100,
                many: 500,
                rest: Duration::from_secs(10),
                members: 20,
                boot: Duration::from_secs(3),
                requests: 200,
            },
            false => Self {
                rounds: args.rounds,
                vms: 1000,
                many: 5000,
                rest: Duration::from_secs(60),
                members: 200,
                boot: Duration::from_secs(3),
                requests: 2000,
            },
        }
    }
}

/// Runs these parts with hardly anything, and any build of `vmpool`: shows that it works. Answers what
/// `--json` would write.
pub async fn rehearse(binary: Binary, parts: &[Part]) -> Result<Value> {
    let size = Size {
        rounds: 2,
        vms: 10,
        many: 20,
        rest: Duration::from_secs(1),
        members: 10,
        boot: Duration::from_millis(200),
        requests: 20,
    };
    let mut report = Report::new(size);
    measure(size, binary, parts, &mut report).await?;
    Ok(report.json())
}

/// Runs it and prints a table; also of what was measured before something failed.
pub async fn run(args: BenchArgs) -> Result<()> {
    if cfg!(debug_assertions) {
        return again_for_release(&args).await;
    }
    let size = Size::of(&args);
    let parts = match args.only.as_slice() {
        [] => Part::ALL.as_slice(),
        only => only,
    };
    let mut report = Report::new(size);
    let outcome = tokio::select! {
        outcome = measure(size, Binary::Build(Profile::Release), parts, &mut report) => outcome,
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
    for part in &args.only {
        command.arg(format!("--only={}", part.name()));
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

async fn measure(size: Size, binary: Binary, parts: &[Part], report: &mut Report) -> Result<()> {
    let mut harness = Harness::start(Options {
        // KubeVirt writes to every VM several times. In the rounds it would take the processor
        // from what is compared, so that nobody plays it on either side; it joins for the rollout.
        without_standin: true,
        standin: standin::Options {
            boot: size.boot,
            combine_writes: true,
            ..standin::Options::default()
        },
        binary,
        ..Options::default()
    })
    .await?;
    let cluster = Cluster::new(&harness)?;
    let wanted = |part| parts.contains(&part);
    if wanted(Part::Create) {
        rounds::measure(&harness, &cluster, size, report).await?;
    }
    if wanted(Part::Webhook) {
        latency::webhook(&harness, &cluster, size, report).await?;
    }
    if wanted(Part::Review) {
        review::measure(&harness, &cluster, size, report).await?;
    }
    if wanted(Part::Scale) {
        latency::scale(&harness, &cluster, size, report).await?;
    }
    if wanted(Part::Rollout) || wanted(Part::Memory) {
        harness.start_standin().await?;
    }
    if wanted(Part::Rollout) {
        rollout::measure(&harness, &cluster, size, report).await?;
    }
    if wanted(Part::Memory) {
        memory::measure(&harness, &cluster, size, report).await?;
    }
    Ok(())
}

/// Everything that `vmpool` asked to have written.
fn ours() -> Filter {
    Filter::new()
        .service_account(NAMESPACE, SERVICE_ACCOUNT)
        .with_failures()
}

/// Progress goes to standard error: standard output is the table.
fn tell(line: &str) {
    eprintln!("{line}");
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;

    use super::*;

    #[test]
    fn a_part_is_named_as_it_is_read() {
        assert_eq!(Part::value_variants(), Part::ALL);
        for part in Part::ALL {
            assert_eq!(Part::from_str(part.name(), false), Ok(part));
        }
    }
}
