//! The real curl: a caller that knows nothing of Kubernetes.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use dev::controlplane::pki::Pair;
use serde_json::Value;
use tempfile::TempDir;

use crate::Space;

/// Who calls whom, and how.
pub(crate) struct Curl {
    base: String,
    args: Vec<String>,
    /// The certificate's files, which `args` name.
    files: Option<TempDir>,
}

/// What came back.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    /// Null if it is no JSON.
    pub(crate) body: Value,
}

impl Answer {
    /// It is a Status with this code and reason.
    pub(crate) fn refused(&self, code: u16, reason: &str) -> Result<()> {
        ensure!(
            self.code == code && self.body["kind"] == "Status" && self.body["reason"] == reason,
            "not {code} {reason}: {self:?}"
        );
        Ok(())
    }
}

impl Curl {
    /// Straight to the program, whose certificate is not looked at.
    pub(crate) fn to_program(ns: &Space<'_>) -> Self {
        Self::to(format!(
            "https://127.0.0.1:{}",
            ns.harness.admission_port(0)
        ))
    }

    /// The same of a caller, to one of two replicas.
    pub(crate) fn at_replica(mut self, ns: &Space<'_>, index: usize) -> Self {
        self.base = format!("https://127.0.0.1:{}", ns.harness.admission_port(index));
        self
    }

    /// Through the API server.
    pub(crate) fn to_api_server(ns: &Space<'_>) -> Self {
        Self::to(ns.harness.plane().url().to_owned())
    }

    fn to(base: String) -> Self {
        Self {
            base,
            args: Vec::new(),
            files: None,
        }
    }

    /// As whoever has this token.
    pub(crate) fn token(mut self, token: &str) -> Self {
        self.args
            .extend(["-H".to_owned(), format!("Authorization: Bearer {token}")]);
        self
    }

    /// With this header.
    pub(crate) fn header(mut self, header: &str) -> Self {
        self.args.extend(["-H".to_owned(), header.to_owned()]);
        self
    }

    /// With a client certificate.
    pub(crate) fn certificate(mut self, pair: &Pair) -> Result<Self> {
        let files = tempfile::tempdir()?;
        let (cert, key) = pair.write(files.path(), "client")?;
        for (flag, file) in [("--cert", cert), ("--key", key)] {
            self.args
                .extend([flag.to_owned(), file.display().to_string()]);
        }
        self.files = Some(files);
        Ok(self)
    }

    /// Sends a request and waits for the answer.
    pub(crate) fn send(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Answer> {
        let mut command = Command::new("curl");
        command
            .args(["--silent", "--show-error", "--insecure", "--path-as-is"])
            .args(["--max-time", "60", "--write-out", "\n%{http_code}"])
            .args(["--request", method])
            .args(&self.args)
            .stdin(Stdio::null());
        if let Some(body) = body {
            command
                .args(["-H", "Content-Type: application/json"])
                .args(["--data", &body.to_string()]);
        }
        command.arg(format!("{}{path}", self.base));
        let output = tokio::task::block_in_place(|| command.output());
        let output = output.context("failed to run curl")?;
        ensure!(
            output.status.success(),
            "curl {method} {path}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let (body, code) = text.rsplit_once('\n').context("curl wrote no status")?;
        Ok(Answer {
            code: code.parse()?,
            body: serde_json::from_str(body).unwrap_or(Value::Null),
        })
    }

    /// Reads.
    pub(crate) fn get(&self, path: &str) -> Result<Answer> {
        self.send("GET", path, None)
    }
}

/// The path of a pool in the aggregated API, and what is behind it.
pub(crate) fn pool_path(ns: &Space<'_>, pool: &str, rest: &str) -> String {
    format!(
        "/apis/subresources.vmpool.dev/v1alpha1/namespaces/{}/virtualmachinepools/{pool}{rest}",
        ns.name
    )
}

/// The token of a service account that is made for this, with what a role of the namespace allows, if any.
pub(crate) fn robot(ns: &Space<'_>, name: &str, role: Option<&str>) -> Result<String> {
    ns.kubectl(&format!("create serviceaccount {name}"))?;
    if let Some(role) = role {
        let account = format!("{}:{name}", ns.name);
        ns.kubectl(&format!(
            "create rolebinding {name} --role={role} --serviceaccount={account}"
        ))?;
    }
    Ok(ns
        .kubectl(&format!("create token {name}"))?
        .trim()
        .to_owned())
}
