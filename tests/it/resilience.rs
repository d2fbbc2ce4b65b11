//! What goes wrong around the program: lost answers, killed processes, a busy API server, missing CRDs; the
//! webhook being down, KubeVirt or CDI being absent. What goes wrong with its caches is in `caches.rs`.
//!
//! Each test has a cluster of its own, with `vmpool` behind the fault proxy.

use std::time::Duration;

use anyhow::{Result, ensure};
use dev::audit::{Filter, Mark};
use dev::harness::{Harness, NAMESPACE, Options, SERVICE_ACCOUNT};
use dev::proxy::{Action, Answer, Rule};
use dev::supervisor::Signal;
use serde_json::Value;

use crate::objects::{config, pool, vm};
use crate::space::{condition, name, uid};
use crate::{Kind, Space, with_own};

pub(crate) fn behind_proxy() -> Options {
    Options {
        behind_proxy: true,
        ..Options::default()
    }
}

/// Writes of ours on VMs since then, those that failed included.
pub(crate) async fn vm_writes(ns: &Space<'_>, since: Mark) -> Result<usize> {
    let audit = ns.harness.audit();
    audit.settle().await;
    let ours = Filter::new().service_account(NAMESPACE, SERVICE_ACCOUNT);
    let mut events = audit.since(since, &ours.resource("virtualmachines").with_failures())?;
    // KubeVirt's verdict is asked for by dry runs.
    events.retain(|event| !event.is_dry_run());
    Ok(events.len())
}

pub(crate) async fn count(ns: &Space<'_>, pool: &str, wanted: usize) -> Result<()> {
    ns.eventually(&format!("{pool} has {wanted} members"), async || {
        let names = ns.member_names(pool).await?;
        ensure!(names.len() == wanted, "{names:?}");
        let status = ns.get(Kind::Pool, pool).await?["status"].clone();
        ensure!(status["replicas"] == wanted, "{status}");
        Ok(())
    })
    .await
}

#[test]
fn killed_in_mid_scale_out_and_with_lost_answers_it_makes_exactly_what_was_wanted() {
    with_own(
        behind_proxy(),
        async |cluster: &mut Harness| -> Result<()> {
            let ns = Space::new(cluster, "kill").await?;
            ns.accepts(config("cfg"))?;
            ns.accepts(pool("web", "cfg").replicas(1))?;
            count(&ns, "web", 1).await?;
            // One answer in four is lost on the way back: the VM exists, and nobody said so.
            let lost = Rule::new(Action::LoseAnswer)
                .method("POST")
                .path_end("/virtualmachines")
                .chance(0.25, 7);
            let lost = cluster.proxy().add(lost);
            ns.kubectl("scale vpool web --replicas=200")?;
            tokio::time::sleep(Duration::from_millis(300)).await;
            let restarts = cluster.vmpool().restarts();
            cluster.vmpool().kill(Signal::KILL);
            cluster
                .vmpool()
                .wait_restarts(restarts + 1, Duration::from_secs(60))
                .await?;
            count(&ns, "web", 200).await?;
            ensure!(lost.hits() > 0);
            let names = ns.member_names("web").await?;
            let wanted: Vec<String> = (1..=200).map(|n| format!("web-{n}")).collect();
            ensure!(names == wanted, "{names:?}");
            lost.remove();

            // Deletes whose answer is lost, or refused, are repeated; nobody else goes.
            let lost = Rule::new(Action::LoseAnswer)
                .method("DELETE")
                .chance(0.3, 3);
            cluster.proxy().add(lost);
            cluster.proxy().add(
                Rule::answer(Answer::conflict())
                    .method("DELETE")
                    .chance(0.3, 4),
            );
            cluster.proxy().add(
                Rule::answer(Answer::too_many_requests(1))
                    .method("DELETE")
                    .times(3),
            );
            ns.kubectl("scale vpool web --replicas=120")?;
            count(&ns, "web", 120).await?;
            cluster.proxy().clear();
            ns.stays("120 stay", Duration::from_secs(3), async || {
                ensure!(ns.member_names("web").await?.len() == 120);
                Ok(())
            })
            .await
        },
    );
}

#[test]
fn pf_01_a_throttling_api_server_is_obeyed() {
    with_own(
        behind_proxy(),
        async |cluster: &mut Harness| -> Result<()> {
            let ns = Space::new(cluster, "pf01").await?;
            ns.accepts(config("cfg"))?;
            let full = Rule::answer(Answer::too_many_requests(2))
                .method("POST")
                .path_end("/virtualmachines");
            let full = cluster.proxy().add(full);
            ns.accepts(pool("web", "cfg").replicas(100))?;
            ns.condition(Kind::Pool, "web", "ReplicaFailure", "True")
                .await?;
            tokio::time::sleep(Duration::from_secs(5)).await;
            let tries = full.hits();
            ensure!(
                tries <= 12,
                "{tries} creates against an API server that said to wait 2 s"
            );
            full.remove();
            count(&ns, "web", 100).await
        },
    );
}

/// Of the calls of one method that `command` leads to, four are begun and no fifth before one has its answer.
async fn four_are_under_way(
    cluster: &Harness,
    ns: &Space<'_>,
    method: &'static str,
    command: &str,
) -> Result<()> {
    let held = Rule::new(Action::HoldRequest)
        .method(method)
        .path("/virtualmachines")
        // KubeVirt's verdict is no write.
        .when(|seen| !seen.query.contains("dryRun"));
    let held = cluster.proxy().add(held);
    ns.kubectl(command)?;
    let four = async || {
        let hits = held.hits();
        ensure!(hits == 4, "{hits} times {method}");
        Ok(())
    };
    ns.eventually("as many as allowed", four).await?;
    ns.stays("as many as allowed", Duration::from_secs(2), four)
        .await?;
    held.remove();
    Ok(())
}

#[test]
fn pf_01_no_more_writes_are_under_way_than_allowed_over_all_pools() {
    let options = Options {
        args: vec!["--max-in-flight=4".to_owned()],
        ..behind_proxy()
    };
    with_own(options, async |cluster: &mut Harness| -> Result<()> {
        let ns = Space::new(cluster, "turns").await?;
        ns.accepts(config("cfg"))?;
        let pools = ["a", "b", "c", "d", "e", "f"];
        for name in pools {
            ns.accepts(pool(name, "cfg").replicas(0))?;
            ns.settled(name, &[]).await?;
        }
        let all = pools.join(" ");
        let out = format!("scale vpool {all} --replicas=10");
        four_are_under_way(cluster, &ns, "POST", &out).await?;
        for name in pools {
            count(&ns, name, 10).await?;
        }
        let edit = r#"patch vconf cfg --type=merge -p {"spec":{"template":{"spec":{"domain":{"memory":{"guest":"96Mi"}}}}}}"#;
        four_are_under_way(cluster, &ns, "PATCH", edit).await?;
        for name in pools {
            ns.eventually("all follow", async || {
                let status = ns.get(Kind::Pool, name).await?["status"].clone();
                ensure!(status["updatedReplicas"] == 10, "{status}");
                Ok(())
            })
            .await?;
        }
        let back = format!("scale vpool {all} --replicas=0");
        four_are_under_way(cluster, &ns, "DELETE", &back).await?;
        for name in pools {
            count(&ns, name, 0).await?;
        }
        Ok(())
    });
}

#[test]
fn with_vmpool_down_members_still_start_stop_and_go_and_other_vms_never_notice() {
    with_own(
        Options::default(),
        async |cluster: &mut Harness| -> Result<()> {
            {
                let ns = Space::new(cluster, "down").await?;
                ns.accepts(config("cfg").running())?;
                ns.accepts(pool("web", "cfg").replicas(3))?;
                ns.ready("web", &["web-1", "web-2", "web-3"]).await?;
            }
            cluster.stop_vmpool();
            let ns = Space {
                harness: cluster,
                name: "down-0".to_owned(),
                client: cluster.client()?,
            };
            // Members.
            ns.kubectl("patch vm web-1 --type=merge -p {\"spec\":{\"runStrategy\":\"Halted\"}}")?;
            ns.gone(Kind::Instance, "web-1").await?;
            ns.kubectl("patch vm web-1 --type=merge -p {\"spec\":{\"runStrategy\":\"Always\"}}")?;
            ns.eventually("web-1 runs again", async || {
                let instance = ns.get(Kind::Instance, "web-1").await?;
                ensure!(instance["status"]["phase"] == "Running");
                Ok(())
            })
            .await?;
            ns.kubectl("delete vm web-3 --timeout=60s")?;
            // Others.
            ns.accepts(vm("mine"))?;
            ns.kubectl("label vm mine a=b")?;
            ns.kubectl("patch vm mine --type=merge -p {\"spec\":{\"runStrategy\":\"Always\"}}")?;
            ns.kubectl("delete vm mine --timeout=60s")?;
            // What waits says what it waits for.
            let refusal = ns.refused("scale vpool web --replicas=5")?;
            ensure!(refusal.contains("vmpool.dev"), "{refusal}");
            ns.rejects(config("other"))?;
            // What does not touch a spec goes on, and so does deletion.
            ns.kubectl("label vpool web team=a")?;
            ns.kubectl("label vconf cfg team=a")?;
            ns.kubectl("delete vconf cfg")?;
            ns.kubectl("delete vpool web --timeout=60s")?;
            ns.gone(Kind::Vm, "web-1").await?;
            ns.kubectl("delete namespace down-0 --timeout=120s")?;
            Ok(())
        },
    );
}

#[test]
fn without_kubevirt_and_cdi_it_waits_says_so_and_goes_on_when_they_come() {
    let absent = Options {
        without_kubevirt_crds: true,
        without_cdi_crds: true,
        without_standin: true,
        ..Options::default()
    };
    with_own(absent, async |cluster: &mut Harness| -> Result<()> {
        let ns = Space::new(cluster, "absent").await?;
        ns.accepts(config("plain"))?;
        ns.accepts(config("disks").disk("root"))?;
        ns.accepts(pool("a", "plain").replicas(2))?;
        ns.accepts(pool("b", "disks").replicas(2))?;
        let says = |pool: Value, what: &'static str| -> Result<()> {
            let conditions = pool["status"]["conditions"].to_string();
            ensure!(conditions.contains(what), "{conditions}");
            Ok(())
        };
        for pool in ["a", "b"] {
            ns.eventually("it says that KubeVirt is absent", async || {
                says(ns.get(Kind::Pool, pool).await?, "KubeVirt")
            })
            .await?;
        }
        cluster.install_kubevirt().await?;
        count(&ns, "a", 2).await?;
        ns.eventually("it says that CDI is absent", async || {
            says(ns.get(Kind::Pool, "b").await?, "CDI")
        })
        .await?;
        ensure!(ns.member_names("b").await?.is_empty());
        cluster.install_cdi().await?;
        count(&ns, "b", 2).await?;
        let b = ns.get(Kind::Pool, "b").await?;
        ensure!(
            condition(&b, "ConfigReady").is_some_and(|c| c["status"] == "True"),
            "{}",
            b["status"]
        );
        ensure!(cluster.vmpool().restarts() == 0);
        Ok(())
    });
}

#[test]
fn a_pool_recreated_under_its_name_converges_with_one_write_per_vm() {
    // Row 95, and the stale view of a pool that is gone.
    with_own(
        Options::default(),
        async |cluster: &mut Harness| -> Result<()> {
            let ns = Space::new(cluster, "again").await?;
            ns.accepts(config("cfg"))?;
            ns.accepts(pool("web", "cfg").replicas(5))?;
            count(&ns, "web", 5).await?;
            let old = uid(&ns.get(Kind::Pool, "web").await?).to_owned();
            let start = ns.harness.audit().mark();
            ns.kubectl("delete vpool web --wait=false")?;
            ns.eventually("the same name again", async || {
                ns.accepts(pool("web", "cfg").replicas(5))?;
                ensure!(uid(&ns.get(Kind::Pool, "web").await?) != old);
                Ok(())
            })
            .await?;
            count(&ns, "web", 5).await?;
            let members = ns.members("web").await?;
            ensure!(
                members
                    .iter()
                    .map(name)
                    .eq(["web-1", "web-2", "web-3", "web-4", "web-5"])
            );
            let writes = vm_writes(&ns, start).await?;
            ensure!(writes == 5, "{writes} writes for 5 VMs");
            Ok(())
        },
    );
}
