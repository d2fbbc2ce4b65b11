//! How long the program's answers take: a webhook's, and the aggregated scale's beside the CRD's own.
//!
//! One client, one request at a time, what is compared in turns, so that all see the same machine.
//! Directly, on connections that are kept; and through the API server, as a user of one role who is
//! subject to its priority and fairness, on every path the same.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use http::{Request, header};
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::api::{Api, PostParams};
use kube::{Client, Config};
use serde_json::{Value, json};
use vmpool::admission::hooks::MUTATING_CONFIGURATION;
use vmpool::admission::service_account_username;
use vmpool::api::SUBRESOURCES_GROUP;

use super::cluster::{Cluster, NAME};
use super::numbers::quantile;
use super::report::Report;
use super::{Size, tell};
use crate::controlplane;
use crate::harness::{Harness, NAMESPACE, SERVICE_ACCOUNT};

/// Members of the pool that is asked about.
const MEMBERS: u32 = 5;
/// The hook that does the most: it renders the VM anew.
const STAMPING: &str = "stamp.vmpool.dev";
/// Who asks.
const CALLER: &str = "bench";

/// Measures the webhook's answer, directly.
pub(super) async fn webhook(
    harness: &Harness,
    cluster: &Cluster,
    size: Size,
    report: &mut Report,
) -> Result<()> {
    tell("Answers of the webhook");
    let namespace = pool(harness, cluster).await?;
    let vm = cluster.vm(&namespace, &format!("{NAME}-1")).await?;
    let account = service_account_username(NAMESPACE, SERVICE_ACCOUNT);
    let review = review(&vm, &Value::Null, &account).to_string();
    let url = stamping_url(&cluster.admin).await?;
    let (base, path) = split(&url)?;
    let direct = direct(&base, None)?;
    allowed(&direct, &path, &review).await?;
    for _ in 0..size.rounds {
        let mut times = Vec::new();
        for _ in 0..size.requests {
            times.push(time(&direct, request("POST", &path, review.clone())?).await?);
        }
        report.push("webhook_p50_ms", quantile(&times, 0.50));
        report.push("webhook_p99_ms", quantile(&times, 0.99));
    }
    cluster.clear(&namespace).await
}

/// Measures the aggregated scale's answer, directly and through the API server, beside the CRD's.
pub(super) async fn scale(
    harness: &Harness,
    cluster: &Cluster,
    size: Size,
    report: &mut Report,
) -> Result<()> {
    tell("Answers of the aggregated scale");
    let namespace = pool(harness, cluster).await?;
    let config = caller(harness, cluster, &namespace).await?;
    let (base, _) = split(&stamping_url(&cluster.admin).await?)?;
    let direct = direct(&base, Some(&config))?;
    let server = Client::try_from(config).context("failed to make a client")?;
    let path = |group: &str| {
        format!("/apis/{group}/namespaces/{namespace}/virtualmachinepools/{NAME}/scale")
    };
    let aggregated = path(&format!("{SUBRESOURCES_GROUP}/v1alpha1"));
    let native = path(vmpool::api::API_VERSION);
    let get = |path: &str| request("GET", path, String::new());
    // Connections, discovery and cached verdicts.
    for (client, path) in [
        (&direct, &aggregated),
        (&server, &aggregated),
        (&server, &native),
    ] {
        let scale: Value = client.request(get(path)?).await?;
        ensure!(scale["spec"]["replicas"] == MEMBERS, "{path}: {scale}");
    }
    for _ in 0..size.rounds {
        let (mut here, mut proxied, mut own) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..size.requests {
            here.push(time(&direct, get(&aggregated)?).await?);
            proxied.push(time(&server, get(&aggregated)?).await?);
            own.push(time(&server, get(&native)?).await?);
        }
        let (proxied_p50, native_p50) = (quantile(&proxied, 0.50), quantile(&own, 0.50));
        report.push("scale_get_p50_ms", quantile(&here, 0.50));
        report.push("scale_get_p99_ms", quantile(&here, 0.99));
        report.push("scale_get_proxied_ratio", proxied_p50 / native_p50);
        report.push("scale_get_proxied_p50_ms", proxied_p50);
        report.push("scale_get_proxied_p99_ms", quantile(&proxied, 0.99));
        report.push("scale_get_native_p50_ms", native_p50);
        report.push("scale_get_native_p99_ms", quantile(&own, 0.99));
    }
    cluster.clear(&namespace).await
}

/// A small pool in a namespace of its own.
async fn pool(harness: &Harness, cluster: &Cluster) -> Result<String> {
    let namespace = harness.namespace("latency").await?;
    cluster.make_config(&namespace).await?;
    cluster.make_pool(&namespace, MEMBERS, false).await?;
    cluster.wait_settled(&namespace, MEMBERS).await?;
    Ok(namespace)
}

/// A service account that may do in the namespace what its administrators may.
async fn caller(harness: &Harness, cluster: &Cluster, namespace: &str) -> Result<Config> {
    let account: ServiceAccount = from(json!({"metadata": {"name": CALLER}}))?;
    let accounts: Api<ServiceAccount> = Api::namespaced(cluster.admin.clone(), namespace);
    accounts.create(&PostParams::default(), &account).await?;
    let binding: RoleBinding = from(json!({
        "metadata": {"name": CALLER},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"},
        "subjects": [{"kind": "ServiceAccount", "name": CALLER, "namespace": namespace}],
    }))?;
    let bindings: Api<RoleBinding> = Api::namespaced(cluster.admin.clone(), namespace);
    bindings.create(&PostParams::default(), &binding).await?;
    let plane = harness.plane();
    let kubeconfig = plane
        .service_account_kubeconfig(namespace, CALLER, None)
        .await?;
    Ok(controlplane::client(&kubeconfig).await?.0)
}

/// Where the API server finds the stamping hook.
async fn stamping_url(client: &Client) -> Result<String> {
    let api: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let configuration = api.get(MUTATING_CONFIGURATION).await?;
    let mut hooks = configuration.webhooks.into_iter().flatten();
    let hook = hooks.find(|hook| hook.name == STAMPING);
    let url = hook.and_then(|hook| hook.client_config.url);
    url.context("the stamping hook has no URL")
}

fn split(url: &str) -> Result<(String, String)> {
    let url: http::Uri = url.parse().context("a hook's URL is none")?;
    let authority = url.authority().context("a hook's URL names no server")?;
    Ok((format!("https://{authority}"), url.path().to_owned()))
}

/// Straight to the program; whose certificate it shows was the API server's to check.
pub(super) fn direct(base: &str, caller: Option<&Config>) -> Result<Client> {
    let mut config = Config::new(base.parse().context("a server's URL is none")?);
    config.accept_invalid_certs = true;
    if let Some(caller) = caller {
        config.auth_info = caller.auth_info.clone();
    }
    Client::try_from(config).context("failed to make a client")
}

/// What the API server asks of an object that is made, or of one that was `stored` otherwise.
pub(super) fn review(object: &Value, stored: &Value, user: &str) -> Value {
    let (group, version) = object["apiVersion"]
        .as_str()
        .and_then(|version| version.split_once('/'))
        .unwrap_or_default();
    let kind = object["kind"].as_str().unwrap_or_default();
    let plural = format!("{}s", kind.to_lowercase());
    let kind = json!({"group": group, "version": version, "kind": kind});
    let resource = json!({"group": group, "version": version, "resource": plural});
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "5f0ac1b6-1c1b-4f8e-9a8b-0d4a2f6f3c11",
            "kind": kind, "requestKind": kind,
            "resource": resource, "requestResource": resource,
            "name": object["metadata"]["name"], "namespace": object["metadata"]["namespace"],
            "operation": if stored.is_null() { "CREATE" } else { "UPDATE" },
            "userInfo": {"username": user, "groups": ["system:authenticated"]},
            "object": object, "oldObject": stored, "dryRun": false,
        },
    })
}

/// A review must be answered, and not by a refusal.
pub(super) async fn allowed(client: &Client, path: &str, body: &str) -> Result<()> {
    let request = request("POST", path, body.to_owned())?;
    let answer = client.request_text(request).await?;
    let answer: Value = serde_json::from_str(&answer).context("the answer is no JSON")?;
    ensure!(answer["response"]["allowed"] == true, "{path}: {answer}");
    Ok(())
}

pub(super) fn request(method: &str, path: &str, body: String) -> Result<Request<Vec<u8>>> {
    Request::builder()
        .method(method)
        .uri(path)
        .header(header::CONTENT_TYPE, "application/json")
        .body(body.into_bytes())
        .context("failed to make a request")
}

/// Milliseconds from the request to the end of its answer, which must not be an error.
pub(super) async fn time(client: &Client, request: Request<Vec<u8>>) -> Result<f64> {
    let start = Instant::now();
    client.request_text(request).await?;
    Ok(milliseconds(start.elapsed()))
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

fn from<T: serde::de::DeserializeOwned>(object: Value) -> Result<T> {
    serde_json::from_value(object).context("a malformed object")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_a_server_and_a_path() {
        let (base, path) = split("https://127.0.0.1:8443/admission/stamp").unwrap();
        assert_eq!(base, "https://127.0.0.1:8443");
        assert_eq!(path, "/admission/stamp");
        assert!(split("/admission").is_err());
    }
}
