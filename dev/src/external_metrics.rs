//! External metrics for the real autoscaler: `external.metrics.k8s.io/v1beta1` with values that a
//! test or the demo sets. In a cluster an adapter serves them from a monitoring system.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use axum::Router;
use axum::extract::{Path, State};
use axum::response::Response;
use axum::routing::get;
use http::StatusCode;
use kube::Client;
use serde_json::{Value, json};

use crate::extension::{ApiGroup, Extension, answer, status};

const GROUP: ApiGroup = ApiGroup {
    group: "external.metrics.k8s.io",
    version: "v1beta1",
    service: ("external-metrics", "adapter"),
};

/// By namespace and name.
type Values = Arc<Mutex<HashMap<(String, String), u32>>>;

/// Metrics that are served until this is dropped.
pub struct ExternalMetrics {
    extension: Extension,
    values: Values,
}

impl ExternalMetrics {
    /// Serves and registers the group, and waits until the autoscaler can read it. The client must
    /// be an administrator's; the runtime that this is called in serves.
    pub async fn start(client: Client) -> Result<Self> {
        let values = Values::default();
        let path = format!("{}/namespaces/{{namespace}}/{{metric}}", GROUP.path());
        let router = Router::new()
            .route(&path, get(read))
            .with_state(Arc::clone(&values));
        let extension = Extension::serve(client, GROUP, json!([]), router).await?;
        extension.available().await?;
        Ok(Self { extension, values })
    }

    /// Sets a namespace's metric.
    pub fn set(&self, namespace: &str, metric: &str, value: u32) {
        let key = (namespace.to_owned(), metric.to_owned());
        let mut values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        values.insert(key, value);
    }

    /// Waits until the API server forwards requests, after it was restarted.
    pub async fn available(&self) -> Result<()> {
        self.extension.available().await
    }
}

async fn read(
    State(values): State<Values>,
    Path((namespace, metric)): Path<(String, String)>,
) -> Response {
    let key = (namespace, metric);
    let values = values.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(value) = values.get(&key) {
        return answer(&list(&key.1, *value));
    }
    let message = format!("nobody has set the metric {} in {}", key.1, key.0);
    status(StatusCode::NOT_FOUND, "NotFound", &message)
}

fn list(metric: &str, value: u32) -> Value {
    json!({
        "kind": "ExternalMetricValueList",
        "apiVersion": "external.metrics.k8s.io/v1beta1",
        "metadata": {},
        "items": [{
            "metricName": metric,
            "metricLabels": {},
            "timestamp": vmpool::clock::now().to_string(),
            "value": value.to_string(),
        }],
    })
}
