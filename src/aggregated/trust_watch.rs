//! Keeps [`Trust`] as the cluster's ConfigMap has it: CAs, names and headers change while the program runs.
//! The last good state stays when the ConfigMap goes or can't be read: its API server writes it anew, and
//! nobody is let in by it who was not before. That it can't be read is no reason to answer no webhooks, which
//! are on the same port and need none of it: calls of this API are answered 503 until it could be.

use std::sync::Arc;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};
use tokio::sync::watch;

use super::trust::{Read, Trust};

/// Where the ConfigMap is.
pub const NAMESPACE: &str = "kube-system";
/// Its name.
pub const NAME: &str = "extension-apiserver-authentication";

/// The newest [`Trust`]; `None` before the ConfigMap was read.
#[derive(Clone, Debug)]
pub struct TrustStore {
    newest: watch::Sender<Option<Arc<Trust>>>,
}

impl Default for TrustStore {
    fn default() -> Self {
        let newest = watch::Sender::new(None);
        Self { newest }
    }
}

impl TrustStore {
    /// The newest that could be read.
    pub(super) fn newest(&self) -> Option<Arc<Trust>> {
        self.newest.borrow().clone()
    }

    /// Watches the ConfigMap, and tells `report` how it went each time: `Err` as long as nothing could be
    /// read, or something in it can't be. Never returns.
    pub async fn run(&self, client: Client, report: impl Fn(Result<(), String>) + Send) {
        let api: Api<ConfigMap> = Api::namespaced(client, NAMESPACE);
        let only = watcher::Config::default().fields(&format!("metadata.name={NAME}"));
        let events = watcher::watcher(api, only).default_backoff();
        futures::pin_mut!(events);
        let mut seen = false;
        while let Some(event) = events.next().await {
            let outcome = match event {
                Ok(Event::Apply(map) | Event::InitApply(map)) => {
                    seen = true;
                    report(self.take(&map));
                    continue;
                }
                Ok(Event::Init | Event::Delete(_)) => {
                    seen = false;
                    continue;
                }
                Ok(Event::InitDone) if seen => continue,
                Ok(Event::InitDone) => Err(format!("there is no ConfigMap {NAMESPACE}/{NAME}")),
                Err(error) => Err(format!("failed to watch {NAMESPACE}/{NAME}: {error}")),
            };
            if let Err(why) = &outcome {
                tracing::warn!(
                    why,
                    kept = self.newest().is_some(),
                    "Could not read whom to believe"
                );
            }
            report(outcome.or_else(|why| self.newest().map(|_| ()).ok_or(why)));
        }
    }

    /// Takes in what of the ConfigMap can be read; says what can't.
    pub(super) fn take(&self, map: &ConfigMap) -> Result<(), String> {
        let nothing = std::collections::BTreeMap::new();
        let before = self.newest();
        let data = map.data.as_ref().unwrap_or(&nothing);
        let Read { trust, troubles } = Trust::read(data, before.as_deref());
        let troubles: Vec<String> = troubles.iter().map(ToString::to_string).collect();
        let outcome = match troubles.is_empty() {
            true => Ok(()),
            false => Err(troubles.join("; ")),
        };
        if let Err(why) = &outcome {
            tracing::warn!(why, "Could not read all of whom to believe");
            if trust.is_empty() {
                return outcome;
            }
        }
        tracing::info!(
            front_proxy = trust.has_front_proxy(),
            "Read whom to believe"
        );
        self.newest.send_replace(Some(Arc::new(trust)));
        outcome
    }
}
