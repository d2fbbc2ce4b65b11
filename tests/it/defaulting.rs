//! What is filled in for a user, and that it never fights one: applying again is no change, whichever way.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::objects::{Builder, all, config, pool};
use crate::{Kind, Space, with_namespace};

const SERVER_SIDE: &str = "apply --server-side -f -";

async fn version(ns: &Space<'_>, kind: Kind, name: &str) -> Result<Value> {
    Ok(ns.get(kind, name).await?["metadata"]["generation"].clone())
}

/// Applies the manifests again and again; nothing may be written by that.
async fn is_settled_by(ns: &Space<'_>, apply: &str, manifests: &str) -> Result<()> {
    let versions = async || -> Result<Vec<Value>> {
        let mut versions = Vec::new();
        for (kind, name) in [(Kind::Config, "cfg"), (Kind::Pool, "web")] {
            versions.push(ns.get(kind, name).await?["metadata"]["resourceVersion"].clone());
        }
        Ok(versions)
    };
    let output = ns.run_with(apply, manifests)?;
    ensure!(output.success, "{}", output.stderr);
    ns.settled("web", &["web-1", "web-2"]).await?;
    // The status of config and pool may still follow: until two looks with an apply between agree.
    ns.eventually("applying again changes nothing", async || {
        let before = versions().await?;
        let output = ns.run_with(apply, manifests)?;
        ensure!(output.success, "{}", output.stderr);
        let after = versions().await?;
        ensure!(before == after, "{before:?} became {after:?}");
        Ok(())
    })
    .await
}

/// Everything that is ever defaulted is absent here.
fn sparse() -> String {
    all(&[
        config("cfg")
            .without("/spec/runStrategy")
            .with("/spec/running", false),
        pool("web", "cfg")
            .replicas(2)
            .with("/spec/nameGeneration/ordinalStart", 1),
    ])
}

#[test]
fn applying_again_is_no_change_client_side() {
    with_namespace("reapply", async |ns| {
        is_settled_by(ns, "apply -f -", &sparse()).await?;
        let output = ns.run_with("apply -f -", &sparse())?;
        let unchanged = output
            .stdout
            .lines()
            .filter(|line| line.ends_with("unchanged"))
            .count();
        ensure!(unchanged == 2, "{}", output.stdout);
        Ok(())
    });
}

#[test]
fn applying_again_is_no_change_server_side() {
    with_namespace("reapply-ss", async |ns| {
        is_settled_by(ns, SERVER_SIDE, &sparse()).await?;
        let output = ns.run_with("diff --server-side -f -", &sparse())?;
        ensure!(
            output.success,
            "kubectl diff sees a difference: {}",
            output.stdout
        );
        Ok(())
    });
}

#[test]
fn what_a_user_wrote_is_never_rewritten() {
    with_namespace("kept", async |ns| {
        ns.accepts(sparse())?;
        ns.settled("web", &["web-1", "web-2"]).await?;
        let config = ns.get(Kind::Config, "cfg").await?;
        ensure!(config["spec"]["running"] == false, "{config}");
        ensure!(config["spec"]["runStrategy"].is_null(), "{config}");
        let vm = ns.get(Kind::Vm, "web-1").await?;
        ensure!(
            vm["spec"]["runStrategy"] == "Halted",
            "understood at read time: {vm}"
        );
        ensure!(vm["spec"]["running"].is_null(), "{vm}");
        let pool = ns.get(Kind::Pool, "web").await?;
        let wanted = json!({
            "config": {"name": "cfg"},
            "nameGeneration": {"ordinalStart": 1, "vmPrefix": "web"},
            "replicas": 2,
        });
        ensure!(pool["spec"] == wanted, "{}", pool["spec"]);
        Ok(())
    });
}

/// A pool without `replicas`, which somebody scaled to three.
async fn scaled(ns: &Space<'_>, apply: &str) -> Result<Builder> {
    let pool = pool("web", "cfg");
    ns.accepts(config("cfg"))?;
    let output = ns.run_with(apply, &pool.to_string())?;
    ensure!(output.success, "{}", output.stderr);
    ns.kubectl("scale virtualmachinepools.vmpool.dev web --replicas=3")?;
    ns.settled("web", &["web-1", "web-2", "web-3"]).await?;
    Ok(pool)
}

async fn has_three(ns: &Space<'_>) -> Result<()> {
    let stored = ns.get(Kind::Pool, "web").await?;
    ensure!(stored["spec"]["replicas"] == 3, "{stored}");
    Ok(())
}

#[test]
fn absent_replicas_keep_the_number_on_apply() {
    with_namespace("keeps-apply", async |ns| {
        let pool = scaled(ns, "apply -f -").await?;
        let before = version(ns, Kind::Pool, "web").await?;
        ns.accepts(&pool)?;
        ensure!(
            version(ns, Kind::Pool, "web").await? == before,
            "it was a change"
        );
        has_three(ns).await?;
        // Together with another change too.
        ns.accepts(pool.with("/spec/minReadySeconds", 1))?;
        has_three(ns).await?;
        // And when the number was in the manifest before.
        ns.accepts(crate::objects::pool("web", "cfg").replicas(3))?;
        ns.accepts(crate::objects::pool("web", "cfg"))?;
        has_three(ns).await
    });
}

#[test]
fn absent_replicas_keep_the_number_on_server_side_apply() {
    with_namespace("keeps-ssa", async |ns| {
        let pool = scaled(ns, SERVER_SIDE).await?;
        for manifest in [pool.clone(), pool.with("/spec/minReadySeconds", 1)] {
            let output = ns.run_with(SERVER_SIDE, &manifest.to_string())?;
            ensure!(output.success, "{}", output.stderr);
            has_three(ns).await?;
        }
        Ok(())
    });
}

#[test]
fn absent_replicas_keep_the_number_on_replace() {
    with_namespace("keeps-replace", async |ns| {
        let pool = scaled(ns, "create -f -").await?;
        let output = ns.run_with("replace -f -", &pool.to_string())?;
        ensure!(output.success, "{}", output.stderr);
        has_three(ns).await
    });
}

#[test]
fn absent_replicas_keep_the_number_when_a_patch_takes_them_out() {
    with_namespace("keeps-patch", async |ns| {
        scaled(ns, "create -f -").await?;
        for (form, patch) in [
            ("merge", r#"{"spec":{"replicas":null}}"#),
            ("json", r#"[{"op":"remove","path":"/spec/replicas"}]"#),
        ] {
            ns.kubectl(&format!(
                "patch virtualmachinepools.vmpool.dev web --type={form} -p {patch}"
            ))?;
            has_three(ns).await?;
        }
        Ok(())
    });
}
