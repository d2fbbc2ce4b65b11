//! What has no place in a config, what several VMs can't have, and that a config is nothing that starts: each
//! verdict through kubectl, with every path. Case VD-12.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use kube::api::{DynamicObject, PostParams};
use serde_json::{Value, json};

use crate::objects::{Builder, config, pool};
use crate::space::controller;
use crate::{Kind, Space, with_namespace};

const TEMPLATE: &str = "/spec/template/spec";

/// The fields and messages of a refusal, as the API server passes them on.
async fn causes(ns: &Space<'_>, kind: Kind, object: &Builder) -> Result<Vec<(String, String)>> {
    let typed: DynamicObject = serde_json::from_value(object.value().clone())?;
    let status = match ns.api(kind).create(&PostParams::default(), &typed).await {
        Err(kube::Error::Api(status)) => status,
        other => bail!("it was not refused: {other:?}"),
    };
    ensure!(
        status.code == 422 && status.reason == "Invalid",
        "{status:?}"
    );
    let details = status.details.context("a refusal has details")?;
    Ok(details
        .causes
        .into_iter()
        .map(|cause| (cause.field, cause.message))
        .collect())
}

/// All of these fields are causes, and no others; kubectl prints each with its message.
async fn refused_at(ns: &Space<'_>, kind: Kind, object: &Builder, fields: &[&str]) -> Result<()> {
    let causes = causes(ns, kind, object).await?;
    let mut found: Vec<&str> = causes.iter().map(|(field, _)| field.as_str()).collect();
    found.sort_unstable();
    ensure!(found == fields, "{found:#?}");
    let said = ns.rejects(object)?;
    for (field, message) in &causes {
        ensure!(
            said.contains(&format!("{field}: {message}")),
            "kubectl does not print {field}: {message}: {said}"
        );
    }
    let name = object.value()["metadata"]["name"]
        .as_str()
        .unwrap_or_default();
    ensure!(ns.find(kind, name).await?.is_none(), "it was stored");
    Ok(())
}

#[test]
fn what_belongs_to_one_vm_is_refused_with_every_path_at_once() {
    with_namespace("misplaced", async |ns| {
        let disk = |name: &str, namespace: &str| {
            json!({
                "metadata": {"name": name, "namespace": namespace},
                "spec": {
                    "storage": {"resources": {"requests": {"storage": "1Gi"}}},
                    "source": {"blank": {}},
                },
            })
        };
        let bad = config("cfg")
            .with(
                "/spec/instancetype",
                json!({"name": "u1.small", "revisionName": "x"}),
            )
            .with(
                "/spec/preference",
                json!({"name": "fedora", "revisionName": "y"}),
            )
            .push("/spec/dataVolumeTemplates", disk("a", "elsewhere"))
            // That one is where it would be anyway.
            .push("/spec/dataVolumeTemplates", disk("b", &ns.name))
            .with(
                "/spec/template/metadata",
                json!({
                    "labels": {"vmpool.dev/pool": "x", "kubevirt.io/created-by": "y", "app": "z"},
                    "annotations": {"vmpool.dev/stamp-hash": "z"},
                }),
            )
            .push(
                &format!("{TEMPLATE}/volumes"),
                json!({"name": "d", "memoryDump": {"claimName": "c"}}),
            )
            .push(
                &format!("{TEMPLATE}/utilityVolumes"),
                json!({"name": "u", "claimName": "c"}),
            );
        refused_at(
            ns,
            Kind::Config,
            &bad,
            &[
                "spec.dataVolumeTemplates[0].metadata.namespace",
                "spec.instancetype.revisionName",
                "spec.preference.revisionName",
                "spec.template.metadata.annotations[vmpool.dev/stamp-hash]",
                "spec.template.metadata.labels[kubevirt.io/created-by]",
                "spec.template.metadata.labels[vmpool.dev/pool]",
                "spec.template.spec.utilityVolumes[0].claimName",
                "spec.template.spec.volumes[0].memoryDump.claimName",
            ],
        )
        .await
    });
}

#[test]
fn every_cause_of_a_pool_comes_at_once() {
    with_namespace("causes", async |ns| {
        ns.accepts(config("cfg"))?;
        let bad = pool("web", "cfg")
            .replicas(1)
            .with("/spec/config/revision", "No Name")
            .with("/spec/autohealing", json!({"startFailureThreshold": 3}))
            .with("/spec/nameGeneration/sharedSecrets", json!(["ok", "No Name"]))
            .with(
                "/spec/virtualMachineMetadata",
                json!({"labels": {"vmpool.dev/pool": "x", "app": "-"}, "annotations": {"a b": "c"}}),
            );
        refused_at(
            ns,
            Kind::Pool,
            &bad,
            &[
                "spec.autohealing",
                "spec.config.revision",
                "spec.nameGeneration.sharedSecrets[1]",
                "spec.virtualMachineMetadata.annotations[a b]",
                "spec.virtualMachineMetadata.labels[app]",
                "spec.virtualMachineMetadata.labels[vmpool.dev/pool]",
            ],
        )
        .await
    });
}

#[test]
fn a_config_has_one_of_run_strategy_and_running_through_kubectl_too() {
    with_namespace("one-of", async |ns| {
        for bad in [
            config("cfg").without("/spec/runStrategy"),
            config("cfg").with("/spec/running", false),
        ] {
            let said = ns.rejects(bad)?;
            ensure!(
                said.contains("exactly one of runStrategy and running must be set"),
                "{said}"
            );
        }
        Ok(())
    });
}

/// A config of which a second VM would have the same identity, and write to the same claim.
fn personal() -> Builder {
    let devices = format!("{TEMPLATE}/domain/devices");
    config("cfg")
        .with(&format!("{TEMPLATE}/hostname"), "fixed")
        .with(
            &format!("{TEMPLATE}/domain/firmware"),
            json!({"uuid": "5d307ca9-b3ef-428c-8861-06e72d69f223", "serial": "1"}),
        )
        .push(
            &format!("{TEMPLATE}/networks"),
            json!({"name": "n", "pod": {}}),
        )
        .push(
            &format!("{devices}/interfaces"),
            json!({"name": "n", "masquerade": {}, "macAddress": "02:00:00:00:00:01"}),
        )
        .push(
            &format!("{TEMPLATE}/volumes"),
            json!({"name": "data", "persistentVolumeClaim": {"claimName": "data"}}),
        )
        .push(
            &format!("{devices}/disks"),
            json!({"name": "data", "disk": {"bus": "virtio"}, "serial": "2"}),
        )
}

/// What is said of each; a claim by its own words.
const OF_SEVERAL: [(&str, &str); 6] = [
    ("spec.template.spec.hostname", "the same value here"),
    (
        "spec.template.spec.domain.firmware.uuid",
        "the same value here",
    ),
    (
        "spec.template.spec.domain.firmware.serial",
        "the same value here",
    ),
    (
        "spec.template.spec.domain.devices.interfaces[0].macAddress",
        "the same value here",
    ),
    (
        "spec.template.spec.domain.devices.disks[0].serial",
        "the same value here",
    ),
    (
        "spec.template.spec.volumes[0].persistentVolumeClaim.claimName",
        "would be written to by several VMs",
    ),
];

fn warns_of_all(said: &str) -> Result<()> {
    for (field, words) in OF_SEVERAL {
        let line = said.lines().find(|line| line.contains(field));
        let line = line.with_context(|| format!("{field} is not named: {said}"))?;
        ensure!(
            line.contains("Warning") && line.contains(words),
            "{field}: {line}"
        );
    }
    Ok(())
}

fn warns_of_none(said: &str) -> Result<()> {
    for (field, _) in OF_SEVERAL {
        ensure!(!said.contains(field), "{field} is named: {said}");
    }
    Ok(())
}

#[test]
fn what_only_one_vm_should_have_is_a_warning_where_a_second_comes_of_it() {
    with_namespace("identities", async |ns| {
        // 1. One VM may have all of it.
        warns_of_none(&ns.accepts(personal())?)?;
        warns_of_none(&ns.accepts(pool("web", "cfg").replicas(1))?)?;
        ns.settled("web", &["web-1"]).await?;
        // 2. Each way to a second one says so, and does not stand in it.
        let second =
            ns.run("scale virtualmachinepools.vmpool.dev web --replicas=2 --dry-run=server")?;
        ensure!(second.success, "{}", second.stderr);
        warns_of_all(&second.stderr)?;
        warns_of_all(&ns.accepts(pool("web", "cfg").replicas(2))?)?;
        warns_of_all(&ns.accepts(pool("other", "cfg").replicas(2))?)?;
        // 3. Who has them is not told again; a config that brings them to two is.
        warns_of_none(&ns.accepts(pool("web", "cfg").replicas(2).with("/spec/paused", true))?)?;
        ns.accepts(config("cfg"))?;
        warns_of_all(&ns.accepts(personal())?)
    });
}

#[test]
fn a_budget_that_is_written_down_counts_only_what_a_readiness_probe_sees() {
    with_namespace("unprobed", async |ns| {
        const WORDS: &str = "has no readinessProbe";
        let careful = pool("web", "cfg")
            .replicas(2)
            .with("/spec/maxUnavailable", 1);
        ns.accepts(config("cfg"))?;
        let said = ns.accepts(&careful)?;
        ensure!(said.contains(WORDS), "{said}");
        let said = ns.accepts(careful.with("/spec/paused", true))?;
        ensure!(!said.contains(WORDS), "it is said once: {said}");
        let probe = json!({"tcpSocket": {"port": 22}, "periodSeconds": 5});
        let probed = config("cfg").with(&format!("{TEMPLATE}/readinessProbe"), probe);
        let said = ns.accepts(probed)?;
        ensure!(!said.contains(WORDS), "{said}");
        let said = ns.accepts(config("cfg"))?;
        ensure!(said.contains(WORDS), "taken out again: {said}");
        Ok(())
    });
}

/// Resources below a path of discovery.
fn served(ns: &Space<'_>, group: &str) -> Result<Vec<String>> {
    let list: Value = serde_json::from_str(&ns.kubectl(&format!("get --raw /apis/{group}"))?)?;
    let resources = list["resources"].as_array().context("resources")?.iter();
    Ok(resources
        .filter_map(|resource| resource["name"].as_str().map(ToOwned::to_owned))
        .collect())
}

#[test]
fn vd_12_a_config_can_not_be_started_and_a_copy_of_it_is_a_vm_of_its_users() {
    with_namespace("vd-12", async |ns| {
        // 1. One that says Always, and nobody uses: nothing comes of it.
        ns.accepts(config("cfg").running())?;
        ns.condition(Kind::Config, "cfg", "Accepted", "True")
            .await?;
        let revision = ns.names(Kind::Revision).await?;
        ensure!(revision.len() == 1, "{revision:?}");

        // 2. There is no way to ask.
        let mut of_configs = served(ns, "vmpool.dev/v1alpha1")?;
        of_configs.retain(|name| name.starts_with("virtualmachineconfigs"));
        of_configs.sort_unstable();
        ensure!(
            of_configs == ["virtualmachineconfigs", "virtualmachineconfigs/status"],
            "{of_configs:?}"
        );
        let others = served(ns, "subresources.vmpool.dev/v1alpha1")?;
        ensure!(
            !others.iter().any(|name| name.contains("config")),
            "{others:?}"
        );
        for verb in ["start", "restart"] {
            for path in [
                "vmpool.dev/v1alpha1/namespaces/{}/virtualmachineconfigs/cfg",
                "subresources.vmpool.dev/v1alpha1/namespaces/{}/virtualmachineconfigs/cfg",
                // As virtctl asks.
                "subresources.kubevirt.io/v1/namespaces/{}/virtualmachines/cfg",
            ] {
                let path = path.replace("{}", &ns.name);
                let said = ns.run_with(&format!("replace --raw /apis/{path}/{verb} -f -"), "{}")?;
                ensure!(
                    !said.success
                        && (said.stderr.to_lowercase().contains("not found")
                            || said.stderr.contains("could not find")),
                    "{path}/{verb}: {} {}",
                    said.stdout,
                    said.stderr
                );
            }
        }
        ns.refused("scale virtualmachineconfigs.vmpool.dev cfg --replicas=1")?;

        // 3. As a VM, with all that is in its metadata, it is nobody's but who made it, and halted as it says.
        ns.accepts(config("halted"))?;
        ns.condition(Kind::Config, "halted", "Accepted", "True")
            .await?;
        let mut copy = ns.get(Kind::Config, "halted").await?;
        copy["apiVersion"] = json!("kubevirt.io/v1");
        copy["kind"] = json!("VirtualMachine");
        for field in ["uid", "resourceVersion", "managedFields"] {
            copy["metadata"]
                .as_object_mut()
                .context("metadata")?
                .remove(field);
        }
        copy.as_object_mut().context("an object")?.remove("status");
        ns.accepts(&copy)?;
        ns.stays("nothing boots", Duration::from_secs(3), async || {
            let vms = ns.list(Kind::Vm).await?;
            ensure!(vms.len() == 1, "{vms:?}");
            let copy = &vms[0];
            ensure!(copy["metadata"]["name"] == "halted" && controller(copy).is_none());
            ensure!(copy["metadata"]["labels"].is_null(), "{copy}");
            let instances = ns.names(Kind::Instance).await?;
            ensure!(instances.is_empty(), "{instances:?}");
            Ok(())
        })
        .await
    });
}
