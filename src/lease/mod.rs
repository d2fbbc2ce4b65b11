//! Leader election: of all replicas one runs the controller, the one that holds a `coordination.k8s.io` Lease.
//! Webhooks and the rest are served by all of them.
//!
//! What makes it safe, whatever a clock, a network or a person does:
//!
//! - Every write names the version of the Lease that it replaces, so that of two one wins.
//! - Times of others are never compared with ours. A Lease is free once it has not changed for its whole duration
//!   *as we have watched it*; a holder that was emptied or deleted by hand is waited for just so. Only a holder
//!   that says that it has released it is believed at once.
//! - The holder counts from *before* it sent its last successful renewal, on a clock that nobody sets and that runs
//!   on while the machine sleeps, and gives up a fifth of the duration before anybody else may begin. [`Leadership`]
//!   tells each single write whether that time has come, and [`fenced_client`] each write to a socket, so that a
//!   process that was stopped in mid-step writes nothing when it goes on.
//! - On doubt the work is dropped where it stands and the process ends: a new one starts with nothing in mind. Losing
//!   is an error of [`lead`], never a state to go on in.

mod claim;
mod fence;
mod judge;
mod store;

use std::fmt::Display;
use std::future::Future;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::Client;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio_util::sync::CancellationToken;

pub use claim::Leadership;
pub use fence::client as fenced_client;

use self::judge::{Judge, Verdict};
use self::store::{Store, Write};
use crate::clock;
use crate::rights::Right;

/// Name of the Lease. Two versions of the program that use different ones would both lead: it never changes.
pub const NAME: &str = "vmpool-controller";
/// How long others wait for a holder that is silent; client-go's default.
const DURATION: Duration = Duration::from_secs(15);

/// How long is how long. All of it follows from the duration.
#[derive(Clone, Copy, Debug)]
struct Pace {
    duration: Duration,
}

impl Pace {
    /// Between two renewals.
    fn renew(self) -> Duration {
        self.duration / 3
    }

    /// After a renewal that failed, and for those who wait.
    fn retry(self) -> Duration {
        self.duration / 10
    }

    /// For an answer: a later one leaves no time for another try.
    fn patience(self) -> Duration {
        self.duration / 5
    }

    /// How long a renewal lasts for the holder itself.
    fn claim(self) -> Duration {
        self.duration * 4 / 5
    }
}

/// What [`lead`] needs.
pub struct LeaseConfig {
    /// For calls about the Lease; one that does not retry by itself.
    pub client: Client,
    /// Where the Lease is: where the program runs.
    pub namespace: String,
    /// Who we are. Another one than any process that may still run, so best the pod's UID.
    pub holder: String,
    /// 1 while we lead.
    pub metrics: Metrics,
}

/// Whether this process leads, as a metric.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    leads: Gauge,
}

impl Metrics {
    /// Adds it.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "vmpool_leader",
            "Whether this process runs the controller: 1 or 0",
            self.leads.clone(),
        );
    }
}

/// The Lease is no longer ours, or may soon not be: whatever was under way has been dropped.
#[derive(Debug, thiserror::Error)]
pub enum KeepLease {
    /// Others may soon begin.
    #[error("failed to renew the Lease {NAME} in time; the last try: {last}")]
    Renew {
        /// Why.
        last: String,
    },
    /// Somebody else has written it.
    #[error("lost the Lease {NAME} to {holder:?}")]
    Lose {
        /// Who is in it.
        holder: String,
    },
}

/// What [`lead`] calls.
pub fn rules() -> Vec<Right> {
    let group = "coordination.k8s.io";
    vec![
        Right::to(
            "the Lease by which one replica at a time runs the controller",
            &["get", "update"],
            group,
            &["leases"],
        )
        .only(NAME),
        Right::to(
            "the same for the first time: a right to create knows no name",
            &["create"],
            group,
            &["leases"],
        ),
    ]
}

/// Waits until the Lease is ours, then does `work` for as long as it is. `work` is to end soon after `shutdown`,
/// after which the Lease is released.
///
/// # Errors
/// If the Lease is lost; then `work` has been dropped, and the process is to end.
pub async fn lead<W: Future<Output = ()>>(
    config: LeaseConfig,
    shutdown: CancellationToken,
    work: impl FnOnce(Leadership) -> W,
) -> Result<(), KeepLease> {
    lead_at(Pace { duration: DURATION }, config, shutdown, work).await
}

async fn lead_at<W: Future<Output = ()>>(
    pace: Pace,
    config: LeaseConfig,
    shutdown: CancellationToken,
    work: impl FnOnce(Leadership) -> W,
) -> Result<(), KeepLease> {
    let mut elector = Elector {
        store: Store::new(config.client, &config.namespace, config.holder, pace),
        pace,
    };
    let acquired = shutdown.run_until_cancelled(elector.acquire()).await;
    let Some((lease, leadership)) = acquired else {
        return Ok(());
    };
    config.metrics.leads.set(1);
    tracing::info!(lease = NAME, "Leading: the controller runs here");
    let mut lease = lease;
    let ended = tokio::select! {
        // In this order: what ends the work is looked at before it goes on.
        biased;
        () = leadership.lost() => Err(None),
        failure = elector.hold(&mut lease, &leadership) => Err(Some(failure)),
        () = work(leadership.clone()) => Ok(()),
    };
    leadership.end();
    config.metrics.leads.set(0);
    match ended {
        Ok(()) => {
            elector.store.release(lease).await;
            Ok(())
        }
        Err(Some(failure)) => Err(failure),
        Err(None) => Err(KeepLease::Renew {
            last: elector.store.last_failure(),
        }),
    }
}

struct Elector {
    store: Store,
    pace: Pace,
}

impl Elector {
    /// Tries until the Lease is ours.
    async fn acquire(&mut self) -> (Lease, Leadership) {
        let mut judge = Judge::new(self.store.holder(), self.pace.duration);
        let mut told = None;
        loop {
            match self.store.read().await {
                Ok(found) => match judge.judge(found.as_ref(), clock::since_boot()) {
                    Verdict::Take => {
                        let asked = clock::since_boot();
                        if let Write::Done(lease) = self.store.take(found).await {
                            return (*lease, Leadership::until(asked + self.pace.claim()));
                        }
                    }
                    Verdict::Wait { holder } => {
                        if told.as_ref() != Some(&holder) {
                            tracing::info!(lease = NAME, holder, "Waiting: another replica leads");
                            told = Some(holder);
                        }
                    }
                },
                Err(error) => self.note("read", &error),
            }
            tokio::time::sleep(self.pace.retry()).await;
        }
    }

    /// Renews until that is no longer possible.
    async fn hold(&mut self, lease: &mut Lease, leadership: &Leadership) -> KeepLease {
        loop {
            tokio::time::sleep(self.pace.renew()).await;
            while let Some(failure) = self.renew(lease, leadership).await {
                match failure {
                    Some(lost) => return lost,
                    None => tokio::time::sleep(self.pace.retry()).await,
                }
            }
        }
    }

    /// `None` if it is renewed; else why that will never be, or `Some(None)` if it may be tried again.
    async fn renew(
        &mut self,
        lease: &mut Lease,
        leadership: &Leadership,
    ) -> Option<Option<KeepLease>> {
        // Refused if an earlier try was taken whose answer was lost. Then time is short: again with what is stored
        // now, and at once.
        for _ in 0..2 {
            let asked = clock::since_boot();
            match self.store.renew(lease).await {
                Write::Done(renewed) => {
                    *lease = *renewed;
                    leadership.extend(asked + self.pace.claim());
                    return None;
                }
                Write::Failed => return Some(None),
                Write::Refused => {}
            }
            match self.store.read().await {
                Ok(Some(found)) if self.store.is_ours(&found, lease) => *lease = found,
                Ok(found) => {
                    let holder = judge::holder_of(found.as_ref());
                    return Some(Some(KeepLease::Lose { holder }));
                }
                Err(error) => {
                    self.note("read", &error);
                    return Some(None);
                }
            }
        }
        Some(None)
    }

    fn note(&self, verb: &str, error: &dyn Display) {
        tracing::warn!(lease = NAME, error = %error, "Could not {verb} the Lease; trying on");
    }
}

#[cfg(test)]
mod tests;
