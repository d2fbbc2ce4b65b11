//! Runs the real curl, as a program that knows nothing of Kubernetes would call the API.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::stage::Stage;
use crate::kubectl::Kubectl;

/// Curl says the status on a line of its own after the body.
const WRITE_OUT: &str = "\n%{http_code}";

/// How a caller shows who it is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Caller<'a> {
    Nobody,
    Token(&'a str),
    Certificate { cert: &'a Path, key: &'a Path },
}

/// An API server, or the program itself.
pub(super) struct Curl {
    /// What stands for it in what is shown.
    variable: &'static str,
    base: String,
    trust: Vec<String>,
    /// The file that `trust` names, if it is ours: gone when this is.
    authority: Option<tempfile::NamedTempFile>,
}

/// What came back.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: Value,
}

impl Curl {
    /// The server that a kubeconfig names, trusted as it says.
    pub(super) fn to_server(kubectl: &Kubectl) -> Result<Self> {
        let view = kubectl.run_ok(&["config", "view", "--raw", "--minify", "-o", "json"])?;
        let view: Value = serde_json::from_str(&view).context("kubectl's answer is no JSON")?;
        let cluster = &view["clusters"][0]["cluster"];
        let base = cluster["server"].as_str();
        let mut curl = Self {
            variable: "$SERVER",
            base: base.context("the kubeconfig names no server")?.to_owned(),
            trust: vec!["--insecure".to_owned()],
            authority: None,
        };
        if let Some(file) = cluster["certificate-authority"].as_str() {
            curl.trust = vec!["--cacert".to_owned(), file.to_owned()];
        } else if cluster["certificate-authority-data"].is_string() {
            let pem: k8s_openapi::ByteString =
                serde_json::from_value(cluster["certificate-authority-data"].clone())
                    .context("the kubeconfig's authority is not base64")?;
            let file = tempfile::NamedTempFile::new().context("failed to make a file")?;
            std::fs::write(file.path(), pem.0).context("failed to write a certificate")?;
            curl.trust = vec!["--cacert".to_owned(), file.path().display().to_string()];
            curl.authority = Some(file);
        }
        Ok(curl)
    }

    /// Straight to the program on this port of this machine; what it shows is not checked.
    pub(super) fn to_program(port: &str) -> Self {
        Self {
            variable: "$PROGRAM",
            base: format!("https://127.0.0.1:{port}"),
            trust: vec!["--insecure".to_owned()],
            authority: None,
        }
    }

    /// GET with further headers.
    pub(super) fn get(
        &self,
        stage: &Stage,
        caller: Caller<'_>,
        path: &str,
        headers: &[&str],
    ) -> Result<Answer> {
        self.run(stage, caller, path, headers, None)
    }

    /// POST of a JSON object.
    pub(super) fn post(
        &self,
        stage: &Stage,
        caller: Caller<'_>,
        path: &str,
        body: &Value,
    ) -> Result<Answer> {
        let headers = ["Content-Type: application/json"];
        self.run(stage, caller, path, &headers, Some(body))
    }

    fn run(
        &self,
        stage: &Stage,
        caller: Caller<'_>,
        path: &str,
        headers: &[&str],
        body: Option<&Value>,
    ) -> Result<Answer> {
        let mut shown = vec!["curl".to_owned()];
        let mut args = vec!["--silent", "--show-error", "--write-out", WRITE_OUT]
            .into_iter()
            .map(str::to_owned)
            .collect::<Vec<_>>();
        args.extend(self.trust.iter().cloned());
        match caller {
            Caller::Nobody => {}
            Caller::Token(token) => {
                shown.push("-H \"Authorization: Bearer $TOKEN\"".to_owned());
                args.extend(["-H".to_owned(), format!("Authorization: Bearer {token}")]);
            }
            Caller::Certificate { cert, key } => {
                shown.push("--cert client.crt --key client.key".to_owned());
                for (flag, file) in [("--cert", cert), ("--key", key)] {
                    args.extend([flag.to_owned(), file.display().to_string()]);
                }
            }
        }
        for header in headers {
            shown.push(format!("-H {header:?}"));
            args.extend(["-H".to_owned(), (*header).to_owned()]);
        }
        if let Some(body) = body {
            shown.push(format!("-d '{body}'"));
            args.extend(["-d".to_owned(), body.to_string()]);
        }
        args.push(format!("{}{path}", self.base));
        shown.push(format!("{}{path}", self.variable));
        stage.screen.command(&shown.join(" "));
        let answer = said(args)?;
        let body = &answer.body;
        let words = body["message"]
            .as_str()
            .map_or(body.to_string(), str::to_owned);
        stage.screen.line(&format!("{} {words}", answer.status));
        Ok(answer)
    }
}

fn said(args: Vec<String>) -> Result<Answer> {
    let output = Command::new(curl()?)
        .args(args)
        .stdin(Stdio::null())
        .output()
        .context("failed to run curl")?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "curl failed: {}", error.trim());
    let text = String::from_utf8(output.stdout).context("the answer is no text")?;
    answer(&text)
}

fn answer(text: &str) -> Result<Answer> {
    let (body, status) = text.rsplit_once('\n').context("curl said no status")?;
    Ok(Answer {
        status: status.trim().parse().context("curl said no status")?,
        body: serde_json::from_str(body).unwrap_or_else(|_| json!(body)),
    })
}

/// curl, if this machine has one.
pub(super) fn curl() -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut found = std::env::split_paths(&path).map(|folder| folder.join("curl"));
    found
        .find(|file| file.is_file())
        .context("there is no curl on this machine: install it for the steps that call the API")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_is_the_last_line() {
        let json = answer("{\"a\": 1}\n201").unwrap();
        assert_eq!((json.status, json.body), (201, json!({"a": 1})));
        let text = answer("no\nway\n401").unwrap();
        assert_eq!((text.status, text.body), (401, json!("no\nway")));
        assert!(answer("").is_err());
    }
}
