//! Takes requests, does to them what the rules say, and forwards the rest. It decides nothing.

use std::future::Future;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use anyhow::{Context, Result};
use axum::body::{Body, HttpBody};
use axum_server::tls_rustls::RustlsConfig;
use http::{HeaderMap, HeaderName, Request, Response, header};
use http_body_util::BodyExt;
use kube::client::Body as KubeBody;
use kube::{Client, Config};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::rule::Action;
use super::{Chosen, Lost, Shared, stream};
use crate::controlplane::pki::Pair;

/// Of one connection, not of a request; the length is set anew with the body.
const NOT_FORWARDED: [HeaderName; 5] = [
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::HOST,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// TLS with this certificate, for HTTP/1.1.
pub(crate) fn tls(serving: &Pair) -> Result<ServerConfig> {
    let certificates = CertificateDer::pem_slice_iter(serving.cert.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .context("failed to read the serving certificate")?;
    let key = PrivateKeyDer::from_pem_slice(serving.key.as_bytes())
        .context("failed to read the serving key")?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .context("failed to choose TLS versions")?
        .with_no_client_auth()
        .with_single_cert(certificates, key)
        .context("failed to use the serving certificate")?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// Must be called inside the proxy's runtime.
pub(super) fn server(
    listener: TcpListener,
    tls: ServerConfig,
    upstream: Config,
    shared: Arc<Shared>,
) -> Result<impl Future<Output = std::io::Result<()>>> {
    let client = Client::try_from(upstream).context("failed to make the upstream client")?;
    let server = axum_server::from_tcp_rustls(listener, RustlsConfig::from_config(Arc::new(tls)))
        .context("failed to listen")?
        .http1_only();
    let proxy = tower::service_fn(move |request: Request<_>| {
        handle(Arc::clone(&shared), client.clone(), request)
    });
    let service = tower::service_fn(move |_: SocketAddr| {
        let proxy = proxy.clone();
        async move { Ok::<_, std::convert::Infallible>(proxy) }
    });
    Ok(server.serve(service))
}

/// An error closes the connection without an answer.
async fn handle<B: HttpBody>(
    shared: Arc<Shared>,
    client: Client,
    request: Request<B>,
) -> Result<Response<Body>, Lost> {
    let (parts, body) = request.into_parts();
    let (number, mut chosen) = shared.receive(&parts);
    // The whole body first, so that the API server never sees half a request that is given up.
    let body = body.collect().await.map_err(|_| Lost)?.to_bytes();
    for chosen in &mut chosen {
        match &chosen.action {
            Action::Answer(answer) => {
                let response = answer.response();
                shared.answered(number, response.status().as_u16());
                return Ok(response);
            }
            Action::DelayRequest(time) => tokio::time::sleep(*time).await,
            Action::DropRequest => return Err(Lost),
            Action::HoldRequest => chosen.released().await,
            _ => {}
        }
    }
    let mut request = Request::new(KubeBody::from(body));
    *request.method_mut() = parts.method;
    *request.uri_mut() = parts.uri;
    *request.headers_mut() = forwarded(parts.headers);
    let response = client.send(request).await.map_err(|error| {
        tracing::debug!(%error, "Failed to forward a request");
        Lost
    })?;
    answer(&shared, number, chosen, response).await
}

async fn answer(
    shared: &Shared,
    number: usize,
    mut chosen: Vec<Chosen>,
    response: Response<KubeBody>,
) -> Result<Response<Body>, Lost> {
    for chosen in &mut chosen {
        match chosen.action {
            Action::HoldAnswer => chosen.released().await,
            Action::LoseAnswer => return Err(Lost),
            _ => {}
        }
    }
    let (mut parts, body) = response.into_parts();
    shared.answered(number, parts.status.as_u16());
    let is_watched = chosen.iter().any(|chosen| chosen.action.is_for_watches());
    let body = if is_watched && parts.status.is_success() {
        parts.headers = forwarded(parts.headers);
        Body::from_stream(stream::events(body, chosen))
    } else {
        Body::new(body)
    };
    Ok(Response::from_parts(parts, body))
}

fn forwarded(mut headers: HeaderMap) -> HeaderMap {
    for name in NOT_FORWARDED {
        headers.remove(name);
    }
    headers
}
