//! What a pool can't say: each verdict through kubectl, with the path of what is wrong. Cases VD-07 and VD-09,
//! matrix rows 51, 54 and 55, and the fields whose behaviour comes later. Strategies are in `unions`.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::objects::{Builder, all, config, pool};
use crate::{Kind, Space, with_namespace};

/// A pool named `web` with this at this path below its spec.
pub(crate) fn web(pointer: &str, value: impl Into<Value>) -> Builder {
    pool("web", "cfg")
        .replicas(0)
        .with(&format!("/spec{pointer}"), value)
}

/// A config that pools can name, halted.
pub(crate) fn with_config(prefix: &str, test: impl AsyncFnOnce(&Space<'static>) -> Result<()>) {
    with_namespace(prefix, async |ns| {
        ns.accepts(config("cfg"))?;
        test(ns).await
    });
}

/// Refused at this path, and nothing is stored.
pub(crate) async fn refuses(ns: &Space<'_>, pool: &Builder, path: &str) -> Result<String> {
    let said = ns.rejects(pool)?;
    ensure!(said.contains(path), "{path} is not named: {said}");
    ensure!(ns.find(Kind::Pool, "web").await?.is_none(), "it was stored");
    Ok(said)
}

#[test]
fn m51_unknown_fields_of_a_pool_are_refused_wherever_they_are() {
    with_config("m51", async |ns| {
        for pointer in [
            "/replica",
            "/config/nam",
            "/nameGeneration/prefix",
            "/updateStrategy/proactive/maxSurge",
            "/scaleInStrategy/proactive/selectionPolicy/basePolicies",
            "/virtualMachineMetadata/finalizers",
        ] {
            let path = format!("spec{}", pointer.replace('/', "."));
            refuses(ns, &web(pointer, json!("x")), &path).await?;
        }
        Ok(())
    });
}

#[test]
fn vd_07_each_form_of_max_unavailable_has_its_verdict() {
    with_config("vd-07", async |ns| {
        for (value, admitted) in [
            (json!(1), true),
            (json!("1"), false),
            (json!("1%"), true),
            (json!("25%"), true),
            (json!("100%"), true),
            (json!(0), false),
            (json!("0%"), false),
            (json!("-1%"), false),
            (json!("101%"), false),
            (json!("%"), false),
            (json!(" 25%"), false),
            (json!("25% "), false),
            (json!("2.5%"), false),
            (json!(2.5), false),
            (json!(""), false),
            (json!(false), false),
            (json!(2_147_483_647), true),
            (json!(2_147_483_648_u64), false),
        ] {
            let pool = web("/maxUnavailable", value.clone());
            if !admitted {
                refuses(ns, &pool, "spec.maxUnavailable")
                    .await
                    .with_context(|| value.to_string())?;
                continue;
            }
            ns.accepts(&pool)?;
            let stored = ns.get(Kind::Pool, "web").await?;
            ensure!(
                stored["spec"]["maxUnavailable"] == value,
                "{value} became {}",
                stored["spec"]
            );
            ns.kubectl("delete virtualmachinepools.vmpool.dev web")?;
        }
        Ok(())
    });
}

#[test]
fn vd_07_each_form_of_partition_has_its_verdict() {
    with_config("vd-07-p", async |ns| {
        let at = "/updateStrategy/proactive/partition";
        for value in [
            json!(-1),
            json!("-1"),
            json!("1"),
            json!("101%"),
            json!("-1%"),
            json!("%"),
            json!(""),
            json!(" 25%"),
            json!("25% "),
            json!("2.5%"),
            json!(2.5),
            json!(false),
            json!(2_147_483_648_u64),
        ] {
            let said = refuses(
                ns,
                &web(at, value.clone()),
                "spec.updateStrategy.proactive.partition",
            )
            .await?;
            ensure!(!said.contains("not supported yet"), "{value}: {said}");
        }
        for value in [
            json!(1),
            json!(2_147_483_647),
            json!("1%"),
            json!("25%"),
            json!("100%"),
        ] {
            let said = refuses(
                ns,
                &web(at, value),
                "spec.updateStrategy.proactive.partition",
            )
            .await?;
            ensure!(said.contains("not supported yet"), "{said}");
        }
        ns.accepts(web(at, 0))?;
        ns.accepts(web(at, "0%"))?;
        Ok(())
    });
}

#[test]
fn m54_max_unavailable_that_is_no_percentage_is_refused() {
    with_config("m54", async |ns| {
        let said = refuses(
            ns,
            &web("/maxUnavailable", "invalid%"),
            "spec.maxUnavailable",
        )
        .await?;
        ensure!(said.contains("percentage"), "{said}");
        Ok(())
    });
}

#[test]
fn m55_negative_max_unavailable_is_refused() {
    with_config("m55", async |ns| {
        refuses(ns, &web("/maxUnavailable", -1), "spec.maxUnavailable")
            .await
            .map(drop)
    });
}

#[test]
fn fields_whose_behaviour_comes_later_are_refused_by_their_path() {
    with_config("later", async |ns| {
        let policies = json!([{"state": "Failing"}]);
        for (pointer, value) in [
            ("/updateStrategy/proactive/partition", json!(1)),
            (
                "/updateStrategy/proactive/onDiskTemplateChange",
                json!("Reprovision"),
            ),
            (
                "/updateStrategy/proactive/selectionPolicy/orderedPolicies",
                policies.clone(),
            ),
            ("/scaleInStrategy/opportunistic", json!({})),
            (
                "/scaleInStrategy/opportunistic",
                json!({"statePreservation": "Offline"}),
            ),
            (
                "/scaleInStrategy/proactive/statePreservation",
                json!("Offline"),
            ),
            (
                "/scaleInStrategy/proactive/statePreservation",
                json!("Online"),
            ),
            (
                "/scaleInStrategy/proactive/selectionPolicy/orderedPolicies",
                policies,
            ),
            ("/preservedDisks/whenPoolDeleted", json!("Retain")),
            ("/preservedDisks/expireAfter", json!("720h")),
            ("/autohealing", json!({"startFailureThreshold": 3})),
        ] {
            let path = format!("spec{}", pointer.replace('/', "."));
            let said = refuses(ns, &web(pointer, value), &path).await?;
            ensure!(said.contains("not supported yet"), "{path}: {said}");
        }
        // What they default to is what happens, and may be written down.
        ns.accepts(web(
            "/scaleInStrategy/proactive/statePreservation",
            "Disabled",
        ))?;
        ns.accepts(web(
            "/updateStrategy/proactive/onDiskTemplateChange",
            "Keep",
        ))?;
        Ok(())
    });
}

#[test]
fn vd_09_replicas_out_of_range_are_refused_on_every_path() {
    with_config("vd-09", async |ns| {
        // 1. At creation.
        for replicas in [-1, 100_001, i32::MAX] {
            refuses(ns, &web("/replicas", replicas), "spec.replicas").await?;
        }
        for replicas in [json!("3"), json!(1.5), json!(2_147_483_648_u64)] {
            refuses(ns, &web("/replicas", replicas), "spec.replicas").await?;
        }
        // 2. Afterwards, by apply, by patch and by scale.
        ns.accepts(web("/replicas", 1))?;
        for replicas in [-1, 100_001, i32::MAX] {
            let said = ns.rejects(web("/replicas", replicas))?;
            ensure!(said.contains("spec.replicas"), "{said}");
            let patch = format!(r#"{{"spec":{{"replicas":{replicas}}}}}"#);
            for subresource in ["", "--subresource=scale"] {
                let said = ns.refused(&format!(
                    "patch virtualmachinepools.vmpool.dev web {subresource} --type=merge -p {patch}"
                ))?;
                ensure!(said.contains("spec.replicas"), "{subresource}: {said}");
            }
        }
        let stored = ns.get(Kind::Pool, "web").await?;
        ensure!(stored["spec"]["replicas"] == 1, "{stored}");
        // 3. The bound itself is fine.
        let bound = ns.run_with(
            "apply --dry-run=server -f -",
            &web("/replicas", 100_000).to_string(),
        )?;
        ensure!(bound.success, "{}", bound.stderr);
        Ok(())
    });
}

#[test]
fn vd_09_no_replicas_is_one_and_zero_is_zero() {
    with_config("vd-09-0", async |ns| {
        ns.accepts(all(&[
            pool("unset", "cfg"),
            pool("null", "cfg").with("/spec/replicas", Value::Null),
            pool("zero", "cfg").replicas(0),
        ]))?;
        ns.settled("unset", &["unset-1"]).await?;
        ns.settled("null", &["null-1"]).await?;
        ns.settled("zero", &[]).await?;
        for (name, replicas) in [("unset", 1), ("null", 1), ("zero", 0)] {
            let stored = ns.get(Kind::Pool, name).await?;
            ensure!(stored["spec"]["replicas"] == replicas, "{name}: {stored}");
        }
        Ok(())
    });
}
