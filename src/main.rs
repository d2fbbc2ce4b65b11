//! The `vmpool` program: parses the command line and calls the library.

use clap::Parser as _;
use vmpool::cli::{Cli, Command};

fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Manifests { dir } => Ok(vmpool::manifests::write(&dir)?),
        Command::Run(_args) => Ok(()),
    }
}
