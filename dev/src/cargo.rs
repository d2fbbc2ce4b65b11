//! Runs cargo from a program that cargo runs.

use std::process::Command;

use crate::workspace;

/// A command for the cargo that built us, in the workspace.
pub fn command(args: &[&str]) -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.current_dir(workspace()).args(args);
    // What `cargo run` tells us about ourselves: build scripts (ring's) run again when it changes,
    // and half the tree would be built anew between this and a cargo that is called directly.
    for (name, _) in std::env::vars_os() {
        let is_about_us = name.to_str().is_some_and(|name| {
            name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
        });
        if is_about_us {
            command.env_remove(name);
        }
    }
    command
}
