//! `/livez`, `/readyz` and `/metrics` on a port without TLS.
//!
//! Ready means that every named check passes: what has to be there before requests are of use. Alive means
//! that every long-running task is still there and, where it says so from time to time, has said so lately:
//! what only a restart helps against. Neither looks at the API server: its outage is no reason to restart.
//! What is amiss and keeps no request from being answered is said beside, below the "ok".

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus_client::registry::Registry;

/// Why a check fails before anybody has said anything.
const NOT_YET: &str = "not yet";

/// All checks and tasks of the program.
#[derive(Clone, Debug, Default)]
pub struct Health(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    /// Why each check fails, by name; `None` if it passes.
    checks: BTreeMap<&'static str, Option<String>>,
    tasks: BTreeMap<&'static str, Task>,
    /// What is amiss and no reason to get no requests.
    notices: BTreeMap<&'static str, String>,
}

#[derive(Debug)]
struct Task {
    ended: bool,
    last_sign: Instant,
    patience: Option<Duration>,
}

/// One condition of being ready, set by whoever knows.
#[derive(Clone, Debug)]
pub struct Check {
    health: Health,
    name: &'static str,
}

/// Held by a long-running task. Dropped, by its end or a panic, the program is no longer alive.
#[derive(Debug)]
pub struct TaskGuard {
    health: Health,
    name: &'static str,
}

impl Health {
    /// Nothing to check yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a condition of being ready, which fails until told otherwise.
    pub fn check(&self, name: &'static str) -> Check {
        let reason = Some(NOT_YET.to_owned());
        self.lock().checks.insert(name, reason);
        Check {
            health: self.clone(),
            name,
        }
    }

    /// Adds a task that has to go on, and, with `patience`, has to give a sign of life that often.
    pub fn task(&self, name: &'static str, patience: Option<Duration>) -> TaskGuard {
        let task = Task {
            ended: false,
            last_sign: Instant::now(),
            patience,
        };
        self.lock().tasks.insert(name, task);
        TaskGuard {
            health: self.clone(),
            name,
        }
    }

    /// Says what is amiss though requests can be answered; `None` takes it back.
    pub fn notice(&self, name: &'static str, what: Option<String>) {
        let mut inner = self.lock();
        match what {
            Some(what) => inner.notices.insert(name, what),
            None => inner.notices.remove(name),
        };
    }

    /// What keeps the program from being ready, by name.
    pub fn not_ready(&self) -> Vec<(&'static str, String)> {
        let inner = self.lock();
        let failing = inner.checks.iter();
        failing
            .filter_map(|(name, reason)| Some((*name, reason.clone()?)))
            .collect()
    }

    /// What is dead at `now`, by name.
    pub fn not_alive(&self, now: Instant) -> Vec<(&'static str, String)> {
        let inner = self.lock();
        let tasks = inner.tasks.iter();
        tasks
            .filter_map(|(name, task)| Some((*name, task.trouble(now)?)))
            .collect()
    }

    /// The state is small and always whole, so a panic while it was held leaves it usable.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Task {
    fn trouble(&self, now: Instant) -> Option<String> {
        if self.ended {
            return Some("ended".to_owned());
        }
        let silence = now.saturating_duration_since(self.last_sign);
        let patience = self.patience.filter(|patience| silence > *patience)?;
        Some(format!(
            "no sign of life for {} s, at most {} s are usual",
            silence.as_secs(),
            patience.as_secs()
        ))
    }
}

impl Check {
    /// It passes.
    pub fn pass(&self) {
        self.set(None);
    }

    /// It fails, for this reason. Says whether that is news.
    pub fn fail(&self, reason: impl Into<String>) -> bool {
        self.set(Some(reason.into()))
    }

    fn set(&self, reason: Option<String>) -> bool {
        let before = self.health.lock().checks.insert(self.name, reason.clone());
        before != Some(reason)
    }
}

impl TaskGuard {
    /// The task is still at work.
    pub fn sign_of_life(&self) {
        if let Some(task) = self.health.lock().tasks.get_mut(self.name) {
            task.last_sign = Instant::now();
        }
    }

    /// The task has ended as it should, when the program stops.
    pub fn finish(self) {
        self.health.lock().tasks.remove(self.name);
    }
}

impl Drop for TaskGuard {
    fn drop(&mut self) {
        if let Some(task) = self.health.lock().tasks.get_mut(self.name) {
            task.ended = true;
        }
    }
}

/// `/livez`, `/readyz` and `/metrics`.
pub fn router(health: Health, registry: Arc<Registry>) -> Router {
    let live =
        get(
            |State(health): State<Health>| async move { report(&health.not_alive(Instant::now())) },
        );
    let ready = get(|State(health): State<Health>| async move { report_ready(&health) });
    let metrics = get(move || async move { metrics(&registry) });
    Router::new()
        .route("/livez", live)
        .route("/readyz", ready)
        .route("/metrics", metrics)
        .with_state(health)
}

fn report(failing: &[(&'static str, String)]) -> Response {
    if failing.is_empty() {
        return "ok\n".into_response();
    }
    let mut body = String::new();
    for (name, reason) in failing {
        writeln!(body, "[-] {name}: {reason}").expect("a String takes all that is written");
    }
    (StatusCode::SERVICE_UNAVAILABLE, body).into_response()
}

fn report_ready(health: &Health) -> Response {
    let failing = health.not_ready();
    if !failing.is_empty() {
        return report(&failing);
    }
    let mut body = String::from("ok\n");
    for (name, what) in &health.lock().notices {
        writeln!(body, "[!] {name}: {what}").expect("a String takes all that is written");
    }
    body.into_response()
}

fn metrics(registry: &Registry) -> Response {
    let mut body = String::new();
    if prometheus_client::encoding::text::encode(&mut body, registry).is_err() {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    }
    let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, content_type)], body).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_when_every_check_passes_and_names_those_that_do_not() {
        let health = Health::new();
        assert!(health.not_ready().is_empty());
        let caches = health.check("caches");
        let webhooks = health.check("webhooks");
        webhooks.pass();
        assert_eq!(health.not_ready(), [("caches", NOT_YET.to_owned())]);
        assert!(caches.fail("no KubeVirt"));
        assert!(!caches.fail("no KubeVirt"), "that is no news");
        assert_eq!(health.not_ready(), [("caches", "no KubeVirt".to_owned())]);
        caches.pass();
        assert!(health.not_ready().is_empty());
    }

    #[test]
    fn alive_while_every_task_is_there_and_not_silent_for_too_long() {
        let health = Health::new();
        let start = Instant::now();
        let server = health.task("server", None);
        let controller = health.task("controller", Some(Duration::from_mins(1)));
        let later = start + Duration::from_hours(1);
        assert!(health.not_alive(start).is_empty());
        assert_eq!(health.not_alive(later)[0].0, "controller");
        controller.sign_of_life();
        assert!(health.not_alive(start + Duration::from_secs(59)).is_empty());

        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
            let _server = server;
            panic!("as a task might");
        }));
        assert!(panicked.is_err());
        let dead = health.not_alive(Instant::now());
        assert_eq!(dead, [("server", "ended".to_owned())]);
        controller.finish();
        assert_eq!(health.not_alive(later).len(), 1);
    }
}
