//! A played API server: what the controller's tests script its answers with, and what was called.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::super::fixtures::{Filled, NAMESPACE, Object, caches, config, pool, revision};
use super::super::pool_task::PoolTask;
use super::super::{ControllerConfig, Metrics, Shared};
use crate::cache::{Caches, Key};
use crate::lease::Leadership;
use crate::plan::{self, Limits};

/// What was called: `POST virtualmachines`, `PATCH virtualmachinepools/web/status`.
#[derive(Clone, Default)]
pub(super) struct Calls(pub(super) Arc<Mutex<Vec<(String, Value)>>>);

impl Calls {
    /// Since the last time, events apart.
    pub(super) fn take(&self) -> Vec<String> {
        let calls = std::mem::take(&mut *self.0.lock().unwrap());
        calls
            .into_iter()
            .map(|(call, _)| call)
            .filter(|call| !call.ends_with(" events"))
            .collect()
    }

    pub(super) fn bodies(&self, of: &str) -> Vec<Value> {
        let calls = self.0.lock().unwrap();
        calls
            .iter()
            .filter(|(call, _)| call == of)
            .map(|(_, body)| body.clone())
            .collect()
    }
}

/// Tells how to answer; `None` as any API server would answer a write that succeeds.
pub(super) type Script = fn(&str, usize) -> Option<(u16, Value)>;

pub(super) fn api_server(script: Script) -> (Client, Calls) {
    let calls = Calls::default();
    let log = calls.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let log = log.clone();
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect_bytes().await.unwrap();
            let body: Value = serde_json::from_slice(&body).unwrap_or_default();
            let path = head.uri.path().to_owned();
            let (_, place) = path.split_once(&format!("/{NAMESPACE}/")).unwrap();
            let call = format!("{} {place}", head.method);
            let nth = {
                let mut log = log.0.lock().unwrap();
                log.push((call.clone(), body.clone()));
                log.iter().filter(|(other, _)| *other == call).count()
            };
            let (code, answer) = script(&call, nth).unwrap_or_else(|| match head.method {
                Method::GET => (404, status(404, "NotFound", "not found")),
                Method::POST => (201, stored(body)),
                _ => (200, stored(json!({"metadata": {"name": "x"}}))),
            });
            let answer = Response::builder()
                .status(code)
                .body(Body::from(answer.to_string().into_bytes()))
                .unwrap();
            Ok::<_, Infallible>(answer)
        }
    });
    (Client::new(service, NAMESPACE), calls)
}

pub(super) fn status(code: u16, reason: &str, message: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
        "code": code, "reason": reason, "message": message})
}

pub(super) fn stored(mut object: Value) -> Value {
    let name = object["metadata"]["name"].clone();
    object["metadata"]["uid"] = format!("uid-{}", name.as_str().unwrap_or_default()).into();
    object["metadata"]["resourceVersion"] = "200".into();
    object
}

/// The answer to a list.
pub(super) fn list(items: impl IntoIterator<Item = Object>) -> Value {
    let items: Vec<Value> = items.into_iter().map(|item| item.0).collect();
    json!({"metadata": {"resourceVersion": "1"}, "items": items})
}

pub(super) fn spec() -> Value {
    json!({"runStrategy": "Halted", "template": {"spec": {"domain": {}}}})
}

/// A pool of so many replicas of a config with a revision, and everything else that is there.
pub(super) fn world(replicas: u32) -> Filled {
    caches()
        .pool(pool("web", "uid-web").replicas(replicas))
        .config(config("desktop", spec()))
        .revision(owned_revision())
}

pub(super) fn owned_revision() -> Object {
    revision("desktop", spec(), 1).owned_by(
        "vmpool.dev/v1alpha1",
        "VirtualMachinePool",
        "web",
        "uid-web",
    )
}

pub(super) fn shared(client: Client, caches: Caches) -> Arc<Shared> {
    led(client, caches, Leadership::forever())
}

pub(super) fn led(client: Client, caches: Caches, leadership: Leadership) -> Arc<Shared> {
    Arc::new(Shared::new(ControllerConfig {
        client,
        caches: Arc::new(caches),
        own_namespace: OWN_NAMESPACE.to_owned(),
        limits: Limits { burst: 250 },
        max_in_flight: 4,
        metrics: Metrics::default(),
        plan: plan::plan,
        instance: "test".to_owned(),
        leadership,
        shutdown: CancellationToken::new(),
    }))
}

pub(super) fn task(shared: &Arc<Shared>) -> PoolTask {
    let key = Key::new(NAMESPACE, "web");
    PoolTask::new(Arc::clone(shared), key, "uid-web".to_owned(), None)
}

/// Where the program says it runs.
pub(super) const OWN_NAMESPACE: &str = "vmpool-system";
pub(super) const VMS: &str = "POST virtualmachines";
pub(super) const STATUS: &str = "PATCH virtualmachinepools/web/status";
