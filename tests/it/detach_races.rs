//! Detaching what a scale-in is about to remove, answered by a replica that doesn't lead. Cases CC-04 and DT-07.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use dev::harness::{Harness, Options};
use dev::proxy::{Action, Rule};
use dev::supervisor::Signal;
use serde_json::{Value, json};
use tokio::runtime::Handle;

use crate::curl::{Answer, Curl, pool_path};
use crate::detach::{detacher, intent, marks, verdict};
use crate::objects::{all, config, pool};
use crate::replicas::{leader, two};
use crate::space::{controller, is_deleting, name, uid};
use crate::{Kind, Space, with_own};

/// Repetitions of each film: their moments lie some milliseconds apart.
const TIMES: u64 = 20;
/// A third of it is what the Lease takes.
const SOON: Duration = Duration::from_secs(45);

async fn scale(ns: &Space<'_>, replicas: usize) -> Result<()> {
    ns.eventually("it can be scaled", async || {
        let spec = json!({"spec": {"replicas": replicas}});
        ns.merge(Kind::Pool, "web", &spec).await.map(drop)
    })
    .await
}

/// Waits for so many members; the last one is who a scale-in would choose.
async fn members(ns: &Space<'_>, count: usize) -> Result<Vec<Value>> {
    ns.eventually(&format!("{count} members"), async || {
        let members = ns.members("web").await?;
        ensure!(members.len() == count && !members.iter().any(is_deleting));
        let status = ns.get(Kind::Pool, "web").await?["status"].clone();
        ensure!(status["replicas"] == count, "{status}");
        ensure!(intent(ns).await?.is_null(), "something is still recorded");
        Ok(members)
    })
    .await
}

fn ask(ns: &Space<'_>, curl: &Curl, vm: &str) -> Result<Answer> {
    let body = json!({"virtualMachines": [vm]});
    curl.send("POST", &pool_path(ns, "web", "/detach"), Some(&body))
}

/// The VM is there, as it was, and nobody's; or will be in a moment.
async fn is_free(ns: &Space<'_>, before: &Value) -> Result<()> {
    ns.eventually("it is nobody's", async || {
        let vm = ns.get(Kind::Vm, name(before)).await?;
        ensure!(uid(&vm) == uid(before) && !is_deleting(&vm), "{vm}");
        ensure!(controller(&vm).is_none() && marks(&vm).is_empty(), "{vm}");
        Ok(())
    })
    .await
}

/// Scales by one and detaches who would go, at nearly the same time. Says whether that was accepted.
async fn race(ns: &Space<'_>, curl: &Curl, delay: Duration, scale_first: bool) -> Result<bool> {
    let before = members(ns, 3).await?;
    let chosen = &before[2];
    let answer = std::thread::scope(|scope| -> Result<Answer> {
        let detaching = scope.spawn(|| {
            std::thread::sleep(if scale_first { delay } else { Duration::ZERO });
            let runtime = tokio::runtime::Builder::new_multi_thread().build()?;
            runtime.block_on(async { ask(ns, curl, name(chosen)) })
        });
        std::thread::sleep(if scale_first { Duration::ZERO } else { delay });
        let scaled = json!({"spec": {"replicas": 2}});
        let scaling = ns.merge(Kind::Pool, "web", &scaled);
        tokio::task::block_in_place(|| Handle::current().block_on(scaling))?;
        detaching.join().ok().context("the request panicked")?
    })?;
    let accepted = match (answer.code, verdict(&answer)) {
        (200, "Done") | (202, "Recorded") => true,
        (409, _) => false,
        _ => bail!("{answer:?}"),
    };
    let after = members(ns, 2).await?;
    if accepted {
        is_free(ns, chosen).await?;
        ensure!(
            after.iter().map(uid).eq(before[..2].iter().map(uid)),
            "somebody went in its place"
        );
        ns.kubectl(&format!("delete vm {}", name(chosen)))?;
    }
    scale(ns, 3).await?;
    Ok(accepted)
}

async fn web(ns: &Space<'_>) -> Result<()> {
    let strategy = json!({"proactive": {"selectionPolicy": {"basePolicy": "HighestOrdinal"}}});
    let web = pool("web", "cfg").replicas(3);
    ns.accepts(all(&[
        config("cfg"),
        web.with("/spec/scaleInStrategy", strategy),
    ]))?;
    members(ns, 3).await.map(drop)
}

async fn race_often(ns: &Space<'_>) -> Result<()> {
    web(ns).await?;
    let other = 1 - leader(ns).await?;
    let curl = detacher(ns).await?.at_replica(ns, other);
    let mut accepted = 0;
    for time in 0..TIMES {
        let delay = Duration::from_millis(time * 5);
        accepted += u64::from(race(ns, &curl, delay, time % 2 == 0).await?);
    }
    eprintln!("{accepted} of {TIMES} were accepted");
    ensure!(accepted > 0, "none was accepted: nothing is shown");
    Ok(())
}

#[test]
fn cc_04_dt_07_whom_another_replica_lets_go_a_scale_in_under_way_never_takes() {
    with_own(two(), async |cluster: &mut Harness| -> Result<()> {
        let ns = Space::new(cluster, "races").await?;
        race_often(&ns).await
    });
}

#[test]
fn cc_04_dt_07_nor_does_one_by_a_leader_that_sees_pools_or_vms_late() {
    let options = Options {
        behind_proxy: true,
        without_vmpool: true,
        ..two()
    };
    with_own(options, async |cluster: &mut Harness| -> Result<()> {
        for late in ["/virtualmachinepools", "/virtualmachines"] {
            let delay = Action::DelayWatch(Duration::from_millis(250));
            let rule = cluster.proxy().add(Rule::new(delay).path_end(late));
            cluster.start_vmpool().await?;
            let ns = Space::new(cluster, "late").await?;
            race_often(&ns).await?;
            drop(ns);
            cluster.stop_vmpool();
            rule.remove();
        }
        cluster.start_vmpool().await
    });
}

#[test]
fn cc_04_dt_07_the_leader_that_is_killed_after_the_answer_changes_nothing_about_it() {
    with_own(two(), async |cluster: &mut Harness| -> Result<()> {
        let ns = Space::new(cluster, "killed").await?;
        web(&ns).await?;
        let detacher = detacher(&ns).await?;
        let curl = detacher.at_replica(&ns, 1 - leader(&ns).await?);
        let before = members(&ns, 3).await?;

        // 1. It stands still, so that nothing but the record is there when the answer comes; and then it dies.
        let old = leader(&ns).await?;
        let restarts = cluster.replica(old).restarts();
        cluster.replica(old).kill(Signal::STOP);
        scale(&ns, 2).await?;
        let answer = ask(&ns, &curl, name(&before[2]))?;
        cluster.replica(old).kill(Signal::KILL);
        // On a slow machine the other one may have taken the Lease and carried it out before the answer.
        ensure!(
            matches!(
                (answer.code, verdict(&answer)),
                (202, "Recorded") | (200, "Done")
            ),
            "{answer:?}"
        );
        is_free(&ns, &before[2]).await?;
        let after = members(&ns, 2).await?;
        ensure!(after.iter().map(uid).eq(before[..2].iter().map(uid)));
        cluster
            .replica(old)
            .wait_restarts(restarts + 1, SOON)
            .await?;
        cluster.replica(old).wait_ready(SOON).await?;

        // 2. It dies in the midst of carrying it out.
        let old = leader(&ns).await?;
        let curl = curl.at_replica(&ns, 1 - old);
        scale(&ns, 1).await?;
        let answer = ask(&ns, &curl, name(&after[1]))?;
        cluster.replica(old).kill(Signal::KILL);
        if answer.code == 409 {
            // It was quicker: then it was not accepted.
            return ns.gone(Kind::Vm, name(&after[1])).await;
        }
        is_free(&ns, &after[1]).await?;
        let last = members(&ns, 1).await?;
        ensure!(uid(&last[0]) == uid(&after[0]));
        Ok(())
    });
}
