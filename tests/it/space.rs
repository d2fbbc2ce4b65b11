//! A test's namespace: kubectl as its administrator, objects as plain JSON, and waiting.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use dev::harness::{Harness, eventually};
use dev::kubectl::Output;
use kube::Client;
use kube::api::{
    Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams,
};
use serde_json::Value;
use vmpool::json::Object;

/// Nothing takes a tenth of it on an idle machine; the machines that run tests are busy.
const TIMEOUT: Duration = Duration::from_secs(90);

/// What tests look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Config,
    DataVolume,
    Event,
    Instance,
    Pod,
    Pool,
    Claim,
    Quota,
    Revision,
    Vm,
}

impl Kind {
    /// Group, version, kind and plural, as the API server has them.
    fn names(self) -> (&'static str, &'static str, &'static str, &'static str) {
        match self {
            Self::Claim => ("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims"),
            Self::Config => (
                "vmpool.dev",
                "v1alpha1",
                "VirtualMachineConfig",
                "virtualmachineconfigs",
            ),
            Self::DataVolume => ("cdi.kubevirt.io", "v1beta1", "DataVolume", "datavolumes"),
            Self::Event => ("events.k8s.io", "v1", "Event", "events"),
            Self::Instance => (
                "kubevirt.io",
                "v1",
                "VirtualMachineInstance",
                "virtualmachineinstances",
            ),
            Self::Pod => ("", "v1", "Pod", "pods"),
            Self::Pool => (
                "vmpool.dev",
                "v1alpha1",
                "VirtualMachinePool",
                "virtualmachinepools",
            ),
            Self::Quota => ("", "v1", "ResourceQuota", "resourcequotas"),
            Self::Revision => ("apps", "v1", "ControllerRevision", "controllerrevisions"),
            Self::Vm => ("kubevirt.io", "v1", "VirtualMachine", "virtualmachines"),
        }
    }

    /// For a dynamic client.
    pub(crate) fn resource(self) -> ApiResource {
        let (group, version, kind, plural) = self.names();
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
    }
}

/// A namespace of a test's own.
pub(crate) struct Space<'h> {
    pub(crate) harness: &'h Harness,
    pub(crate) name: String,
    pub(crate) client: Client,
}

impl<'h> Space<'h> {
    /// Makes a namespace with this prefix.
    pub(crate) async fn new(harness: &'h Harness, prefix: &str) -> Result<Self> {
        Ok(Self {
            harness,
            name: harness.namespace(prefix).await?,
            client: harness.client()?,
        })
    }

    /// One that is there already.
    pub(crate) fn at(harness: &'h Harness, name: &str) -> Result<Self> {
        Ok(Self {
            harness,
            name: name.to_owned(),
            client: harness.client()?,
        })
    }

    /// Deletes it, not waiting for its end.
    pub(crate) fn remove(&self) -> Result<()> {
        let args = ["delete", "namespace", &self.name, "--wait=false"];
        self.blocking(|| self.harness.kubectl().run_ok(&args))
            .map(drop)
    }

    // kubectl, as a user would

    /// Runs kubectl in this namespace; arguments are separated by blanks.
    pub(crate) fn run(&self, args: &str) -> Result<Output> {
        self.run_with(args, "")
    }

    /// The same with this on its standard input.
    pub(crate) fn run_with(&self, args: &str, input: &str) -> Result<Output> {
        let args = ["-n", &self.name]
            .into_iter()
            .chain(args.split_whitespace());
        let args: Vec<&str> = args.collect();
        self.blocking(|| self.harness.kubectl().run_with_input(&args, input))
    }

    /// Runs kubectl, which must succeed, and answers its standard output.
    pub(crate) fn kubectl(&self, args: &str) -> Result<String> {
        let output = self.run(args)?;
        ensure!(output.success, "kubectl {args} failed: {}", output.stderr);
        Ok(output.stdout)
    }

    /// Runs kubectl, which must fail, and answers what it said.
    pub(crate) fn refused(&self, args: &str) -> Result<String> {
        let output = self.run(args)?;
        ensure!(
            !output.success,
            "kubectl {args} did not fail: {}",
            output.stdout
        );
        Ok(output.stderr)
    }

    /// Applies manifests as `kubectl apply -f` does, which must succeed; answers the warnings.
    pub(crate) fn accepts(&self, manifest: impl ToString) -> Result<String> {
        let manifest = manifest.to_string();
        let output = self.run_with("apply -f -", &manifest)?;
        ensure!(output.success, "refused: {}\n{manifest}", output.stderr);
        Ok(output.stderr)
    }

    /// Applies a manifest, which must be refused; answers the reason.
    pub(crate) fn rejects(&self, manifest: impl ToString) -> Result<String> {
        let manifest = manifest.to_string();
        let output = self.run_with("apply -f -", &manifest)?;
        ensure!(!output.success, "admitted: {}\n{manifest}", output.stdout);
        Ok(output.stderr)
    }

    // Objects

    /// A client for one kind in this namespace.
    pub(crate) fn api(&self, kind: Kind) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.name, &kind.resource())
    }

    /// An object, if it exists.
    pub(crate) async fn find(&self, kind: Kind, name: &str) -> Result<Option<Value>> {
        let found = self.api(kind).get_opt(name).await;
        let found = found.with_context(|| format!("failed to get {kind:?} {name}"))?;
        found.map(json).transpose()
    }

    /// An object that exists.
    pub(crate) async fn get(&self, kind: Kind, name: &str) -> Result<Value> {
        let found = self.find(kind, name).await?;
        found.with_context(|| format!("no {kind:?} {name}"))
    }

    /// All objects of a kind, by name.
    pub(crate) async fn list(&self, kind: Kind) -> Result<Vec<Value>> {
        // Some tests make objects that are too deep for a plain reader.
        let api: Api<Object> =
            Api::namespaced_with(self.client.clone(), &self.name, &kind.resource());
        let list = api.list(&ListParams::default()).await;
        let list = list.with_context(|| format!("failed to list {kind:?}"))?;
        let objects = list.into_iter().map(|Object { object, .. }| json(object));
        let mut objects: Vec<Value> = objects.collect::<Result<_>>()?;
        objects.sort_by(|a, b| name(a).cmp(name(b)));
        Ok(objects)
    }

    /// The names of all objects of a kind, sorted.
    pub(crate) async fn names(&self, kind: Kind) -> Result<Vec<String>> {
        let objects = self.list(kind).await?;
        Ok(objects
            .iter()
            .map(|object| name(object).to_owned())
            .collect())
    }

    /// Creates an object without kubectl's help.
    pub(crate) async fn create(&self, kind: Kind, object: &Value) -> Result<Value> {
        let object: DynamicObject = serde_json::from_value(object.clone())?;
        let made = self.api(kind).create(&PostParams::default(), &object).await;
        json(made.with_context(|| format!("failed to create {kind:?}"))?)
    }

    /// Merges a patch into an object.
    pub(crate) async fn merge(&self, kind: Kind, name: &str, patch: &Value) -> Result<Value> {
        let patch = Patch::Merge(patch);
        let patched = self
            .api(kind)
            .patch(name, &PatchParams::default(), &patch)
            .await;
        json(patched.with_context(|| format!("failed to patch {kind:?} {name}"))?)
    }

    // Pools

    /// The pool's members as they are now, those that are going included, by number.
    pub(crate) async fn members(&self, pool: &str) -> Result<Vec<Value>> {
        let pool = self.get(Kind::Pool, pool).await?;
        let uid = uid(&pool).to_owned();
        let mut members = self.list(Kind::Vm).await?;
        members.retain(|vm| controller(vm).is_some_and(|owner| owner["uid"] == uid.as_str()));
        members.sort_by_key(|vm| ordinal(name(vm)));
        Ok(members)
    }

    /// The names of the pool's members.
    pub(crate) async fn member_names(&self, pool: &str) -> Result<Vec<String>> {
        let members = self.members(pool).await?;
        Ok(members.iter().map(|vm| name(vm).to_owned()).collect())
    }

    /// Waits until the pool's members are exactly these, none of them is going away, and the status
    /// says so of the present generation.
    pub(crate) async fn settled(&self, pool: &str, wanted: &[&str]) -> Result<Vec<Value>> {
        self.eventually(&format!("{pool} has the members {wanted:?}"), async || {
            let members = self.members(pool).await?;
            let names: Vec<&str> = members.iter().map(name).collect();
            ensure!(names == wanted, "there are {names:?}");
            let leaving = members.iter().filter(|vm| is_deleting(vm)).map(name);
            let leaving: Vec<&str> = leaving.collect();
            ensure!(leaving.is_empty(), "still going: {leaving:?}");
            let pool = self.get(Kind::Pool, pool).await?;
            let (status, generation) = (&pool["status"], &pool["metadata"]["generation"]);
            ensure!(
                &status["observedGeneration"] == generation,
                "status is of before: {status}"
            );
            ensure!(status["replicas"] == wanted.len(), "status: {status}");
            Ok(members)
        })
        .await
    }

    /// Waits until the members are these and all that are meant to run are Ready.
    pub(crate) async fn ready(&self, pool: &str, wanted: &[&str]) -> Result<Vec<Value>> {
        self.settled(pool, wanted).await?;
        self.eventually(&format!("{pool} is ready"), async || {
            let status = self.get(Kind::Pool, pool).await?["status"].clone();
            ensure!(status["readyReplicas"] == wanted.len(), "status: {status}");
            Ok(())
        })
        .await?;
        self.members(pool).await
    }

    /// Waits until a condition of an object has this status; answers the condition.
    pub(crate) async fn condition(
        &self,
        kind: Kind,
        object: &str,
        type_: &str,
        status: &str,
    ) -> Result<Value> {
        self.eventually(&format!("{type_} of {object} is {status}"), async || {
            let found = self.get(kind, object).await?;
            let condition = condition(&found, type_).context("no such condition")?;
            ensure!(condition["status"] == status, "it is {condition}");
            Ok(condition.clone())
        })
        .await
    }

    /// Events about an object, with this reason.
    pub(crate) async fn events(&self, object: &str, reason: &str) -> Result<Vec<Value>> {
        let mut events = self.list(Kind::Event).await?;
        events.retain(|event| event["regarding"]["name"] == object && event["reason"] == reason);
        Ok(events)
    }

    // Time

    /// Tries until it succeeds, for as long as anything may take.
    pub(crate) async fn eventually<T>(
        &self,
        what: &str,
        attempt: impl AsyncFnMut() -> Result<T>,
    ) -> Result<T> {
        eventually(what, TIMEOUT, attempt).await
    }

    /// Waits until an object is gone.
    pub(crate) async fn gone(&self, kind: Kind, name: &str) -> Result<()> {
        self.eventually(&format!("{kind:?} {name} is gone"), async || {
            match self.find(kind, name).await? {
                Some(object) => bail!("it is there: {}", object["metadata"]),
                None => Ok(()),
            }
        })
        .await
    }

    /// Checks again and again that something stays true for a while.
    pub(crate) async fn stays(
        &self,
        what: &str,
        time: Duration,
        mut check: impl AsyncFnMut() -> Result<()>,
    ) -> Result<()> {
        let end = std::time::Instant::now() + time;
        while std::time::Instant::now() < end {
            check()
                .await
                .with_context(|| format!("it did not stay so: {what}"))?;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }

    /// What a failed test shows.
    pub(crate) fn describe(&self) -> String {
        let mut text = format!("Namespace {}:\n", self.name);
        for args in [
            "get virtualmachinepools.vmpool.dev,virtualmachineconfigs.vmpool.dev,vm,vmi,datavolumes,pvc,controllerrevisions -o wide",
            "get virtualmachinepools.vmpool.dev -o yaml",
            "get events",
        ] {
            if let Ok(output) = self.run(args) {
                text += &format!("{}{}\n", output.stdout, output.stderr);
            }
        }
        text
    }

    fn blocking<T>(&self, work: impl FnOnce() -> T) -> T {
        tokio::task::block_in_place(work)
    }
}

fn json(object: DynamicObject) -> Result<Value> {
    serde_json::to_value(object).context("an object is no JSON")
}

// What tests read of objects

/// `metadata.name`.
pub(crate) fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// `metadata.uid`.
pub(crate) fn uid(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().unwrap_or_default()
}

/// The number at the end of a name.
pub(crate) fn ordinal(name: &str) -> Option<u64> {
    name.rsplit_once('-')?.1.parse().ok()
}

/// The owner reference with `controller: true`.
pub(crate) fn controller(object: &Value) -> Option<&Value> {
    let owners = object["metadata"]["ownerReferences"].as_array()?;
    owners.iter().find(|owner| owner["controller"] == true)
}

/// Whether it is going away.
pub(crate) fn is_deleting(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

/// A condition of an object.
pub(crate) fn condition<'a>(object: &'a Value, type_: &str) -> Option<&'a Value> {
    let conditions = object["status"]["conditions"].as_array()?;
    conditions
        .iter()
        .find(|condition| condition["type"] == type_)
}
