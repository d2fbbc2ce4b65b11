//! What a stranger sees of the program's ports: the certificate, the metrics; and somebody who goes on calling while
//! a test breaks things.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use kube::api::{DynamicObject, PostParams};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme};

use crate::objects::pool;
use crate::{Kind, Space};

/// Believes everything: it is there to look.
#[derive(Debug)]
struct Credulous(Arc<CryptoProvider>);

impl ServerCertVerifier for Credulous {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// The serving certificate that a new connection to a port of this machine finds.
pub(crate) fn served(port: u16) -> Result<CertificateDer<'static>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Credulous(provider)))
        .with_no_client_auth();
    let name = ServerName::try_from("localhost")?;
    let mut connection = ClientConnection::new(Arc::new(config), name)?;
    let mut socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    socket.set_read_timeout(Some(Duration::from_secs(20)))?;
    while connection.is_handshaking() {
        connection.complete_io(&mut socket)?;
    }
    let chain = connection.peer_certificates().context("no certificate")?;
    Ok(chain
        .first()
        .context("no certificate")?
        .clone()
        .into_owned())
}

/// The first certificate in a PEM text.
pub(crate) fn first_of(pem: &str) -> Result<CertificateDer<'static>> {
    CertificateDer::from_pem_slice(pem.as_bytes()).context("no certificate")
}

/// A metric without labels of a replica.
pub(crate) fn metric(health: SocketAddr, name: &str) -> Result<i64> {
    let mut socket = TcpStream::connect(health)?;
    socket.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    socket.read_to_string(&mut text)?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    Ok(line.with_context(|| format!("no metric {name}"))?.parse()?)
}

/// Creates pools, many a second, until it is told to stop.
pub(crate) struct Creator {
    stop: Arc<AtomicBool>,
    made: Arc<AtomicU32>,
    task: tokio::task::JoinHandle<Vec<String>>,
}

impl Creator {
    /// Dry runs, all of which a mutating and a validating webhook are asked about.
    pub(crate) fn start(ns: &Space<'_>, every: Duration) -> Result<Self> {
        let api = ns.api(Kind::Pool);
        let object: DynamicObject = serde_json::from_value(pool("new", "cfg").value().clone())?;
        Ok(Self::calling(every, move || {
            let (api, object) = (api.clone(), object.clone());
            async move {
                let dry_run = PostParams {
                    dry_run: true,
                    ..PostParams::default()
                };
                api.create(&dry_run, &object).await.map(drop)
            }
        }))
    }

    /// Reads of an API path, such as one of the aggregated API's.
    pub(crate) fn reading(ns: &Space<'_>, path: &str, every: Duration) -> Self {
        let (client, path) = (ns.client.clone(), path.to_owned());
        Self::calling(every, move || {
            let (client, path) = (client.clone(), path.clone());
            async move {
                let request = http::Request::get(path).body(Vec::new());
                let request = request.map_err(kube::Error::HttpError)?;
                client.request_text(request).await.map(drop)
            }
        })
    }

    fn calling<F>(every: Duration, call: impl Fn() -> F + Send + 'static) -> Self
    where
        F: Future<Output = Result<(), kube::Error>> + Send + 'static,
    {
        let (stop, made) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicU32::new(0)),
        );
        let (stopped, counted) = (Arc::clone(&stop), Arc::clone(&made));
        let task = tokio::spawn(async move {
            let mut under_way = tokio::task::JoinSet::new();
            let mut failures = Vec::new();
            let begun = Instant::now();
            let mut pace = tokio::time::interval(every);
            pace.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            while !stopped.load(Ordering::Relaxed) {
                pace.tick().await;
                let call = call();
                under_way.spawn(async move {
                    let made = call.await;
                    made.map_err(|error| format!("after {:?}: {error}", begun.elapsed()))
                });
                counted.fetch_add(1, Ordering::Relaxed);
                while let Some(ended) = under_way.try_join_next() {
                    failures.extend(ended.ok().and_then(Result::err));
                }
            }
            while let Some(ended) = under_way.join_next().await {
                failures.extend(ended.ok().and_then(Result::err));
            }
            failures
        });
        Self { stop, made, task }
    }

    /// How many it made, all of which succeeded.
    pub(crate) async fn stop(self) -> Result<u32> {
        self.stop.store(true, Ordering::Relaxed);
        let failures = self.task.await?;
        let made = self.made.load(Ordering::Relaxed);
        ensure!(
            failures.is_empty(),
            "{} of {made} calls failed: {:?}",
            failures.len(),
            failures
                .iter()
                .map(|text| text.chars().take(250).collect::<String>())
                .collect::<Vec<_>>()
        );
        Ok(made)
    }
}
