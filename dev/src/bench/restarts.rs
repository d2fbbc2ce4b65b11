//! The plain limit of a rollout: the same VMs restarted, as many at a time, by a loop that does nothing else. How
//! far that is from the ideal is the control plane's and the machine's. `vmpool` runs beside it, as at any restart by
//! a user; and the loop sees by a watch that it is done, where a rollout's end is read from the pool's status.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _};
use kube::Client;
use kube::api::{Api, DynamicObject, ListParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use vmpool::kubevirt::{self, VmiView};

use super::cluster::PATIENCE;

/// By name: its UID, and whether it is Ready.
type Instances = BTreeMap<String, (String, bool)>;

/// Restarts all running VMs of a namespace and waits until each is Ready again.
pub(super) async fn all(client: &Client, namespace: &str, at_a_time: usize) -> Result<Duration> {
    let resource = kubevirt::virtual_machine_instance();
    let api = Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &resource);
    let listed = api.list(&ListParams::default()).await?;
    let running: Vec<(String, String)> = listed
        .iter()
        .filter_map(VmiView::read)
        .map(|vmi| (vmi.name, vmi.uid))
        .collect();
    ensure!(!running.is_empty(), "no VM runs");
    let (instances, task) = watch_all(api);
    let start = Instant::now();
    let restarted = futures::stream::iter(running)
        .map(|(name, uid)| restart(client, namespace, name, uid, instances.clone()))
        .buffer_unordered(at_a_time)
        .try_collect::<()>();
    let done = tokio::time::timeout(PATIENCE, restarted).await;
    let took = start.elapsed();
    task.abort();
    done.with_context(|| format!("not all were restarted within {PATIENCE:?}"))??;
    Ok(took)
}

async fn restart(
    client: &Client,
    namespace: &str,
    name: String,
    uid: String,
    mut instances: watch::Receiver<Instances>,
) -> Result<()> {
    let request = http::Request::put(kubevirt::restart_path(namespace, &name))
        .header("Content-Type", "application/json")
        .body(b"{}".to_vec())?;
    client
        .request_text(request)
        .await
        .with_context(|| format!("failed to restart {name}"))?;
    instances
        .wait_for(|all| {
            all.get(&name)
                .is_some_and(|(now, is_ready)| *is_ready && *now != uid)
        })
        .await
        .context("the watch ended")?;
    Ok(())
}

fn watch_all(api: Api<DynamicObject>) -> (watch::Receiver<Instances>, JoinHandle<()>) {
    let (sender, instances) = watch::channel(Instances::new());
    let task = tokio::spawn(async move {
        let stream = watcher(api, watcher::Config::default()).default_backoff();
        let mut changes = std::pin::pin!(stream.applied_objects());
        while let Some(change) = changes.next().await {
            let Some(vmi) = change.ok().as_ref().and_then(VmiView::read) else {
                continue;
            };
            let is_ready = vmi.is_ready();
            sender.send_modify(|all| drop(all.insert(vmi.name, (vmi.uid, is_ready))));
        }
    });
    (instances, task)
}
