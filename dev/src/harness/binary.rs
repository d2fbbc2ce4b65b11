//! Which `vmpool` is run: the one that [`BINARY_ENV`] names, one that the caller names, or one that
//! cargo builds, once.

use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::cargo;

/// A program to run instead of building one.
pub const BINARY_ENV: &str = "VMPOOL_BIN";

/// Which `vmpool` is run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Binary {
    /// What [`BINARY_ENV`] names, or else what cargo builds with this profile.
    Build(Profile),
    /// This one: a test knows its own.
    Path(PathBuf),
}

/// How cargo builds it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    /// As fast as it can.
    #[default]
    Debug,
    /// What is measured.
    Release,
}

impl Default for Binary {
    fn default() -> Self {
        Self::Build(Profile::default())
    }
}

impl Binary {
    /// Where it is; built if need be.
    pub async fn locate(&self, tell: &(dyn Fn(&str) + Sync)) -> Result<PathBuf> {
        let profile = match self {
            Self::Path(path) => return Ok(path.clone()),
            Self::Build(profile) => *profile,
        };
        if let Some(path) = std::env::var_os(BINARY_ENV).filter(|path| !path.is_empty()) {
            return Ok(path.into());
        }
        tell(match profile {
            Profile::Debug => "Building vmpool (seconds, minutes the first time)",
            Profile::Release => "Building vmpool for release (minutes the first time)",
        });
        tokio::task::spawn_blocking(move || build(profile))
            .await
            .context("the build of vmpool panicked")?
    }
}

/// The part of cargo's messages that says what was built.
#[derive(Deserialize)]
struct Message {
    #[serde(default)]
    target: Target,
    #[serde(default)]
    executable: Option<PathBuf>,
}

#[derive(Default, Deserialize)]
struct Target {
    #[serde(default)]
    name: String,
}

fn build(profile: Profile) -> Result<PathBuf> {
    // Both packages, as `cargo dev` itself was built: with one, cargo would choose features, and so
    // build half of the tree, anew.
    let mut command = cargo::command(&["build", "--locked", "--package", "dev"]);
    command
        .args(["--package", "vmpool", "--bin", "vmpool"])
        .arg("--message-format=json-render-diagnostics")
        .stdin(Stdio::null())
        // Progress and errors are for the person who waits.
        .stderr(Stdio::inherit());
    if profile == Profile::Release {
        command.arg("--release");
    }
    let output = command.output().context("failed to start cargo")?;
    if !output.status.success() {
        bail!("cargo could not build vmpool ({})", output.status);
    }
    executable(&String::from_utf8_lossy(&output.stdout))
}

fn executable(messages: &str) -> Result<PathBuf> {
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Message>(line).ok())
        .filter(|message| message.target.name == "vmpool")
        .find_map(|message| message.executable)
        .context("cargo did not say where it put vmpool")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_says_where_the_program_is() {
        let messages = concat!(
            r#"{"reason":"compiler-artifact","target":{"name":"vmpool","kind":["lib"]},"executable":null}"#,
            "\n",
            r#"{"reason":"compiler-artifact","target":{"name":"vmpool","kind":["bin"]},"executable":"/t/vmpool"}"#,
            "\n",
            r#"{"reason":"build-finished","success":true}"#,
        );
        assert_eq!(executable(messages).unwrap(), PathBuf::from("/t/vmpool"));
        assert!(executable("").is_err());
    }
}
