//! Two replicas of the real program: one leads, both serve. Case CC-04.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use dev::audit::{Filter, Mark};
use dev::harness::{Harness, NAMESPACE, Options, SERVICE_ACCOUNT, eventually};
use dev::supervisor::Signal;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

use crate::objects::{config, pool};
use crate::{Kind, Space, with_own};

/// A third of it is what the Lease takes.
const SOON: Duration = Duration::from_secs(45);

pub(crate) fn two() -> Options {
    Options {
        two_replicas: true,
        without_standin: true,
        ..Options::default()
    }
}

/// Who is in the Lease.
async fn holder(ns: &Space<'_>) -> Result<String> {
    let leases: Api<Lease> = Api::namespaced(ns.client.clone(), NAMESPACE);
    let lease = leases.get(vmpool::lease::NAME).await?;
    let holder = lease.spec.and_then(|spec| spec.holder_identity);
    holder.context("no holder")
}

/// How often the Lease has changed hands.
async fn transitions(ns: &Space<'_>) -> Result<i32> {
    let leases: Api<Lease> = Api::namespaced(ns.client.clone(), NAMESPACE);
    let lease = leases.get(vmpool::lease::NAME).await?;
    let transitions = lease.spec.and_then(|spec| spec.lease_transitions);
    transitions.context("no number")
}

/// Which replica leads.
pub(crate) async fn leader(ns: &Space<'_>) -> Result<usize> {
    let holder = holder(ns).await?;
    let number = (0..2).find(|number| holder.starts_with(&format!("vmpool-{number}_")));
    number.with_context(|| format!("nobody of ours leads: {holder:?}"))
}

async fn leads(ns: &Space<'_>, replica: usize) -> Result<()> {
    let what = format!("replica {replica} leads");
    eventually(&what, SOON, async || {
        ensure!(leader(ns).await? == replica);
        Ok(())
    })
    .await
}

/// Calls of ours about anything but the Lease since then, refused ones included.
async fn writes(ns: &Space<'_>, since: Mark) -> Result<Vec<String>> {
    let audit = ns.harness.audit();
    audit.settle().await;
    let ours = Filter::new().service_account(NAMESPACE, SERVICE_ACCOUNT);
    let events = audit.since(since, &ours.with_failures())?;
    let events = events.iter().filter(|event| event.resource() != "leases");
    let named = events.map(|event| {
        format!(
            "{} {} {}",
            event.verb,
            event.resource(),
            event.object_ref.name
        )
    });
    Ok(named.collect())
}

async fn count(ns: &Space<'_>, wanted: usize) -> Result<()> {
    ns.eventually(&format!("{wanted} members"), async || {
        ensure!(ns.member_names("web").await?.len() == wanted);
        let status = ns.get(Kind::Pool, "web").await?["status"].clone();
        ensure!(status["replicas"] == wanted, "{status}");
        Ok(())
    })
    .await
}

async fn scale(ns: &Space<'_>, replicas: u32) -> Result<()> {
    ns.eventually("it can be scaled", async || {
        ns.kubectl(&format!("scale vpool web --replicas={replicas}"))
            .map(drop)
    })
    .await
}

#[test]
fn cc_04_a_leader_that_was_frozen_writes_nothing_when_it_goes_on_and_the_other_leads() {
    with_own(two(), async |cluster: &mut Harness| -> Result<()> {
        let ns = Space::new(cluster, "frozen").await?;
        ns.accepts(config("cfg"))?;
        ns.accepts(pool("web", "cfg").replicas(1))?;
        count(&ns, 1).await?;
        let old = leader(&ns).await?;

        // 1. Frozen in the midst of creating VMs.
        scale(&ns, 150).await?;
        ns.eventually("it is in the midst of it", async || {
            ensure!(ns.member_names("web").await?.len() > 5);
            Ok(())
        })
        .await?;
        cluster.replica(old).kill(Signal::STOP);

        // 2. The other one takes over, and webhooks are served all along.
        leads(&ns, 1 - old).await?;
        count(&ns, 150).await?;
        scale(&ns, 0).await?;
        count(&ns, 0).await?;
        tokio::time::sleep(Duration::from_secs(2)).await;

        // 3. What it was about to do, it doesn't.
        let mark = ns.harness.audit().mark();
        cluster.replica(old).kill(Signal::CONT);
        cluster.replica(old).wait_restarts(1, SOON).await?;
        cluster.replica(old).wait_ready(SOON).await?;
        tokio::time::sleep(Duration::from_secs(2)).await;
        let written = writes(&ns, mark).await?;
        ensure!(written.is_empty(), "{written:?}");
        ensure!(leader(&ns).await? == 1 - old);
        ensure!(cluster.replica(1 - old).restarts() == 0);
        let log = cluster.replica(old).log();
        ensure!(
            log.contains("vmpool-controller"),
            "it does not say why it ended"
        );
        Ok(())
    });
}

#[test]
fn cc_04_a_holder_that_is_overwritten_ends_and_one_leads_again() {
    with_own(two(), async |cluster: &mut Harness| -> Result<()> {
        let ns = Space::new(cluster, "overwritten").await?;
        ns.accepts(config("cfg"))?;
        ns.accepts(pool("web", "cfg").replicas(1))?;
        count(&ns, 1).await?;
        let old = leader(&ns).await?;
        let leases: Api<Lease> = Api::namespaced(ns.client.clone(), NAMESPACE);
        let stolen = Patch::Merge(json!({"spec": {"holderIdentity": "somebody"}}));
        leases
            .patch(vmpool::lease::NAME, &PatchParams::default(), &stolen)
            .await?;
        cluster.replica(old).wait_restarts(1, SOON).await?;
        scale(&ns, 3).await?;
        count(&ns, 3).await?;
        leader(&ns).await?;
        ensure!(
            cluster.replica(1 - old).restarts() == 0,
            "the other one ended too"
        );

        // One that is told to stop lets go at once. Restarted, it may be the next.
        let before = transitions(&ns).await?;
        cluster.replica(leader(&ns).await?).kill(Signal::TERM);
        let soon = Duration::from_secs(10);
        eventually("one leads again", soon, async || {
            ensure!(transitions(&ns).await? > before);
            leader(&ns).await.map(drop)
        })
        .await?;
        scale(&ns, 4).await?;
        count(&ns, 4).await
    });
}

#[test]
fn at_rest_two_replicas_renew_one_lease_and_write_nothing_else() {
    with_own(two(), async |cluster: &mut Harness| -> Result<()> {
        let ns = Space::new(cluster, "rest").await?;
        ns.accepts(config("cfg"))?;
        ns.accepts(pool("web", "cfg").replicas(2))?;
        ns.settled("web", &["web-1", "web-2"]).await?;
        tokio::time::sleep(Duration::from_secs(3)).await;
        let mark = ns.harness.audit().mark();
        tokio::time::sleep(Duration::from_secs(20)).await;
        let written = writes(&ns, mark).await?;
        ensure!(written.is_empty(), "{written:?}");
        let ours = Filter::new().service_account(NAMESPACE, SERVICE_ACCOUNT);
        let renewals = ns
            .harness
            .audit()
            .count_since(mark, &ours.with_failures())?;
        ensure!((3..=5).contains(&renewals), "{renewals} renewals in 20 s");
        Ok(())
    });
}
