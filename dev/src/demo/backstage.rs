//! What the embedded demo has besides a user's means: a metric to set, and processes to kill.

use anyhow::{Context, Result};
use vmpool::api::API_SERVICE;
use vmpool::lease;

use crate::external_metrics::ExternalMetrics;
use crate::harness::{Harness, NAMESPACE, Options};
use crate::supervisor::Signal;

/// The control plane with everything on it, and a monitoring system.
pub(super) struct Backstage {
    // Dropped in this order: the metrics are served to the control plane.
    pub(super) metrics: ExternalMetrics,
    pub(super) harness: Harness,
}

impl Backstage {
    pub(super) async fn start(options: Options, tell: &(dyn Fn(&str) + Sync)) -> Result<Self> {
        let harness = Harness::start_with(options, tell).await?;
        let metrics = ExternalMetrics::start(harness.client()?).await?;
        Ok(Self { metrics, harness })
    }

    /// Kills the process that leads, without a word, and says which.
    pub(super) fn kill_leader(&self) -> Result<String> {
        let holder = "jsonpath={.spec.holderIdentity}";
        let args = ["-n", NAMESPACE, "get", "lease", lease::NAME, "-o", holder];
        let holder = self.harness.kubectl().run_ok(&args)?;
        // Two replicas, named like pods, with what is unique of the process behind.
        let pod = holder.split('_').next().unwrap_or_default();
        let number = pod.strip_prefix("vmpool-").and_then(|n| n.parse().ok());
        let number = number.with_context(|| format!("nobody of ours leads: {holder:?}"))?;
        self.harness.replica(number).kill(Signal::KILL);
        Ok(format!("{pod}, which leads, is killed"))
    }

    /// Where the aggregated API is served on this machine.
    pub(super) fn program_port(&self) -> Result<String> {
        let args = [
            "get",
            "apiservice",
            API_SERVICE,
            "-o",
            "jsonpath={.spec.service.port}",
        ];
        let port = self.harness.kubectl().run_ok(&args);
        port.context("the aggregated API is not registered")
    }
}
