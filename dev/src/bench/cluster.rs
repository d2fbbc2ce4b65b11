//! What the benchmark puts into the cluster, looks at and takes away. It measures nothing itself.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _, pin_mut};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::{
    Api, DeleteParams, DynamicObject, ListParams, PostParams, WatchEvent, WatchParams,
};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::sync::watch;
use vmpool::api::{VirtualMachineConfig, VirtualMachinePool};

use crate::harness::{Harness, eventually};

/// For what takes a minute on a slow machine.
pub(super) const PATIENCE: Duration = Duration::from_secs(600);
/// The name of config and pool in every namespace.
pub(super) const NAME: &str = "desktop";
/// Of the list that is read page by page.
const PAGE: u32 = 500;

/// Clients and the sample that VMs are made of.
pub(super) struct Cluster {
    pub(super) admin: Client,
    /// With `vmpool`'s rights, limits and identity.
    pub(super) account: Client,
    config: Value,
}

impl Cluster {
    pub(super) fn new(harness: &Harness) -> Result<Self> {
        let path = crate::workspace().join("manifests/samples/config.yaml");
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("failed to read {}", path.display()))?;
        let mut config: Value = serde_saphyr::from_str(&text).context("the sample is no YAML")?;
        config["spec"]["runStrategy"] = json!("Halted");
        Ok(Self {
            admin: harness.client()?,
            account: harness.sa_client()?,
            config,
        })
    }

    /// The sample, for VMs that don't run.
    pub(super) fn halted_config(&self) -> Value {
        self.config.clone()
    }

    /// Makes a config and a pool of these.
    pub(super) async fn make(&self, namespace: &str, config: &Value, pool: &Value) -> Result<()> {
        let configs: Api<VirtualMachineConfig> = Api::namespaced(self.admin.clone(), namespace);
        let config = serde_json::from_value(config.clone()).context("this is no config")?;
        configs.create(&PostParams::default(), &config).await?;
        let pool = serde_json::from_value(pool.clone()).context("this is no pool")?;
        self.pools(namespace)
            .create(&PostParams::default(), &pool)
            .await?;
        Ok(())
    }

    /// That VM as it could be created again, as soon as it is there.
    pub(super) async fn vm(&self, namespace: &str, name: &str) -> Result<Value> {
        let api = self.vms(&self.admin, namespace);
        let made = eventually("the VM is made", PATIENCE, async || {
            Ok(api.get(name).await?)
        });
        let mut vm = body(serde_json::to_value(made.await?).context("a VM is no JSON")?)?;
        vm["metadata"]["namespace"] = json!(namespace);
        Ok(vm)
    }

    /// The same config for VMs that run, with nothing that its user would have to make for each.
    pub(super) fn running_config(&self, memory: &str) -> Value {
        let mut config = self.config.clone();
        config["spec"]["runStrategy"] = json!("Always");
        let spec = &mut config["spec"]["template"]["spec"];
        spec["domain"]["memory"] = json!({"guest": memory});
        let is_root = |named: &Value| named["name"] == "root";
        for path in ["/domain/devices/disks", "/volumes"] {
            if let Some(named) = spec.pointer_mut(path).and_then(Value::as_array_mut) {
                named.retain(is_root);
            }
        }
        config
    }

    /// Makes the config and waits for its revision, which is no part of making a pool.
    pub(super) async fn make_config(&self, namespace: &str) -> Result<()> {
        let api: Api<VirtualMachineConfig> = Api::namespaced(self.admin.clone(), namespace);
        let config =
            serde_json::from_value(self.config.clone()).context("the sample is no config")?;
        api.create(&PostParams::default(), &config).await?;
        eventually("the config has a revision", PATIENCE, async || {
            let status = api.get(NAME).await?.status;
            ensure!(
                status.is_some_and(|status| status.latest_revision.is_some()),
                "it has none"
            );
            Ok(())
        })
        .await
    }

    /// Makes a pool of it and answers its UID.
    pub(super) async fn make_pool(
        &self,
        namespace: &str,
        vms: u32,
        paused: bool,
    ) -> Result<String> {
        let pool = serde_json::from_value(json!({
            "apiVersion": vmpool::api::API_VERSION,
            "kind": vmpool::api::POOL_KIND,
            "metadata": {"name": NAME},
            "spec": {
                "replicas": vms,
                "paused": paused,
                "config": {"name": NAME},
                "nameGeneration": {
                    "appendPostfixToSecretReferences": true,
                    "appendPostfixToConfigMapReferences": true,
                },
            },
        }))
        .context("this is no pool")?;
        let made = self
            .pools(namespace)
            .create(&PostParams::default(), &pool)
            .await?;
        made.metadata.uid.context("the pool has no UID")
    }

    /// Waits until the pool says that it has so many VMs.
    pub(super) async fn wait_settled(&self, namespace: &str, vms: u32) -> Result<()> {
        let pools = self.pools(namespace);
        eventually("the pool's status has all VMs", PATIENCE, async || {
            let status = pools.get(NAME).await?.status.unwrap_or_default();
            let generation = status.observed_generation;
            ensure!(
                i64::from(status.replicas) == i64::from(vms) && generation.is_some(),
                "it has {}",
                status.replicas
            );
            Ok(())
        })
        .await
    }

    /// Waits until KubeVirt, as it is played, has done its part: each VM has its claim.
    pub(super) async fn wait_played(&self, namespace: &str, vms: u32) -> Result<()> {
        let api: Api<PersistentVolumeClaim> = Api::namespaced(self.admin.clone(), namespace);
        eventually("each VM has its disk", PATIENCE, async || {
            let page = api.list_metadata(&ListParams::default().limit(1)).await?;
            let rest = page.metadata.remaining_item_count.unwrap_or(0);
            let found = rest + i64::try_from(page.items.len()).unwrap_or(i64::MAX);
            ensure!(found == i64::from(vms), "{found} have one");
            Ok(())
        })
        .await
    }

    /// All VMs of a namespace as they could be created again.
    pub(super) async fn bodies(&self, namespace: &str) -> Result<Vec<Value>> {
        let api = self.vms(&self.admin, namespace);
        let mut params = ListParams::default().limit(PAGE);
        let mut bodies = Vec::new();
        loop {
            let page = api.list(&params).await?;
            for vm in page.items {
                bodies.push(body(serde_json::to_value(vm).context("a VM is no JSON")?)?);
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params.continue_token = Some(token),
                None => return Ok(bodies),
            }
        }
    }

    /// Creates these, so many at a time.
    pub(super) async fn create(
        &self,
        client: &Client,
        namespace: &str,
        bodies: Vec<DynamicObject>,
        at_a_time: usize,
    ) -> Result<()> {
        let (api, params) = (&self.vms(client, namespace), &PostParams::default());
        let created = bodies.into_iter().map(async |vm| {
            api.create(params, &vm)
                .await
                .with_context(|| format!("failed to create {}", vm.name_any()))
        });
        futures::stream::iter(created)
            .buffer_unordered(at_a_time)
            .try_for_each(|_| futures::future::ready(Ok(())))
            .await
    }

    /// Watches the VMs of an empty namespace from now on, and counts them.
    pub(super) async fn count(&self, namespace: &str) -> Result<Counter> {
        let api = self.vms(&self.admin, namespace);
        // Metadata is enough, and decoded in a moment.
        let params = WatchParams::default().timeout(290);
        let stream = api.watch_metadata(&params, "0").await?;
        let (sender, count) = watch::channel(0);
        let task = tokio::spawn(async move {
            pin_mut!(stream);
            let mut seen = BTreeSet::new();
            while let Some(Ok(event)) = stream.next().await {
                if let WatchEvent::Added(vm) = event {
                    seen.insert(vm.name_any());
                    let _ = sender.send(seen.len());
                }
            }
        });
        Ok(Counter { count, task })
    }

    /// Deletes pools, configs, VMs and their disks in a namespace, and waits until all are gone: what
    /// is collected later would be collected while something is measured. The empty namespace stays.
    pub(super) async fn clear(&self, namespace: &str) -> Result<()> {
        let background = DeleteParams::background();
        let all = ListParams::default();
        let configs: Api<VirtualMachineConfig> = Api::namespaced(self.admin.clone(), namespace);
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.admin.clone(), namespace);
        let vms = self.vms(&self.admin, namespace);
        self.pools(namespace)
            .delete_collection(&background, &all)
            .await?;
        configs.delete_collection(&background, &all).await?;
        // The API server closes the connection when deleting thousands takes more than a minute.
        eventually("VMs are deleted", PATIENCE, async || {
            Ok(vms.delete_collection(&background, &all).await?)
        })
        .await?;
        eventually("VMs and claims are gone", PATIENCE, async || {
            let one = ListParams::default().limit(1);
            let vms = vms.list_metadata(&one).await?.items;
            let claims = claims.list_metadata(&one).await?.items;
            ensure!(vms.is_empty() && claims.is_empty(), "some are left");
            Ok(())
        })
        .await
    }

    fn pools(&self, namespace: &str) -> Api<VirtualMachinePool> {
        Api::namespaced(self.admin.clone(), namespace)
    }

    fn vms(&self, client: &Client, namespace: &str) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("kubevirt.io", "v1", "VirtualMachine");
        Api::namespaced_with(client.clone(), namespace, &ApiResource::from_gvk(&kind))
    }
}

/// Counts VMs as they appear.
pub(super) struct Counter {
    count: watch::Receiver<usize>,
    task: tokio::task::JoinHandle<()>,
}

impl Counter {
    /// When there were so many.
    pub(super) async fn reached(mut self, vms: u32) -> Result<Instant> {
        let wanted = usize::try_from(vms).context("too many")?;
        let reached = self.count.wait_for(|count| *count >= wanted);
        let reached = tokio::time::timeout(PATIENCE, reached).await;
        let now = Instant::now();
        reached
            .with_context(|| format!("there were not {vms} VMs within {PATIENCE:?}"))?
            .context("the watch ended")?;
        Ok(now)
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A VM without what only the API server and KubeVirt write.
fn body(mut vm: Value) -> Result<Value> {
    let object = vm.as_object_mut().context("a VM is no object")?;
    object.remove("status");
    let metadata = object.get_mut("metadata").and_then(Value::as_object_mut);
    let metadata = metadata.context("a VM has no metadata")?;
    let ours = ["name", "labels", "annotations", "ownerReferences"];
    metadata.retain(|key, _| ours.contains(&key.as_str()));
    Ok(vm)
}

/// The same VMs for another pool, in another namespace.
pub(super) fn for_pool(
    bodies: &[Value],
    old_uid: &str,
    new_uid: &str,
) -> Result<Vec<DynamicObject>> {
    let text = serde_json::to_string(bodies).context("VMs are no JSON")?;
    serde_json::from_str(&text.replace(old_uid, new_uid)).context("VMs are no objects")
}

/// The same VMs as nobody's.
pub(super) fn foreign(bodies: &[Value], count: u32) -> Result<Vec<DynamicObject>> {
    let bodies = bodies.iter().cycle().zip(0..count);
    bodies
        .map(|(vm, number)| {
            let mut vm = vm.clone();
            vm["metadata"] =
                json!({"name": format!("foreign-{number}"), "labels": {"app": "other"}});
            vm["spec"]["template"]["metadata"] = json!({"labels": {"app": "other"}});
            let template = format!("foreign-{number}-data");
            vm["spec"]["dataVolumeTemplates"][0]["metadata"]["name"] = json!(template);
            rename_disk(&mut vm["spec"]["template"]["spec"]["volumes"], &template);
            serde_json::from_value(vm).context("a VM is no object")
        })
        .collect()
}

fn rename_disk(volumes: &mut Value, name: &str) {
    for volume in volumes.as_array_mut().into_iter().flatten() {
        if volume["dataVolume"].is_object() {
            volume["dataVolume"]["name"] = json!(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vm() -> Value {
        json!({
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachine",
            "metadata": {
                "name": "desktop-1", "uid": "vm", "resourceVersion": "1",
                "labels": {"vmpool.dev/pool-uid": "old"},
                "ownerReferences": [{"uid": "old"}],
            },
            "spec": {
                "dataVolumeTemplates": [{"metadata": {"name": "desktop-1-data"}}],
                "template": {"spec": {"volumes": [{"dataVolume": {"name": "desktop-1-data"}}]}},
            },
            "status": {"ready": true},
        })
    }

    #[test]
    fn a_vm_can_be_created_again_for_another_pool() {
        let body = body(vm()).unwrap();
        assert!(body["metadata"]["uid"].is_null() && body["status"].is_null());
        let moved = for_pool(&[body], "old", "new").unwrap();
        let moved = serde_json::to_value(&moved[0]).unwrap();
        assert_eq!(moved["metadata"]["ownerReferences"][0]["uid"], "new");
        assert_eq!(moved["metadata"]["labels"]["vmpool.dev/pool-uid"], "new");
    }

    #[test]
    fn a_foreign_vm_has_nothing_of_ours_and_a_disk_of_its_own() {
        let made = foreign(&[vm()], 3).unwrap();
        assert_eq!(made.len(), 3);
        let last = serde_json::to_string(&made[2]).unwrap();
        assert!(
            !last.contains("vmpool.dev") && !last.contains("desktop"),
            "{last}"
        );
        assert!(last.contains("foreign-2-data"));
    }
}
