//! The real HorizontalPodAutoscaler on an external metric, with the pool as its target. Case HS-03; what the
//! scale subresource shows it is `scale_paths`'s and the aggregated API's own tests'.

use std::time::Duration;

use anyhow::{Result, ensure};
use dev::external_metrics::ExternalMetrics;
use dev::harness::{Harness, Options};
use serde_json::{Value, json};

use crate::objects::{Builder, all, config, pool};
use crate::{Kind, Space, with_own};

/// What is scaled on: ten to a VM.
const METRIC: &str = "sessions";
/// The autoscaler here looks every 3 s.
const CALM: Duration = Duration::from_secs(5);

/// An autoscaler whose target is the pool `web` in a group.
fn autoscaler(group: &str) -> String {
    json!({
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web"},
        "spec": {
            "scaleTargetRef": {
                "apiVersion": format!("{group}/v1alpha1"), "kind": "VirtualMachinePool", "name": "web",
            },
            "minReplicas": 2,
            "maxReplicas": 20,
            "metrics": [{"type": "External", "external": {
                "metric": {"name": METRIC},
                "target": {"type": "AverageValue", "averageValue": "10"},
            }}],
        },
    })
    .to_string()
}

fn with_metrics(prefix: &str, test: impl AsyncFnOnce(&Space<'_>, &ExternalMetrics) -> Result<()>) {
    with_own(Options::default(), async |harness: &mut Harness| {
        let metrics = ExternalMetrics::start(harness.client()?).await?;
        let ns = Space::new(harness, prefix).await?;
        test(&ns, &metrics).await
    });
}

async fn wants(ns: &Space<'_>, replicas: u32) -> Result<()> {
    ns.eventually(&format!("the pool wants {replicas}"), async || {
        let spec = &ns.get(Kind::Pool, "web").await?["spec"];
        ensure!(spec["replicas"] == replicas, "{spec}");
        let autoscaler: Value = serde_json::from_str(&ns.kubectl("get hpa web -o json")?)?;
        let desired = &autoscaler["status"]["desiredReplicas"];
        ensure!(*desired == replicas, "{}", autoscaler["status"]);
        let members = ns.member_names("web").await?.len();
        ensure!(members == replicas as usize, "there are {members}");
        Ok(())
    })
    .await
}

#[test]
fn hpa_scales_through_the_crd_and_the_aggregated_api() {
    with_metrics("hpa", async |ns, metrics| {
        ns.accepts(all(&[config("cfg"), pool("web", "cfg").replicas(1)]))?;
        for group in ["vmpool.dev", "subresources.vmpool.dev"] {
            metrics.set(&ns.name, METRIC, 45);
            ns.accepts(autoscaler(group))?;
            wants(ns, 5).await?;
            metrics.set(&ns.name, METRIC, 20);
            wants(ns, 2).await?;
            ns.kubectl("delete hpa web")?;
        }
        Ok(())
    });
}

#[test]
fn hs_03_what_an_autoscaler_chose_survives_every_way_of_applying_the_manifest_again() {
    with_metrics("hs-03", async |ns, metrics| {
        // 1. Replicas applied by another manager once the autoscaler has taken them: a conflict that names it.
        // (Of a number that a webhook filled in, Kubernetes records no owner, then or later.)
        let bare = pool("web", "cfg");
        ns.accepts(all(&[config("cfg"), bare.clone().replicas(1)]))?;
        metrics.set(&ns.name, METRIC, 80);
        ns.accepts(autoscaler("vmpool.dev"))?;
        wants(ns, 8).await?;
        let other = "apply --server-side --field-manager=gitops -f -";
        let output = ns.run_with(other, &bare.clone().replicas(3).to_string())?;
        let said = &output.stderr;
        ensure!(!output.success, "it was admitted: {}", output.stdout);
        ensure!(
            said.contains("conflict") && said.contains("kube-controller-manager"),
            "{said}"
        );
        ensure!(said.contains(".spec.replicas"), "{said}");

        // 2. A manifest that had replicas and has none any more. The number before is the autoscaler's.
        ns.accepts(changed(&bare, "1"))?;
        keeps(ns, 8).await?;

        // 3. A manifest without replicas, applied by either kind of apply.
        ns.accepts(changed(&bare, "2"))?;
        let server_side = "apply --server-side --force-conflicts -f -";
        let output = ns.run_with(server_side, &changed(&bare, "3").to_string())?;
        ensure!(output.success, "{}", output.stderr);
        keeps(ns, 8).await
    });
}

/// The same manifest with something else in it, so that applying it is a write.
fn changed(pool: &Builder, what: &str) -> Builder {
    pool.clone().annotation("example.com/edit", what)
}

/// Nothing is scaled, not even for a moment: the very same VMs stay.
async fn keeps(ns: &Space<'_>, replicas: u32) -> Result<()> {
    let before = ns.members("web").await?;
    ns.stays("the number and the VMs", CALM, async || {
        let spec = &ns.get(Kind::Pool, "web").await?["spec"];
        ensure!(spec["replicas"] == replicas, "{spec}");
        let uids = |vms: &[Value]| {
            vms.iter()
                .map(|vm| vm["metadata"]["uid"].clone())
                .collect::<Vec<_>>()
        };
        let now = ns.members("web").await?;
        ensure!(uids(&before) == uids(&now), "other VMs: {now:?}");
        Ok(())
    })
    .await
}
