//! Strategies, of which there is one at a time. Case VD-08, matrix rows 56 to 64.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::objects::pool;
use crate::validation::{refuses, web, with_config};
use crate::{Kind, Space};

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
    });
}

#[test]
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
