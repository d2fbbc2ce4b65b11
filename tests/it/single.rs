//! A single VM that its user makes from a config by an annotation, without a pool.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::curl::robot;
use crate::objects::{Builder, config, vm};
use crate::space::{controller, uid};
use crate::{Kind, Space, with_namespace};

/// A VM that asks for the config's spec and says nothing itself.
fn asking(name: &str) -> Builder {
    vm(name)
        .with("/spec", json!({}))
        .annotation("vmpool.dev/config", "cfg")
}

/// A config with a disk and a secret.
fn desktop() -> Builder {
    config("cfg").running().disk("root").volume(
        "init",
        json!({"cloudInitNoCloud": {"secretRef": {"name": "init"}}}),
    )
}

/// Applies as a service account of the namespace.
fn apply_as(ns: &Space<'_>, account: &str, manifest: &impl ToString) -> Result<(bool, String)> {
    let args = format!(
        "apply -f - --as=system:serviceaccount:{}:{account}",
        ns.name
    );
    let output = ns.run_with(&args, &manifest.to_string())?;
    Ok((output.success, output.stdout + &output.stderr))
}

#[test]
fn a_vm_is_made_from_a_config_by_annotation_and_is_its_users_from_then_on() {
    with_namespace("single", async |ns| {
        ns.accepts(desktop())?;
        // A claim that has the name of its disk is somebody's.
        let claim = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "mine-root"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        });
        ns.run_with("create -f -", &claim.to_string())?;
        let said = ns.rejects(asking("mine"))?;
        ensure!(
            said.contains("PersistentVolumeClaim mine-root exists already"),
            "{said}"
        );
        ns.kubectl("delete pvc mine-root")?;
        ns.gone(Kind::Claim, "mine-root").await?;
        // Instances wait for it.
        ns.kubectl("create secret generic init-7")?;
        ns.accepts(asking("mine").annotation("vmpool.dev/postfix", "7"))?;
        let made = ns.get(Kind::Vm, "mine").await?;
        ensure!(made["spec"]["runStrategy"] == "Always", "{made}");
        let volumes = &made["spec"]["template"]["spec"]["volumes"];
        ensure!(volumes[0]["dataVolume"]["name"] == "mine-root", "{volumes}");
        ensure!(
            volumes[1]["cloudInitNoCloud"]["secretRef"]["name"] == "init-7",
            "{volumes}"
        );
        ensure!(
            controller(&made).is_none() && made["metadata"]["labels"].is_null(),
            "{made}"
        );
        ns.eventually("it runs on a disk of its own", async || {
            ns.get(Kind::DataVolume, "mine-root").await?;
            let instance = ns.get(Kind::Instance, "mine").await?;
            ensure!(instance["status"]["phase"] == "Running");
            Ok(())
        })
        .await?;

        // 1. The same manifest again is no change.
        let before = ns.get(Kind::Vm, "mine").await?["metadata"]["generation"].clone();
        for apply in [
            "apply -f -",
            "apply --server-side --force-conflicts -f -",
            "apply --server-side -f -",
        ] {
            let manifest = asking("mine")
                .annotation("vmpool.dev/postfix", "7")
                .to_string();
            let output = ns.run_with(apply, &manifest)?;
            ensure!(output.success, "{apply}: {}", output.stderr);
            let after = ns.get(Kind::Vm, "mine").await?["metadata"]["generation"].clone();
            ensure!(
                before == after,
                "{apply} was a change: {before} became {after}"
            );
        }
        // 2. Nor does the config matter to it any more, whatever becomes of that.
        ns.accepts(desktop().with("/spec/template/spec/domain/memory/guest", "8Gi"))?;
        ns.kubectl("delete virtualmachineconfigs.vmpool.dev cfg")?;
        ns.kubectl("label vm mine a=b")?;
        let after = ns.get(Kind::Vm, "mine").await?;
        ensure!(
            uid(&after) == uid(&made)
                && after["spec"]["template"]["spec"]["domain"]["memory"].is_null()
        );
        // 3. A copy of it asks for nothing.
        let mut copy = after.clone();
        copy["metadata"] = json!({"name": "copy", "annotations": after["metadata"]["annotations"]});
        copy["spec"]["runStrategy"] = json!("Halted");
        ns.accepts(&copy)?;
        let copied = ns.get(Kind::Vm, "copy").await?;
        ensure!(
            copied["spec"]["dataVolumeTemplates"] == after["spec"]["dataVolumeTemplates"],
            "{copied}"
        );
        ns.kubectl("delete vm mine copy --timeout=60s")?;
        Ok(())
    });
}

#[test]
fn a_single_vm_takes_the_right_to_read_the_config_and_what_can_not_be_made_is_refused() {
    with_namespace("single-no", async |ns| {
        ns.accepts(desktop())?;
        ns.kubectl("create role vms --verb=* --resource=virtualmachines.kubevirt.io")?;
        robot(ns, "user", Some("vms"))?;
        ns.eventually("the role is seen", async || {
            let (made, said) = apply_as(ns, "user", &vm("plain"))?;
            ensure!(made, "{said}");
            Ok(())
        })
        .await?;
        // 1. Not without the right, and nobody learns what there is.
        for manifest in [
            asking("mine"),
            asking("mine").annotation("vmpool.dev/config", "gone"),
        ] {
            let (made, said) = apply_as(ns, "user", &manifest)?;
            ensure!(
                !made && said.contains("cannot get VirtualMachineConfig"),
                "{said}"
            );
        }
        // 2. With the right to another config neither.
        ns.kubectl("create role readers --verb=get --resource=virtualmachineconfigs.vmpool.dev --resource-name=other")?;
        ns.kubectl(&format!(
            "create rolebinding readers --role=readers --serviceaccount={}:user",
            ns.name
        ))?;
        ns.kubectl("create role reader --verb=get --resource=virtualmachineconfigs.vmpool.dev --resource-name=cfg")?;
        let (made, said) = apply_as(ns, "user", &asking("mine"))?;
        ensure!(!made, "{said}");
        ns.kubectl(&format!(
            "create rolebinding reader --role=reader --serviceaccount={}:user",
            ns.name
        ))?;
        ns.eventually("the right is seen", async || {
            let (made, said) = apply_as(ns, "user", &asking("mine"))?;
            ensure!(made, "{said}");
            Ok(())
        })
        .await?;
        // 3. In words where it can't be.
        let generated = asking("x")
            .without("/metadata/name")
            .with("/metadata/generateName", "mine-");
        let said = ns.run_with("create -f -", &generated.to_string())?;
        ensure!(
            !said.success && said.stderr.contains("metadata.name"),
            "{}",
            said.stderr
        );
        let said = ns.rejects(asking("other").annotation("vmpool.dev/config", "gone"))?;
        ensure!(
            said.contains("metadata.annotations[vmpool.dev/config]")
                && said.contains("does not exist"),
            "{said}"
        );
        // 4. KubeVirt judges what comes of it, in its words.
        let odd = asking("odd").with(
            "/spec/template/spec/domain/cpu",
            json!({"sockets": 8, "maxSockets": 4}),
        );
        let said = ns.rejects(odd)?;
        ensure!(said.contains("maximum sockets"), "{said}");
        let found: Option<Value> = ns.find(Kind::Vm, "odd").await?;
        ensure!(found.is_none());
        Ok(())
    });
}
