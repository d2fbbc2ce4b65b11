//! The calls about the Lease. Each write replaces the version that was read, and nothing else.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Client;
use kube::api::{Api, ObjectMeta, PostParams};

use super::judge::RELEASED_SECONDS;
use super::{NAME, Pace};
use crate::api::MANAGER;
use crate::clock;

/// What became of a write.
#[derive(Debug)]
pub(super) enum Write {
    /// This is stored now.
    Done(Box<Lease>),
    /// Nobody knows.
    Failed,
    /// What it was to replace is not there any more.
    Refused,
}

/// No answer, or one that says no.
#[derive(Debug, thiserror::Error)]
pub(super) enum Call {
    #[error("{0}")]
    Fail(#[from] kube::Error),
    #[error("no answer within {0:?}")]
    Wait(Duration),
}

pub(super) struct Store {
    api: Api<Lease>,
    holder: String,
    pace: Pace,
    last_failure: String,
}

impl Store {
    pub(super) fn new(client: Client, namespace: &str, holder: String, pace: Pace) -> Self {
        Self {
            api: Api::namespaced(client, namespace),
            holder,
            pace,
            last_failure: "none".to_owned(),
        }
    }

    pub(super) fn holder(&self) -> &str {
        &self.holder
    }

    pub(super) fn last_failure(&self) -> String {
        self.last_failure.clone()
    }

    /// Whether `found` is what we hold: since we took it, nobody else did, even one of our name.
    pub(super) fn is_ours(&self, found: &Lease, held: &Lease) -> bool {
        let part = |lease: &Lease| {
            let spec = lease.spec.clone().unwrap_or_default();
            (
                lease.metadata.uid.clone(),
                spec.holder_identity,
                spec.acquire_time,
                spec.lease_transitions,
            )
        };
        part(found) == part(held)
    }

    pub(super) async fn read(&self) -> Result<Option<Lease>, Call> {
        self.answer(self.api.get_opt(NAME)).await
    }

    /// Writes ourselves into what was found, or makes it.
    pub(super) async fn take(&mut self, found: Option<Lease>) -> Write {
        let now = MicroTime(clock::now());
        let mut lease = found.unwrap_or_else(|| Lease {
            metadata: ObjectMeta {
                name: Some(NAME.to_owned()),
                ..ObjectMeta::default()
            },
            ..Lease::default()
        });
        let spec = lease.spec.get_or_insert_default();
        let before = spec.lease_transitions;
        *spec = LeaseSpec {
            holder_identity: Some(self.holder.clone()),
            acquire_time: Some(now.clone()),
            renew_time: Some(now),
            lease_duration_seconds: Some(self.seconds()),
            lease_transitions: Some(before.map_or(0, |before| before.saturating_add(1))),
            ..LeaseSpec::default()
        };
        self.write(lease).await
    }

    pub(super) async fn renew(&mut self, held: &Lease) -> Write {
        let mut lease = held.clone();
        lease.spec.get_or_insert_default().renew_time = Some(MicroTime(clock::now()));
        self.write(lease).await
    }

    /// So that the next one need not wait. Best effort: without it, that one waits.
    pub(super) async fn release(&mut self, held: Lease) {
        let mut lease = held;
        let spec = lease.spec.get_or_insert_default();
        spec.holder_identity = Some(String::new());
        spec.lease_duration_seconds = Some(RELEASED_SECONDS);
        spec.renew_time = Some(MicroTime(clock::now()));
        if matches!(self.write(lease).await, Write::Done(_)) {
            tracing::info!(lease = NAME, "Released the Lease");
        }
    }

    async fn write(&mut self, mut lease: Lease) -> Write {
        let params = PostParams {
            field_manager: Some(MANAGER.to_owned()),
            ..PostParams::default()
        };
        lease.metadata.managed_fields = None;
        let is_new = lease.metadata.resource_version.is_none();
        let written = match is_new {
            true => self.answer(self.api.create(&params, &lease)).await,
            false => self.answer(self.api.replace(NAME, &params, &lease)).await,
        };
        match written {
            Ok(lease) => Write::Done(Box::new(lease)),
            Err(Call::Fail(kube::Error::Api(status))) if matches!(status.code, 404 | 409) => {
                self.last_failure = status.message;
                Write::Refused
            }
            Err(error) => {
                self.last_failure = error.to_string();
                tracing::warn!(lease = NAME, %error, "Could not write the Lease; trying on");
                Write::Failed
            }
        }
    }

    async fn answer<T>(&self, call: impl Future<Output = kube::Result<T>>) -> Result<T, Call> {
        let patience = self.pace.patience();
        match tokio::time::timeout(patience, call).await {
            Ok(answer) => Ok(answer?),
            Err(_) => Err(Call::Wait(patience)),
        }
    }

    fn seconds(&self) -> i32 {
        i32::try_from(self.pace.duration.as_secs()).unwrap_or(i32::MAX)
    }
}
