//! What an update makes of a member: of what its user did, of its disks, of its run strategy.

use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::{Value, json};

use crate::objects::all;
use crate::revisions::latest;
use crate::rollout::{hosts, instances, rolled, running, web};
use crate::space::{condition, name, uid};
use crate::{Kind, with_namespace};

#[test]
fn m76_opportunistic_writes_the_objects_and_the_next_start_takes_it_on() {
    with_namespace("m76", async |ns| {
        let pool = web(2, 1).with("/spec/updateStrategy", json!({"opportunistic": {}}));
        running(ns, &hosts("a"), &pool, 2).await?;
        let before = instances(ns).await?;
        ns.accepts(hosts("b"))?;
        let status = rolled(ns).await?;
        ensure!(status["currentReplicas"] == 0, "{status}");
        ns.stays("nobody is restarted", Duration::from_secs(2), async || {
            ensure!(instances(ns).await? == before);
            Ok(())
        })
        .await?;
        ns.harness.standin().restart_vm(&ns.name, "web-1").await?;
        ns.eventually("web-1 runs the new revision", async || {
            let vmi = ns.get(Kind::Instance, "web-1").await?;
            ensure!(vmi["spec"]["hostname"] == "b", "{}", vmi["spec"]);
            Ok(())
        })
        .await
    });
}

#[test]
fn m117_manual_rerun_on_failure_and_once_run_again_after_a_rollout() {
    for strategy in ["Manual", "RerunOnFailure", "Once"] {
        with_namespace("m117", async |ns| {
            let with = |hostname| hosts(hostname).with("/spec/runStrategy", strategy);
            ns.accepts(all(&[with("a"), web(2, 1)]))?;
            ns.settled("web", &["web-1", "web-2"]).await?;
            if strategy == "Manual" {
                for vm in ["web-1", "web-2"] {
                    ns.eventually("it starts", async || {
                        ns.harness.standin().start_vm(&ns.name, vm).await
                    })
                    .await?;
                }
            }
            ns.ready("web", &["web-1", "web-2"]).await?;
            ns.accepts(with("b"))?;
            let status = rolled(ns).await?;
            ensure!(status["availableReplicas"] == 2, "{strategy}: {status}");
            for vmi in ns.list(Kind::Instance).await? {
                ensure!(
                    vmi["spec"]["hostname"] == "b",
                    "{strategy}: {}",
                    vmi["spec"]
                );
            }
            Ok(())
        });
    }
}

#[test]
fn m128_a_pool_that_is_pointed_at_another_config_rolls_and_back_by_a_pin() {
    with_namespace("m128", async |ns| {
        running(ns, &hosts("a"), &web(2, 1), 2).await?;
        let old = latest(ns).await?;
        ns.accepts(hosts("b").with("/metadata/name", "other"))?;
        ns.accepts(web(2, 1).with("/spec/config/name", "other"))?;
        let hostname_is = async |wanted: &str| {
            ns.eventually("all instances run it", async || {
                let pool = ns.get(Kind::Pool, "web").await?;
                let progressing = condition(&pool, "Progressing").context("no condition")?;
                ensure!(progressing["reason"] == "Settled", "{progressing}");
                let vmis = ns.list(Kind::Instance).await?;
                let all = vmis.iter().all(|vmi| vmi["spec"]["hostname"] == wanted);
                ensure!(all && vmis.len() == 2, "{vmis:?}");
                Ok(())
            })
            .await
        };
        hostname_is("b").await?;
        for vm in ns.members("web").await? {
            ensure!(
                vm["metadata"]["labels"]["vmpool.dev/config"] == "other",
                "{vm}"
            );
        }
        ns.accepts(web(2, 1).with("/spec/config/revision", old.as_str()))?;
        hostname_is("a").await
    });
}

#[test]
fn m75_a_label_of_the_pools_vms_reaches_the_objects_and_no_instance() {
    with_namespace("m75", async |ns| {
        running(ns, &hosts("a"), &web(3, 1), 3).await?;
        let before = instances(ns).await?;
        ns.accepts(web(3, 1).with("/spec/virtualMachineMetadata/labels", json!({"team": "a"})))?;
        ns.eventually("all VMs have the label", async || {
            let vms = ns.members("web").await?;
            let all = vms.iter().all(|vm| vm["metadata"]["labels"]["team"] == "a");
            ensure!(all, "{vms:?}");
            Ok(())
        })
        .await?;
        let status = rolled(ns).await?;
        ensure!(status["currentReplicas"] == 3, "{status}");
        ensure!(instances(ns).await? == before, "somebody was restarted");
        Ok(())
    });
}

#[test]
fn m06_m77_a_new_label_of_the_template_reaches_running_instances() {
    with_namespace("m77", async |ns| {
        running(ns, &hosts("a"), &web(2, 1), 2).await?;
        let before = instances(ns).await?;
        ns.accepts(hosts("a").with("/spec/template/metadata/labels", json!({"tier": "1"})))?;
        rolled(ns).await?;
        for vmi in ns.list(Kind::Instance).await? {
            ensure!(
                vmi["metadata"]["labels"]["tier"] == "1",
                "{}",
                vmi["metadata"]
            );
            ensure!(
                before[name(&vmi)] != uid(&vmi),
                "{} was not restarted",
                name(&vmi)
            );
        }
        ns.eventually("an event tells of it", async || {
            let restarted = ns.events("web", "SuccessfulRestart").await?;
            ensure!(!restarted.is_empty(), "no event");
            Ok(())
        })
        .await
    });
}

#[test]
fn ro_09_m113_an_update_does_what_the_config_changed_and_keeps_what_users_did() {
    with_namespace("ro-09", async |ns| {
        let with_net = |hostname| {
            hosts(hostname)
                .with(
                    "/spec/template/spec/domain/devices/interfaces",
                    json!([{"name": "default", "masquerade": {}}]),
                )
                .with(
                    "/spec/template/spec/networks",
                    json!([{"name": "default", "pod": {}}]),
                )
        };
        running(ns, &with_net("a"), &web(2, 1), 2).await?;
        ns.harness.standin().stop_vm(&ns.name, "web-1").await?;
        ns.gone(Kind::Instance, "web-1").await?;
        ns.kubectl("label vm web-1 keep=yes")?;
        ns.kubectl("annotate vm web-1 note=mine")?;
        let theirs = json!([
            {"op": "add", "path": "/spec/template/spec/domain/devices/interfaces/0/macAddress", "value": "02:00:00:00:00:01"},
            {"op": "add", "path": "/spec/template/spec/domain/machine", "value": {"type": "q35"}},
            {"op": "add", "path": "/spec/template/spec/domain/firmware/serial", "value": "s-1"},
            {"op": "add", "path": "/spec/template/metadata/annotations/kubevirt.io~1pci-topology-version", "value": "v3"},
        ]);
        ns.run_with(
            &format!(
                "patch vm web-1 --type=json -p {}",
                theirs.to_string().replace(' ', "")
            ),
            "",
        )?;
        let before = ns.get(Kind::Vm, "web-1").await?;
        let firmware = &before["spec"]["template"]["spec"]["domain"]["firmware"];
        ensure!(
            firmware["serial"] == "s-1" && firmware["uuid"].is_string(),
            "{firmware}"
        );

        ns.accepts(with_net("b"))?;
        rolled(ns).await?;
        let after = ns.get(Kind::Vm, "web-1").await?;
        let mut expected = before.clone();
        expected["spec"]["template"]["spec"]["hostname"] = "b".into();
        for place in [
            "/spec/template/metadata/labels",
            "/spec/template/metadata/annotations",
        ] {
            for (key, value) in after
                .pointer(place)
                .and_then(Value::as_object)
                .into_iter()
                .flatten()
            {
                if key.starts_with("vmpool.dev/") {
                    expected.pointer_mut(place).context("no metadata")?[key] = value.clone();
                }
            }
        }
        ensure!(
            after["spec"] == expected["spec"],
            "{:#}\nis not\n{:#}",
            after["spec"],
            expected["spec"]
        );
        ensure!(after["metadata"]["labels"]["keep"] == "yes", "{after}");
        ensure!(
            after["metadata"]["annotations"]["note"] == "mine",
            "{after}"
        );
        ensure!(
            ns.find(Kind::Instance, "web-1").await?.is_none(),
            "it was started"
        );
        Ok(())
    });
}

#[test]
fn ro_08_changed_disk_templates_keep_disks_and_are_reported() {
    with_namespace("ro-08", async |ns| {
        running(ns, &hosts("a"), &web(2, 2), 2).await?;
        let disks =
            |all: Vec<Value>| -> Vec<String> { all.iter().map(|d| uid(d).to_owned()).collect() };
        let before = disks(ns.list(Kind::DataVolume).await?);
        let mut bigger = hosts("b").value().clone();
        bigger["spec"]["dataVolumeTemplates"] = json!([{
            "metadata": {"name": "root"},
            "spec": {"storage": {"resources": {"requests": {"storage": "2Gi"}}}, "source": {"blank": {}}},
        }]);
        let said = ns.accepts(&bigger)?;
        ensure!(said.contains("keep the disks"), "no warning: {said}");
        rolled(ns).await?;
        let outdated = ns
            .condition(Kind::Pool, "web", "DisksOutdated", "True")
            .await?;
        let message = outdated["message"].as_str().unwrap_or_default();
        ensure!(
            message.contains("web-1") && message.contains("web-2"),
            "{message}"
        );
        ensure!(
            disks(ns.list(Kind::DataVolume).await?) == before,
            "disks were replaced"
        );
        ns.accepts(hosts("b"))?;
        ns.eventually("the disks are the config's again", async || {
            let pool = ns.get(Kind::Pool, "web").await?;
            ensure!(condition(&pool, "DisksOutdated").is_none(), "{pool}");
            Ok(())
        })
        .await
    });
}

#[test]
fn nr_06_an_update_takes_no_disk_of_somebody_elses() {
    with_namespace("nr-06-update", async |ns| {
        running(ns, &hosts("a"), &web(3, 1), 3).await?;
        let data_volume = json!({
            "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume", "metadata": {"name": "web-1-data"},
            "spec": {"storage": {"resources": {"requests": {"storage": "1Gi"}}}, "source": {"blank": {}}},
        });
        let claim = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "web-2-data"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        });
        for disk in [&data_volume, &claim] {
            let create = ns.run_with("create -f -", &disk.to_string())?;
            ensure!(create.success, "{}", create.stderr);
        }
        ns.accepts(hosts("a").disk("data"))?;
        ns.eventually("web-3 has the disk, and the others are said", async || {
            let vms = ns.members("web").await?;
            let with_disk = vms
                .iter()
                .filter(|vm| vm["spec"].to_string().contains("-data\""));
            let names: Vec<&str> = with_disk.map(name).collect();
            ensure!(names == ["web-3"], "{names:?}");
            let pool = ns.get(Kind::Pool, "web").await?;
            let message = condition(&pool, "Progressing").map(|c| c["message"].to_string());
            let message = message.unwrap_or_default();
            for taken in ["DataVolume web-1-data", "PersistentVolumeClaim web-2-data"] {
                ensure!(message.contains(taken), "{message}");
            }
            Ok(())
        })
        .await?;

        // Once it is out of the way, web-1 follows.
        ns.kubectl("delete datavolume web-1-data")?;
        ns.eventually("web-1 has a disk of its own", async || {
            let disk = ns.get(Kind::DataVolume, "web-1-data").await?;
            let owner = &disk["metadata"]["ownerReferences"][0]["name"];
            ensure!(owner == "web-1", "{disk}");
            Ok(())
        })
        .await?;
        ns.kubectl("scale vpool web --replicas=0")?;
        ns.settled("web", &[]).await?;
        let claim = ns.get(Kind::Claim, "web-2-data").await?;
        let metadata = &claim["metadata"];
        ensure!(
            metadata["ownerReferences"].is_null() && metadata["deletionTimestamp"].is_null(),
            "{claim}"
        );
        Ok(())
    });
}
