//! The `vmpool` program: parses the command line and calls the library.

use anyhow::Context as _;
use clap::Parser as _;
use vmpool::cli::{Cli, Command};
use vmpool::{manifests, run, telemetry};

fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Manifests { dir } => manifests::write(&dir)
            .with_context(|| format!("failed to write manifests to {}", dir.display())),
        Command::Run(args) => {
            telemetry::init(args.log_format);
            // There is one provider in the tree; saying so keeps a second one from being chosen silently.
            rustls::crypto::ring::default_provider()
                .install_default()
                .map_err(|_| anyhow::anyhow!("a crypto provider was installed before"))?;
            let runtime = tokio::runtime::Runtime::new().context("failed to start the runtime")?;
            runtime.block_on(run::run(*args))
        }
    }
}
