//! What this replica serves with, and when it may change that: new connections get the newest certificate, and
//! those that are open stay open.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use axum_server::tls_rustls::RustlsConfig;
use k8s_openapi::jiff::Timestamp;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use rustls::pki_types::CertificateDer;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::keys::{ReadCertificate, Serving};
use crate::clock;

/// No certificate yet.
const NEVER: i64 = i64::MIN;

/// What the TLS port serves with; a cheap handle.
#[derive(Clone, Debug)]
pub struct Served(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    config: watch::Sender<Option<RustlsConfig>>,
    /// When the certificate ends, in seconds since 1970.
    until: AtomicI64,
    failures: Counter,
}

impl Default for Served {
    fn default() -> Self {
        Self(Arc::new(Inner {
            config: watch::Sender::new(None),
            until: AtomicI64::new(NEVER),
            failures: Counter::default(),
        }))
    }
}

impl Served {
    /// Adds its metrics.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "vmpool_certificate_failures",
            "Looks at the certificates that failed; the one that was served before is served on",
            self.0.failures.clone(),
        );
        registry.register_collector(Box::new(SecondsLeft(Arc::clone(&self.0))));
    }

    /// Waits for the first certificate; `None` if `shutdown` comes first. What is returned follows all later
    /// changes.
    pub async fn config(&self, shutdown: &CancellationToken) -> Option<RustlsConfig> {
        let mut config = self.0.config.subscribe();
        let config = config.wait_for(Option::is_some);
        let config = shutdown.run_until_cancelled(config).await?;
        config.expect("we hold the sender").clone()
    }

    pub(super) fn serve(&self, serving: &Serving) -> Result<(), ReadCertificate> {
        let new = Arc::new(serving.server_config()?);
        self.0.config.send_modify(|config| match config {
            Some(config) => config.reload_from_config(new),
            None => *config = Some(RustlsConfig::from_config(new)),
        });
        let until = serving.validity.until.as_second();
        self.0.until.store(until, Ordering::Relaxed);
        Ok(())
    }

    pub(super) fn failed(&self) {
        self.0.failures.inc();
    }
}

#[derive(Debug)]
struct SecondsLeft(Arc<Inner>);

impl Collector for SecondsLeft {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let until = self.0.until.load(Ordering::Relaxed);
        if until == NEVER {
            return Ok(());
        }
        let gauge = ConstGauge::new(until - clock::now().as_second());
        let encoder = encoder.encode_descriptor(
            "vmpool_certificate_seconds_left",
            "Seconds until the serving certificate expires",
            None,
            gauge.metric_type(),
        )?;
        gauge.encode(encoder)
    }
}

/// Says when clients have had time enough to learn of a CA.
#[derive(Debug, Default)]
pub(super) struct Gate {
    since: Option<(Vec<CertificateDer<'static>>, Instant)>,
}

impl Gate {
    /// Told at each look whether every client was found to trust one of `authorities`; says whether that has been
    /// so for `settle`.
    pub(super) fn is_settled(
        &mut self,
        authorities: &[CertificateDer<'static>],
        trusted: bool,
        now: Instant,
        settle: Duration,
    ) -> bool {
        if !trusted {
            self.since = None;
            return false;
        }
        match &self.since {
            Some((known, since)) if known == authorities => now.duration_since(*since) >= settle,
            _ => {
                self.since = Some((authorities.to_vec(), now));
                settle.is_zero()
            }
        }
    }
}

/// Whether to serve `wanted` instead of what is served now.
pub(super) fn may_change(served: &Serving, is_settled: bool, now: Timestamp) -> bool {
    // Who finds an expired certificate refuses in any case: with the new one there is a chance.
    is_settled || !served.validity.holds(now)
}
