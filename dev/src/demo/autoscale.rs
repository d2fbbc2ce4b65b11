//! The story's part about numbers that nobody types: the real autoscaler, on both groups.

use anyhow::{Context, Result, ensure};

use super::look::{self, POOL};
use super::manifests::SAMPLES;
use super::stage::Stage;
use super::steps::{contains, members, settle};
use crate::external_metrics::ExternalMetrics;

/// What the autoscaler follows: users that are logged in, ten to a desktop.
const METRIC: &str = "sessions";
/// The CRD and the aggregated group as kubectl names them.
const GROUPS: [&str; 2] = [POOL, "virtualmachinepools.subresources.vmpool.dev"];

/// `kubectl scale` says a group; both mean the same pool.
pub(super) fn both_groups(stage: &Stage) -> Result<()> {
    stage.screen.title("Scaled through either group");
    let before = members(stage, "desktop")?;
    for (group, replicas) in GROUPS.into_iter().zip([11, 10]) {
        stage.run(&format!("scale {group} desktop --replicas={replicas}"))?;
        settle(stage, "desktop", replicas)?;
        let what = format!("{replicas} VMs");
        stage.check(&what, || has(stage, replicas))?;
    }
    let now = members(stage, "desktop")?;
    ensure!(now.len() == before.len(), "there are {}", now.len());
    Ok(())
}

/// A HorizontalPodAutoscaler on an external metric, whose target is the pool.
pub(super) fn autoscaler(stage: &Stage, metrics: &ExternalMetrics) -> Result<()> {
    let files = ["hpa.yaml", "hpa-aggregated.yaml"];
    for (group, file) in GROUPS.into_iter().zip(files) {
        stage.screen.title(&format!("An autoscaler scales {group}"));
        let path = format!("{SAMPLES}/autoscaler/{file}");
        let text = std::fs::read_to_string(crate::workspace().join(&path))
            .with_context(|| format!("failed to read {path}"))?;
        let ten = members(stage, "desktop")?;
        sessions(stage, metrics, 120);
        stage.apply(&path, &text)?;
        follows(stage, 12)?;
        let twelve = stage.check("two more VMs, the others untouched", || {
            has(stage, 12)?;
            let now = members(stage, "desktop")?;
            ensure!(contains(&now, &ten), "a VM was replaced: {ten:?}, {now:?}");
            Ok(now)
        })?;
        stage.run("get hpa")?;
        sessions(stage, metrics, 100);
        follows(stage, 10)?;
        stage.check("and two fewer", || {
            has(stage, 10)?;
            let now = members(stage, "desktop")?;
            ensure!(contains(&twelve, &now), "a VM was replaced: {now:?}");
            Ok(())
        })?;
        stage.run("delete hpa desktop")?;
    }
    Ok(())
}

/// What the monitoring system would say from now on.
fn sessions(stage: &Stage, metrics: &ExternalMetrics, value: u32) {
    metrics.set(&stage.namespace, METRIC, value);
    stage.screen.note(&format!("{METRIC}: {value}"));
}

fn follows(stage: &Stage, replicas: u32) -> Result<()> {
    let path = "{.spec.replicas}";
    stage.wait(&format!("vpool/desktop --for=jsonpath={path}={replicas}"))?;
    settle(stage, "desktop", replicas)
}

fn has(stage: &Stage, replicas: u32) -> Result<()> {
    let numbers = look::numbers(stage, "desktop")?;
    let found = numbers.len();
    ensure!(found == replicas as usize, "there are {found}");
    look::members(stage, "desktop", &numbers).map(drop)
}
