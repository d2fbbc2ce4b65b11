//! How the TLS port speaks TLS: the one place that builds a `ServerConfig`. HTTP/2 and HTTP/1.1, since the API
//! server speaks HTTP/2 to a URL and HTTP/1.1 to a service. Clients are asked for a certificate and need none: see
//! [`super::client_certificates`].

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::client_certificates::AnyClientCertificate;

/// What serves this chain, the certificate itself first, with its key. An error if the two don't belong
/// together.
pub fn server_config(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<ServerConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let clients = AnyClientCertificate::new(&provider);
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(clients)
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}
