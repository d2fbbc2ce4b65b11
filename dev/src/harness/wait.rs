//! Waiting for what others do. Nothing here changes anything: what is created is a dry run.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::Client;
use kube::api::{Api, PostParams};
use serde_json::json;
use vmpool::api::{API_SERVICE, VirtualMachineConfig};

/// Short, since tests are made of waiting.
const POLL: Duration = Duration::from_millis(50);
/// The API server's watch of webhook configurations, and a new certificate authority in them.
const WEBHOOK_TIMEOUT: Duration = Duration::from_secs(30);
/// What an error shows of a log.
const TAIL_LINES: usize = 40;

/// Tries until it succeeds; the last error is the answer when time is up.
pub async fn eventually<T>(
    what: &str,
    timeout: Duration,
    mut attempt: impl AsyncFnMut() -> Result<T>,
) -> Result<T> {
    let deadline = Instant::now() + timeout;
    loop {
        match attempt().await {
            Ok(value) => return Ok(value),
            Err(error) if Instant::now() > deadline => {
                return Err(error.context(format!("not within {timeout:?}: {what}")));
            }
            Err(_) => tokio::time::sleep(POLL).await,
        }
    }
}

/// Waits until the API server reaches our webhooks and our API, and trusts them.
pub(super) async fn served(client: &Client) -> Result<()> {
    webhooks(client).await?;
    let services: Api<APIService> = Api::all(client.clone());
    eventually(
        "the aggregated API is Available",
        WEBHOOK_TIMEOUT,
        async || {
            let status = services.get(API_SERVICE).await?.status.unwrap_or_default();
            let conditions = status.conditions.unwrap_or_default();
            let available = conditions.iter().find(|c| c.type_ == "Available");
            ensure!(
                available.is_some_and(|condition| condition.status == "True"),
                "{available:?}"
            );
            Ok(())
        },
    )
    .await
}

async fn webhooks(client: &Client) -> Result<()> {
    let api: Api<VirtualMachineConfig> = Api::namespaced(client.clone(), "default");
    let probe: VirtualMachineConfig = serde_json::from_value(json!({
        "apiVersion": vmpool::api::API_VERSION,
        "kind": vmpool::api::CONFIG_KIND,
        "metadata": {"name": "webhook-probe"},
        "spec": {"runStrategy": "Halted", "template": {"spec": {"domain": {"devices": {}}}}},
    }))
    .context("the probe is no config")?;
    let dry_run = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    eventually(
        "the API server calls our webhooks",
        WEBHOOK_TIMEOUT,
        async || {
            api.create(&dry_run, &probe).await?;
            Ok(())
        },
    )
    .await
}

/// Waits for the service account that the controller-manager makes in a new namespace.
pub(super) async fn default_service_account(client: &Client, namespace: &str) -> Result<()> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    eventually("the default service account", WEBHOOK_TIMEOUT, async || {
        accounts.get("default").await?;
        Ok(())
    })
    .await
}

/// The last lines of a log.
pub(super) fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}
