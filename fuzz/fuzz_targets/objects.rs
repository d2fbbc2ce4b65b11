//! A namespace with one config, its revision and one pool, and a good review for each hook.

use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt as _, ready};
use serde_json::{Value, json};
use vmpool::admission::review::UserInfo;
use vmpool::admission::{
    Access, Lookup, Objects, StoredRevision, VmName, defaulting, objects::Named, stamping,
    validate_config, validate_pool, validate_scale,
};
use vmpool::api::{VirtualMachineConfig, VirtualMachinePool, annotations};
use vmpool::kubevirt::verdict::Verdict;
use vmpool::stamp::{PoolIdentity, PoolInputs, Revision, StampInput, revision_hash, stamp};

/// Who the program is.
pub const OURSELVES: &str = "system:serviceaccount:vmpool-system:vmpool";

const REVISION: &str = "desktop-bcdfghjklm";

/// Everything that is looked up.
#[derive(Debug)]
pub struct Namespace {
    config: Arc<VirtualMachineConfig>,
    pool: Arc<VirtualMachinePool>,
    revision: Arc<StoredRevision>,
}

impl Default for Namespace {
    fn default() -> Self {
        let spec = config()["spec"].as_object().expect("it has one").clone();
        Self {
            config: Arc::new(serde_json::from_value(config()).expect("a config")),
            pool: Arc::new(serde_json::from_value(pool()).expect("a pool")),
            revision: Arc::new(StoredRevision {
                name: REVISION.to_owned(),
                config: "desktop".to_owned(),
                content_hash: revision_hash(&spec),
                spec: Arc::new(spec),
            }),
        }
    }
}

fn config() -> Value {
    json!({
        "apiVersion": "vmpool.dev/v1alpha1", "kind": "VirtualMachineConfig",
        "metadata": {"name": "desktop", "namespace": "team"},
        "spec": {
            "runStrategy": "Always",
            "dataVolumeTemplates": [{"metadata": {"name": "root", "labels": {"a": "b"}}, "spec": {"storage": {}}}],
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {
                "domain": {"cpu": {"cores": 2}, "memory": {"guest": "1Gi"},
                    "devices": {"disks": [{"name": "root", "disk": {}}, {"name": "init", "disk": {}}]}},
                "volumes": [
                    {"name": "root", "dataVolume": {"name": "root"}},
                    {"name": "init", "cloudInitNoCloud": {"secretRef": {"name": "init"}}},
                ],
            }},
        },
    })
}

fn pool() -> Value {
    json!({
        "apiVersion": "vmpool.dev/v1alpha1", "kind": "VirtualMachinePool",
        "metadata": {"name": "web", "namespace": "team", "uid": "uid-of-web"},
        "spec": {
            "replicas": 3, "config": {"name": "desktop"}, "maxUnavailable": "25%",
            "nameGeneration": {"vmPrefix": "web", "appendPostfixToSecretReferences": true, "sharedSecrets": ["a"]},
            "virtualMachineMetadata": {"labels": {"a": "b"}, "annotations": {"a": "b"}},
            "updateStrategy": {"proactive": {"selectionPolicy": {"basePolicy": "Oldest"}, "partition": 0}},
            "scaleInStrategy": {"proactive": {"statePreservation": "Disabled"}},
        },
    })
}

fn member(namespace: &Namespace) -> Value {
    let revision = &namespace.revision;
    stamp(&StampInput {
        namespace: "team",
        pool: PoolIdentity {
            name: "web",
            uid: "uid-of-web",
        },
        config: "desktop",
        revision: Revision {
            name: &revision.name,
            content_hash: &revision.content_hash,
            spec: &revision.spec,
        },
        inputs: &PoolInputs::of(&namespace.pool),
        ordinal: 2,
    })
}

/// A VM that asks for a config's spec.
fn single_vm() -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
        "metadata": {"name": "mine", "annotations": {(annotations::FROM_CONFIG): "desktop", (annotations::POSTFIX): "7"}},
        "spec": {"template": {"spec": {"volumes": [{"name": "x", "containerDisk": {}}]}}},
    })
}

fn scale() -> Value {
    json!({
        "apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "web", "namespace": "team"},
        "spec": {"replicas": 3}, "status": {"replicas": 1},
    })
}

fn review(user: &str, object: &Value, stored: &Value) -> Value {
    let version = object["apiVersion"].as_str().expect("it is good");
    let (group, version) = version.split_once('/').expect("it has a group");
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "e2e4", "kind": {"group": group, "version": version, "kind": object["kind"]},
            "name": object["metadata"]["name"], "namespace": "team",
            "operation": if stored.is_null() {"CREATE"} else {"UPDATE"},
            "userInfo": {"username": user, "groups": ["system:authenticated"]},
            "object": object, "oldObject": stored, "dryRun": false,
        },
    })
}

/// For each hook, some that it admits.
pub fn good() -> Vec<(&'static str, Value)> {
    let nothing = Value::Null;
    let member = member(&Namespace::default());
    vec![
        (defaulting::PATH, review("jane", &pool(), &nothing)),
        (validate_pool::PATH, review("jane", &pool(), &nothing)),
        (validate_pool::PATH, review("jane", &pool(), &pool())),
        (validate_scale::PATH, review("jane", &scale(), &scale())),
        (validate_config::PATH, review("jane", &config(), &nothing)),
        (validate_config::PATH, review("jane", &config(), &config())),
        (stamping::PATH, review(OURSELVES, &member, &nothing)),
        (stamping::PATH, review("jane", &member, &nothing)),
        (stamping::PATH, review("jane", &single_vm(), &nothing)),
    ]
}

fn found<'a, T: Send + 'a>(what: T) -> BoxFuture<'a, Lookup<T>> {
    ready(Ok(what)).boxed()
}

impl Access for Namespace {
    fn may_get_config<'a>(
        &'a self,
        user: &'a UserInfo,
        _: &'a str,
        _: &'a str,
    ) -> BoxFuture<'a, Lookup<bool>> {
        found(!user.username.is_empty())
    }
}

impl Objects for Namespace {
    fn config<'a>(
        &'a self,
        _: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Lookup<Option<Arc<VirtualMachineConfig>>>> {
        found((name == "desktop").then(|| Arc::clone(&self.config)))
    }

    fn pool<'a>(
        &'a self,
        _: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Lookup<Option<Arc<VirtualMachinePool>>>> {
        found((name == "web").then(|| Arc::clone(&self.pool)))
    }

    fn pools<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Lookup<Vec<Arc<VirtualMachinePool>>>> {
        found(vec![Arc::clone(&self.pool)])
    }

    fn revision<'a>(
        &'a self,
        _: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Lookup<Option<Arc<StoredRevision>>>> {
        found((name == REVISION).then(|| Arc::clone(&self.revision)))
    }

    fn exists<'a>(&'a self, _: &'a str, named: &'a Named) -> BoxFuture<'a, Lookup<bool>> {
        let (Named::ConfigMap(name) | Named::Claim(name) | Named::DataVolume(name)) = named;
        found(name.len() % 2 == 0)
    }

    fn dry_run<'a>(&'a self, _: &'a str, _: &'a Value) -> BoxFuture<'a, Verdict> {
        ready(Verdict::Accepted).boxed()
    }

    fn vms<'a>(&'a self, _: &'a str, prefix: &'a str) -> BoxFuture<'a, Lookup<Vec<VmName>>> {
        found(vec![VmName {
            name: format!("{prefix}-4"),
            ordinal: 4,
            pool_uid: None,
        }])
    }
}
