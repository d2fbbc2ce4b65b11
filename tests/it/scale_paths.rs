//! The same bound on every way to a number of replicas. Cases VD-01 and VD-02.

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::api::Api;
use serde_json::json;

use crate::objects::{Builder, all, config, pool};
use crate::{Kind, Space, with_namespace};

const WEB: &str = "virtualmachinepools.vmpool.dev web";
/// The same pool in the aggregated API.
const AGGREGATED: &str = "virtualmachinepools.subresources.vmpool.dev web";

/// `kubectl edit` with an editor that sets the number of replicas; the error is what a user would be shown.
fn edit(ns: &Space<'_>, replicas: u32) -> Result<Result<(), String>> {
    // kubectl opens the editor again with the reasons on top, until nothing is changed any more, and leaves
    // what was tried in a file.
    let folder = tempfile::tempdir()?;
    let editor = format!("sed -i -E 's/^  replicas: [0-9]+$/  replicas: {replicas}/'");
    let mut command = ns.harness.kubectl().command();
    command
        .args([
            "-n",
            &ns.name,
            "edit",
            "virtualmachinepools.vmpool.dev",
            "web",
        ])
        .env("KUBE_EDITOR", editor)
        .env("TMPDIR", folder.path());
    let output = tokio::task::block_in_place(|| command.output());
    let output = output.context("failed to run kubectl edit")?;
    if output.status.success() {
        return Ok(Ok(()));
    }
    let mut said = String::from_utf8_lossy(&output.stderr).into_owned();
    for file in std::fs::read_dir(folder.path())? {
        said += &std::fs::read_to_string(file?.path())?;
    }
    Ok(Err(said))
}

/// Refused by apply, edit, and the scale subresource, each time at `spec.replicas` and for the same reason.
async fn refused_everywhere(ns: &Space<'_>, pool: Builder, replicas: u32, why: &str) -> Result<()> {
    let before = ns.get(Kind::Pool, "web").await?["spec"]["replicas"].clone();
    let edited = edit(ns, replicas)?.err().context("edit was admitted")?;
    let patch = format!(r#"{{"spec":{{"replicas":{replicas}}}}}"#);
    let said = [
        ("apply", ns.rejects(pool.replicas(replicas))?),
        (
            "scale",
            ns.refused(&format!("scale {WEB} --replicas={replicas}"))?,
        ),
        (
            "patch",
            ns.refused(&format!("patch {WEB} --type=merge -p {patch}"))?,
        ),
        (
            "patch scale",
            ns.refused(&format!(
                "patch {WEB} --subresource=scale --type=merge -p {patch}"
            ))?,
        ),
        (
            "aggregated scale",
            ns.refused(&format!("scale {AGGREGATED} --replicas={replicas}"))?,
        ),
        (
            "patch aggregated scale",
            ns.refused(&format!(
                "patch {AGGREGATED} --subresource=scale --type=merge -p {patch}"
            ))?,
        ),
        ("edit", edited),
    ];
    for (path, said) in said {
        ensure!(said.contains("spec.replicas"), "{path}: {said}");
        ensure!(
            said.contains(why),
            "{path} has another reason than {why:?}: {said}"
        );
    }
    let stored = ns.get(Kind::Pool, "web").await?;
    ensure!(stored["spec"]["replicas"] == before, "{stored}");
    Ok(())
}

#[test]
fn vd_01_the_bound_of_replicas_holds_for_apply_edit_patch_and_scale() {
    with_namespace("vd-01", async |ns| {
        ns.accepts(all(&[config("cfg"), pool("web", "cfg").replicas(1)]))?;
        ns.settled("web", &["web-1"]).await?;
        refused_everywhere(ns, pool("web", "cfg"), 100_001, "100000").await?;
        // An edit that is fine goes through, so that the refusals above are no failures of the editor.
        if let Err(said) = edit(ns, 2)? {
            bail!("{said}");
        }
        ns.settled("web", &["web-1", "web-2"]).await?;
        Ok(())
    });
}

#[test]
fn vd_01_a_config_that_bears_one_vm_is_scaled_to_two_on_no_path() {
    with_namespace("vd-01-one", async |ns| {
        // A claim that wants one certain volume: only the webhook knows, from another object.
        ns.accepts(all(&[
            config("cfg").disk("root").volume("fixed", json!({"dataVolume": {"name": "fixed"}})).push("/spec/dataVolumeTemplates", json!({
                "metadata": {"name": "fixed"},
                "spec": {
                    "storage": {"volumeName": "pv-7", "resources": {"requests": {"storage": "1Gi"}}},
                    "source": {"blank": {}},
                },
            })),
            pool("web", "cfg").replicas(1),
        ]))?;
        ns.settled("web", &["web-1"]).await?;
        refused_everywhere(ns, pool("web", "cfg"), 2, "pv-7").await?;
        ns.kubectl(&format!("scale {WEB} --replicas=0"))?;
        ns.settled("web", &[]).await?;
        Ok(())
    });
}

#[test]
fn vd_02_a_scale_is_judged_as_a_scale_and_scaling_works() {
    with_namespace("vd-02", async |ns| {
        ns.accepts(all(&[config("cfg"), pool("web", "cfg").replicas(1)]))?;
        ns.settled("web", &["web-1"]).await?;

        // 1. With and without preconditions, which are a PUT and a PATCH of the Scale.
        ns.kubectl(&format!("scale {WEB} --replicas=3 --current-replicas=1"))?;
        ns.settled("web", &["web-1", "web-2", "web-3"]).await?;
        let said = ns.refused(&format!("scale {WEB} --replicas=5 --current-replicas=1"))?;
        ensure!(said.contains("Expected replicas"), "{said}");
        ns.kubectl(&format!("scale {WEB} --replicas=0"))?;
        ns.settled("web", &[]).await?;
        ns.kubectl(&format!("scale {WEB} --replicas=1 --dry-run=server"))?;
        ns.settled("web", &[]).await?;

        // 2. What the subresource shows is what an autoscaler needs.
        let scale = ns.kubectl(&format!("get {WEB} --subresource=scale -o json"))?;
        let scale: serde_json::Value = serde_json::from_str(&scale)?;
        let uid = ns.get(Kind::Pool, "web").await?["metadata"]["uid"].clone();
        let selector = format!("vmpool.dev/pool-uid={}", uid.as_str().unwrap_or_default());
        ensure!(scale["status"]["selector"] == selector, "{scale}");
        ensure!(scale["kind"] == "Scale", "{scale}");
        Ok(())
    });
}

#[test]
fn vd_02_the_rule_for_scale_names_the_group_of_the_resource() {
    with_namespace("vd-02-rule", async |ns| {
        let hooks: Api<ValidatingWebhookConfiguration> = Api::all(ns.client.clone());
        let hooks = hooks
            .get("validate.vmpool.dev")
            .await?
            .webhooks
            .unwrap_or_default();
        let rules: Vec<_> = hooks
            .into_iter()
            .flat_map(|hook| hook.rules.unwrap_or_default())
            .collect();
        let of_scale = |rule: &&k8s_openapi::api::admissionregistration::v1::RuleWithOperations| {
            let resources = rule.resources.as_deref().unwrap_or_default();
            resources
                .iter()
                .any(|resource| resource == "virtualmachinepools/scale")
        };
        let rule = rules.iter().find(of_scale).context("no rule for scale")?;
        let groups = rule.api_groups.clone().unwrap_or_default();
        ensure!(groups == ["vmpool.dev"], "{groups:?}");
        Ok(())
    });
}
