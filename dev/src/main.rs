//! `cargo dev`: what a developer runs. It reads the command line; the work is in the library.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use dev::bench::{self, BenchArgs};
use dev::commands::{test, up};
use dev::demo::{self, DemoArgs};

#[derive(Parser)]
#[command(
    name = "cargo dev",
    bin_name = "cargo dev",
    about = "Develop and test vmpool"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure speed, writes and memory
    Bench(BenchArgs),
    /// Show the main job as it happens, on an embedded control plane or on your own cluster
    Demo(DemoArgs),
    /// Run everything that CI runs, or only some tests
    Test(test::Args),
    /// Start a control plane with KubeVirt's CRDs and leave it running until Ctrl-C
    Up,
}

fn main() -> Result<ExitCode> {
    let succeeded = match Cli::parse().command {
        Command::Bench(args) => in_runtime(bench::run(args)).map(|()| true)?,
        Command::Demo(args) => in_runtime(demo::run(args)).map(|()| true)?,
        Command::Test(args) => test::run(&args)?,
        Command::Up => in_runtime(up::run()).map(|()| true)?,
    };
    Ok(if succeeded {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn in_runtime(work: impl Future<Output = Result<()>>) -> Result<()> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?
        .block_on(work)
}
