//! The client of whoever leads: once the lead is lost, no byte leaves it.
//!
//! Asking before each call is not enough. A call may wait for its connection, and a process may be stopped in that
//! very moment and go on a minute later, when somebody else leads. So it is asked again where bytes go to the socket,
//! below TLS. What was written before was on its way while the lead was ours.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ClientBuilder, ConfigExt as _};
use kube::{Client, Config};
use tower::{BoxError, Service, ServiceBuilder};

use super::Leadership;

/// A client that writes only while `leadership` is held. It repeats nothing by itself, and uses no proxy.
pub fn client(config: &Config, leadership: Leadership) -> kube::Result<Client> {
    let mut inner = HttpConnector::new();
    // TLS is put on top of it.
    inner.enforce_http(false);
    let connector = Fenced { inner, leadership };
    let connector = config.rustls_https_connector_with_connector(connector)?;
    let client = hyper_util::client::legacy::Client::builder(TokioExecutor::new())
        .build::<_, Body>(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(client);
    Ok(ClientBuilder::new(service, config.default_namespace.clone()).build())
}

/// What makes connections, or one of them.
#[derive(Clone)]
struct Fenced<T> {
    inner: T,
    leadership: Leadership,
}

impl Service<Uri> for Fenced<HttpConnector> {
    type Response = Fenced<<HttpConnector as Service<Uri>>::Response>;
    type Error = <HttpConnector as Service<Uri>>::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let leadership = self.leadership.clone();
        let connected = self.inner.call(uri);
        let fenced = connected.map(|inner| inner.map(|inner| Fenced { inner, leadership }));
        fenced.boxed()
    }
}

impl<T: Connection> Connection for Fenced<T> {
    fn connected(&self) -> Connected {
        self.inner.connected()
    }
}

impl<T: Read + Unpin> Read for Fenced<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(context, buffer)
    }
}

impl<T> Fenced<T> {
    fn may_write(&self) -> io::Result<()> {
        match self.leadership.is_held() {
            true => Ok(()),
            false => Err(io::Error::other("this replica does not lead any more")),
        }
    }
}

impl<T: Write + Unpin> Write for Fenced<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.may_write()?;
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.may_write()?;
        Pin::new(&mut self.inner).poll_write_vectored(context, buffers)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// Answers each connection once; says how many bytes came.
    async fn server() -> (Config, tokio::sync::mpsc::UnboundedReceiver<usize>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (came, comes) = tokio::sync::mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                let mut bytes = [0; 1024];
                let count = socket.read(&mut bytes).await.unwrap_or(0);
                let _ = came.send(count);
                let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
                let _ = socket.write_all(answer).await;
            }
        });
        let uri = format!("http://127.0.0.1:{port}").parse().unwrap();
        (Config::new(uri), comes)
    }

    fn request() -> http::Request<Vec<u8>> {
        http::Request::post("/x").body(b"{}".to_vec()).unwrap()
    }

    #[tokio::test]
    async fn cc_04_a_call_that_was_waiting_for_its_connection_leaves_no_byte_behind() {
        let (config, mut comes) = server().await;
        let leads = client(&config, Leadership::forever()).unwrap();
        leads.request::<serde_json::Value>(request()).await.unwrap();
        assert!(comes.recv().await.unwrap() > 0, "the server counts nothing");

        let lost = client(&config, Leadership::until(Duration::ZERO)).unwrap();
        lost.request::<serde_json::Value>(request())
            .await
            .unwrap_err();
        drop(lost);
        assert_eq!(comes.recv().await, Some(0));
    }
}
