//! The two ports: TLS, and plain HTTP. Both stop on a signal and let requests that are under way finish.
//!
//! A client certificate is asked for and not needed (see [`super::client_certificates`]): the API server
//! presents none to webhooks, and what a webhook answers is no secret.

use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use axum::Router;
use axum_server::Handle;
use axum_server::tls_rustls::RustlsConfig;
use tokio_util::sync::CancellationToken;

/// How long requests may go on after the signal: the API server gives up on a webhook after five seconds.
const GRACE: Duration = Duration::from_secs(8);
/// How long a client may take to send its first request.
const FIRST_REQUEST: Duration = Duration::from_secs(10);

/// Serves `router` with TLS on `listener` until `shutdown`. `config` may be changed at any time.
pub async fn tls(
    listener: TcpListener,
    config: RustlsConfig,
    router: Router,
    shutdown: CancellationToken,
) -> io::Result<()> {
    let handle = Handle::new();
    let server = axum_server::from_tcp_rustls(listener, config)?
        .handle(handle.clone())
        .first_request_timeout(FIRST_REQUEST)
        .serve(router.into_make_service());
    until(shutdown, handle, server).await
}

/// Serves `router` without TLS on `listener` until `shutdown`.
pub async fn plain(
    listener: TcpListener,
    router: Router,
    shutdown: CancellationToken,
) -> io::Result<()> {
    let handle = Handle::new();
    let server = axum_server::from_tcp(listener)?
        .handle(handle.clone())
        .first_request_timeout(FIRST_REQUEST)
        .serve(router.into_make_service());
    until(shutdown, handle, server).await
}

async fn until(
    shutdown: CancellationToken,
    handle: Handle<SocketAddr>,
    server: impl Future<Output = io::Result<()>>,
) -> io::Result<()> {
    let mut server = std::pin::pin!(server);
    tokio::select! {
        result = &mut server => return result,
        () = shutdown.cancelled() => handle.graceful_shutdown(Some(GRACE)),
    }
    server.await
}
