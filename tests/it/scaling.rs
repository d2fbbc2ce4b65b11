//! Scaling out and in, and pausing. Cases SI-02, SI-11, PF-01, matrix rows 3, 8 to 14, 24, 25, 68, 83, 90. What users
//! delete by hand is in `by_hand.rs`.

use std::time::Duration;

use anyhow::{Result, ensure};
use dev::audit::{Event, Filter};
use dev::harness::{NAMESPACE, SERVICE_ACCOUNT};
use serde_json::json;

use crate::objects::{config, pool};
use crate::space::{condition, is_deleting, name};
use crate::{Kind, Space, with_namespace};

/// A finalizer of somebody else's, which keeps a VM Terminating until it is taken off.
const FOREIGN_FINALIZER: &str = "example.com/hold";

fn ours() -> Filter {
    Filter::new().service_account(NAMESPACE, SERVICE_ACCOUNT)
}

pub(crate) async fn hold(ns: &Space<'_>, vm: &str) -> Result<()> {
    let add = json!([{"op": "add", "path": "/metadata/finalizers/-", "value": FOREIGN_FINALIZER}]);
    ns.kubectl(&format!("patch vm {vm} --type=json -p {add}"))
        .map(drop)
}

pub(crate) async fn let_go(ns: &Space<'_>, vm: &str) -> Result<()> {
    let found = ns.get(Kind::Vm, vm).await?;
    let finalizers = found["metadata"]["finalizers"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let kept: Vec<_> = finalizers
        .into_iter()
        .filter(|f| f != FOREIGN_FINALIZER)
        .collect();
    ns.merge(Kind::Vm, vm, &json!({"metadata": {"finalizers": kept}}))
        .await
        .map(drop)
}

/// KubeVirt has put its finalizer on: only then can another be appended.
pub(crate) async fn adopted_by_kubevirt(ns: &Space<'_>, vm: &str) -> Result<()> {
    ns.eventually("KubeVirt has seen the VM", async || {
        let found = ns.get(Kind::Vm, vm).await?;
        ensure!(found["metadata"]["finalizers"].is_array());
        Ok(())
    })
    .await
}

#[test]
fn m03_a_new_pool_makes_one_revision_its_vms_and_batched_events() {
    with_namespace("m03", async |ns| -> Result<()> {
        ns.accepts(config("cfg"))?;
        ns.accepts(pool("web", "cfg").replicas(3))?;
        let members = ns.settled("web", &["web-1", "web-2", "web-3"]).await?;
        let revisions = ns.list(Kind::Revision).await?;
        let ours: Vec<_> = revisions
            .iter()
            .filter(|r| name(r).starts_with("cfg-"))
            .collect();
        ensure!(ours.len() == 1, "revisions: {ours:?}");
        for member in &members {
            ensure!(member["metadata"]["labels"]["vmpool.dev/revision"] == name(ours[0]));
        }
        let told = ns.eventually("events tell of the VMs", async || {
            let events = ns.events("web", "SuccessfulCreate").await?;
            let text: String = events.iter().filter_map(|e| e["note"].as_str()).collect();
            for vm in ["web-1", "web-2", "web-3"] {
                ensure!(text.contains(vm), "events: {text}");
            }
            Ok(events.len())
        });
        ensure!(told.await? <= 3);
        Ok(())
    });
}

#[test]
fn m68_scaling_to_3_to_2_and_to_0_is_followed_by_the_ready_count() {
    with_namespace("m68", async |ns| -> Result<()> {
        ns.accepts(config("cfg").running())?;
        ns.accepts(pool("web", "cfg").replicas(0).with(
            "/spec/scaleInStrategy/proactive/selectionPolicy/basePolicy",
            "HighestOrdinal",
        ))?;
        ns.settled("web", &[]).await?;
        ns.kubectl("scale virtualmachinepools.vmpool.dev web --replicas=3")?;
        ns.ready("web", &["web-1", "web-2", "web-3"]).await?;
        ns.kubectl("scale vpool web --replicas=2")?;
        ns.ready("web", &["web-1", "web-2"]).await?;
        ns.kubectl("wait vpool web --for=condition=Available --timeout=30s")?;
        ns.kubectl("scale vpool web --replicas=0")?;
        ns.ready("web", &[]).await?;
        Ok(())
    });
}

#[test]
fn m09_m10_a_failing_creation_shows_in_a_condition_and_an_event_and_clears() {
    with_namespace("m09", async |ns| -> Result<()> {
        let quota = json!({
            "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"},
            "spec": {"hard": {"count/virtualmachines.kubevirt.io": "2"}},
        });
        ns.accepts(quota)?;
        ns.eventually("the quota counts", async || {
            let quota = ns.get(Kind::Quota, "few").await?;
            ensure!(quota["status"]["used"]["count/virtualmachines.kubevirt.io"] == "0");
            Ok(())
        })
        .await?;
        ns.accepts(config("cfg"))?;
        ns.accepts(pool("web", "cfg").replicas(5))?;
        let failure = ns
            .condition(Kind::Pool, "web", "ReplicaFailure", "True")
            .await?;
        let message = failure["message"].as_str().unwrap_or_default();
        ensure!(message.contains("quota"), "{failure}");
        ensure!(ns.member_names("web").await?.len() == 2);
        ns.eventually("an event tells of it", async || {
            let events = ns.list(Kind::Event).await?;
            let warned =
                |e: &&serde_json::Value| e["type"] == "Warning" && e["regarding"]["name"] == "web";
            let count = events.iter().filter(warned).count();
            ensure!(count >= 1, "no event");
            ensure!(count <= 3, "a flood: {count} events");
            Ok(())
        })
        .await?;

        ns.kubectl("delete resourcequota few")?;
        ns.settled("web", &["web-1", "web-2", "web-3", "web-4", "web-5"])
            .await?;
        ns.eventually("the failure clears", async || {
            let pool = ns.get(Kind::Pool, "web").await?;
            let failing = condition(&pool, "ReplicaFailure").is_some_and(|c| c["status"] == "True");
            ensure!(!failing, "{}", pool["status"]);
            Ok(())
        })
        .await
    });
}

#[test]
fn m08_m11_m83_a_paused_pool_does_nothing_says_so_once_and_goes_on_when_resumed() {
    with_namespace("m83", async |ns| -> Result<()> {
        ns.accepts(config("cfg"))?;
        ns.accepts(pool("web", "cfg").replicas(1))?;
        ns.settled("web", &["web-1"]).await?;
        ns.kubectl("patch vpool web --type=merge -p {\"spec\":{\"paused\":true}}")?;
        ns.condition(Kind::Pool, "web", "Paused", "True").await?;
        ns.kubectl("scale vpool web --replicas=4")?;
        ns.kubectl("delete vm web-1")?;
        ns.stays("no VM is made", Duration::from_secs(5), async || {
            ensure!(ns.member_names("web").await?.is_empty());
            let pool = ns.get(Kind::Pool, "web").await?;
            let conditions = pool["status"]["conditions"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            let paused = conditions.iter().filter(|c| c["type"] == "Paused").count();
            ensure!(paused == 1, "{conditions:?}");
            Ok(())
        })
        .await?;
        let pool = ns.get(Kind::Pool, "web").await?;
        ensure!(
            pool["status"]["replicas"] == 0,
            "the status goes on: {}",
            pool["status"]
        );
        ensure!(pool["status"]["observedGeneration"] == pool["metadata"]["generation"]);

        ns.kubectl("patch vpool web --type=merge -p {\"spec\":{\"paused\":false}}")?;
        ns.settled("web", &["web-1", "web-2", "web-3", "web-4"])
            .await?;
        ns.eventually("the condition is gone", async || {
            let pool = ns.get(Kind::Pool, "web").await?;
            ensure!(condition(&pool, "Paused").is_none(), "{}", pool["status"]);
            Ok(())
        })
        .await?;
        ns.eventually("events tell of both", async || {
            ensure!(ns.events("web", "Paused").await?.len() == 1);
            ensure!(ns.events("web", "Resumed").await?.len() == 1);
            Ok(())
        })
        .await
    });
}

#[test]
fn m14_m90_si_02_members_already_going_are_not_counted_as_surplus() {
    with_namespace("si02", async |ns| -> Result<()> {
        ns.accepts(config("cfg"))?;
        ns.accepts(pool("web", "cfg").replicas(5))?;
        let all = ["web-1", "web-2", "web-3", "web-4", "web-5"];
        ns.settled("web", &all).await?;
        for vm in &all[..3] {
            adopted_by_kubevirt(ns, vm).await?;
            hold(ns, vm).await?;
        }
        ns.kubectl("patch vpool web --type=merge -p {\"spec\":{\"paused\":true}}")?;
        ns.kubectl("delete vm web-1 web-2 web-3 --wait=false")?;
        ns.kubectl("scale vpool web --replicas=2")?;
        ns.kubectl("patch vpool web --type=merge -p {\"spec\":{\"paused\":false}}")?;
        ns.stays("web-4 and web-5 stay", Duration::from_secs(4), async || {
            for vm in &all[3..] {
                ensure!(!is_deleting(&ns.get(Kind::Vm, vm).await?), "{vm} goes");
            }
            Ok(())
        })
        .await?;
        for vm in &all[..3] {
            let_go(ns, vm).await?;
        }
        ns.settled("web", &["web-4", "web-5"]).await?;

        // The trigger of SI-02 itself: 3 going and 4 wanted means 2 are made, none deleted.
        ns.kubectl("scale vpool web --replicas=4")?;
        ns.settled("web", &["web-1", "web-2", "web-4", "web-5"])
            .await?;
        Ok(())
    });
}

#[test]
fn m24_scale_in_oldest_first() {
    with_namespace("m24", async |ns| -> Result<()> {
        ns.accepts(config("cfg"))?;
        let oldest = "/spec/scaleInStrategy/proactive/selectionPolicy/basePolicy";
        ns.accepts(pool("web", "cfg").replicas(1).with(oldest, "Oldest"))?;
        ns.settled("web", &["web-1"]).await?;
        // Creation times have whole seconds.
        tokio::time::sleep(Duration::from_millis(1100)).await;
        ns.kubectl("scale vpool web --replicas=3")?;
        ns.settled("web", &["web-1", "web-2", "web-3"]).await?;
        tokio::time::sleep(Duration::from_millis(1100)).await;
        ns.kubectl("delete vm web-2")?;
        ns.settled("web", &["web-1", "web-2", "web-3"]).await?;
        ns.kubectl("scale vpool web --replicas=1")?;
        ns.settled("web", &["web-2"]).await?;
        Ok(())
    });
}

#[test]
fn m25_scale_in_highest_ordinal_first() {
    with_namespace("m25", async |ns| -> Result<()> {
        ns.accepts(config("cfg"))?;
        let policy = "/spec/scaleInStrategy/proactive/selectionPolicy/basePolicy";
        ns.accepts(
            pool("web", "cfg")
                .replicas(11)
                .with(policy, "HighestOrdinal"),
        )?;
        ns.eventually("11 VMs", async || {
            ensure!(ns.member_names("web").await?.len() == 11);
            Ok(())
        })
        .await?;
        ns.kubectl("scale vpool web --replicas=2")?;
        ns.settled("web", &["web-1", "web-2"]).await?;
        Ok(())
    });
}

#[test]
fn si_11_unmanaged_scale_in_removes_nobody_and_is_no_error() {
    with_namespace("si11", async |ns| -> Result<()> {
        ns.accepts(config("cfg"))?;
        ns.accepts(
            pool("web", "cfg")
                .replicas(5)
                .with("/spec/scaleInStrategy/unmanaged", json!({})),
        )?;
        let all = ["web-1", "web-2", "web-3", "web-4", "web-5"];
        ns.settled("web", &all).await?;
        ns.kubectl("scale vpool web --replicas=3")?;
        ns.stays("all stay", Duration::from_secs(4), async || {
            ensure!(ns.member_names("web").await? == all);
            Ok(())
        })
        .await?;
        let status = ns.get(Kind::Pool, "web").await?["status"].clone();
        ensure!(status["replicas"] == 5, "{status}");
        let found = ns.get(Kind::Pool, "web").await?;
        for bad in ["ReplicaFailure", "ScaleInBlocked"] {
            ensure!(
                condition(&found, bad).is_none_or(|c| c["status"] != "True"),
                "{status}"
            );
        }
        Ok(())
    });
}

#[test]
fn m12_m13_pf_01_a_hundred_and_more_are_made_and_removed_once_each_and_a_pool_at_rest_writes_nothing()
 {
    with_namespace("pf01", async |ns| -> Result<()> {
        let audit = ns.harness.audit();
        ns.accepts(config("cfg"))?;
        let start = audit.mark();
        ns.accepts(pool("web", "cfg").replicas(150))?;
        ns.eventually("150 VMs", async || {
            let status = ns.get(Kind::Pool, "web").await?["status"].clone();
            ensure!(status["replicas"] == 150, "{status}");
            Ok(())
        })
        .await?;
        audit.settle().await;
        let creates = ours()
            .verb("create")
            .resource("virtualmachines")
            .namespace(&ns.name);
        // Attempts that failed count too; KubeVirt's verdict on the config is asked for by a dry run.
        let attempts = |filter: Filter| -> Result<Vec<Event>> {
            let mut events = audit.since(start, &filter.with_failures())?;
            events.retain(|event| !event.is_dry_run());
            Ok(events)
        };
        let made = attempts(creates)?;
        let failed = made.iter().filter(|event| !event.took_effect());
        let failed: Vec<_> = failed.map(|event| &event.response_status).collect();
        ensure!(
            made.len() == 150,
            "{} creates, of which {failed:?}",
            made.len()
        );
        let writes = ours().resource("virtualmachines").namespace(&ns.name);
        ensure!(attempts(writes)?.len() == 150, "one write per VM");

        tokio::time::sleep(Duration::from_secs(3)).await;
        let rest = audit.mark();
        tokio::time::sleep(Duration::from_secs(5)).await;
        audit.settle().await;
        let idle = audit.since(rest, &ours().namespace(&ns.name).with_failures())?;
        ensure!(idle.is_empty(), "writes at rest: {idle:?}");

        ns.kubectl("scale vpool web --replicas=10")?;
        ns.eventually("10 VMs", async || {
            ensure!(ns.member_names("web").await?.len() == 10);
            Ok(())
        })
        .await?;
        audit.settle().await;
        let deletes = ours()
            .verb("delete")
            .resource("virtualmachines")
            .namespace(&ns.name);
        // A delete whose VM KubeVirt has just written to is refused by its precondition, and decided again.
        ensure!(audit.count_since(start, &deletes)? == 140);
        Ok(())
    });
}
