//! Certificates of the TLS port: a CA and a serving certificate made at start and kept in memory, and the CA
//! written into our webhook configurations, so that the API server trusts what it finds there.
//!
//! Each start makes new ones. That fits one replica; sharing them between replicas, renewing them in a
//! running program and taking them from elsewhere need a place to keep them. Until then a program whose
//! certificate is about to expire ends, and the next start makes another.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::jiff::Timestamp;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::ApiResource;
use kube::{Api, Client};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::gauge::ConstGauge;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, date_time_ymd,
};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::client_certificates::AnyClientCertificate;
use super::health::Check;
use crate::admission::hooks::{MUTATING_CONFIGURATION, VALIDATING_CONFIGURATION};
use crate::api::MANAGER;
use crate::clock;
use crate::rights::Right;

/// How long a certificate is valid: longer than a program runs between two upgrades of its cluster.
const LIFETIME: Duration = Duration::from_hours(365 * 24);
/// How long before its end a certificate is no longer fresh.
const MARGIN: Duration = Duration::from_hours(30 * 24);
/// How far back it is valid, for clients whose clocks are behind.
const CLOCK_SKEW: Duration = Duration::from_hours(1);
/// How often the webhook configurations are looked at once they carry our CA: somebody may replace them.
const LOOK_AGAIN: Duration = Duration::from_secs(30);
/// How often before: they may be installed after us, and nothing works until then.
const RETRY: Duration = Duration::from_secs(2);

/// A CA, and a serving certificate that it signed.
#[derive(Clone)]
pub struct Certificates {
    /// The CA, in PEM: what clients are to trust.
    pub ca_pem: String,
    /// What the TLS port serves with.
    pub server_config: Arc<ServerConfig>,
    /// When the serving certificate ends.
    pub expires_at: Timestamp,
}

/// Why there are no certificates.
#[derive(Debug, thiserror::Error)]
pub enum MakeCertificates {
    /// Making or signing one failed.
    #[error("failed to make a certificate")]
    Generate(#[from] rcgen::Error),
    /// TLS refuses them.
    #[error("failed to set up TLS")]
    Tls(#[from] rustls::Error),
}

/// What [`publish`] calls.
pub fn rules() -> Vec<Right> {
    let own = |resource: &str, name| {
        Right::to(
            "its CA goes into its own webhook configurations, and into no other",
            &["get", "patch"],
            "admissionregistration.k8s.io",
            &[resource],
        )
        .only(name)
    };
    vec![
        own("mutatingwebhookconfigurations", MUTATING_CONFIGURATION),
        own("validatingwebhookconfigurations", VALIDATING_CONFIGURATION),
    ]
}

impl Certificates {
    /// Makes new ones for a service of a namespace, and for this machine, which is where the API server
    /// finds the program in development.
    pub fn make(service: &str, namespace: &str, now: Timestamp) -> Result<Self, MakeCertificates> {
        let mut ca = CertificateParams::default();
        ca.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        ca.distinguished_name = rcgen::DistinguishedName::new();
        ca.distinguished_name
            .push(DnType::CommonName, format!("vmpool of {namespace}"));
        set_validity(&mut ca, now);
        let ca = CertifiedIssuer::self_signed(ca, KeyPair::generate()?)?;

        let mut serving = CertificateParams::new(vec![
            format!("{service}.{namespace}.svc"),
            "localhost".to_owned(),
            "127.0.0.1".to_owned(),
        ])?;
        serving.distinguished_name = rcgen::DistinguishedName::new();
        serving
            .distinguished_name
            .push(DnType::CommonName, "vmpool".to_owned());
        serving.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        serving.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        serving.use_authority_key_identifier_extension = true;
        set_validity(&mut serving, now);
        let key = KeyPair::generate()?;
        let certificate = serving.signed_by(&key, &ca)?;

        Ok(Self {
            ca_pem: ca.pem(),
            server_config: Arc::new(server_config(certificate.der().clone(), &key)?),
            expires_at: now + LIFETIME,
        })
    }

    /// Whether there is time enough left not to worry.
    pub fn is_fresh(&self, now: Timestamp) -> bool {
        now + MARGIN < self.expires_at
    }

    /// A metric with the seconds left.
    pub fn collector(&self) -> Box<dyn Collector> {
        Box::new(SecondsLeft(self.expires_at))
    }
}

fn set_validity(params: &mut CertificateParams, now: Timestamp) {
    let seconds = u64::try_from(now.as_second()).expect("the clock is not set before 1970");
    let now = date_time_ymd(1970, 1, 1) + Duration::from_secs(seconds);
    params.not_before = now - CLOCK_SKEW;
    params.not_after = now + LIFETIME;
}

fn server_config(
    certificate: CertificateDer<'static>,
    key: &KeyPair,
) -> Result<ServerConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let clients = AnyClientCertificate::new(&provider);
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(clients)
        .with_single_cert(vec![certificate], key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

#[derive(Debug)]
struct SecondsLeft(Timestamp);

impl Collector for SecondsLeft {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let gauge = ConstGauge::new(self.0.as_second() - clock::now().as_second());
        let encoder = encoder.encode_descriptor(
            "vmpool_certificate_seconds_left",
            "Seconds until the serving certificate expires",
            None,
            gauge.metric_type(),
        )?;
        gauge.encode(encoder)
    }
}

/// Keeps `ca_pem` in our webhook configurations until `shutdown`, and says in `check` whether it is there.
pub async fn publish(client: Client, ca_pem: &str, check: Check, shutdown: CancellationToken) {
    let ca = ByteString(ca_pem.as_bytes().to_vec());
    let ca = serde_json::to_value(ca).expect("a byte string is a JSON string");
    loop {
        let pause = match publish_once(&client, &ca).await {
            Ok(()) => {
                check.pass();
                LOOK_AGAIN
            }
            Err(PublishCa {
                configuration,
                source,
            }) => {
                let reason = format!("{configuration}: {source}");
                if check.fail(reason) {
                    tracing::warn!(
                        configuration,
                        error = %source,
                        "Could not write the CA into a webhook configuration; trying on"
                    );
                }
                RETRY
            }
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = shutdown.cancelled() => return,
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("failed to write the CA into {configuration}")]
struct PublishCa {
    configuration: &'static str,
    source: kube::Error,
}

async fn publish_once(client: &Client, ca: &Value) -> Result<(), PublishCa> {
    for (resource, configuration) in [
        (
            ApiResource::erase::<MutatingWebhookConfiguration>(&()),
            MUTATING_CONFIGURATION,
        ),
        (
            ApiResource::erase::<ValidatingWebhookConfiguration>(&()),
            VALIDATING_CONFIGURATION,
        ),
    ] {
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        let failed = |source| PublishCa {
            configuration,
            source,
        };
        let stored = api.get(configuration).await.map_err(failed)?;
        let Some(patch) = ca_patch(&stored.data, ca) else {
            continue;
        };
        let parameters = PatchParams {
            field_manager: Some(MANAGER.to_owned()),
            ..PatchParams::default()
        };
        api.patch(configuration, &parameters, &Patch::<()>::Json(patch))
            .await
            .map_err(failed)?;
        tracing::info!(configuration, "Wrote the CA into a webhook configuration");
    }
    Ok(())
}

/// What puts the CA into every webhook of a configuration, by position and name, since a position alone says
/// nothing about what stands there when the patch arrives. `None` if it is there.
fn ca_patch(configuration: &Value, ca: &Value) -> Option<json_patch::Patch> {
    let webhooks = configuration.get("webhooks")?.as_array()?;
    let mut operations = Vec::new();
    for (index, webhook) in webhooks.iter().enumerate() {
        if webhook.pointer("/clientConfig/caBundle") == Some(ca) {
            continue;
        }
        let at = format!("/webhooks/{index}");
        operations
            .push(json!({"op": "test", "path": format!("{at}/name"), "value": webhook["name"]}));
        operations
            .push(json!({"op": "add", "path": format!("{at}/clientConfig/caBundle"), "value": ca}));
    }
    if operations.is_empty() {
        return None;
    }
    let patch = serde_json::from_value(Value::Array(operations));
    Some(patch.expect("each operation above is one of JSON patch"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_webhooks_without_our_ca_are_written_to() {
        let ca = json!("b3Vycw==");
        let configuration = json!({"webhooks": [
            {"name": "a", "clientConfig": {"service": {"name": "vmpool"}}},
            {"name": "b", "clientConfig": {"caBundle": "b3Vycw=="}},
            {"name": "c", "clientConfig": {"caBundle": "b2xk"}},
        ]});
        let patch = ca_patch(&configuration, &ca).unwrap();
        let mut patched = configuration.clone();
        json_patch::patch(&mut patched, &patch).unwrap();
        for webhook in patched["webhooks"].as_array().unwrap() {
            assert_eq!(webhook["clientConfig"]["caBundle"], ca);
        }
        assert_eq!(
            patched["webhooks"][0]["clientConfig"]["service"]["name"],
            "vmpool"
        );
        assert_eq!(ca_patch(&patched, &ca), None, "at rest nothing is written");
        assert_eq!(ca_patch(&json!({}), &ca), None);

        let mut reordered = json!({"webhooks": [
            {"name": "z", "clientConfig": {}},
            {"name": "b", "clientConfig": {}},
            {"name": "c", "clientConfig": {}},
        ]});
        assert!(json_patch::patch(&mut reordered, &patch).is_err());
    }

    #[test]
    fn a_certificate_is_fresh_until_a_month_before_its_end() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let certificates = Certificates::make("vmpool", "vmpool-system", now).unwrap();
        assert!(certificates.is_fresh(now));
        assert!(certificates.is_fresh(now + Duration::from_hours(334 * 24)));
        assert!(!certificates.is_fresh(now + Duration::from_hours(336 * 24)));
    }
}
