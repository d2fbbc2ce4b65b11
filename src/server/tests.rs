//! The ports with real sockets and real clients.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use axum::routing::get;
use axum::{Extension, Router};
use axum_server::tls::TlsInfo;
use prometheus_client::registry::Registry;
use rustls::client::ResolvesClientCert;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, ClientConnection, RootCertStore, SignatureScheme, StreamOwned};
use std::io::{Read as _, Write as _};
use tokio_util::sync::CancellationToken;

use super::certificates::Served;
use super::certificates::tests::{Made, made};
use super::listen::tls;
use super::{Health, health, plain};

/// A listener on a free port of this machine.
fn listener() -> (TcpListener, u16) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

/// Connects to `port` as to `name`, offers `protocol`, and says which one was agreed on.
fn handshake(
    port: u16,
    name: &str,
    ca_pem: &str,
    protocol: &str,
) -> Result<StreamOwned<ClientConnection, std::net::TcpStream>, Box<dyn std::error::Error>> {
    handshake_as(None, port, name, ca_pem, protocol)
}

/// The same, showing a certificate if asked for one.
fn handshake_as(
    certified: Option<Arc<CertifiedKey>>,
    port: u16,
    name: &str,
    ca_pem: &str,
    protocol: &str,
) -> Result<StreamOwned<ClientConnection, std::net::TcpStream>, Box<dyn std::error::Error>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ca_pem.as_bytes())?)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_client_cert_resolver(Arc::new(Shown(certified)));
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    let name = ServerName::try_from(name.to_owned())?;
    let mut connection = ClientConnection::new(Arc::new(config), name)?;
    let mut socket = std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    socket.set_read_timeout(Some(Duration::from_secs(20)))?;
    while connection.is_handshaking() {
        connection.complete_io(&mut socket)?;
    }
    assert_eq!(connection.alpn_protocol(), Some(protocol.as_bytes()));
    Ok(StreamOwned::new(connection, socket))
}

/// Shows a certificate with whatever key, also one that is not its own.
#[derive(Debug)]
struct Shown(Option<Arc<CertifiedKey>>);

impl ResolvesClientCert for Shown {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.0.clone()
    }

    fn has_certs(&self) -> bool {
        self.0.is_some()
    }
}

fn get_root(
    mut stream: StreamOwned<ClientConnection, std::net::TcpStream>,
) -> std::io::Result<String> {
    stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_tls_port_is_trusted_under_all_its_names_and_ends_after_requests_under_way() {
    let (certificates, stranger) = (made(), made());
    let served = Served::default();
    certificates.serve(&served);
    let (begun, begins) = std::sync::mpsc::channel();
    let slow = get(move || async move {
        begun.send(()).unwrap();
        tokio::time::sleep(Duration::from_millis(300)).await;
        "hello"
    });
    let (listener, port) = listener();
    let shutdown = CancellationToken::new();
    let config = served.config(&shutdown).await.unwrap();
    let router = Router::new().route("/", slow);
    let server = tokio::spawn(tls(listener, config, router, shutdown.clone()));
    let ca = certificates.ca_pem.clone();
    tokio::task::spawn_blocking(move || {
        for name in ["vmpool.vmpool-system.svc", "localhost", "127.0.0.1"] {
            for protocol in ["http/1.1", "h2"] {
                handshake(port, name, &ca, protocol).unwrap();
            }
        }
        assert!(handshake(port, "vmpool.default.svc", &ca, "h2").is_err());
        assert!(handshake(port, "localhost", &stranger.ca_pem, "h2").is_err());

        let stream = handshake(port, "localhost", &ca, "http/1.1").unwrap();
        let request = std::thread::spawn(move || get_root(stream).unwrap());
        begins.recv_timeout(Duration::from_secs(20)).unwrap();
        shutdown.cancel();
        let answer = request.join().unwrap();
        assert!(answer.ends_with("hello"), "{answer}");
    })
    .await
    .unwrap();
    server.await.unwrap().unwrap();
    assert!(TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_certificate_is_let_in_only_with_its_key() {
    let certificates = made();
    let served = Served::default();
    certificates.serve(&served);
    let shown = get(|Extension(info): Extension<Arc<TlsInfo>>| async move {
        info.peer_certificates.len().to_string()
    });
    let (listener, port) = listener();
    let shutdown = CancellationToken::new();
    let config = served.config(&shutdown).await.unwrap();
    let router = Router::new().route("/", shown);
    let server = tokio::spawn(tls(listener, config, router, shutdown.clone()));
    let ca = certificates.ca_pem.clone();
    tokio::task::spawn_blocking(move || {
        let made = rcgen::generate_simple_self_signed(["whoever".to_owned()]).unwrap();
        let another = rcgen::KeyPair::generate().unwrap();
        let certified = |key: &rcgen::KeyPair| {
            let key = PrivatePkcs8KeyDer::from(key.serialize_der());
            let key = rustls::crypto::ring::sign::any_ecdsa_type(&key.into()).unwrap();
            Arc::new(CertifiedKey::new(vec![made.cert.der().clone()], key))
        };
        let show = |key: Option<&rcgen::KeyPair>| {
            let certified = key.map(certified);
            let stream = handshake_as(certified, port, "localhost", &ca, "http/1.1");
            // A client of TLS 1.3 learns with the first answer that its proof was refused.
            get_root(stream.unwrap())
        };
        assert!(show(None).unwrap().ends_with("\r\n\r\n0"));
        assert!(
            show(Some(&made.signing_key))
                .unwrap()
                .ends_with("\r\n\r\n1")
        );
        show(Some(&another)).unwrap_err();
    })
    .await
    .unwrap();
    shutdown.cancel();
    server.await.unwrap().unwrap();
}

fn get_plain(port: u16, path: &str) -> String {
    let mut socket = std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    socket.read_to_string(&mut text).unwrap();
    text
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_plain_port_tells_health_and_metrics() {
    let health = Health::new();
    let caches = health.check("caches");
    let task = health.task("controller", None);
    let served = Served::default();
    let mut registry = Registry::default();
    served.register(&mut registry);
    made().serve(&served);
    let (listener, port) = listener();
    let shutdown = CancellationToken::new();
    let router = health::router(health, Arc::new(registry));
    let server = tokio::spawn(plain(listener, router, shutdown.clone()));
    tokio::task::spawn_blocking(move || {
        let readiness = get_plain(port, "/readyz");
        assert!(readiness.starts_with("HTTP/1.1 503"), "{readiness}");
        assert!(readiness.ends_with("[-] caches: not yet\n"), "{readiness}");
        caches.pass();
        assert!(get_plain(port, "/readyz").starts_with("HTTP/1.1 200"));
        assert!(get_plain(port, "/livez").starts_with("HTTP/1.1 200"));
        drop(task);
        let liveness = get_plain(port, "/livez");
        assert!(liveness.ends_with("[-] controller: ended\n"), "{liveness}");
        let metrics = get_plain(port, "/metrics");
        let life = Made::LIFETIME.as_secs();
        let left = (life - 60..=life).any(|seconds| {
            metrics.contains(&format!("vmpool_certificate_seconds_left {seconds}\n"))
        });
        assert!(left, "{metrics}");
    })
    .await
    .unwrap();
    shutdown.cancel();
    server.await.unwrap().unwrap();
}

/// AG-09: who is connected stays so, and who connects finds the new certificate.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ag_09_new_handshakes_get_the_new_certificate_and_open_connections_go_on() {
    let (before, after) = (made(), made());
    let served = Served::default();
    before.serve(&served);
    let (listener, port) = listener();
    let shutdown = CancellationToken::new();
    let config = served.config(&shutdown).await.unwrap();
    let router = Router::new().route("/", get(|| async { "hello" }));
    let server = tokio::spawn(tls(listener, config, router, shutdown.clone()));
    tokio::task::spawn_blocking(move || {
        let open = handshake(port, "localhost", &before.ca_pem, "http/1.1").unwrap();
        assert!(handshake(port, "localhost", &after.ca_pem, "h2").is_err());
        after.serve(&served);
        handshake(port, "localhost", &after.ca_pem, "h2").unwrap();
        assert!(handshake(port, "localhost", &before.ca_pem, "h2").is_err());
        let answer = get_root(open).unwrap();
        assert!(answer.ends_with("hello"), "{answer}");
    })
    .await
    .unwrap();
    shutdown.cancel();
    server.await.unwrap().unwrap();
}
