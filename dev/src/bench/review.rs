//! What an admission review costs: each hook's answers, against a handler in the same server that decodes the review
//! and allows it.
//!
//! The server is one of this process: the program's own router on its own caches, fed by the API server, with the
//! other handler beside. One request at a time on each connection (HTTP/1.1), in alternating rounds. Reviews whose
//! answer takes a dry run by the API server are told apart.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use axum::routing::post;
use axum::{Json, Router};
use futures::future::try_join_all;
use kube::Client;
use kube::core::DynamicObject;
use kube::core::admission::{AdmissionRequest, AdmissionResponse, AdmissionReview};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use vmpool::admission::{
    AdmissionMetrics, AdmissionState, CachedObjects, LiveAccess, LiveObjects, defaulting, router,
    service_account_username, stamping, validate_config, validate_pool,
};
use vmpool::cache::Caches;

use super::cluster::{Cluster, PATIENCE};
use super::latency::{allowed, direct, request, review, time};
use super::numbers::{Sample, count, quantile};
use super::report::Report;
use super::{Size, tell};
use crate::harness::{Harness, NAMESPACE, SERVICE_ACCOUNT, eventually};
use crate::webhook_server::WebhookServer;

/// Where the handler is that allows everything.
const ALLOW: &str = "/allow";
/// Who writes what isn't the program's own.
const USER: &str = "jane";
/// KiB that an object is filled up to.
const OBJECTS: [usize; 3] = [2, 10, 50];
const CONNECTIONS: [usize; 3] = [1, 8, 32];
/// What the ratios of the table are of.
const TOLD: (usize, usize) = (10, 8);

/// Measures review_ratio_pool_10k, review_ratio_stamp_10k and the dry run.
pub(super) async fn measure(
    harness: &Harness,
    cluster: &Cluster,
    size: Size,
    report: &mut Report,
) -> Result<()> {
    tell("Answers to admission reviews");
    let server = Server::start(harness).await?;
    let namespace = harness.namespace("review").await?;
    for kib in OBJECTS {
        let objects = Objects::make(cluster, &namespace, kib).await?;
        for hook in objects.hooks() {
            for connections in CONNECTIONS {
                let clients = server.clients(connections)?;
                let compared = compare(&clients, &hook, size).await?;
                if let Some(key) = hook.metric
                    && (kib, connections) == TOLD
                {
                    for ratio in &compared.ratios {
                        report.push(key, *ratio);
                    }
                }
                report.note(compared.line(hook.name, kib, connections));
            }
        }
        if kib == TOLD.0 {
            dry_run(&server.clients(1)?[0], &objects, size, report).await?;
        }
    }
    drop(server);
    cluster.clear(&namespace).await
}

/// The path that asks KubeVirt: a config that is made.
async fn dry_run(
    client: &Client,
    objects: &Objects,
    size: Size,
    report: &mut Report,
) -> Result<()> {
    let mut config = objects.config.clone();
    config["metadata"]["name"] = json!("another");
    let body = review(&config, &Value::Null, USER).to_string();
    allowed(client, validate_config::PATH, &body).await?;
    for _ in 0..size.rounds {
        let mut times = Vec::new();
        for _ in 0..(size.requests / 10).max(1) {
            let request = request("POST", validate_config::PATH, body.clone())?;
            times.push(time(client, request).await?);
        }
        report.push("review_dry_run_p50_ms", quantile(&times, 0.50));
        report.push("review_dry_run_p99_ms", quantile(&times, 0.99));
    }
    Ok(())
}

/// Serves until it is dropped.
struct Server {
    served: WebhookServer,
    feeds: JoinHandle<()>,
}

impl Server {
    async fn start(harness: &Harness) -> Result<Self> {
        let config = harness.sa_config();
        let caches = Arc::new(Caches::default());
        let feeds = tokio::spawn(Arc::clone(&caches).run(harness.sa_client()?));
        let filled = eventually("the caches are filled", PATIENCE, async || {
            let missing = caches.waiting_for();
            ensure!(missing.is_empty(), "{missing:?} are not");
            Ok(())
        });
        filled.await?;
        let objects = CachedObjects::new(caches, LiveObjects::new(config.clone())?);
        let hooks = router(AdmissionState {
            objects: Arc::new(objects),
            access: Arc::new(LiveAccess::new(config)?),
            own_username: service_account_username(NAMESPACE, SERVICE_ACCOUNT),
            metrics: AdmissionMetrics::default(),
        });
        let allow: Router = Router::new().route(ALLOW, post(allow));
        let served = WebhookServer::start("reviews", hooks.merge(allow))?;
        Ok(Self { served, feeds })
    }

    /// Each has a connection of its own.
    fn clients(&self, connections: usize) -> Result<Vec<Client>> {
        let base = format!("https://{}", self.served.address());
        (0..connections).map(|_| direct(&base, None)).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.feeds.abort();
    }
}

/// As little as a webhook can do.
async fn allow(
    Json(review): Json<AdmissionReview<DynamicObject>>,
) -> Json<AdmissionReview<DynamicObject>> {
    let request: Result<AdmissionRequest<DynamicObject>, _> = review.try_into();
    let response = match request {
        Ok(request) => AdmissionResponse::from(&request),
        Err(error) => AdmissionResponse::invalid(error),
    };
    Json(response.into_review())
}

/// A review that a hook answers without a dry run. A config's never is: its spec has changed, or it isn't asked.
struct Hook {
    name: &'static str,
    path: &'static str,
    body: String,
    /// What its ratio is called in the table.
    metric: Option<&'static str>,
}

/// As they are in the cluster.
struct Objects {
    config: Value,
    pool: Value,
    vm: Value,
}

impl Objects {
    /// Makes a config and a pool with a VM.
    async fn make(cluster: &Cluster, namespace: &str, kib: usize) -> Result<Self> {
        let name = format!("of-{kib}k");
        let mut config = cluster.halted_config();
        config["metadata"] = json!({"name": name, "namespace": namespace});
        fill(
            &mut config,
            &["spec", "template", "spec", "volumes"],
            kib,
            |text| {
                json!([
                    {"name": "root", "dataVolume": {"name": "root"}},
                    {"name": "init", "cloudInitNoCloud": {"userData": text}},
                    {"name": "settings", "configMap": {"name": "desktop-settings"}},
                ])
            },
        );
        let mut pool = json!({
            "apiVersion": vmpool::api::API_VERSION,
            "kind": vmpool::api::POOL_KIND,
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"replicas": 1, "maxUnavailable": "25%", "config": {"name": name}, "nameGeneration": {
                "appendPostfixToSecretReferences": true, "appendPostfixToConfigMapReferences": true,
            }},
        });
        fill(
            &mut pool,
            &["metadata", "annotations"],
            kib,
            |text| json!({"runbook": text}),
        );
        cluster.make(namespace, &config, &pool).await?;
        let vm = cluster.vm(namespace, &format!("{name}-1")).await?;
        Ok(Self { config, pool, vm })
    }

    fn hooks(&self) -> [Hook; 4] {
        let account = service_account_username(NAMESPACE, SERVICE_ACCOUNT);
        let (mut edited, mut grown) = (self.pool.clone(), self.pool.clone());
        edited["spec"]["maxUnavailable"] = json!("10%");
        grown["spec"]["replicas"] = json!(2);
        let stamp = review(&self.vm, &Value::Null, &account);
        let pool = review(&edited, &self.pool, USER);
        let growth = review(&grown, &self.pool, USER);
        let hook = |name, path, review: &Value, metric| Hook {
            name,
            path,
            body: review.to_string(),
            metric,
        };
        [
            hook("default a pool", defaulting::PATH, &pool, None),
            hook(
                "validate a pool",
                validate_pool::PATH,
                &pool,
                Some("review_ratio_pool_10k"),
            ),
            hook(
                "validate a pool that grows",
                validate_pool::PATH,
                &growth,
                None,
            ),
            hook(
                "stamp a VM",
                stamping::PATH,
                &stamp,
                Some("review_ratio_stamp_10k"),
            ),
        ]
    }
}

/// Puts in at `path` what `make` makes of a text, so that the whole is as long as that.
fn fill(object: &mut Value, path: &[&str], kib: usize, make: impl Fn(String) -> Value) {
    let mut place = |text| {
        let at = path
            .iter()
            .fold(&mut *object, |value, key| &mut value[*key]);
        *at = make(text);
        object.to_string().len()
    };
    let length = place(String::new());
    // Lines as in a cloud-init file.
    let missing = (kib << 10).saturating_sub(length);
    let text: String = "  - echo ready\n".chars().cycle().take(missing).collect();
    place(text);
}

/// One hook at one size with so many connections.
#[derive(Default)]
struct Compared {
    ratios: Vec<f64>,
    per_second: Sample,
    p50: Sample,
    p99: Sample,
}

impl Compared {
    fn line(&self, hook: &str, kib: usize, connections: usize) -> String {
        let mut ratios = Sample::default();
        self.ratios.iter().for_each(|ratio| ratios.push(*ratio));
        let median = |sample: &Sample| sample.median().unwrap_or_default();
        format!(
            "{hook}, {kib} KiB, {connections} connections: {:.0}/s, p50 {:.2} ms, p99 {:.2} ms, \
             {:.2} of allowing it",
            median(&self.per_second),
            median(&self.p50),
            median(&self.p99),
            median(&ratios)
        )
    }
}

async fn compare(clients: &[Client], hook: &Hook, size: Size) -> Result<Compared> {
    for path in [ALLOW, hook.path] {
        try_join_all(
            clients
                .iter()
                .map(|client| allowed(client, path, &hook.body)),
        )
        .await?;
    }
    let mut compared = Compared::default();
    for _ in 0..size.rounds {
        let (least, _) = load(clients, ALLOW, &hook.body, size.requests / 4).await?;
        let (ours, times) = load(clients, hook.path, &hook.body, size.requests / 4).await?;
        compared.ratios.push(ours / least);
        compared.per_second.push(ours);
        compared.p50.push(quantile(&times, 0.50));
        compared.p99.push(quantile(&times, 0.99));
    }
    Ok(compared)
}

/// Reviews per second, and what each took in milliseconds.
async fn load(
    clients: &[Client],
    path: &str,
    body: &str,
    requests: usize,
) -> Result<(f64, Vec<f64>)> {
    let each = requests.div_ceil(clients.len()).max(1);
    let start = Instant::now();
    let tasks = clients.iter().cloned().map(|client| {
        let (path, body) = (path.to_owned(), body.to_owned());
        tokio::spawn(async move {
            let mut times = Vec::with_capacity(each);
            for _ in 0..each {
                let request = request("POST", &path, body.clone())?;
                times.push(time(&client, request).await?);
            }
            anyhow::Ok(times)
        })
    });
    let mut times = Vec::new();
    for task in try_join_all(tasks).await.context("a client panicked")? {
        times.extend(task?);
    }
    Ok((count(times.len()) / start.elapsed().as_secs_f64(), times))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_filled_up_to_its_size() {
        let mut object = json!({"metadata": {"name": "a"}, "spec": {"x": 1}});
        fill(
            &mut object,
            &["metadata", "annotations"],
            2,
            |text| json!({"a": text}),
        );
        let length = object.to_string().len();
        // A line feed is two characters of JSON.
        assert!((2048..2300).contains(&length), "{length}");
        assert_eq!(object["spec"]["x"], 1);
    }

    #[test]
    fn a_line_tells_medians() {
        let mut compared = Compared {
            ratios: vec![0.9, 0.5, 0.7],
            ..Compared::default()
        };
        compared.per_second.push(1000.4);
        compared.p50.push(1.0);
        compared.p99.push(2.0);
        let line = compared.line("stamp a VM", 10, 8);
        assert_eq!(
            line,
            "stamp a VM, 10 KiB, 8 connections: 1000/s, p50 1.00 ms, p99 2.00 ms, 0.70 of allowing it"
        );
    }
}
