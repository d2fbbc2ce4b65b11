//! One HTTP GET as a kubelet's probe does it: any certificate will do, any answer from 200 to 399
//! is a success.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use http::{Request, Uri};
use kube::{Client, Config};

/// Asks one URL again and again, over the same connection where there is one.
#[derive(Clone)]
pub struct Probe {
    client: Client,
    path: String,
    timeout: Duration,
}

impl Probe {
    /// For `http://127.0.0.1:8080/readyz` and the like, `https` too.
    pub fn new(url: &str, timeout: Duration) -> Result<Self> {
        let uri: Uri = url
            .parse()
            .with_context(|| format!("failed to read {url:?}"))?;
        let path = uri
            .path_and_query()
            .map_or_else(|| "/".to_owned(), ToString::to_string);
        let mut base = uri.into_parts();
        base.path_and_query = Some(http::uri::PathAndQuery::from_static("/"));
        let base = Uri::from_parts(base).with_context(|| format!("{url:?} is not absolute"))?;
        let mut config = Config::new(base);
        config.accept_invalid_certs = true;
        config.default_retry = false;
        let client = Client::try_from(config).context("failed to make a client for probes")?;
        Ok(Self {
            client,
            path,
            timeout,
        })
    }

    /// An error says why it failed.
    pub async fn check(&self) -> Result<()> {
        let request = Request::get(&self.path)
            .body(kube::client::Body::empty())
            .context("failed to make a probe's request")?;
        let answer = tokio::time::timeout(self.timeout, self.client.send(request))
            .await
            .with_context(|| format!("no answer in {:?}", self.timeout))??;
        let status = answer.status();
        if (200..400).contains(&status.as_u16()) {
            return Ok(());
        }
        let body = answer.into_body().collect_bytes().await.unwrap_or_default();
        bail!("{status}: {}", String::from_utf8_lossy(&body))
    }
}
