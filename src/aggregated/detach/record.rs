//! The I/O of a detach: VMs are read and marked, and what is accepted is recorded on the pool.

use futures::{StreamExt as _, TryStreamExt as _};
use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

use super::PATIENCE;
use super::judge::{Judged, is_a_name, judge};
use crate::aggregated::options::DetachOptions;
use crate::aggregated::path::PoolPath;
use crate::aggregated::pools::StoredPool;
use crate::aggregated::refusal::Refusal;
use crate::aggregated::request::Options;
use crate::aggregated::reviews::ask;
use crate::aggregated::router::Server;
use crate::api::intent::Intents;
use crate::api::{MANAGER, annotations};
use crate::kubevirt::{self, VmView};

/// VMs that are read or marked at once.
const AT_ONCE: usize = 8;
/// How often a VM that changes under our hands is read again.
const ATTEMPTS: usize = 5;

/// What is asked for, of the pool in one version.
pub(super) struct Request<'a> {
    pub(super) server: &'a Server,
    pub(super) path: &'a PoolPath,
    pub(super) asked: &'a DetachOptions,
    pub(super) options: &'a Options,
    /// As it was judged.
    pub(super) pool: &'a StoredPool,
    /// What is recorded on it.
    pub(super) open: &'a Intents,
}

/// The pool after the write.
pub(super) struct Recorded {
    pub(super) replicas: i64,
    pub(super) is_paused: bool,
}

/// What came of marking a VM.
enum Marked {
    /// The VM, as it is now.
    Written(Box<DynamicObject>),
    /// It has changed since it was judged, or is gone.
    Stale,
    /// It can't be marked.
    Refused(String),
}

impl Request<'_> {
    /// Judges each VM that was named, as it is at this moment.
    pub(super) async fn judge_all(&self) -> Result<Vec<Judged>, Refusal> {
        let names = futures::stream::iter(self.asked.virtual_machines.iter().cloned());
        let judged = names.map(|name| async move { self.judge_one(&name).await });
        judged.buffered(AT_ONCE).try_collect().await
    }

    async fn judge_one(&self, name: &str) -> Result<Judged, Refusal> {
        if !is_a_name(name) {
            return Ok(self.judge(None));
        }
        let found = ask("look up the VM", self.vms().get_opt(name)).await?;
        Ok(self.judge(found.as_ref()))
    }

    fn judge(&self, vm: Option<&DynamicObject>) -> Judged {
        let vm = vm.and_then(VmView::read);
        let uid = self.pool.uid();
        judge(vm.as_ref(), uid, &self.path.name, self.open, self.asked)
    }

    /// Marks each VM that is to be recorded: from then on no delete that was planned before can hit it.
    pub(super) async fn mark_all(&self, judged: Vec<Judged>) -> Result<Vec<Judged>, Refusal> {
        let names = self.asked.virtual_machines.iter().cloned();
        let judged = futures::stream::iter(names.zip(judged));
        let marked = judged.map(|(name, judged)| async move { self.mark_one(&name, judged).await });
        marked.buffered(AT_ONCE).try_collect().await
    }

    async fn mark_one(&self, name: &str, mut judged: Judged) -> Result<Judged, Refusal> {
        for _ in 0..ATTEMPTS {
            let Judged::Leaves { uid, version, .. } = &judged else {
                return Ok(judged);
            };
            if self.open.of_vm(uid).is_some() {
                return Ok(judged);
            }
            match self.mark(name, version).await? {
                Marked::Written(vm) => return Ok(self.judge(Some(&vm))),
                Marked::Stale => judged = self.judge_one(name).await?,
                Marked::Refused(why) => {
                    return Ok(Judged::Refused(format!(
                        "it can't be marked as leaving: {why}"
                    )));
                }
            }
        }
        Ok(Judged::Refused(
            "it keeps changing while it is looked at; ask again".to_owned(),
        ))
    }

    async fn mark(&self, name: &str, version: &str) -> Result<Marked, Refusal> {
        let mark = json!({"metadata": {
            "resourceVersion": version,
            "annotations": {(annotations::DETACHING): self.pool.version()},
        }});
        let (api, params, patch) = (self.vms(), self.params(), Patch::Merge(&mark));
        let call = api.patch(name, &params, &patch);
        match tokio::time::timeout(PATIENCE, call).await {
            Ok(Ok(vm)) => Ok(Marked::Written(Box::new(vm))),
            Ok(Err(kube::Error::Api(status))) if matches!(status.code, 404 | 409) => {
                Ok(Marked::Stale)
            }
            Ok(Err(kube::Error::Api(status))) if matches!(status.code, 400 | 403 | 422) => {
                Ok(Marked::Refused(status.message.clone()))
            }
            Ok(Err(error)) => Err(Refusal::of_call("mark the VM", &error)),
            Err(_) => Err(Refusal::timeout(
                "the API server has not answered whether the VM was marked as leaving; ask again: nothing was recorded",
            )),
        }
    }

    /// Records what was accepted, and takes as many off the replicas if they are not replaced, in one write
    /// that is done only if the pool still is in the version that was judged. Nothing new is no write.
    pub(super) async fn record(
        &self,
        accepted: &Intents,
        added: usize,
    ) -> Result<Recorded, Refusal> {
        let pool = self.pool;
        let fewer = if self.asked.replaces() { 0 } else { added };
        let replicas = (pool.replicas() - i64::try_from(fewer).unwrap_or(i64::MAX)).max(0);
        let recorded = Recorded {
            replicas,
            is_paused: pool.is_paused(),
        };
        if added == 0 {
            return Ok(recorded);
        }
        let replicas = (fewer > 0).then_some(replicas);
        let patch = Patch::Json::<()>(record_patch(pool, accepted, replicas));
        let (api, params) = (self.server.pools.api(self.path), self.params());
        let call = api.patch(&self.path.name, &params, &patch);
        let written = match tokio::time::timeout(PATIENCE, call).await {
            Ok(Ok(written)) => written,
            Ok(Err(error)) => return Err(Refusal::of_call("record it on the pool", &error)),
            Err(_) => {
                return Err(Refusal::timeout(
                    "the API server has not answered whether it was recorded; ask again: it is done once",
                ));
            }
        };
        if let (false, Some(version)) = (self.options.dry_run, &written.metadata.resource_version) {
            self.server.pools.wrote(self.path, version);
        }
        Ok(recorded)
    }

    fn vms(&self) -> Api<DynamicObject> {
        let resource = kubevirt::virtual_machine();
        let client = self.server.client.clone();
        Api::namespaced_with(client, &self.path.namespace, &resource)
    }

    fn params(&self) -> PatchParams {
        PatchParams {
            dry_run: self.options.dry_run,
            // Ours, whoever asked: an apply under the caller's name would take the annotation off again.
            field_manager: Some(MANAGER.to_owned()),
            ..PatchParams::default()
        }
    }
}

/// The write of the record, and of the replicas if they change.
fn record_patch(pool: &StoredPool, accepted: &Intents, replicas: Option<i64>) -> json_patch::Patch {
    let mut operations = vec![json!({
        "op": "test", "path": "/metadata/resourceVersion", "value": pool.version(),
    })];
    if pool.meta().annotations.is_none() {
        operations.push(json!({"op": "add", "path": "/metadata/annotations", "value": {}}));
    }
    operations.push(json!({
        "op": "add",
        "path": format!("/metadata/annotations/{}", annotations::INTENT.replace('/', "~1")),
        "value": accepted.write().unwrap_or_default(),
    }));
    if let Some(replicas) = replicas {
        operations.push(json!({"op": "add", "path": "/spec/replicas", "value": replicas}));
    }
    let patch = serde_json::from_value(Value::Array(operations));
    patch.expect("each operation above is one of JSON patch")
}
