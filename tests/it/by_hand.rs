//! What users delete by hand: members come back or don't, pools go with all that is theirs. Cases SI-03, matrix
//! rows 42, 72 to 74, 97 and 99.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use crate::objects::{config, pool};
use crate::scaling::{adopted_by_kubevirt, hold, let_go};
use crate::space::{condition, name, uid};
use crate::{Kind, with_namespace};

#[test]
fn si_03_m42_a_deleted_member_goes_whatever_the_strategy_and_the_count() {
    for strategy in ["", "proactive", "unmanaged"] {
        with_namespace("si03", async |ns| -> Result<()> {
            ns.accepts(config("cfg"))?;
            let mut web = pool("web", "cfg").replicas(3);
            if !strategy.is_empty() {
                web = web.with(&format!("/spec/scaleInStrategy/{strategy}"), json!({}));
            }
            ns.accepts(web)?;
            let before = ns.settled("web", &["web-1", "web-2", "web-3"]).await?;
            ns.kubectl("delete vm web-3 --wait=false")?;
            ns.kubectl("scale vpool web --replicas=2")?;
            // It may have come back before the scale-in, and then any of the three is the surplus.
            ns.eventually("the deleted VM is gone, and two are left", async || {
                let members = ns.members("web").await?;
                ensure!(
                    members.iter().all(|vm| uid(vm) != uid(&before[2])),
                    "{strategy:?}"
                );
                let wanted = if strategy == "unmanaged" {
                    2..=3
                } else {
                    2..=2
                };
                ensure!(
                    wanted.contains(&members.len()),
                    "{strategy:?}: {}",
                    members.len()
                );
                Ok(())
            })
            .await
        });
    }
}

#[test]
fn m73_m74_m97_a_member_deleted_by_its_user_comes_back_under_its_number_with_a_fresh_disk() {
    with_namespace("m73", async |ns| -> Result<()> {
        ns.accepts(config("cfg").running().disk("root"))?;
        ns.accepts(pool("web", "cfg").replicas(2))?;
        let before = ns.ready("web", &["web-1", "web-2"]).await?;
        let disks = ns.list(Kind::DataVolume).await?;
        ensure!(disks.iter().map(name).eq(["web-1-root", "web-2-root"]));
        ns.kubectl("delete vm web-1 --cascade=foreground")?;
        ns.eventually("web-1 is another VM", async || {
            let vm = ns.get(Kind::Vm, "web-1").await?;
            ensure!(uid(&vm) != uid(&before[0]));
            Ok(())
        })
        .await?;
        let after = ns.ready("web", &["web-1", "web-2"]).await?;
        ensure!(uid(&after[1]) == uid(&before[1]), "web-2 is another VM");
        let fresh = ns.list(Kind::DataVolume).await?;
        ensure!(fresh.iter().map(name).eq(["web-1-root", "web-2-root"]));
        ensure!(uid(&fresh[0]) != uid(&disks[0]), "web-1 has its old disk");
        ensure!(uid(&fresh[1]) == uid(&disks[1]), "web-2 lost its disk");
        Ok(())
    });
}

#[test]
fn m72_deleting_a_pool_of_2_removes_its_vms_and_disks() {
    for cascade in ["background", "foreground"] {
        with_namespace("m72", async |ns| -> Result<()> {
            ns.accepts(config("cfg").running().disk("root"))?;
            ns.accepts(pool("web", "cfg").replicas(2))?;
            ns.ready("web", &["web-1", "web-2"]).await?;
            ns.kubectl(&format!("delete vpool web --cascade={cascade}"))?;
            for kind in [
                Kind::Vm,
                Kind::Instance,
                Kind::DataVolume,
                Kind::Claim,
                Kind::Pod,
            ] {
                ns.eventually(&format!("no {kind:?} is left"), async || {
                    let left = ns.names(kind).await?;
                    ensure!(left.is_empty(), "{left:?}");
                    Ok(())
                })
                .await?;
            }
            ensure!(ns.find(Kind::Config, "cfg").await?.is_some());
            Ok(())
        });
    }
}

#[test]
fn m99_a_user_deletes_a_member_of_a_paused_pool_and_it_goes() {
    with_namespace("m99", async |ns| -> Result<()> {
        ns.accepts(config("cfg").running())?;
        ns.accepts(pool("web", "cfg").replicas(2).with("/spec/paused", false))?;
        ns.ready("web", &["web-1", "web-2"]).await?;
        ns.kubectl("patch vpool web --type=merge -p {\"spec\":{\"paused\":true}}")?;
        ns.kubectl("delete vm web-2 --timeout=60s")?;
        ns.gone(Kind::Vm, "web-2").await?;
        ns.settled("web", &["web-1"]).await?;
        // And the pool itself, while it is paused.
        ns.kubectl("delete vpool web --timeout=60s")?;
        ns.gone(Kind::Vm, "web-1").await
    });
}

#[test]
fn a_number_whose_vm_is_still_going_is_waited_for() {
    with_namespace("wait", async |ns| -> Result<()> {
        ns.accepts(config("cfg"))?;
        ns.accepts(pool("web", "cfg").replicas(2))?;
        ns.settled("web", &["web-1", "web-2"]).await?;
        adopted_by_kubevirt(ns, "web-1").await?;
        hold(ns, "web-1").await?;
        ns.kubectl("delete vm web-1 --wait=false")?;
        ns.stays(
            "no other number is taken",
            Duration::from_secs(3),
            async || {
                ensure!(ns.find(Kind::Vm, "web-3").await?.is_none());
                Ok(())
            },
        )
        .await?;
        let pool = ns.get(Kind::Pool, "web").await?;
        let progressing = condition(&pool, "Progressing").context("no condition")?;
        let message = progressing["message"].as_str().unwrap_or_default();
        ensure!(
            message.contains("web-1"),
            "says what it waits for: {message}"
        );
        let_go(ns, "web-1").await?;
        ns.settled("web", &["web-1", "web-2"]).await?;
        Ok(())
    });
}
