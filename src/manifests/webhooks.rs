//! The two webhook configurations, from the hooks that `admission` serves. The same ones are installed in a
//! cluster, where the API server finds the program by its Service, and in development, where it is told a URL.
//!
//! `matchConditions` belong to the hooks: an expression that fails under `Fail` refuses every such object in
//! the cluster, so what is read must be asked for with `has()` first.

use super::program::SERVICE_PORT;
use super::rbac::cluster_metadata;
use super::{File, NAME, NAMESPACE, yaml};
use crate::admission::hooks::{
    self, HookKind, HookSpec, MUTATING_CONFIGURATION, VALIDATING_CONFIGURATION,
};
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhook, MutatingWebhookConfiguration, ServiceReference, ValidatingWebhook,
    ValidatingWebhookConfiguration, WebhookClientConfig,
};

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

/// The file with both, as a cluster has them.
pub(super) fn files() -> Vec<File> {
    let (mutating, validating) = webhook_configurations(&WebhookTarget::service(), None);
    let text = yaml::file([yaml::document(&mutating), yaml::document(&validating)]);
    vec![("webhooks.yaml".to_owned(), text)]
}

/// Both configurations. `ca_bundle` is PEM; without it the program puts its own CA there when it starts, or
/// whatever hands out certificates does.
pub fn webhook_configurations(
    target: &WebhookTarget,
    ca_bundle: Option<&[u8]>,
) -> (MutatingWebhookConfiguration, ValidatingWebhookConfiguration) {
    let (mutating, validating): (Vec<HookSpec>, Vec<HookSpec>) = hooks::hooks()
        .into_iter()
        .partition(|hook| hook.kind == HookKind::Mutating);
    (
        MutatingWebhookConfiguration {
            metadata: cluster_metadata(MUTATING_CONFIGURATION),
            webhooks: Some(
                mutating
                    .into_iter()
                    .map(|hook| mutating_webhook(hook, target, ca_bundle))
                    .collect(),
            ),
        },
        ValidatingWebhookConfiguration {
            metadata: cluster_metadata(VALIDATING_CONFIGURATION),
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
    hook: HookSpec,
    target: &WebhookTarget,
    ca_bundle: Option<&[u8]>,
) -> MutatingWebhook {
    MutatingWebhook {
        admission_review_versions: hooks::REVIEW_VERSIONS.map(str::to_owned).into(),
        client_config: target.client_config(hook.path, ca_bundle),
        failure_policy: Some(hook.failure_policy.to_owned()),
        match_conditions: Some(hook.match_conditions),
        match_policy: Some(hook.match_policy.to_owned()),
        name: hook.name.to_owned(),
        namespace_selector: Some(hooks::namespace_selector(NAMESPACE)),
        object_selector: None,
        // Others may change a VM after us; stamping again puts right what they broke, and is no change else.
        reinvocation_policy: Some("IfNeeded".to_owned()),
        rules: Some(hook.rules),
        side_effects: hook.side_effects.to_owned(),
        timeout_seconds: Some(hook.timeout_seconds),
    }
}

fn validating_webhook(
    hook: HookSpec,
    target: &WebhookTarget,
    ca_bundle: Option<&[u8]>,
) -> ValidatingWebhook {
    ValidatingWebhook {
        admission_review_versions: hooks::REVIEW_VERSIONS.map(str::to_owned).into(),
        client_config: target.client_config(hook.path, ca_bundle),
        failure_policy: Some(hook.failure_policy.to_owned()),
        match_conditions: Some(hook.match_conditions),
        match_policy: Some(hook.match_policy.to_owned()),
        name: hook.name.to_owned(),
        namespace_selector: Some(hooks::namespace_selector(NAMESPACE)),
        object_selector: None,
        rules: Some(hook.rules),
        side_effects: hook.side_effects.to_owned(),
        timeout_seconds: Some(hook.timeout_seconds),
    }
}
