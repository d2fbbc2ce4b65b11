//! Configs that are deleted under their pools, and come back. Case VD-11.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::objects::{all, pool};
use crate::revisions::{latest, revision_of, sized};
use crate::space::{condition, name, uid};
use crate::{Kind, Space, with_namespace};

/// Deletes the config under a running pool of three and checks that nothing happens to it; answers the
/// members.
async fn config_deleted(ns: &Space<'_>) -> Result<Vec<Value>> {
    ns.accepts(all(&[
        sized("1Gi").running().disk("root"),
        pool("web", "cfg").replicas(3),
    ]))?;
    ns.ready("web", &["web-1", "web-2", "web-3"]).await?;
    let before = ns.members("web").await?;
    ns.kubectl("delete virtualmachineconfigs.vmpool.dev cfg")?;
    let ready = ns
        .condition(Kind::Pool, "web", "ConfigReady", "False")
        .await?;
    ensure!(ready["reason"] == "ConfigNotFound", "{ready}");
    Ok(before)
}

async fn untouched(ns: &Space<'_>, before: &[Value]) -> Result<()> {
    for vm in before {
        let now = ns.get(Kind::Vm, name(vm)).await?;
        ensure!(uid(&now) == uid(vm), "{} was replaced", name(vm));
        ensure!(
            now["spec"] == vm["spec"],
            "{} was changed: {}",
            name(vm),
            now["spec"]
        );
        let labels = |vm: &Value| vm["metadata"]["labels"].clone();
        ensure!(labels(&now) == labels(vm), "{}: {}", name(vm), labels(&now));
    }
    Ok(())
}

#[test]
fn vd_11_a_config_deleted_in_use_leaves_vms_alone_and_its_last_revision_serves_scale_out() {
    with_namespace("vd-11-gone", async |ns| {
        let before = config_deleted(ns).await?;
        let revision = revision_of(&before[0]).to_owned();
        ns.kubectl("scale virtualmachinepools.vmpool.dev web --replicas=5")?;
        let all = ns
            .ready("web", &["web-1", "web-2", "web-3", "web-4", "web-5"])
            .await?;
        ensure!(all.iter().all(|vm| revision_of(vm) == revision), "{all:?}");
        ensure!(
            all[4]["spec"]["template"]["spec"]["domain"]["memory"]["guest"] == "1Gi",
            "{}",
            all[4]
        );
        untouched(ns, &before).await?;
        let pool = ns.get(Kind::Pool, "web").await?;
        let ready = condition(&pool, "ConfigReady").context("no condition")?;
        ensure!(
            ready["status"] == "False",
            "it has come back by itself: {ready}"
        );
        Ok(())
    });
}

#[test]
fn vd_11_a_config_that_comes_back_with_other_content_is_followed() {
    with_namespace("vd-11-other", async |ns| {
        let before = config_deleted(ns).await?;
        ns.accepts(sized("2Gi").running().disk("root"))?;
        ns.condition(Kind::Pool, "web", "ConfigReady", "True")
            .await?;
        ns.kubectl("scale virtualmachinepools.vmpool.dev web --replicas=4")?;
        let all = ns
            .ready("web", &["web-1", "web-2", "web-3", "web-4"])
            .await?;
        ensure!(
            revision_of(&all[3]) != revision_of(&before[0]),
            "{}",
            all[3]
        );
        ns.eventually("all have the new content", async || {
            for vm in ns.members("web").await? {
                let memory = &vm["spec"]["template"]["spec"]["domain"]["memory"]["guest"];
                ensure!(memory == "2Gi", "{} has {memory}", name(&vm));
            }
            Ok(())
        })
        .await
    });
}

#[test]
fn vd_11_a_config_that_comes_back_as_it_was_has_its_revision_again() {
    with_namespace("vd-11-same", async |ns| {
        let before = config_deleted(ns).await?;
        ns.accepts(sized("1Gi").running().disk("root"))?;
        ns.condition(Kind::Pool, "web", "ConfigReady", "True")
            .await?;
        let revision = latest(ns).await?;
        ensure!(revision == revision_of(&before[0]), "{revision}");
        // It is the new config's now, and goes on when pool and VMs are gone.
        ns.eventually("the new config owns the revision", async || {
            let config = ns.get(Kind::Config, "cfg").await?;
            let owners =
                ns.get(Kind::Revision, &revision).await?["metadata"]["ownerReferences"].clone();
            let mut owners = owners.as_array().into_iter().flatten();
            ensure!(
                owners.any(|owner| owner["uid"] == uid(&config)),
                "another one does"
            );
            Ok(())
        })
        .await?;
        ns.kubectl("delete virtualmachinepools.vmpool.dev web")?;
        ns.gone(Kind::Vm, "web-1").await?;
        ns.get(Kind::Revision, &revision).await.map(drop)
    });
}
