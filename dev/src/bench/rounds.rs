//! Alternating rounds: a pool of VMs, and the same VMs created by hand as fast as can be.
//!
//! Both are timed by the same watch, from just before the first request to the last VM's
//! appearance; by the same service account, through the same webhooks, over as many connections.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::Value;

use super::cluster::{Cluster, for_pool};
use super::numbers::count;
use super::report::Report;
use super::writes::{self, Writes};
use super::{Size, ours, tell};
use crate::audit::Mark;
use crate::harness::Harness;

/// `vmpool run --max-in-flight`, its default.
const CONNECTIONS: usize = 32;
/// Enough for the API server to have met every kind.
const WARM_UP_VMS: u32 = 20;
/// Before rest begins: a last status, batched events.
const CALM: Duration = Duration::from_secs(10);

/// VMs as a pool made them, and whose they were.
struct Made {
    bodies: Vec<Value>,
    uid: String,
}

/// Measures create_ratio, writes_per_vm, status_writes_per_s and idle_writes_per_min.
pub(super) async fn measure(
    harness: &Harness,
    cluster: &Cluster,
    size: Size,
    report: &mut Report,
) -> Result<()> {
    let rounds = Rounds {
        harness,
        cluster,
        vms: size.vms,
    };
    rounds.warm_up().await?;
    let mut made = None;
    for round in 1..=size.rounds {
        tell(&format!("Round {round} of {}", size.rounds));
        let (pool, plain) = match made.take() {
            // Whoever comes second finds a busier store: every other round goes the other way.
            Some(last) if round % 2 == 0 => {
                let plain = rounds.plain(&last).await?;
                let (pool, now) = rounds.pool(report, None).await?;
                made = Some(now);
                (pool, plain)
            }
            _ => {
                let rest = (round == 1).then_some(size.rest);
                let (pool, now) = rounds.pool(report, rest).await?;
                let plain = rounds.plain(&now).await?;
                made = Some(now);
                (pool, plain)
            }
        };
        report.push("pool_seconds", pool.as_secs_f64());
        report.push("plain_seconds", plain.as_secs_f64());
        report.push("create_ratio", plain.as_secs_f64() / pool.as_secs_f64());
    }
    Ok(())
}

struct Rounds<'a> {
    harness: &'a Harness,
    cluster: &'a Cluster,
    vms: u32,
}

impl Rounds<'_> {
    async fn warm_up(&self) -> Result<()> {
        let namespace = self.harness.namespace("warm-up").await?;
        self.cluster.make_config(&namespace).await?;
        self.cluster
            .make_pool(&namespace, WARM_UP_VMS, false)
            .await?;
        self.cluster.wait_settled(&namespace, WARM_UP_VMS).await?;
        self.cluster.clear(&namespace).await
    }

    /// From the pool's creation to its last VM. With `rest`, writes at rest are counted after it.
    async fn pool(&self, report: &mut Report, rest: Option<Duration>) -> Result<(Duration, Made)> {
        let (cluster, audit) = (self.cluster, self.harness.audit());
        let namespace = self.harness.namespace("pool").await?;
        cluster.make_config(&namespace).await?;
        audit.settle().await;
        let mark = audit.mark();
        let counter = cluster.count(&namespace).await?;

        let start = Instant::now();
        let uid = cluster.make_pool(&namespace, self.vms, false).await?;
        let took = counter.reached(self.vms).await? - start;
        tell(&format!("  pool:  {:.2} s", took.as_secs_f64()));

        cluster.wait_settled(&namespace, self.vms).await?;
        self.count_writes(&namespace, mark, report).await?;
        if let Some(rest) = rest {
            self.rest(rest, report).await?;
        }
        let bodies = cluster.bodies(&namespace).await?;
        cluster.clear(&namespace).await?;
        Ok((took, Made { bodies, uid }))
    }

    /// The same VMs by hand, for a pool that is paused and so only looks on.
    async fn plain(&self, made: &Made) -> Result<Duration> {
        let cluster = self.cluster;
        let namespace = self.harness.namespace("plain").await?;
        cluster.make_config(&namespace).await?;
        let uid = cluster.make_pool(&namespace, self.vms, true).await?;
        let bodies = for_pool(&made.bodies, &made.uid, &uid)?;
        cluster.wait_settled(&namespace, 0).await?;
        let counter = cluster.count(&namespace).await?;

        let start = Instant::now();
        cluster
            .create(&cluster.account, &namespace, bodies, CONNECTIONS)
            .await?;
        let took = counter.reached(self.vms).await? - start;
        tell(&format!("  plain: {:.2} s", took.as_secs_f64()));

        cluster.wait_settled(&namespace, self.vms).await?;
        cluster.clear(&namespace).await?;
        Ok(took)
    }

    async fn count_writes(&self, namespace: &str, mark: Mark, report: &mut Report) -> Result<()> {
        let audit = self.harness.audit();
        audit.settle().await;
        let filter = ours().namespace(namespace);
        let writes = Writes::of(&audit.since(mark, &filter)?, self.vms);
        report.push("writes_per_vm", writes.per_vm);
        report.push("status_writes_per_s", writes.status_per_second);
        report.note(format!(
            "Writes apart from VMs and events, for a pool: {:?}",
            writes.apart
        ));
        Ok(())
    }

    async fn rest(&self, rest: Duration, report: &mut Report) -> Result<()> {
        tell(&format!("  at rest for {rest:?}"));
        tokio::time::sleep(CALM).await;
        let audit = self.harness.audit();
        let mark = audit.mark();
        tokio::time::sleep(rest).await;
        let mut events = audit.since(mark, &ours())?;
        events.retain(|event| !writes::is_lease(event));
        let minutes = rest.as_secs_f64() / 60.0;
        report.push("idle_writes_per_min", count(events.len()) / minutes);
        if !events.is_empty() {
            let summary = audit
                .summary(mark, &ours())
                .context("the log was read before")?;
            report.note(format!("Writes at rest: {summary:?}"));
        }
        Ok(())
    }
}
