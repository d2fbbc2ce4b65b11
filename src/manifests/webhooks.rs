//! The two webhook configurations, from the hooks that `admission` serves. The same ones are installed in a
//! cluster, where the API server finds the program by its Service, and in development, where it is told a URL.
//!
//! `matchConditions` belong to the hooks: an expression that fails under `Fail` refuses every such object in
//! the cluster, so what is read must be asked for with `has()` first.

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhook, MutatingWebhookConfiguration, ServiceReference, ValidatingWebhook,
    ValidatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

use super::interim::admission::{self, Hook};
use super::program::SERVICE_PORT;
use super::rbac::cluster_metadata;
use super::{NAME, NAMESPACE};

/// Longer than any answer needs; a program that hangs must not hold up a user for the default of 10 s.
const TIMEOUT_SECONDS: i32 = 5;

/// How the API server reaches the webhooks.
#[derive(Clone, Debug)]
pub enum WebhookTarget {
    /// By a Service of the cluster.
    Service {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// Its port.
        port: u16,
    },
    /// By a URL without a slash at the end, such as `https://127.0.0.1:8443`.
    Url(String),
}

impl WebhookTarget {
    /// The Service of the manifests.
    pub fn service() -> Self {
        Self::Service {
            namespace: NAMESPACE.to_owned(),
            name: NAME.to_owned(),
            port: SERVICE_PORT,
        }
    }

    fn client_config(&self, path: &str, ca_bundle: Option<&[u8]>) -> WebhookClientConfig {
        let ca_bundle = ca_bundle.map(|pem| ByteString(pem.to_vec()));
        match self {
            Self::Service {
                namespace,
                name,
                port,
            } => WebhookClientConfig {
                ca_bundle,
                service: Some(ServiceReference {
                    namespace: namespace.clone(),
                    name: name.clone(),
                    path: Some(path.to_owned()),
                    port: Some(i32::from(*port)),
                }),
                url: None,
            },
            Self::Url(base) => WebhookClientConfig {
                ca_bundle,
                service: None,
                url: Some(format!("{base}{path}")),
            },
        }
    }
}

/// Both configurations. `ca_bundle` is PEM; without it the program puts its own CA there when it starts, or
/// whatever hands out certificates does.
pub fn webhook_configurations(
    target: &WebhookTarget,
    ca_bundle: Option<&[u8]>,
) -> (MutatingWebhookConfiguration, ValidatingWebhookConfiguration) {
    let (mutating, validating): (Vec<Hook>, Vec<Hook>) = admission::hooks()
        .into_iter()
        .partition(|hook| hook.mutating);
    (
        MutatingWebhookConfiguration {
            metadata: cluster_metadata(admission::MUTATING_CONFIGURATION),
            webhooks: Some(
                mutating
                    .into_iter()
                    .map(|hook| mutating_webhook(hook, target, ca_bundle))
                    .collect(),
            ),
        },
        ValidatingWebhookConfiguration {
            metadata: cluster_metadata(admission::VALIDATING_CONFIGURATION),
            webhooks: Some(
                validating
                    .into_iter()
                    .map(|hook| validating_webhook(hook, target, ca_bundle))
                    .collect(),
            ),
        },
    )
}

fn mutating_webhook(
    hook: Hook,
    target: &WebhookTarget,
    ca_bundle: Option<&[u8]>,
) -> MutatingWebhook {
    MutatingWebhook {
        admission_review_versions: vec!["v1".to_owned()],
        client_config: target.client_config(hook.path, ca_bundle),
        failure_policy: Some("Fail".to_owned()),
        match_conditions: Some(hook.match_conditions),
        match_policy: Some("Equivalent".to_owned()),
        name: hook.name.to_owned(),
        namespace_selector: Some(other_namespaces()),
        object_selector: None,
        // Others may change a VM after us; stamping again puts right what they broke, and is no change else.
        reinvocation_policy: Some("IfNeeded".to_owned()),
        rules: Some(hook.rules),
        side_effects: "None".to_owned(),
        timeout_seconds: Some(TIMEOUT_SECONDS),
    }
}

fn validating_webhook(
    hook: Hook,
    target: &WebhookTarget,
    ca_bundle: Option<&[u8]>,
) -> ValidatingWebhook {
    ValidatingWebhook {
        admission_review_versions: vec!["v1".to_owned()],
        client_config: target.client_config(hook.path, ca_bundle),
        failure_policy: Some("Fail".to_owned()),
        match_conditions: Some(hook.match_conditions),
        match_policy: Some("Equivalent".to_owned()),
        name: hook.name.to_owned(),
        namespace_selector: Some(other_namespaces()),
        object_selector: None,
        rules: Some(hook.rules),
        side_effects: "None".to_owned(),
        timeout_seconds: Some(TIMEOUT_SECONDS),
    }
}

/// Every namespace but the program's own: what it needs to start must not wait for it.
fn other_namespaces() -> LabelSelector {
    LabelSelector {
        match_expressions: Some(vec![LabelSelectorRequirement {
            key: "kubernetes.io/metadata.name".to_owned(),
            operator: "NotIn".to_owned(),
            values: Some(vec![NAMESPACE.to_owned()]),
        }]),
        ..LabelSelector::default()
    }
}
