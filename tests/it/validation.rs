//! What a pool can't say: each verdict through kubectl, with the path of what is wrong. Cases VD-07 and VD-09,
//! matrix rows 51, 54 and 55, and the fields whose behaviour comes later. Strategies are in `unions`.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::objects::{Builder, all, config, pool};
use crate::{Kind, Space, with_namespace};

/// A pool named `web` with this at this path below its spec.
<<<<<<< HEAD
fn web(pointer: &str, value: impl Into<Value>) -> Builder {
=======
pub(crate) fn web(pointer: &str, value: impl Into<Value>) -> Builder {
>>>>>>> h9
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
            json!("101%"),
            json!("%"),
            json!("2.5%"),
            json!(false),
        ] {
            refuses(
                ns,
                &web(at, value),
                "spec.updateStrategy.proactive.partition",
            )
            .await?;
        }
        for value in [json!(1), json!("1%")] {
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
<<<<<<< HEAD
    });
}

fn members(names: &[&str]) -> Value {
    let members = names.iter().map(|name| ((*name).to_owned(), json!({})));
    Value::Object(members.collect())
}

/// More than one member of a union is refused with a message that names all three.
async fn too_many(ns: &Space<'_>, union: &str, names: &[&str]) -> Result<()> {
    let pool = web(&format!("/{union}"), members(names));
    let said = refuses(ns, &pool, &format!("spec.{union}")).await?;
    ensure!(
        said.contains("at most one of proactive, opportunistic and unmanaged"),
        "{said}"
    );
    Ok(())
}

#[test]
fn m56_update_unmanaged_and_proactive_is_refused() {
    with_config("m56", async |ns| {
        too_many(ns, "updateStrategy", &["unmanaged", "proactive"]).await
    });
}

#[test]
fn m57_update_unmanaged_and_opportunistic_is_refused() {
    with_config("m57", async |ns| {
        too_many(ns, "updateStrategy", &["unmanaged", "opportunistic"]).await
    });
}

#[test]
fn m58_update_proactive_and_opportunistic_is_refused() {
    with_config("m58", async |ns| {
        too_many(ns, "updateStrategy", &["proactive", "opportunistic"]).await
    });
}

#[test]
fn m59_all_three_update_strategies_are_refused() {
    with_config("m59", async |ns| {
        too_many(
            ns,
            "updateStrategy",
            &["unmanaged", "proactive", "opportunistic"],
        )
        .await
    });
}

#[test]
fn m60_two_bad_unions_are_two_causes() {
    with_config("m60", async |ns| {
        let pool = web("/updateStrategy", members(&["unmanaged", "proactive"])).with(
            "/spec/scaleInStrategy",
            members(&["unmanaged", "proactive"]),
        );
        let said = refuses(ns, &pool, "spec.updateStrategy").await?;
        ensure!(said.contains("spec.scaleInStrategy"), "{said}");
        Ok(())
    });
}

#[test]
fn m61_scale_in_unmanaged_and_opportunistic_is_refused() {
    with_config("m61", async |ns| {
        too_many(ns, "scaleInStrategy", &["unmanaged", "opportunistic"]).await
    });
}

#[test]
fn m62_scale_in_proactive_and_opportunistic_is_refused() {
    with_config("m62", async |ns| {
        too_many(ns, "scaleInStrategy", &["proactive", "opportunistic"]).await
    });
}

#[test]
fn m63_all_three_scale_in_strategies_are_refused() {
    with_config("m63", async |ns| {
        too_many(
            ns,
            "scaleInStrategy",
            &["unmanaged", "proactive", "opportunistic"],
        )
        .await
    });
}

#[test]
fn m64_a_pool_with_newest_policies_is_admitted_and_kept_as_written() {
    with_config("m64", async |ns| {
        let newest = json!({"proactive": {"selectionPolicy": {"basePolicy": "Newest"}}});
        let pool =
            web("/updateStrategy", newest.clone()).with("/spec/scaleInStrategy", newest.clone());
        ns.accepts(&pool)?;
        let stored = ns.get(Kind::Pool, "web").await?;
        ensure!(stored["spec"]["updateStrategy"] == newest, "{stored}");
        ensure!(stored["spec"]["scaleInStrategy"] == newest, "{stored}");
        for policy in ["Random", "Oldest", "LowestOrdinal", "HighestOrdinal"] {
            ns.accepts(web(
                "/scaleInStrategy/proactive/selectionPolicy/basePolicy",
                policy,
            ))?;
        }
        let wrong = web(
            "/scaleInStrategy/proactive/selectionPolicy/basePolicy",
            "Youngest",
        );
        let said = ns.rejects(wrong)?;
        ensure!(
            said.contains("spec.scaleInStrategy.proactive.selectionPolicy.basePolicy"),
            "{said}"
        );
        Ok(())
=======
>>>>>>> h9
    });
}

#[test]
fn fields_whose_behaviour_comes_later_are_refused_by_their_path() {
    with_config("later", async |ns| {
        let policies = json!([{"state": "Failing"}]);
        for (pointer, value) in [
            ("/updateStrategy/opportunistic", json!({})),
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
            ("/progressDeadlineSeconds", json!(600)),
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
fn a_pool_whose_updates_are_not_unmanaged_is_told_that_edits_reach_only_new_vms() {
    with_config("warned", async |ns| {
        for pool in [
            pool("web", "cfg").replicas(0),
            web("/updateStrategy", json!({})).with("/spec/paused", true),
            web("/updateStrategy", json!({"proactive": {}})).with("/spec/minReadySeconds", 1),
        ] {
            let said = ns.accepts(&pool)?;
            let warned = said.contains("Warning") && said.contains("only new VMs");
            ensure!(warned, "no warning: {said:?} for {pool}");
            ns.kubectl("delete virtualmachinepools.vmpool.dev web")?;
        }
        let said = ns.accepts(web("/updateStrategy", json!({"unmanaged": {}})))?;
        ensure!(!said.contains("only new VMs"), "needlessly warned: {said}");
        Ok(())
    });
}

#[test]
<<<<<<< HEAD
fn vd_08_a_default_never_stands_in_the_way_of_a_strategy_set_later() {
    with_config("vd-08-a", async |ns| {
        for union in ["updateStrategy", "scaleInStrategy"] {
            // 1. Created without one, which is not written back.
            ns.accepts(pool("web", "cfg").replicas(1))?;
            ns.settled("web", &["web-1"]).await?;
            let stored = ns.get(Kind::Pool, "web").await?;
            ensure!(
                stored["spec"][union].is_null(),
                "a default was written: {stored}"
            );

            // 2. So a merge patch that adds a member meets no other.
            let patch = format!(r#"{{"spec":{{"{union}":{{"unmanaged":{{}}}}}}}}"#);
            ns.kubectl(&format!(
                "patch virtualmachinepools.vmpool.dev web --type=merge -p {patch}"
            ))?;
            let stored = ns.get(Kind::Pool, "web").await?;
            ensure!(
                stored["spec"][union] == json!({"unmanaged": {}}),
                "{stored}"
            );
            ns.kubectl("delete virtualmachinepools.vmpool.dev web")?;
        }
        Ok(())
    });
}

#[test]
fn vd_08_a_second_manager_can_set_a_strategy_by_server_side_apply() {
    with_config("vd-08-b", async |ns| {
        let first = ns.run_with(
            "apply --server-side --field-manager=first -f -",
            &pool("web", "cfg").replicas(1).to_string(),
        )?;
        ensure!(first.success, "{}", first.stderr);
        let second = pool("web", "cfg")
            .without("/spec/config")
            .with("/spec/scaleInStrategy", json!({"unmanaged": {}}))
            .with("/spec/updateStrategy", json!({"unmanaged": {}}));
        let second = ns.run_with(
            "apply --server-side --field-manager=second -f -",
            &second.to_string(),
        )?;
        ensure!(second.success, "{}", second.stderr);
        let stored = ns.get(Kind::Pool, "web").await?;
        ensure!(
            stored["spec"]["updateStrategy"] == json!({"unmanaged": {}}),
            "{stored}"
        );
        ensure!(
            stored["spec"]["scaleInStrategy"] == json!({"unmanaged": {}}),
            "{stored}"
        );
        Ok(())
    });
}

#[test]
fn vd_08_an_empty_strategy_is_none_and_stays_as_written() {
    with_config("vd-08-c", async |ns| {
        let web = |replicas| {
            pool("web", "cfg")
                .replicas(replicas)
                .with("/spec/updateStrategy", json!({}))
                .with("/spec/scaleInStrategy", json!({}))
        };
        ns.accepts(web(2))?;
        ns.settled("web", &["web-1", "web-2"]).await?;
        let stored = ns.get(Kind::Pool, "web").await?;
        ensure!(stored["spec"]["updateStrategy"] == json!({}), "{stored}");
        ensure!(stored["spec"]["scaleInStrategy"] == json!({}), "{stored}");
        // It acts as proactive does.
        ns.accepts(web(0))?;
        ns.settled("web", &[]).await?;
        Ok(())
    });
}

#[test]
=======
>>>>>>> h9
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
