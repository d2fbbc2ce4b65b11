//! Who has to trust our CA: the API server, by the `caBundle` of both webhook configurations and of the
//! `APIService`. Reading what they trust, and patching that in if it is something else; nothing is written at
//! rest.
//!
//! A replica that has not seen the Secret's newest content must not undo what one that has wrote. So consumers
//! are read before the Secret is, and a patch says which version of its object it was made for.

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::ApiResource;
use kube::{Client, ResourceExt as _};
use rustls::pki_types::CertificateDer;
use serde_json::{Value, json};

use super::keys::{certificates_in, pem_of, valid_authorities};
use crate::admission::hooks::{MUTATING_CONFIGURATION, VALIDATING_CONFIGURATION};
use crate::api::{API_SERVICE, MANAGER};
use crate::rights::Right;

/// A kind of object with one or more `caBundle`s.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Consumer {
    ApiService,
    Mutating,
    Validating,
}

const ALL: [Consumer; 3] = [
    Consumer::Mutating,
    Consumer::Validating,
    Consumer::ApiService,
];

impl Consumer {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::ApiService => API_SERVICE,
            Self::Mutating => MUTATING_CONFIGURATION,
            Self::Validating => VALIDATING_CONFIGURATION,
        }
    }

    /// Whether there is anything to serve without it.
    fn is_needed(self) -> bool {
        self != Self::ApiService
    }

    fn api(self, client: &Client) -> Api<DynamicObject> {
        let resource = match self {
            Self::ApiService => ApiResource::erase::<APIService>(&()),
            Self::Mutating => ApiResource::erase::<MutatingWebhookConfiguration>(&()),
            Self::Validating => ApiResource::erase::<ValidatingWebhookConfiguration>(&()),
        };
        Api::all_with(client.clone(), &resource)
    }
}

/// What [`Found`] calls.
pub(super) fn rules() -> Vec<Right> {
    let own = |group, resource: &str, consumer: Consumer| {
        Right::to(
            "its CA goes into its own webhook configurations and APIService, and into no other",
            &["get", "patch"],
            group,
            &[resource],
        )
        .only(consumer.name())
    };
    let webhooks = "admissionregistration.k8s.io";
    vec![
        own(
            webhooks,
            "mutatingwebhookconfigurations",
            Consumer::Mutating,
        ),
        own(
            webhooks,
            "validatingwebhookconfigurations",
            Consumer::Validating,
        ),
        own(
            "apiregistration.k8s.io",
            "apiservices",
            Consumer::ApiService,
        ),
    ]
}

/// A call about a consumer failed.
#[derive(Debug, thiserror::Error)]
#[error("failed to look after the CA in {consumer}: {source}")]
pub(super) struct ReachConsumer {
    pub(super) consumer: &'static str,
    source: kube::Error,
}

/// What clients are to trust.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Trust {
    /// These CAs, as PEM, and no others.
    Exactly(String),
    /// These CAs, and those others that are still valid: whoever hands them out may have reached another replica
    /// with newer ones.
    AtLeast(String),
}

impl Trust {
    fn pem(&self) -> &str {
        match self {
            Self::AtLeast(pem) | Self::Exactly(pem) => pem,
        }
    }

    /// What is to be there instead of `found`; `None` if that is right.
    fn instead_of(&self, found: &[u8], now: k8s_openapi::jiff::Timestamp) -> Option<String> {
        match self {
            Self::Exactly(pem) => (pem.as_bytes() != found).then(|| pem.clone()),
            Self::AtLeast(pem) => {
                let there = certificates_in(found);
                let wanted = certificates_in(pem.as_bytes());
                if !wanted.is_empty() && wanted.iter().all(|one| there.contains(one)) {
                    return None;
                }
                let mut all: Vec<String> = wanted.iter().map(pem_of).collect();
                for one in valid_authorities(found, now) {
                    if !all.contains(&one) {
                        all.push(one);
                    }
                }
                Some(all.concat())
            }
        }
    }

    /// The CAs themselves.
    pub(super) fn authorities(&self) -> Vec<CertificateDer<'static>> {
        certificates_in(self.pem().as_bytes())
    }
}

/// The consumers that there are, as they were found.
pub(super) struct Found {
    client: Client,
    objects: Vec<(Consumer, DynamicObject)>,
    /// Those that there are not.
    pub(super) missing: Vec<&'static str>,
    /// The same of those without which nothing works.
    pub(super) missing_needed: Vec<&'static str>,
}

impl Found {
    pub(super) async fn read(client: &Client) -> Result<Self, ReachConsumer> {
        let mut found = Self {
            client: client.clone(),
            objects: Vec::new(),
            missing: Vec::new(),
            missing_needed: Vec::new(),
        };
        for consumer in ALL {
            let object = consumer.api(client).get_opt(consumer.name()).await;
            let object = object.map_err(|source| ReachConsumer {
                consumer: consumer.name(),
                source,
            })?;
            if let Some(object) = object {
                found.objects.push((consumer, object));
                continue;
            }
            found.missing.push(consumer.name());
            if consumer.is_needed() {
                found.missing_needed.push(consumer.name());
            }
        }
        Ok(found)
    }

    fn bundles(&self) -> impl Iterator<Item = Vec<u8>> {
        self.objects
            .iter()
            .flat_map(|(consumer, object)| places(*consumer, &object.data))
            .map(|place| bytes_of(&place.found))
    }

    /// All CAs that anybody trusts.
    pub(super) fn trusted(&self) -> Vec<String> {
        let bundles: Vec<_> = self.bundles().collect();
        let all = bundles.iter().flat_map(|bundle| certificates_in(bundle));
        let mut all: Vec<String> = all.map(|der| pem_of(&der)).collect();
        all.dedup();
        all
    }

    /// Whether everybody trusts one of these CAs.
    pub(super) fn all_trust(&self, authorities: &[CertificateDer<'static>]) -> bool {
        self.bundles().all(|bundle| {
            certificates_in(&bundle)
                .iter()
                .any(|one| authorities.contains(one))
        })
    }

    /// Writes where something else is; says where.
    pub(super) async fn publish(
        &self,
        trust: &Trust,
        now: k8s_openapi::jiff::Timestamp,
    ) -> Result<Vec<&'static str>, ReachConsumer> {
        let mut written = Vec::new();
        for (consumer, object) in &self.objects {
            let Some(patch) = patch(*consumer, object, trust, now) else {
                continue;
            };
            let parameters = PatchParams {
                field_manager: Some(MANAGER.to_owned()),
                ..PatchParams::default()
            };
            consumer
                .api(&self.client)
                .patch(consumer.name(), &parameters, &Patch::<()>::Json(patch))
                .await
                .map_err(|source| ReachConsumer {
                    consumer: consumer.name(),
                    source,
                })?;
            written.push(consumer.name());
        }
        Ok(written)
    }
}

/// One `caBundle` of an object.
struct Place {
    path: String,
    found: Value,
}

fn places(consumer: Consumer, data: &Value) -> Vec<Place> {
    let place = |parent: String| Place {
        found: data
            .pointer(&format!("{parent}/caBundle"))
            .cloned()
            .unwrap_or_default(),
        path: format!("{parent}/caBundle"),
    };
    match consumer {
        Consumer::ApiService => vec![place("/spec".to_owned())],
        Consumer::Mutating | Consumer::Validating => {
            let webhooks = data.get("webhooks").and_then(Value::as_array);
            (0..webhooks.map_or(0, Vec::len))
                .map(|index| place(format!("/webhooks/{index}/clientConfig")))
                .collect()
        }
    }
}

fn bytes_of(base64: &Value) -> Vec<u8> {
    serde_json::from_value::<ByteString>(base64.clone()).map_or_else(|_| Vec::new(), |it| it.0)
}

/// What puts the CAs into every place of an object, if it is still that version. `None` if they are there.
fn patch(
    consumer: Consumer,
    object: &DynamicObject,
    trust: &Trust,
    now: k8s_openapi::jiff::Timestamp,
) -> Option<json_patch::Patch> {
    let mut operations = Vec::new();
    for place in places(consumer, &object.data) {
        if let Some(pem) = trust.instead_of(&bytes_of(&place.found), now) {
            let bundle = ByteString(pem.into_bytes());
            operations.push(json!({"op": "add", "path": place.path, "value": bundle}));
        }
    }
    if operations.is_empty() {
        return None;
    }
    let version = json!({
        "op": "test",
        "path": "/metadata/resourceVersion",
        "value": object.resource_version(),
    });
    operations.insert(0, version);
    let patch = serde_json::from_value(Value::Array(operations));
    Some(patch.expect("each operation above is one of JSON patch"))
}

#[cfg(test)]
#[path = "consumers_tests.rs"]
mod tests;
