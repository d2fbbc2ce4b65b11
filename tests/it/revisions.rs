//! Revisions of configs, and configs that change under their pools. Matrix rows 5 and 7, read as we have it:
//! revisions belong to the config, and are kept up to a limit. Configs that go are in `config_gone`.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::objects::{Builder, all, config, pool};
use crate::space::uid;
use crate::{Kind, Space, with_namespace};

/// The config as it looks with this much memory: another spec each.
pub(crate) fn sized(memory: &str) -> Builder {
    config("cfg").with("/spec/template/spec/domain/memory/guest", memory)
}

/// A pool whose members stay on the revision that they were made from.
fn unmanaged() -> Builder {
    pool("web", "cfg").with("/spec/updateStrategy", json!({"unmanaged": {}}))
}

/// Applies the config and waits until its status names the revision of this spec.
async fn revised(ns: &Space<'_>, config: &Builder) -> Result<String> {
    ns.accepts(config)?;
    latest(ns).await
}

/// The newest revision, once the config's status speaks of its present generation.
pub(crate) async fn latest(ns: &Space<'_>) -> Result<String> {
    ns.eventually("the config has a revision", async || {
        let config = ns.get(Kind::Config, "cfg").await?;
        let (status, generation) = (&config["status"], &config["metadata"]["generation"]);
        ensure!(
            &status["observedGeneration"] == generation,
            "status is of before: {status}"
        );
        let latest = status["latestRevision"].as_str().context("no revision")?;
        Ok(latest.to_owned())
    })
    .await
}

/// Number of a revision.
async fn number(ns: &Space<'_>, revision: &str) -> Result<i64> {
    let revision = ns.get(Kind::Revision, revision).await?;
    revision["revision"].as_i64().context("no number")
}

pub(crate) fn revision_of(vm: &Value) -> &str {
    vm["metadata"]["labels"]["vmpool.dev/revision"]
        .as_str()
        .unwrap_or_default()
}

#[test]
fn a_spec_is_one_revision_however_often_and_in_whatever_form_it_is_applied() {
    with_namespace("one-revision", async |ns| {
        // 1. The first.
        let spec = sized("1Gi").with(
            "/spec/template/metadata/labels",
            json!({"a": "1", "b": "2"}),
        );
        let first = revised(ns, &spec).await?;
        ensure!(first.starts_with("cfg-"), "{first}");
        let before = ns.get(Kind::Revision, &first).await?;

        // 2. The same again: client-side, server-side, with keys in another order, with what is empty left out
        //    or put in, and with the older way to say Halted.
        ns.accepts(&spec)?;
        let reordered = r#"{"kind": "VirtualMachineConfig", "apiVersion": "vmpool.dev/v1alpha1", "spec": {
            "template": {"spec": {"volumes": [], "domain": {"memory": {"guest": "1Gi"}, "devices": {}}},
                "metadata": {"labels": {"b": "2", "a": "1"}}},
            "runStrategy": "Halted"}, "metadata": {"name": "cfg"}}"#;
        ns.accepts(reordered)?;
        for same in [
            spec.clone().with("/spec/dataVolumeTemplates", json!([])),
            spec.clone()
                .with("/spec/template/spec/domain/devices/disks", json!([])),
            spec.clone()
                .without("/spec/runStrategy")
                .with("/spec/running", false),
        ] {
            let again = revised(ns, &same).await?;
            ensure!(
                again == first,
                "{again} is another revision than {first} for {same}"
            );
        }

        // 3. There is one, and nobody wrote to it.
        let names = ns.names(Kind::Revision).await?;
        ensure!(names == [first.clone()], "{names:?}");
        let after = ns.get(Kind::Revision, &first).await?;
        ensure!(after["revision"] == before["revision"], "{after}");
        ensure!(after["data"] == before["data"], "{after}");
        Ok(())
    });
}

#[test]
fn going_back_to_an_old_spec_takes_its_revision_again_with_a_new_number() {
    with_namespace("back", async |ns| {
        let a = revised(ns, &sized("1Gi")).await?;
        let b = revised(ns, &sized("2Gi")).await?;
        ensure!(a != b, "both are {a}");
        ensure!(
            number(ns, &a).await? < number(ns, &b).await?,
            "the newer has the higher number"
        );
        let again = revised(ns, &sized("1Gi")).await?;
        ensure!(again == a, "{again} instead of {a}");
        ns.eventually("the old revision has the highest number", async || {
            ensure!(number(ns, &a).await? > number(ns, &b).await?);
            Ok(())
        })
        .await?;
        ensure!(ns.names(Kind::Revision).await?.len() == 2);
        Ok(())
    });
}

#[test]
fn a_revision_holds_the_spec_as_written_and_nothing_of_the_configs_metadata() {
    with_namespace("content", async |ns| {
        let config = sized("1Gi")
            .running()
            .label("argocd.argoproj.io/instance", "app")
            .annotation("meta.helm.sh/release-name", "app");
        ns.accepts(all(&[config.clone(), pool("web", "cfg").replicas(1)]))?;
        let vms = ns.ready("web", &["web-1"]).await?;
        let revision = ns.get(Kind::Revision, &latest(ns).await?).await?;
        let instance = ns.get(Kind::Instance, "web-1").await?;

        // 1. A GitOps tool would prune or adopt what carries its labels.
        for object in [&vms[0], &instance, &revision] {
            for part in ["labels", "annotations"] {
                let found = object["metadata"][part].to_string();
                let copied = found.contains("argocd") || found.contains("helm");
                ensure!(!copied, "{} has {found}", object["kind"]);
            }
        }
        // 2. The content is the spec.
        let data = revision["data"].to_string();
        let spec = config.value()["spec"].to_string();
        ensure!(
            data.contains(r#""guest":"1Gi""#) && !data.contains("argocd"),
            "{data} for {spec}"
        );
        Ok(())
    });
}

#[test]
fn a_change_of_metadata_makes_no_revision() {
    with_namespace("metadata", async |ns| {
        let first = revised(ns, &sized("1Gi")).await?;
        ns.kubectl("label virtualmachineconfigs.vmpool.dev cfg team=a")?;
        ns.kubectl("annotate virtualmachineconfigs.vmpool.dev cfg note=x")?;
        // The next spec's revision shows that the changes before it have been seen.
        revised(ns, &sized("2Gi").label("team", "b")).await?;
        let names = ns.names(Kind::Revision).await?;
        ensure!(names.len() == 2 && names.contains(&first), "{names:?}");
        Ok(())
    });
}

#[test]
fn m07_revisions_are_kept_up_to_the_limit_and_never_lost_while_in_use() {
    with_namespace("m07", async |ns| {
        let limit = "vmpool.dev/revision-history-limit";
        let sized = |memory| sized(memory).annotation(limit, "2");
        // 1. A VM is stamped from the first, and stays there.
        let used = revised(ns, &sized("1Gi")).await?;
        ns.accepts(unmanaged().replicas(1))?;
        ns.settled("web", &["web-1"]).await?;

        // 2. Many more come and go: the newest two are kept, and the one in use.
        let mut all = Vec::new();
        for memory in ["2Gi", "3Gi", "4Gi", "5Gi", "6Gi"] {
            all.push(revised(ns, &sized(memory)).await?);
        }
        ns.eventually("what is over the limit is pruned", async || {
            let names = ns.names(Kind::Revision).await?;
            ensure!(names.len() <= 3, "{names:?}");
            Ok(())
        })
        .await?;
        let names = ns.names(Kind::Revision).await?;
        ensure!(
            names.contains(&used),
            "the one that web-1 uses is gone: {names:?}"
        );
        ensure!(names.contains(&all[4]), "the newest is gone: {names:?}");

        // 3. Nobody uses the first any more.
        ns.kubectl("delete vm web-1")?;
        ns.eventually("web-1 is made from the newest", async || {
            let vms = ns.members("web").await?;
            ensure!(vms.len() == 1 && revision_of(&vms[0]) == all[4], "{vms:?}");
            Ok(())
        })
        .await?;
        ns.accepts(sized("7Gi"))?;
        ns.gone(Kind::Revision, &used).await
    });
}

#[test]
fn m05_the_end_of_a_pool_leaves_the_configs_revisions_and_the_end_of_both_none() {
    with_namespace("m05", async |ns| {
        let revision = revised(ns, &sized("1Gi")).await?;
        ns.accepts(pool("web", "cfg").replicas(2))?;
        ns.settled("web", &["web-1", "web-2"]).await?;
        ns.eventually("the pool co-owns the revision", async || {
            let owners =
                ns.get(Kind::Revision, &revision).await?["metadata"]["ownerReferences"].clone();
            let kinds: Vec<&str> = owners
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|owner| owner["kind"].as_str())
                .collect();
            ensure!(kinds.contains(&"VirtualMachinePool"), "{owners}");
            ensure!(kinds.contains(&"VirtualMachineConfig"), "{owners}");
            Ok(())
        })
        .await?;
        ns.kubectl("delete virtualmachinepools.vmpool.dev web")?;
        ns.gone(Kind::Vm, "web-2").await?;
        ns.get(Kind::Revision, &revision).await?;
        ns.kubectl("delete virtualmachineconfigs.vmpool.dev cfg")?;
        ns.gone(Kind::Revision, &revision).await
    });
}

#[test]
fn m18_under_unmanaged_an_edited_config_reaches_new_vms_and_leaves_others_alone() {
    with_namespace("m18", async |ns| {
        let old = revised(ns, &sized("1Gi").running()).await?;
        ns.accepts(unmanaged().replicas(2))?;
        let before = ns.ready("web", &["web-1", "web-2"]).await?;
        let new = revised(ns, &sized("2Gi").running()).await?;
        ns.kubectl("scale virtualmachinepools.vmpool.dev web --replicas=3")?;
        let after = ns.ready("web", &["web-1", "web-2", "web-3"]).await?;
        ensure!(
            after.iter().map(revision_of).eq([&old, &old, &new]),
            "{after:?}"
        );
        for (before, after) in before.iter().zip(&after) {
            ensure!(
                before["spec"] == after["spec"] && uid(before) == uid(after),
                "{after}"
            );
        }
        let status = ns.get(Kind::Pool, "web").await?["status"].clone();
        ensure!(status["targetRevision"] == new, "{status}");
        ensure!(
            status["updatedReplicas"] == 1 && status["replicas"] == 3,
            "{status}"
        );
        Ok(())
    });
}

#[test]
fn a_pinned_pool_stays_on_its_revision() {
    with_namespace("pinned", async |ns| {
        let old = revised(ns, &sized("1Gi")).await?;
        let new = revised(ns, &sized("2Gi")).await?;
        ensure!(old != new);
        ns.accepts(
            pool("web", "cfg")
                .replicas(1)
                .with("/spec/config/revision", old.as_str()),
        )?;
        let vms = ns.settled("web", &["web-1"]).await?;
        ensure!(revision_of(&vms[0]) == old, "{}", vms[0]);

        ns.accepts(
            pool("lost", "cfg")
                .replicas(1)
                .with("/spec/config/revision", "cfg-nowhere"),
        )?;
        let condition = ns
            .condition(Kind::Pool, "lost", "ConfigReady", "False")
            .await?;
        ensure!(condition["reason"] == "RevisionNotFound", "{condition}");
        ensure!(ns.members("lost").await?.is_empty());
        Ok(())
    });
}

#[test]
fn a_pool_whose_config_does_not_exist_says_so_and_goes_on_when_it_comes() {
    with_namespace("late-config", async |ns| {
        let said = ns.accepts(pool("web", "cfg").replicas(2))?;
        ensure!(
            said.contains("Warning") && said.contains("cfg"),
            "no warning: {said}"
        );
        let ready = ns
            .condition(Kind::Pool, "web", "ConfigReady", "False")
            .await?;
        ensure!(ready["reason"] == "ConfigNotFound", "{ready}");
        ensure!(ns.list(Kind::Vm).await?.is_empty());
        ns.accepts(config("cfg"))?;
        ns.settled("web", &["web-1", "web-2"]).await?;
        ns.condition(Kind::Pool, "web", "ConfigReady", "True")
            .await
            .map(drop)
    });
}

#[test]
fn what_kubevirt_thinks_of_a_config_is_asked_once_and_said() {
    with_namespace("accepted", async |ns| {
        revised(ns, &sized("1Gi")).await?;
        ns.accepts(all(&[
            pool("a", "cfg").replicas(0),
            pool("b", "cfg").replicas(0),
        ]))?;
        let accepted = ns
            .condition(Kind::Config, "cfg", "Accepted", "True")
            .await?;
        ensure!(accepted["reason"] == "AcceptedByKubeVirt", "{accepted}");
        ns.eventually("both pools are counted", async || {
            let config = ns.get(Kind::Config, "cfg").await?;
            ensure!(config["status"]["pools"] == 2, "{}", config["status"]);
            Ok(())
        })
        .await
    });
}
