//! A rollout of running members, against the ideal: so many waves of as many VMs as may be down at
//! once, each wave as long as a boot. And against the plain limit: the same restarts and nothing else.
//!
//! Every round changes the guest's memory, which KubeVirt applies by a restart only. The writes are
//! the audit log's, restarts apart.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};
use vmpool::api::{VirtualMachineConfig, VirtualMachinePool};

use super::cluster::{Cluster, NAME, PATIENCE};
use super::numbers::count;
use super::report::Report;
use super::writes::is_of_a_vm;
use super::{Size, ours, restarts, tell};
use crate::audit::Event;
use crate::harness::{Harness, eventually};

/// In percent of the members.
const MAX_UNAVAILABLE: u32 = 10;
/// Between two looks at whether the members are there.
const LOOK: Duration = Duration::from_millis(150);
/// What the guest's memory is, in turn.
const MEMORY: [&str; 2] = ["128Mi", "192Mi"];

/// Measures rollout_ratio, rollout_plain_ratio, writes_per_update and restarts_per_update.
pub(super) async fn measure(
    harness: &Harness,
    cluster: &Cluster,
    size: Size,
    report: &mut Report,
) -> Result<()> {
    let namespace = harness.namespace("rollout").await?;
    let client = &cluster.admin;
    let rollout = Rollout {
        configs: Api::namespaced(client.clone(), &namespace),
        pools: Api::namespaced(client.clone(), &namespace),
        members: size.members,
    };
    tell(&format!("A rollout of {} running VMs", size.members));
    let config = cluster.running_config(MEMORY[0]);
    cluster
        .make(&namespace, &config, &pool(size.members))
        .await?;
    rollout.wait_current().await?;
    let ideal = ideal(size.members, size.boot);
    for round in 1..=size.rounds {
        let audit = harness.audit();
        audit.settle().await;
        let mark = audit.mark();
        let memory = MEMORY[usize::from(round % 2 == 1)];
        let took = rollout.change(memory).await?;
        audit.settle().await;
        let events = audit.since(mark, &ours().namespace(&namespace))?;
        let (writes, restarted) = per_member(&events, size.members);
        tell(&format!(
            "  {:.1} s, ideally {:.1} s",
            took.as_secs_f64(),
            ideal.as_secs_f64()
        ));
        report.push("rollout_ratio", took.as_secs_f64() / ideal.as_secs_f64());
        report.push("rollout_seconds", took.as_secs_f64());
        report.push("writes_per_update", writes);
        report.push("restarts_per_update", restarted);
        let plain = restarts::all(client, &namespace, at_once(size.members) as usize).await?;
        tell(&format!("  {:.1} s, restarts alone", plain.as_secs_f64()));
        rollout.wait_current().await?;
        let ratio = took.as_secs_f64() / plain.as_secs_f64();
        report.push("rollout_plain_ratio", ratio);
        report.push("restarts_seconds", plain.as_secs_f64());
    }
    cluster.clear(&namespace).await
}

struct Rollout {
    configs: Api<VirtualMachineConfig>,
    pools: Api<VirtualMachinePool>,
    members: u32,
}

impl Rollout {
    /// From the change of the config until every member runs it and is Ready.
    async fn change(&self, memory: &str) -> Result<Duration> {
        let memory = json!({"guest": memory});
        let patch = json!({"spec": {"template": {"spec": {"domain": {"memory": memory}}}}});
        let start = Instant::now();
        self.configs
            .patch(NAME, &PatchParams::default(), &Patch::Merge(&patch))
            .await?;
        self.wait_current().await?;
        Ok(start.elapsed())
    }

    async fn wait_current(&self) -> Result<()> {
        let members = i64::from(self.members);
        eventually("all members are current and Ready", PATIENCE, async || {
            // Seldom enough to be no load: it takes a percent of what is measured.
            tokio::time::sleep(LOOK).await;
            let config = self.configs.get(NAME).await?;
            let generation = config.metadata.generation;
            let config = config.status.unwrap_or_default();
            ensure!(
                config.observed_generation == generation,
                "the config has no revision yet"
            );
            let pool = self.pools.get(NAME).await?.status.unwrap_or_default();
            ensure!(
                pool.target_revision == config.latest_revision
                    && i64::from(pool.current_replicas) == members
                    && i64::from(pool.ready_replicas) == members,
                "{} are current, {} Ready",
                pool.current_replicas,
                pool.ready_replicas
            );
            Ok(())
        })
        .await
    }
}

fn pool(members: u32) -> Value {
    json!({
        "apiVersion": vmpool::api::API_VERSION,
        "kind": vmpool::api::POOL_KIND,
        "metadata": {"name": NAME},
        "spec": {
            "replicas": members,
            "config": {"name": NAME},
            "maxUnavailable": format!("{MAX_UNAVAILABLE}%"),
        },
    })
}

/// Waves of as many as may be down at once, each as long as a boot.
fn ideal(members: u32, boot: Duration) -> Duration {
    boot * members.div_ceil(at_once(members))
}

/// How many members may be down.
fn at_once(members: u32) -> u32 {
    (members * MAX_UNAVAILABLE / 100).max(1)
}

/// Writes to the objects of a VM but for restarts, and restarts.
fn per_member(events: &[Event], members: u32) -> (f64, f64) {
    let (restarts, writes): (Vec<&Event>, Vec<&Event>) = events
        .iter()
        .filter(|event| is_of_a_vm(event) && !event.is_dry_run())
        .partition(|event| event.object_ref.subresource == "restart");
    let per_member = |events: usize| count(events) / f64::from(members);
    (per_member(writes.len()), per_member(restarts.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::ObjectRef;

    #[test]
    fn ten_percent_makes_ten_waves_and_one_of_few_as_many_as_there_are() {
        let boot = Duration::from_secs(3);
        assert_eq!(ideal(200, boot), Duration::from_secs(30));
        assert_eq!(ideal(5, boot), Duration::from_secs(15));
        assert_eq!(ideal(25, boot), Duration::from_secs(39));
    }

    #[test]
    fn a_restart_is_told_apart_and_the_pools_status_is_none() {
        let write = |resource: &str, subresource: &str| Event {
            object_ref: ObjectRef {
                resource: resource.into(),
                subresource: subresource.into(),
                ..ObjectRef::default()
            },
            ..Event::default()
        };
        let events = [
            write("virtualmachines", ""),
            write("virtualmachines", ""),
            write("virtualmachines", "restart"),
            write("virtualmachinepools", "status"),
        ];
        assert_eq!(per_member(&events, 2), (1.0, 0.5));
    }
}
