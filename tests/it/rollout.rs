//! Edits of a config roll through its pools: RO-01, RO-02, RO-09 and the rows about updates, with KubeVirt's
//! part played and every event of the instances watched.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use dev::audit::Filter;
use dev::harness::{self, Options};
use dev::standin::Knobs;
use futures::{StreamExt as _, TryStreamExt as _};
use kube::api::{ListParams, WatchEvent, WatchParams};
use serde_json::{Value, json};

use crate::objects::{Builder, all, config, pool};
use crate::revisions::{latest, revision_of};
use crate::space::{condition, name, uid};
use crate::{Kind, Space, with_namespace, with_own};

/// The config with this hostname: a change that KubeVirt can't apply to a running guest.
pub(crate) fn hosts(hostname: &str) -> Builder {
    config("cfg")
        .running()
        .disk("root")
        .with("/spec/template/spec/hostname", hostname)
}

pub(crate) fn web(replicas: u32, unavailable: impl Into<Value>) -> Builder {
    pool("web", "cfg")
        .replicas(replicas)
        .with("/spec/maxUnavailable", unavailable)
}

pub(crate) fn names(count: u32) -> Vec<String> {
    (1..=count).map(|n| format!("web-{n}")).collect()
}

/// Applies both and waits until all run.
pub(crate) async fn running(
    ns: &Space<'_>,
    config: &Builder,
    pool: &Builder,
    count: u32,
) -> Result<()> {
    ns.accepts(all(&[config.clone(), pool.clone()]))?;
    let names = names(count);
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    ns.ready("web", &names).await.map(drop)
}

/// Waits until the pool is at rest with everybody at the newest revision; answers its status.
pub(crate) async fn rolled(ns: &Space<'_>) -> Result<Value> {
    ns.eventually("everybody is at the newest revision", async || {
        let latest = latest(ns).await?;
        let pool = ns.get(Kind::Pool, "web").await?;
        let status = &pool["status"];
        let target = &status["targetRevision"];
        ensure!(*target == latest.as_str(), "{target} and not {latest}");
        ensure!(status["updatedReplicas"] == status["replicas"], "{status}");
        let progressing = condition(&pool, "Progressing").context("no condition")?;
        ensure!(progressing["reason"] == "Settled", "{progressing}");
        Ok(status.clone())
    })
    .await
}

/// UIDs of the instances, by name.
pub(crate) async fn instances(ns: &Space<'_>) -> Result<BTreeMap<String, String>> {
    let all = ns.list(Kind::Instance).await?;
    Ok(all
        .iter()
        .map(|vmi| (name(vmi).to_owned(), uid(vmi).to_owned()))
        .collect())
}

/// What a watch of the instances has shown.
#[derive(Debug, Default)]
struct Trace {
    /// Most instances that were not up at one moment.
    most_down: usize,
    /// UIDs of all that there were, by name.
    seen: BTreeMap<String, BTreeSet<String>>,
}

/// Watches the instances of these VMs, all of which are up, while `act` runs.
async fn traced(
    ns: &Space<'_>,
    names: &[String],
    act: impl Future<Output = Result<()>>,
) -> Result<Trace> {
    let api = ns.api(Kind::Instance);
    let list = api.list(&ListParams::default()).await?;
    let version = list.metadata.resource_version.unwrap_or_default();
    let mut trace = Trace::default();
    let mut up: BTreeSet<String> = names.iter().cloned().collect();
    for vmi in &list.items {
        let (name, uid) = (vmi.metadata.name.clone(), vmi.metadata.uid.clone());
        let uids = trace.seen.entry(name.unwrap_or_default()).or_default();
        uids.insert(uid.unwrap_or_default());
    }
    let mut events = api.watch(&WatchParams::default(), &version).await?.boxed();
    let mut act = std::pin::pin!(act);
    loop {
        tokio::select! {
            done = &mut act => {
                done?;
                return Ok(trace);
            }
            event = events.try_next() => {
                let (vmi, is_there) = match event?.context("the watch has ended")? {
                    WatchEvent::Added(vmi) | WatchEvent::Modified(vmi) => (vmi, true),
                    WatchEvent::Deleted(vmi) => (vmi, false),
                    WatchEvent::Bookmark(_) | WatchEvent::Error(_) => continue,
                };
                let vmi = serde_json::to_value(&vmi)?;
                let is_ready = condition(&vmi, "Ready").is_some_and(|ready| ready["status"] == "True");
                let is_up = is_there
                    && is_ready
                    && vmi["status"]["phase"] == "Running"
                    && vmi["metadata"]["deletionTimestamp"].is_null();
                let name = name(&vmi).to_owned();
                trace.seen.entry(name.clone()).or_default().insert(uid(&vmi).to_owned());
                if is_up {
                    up.insert(name);
                } else {
                    up.remove(&name);
                }
                trace.most_down = trace.most_down.max(names.len() - up.len());
            }
        }
    }
}

fn ours() -> Filter {
    Filter::new().service_account(harness::NAMESPACE, harness::SERVICE_ACCOUNT)
}

#[test]
fn ro_01_by_default_a_quarter_is_down_at_most_at_every_instant_and_each_restarts_once() {
    with_namespace("ro-01", async |ns| {
        let mut pool = web(8, 1).without("/spec/maxUnavailable");
        let boots = |hostname| {
            hosts(hostname).with(
                "/spec/template/metadata/annotations",
                json!({"standin.vmpool.dev/boot": "300ms"}),
            )
        };
        running(ns, &boots("a"), &pool, 8).await?;
        let disks: Vec<String> = ns
            .list(Kind::DataVolume)
            .await?
            .iter()
            .map(|d| uid(d).to_owned())
            .collect();
        let audit = ns.harness.audit();
        let mark = audit.mark();

        let trace = traced(ns, &names(8), async {
            ns.accepts(boots("b"))?;
            let status = rolled(ns).await?;
            ensure!(status["currentReplicas"] == 8, "{status}");
            Ok(())
        })
        .await?;
        ensure!(
            trace.most_down == 2,
            "{} of 8 were down at once",
            trace.most_down
        );
        for (name, uids) in &trace.seen {
            ensure!(uids.len() == 2, "{name} had {} instances", uids.len());
        }
        // Each member was one patch and one restart, and kept its disk.
        audit.settle().await;
        let writes = audit.summary(mark, &ours().namespace(&ns.name))?;
        let count = |what: &str| {
            let of = |(key, count): (&String, &usize)| key.ends_with(what).then_some(*count);
            writes.iter().filter_map(of).sum::<usize>()
        };
        ensure!(count(" virtualmachines") == 8, "{writes:?}");
        ensure!(count(" virtualmachines/restart") == 8, "{writes:?}");
        let after: Vec<String> = ns
            .list(Kind::DataVolume)
            .await?
            .iter()
            .map(|d| uid(d).to_owned())
            .collect();
        ensure!(disks == after, "disks were replaced");
        for vm in ns.members("web").await? {
            let hostname = &vm["spec"]["template"]["spec"]["hostname"];
            ensure!(hostname == "b", "{} has {hostname}", name(&vm));
            ensure!(revision_of(&vm) == latest(ns).await?, "{vm}");
        }
        let revisions = ns.kubectl("get controllerrevisions -l vmpool.dev/config=cfg -o name")?;
        ensure!(
            revisions.lines().count() == 2,
            "not both revisions are kept: {revisions}"
        );
        // A pool at rest, and the same content again, write nothing.
        pool = pool.label("touched", "1");
        let mark = audit.mark();
        ns.accepts(all(&[boots("b").label("touched", "1"), pool]))?;
        tokio::time::sleep(Duration::from_secs(2)).await;
        let vms = ours().namespace(&ns.name).resource("virtualmachines");
        ensure!(audit.count_since(mark, &vms)? == 0, "m04: a VM was written");
        Ok(())
    });
}

#[test]
fn ro_02_m116_m89_one_at_a_time_and_a_vm_that_its_user_stopped_takes_the_change_and_stays_stopped()
{
    with_namespace("ro-02", async |ns| {
        running(ns, &hosts("a"), &web(4, 1), 4).await?;
        ns.harness.standin().stop_vm(&ns.name, "web-2").await?;
        ns.gone(Kind::Instance, "web-2").await?;
        let others: Vec<String> = names(4)
            .into_iter()
            .filter(|name| name != "web-2")
            .collect();
        let trace = traced(ns, &others, async {
            ns.accepts(hosts("b"))?;
            rolled(ns).await.map(drop)
        })
        .await?;
        ensure!(trace.most_down == 1, "{trace:?}");
        ensure!(!trace.seen.contains_key("web-2"), "web-2 was started");
        ensure!(trace.seen.values().all(|uids| uids.len() == 2), "{trace:?}");
        let stopped = ns.get(Kind::Vm, "web-2").await?;
        ensure!(stopped["spec"]["runStrategy"] == "Halted", "{stopped}");
        ensure!(
            stopped["spec"]["template"]["spec"]["hostname"] == "b",
            "{stopped}"
        );
        let status = ns.get(Kind::Pool, "web").await?["status"].clone();
        ensure!(
            status["haltedReplicas"] == 1 && status["updatedReplicas"] == 4,
            "{status}"
        );
        Ok(())
    });
}

#[test]
fn m39_with_one_of_four_down_nobody_is_taken_down_until_it_is_back() {
    with_namespace("m39", async |ns| {
        running(ns, &hosts("a"), &web(4, "25%"), 4).await?;
        let sick = Knobs {
            not_ready: Some(true),
            ..Knobs::default()
        };
        ns.harness.standin().set(&ns.name, "web-3", sick);
        ns.eventually("web-3 is not Ready", async || {
            let status = ns.get(Kind::Pool, "web").await?["status"].clone();
            ensure!(status["unavailableReplicas"] == 1, "{status}");
            Ok(())
        })
        .await?;
        let before = instances(ns).await?;
        ns.accepts(hosts("b"))?;
        ns.eventually("the pool says what it waits for", async || {
            let pool = ns.get(Kind::Pool, "web").await?;
            let progressing = condition(&pool, "Progressing")
                .context("no condition")?
                .clone();
            ensure!(progressing["reason"] == "RollingOut", "{progressing}");
            let message = progressing["message"].as_str().unwrap_or_default();
            ensure!(
                message.contains("web-3") && message.contains("maxUnavailable"),
                "{message}"
            );
            Ok(())
        })
        .await?;
        ns.stays("nobody is restarted", Duration::from_secs(2), async || {
            ensure!(instances(ns).await? == before);
            Ok(())
        })
        .await?;
        ns.harness.standin().reset(&ns.name, "web-3");
        rolled(ns).await.map(drop)
    });
}

#[test]
fn m129_there_and_back_in_a_row_leaves_those_who_have_not_moved_alone() {
    with_namespace("m129", async |ns| {
        let paused = |paused: bool| web(4, 1).with("/spec/paused", paused);
        running(ns, &hosts("a"), &paused(false), 4).await?;
        let before = instances(ns).await?;
        ns.accepts(paused(true))?;
        ns.condition(Kind::Pool, "web", "Paused", "True").await?;
        for hostname in ["b", "c", "a"] {
            ns.accepts(hosts(hostname))?;
            latest(ns).await?;
        }
        ns.accepts(paused(false))?;
        rolled(ns).await?;
        ensure!(instances(ns).await? == before, "somebody was restarted");

        // Faster than it can roll: everybody ends at the last, and nobody is restarted for each.
        let trace = traced(ns, &names(4), async {
            for hostname in ["d", "e", "f"] {
                ns.accepts(hosts(hostname))?;
            }
            rolled(ns).await.map(drop)
        })
        .await?;
        ensure!(trace.most_down == 1, "{trace:?}");
        for vmi in ns.list(Kind::Instance).await? {
            ensure!(vmi["spec"]["hostname"] == "f", "{}", vmi["spec"]);
        }
        Ok(())
    });
}

#[test]
fn ro_03_a_bad_revision_is_replaced_where_it_is_stuck_first() {
    with_namespace("ro-03", async |ns| {
        running(ns, &hosts("a"), &web(3, 1), 3).await?;
        let bad = hosts("b").with(
            "/spec/template/metadata/annotations",
            json!({"standin.vmpool.dev/image-error": "ErrImagePull"}),
        );
        ns.accepts(bad)?;
        ns.eventually("one is stuck", async || {
            let vms = ns.members("web").await?;
            let stuck = |vm: &&Value| {
                let shown = vm["status"]["printableStatus"].as_str().unwrap_or_default();
                shown.contains("ImagePull")
            };
            let count = vms.iter().filter(stuck).count();
            ensure!(count == 1, "{count} are stuck");
            Ok(())
        })
        .await?;
        ns.accepts(hosts("c"))?;
        let status = rolled(ns).await?;
        ensure!(status["availableReplicas"] == 3, "{status}");
        Ok(())
    });
}

#[test]
fn killed_in_mid_rollout_it_goes_on_and_each_vm_is_restarted_once() {
    with_own(Options::default(), async |cluster| {
        let ns = Space::new(cluster, "killed").await?;
        let boots = |hostname| {
            hosts(hostname).with(
                "/spec/template/metadata/annotations",
                json!({"standin.vmpool.dev/boot": "500ms"}),
            )
        };
        running(&ns, &boots("a"), &web(6, 2), 6).await?;
        let trace = traced(&ns, &names(6), async {
            ns.accepts(boots("b"))?;
            for _ in 0..3 {
                tokio::time::sleep(Duration::from_millis(700)).await;
                ns.harness.restart_vmpool().await?;
            }
            rolled(&ns).await.map(drop)
        })
        .await?;
        ensure!(trace.most_down <= 2, "{trace:?}");
        ensure!(trace.seen.values().all(|uids| uids.len() == 2), "{trace:?}");
        Ok(())
    });
}
