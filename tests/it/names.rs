//! Names: of VMs, of their disks, and what can't be one. Cases NR-05 to NR-07 and NR-09, matrix rows 15 and 94.
//! What VMs refer to is in `references`.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::objects::{Builder, all, config, pool, vm};
use crate::space::{controller, name, uid};
use crate::{Kind, Space, with_namespace};

#[test]
fn nr_05_m94_two_pools_of_one_config_have_disks_of_their_own() {
    with_namespace("nr-05", async |ns| {
        // 1. Both pools run from the one config.
        ns.accepts(all(&[
            config("cfg").running().disk("root"),
            pool("a", "cfg").replicas(2),
            pool("b", "cfg").replicas(2),
        ]))?;
        ns.ready("a", &["a-1", "a-2"]).await?;
        ns.ready("b", &["b-1", "b-2"]).await?;
        let wanted = ["a-1-root", "a-2-root", "b-1-root", "b-2-root"];
        let disks = ns.names(Kind::DataVolume).await?;
        ensure!(disks == wanted, "disks: {disks:?}");
        let claims = ns.list(Kind::Claim).await?;
        ensure!(claims.iter().map(name).eq(wanted), "claims: {claims:?}");
        let uids =
            |of: &[Value]| -> BTreeSet<String> { of.iter().map(|o| uid(o).to_owned()).collect() };
        let kept = uids(&claims[..2]);

        // 2. Each VM's volume names its own disk.
        for vm in ns.list(Kind::Vm).await? {
            let volume = &vm["spec"]["template"]["spec"]["volumes"][0];
            let own = format!("{}-root", name(&vm));
            ensure!(
                volume["dataVolume"]["name"] == own,
                "{}: {volume}",
                name(&vm)
            );
            ensure!(
                volume["name"] == "root",
                "the volume's own name stays: {volume}"
            );
        }

        // 3. One pool goes to nothing, and the other keeps its disks.
        ns.kubectl("scale virtualmachinepools.vmpool.dev b --replicas=0")?;
        ns.settled("b", &[]).await?;
        ns.gone(Kind::Claim, "b-1-root").await?;
        ns.gone(Kind::Claim, "b-2-root").await?;
        let claims = ns.list(Kind::Claim).await?;
        ensure!(
            uids(&claims) == kept,
            "the claims of a are others now: {claims:?}"
        );
        for claim in &claims {
            ensure!(claim["status"]["phase"] == "Bound", "{claim}");
        }
        ns.ready("a", &["a-1", "a-2"]).await?;
        Ok(())
    });
}

/// A disk that stands alone has the name that a member's would get.
async fn disk_is_taken(ns: &Space<'_>, kind: Kind, disk: &Value) -> Result<()> {
    // 1. It is there before the pool.
    let before = ns.create(kind, disk).await?;
    ns.accepts(all(&[
        config("cfg").running().disk("root"),
        pool("web", "cfg")
            .replicas(3)
            .with("/spec/nameGeneration/ordinalStart", 0),
    ]))?;

    // 2. Its number is skipped, and an event names the clash.
    ns.ready("web", &["web-0", "web-2", "web-3"]).await?;
    let events = ns
        .eventually("an event about the disk", async || {
            let events = ns.events("web", "NameTaken").await?;
            ensure!(!events.is_empty(), "no event");
            Ok(events)
        })
        .await?;
    ensure!(events.len() == 1, "one event is enough: {events:?}");
    let note = events[0]["note"].as_str().unwrap_or_default();
    ensure!(note.contains("web-1-root"), "{note}");

    // 3. It survives the pool's scaling to nothing, and its end.
    ns.kubectl("scale virtualmachinepools.vmpool.dev web --replicas=0")?;
    ns.settled("web", &[]).await?;
    ns.kubectl("delete virtualmachinepools.vmpool.dev web")?;
    ns.gone(Kind::DataVolume, "web-0-root").await?;
    let after = ns.get(kind, "web-1-root").await?;
    ensure!(uid(&after) == uid(&before), "it is another one");
    ensure!(
        after["metadata"]["deletionTimestamp"].is_null(),
        "it is going away"
    );
    ensure!(
        after["metadata"]["ownerReferences"].is_null(),
        "somebody took it: {after}"
    );
    Ok(())
}

#[test]
fn nr_06_a_data_volume_with_a_members_disk_name_is_skipped_and_survives() {
    with_namespace("nr-06-dv", async |ns| {
        let disk = json!({
            "apiVersion": "cdi.kubevirt.io/v1beta1",
            "kind": "DataVolume",
            "metadata": {"name": "web-1-root"},
            "spec": {
                "storage": {"resources": {"requests": {"storage": "1Gi"}}},
                "source": {"blank": {}},
            },
        });
        disk_is_taken(ns, Kind::DataVolume, &disk).await
    });
}

#[test]
fn nr_06_a_claim_with_a_members_disk_name_is_skipped_and_survives() {
    with_namespace("nr-06-pvc", async |ns| {
        let disk = json!({
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "web-1-root"},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
            },
        });
        disk_is_taken(ns, Kind::Claim, &disk).await
    });
}

fn prefixed(name: &str, prefix: &str) -> Builder {
    pool(name, "cfg")
        .replicas(3)
        .with("/spec/nameGeneration/vmPrefix", prefix)
}

#[test]
fn nr_07_a_prefix_without_room_for_six_digits_is_refused_with_the_budget() {
    with_namespace("nr-07-a", async |ns| {
        ns.accepts(config("cfg"))?;
        // 1. 61 characters would fit with one digit, and no longer with two: refused from the start.
        let long = "p".repeat(61);
        let said = ns.rejects(prefixed("web", &long))?;
        ensure!(said.contains("spec.nameGeneration.vmPrefix"), "{said}");
        ensure!(
            said.contains("56") && said.contains("63"),
            "no budget: {said}"
        );

        // 2. The pool's name is the prefix where none is given.
        let said = ns.rejects(pool(&long, "cfg").replicas(3))?;
        ensure!(
            said.contains("spec.nameGeneration.vmPrefix") && said.contains("56"),
            "{said}"
        );

        // 3. What is admitted goes on to fit, in two digits and in six.
        let fits = "p".repeat(56);
        ns.accepts(prefixed("web", &fits).with("/spec/nameGeneration/ordinalStart", 99_998))?;
        let wanted: Vec<String> = (99_998..=100_001).map(|n| format!("{fits}-{n}")).collect();
        let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
        ns.settled("web", &wanted[..3]).await?;
        ns.kubectl("scale virtualmachinepools.vmpool.dev web --replicas=4")?;
        ns.settled("web", &wanted).await?;
        Ok(())
    });
}

#[test]
fn nr_07_scaling_past_what_names_have_room_for_is_refused_and_not_retried() {
    with_namespace("nr-07-scale", async |ns| {
        ns.accepts(all(&[config("cfg"), pool("web", "cfg").replicas(1)]))?;
        ns.settled("web", &["web-1"]).await?;
        let said = ns.refused("scale virtualmachinepools.vmpool.dev web --replicas=100001")?;
        ensure!(
            said.contains("spec.replicas") && said.contains("100000"),
            "{said}"
        );
        let stored = ns.get(Kind::Pool, "web").await?;
        ensure!(stored["spec"]["replicas"] == 1, "{stored}");
        let said =
            ns.rejects(pool("high", "cfg").with("/spec/nameGeneration/ordinalStart", 100_001))?;
        ensure!(said.contains("spec.nameGeneration.ordinalStart"), "{said}");
        Ok(())
    });
}

#[test]
fn nr_07_a_disk_template_that_leaves_no_room_for_vm_names_is_refused_with_the_budget() {
    with_namespace("nr-07-disk", async |ns| {
        // <prefix>-<6 digits>-<template> has at most 63 characters: 45 for this template and prefix.
        let template = "t".repeat(45);
        ns.accepts(config("cfg").disk(&template))?;
        let said = ns.rejects(prefixed("web", &"p".repeat(11)))?;
        ensure!(said.contains("spec.nameGeneration.vmPrefix"), "{said}");
        ensure!(
            said.contains("44") && said.contains("63"),
            "no budget: {said}"
        );

        let fits = "p".repeat(10);
        ns.accepts(prefixed("web", &fits).replicas(1))?;
        ns.settled("web", &[&format!("{fits}-1")]).await?;

        // A template that no prefix leaves room for is refused in the config.
        let said = ns.rejects(config("other").disk(&"t".repeat(55)))?;
        ensure!(
            said.contains("spec.dataVolumeTemplates[0].metadata.name"),
            "{said}"
        );
        ensure!(said.contains("54"), "no budget: {said}");
        Ok(())
    });
}

#[test]
fn nr_07_the_longest_names_of_pool_and_config_fit_every_label() {
    with_namespace("nr-07-b", async |ns| {
        // 1. A config's revisions have its name, a dash and a hash, and are label values.
        let said = ns.rejects(config(&"c".repeat(53)))?;
        ensure!(
            said.contains("metadata.name") && said.contains("52"),
            "{said}"
        );
        let (config_name, pool_name) = ("c".repeat(52), "w".repeat(63));
        ns.accepts(all(&[
            config(&config_name).running(),
            pool(&pool_name, &config_name)
                .replicas(1)
                .with("/spec/nameGeneration/vmPrefix", "web"),
        ]))?;

        // 2. They are on VM and instance, whole.
        let vms = ns.ready(&pool_name, &["web-1"]).await?;
        let instance = ns.get(Kind::Instance, "web-1").await?;
        for object in [&vms[0], &instance] {
            let labels = &object["metadata"]["labels"];
            ensure!(labels["vmpool.dev/pool"] == pool_name, "{labels}");
            ensure!(labels["vmpool.dev/config"] == config_name, "{labels}");
            let revision = labels["vmpool.dev/revision"]
                .as_str()
                .context("no revision")?;
            ensure!(revision.len() == 63, "{revision}");
            ns.get(Kind::Revision, revision).await?;
        }

        // 3. One more can't be.
        let said = ns.rejects(
            pool(&"w".repeat(64), &config_name).with("/spec/nameGeneration/vmPrefix", "other"),
        )?;
        ensure!(said.contains("63"), "{said}");
        Ok(())
    });
}

#[test]
fn nr_07_a_prefix_that_is_no_host_name_is_refused() {
    with_namespace("nr-07-c", async |ns| {
        ns.accepts(config("cfg"))?;
        for prefix in ["db.prod", "Web", "web_1", "-web", "web-", ""] {
            let said = ns.rejects(prefixed("web", prefix))?;
            ensure!(
                said.contains("spec.nameGeneration.vmPrefix"),
                "{prefix:?}: {said}"
            );
        }
        // The name of a pool may have a dot, but then it can't be the prefix.
        let said = ns.rejects(pool("db.prod", "cfg").replicas(1))?;
        ensure!(said.contains("spec.nameGeneration.vmPrefix"), "{said}");
        ns.accepts(prefixed("db.prod", "db").replicas(1))?;
        ns.settled("db.prod", &["db-1"]).await?;
        Ok(())
    });
}

#[test]
fn nr_07_two_pools_can_not_share_a_prefix() {
    with_namespace("nr-07-twins", async |ns| {
        ns.accepts(all(&[config("cfg"), pool("web", "cfg").replicas(1)]))?;
        ns.settled("web", &["web-1"]).await?;
        let said = ns.rejects(prefixed("other", "web"))?;
        ensure!(said.contains("spec.nameGeneration.vmPrefix"), "{said}");
        ensure!(said.contains("pool web"), "it does not say whose: {said}");
        Ok(())
    });
}

#[test]
fn the_prefix_can_not_be_changed_while_there_are_vms() {
    with_namespace("prefix", async |ns| {
        ns.accepts(all(&[config("cfg"), prefixed("web", "a").replicas(1)]))?;
        ns.settled("web", &["a-1"]).await?;
        let said = ns.rejects(prefixed("web", "b").replicas(1))?;
        ensure!(said.contains("spec.nameGeneration.vmPrefix"), "{said}");
        ns.kubectl("scale virtualmachinepools.vmpool.dev web --replicas=0")?;
        ns.settled("web", &[]).await?;
        ns.accepts(prefixed("web", "b").replicas(1))?;
        ns.settled("web", &["b-1"]).await?;
        Ok(())
    });
}

#[test]
fn nr_09_a_number_that_left_the_pool_is_skipped_until_it_is_free() {
    with_namespace("nr-09", async |ns| {
        let web = |replicas| {
            pool("web", "cfg")
                .replicas(replicas)
                .with("/spec/nameGeneration/ordinalStart", 0)
        };
        // 1. Three members, one of which loses its owner by hand.
        ns.accepts(all(&[config("cfg"), web(3)]))?;
        ns.settled("web", &["web-0", "web-1", "web-2"]).await?;
        let before = ns.get(Kind::Vm, "web-1").await?;
        let patch = r#"[{"op":"remove","path":"/metadata/ownerReferences"}]"#;
        ns.kubectl(&format!("patch vm web-1 --type=json --patch={patch}"))?;

        // 2. The next number is taken; the status counts members, not numbers.
        ns.settled("web", &["web-0", "web-2", "web-3"]).await?;
        let left = ns.get(Kind::Vm, "web-1").await?;
        ensure!(uid(&left) == uid(&before), "it was replaced");
        let status = ns.get(Kind::Pool, "web").await?["status"].clone();
        ensure!(
            status["replicas"] == 3 && status["updatedReplicas"] == 3,
            "{status}"
        );

        // 3. Once it is gone, its number is the lowest free one.
        ns.kubectl("delete vm web-1")?;
        ns.kubectl("scale virtualmachinepools.vmpool.dev web --replicas=4")?;
        ns.settled("web", &["web-0", "web-1", "web-2", "web-3"])
            .await?;
        Ok(())
    });
}

#[test]
fn m15_a_number_whose_vm_is_somebody_elses_is_skipped_and_the_vm_untouched() {
    with_namespace("m15", async |ns| {
        let stranger = vm("web-1").label("owner", "somebody");
        ns.accepts(&stranger)?;
        let before = ns.get(Kind::Vm, "web-1").await?;
        let pool = pool("web", "cfg")
            .replicas(3)
            .with("/spec/nameGeneration/ordinalStart", 0);
        let said = ns.accepts(all(&[config("cfg"), pool]))?;
        ensure!(
            said.contains("Warning") && said.contains("web-1"),
            "no warning: {said}"
        );
        ns.settled("web", &["web-0", "web-2", "web-3"]).await?;
        let after = ns.get(Kind::Vm, "web-1").await?;
        ensure!(
            after["metadata"]["labels"] == before["metadata"]["labels"],
            "{after}"
        );
        ensure!(
            controller(&after).is_none() && uid(&after) == uid(&before),
            "{after}"
        );
        let managers = after["metadata"]["managedFields"]
            .as_array()
            .context("no managers")?;
        let ours = managers.iter().find(|entry| entry["manager"] == "vmpool");
        ensure!(ours.is_none(), "vmpool wrote to it: {ours:?}");
        Ok(())
    });
}
