//! KubeVirt's verdict: what it refuses is refused at `kubectl apply`, in its words and at our paths; what was
//! stored without it is known by its condition. Matrix rows 52 and 71.

use anyhow::ensure;
use dev::harness::Options;
use serde_json::json;

use crate::objects::{Builder, config, pool};
use crate::{Kind, Space, with_namespace, with_own};

/// Configs that KubeVirt refuses, where, and a part of its words.
fn refused() -> Vec<(Builder, &'static str, &'static str)> {
    let cpu = json!({"sockets": 8, "maxSockets": 4});
    vec![
        (
            config("cfg").push(
                "/spec/template/spec/domain/devices/disks",
                json!({"name": "odd", "disk": {}}),
            ),
            "spec.template.spec.domain.devices.disks[0].name",
            "'odd' not found",
        ),
        (
            config("cfg").with("/spec/template/spec/domain/cpu", cpu),
            "spec.template.spec.domain.cpu.sockets",
            "greater than the maximum sockets allowed",
        ),
        // By KubeVirt's webhook, or by its CRD where that knows all fields.
        (
            config("cfg").with("/spec/template/spec/hostnam", "typo"),
            "spec.template.spec.hostnam",
            "",
        ),
    ]
}

#[test]
fn m52_m71_what_kubevirt_refuses_is_refused_at_apply_in_its_words() {
    with_namespace("verdict", async |ns| {
        for (bad, field, words) in refused() {
            let said = ns.rejects(&bad)?;
            ensure!(said.contains(field) && said.contains(words), "{said}");
        }
        // The same for an edit; the stored config stays as it is, and in use.
        ns.accepts(config("cfg"))?;
        ns.accepts(pool("web", "cfg").replicas(1))?;
        ns.settled("web", &["web-1"]).await?;
        let (bad, field, _) = refused().remove(0);
        let said = ns.rejects(&bad)?;
        ensure!(said.contains(field), "{said}");
        ns.condition(Kind::Config, "cfg", "Accepted", "True")
            .await?;
        // Nothing is left of a trial.
        let vms = ns.names(Kind::Vm).await?;
        ensure!(vms == ["web-1"], "{vms:?}");
        Ok(())
    });
}

#[test]
fn a_quota_is_no_verdict_on_a_config() {
    with_namespace("verdict-quota", async |ns| {
        ns.kubectl("create quota none --hard=count/virtualmachines.kubevirt.io=0")?;
        // The quota holds once the controller manager has looked at it.
        ns.eventually("the quota holds", async || {
            let said = ns.accepts(config("cfg"))?;
            ns.kubectl("delete virtualmachineconfigs.vmpool.dev cfg")?;
            ensure!(
                said.contains("verdict is not known yet") && said.contains("exceeded quota"),
                "{said}"
            );
            Ok(())
        })
        .await?;
        ns.accepts(config("cfg"))?;
        let open = ns
            .condition(Kind::Config, "cfg", "Accepted", "Unknown")
            .await?;
        ensure!(
            open["message"].to_string().contains("exceeded quota"),
            "{open}"
        );
        // Asked again, and answered, once there is room.
        ns.kubectl("delete quota none")?;
        ns.condition(Kind::Config, "cfg", "Accepted", "True")
            .await?;
        Ok(())
    });
}

#[test]
fn what_was_stored_before_kubevirt_came_is_judged_when_it_comes() {
    let options = Options {
        without_standin: true,
        without_kubevirt_crds: true,
        ..Options::default()
    };
    with_own(options, async |cluster| {
        let ns = Space::new(&*cluster, "late").await?;
        let name = ns.name.clone();
        let (bad, field, _) = refused().remove(0);
        let said = ns.accepts(&bad)?;
        ensure!(
            said.contains("KubeVirt's verdict is not known yet"),
            "{said}"
        );
        ns.accepts(pool("web", "cfg").replicas(1))?;
        let open = ns
            .condition(Kind::Config, "cfg", "Accepted", "Unknown")
            .await?;
        ensure!(open["reason"] == "NotChecked", "{open}");

        // 1. KubeVirt comes, and finds it wrong.
        cluster.start_standin().await?;
        cluster.install_kubevirt().await?;
        let ns = Space {
            harness: &*cluster,
            client: cluster.client()?,
            name,
        };
        let accepted = ns
            .condition(Kind::Config, "cfg", "Accepted", "False")
            .await?;
        let message = accepted["message"].to_string();
        ensure!(message.contains(field), "{accepted}");
        ensure!(accepted["reason"] == "RefusedByKubeVirt", "{accepted}");
        // It was False before, since there was no KubeVirt.
        ns.eventually("the pool says so", async || {
            let ready = ns
                .condition(Kind::Pool, "web", "ConfigReady", "False")
                .await?;
            ensure!(ready["message"].to_string().contains(field), "{ready}");
            Ok(())
        })
        .await?;
        let told = ns.events("cfg", "RefusedByKubeVirt").await?;
        ensure!(told.len() == 1, "{told:?}");
        // A pool that comes to it now is told at once, by a trial with its own names.
        let said = ns.rejects(pool("late", "cfg").replicas(1))?;
        ensure!(
            said.contains("spec.config.name") && said.contains(field),
            "{said}"
        );

        // 2. It is put right, and the pool goes on.
        ns.accepts(config("cfg"))?;
        ns.condition(Kind::Config, "cfg", "Accepted", "True")
            .await?;
        ns.settled("web", &["web-1"]).await?;
        Ok(())
    });
}
