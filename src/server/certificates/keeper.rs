//! The loop that looks after certificates until the program stops: what is there, what is to be served, who has
//! to trust it. It never ends by itself: without the API server, the program serves on with what it has.

use std::time::Instant;

use k8s_openapi::jiff::Timestamp;
use kube::Client;
use rustls::pki_types::CertificateDer;
use tokio_util::sync::CancellationToken;

use super::consumers::{Found, ReachConsumer, Trust};
use super::decide::Lifetimes;
use super::files::{Files, ReadFiles};
use super::keys::{Names, ReadCertificate, Serving, certificates_in};
use super::secret::{LookAtSecret, SecretStore};
use super::serving::{Gate, Served, may_change};
use crate::clock;
use crate::server::health::Check;

/// Where certificates come from.
#[derive(Clone, Debug)]
pub enum Source {
    /// Somebody else makes them.
    Files(Files),
    /// The program makes them.
    Secret,
}

/// What a keeper needs.
pub struct KeeperConfig {
    /// For all its calls.
    pub client: Client,
    /// Where certificates come from.
    pub source: Source,
    /// What clients call us.
    pub names: Names,
    /// How long certificates live.
    pub lifetimes: Lifetimes,
    /// What is served.
    pub served: Served,
    /// Passes once clients trust what is served.
    pub check: Check,
}

/// Looks after certificates.
pub struct Keeper {
    client: Client,
    store: Store,
    lifetimes: Lifetimes,
    served: Served,
    check: Check,
    serving: Option<Serving>,
    gate: Gate,
    is_first: bool,
    missing: Vec<&'static str>,
    failure: Option<String>,
}

enum Store {
    Files(Files),
    Secret(Box<SecretStore>),
}

/// Why a look came to nothing.
#[derive(Debug, thiserror::Error)]
enum LookAfter {
    #[error(transparent)]
    Files(#[from] ReadFiles),
    #[error("not installed: {0}")]
    Find(String),
    #[error(transparent)]
    Reach(#[from] ReachConsumer),
    #[error(transparent)]
    Secret(#[from] LookAtSecret),
    #[error(transparent)]
    Serve(#[from] ReadCertificate),
}

/// What there is to be served, and to be trusted for it.
struct Wanted {
    serving: Serving,
    /// `None` if somebody else sees to that.
    trust: Option<Trust>,
    /// The CAs, one of which signed it.
    signers: Vec<CertificateDer<'static>>,
}

impl Keeper {
    /// One that has looked at nothing yet.
    pub fn new(config: KeeperConfig) -> Self {
        let store = match config.source {
            Source::Files(files) => Store::Files(files),
            Source::Secret => Store::Secret(Box::new(SecretStore::new(
                config.client.clone(),
                config.names,
                config.lifetimes,
            ))),
        };
        Self {
            client: config.client,
            store,
            lifetimes: config.lifetimes,
            served: config.served,
            check: config.check,
            serving: None,
            gate: Gate::default(),
            is_first: true,
            missing: Vec::new(),
            failure: None,
        }
    }

    /// Works until `shutdown`.
    pub async fn run(mut self, shutdown: CancellationToken) {
        let usual = self.lifetimes.look_again();
        let soon = usual / 5;
        loop {
            let looked = shutdown.run_until_cancelled(self.look(clock::now())).await;
            let Some(looked) = looked else { return };
            let pause = match looked {
                Ok(true) => usual,
                Ok(false) => soon,
                Err(failure) => {
                    self.report(&failure);
                    soon
                }
            };
            let pause = tokio::time::sleep(pause);
            if shutdown.run_until_cancelled(pause).await.is_none() {
                return;
            }
        }
    }

    /// Whether all is as it should be, so that there is nothing to be looked at soon.
    async fn look(&mut self, now: Timestamp) -> Result<bool, LookAfter> {
        let found = match self.publishes() {
            true => Some(Found::read(&self.client).await),
            false => None,
        };
        let reached = found.as_ref().and_then(|found| found.as_ref().ok());
        let trusted = reached.map(Found::trusted).unwrap_or_default();
        let wanted = match &mut self.store {
            Store::Files(files) => Wanted::of_files(files)?,
            Store::Secret(secret) => {
                let known = reached.map(|_| trusted.as_slice());
                Wanted::of_secret(secret, known, now).await?
            }
        };
        let all_trust = reached.is_none_or(|found| found.all_trust(&wanted.signers));
        let is_known = (found.is_none() || reached.is_some()) && all_trust;
        let settle = self.lifetimes.settle();
        let is_settled = self.publishes()
            && self
                .gate
                .is_settled(&wanted.signers, is_known, Instant::now(), settle);
        let is_current = self.serve(&wanted.serving, is_settled || !self.publishes(), now)?;

        let (Some(trust), Some(found)) = (&wanted.trust, found) else {
            self.pass();
            return Ok(is_current);
        };
        let found = found?;
        let written = found.publish(trust, now).await?;
        if !written.is_empty() {
            tracing::info!(to = written.join(", "), "Wrote the CA");
        }
        self.report_missing(&found);
        if !found.missing_needed.is_empty() {
            return Err(LookAfter::Find(found.missing_needed.join(", ")));
        }
        // Who replaces a CA that clients know waits for them; who is the first need not.
        let is_ready = is_settled || trusted.is_empty() || (self.is_first && all_trust);
        if is_ready {
            self.pass();
        }
        self.is_first = false;
        Ok(is_current && is_ready && written.is_empty())
    }

    /// Whether it is ours to say who is trusted.
    fn publishes(&self) -> bool {
        match &self.store {
            Store::Files(files) => files.authority.is_some(),
            Store::Secret(_) => true,
        }
    }

    /// Serves the newest certificate, if it may; says whether it does.
    fn serve(
        &mut self,
        wanted: &Serving,
        is_settled: bool,
        now: Timestamp,
    ) -> Result<bool, ReadCertificate> {
        match &self.serving {
            Some(served) if served == wanted => return Ok(true),
            Some(served) if !may_change(served, is_settled, now) => return Ok(false),
            _ => {}
        }
        self.served.serve(wanted)?;
        tracing::info!(until = %wanted.validity.until, "Serving with a new certificate");
        self.serving = Some(wanted.clone());
        Ok(true)
    }

    fn pass(&mut self) {
        self.check.pass();
        self.failure = None;
    }

    fn report_missing(&mut self, found: &Found) {
        if self.missing != found.missing {
            self.missing.clone_from(&found.missing);
            if !self.missing.is_empty() {
                tracing::info!(
                    objects = self.missing.join(", "),
                    "Not installed, so that nobody is told of the CA there"
                );
            }
        }
    }

    fn report(&mut self, failure: &LookAfter) {
        if matches!(failure, LookAfter::Secret(LookAtSecret::Lose)) {
            return;
        }
        self.served.failed();
        let text = failure.to_string();
        // What has been ready stays so: an outage of the API server is no reason to be restarted or avoided.
        if self.is_first {
            self.check.fail(text.clone());
        }
        if self.failure.as_ref() != Some(&text) {
            tracing::warn!(error = %failure, "Could not look after the certificates; trying on");
            self.failure = Some(text);
        }
    }
}

impl Wanted {
    fn of_files(files: &Files) -> Result<Self, ReadFiles> {
        let (serving, trust) = files.read()?;
        Ok(Self {
            serving,
            signers: trust.as_ref().map(Trust::authorities).unwrap_or_default(),
            trust,
        })
    }

    async fn of_secret(
        secret: &mut SecretStore,
        trusted: Option<&[String]>,
        now: Timestamp,
    ) -> Result<Self, LookAtSecret> {
        let kept = secret.look(trusted, now).await?;
        Ok(Self {
            signers: certificates_in(kept.authority.pem.as_bytes()),
            trust: Some(Trust::Exactly(kept.bundle())),
            serving: kept.serving,
        })
    }
}
