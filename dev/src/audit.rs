//! Reads the API server's audit log: who wrote what, with which outcome.
//!
//! The log holds writes only. An event is written once the answer is, so that a reader should
//! [settle](AuditLog::settle) before it counts. Nothing here writes.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::Deserialize;

/// How long the log must not have grown to count as complete.
const QUIET: Duration = Duration::from_millis(300);
/// A log that never rests is read as it is.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(5);

/// One control plane's log.
#[derive(Clone, Debug)]
pub struct AuditLog {
    path: PathBuf,
}

/// A place in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark(u64);

/// One write.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct Event {
    /// create, update, patch, delete or deletecollection.
    pub verb: String,
    /// With the query, where dryRun and fieldManager are.
    #[serde(rename = "requestURI")]
    pub request_uri: String,
    /// Who did it.
    pub user: User,
    /// As whom, if that was another.
    pub impersonated_user: Option<User>,
    /// What was written to.
    pub object_ref: ObjectRef,
    /// The outcome.
    pub response_status: ResponseStatus,
    /// The program that asked.
    pub user_agent: String,
    /// When it came in, as the log has it (RFC 3339).
    pub request_received_timestamp: String,
}

/// A user as the API server authenticated it.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct User {
    /// `system:serviceaccount:<namespace>:<name>` for a service account.
    pub username: String,
    /// Its groups.
    pub groups: Vec<String>,
}

/// What an event is about.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectRef {
    /// Plural, in lower case.
    pub resource: String,
    /// `status`, `scale` and so on; empty for the object itself.
    pub subresource: String,
    /// Empty for what belongs to no namespace.
    pub namespace: String,
    /// Empty where the server made the name.
    pub name: String,
    /// Empty for the core group.
    pub api_group: String,
}

/// The outcome of an event.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct ResponseStatus {
    /// The HTTP status.
    pub code: u16,
    /// The reason, for failures.
    pub reason: Option<String>,
}

impl Event {
    /// Whether it changed something: accepted, and not a dry run.
    pub fn took_effect(&self) -> bool {
        (200..300).contains(&self.response_status.code) && !self.is_dry_run()
    }

    /// Whether it was only to be tried.
    pub fn is_dry_run(&self) -> bool {
        self.request_uri.contains("dryRun=All")
    }

    /// `virtualmachinepools/status`: the resource, with its subresource where there is one.
    pub fn resource(&self) -> String {
        let ObjectRef {
            resource,
            subresource,
            ..
        } = &self.object_ref;
        if subresource.is_empty() {
            resource.clone()
        } else {
            format!("{resource}/{subresource}")
        }
    }
}

/// Which events are wanted; what is not given does not matter.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    user: Option<String>,
    verb: Option<String>,
    resource: Option<String>,
    namespace: Option<String>,
    name: Option<String>,
    failures: bool,
}

impl Filter {
    /// Every write that took effect.
    pub fn new() -> Self {
        Self::default()
    }

    /// By this user, in full.
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.user = Some(user.into());
        self
    }

    /// By this service account.
    pub fn service_account(self, namespace: &str, name: &str) -> Self {
        self.user(format!("system:serviceaccount:{namespace}:{name}"))
    }

    /// With this verb.
    pub fn verb(mut self, verb: impl Into<String>) -> Self {
        self.verb = Some(verb.into());
        self
    }

    /// Of this resource, which `pods/status` is another than `pods`.
    pub fn resource(mut self, resource: impl Into<String>) -> Self {
        self.resource = Some(resource.into());
        self
    }

    /// In this namespace.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Of the object with this name.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Those that failed and dry runs too.
    pub fn with_failures(mut self) -> Self {
        self.failures = true;
        self
    }

    /// Whether an event is wanted.
    pub fn matches(&self, event: &Event) -> bool {
        let is = |wanted: &Option<String>, found: &str| {
            wanted.as_ref().is_none_or(|wanted| wanted == found)
        };
        is(&self.user, &event.user.username)
            && is(&self.verb, &event.verb)
            && is(&self.resource, &event.resource())
            && is(&self.namespace, &event.object_ref.namespace)
            && is(&self.name, &event.object_ref.name)
            && (self.failures || event.took_effect())
    }
}

impl AuditLog {
    /// The log in this file, which need not exist yet.
    pub fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// Everything before this is of no interest to what reads [since](Self::since) it.
    pub fn mark(&self) -> Mark {
        Mark(std::fs::metadata(&self.path).map_or(0, |metadata| metadata.len()))
    }

    /// Waits until the log has not grown for a moment.
    pub async fn settle(&self) {
        let deadline = Instant::now() + SETTLE_TIMEOUT;
        let mut last = (self.mark(), Instant::now());
        while last.1.elapsed() < QUIET && Instant::now() < deadline {
            tokio::time::sleep(QUIET / 10).await;
            let now = self.mark();
            if now != last.0 {
                last = (now, Instant::now());
            }
        }
    }

    /// The wanted events since a mark, in the order of their ends.
    pub fn since(&self, mark: Mark, filter: &Filter) -> Result<Vec<Event>> {
        let mut file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error).context("failed to open the audit log"),
        };
        file.seek(SeekFrom::Start(mark.0))
            .context("failed to find the mark in the audit log")?;
        let mut text = Vec::new();
        file.read_to_end(&mut text)
            .context("failed to read the audit log")?;
        let events = parse(&text)?;
        Ok(events
            .into_iter()
            .filter(|event| filter.matches(event))
            .collect())
    }

    /// How many there are.
    pub fn count_since(&self, mark: Mark, filter: &Filter) -> Result<usize> {
        Ok(self.since(mark, filter)?.len())
    }

    /// How many writes of which kind a user made: `create pods` → 3. For benchmarks, and for
    /// error texts.
    pub fn summary(&self, mark: Mark, filter: &Filter) -> Result<BTreeMap<String, usize>> {
        let mut counts = BTreeMap::new();
        for event in self.since(mark, filter)? {
            let key = format!("{} {}", event.verb, event.resource());
            *counts.entry(key).or_default() += 1;
        }
        Ok(counts)
    }
}

/// One JSON object a line; a last line without its end is still being written, and left out.
fn parse(text: &[u8]) -> Result<Vec<Event>> {
    let end = text
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |at| at + 1);
    text[..end]
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| {
            serde_json::from_slice(line)
                .with_context(|| format!("audit line {:?}", String::from_utf8_lossy(line)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = concat!(
        r#"{"kind":"Event","level":"Metadata","auditID":"a","stage":"ResponseComplete","requestURI":"/api/v1/namespaces/n/pods","verb":"create","user":{"username":"system:serviceaccount:s:a","groups":["g"],"extra":{"x":["y"]}},"sourceIPs":["127.0.0.1"],"userAgent":"x","objectRef":{"resource":"pods","namespace":"n","name":"p","apiVersion":"v1"},"responseStatus":{"metadata":{},"code":201},"requestReceivedTimestamp":"2026-11-30T12:00:00.000001Z"}"#,
        "\n",
        r#"{"requestURI":"/api/v1/namespaces/n/pods/p/status?dryRun=All","verb":"patch","user":{"username":"admin"},"objectRef":{"resource":"pods","subresource":"status","namespace":"n","name":"p"},"responseStatus":{"code":200}}"#,
        "\n",
        r#"{"requestURI":"/api/v1/namespaces/n/pods/p","verb":"delete","user":{"username":"admin"},"objectRef":{"resource":"pods","namespace":"n","name":"p"},"responseStatus":{"code":404,"reason":"NotFound"}}"#,
        "\n",
        r#"{"requestURI":"/api/v1/na"#,
    );

    fn log(text: &str) -> (tempfile::NamedTempFile, AuditLog) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let log = AuditLog::new(file.path().to_path_buf());
        (file, log)
    }

    #[test]
    fn a_line_still_being_written_is_left_out() {
        assert_eq!(parse(LOG.as_bytes()).unwrap().len(), 3);
        assert!(parse(b"").unwrap().is_empty());
        assert!(parse(b"not json\n").is_err());
    }

    #[test]
    fn failures_and_dry_runs_count_only_when_asked_for() {
        let (_file, log) = log(LOG);
        let start = Mark::default();
        let count = |filter: &Filter| log.count_since(start, filter).unwrap();
        assert_eq!(count(&Filter::new()), 1);
        assert_eq!(count(&Filter::new().with_failures()), 3);
        assert_eq!(count(&Filter::new().with_failures().resource("pods")), 2);
        assert_eq!(
            count(&Filter::new().with_failures().resource("pods/status")),
            1
        );
        assert_eq!(count(&Filter::new().service_account("s", "a")), 1);
        assert_eq!(count(&Filter::new().service_account("s", "b")), 0);
        assert_eq!(
            count(&Filter::new().verb("create").namespace("n").name("p")),
            1
        );
        let summary = log.summary(start, &Filter::new().with_failures().user("admin"));
        assert_eq!(
            summary.unwrap(),
            BTreeMap::from([("delete pods".into(), 1), ("patch pods/status".into(), 1)])
        );
    }

    #[test]
    fn a_mark_hides_what_was_before() {
        let (file, log) = log("");
        let mark = log.mark();
        std::fs::write(file.path(), LOG.split_inclusive('\n').next().unwrap()).unwrap();
        assert_eq!(log.count_since(mark, &Filter::new()).unwrap(), 1);
        assert_eq!(log.count_since(log.mark(), &Filter::new()).unwrap(), 0);
        let absent = AuditLog::new(file.path().with_extension("absent"));
        assert_eq!(
            absent.count_since(absent.mark(), &Filter::new()).unwrap(),
            0
        );
    }
}
