//! Runs the real kubectl, for what users do by hand.

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// kubectl as one user.
#[derive(Clone, Debug)]
pub struct Kubectl {
    binary: PathBuf,
    kubeconfig: PathBuf,
    cache: Option<PathBuf>,
}

/// What a run came to.
#[derive(Clone, Debug)]
pub struct Output {
    /// Whether it ended with 0.
    pub success: bool,
    /// Its exit code; none if a signal ended it.
    pub code: Option<i32>,
    /// What it wrote to standard output.
    pub stdout: String,
    /// What it wrote to standard error: errors, and `Warning:` lines.
    pub stderr: String,
}

impl Kubectl {
    /// With this binary, as the user of this kubeconfig.
    pub fn new(binary: impl Into<PathBuf>, kubeconfig: impl Into<PathBuf>) -> Self {
        Self {
            binary: binary.into(),
            kubeconfig: kubeconfig.into(),
            cache: None,
        }
    }

    /// The same kubectl as another user.
    pub fn with_kubeconfig(&self, kubeconfig: &Path) -> Self {
        Self {
            kubeconfig: kubeconfig.to_path_buf(),
            ..self.clone()
        }
    }

    /// The same with a folder of its own for what it remembers of servers. In the user's, a control
    /// plane that had the same port hours ago would be taken for this one.
    #[must_use]
    pub fn with_cache(self, folder: impl Into<PathBuf>) -> Self {
        Self {
            cache: Some(folder.into()),
            ..self
        }
    }

    /// The kubeconfig that it uses.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// A command to add to: for runs in the background, plugins, other environments.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.binary);
        command.env("KUBECONFIG", &self.kubeconfig);
        // The user's own preferences (kuberc) would change what is tested.
        command.env("KUBECTL_KUBERC", "false");
        if let Some(folder) = &self.cache {
            command.env("KUBECACHEDIR", folder);
        }
        command
    }

    /// Runs it; whether it succeeded is for the caller to judge.
    pub fn run(&self, args: &[impl AsRef<OsStr>]) -> Result<Output> {
        self.run_with_input(args, "")
    }

    /// Runs it with this text on standard input: `["apply", "-f", "-"]`.
    pub fn run_with_input(&self, args: &[impl AsRef<OsStr>], input: &str) -> Result<Output> {
        let mut child = self
            .command()
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("failed to start {:?}", self.binary))?;
        let mut stdin = child.stdin.take().expect("stdin is piped");
        // In a thread of its own: a pipe is small, and kubectl answers while it reads. An error is
        // one of kubectl ending early, which its output explains.
        let output = std::thread::scope(|scope| {
            scope.spawn(move || stdin.write_all(input.as_bytes()));
            child.wait_with_output()
        })
        .context("failed to wait for kubectl")?;
        Ok(Output {
            success: output.status.success(),
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }

    /// Runs it and answers its standard output; a failure is an error that shows what it said.
    pub fn run_ok(&self, args: &[impl AsRef<OsStr>]) -> Result<String> {
        self.run_ok_with_input(args, "")
    }

    /// Both.
    pub fn run_ok_with_input(&self, args: &[impl AsRef<OsStr>], input: &str) -> Result<String> {
        let output = self.run_with_input(args, input)?;
        if !output.success {
            let args: Vec<_> = args
                .iter()
                .map(|arg| arg.as_ref().to_string_lossy())
                .collect();
            bail!("kubectl {} failed: {}", args.join(" "), output.stderr);
        }
        Ok(output.stdout)
    }

    /// Server-side-applies one or more documents of YAML or JSON.
    pub fn apply(&self, manifest: &str) -> Result<String> {
        self.run_ok_with_input(&["apply", "--server-side", "-f", "-"], manifest)
    }
}
