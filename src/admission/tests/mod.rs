//! Cases of the catalogue and rows of the matrix, at the functions that decide them. Names begin with the
//! case (`vd_01`) or row (`m54`) that they are about.

mod bounds;
mod config;
mod defaulting;
mod hook_specs;
mod http;
mod missing;
mod mutated;
mod pool;
mod scale;
mod schema;
mod single;
mod stamping;
mod trial;

use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::access::Access;
use super::objects::{Lookup, Named, Objects, StoredRevision, Unavailable, VmName};
use super::review::{Request, UserInfo};
use super::verdict::Verdict;
use crate::api::{VirtualMachineConfig, VirtualMachinePool};
use crate::kubevirt::verdict::Verdict as Kubevirts;

/// The uid of every request.
const UID: &str = "e2e4";

/// The user name of the program in these tests.
const OURSELVES: &str = "system:serviceaccount:vmpool-system:vmpool";

/// A pool `name` with a spec of `config: {name: desktop}` and `spec`.
fn pool(name: &str, spec: Value) -> Value {
    let mut whole = json!({"config": {"name": "desktop"}});
    merge(&mut whole, spec);
    json!({
        "apiVersion": "vmpool.dev/v1alpha1", "kind": "VirtualMachinePool",
        "metadata": {"name": name, "namespace": "team", "uid": format!("uid-of-{name}")},
        "spec": whole,
    })
}

/// The smallest config that KubeVirt would take, and `spec`.
fn config(name: &str, spec: Value) -> Value {
    let mut whole = json!({
        "runStrategy": "Always",
        "template": {"spec": {"domain": {}}},
    });
    merge(&mut whole, spec);
    json!({
        "apiVersion": "vmpool.dev/v1alpha1", "kind": "VirtualMachineConfig",
        "metadata": {"name": name, "namespace": "team"},
        "spec": whole,
    })
}

fn scale(name: &str, replicas: i64) -> Value {
    json!({
        "apiVersion": "autoscaling/v1", "kind": "Scale",
        "metadata": {"name": name, "namespace": "team"},
        "spec": {"replicas": replicas}, "status": {"replicas": 1},
    })
}

/// As a merge patch does.
#[expect(
    clippy::needless_pass_by_value,
    reason = "patches are written in place"
)]
fn merge(target: &mut Value, patch: Value) {
    json_patch::merge(target, &patch);
}

/// The body of a request that turns `stored` (null: nothing) into `object`.
fn body(object: &Value, stored: &Value) -> Value {
    let (group, version) = object["apiVersion"]
        .as_str()
        .and_then(|version| version.split_once('/'))
        .unwrap_or_default();
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": UID,
            "kind": {"group": group, "version": version, "kind": object["kind"].as_str().unwrap_or_default()},
            "name": object["metadata"]["name"].as_str().unwrap_or_default(), "namespace": "team",
            "operation": if stored.is_null() {"CREATE"} else {"UPDATE"},
            "userInfo": {"username": "jane", "groups": ["system:authenticated"]},
            "object": object, "oldObject": stored, "dryRun": false,
        }
    })
}

fn request(object: &Value, stored: &Value) -> Request {
    Request::read(body(object, stored).to_string().as_bytes()).unwrap()
}

fn create(object: &Value) -> Request {
    request(object, &Value::Null)
}

/// Paths of the causes.
fn fields(verdict: &Verdict) -> Vec<&str> {
    verdict
        .causes
        .iter()
        .map(|cause| cause.field.as_str())
        .collect()
}

/// `patch` applied to `object`.
fn patched(object: &Value, verdict: &Verdict) -> Value {
    let mut result = object.clone();
    json_patch::patch(&mut result, &verdict.patch).unwrap();
    result
}

/// The objects of a namespace, or none that can be looked up.
#[derive(Clone, Debug, Default)]
struct Fake {
    configs: Vec<Value>,
    pools: Vec<Value>,
    revisions: Vec<StoredRevision>,
    vms: Vec<VmName>,
    /// ConfigMaps and claims that there are; all, if it isn't said.
    existing: Option<Vec<Named>>,
    /// KubeVirt's verdicts, one after the other; accepted where there is none.
    kubevirt: Arc<Mutex<Vec<Kubevirts>>>,
    /// The VMs that it was asked about.
    tried: Arc<Mutex<Vec<Value>>>,
    is_down: bool,
    /// Whether KubeVirt and what is asked after it take a minute each.
    is_slow: bool,
    panics: bool,
    /// Nobody may read a config.
    is_forbidden: bool,
}

impl Fake {
    fn answer<T>(&self, answer: T) -> BoxFuture<'static, Lookup<T>>
    where
        T: Send + 'static,
    {
        assert!(!self.panics, "as asked for");
        let answer = if self.is_down {
            Err(Unavailable {
                what: "anything".to_owned(),
                why: "no answer within 3 s".to_owned(),
            })
        } else {
            Ok(answer)
        };
        Box::pin(async move { answer })
    }

    async fn linger(&self) {
        if self.is_slow {
            tokio::time::sleep(std::time::Duration::from_mins(1)).await;
        }
    }

    fn pools(&self) -> Vec<Arc<VirtualMachinePool>> {
        let pools = self.pools.iter().cloned();
        pools
            .map(|pool| Arc::new(serde_json::from_value(pool).unwrap()))
            .collect()
    }

    fn config(&self, name: &str) -> Option<Arc<VirtualMachineConfig>> {
        let found = self
            .configs
            .iter()
            .find(|config| config["metadata"]["name"] == name)?;
        Some(Arc::new(serde_json::from_value(found.clone()).unwrap()))
    }
}

impl Access for Fake {
    fn may_get_config<'a>(
        &'a self,
        user: &'a UserInfo,
        _: &'a str,
        _: &'a str,
    ) -> BoxFuture<'a, Lookup<bool>> {
        self.answer(!self.is_forbidden && !user.username.is_empty())
    }
}

impl Objects for Fake {
    fn exists<'a>(&'a self, _: &'a str, named: &'a Named) -> BoxFuture<'a, Lookup<bool>> {
        let existing = self.existing.as_ref();
        let answer = self.answer(existing.is_none_or(|existing| existing.contains(named)));
        Box::pin(async move {
            self.linger().await;
            answer.await
        })
    }

    fn dry_run<'a>(&'a self, _: &'a str, vm: &'a Value) -> BoxFuture<'a, Kubevirts> {
        self.tried.lock().unwrap().push(vm.clone());
        let mut verdicts = self.kubevirt.lock().unwrap();
        let verdict = match verdicts.is_empty() {
            true => Kubevirts::Accepted,
            false => verdicts.remove(0),
        };
        Box::pin(async move {
            self.linger().await;
            verdict
        })
    }

    fn config<'a>(
        &'a self,
        _: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Lookup<Option<Arc<VirtualMachineConfig>>>> {
        self.answer(Fake::config(self, name))
    }

    fn pool<'a>(
        &'a self,
        _: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Lookup<Option<Arc<VirtualMachinePool>>>> {
        let pools = Fake::pools(self).into_iter();
        self.answer(
            pools
                .into_iter()
                .find(|pool| pool.metadata.name.as_deref() == Some(name)),
        )
    }

    fn pools<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Lookup<Vec<Arc<VirtualMachinePool>>>> {
        self.answer(Fake::pools(self))
    }

    fn revision<'a>(
        &'a self,
        _: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Lookup<Option<Arc<StoredRevision>>>> {
        let found = self
            .revisions
            .iter()
            .find(|revision| revision.name == name)
            .cloned();
        self.answer(found.map(Arc::new))
    }

    fn vms<'a>(&'a self, _: &'a str, _: &'a str) -> BoxFuture<'a, Lookup<Vec<VmName>>> {
        self.answer(self.vms.clone())
    }
}
