//! What a pool's next VMs refer to and that does not exist is named when it is asked for, by every path.

use anyhow::ensure;
use serde_json::json;

use crate::objects::{all, config, pool};
use crate::with_namespace;

#[test]
fn missing_config_maps_and_claims_of_the_next_vms_are_named() {
    with_namespace("missing", async |ns| {
        let said = ns.accepts(all(&[
            config("cfg")
                .volume("settings", json!({"configMap": {"name": "settings"}}))
                .volume(
                    "data",
                    json!({"persistentVolumeClaim": {"claimName": "data"}}),
                )
                .volume("key", json!({"secret": {"secretName": "key"}})),
            pool("web", "cfg")
                .replicas(2)
                .with(
                    "/spec/nameGeneration/appendPostfixToConfigMapReferences",
                    true,
                )
                .with(
                    "/spec/nameGeneration/appendPostfixToVolumeClaimReferences",
                    true,
                )
                .with("/spec/nameGeneration/appendPostfixToSecretReferences", true),
        ]))?;
        ensure!(
            said.contains("ConfigMap settings-1, settings-2 do not exist"),
            "{said}"
        );
        ensure!(
            said.contains("PersistentVolumeClaim data-1, data-2 do not exist"),
            "{said}"
        );
        ensure!(!said.contains("key-1"), "Secrets are not read: {said}");

        ns.kubectl("create configmap settings-3")?;
        let output = ns.run("scale virtualmachinepools.vmpool.dev/web --replicas=4")?;
        let said = output.stderr;
        ensure!(output.success, "{said}");
        ensure!(
            said.contains("ConfigMap settings-4 does not exist"),
            "{said}"
        );
        ensure!(
            said.contains("PersistentVolumeClaim data-3, data-4 do not exist"),
            "{said}"
        );
        let down = ns.run("scale virtualmachinepools.vmpool.dev/web --replicas=1")?;
        ensure!(!down.stderr.contains("exist"), "{}", down.stderr);
        Ok(())
    });
}

#[test]
fn nested_prefixes_whose_disks_may_collide_are_a_warning() {
    with_namespace("nested", async |ns| {
        ns.accepts(all(&[
            config("cfg").disk("root").disk("2-root"),
            pool("web", "cfg").replicas(0),
        ]))?;
        let said = ns.accepts(pool("web-1", "cfg").replicas(0))?;
        ensure!(
            said.contains("may be named like those of pool web"),
            "{said}"
        );
        let said = ns.accepts(pool("web-x", "cfg").replicas(0))?;
        ensure!(!said.contains("may be named like"), "{said}");
        Ok(())
    });
}
