//! A webhook that is played: TLS with an authority of its own, on a free port of this machine. What it answers is
//! its user's.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;

use anyhow::{Context, Result};
use axum::Router;
use axum_server::Handle;
use axum_server::tls_rustls::RustlsConfig;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::controlplane::pki::Authority;
use crate::proxy;

/// It serves until this is dropped.
pub struct WebhookServer {
    handle: Handle<SocketAddr>,
    task: JoinHandle<()>,
    address: SocketAddr,
    ca: String,
}

impl WebhookServer {
    /// Serves `router`, whatever the length of bodies; `name` is that of its authority.
    pub fn start(name: &str, router: Router) -> Result<Self> {
        let authority = Authority::new(name)?;
        let serving = authority.serving(&["127.0.0.1"])?;
        let mut tls = proxy::tls(&serving)?;
        tls.alpn_protocols.insert(0, b"h2".to_vec());
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("failed to listen")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let handle = Handle::new();
        let router = router.layer(axum::extract::DefaultBodyLimit::disable());
        let server =
            axum_server::from_tcp_rustls(listener, RustlsConfig::from_config(Arc::new(tls)))?
                .handle(handle.clone())
                .serve(router.into_make_service());
        let name = name.to_owned();
        let task = tokio::spawn(async move {
            if let Err(error) = server.await {
                tracing::error!(%error, name, "A played webhook failed");
            }
        });
        Ok(Self {
            handle,
            task,
            address,
            ca: authority.cert().to_owned(),
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `clientConfig` of a webhook that is served at this path.
    pub fn client_config(&self, path: &str) -> Value {
        let ca = k8s_openapi::ByteString(self.ca.as_bytes().to_vec());
        json!({"url": format!("https://{}{path}", self.address), "caBundle": ca})
    }
}

impl Drop for WebhookServer {
    fn drop(&mut self) {
        self.handle.shutdown();
        self.task.abort();
    }
}
