//! A made-up API server behind a kube client, and a router on it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

use axum::Router;
use http::{Request, Response};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::client::Body;
use kube::core::DynamicObject;
use serde_json::{Value, json};

use super::super::router::{AggregatedConfig, router};
use super::super::{AggregatedMetrics, TrustStore};
use crate::cache::{Caches, PoolEntry, Step};
use crate::kubevirt::VmView;

/// What it knows, and what it was asked.
#[derive(Default)]
pub(super) struct State {
    /// Groups of the user whom each token is of; the user is named like the token.
    pub(super) tokens: BTreeMap<String, Vec<String>>,
    /// Who may do everything.
    pub(super) allowed: BTreeSet<String>,
    /// Objects by path below `/apis`.
    pub(super) objects: BTreeMap<String, Value>,
    /// Method and path with query, and the body.
    pub(super) calls: Vec<(String, Value)>,
    /// Answers 500 to all that is asked.
    pub(super) broken: bool,
    /// Another writer changes the pool so many times just before we do.
    pub(super) overtaken: u32,
    /// Takes no change of the pool, whatever it is.
    pub(super) refuses: bool,
    /// What becomes of VMs just before we mark them, the last one first.
    pub(super) vm_changes: Vec<VmChange>,
}

/// What becomes of a VM just before we mark it.
#[derive(Clone, Copy, Debug)]
pub(super) enum VmChange {
    /// Its version is another one.
    Touched,
    /// Somebody deletes it.
    Deleted,
    /// It may not be marked.
    Refused,
}

#[derive(Clone, Default)]
pub(super) struct Fake {
    state: Arc<Mutex<State>>,
    pub(super) caches: Arc<Caches>,
    trust: TrustStore,
}

const POOL: &str = "/apis/vmpool.dev/v1alpha1/namespaces/team/virtualmachinepools/web";

/// A pool with three of four VMs.
pub(super) fn pool() -> Value {
    json!({
        "apiVersion": "vmpool.dev/v1alpha1", "kind": "VirtualMachinePool",
        "metadata": {
            "name": "web", "namespace": "team", "uid": "uid-web", "resourceVersion": "7", "generation": 1,
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {"replicas": 4, "config": {"name": "desktop"}},
        "status": {"replicas": 3, "labelSelector": "vmpool.dev/pool-uid=uid-web"},
    })
}

impl Fake {
    /// With a pool that the caches show too, and a user `jane`.
    pub(super) fn with_pool() -> Self {
        let fake = Self::empty();
        fake.state().objects.insert(POOL.to_owned(), pool());
        fake.show(pool());
        fake
    }

    /// Without anything but `jane`.
    pub(super) fn empty() -> Self {
        let fake = Self::default();
        {
            let mut state = fake.state();
            state.tokens.insert("jane".to_owned(), Vec::new());
            state.allowed.insert("jane".to_owned());
        }
        fake.sync();
        fake
    }

    /// Before the caches are complete.
    pub(super) fn starting() -> Self {
        let fake = Self::with_pool();
        fake.caches.pools.take(Step::Init);
        fake
    }

    fn sync(&self) {
        self.caches.pools.take(Step::Init);
        self.caches.pools.take(Step::InitDone);
        self.caches.vms.take(Step::Init);
        self.caches.vms.take(Step::InitDone);
    }

    /// The caches are shown a pool.
    pub(super) fn show(&self, pool: Value) {
        let object: DynamicObject = serde_json::from_value(pool).unwrap();
        let entry = PoolEntry::read(object).unwrap();
        self.caches.pools.take(Step::Apply(entry));
    }

    /// The cluster says whose certificates count.
    pub(super) fn believes(&self, data: BTreeMap<String, String>) {
        self.is_told(data).unwrap();
    }

    /// The same where not all of it can be read.
    pub(super) fn is_told(&self, data: BTreeMap<String, String>) -> Result<(), String> {
        let map = ConfigMap {
            data: Some(data),
            ..ConfigMap::default()
        };
        self.trust.take(&map)
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Has a VM, which the caches show too.
    pub(super) fn has_vm(&self, vm: Value) {
        let name = vm["metadata"]["name"].as_str().unwrap();
        let path = format!("/apis/kubevirt.io/v1/namespaces/team/virtualmachines/{name}");
        self.show_vm(vm.clone());
        self.state().objects.insert(path, vm);
    }

    /// The caches are shown a VM.
    pub(super) fn show_vm(&self, vm: Value) {
        let vm: DynamicObject = serde_json::from_value(vm).unwrap();
        let view = VmView::read(&vm).unwrap();
        self.caches.vms.take(Step::Apply(view));
    }

    /// A VM as it is stored.
    pub(super) fn stored_vm(&self, name: &str) -> Value {
        let path = format!("/apis/kubevirt.io/v1/namespaces/team/virtualmachines/{name}");
        self.state().objects[&path].clone()
    }

    /// Changes the stored pool.
    pub(super) fn change_pool(&self, change: impl FnOnce(&mut Value)) {
        change(self.state().objects.get_mut(POOL).unwrap());
    }

    /// The stored pool.
    pub(super) fn stored(&self) -> Value {
        self.state().objects[POOL].clone()
    }

    /// Calls whose line contains a text, with their bodies.
    pub(super) fn calls(&self, containing: &str) -> Vec<(String, Value)> {
        let mut calls = self.state().calls.clone();
        calls.retain(|(line, _)| line.contains(containing));
        calls
    }

    pub(super) fn router(&self) -> Router {
        router(AggregatedConfig {
            client: self.client(),
            caches: Arc::clone(&self.caches),
            trust: self.trust.clone(),
            metrics: AggregatedMetrics::default(),
        })
    }

    fn client(&self) -> Client {
        let state = Arc::clone(&self.state);
        let service = tower::service_fn(move |request: Request<Body>| {
            let state = Arc::clone(&state);
            async move {
                let (head, body) = request.into_parts();
                let bytes = body.collect_bytes().await.unwrap();
                let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
                let (code, answer) = state.lock().unwrap().answer(&head, body);
                let response = Response::builder().status(code);
                let response = response.body(Body::from(answer.to_string().into_bytes()));
                Ok::<_, tower::BoxError>(response.unwrap())
            }
        });
        Client::new(service, "default")
    }
}

impl State {
    fn answer(&mut self, head: &http::request::Parts, body: Value) -> (u16, Value) {
        let line = format!("{} {}", head.method, head.uri);
        self.calls.push((line, body.clone()));
        if self.broken {
            return (500, status(500, "InternalError"));
        }
        let path = head.uri.path();
        match path {
            "/apis/authentication.k8s.io/v1/tokenreviews" => (201, self.token(body)),
            "/apis/authorization.k8s.io/v1/subjectaccessreviews" => (201, self.access(body)),
            _ => {
                let at = path.strip_suffix("/scale").unwrap_or(path);
                match (head.method.as_str(), at == path) {
                    ("GET", true) => self.read(at),
                    ("PATCH", true) => self.patch(at, body, head.uri.query()),
                    ("PATCH", false) => self.scale(at, &body, head.uri.query()),
                    _ => (405, status(405, "MethodNotAllowed")),
                }
            }
        }
    }

    fn token(&self, mut review: Value) -> Value {
        let token = review["spec"]["token"].as_str().unwrap_or_default();
        review["status"] = match self.tokens.get(token) {
            None => json!({"error": "invalid bearer token"}),
            Some(groups) => json!({
                "authenticated": true, "user": {"username": token, "groups": groups},
            }),
        };
        review
    }

    fn access(&self, mut review: Value) -> Value {
        let user = review["spec"]["user"].as_str().unwrap_or_default();
        let masters = json!("system:masters");
        let groups = review["spec"]["groups"].as_array();
        let allowed =
            self.allowed.contains(user) || groups.is_some_and(|groups| groups.contains(&masters));
        review["status"] = json!({"allowed": allowed});
        review
    }

    fn read(&self, path: &str) -> (u16, Value) {
        match self.objects.get(path) {
            Some(object) => (200, object.clone()),
            None => (404, status(404, "NotFound")),
        }
    }

    fn patch(&mut self, path: &str, patch: Value, query: Option<&str>) -> (u16, Value) {
        let dry_run = query.unwrap_or_default().contains("dryRun");
        if path.contains("/virtualmachines/") {
            return self.mark(path, &patch, dry_run);
        }
        let Some(object) = self.objects.get_mut(path) else {
            return (404, status(404, "NotFound"));
        };
        let next = next_version(object);
        if self.overtaken > 0 {
            self.overtaken -= 1;
            object["metadata"]["resourceVersion"] = next.into();
            return (422, status(422, "Invalid"));
        }
        if self.refuses {
            return (422, status(422, "Invalid"));
        }
        let patch: json_patch::Patch = serde_json::from_value(patch).unwrap();
        let mut changed = object.clone();
        if json_patch::patch(&mut changed, &patch).is_err() {
            return (422, status(422, "Invalid"));
        }
        changed["metadata"]["resourceVersion"] = next.into();
        if !dry_run {
            *object = changed.clone();
        }
        (200, changed)
    }

    /// A merge into a VM, which others change too.
    fn mark(&mut self, path: &str, patch: &Value, dry_run: bool) -> (u16, Value) {
        let Some(vm) = self.objects.get_mut(path) else {
            return (404, status(404, "NotFound"));
        };
        let next = next_version(vm);
        match self.vm_changes.pop() {
            Some(VmChange::Refused) => return (403, status(403, "Forbidden")),
            Some(VmChange::Touched) => vm["metadata"]["resourceVersion"] = next.clone().into(),
            Some(VmChange::Deleted) => {
                vm["metadata"]["resourceVersion"] = next.clone().into();
                vm["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
            }
            None => {}
        }
        if patch["metadata"]["resourceVersion"] != vm["metadata"]["resourceVersion"] {
            return (409, status(409, "Conflict"));
        }
        let mut marked = vm.clone();
        json_patch::merge(&mut marked, patch);
        marked["metadata"]["resourceVersion"] = next.into();
        if !dry_run {
            *vm = marked.clone();
        }
        (200, marked)
    }

    fn scale(&mut self, path: &str, patch: &Value, query: Option<&str>) -> (u16, Value) {
        let (overtaken, dry_run) = (self.overtaken, query.unwrap_or_default().contains("dryRun"));
        let Some(pool) = self.objects.get_mut(path) else {
            return (404, status(404, "NotFound"));
        };
        let next = next_version(pool);
        if overtaken > 0 {
            self.overtaken -= 1;
            pool["metadata"]["resourceVersion"] = next.into();
            return (409, status(409, "Conflict"));
        }
        if patch["metadata"]["resourceVersion"] != pool["metadata"]["resourceVersion"] {
            return (409, status(409, "Conflict"));
        }
        let mut changed = pool.clone();
        changed["metadata"]["resourceVersion"] = next.into();
        changed["spec"]["replicas"] = patch["spec"]["replicas"].clone();
        if !dry_run {
            *pool = changed.clone();
        }
        let answer = json!({
            "apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": changed["metadata"],
            "spec": {"replicas": changed["spec"]["replicas"]},
            "status": {"replicas": changed["status"]["replicas"]},
        });
        (200, answer)
    }
}

fn next_version(object: &Value) -> String {
    let version = object["metadata"]["resourceVersion"].as_str();
    let version: u32 = version.unwrap().parse().unwrap();
    (version + 1).to_string()
}

fn status(code: u16, reason: &str) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
        "message": format!("made up: {reason}"),
    })
}
