//! Feeds one store from one watch, for ever: errors are backed off and resumed from, an expired resource
//! version lists anew, a kind that the API server doesn't know is waited for. Decides nothing.

use std::convert::Infallible;
use std::fmt::Debug;
use std::time::Duration;

use futures::{Stream, StreamExt as _, pin_mut};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, ApiResource};
use kube::core::Status;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;

use super::affected::{Concerns, everybody};
use super::store::{Key, Step, Store, View};
use super::{Caches, Kind};

/// How often is asked whether a kind that the API server doesn't know is there by now. One small GET.
const ASK_AGAIN: Duration = Duration::from_secs(3);

/// Objects in one answer to a list. Whole VMs, decoded, are some 50 kB each before they are trimmed: 500 of
/// them, kube's default, would be most of this program's memory.
const PAGE: u32 = 100;

/// What is watched, and where it goes.
pub(super) struct Feed<'a, V> {
    pub(super) caches: &'a Caches,
    pub(super) kind: Kind,
    pub(super) store: &'a Store<V>,
}

impl<V: View + Concerns> Feed<'_, V> {
    /// Watches objects as `K`: whole ones, or their metadata alone.
    pub(super) async fn run<K>(
        &self,
        client: &Client,
        resource: &ApiResource,
        labels: Option<&str>,
        read: fn(K) -> Option<V>,
    ) -> Infallible
    where
        K: Resource<DynamicType = ApiResource> + Clone + Debug + DeserializeOwned + Send + 'static,
    {
        loop {
            self.wait_installed(client, resource).await;
            let api: Api<K> = Api::all_with(client.clone(), resource);
            let mut config = watcher::Config::default().page_size(PAGE);
            config.label_selector = labels.map(str::to_owned);
            self.follow(watcher::watcher(api, config), read).await;
            // Discovery may go on for a moment to name a kind that is being removed.
            tokio::time::sleep(ASK_AGAIN).await;
        }
    }

    /// Returns when the API server serves the kind. Asks again until then, and says once that it is waiting.
    async fn wait_installed(&self, client: &Client, resource: &ApiResource) {
        let mut said = false;
        loop {
            match is_served(client, resource).await {
                Ok(true) => break,
                Ok(false) => {
                    if self.store.installed() != Some(false) {
                        self.take(Step::NotInstalled);
                    }
                    if !said {
                        said = true;
                        tracing::warn!(
                            cache = self.kind.as_str(),
                            group = resource.group,
                            resource = resource.plural,
                            "Kind is not installed, waiting for it"
                        );
                    }
                }
                Err(error) => {
                    tracing::warn!(
                        cache = self.kind.as_str(),
                        %error,
                        "Failed to ask which kinds the API server has"
                    );
                    self.caches.troubles.note(self.kind, error.to_string());
                }
            }
            tokio::time::sleep(ASK_AGAIN).await;
        }
        if said {
            tracing::info!(cache = self.kind.as_str(), "Kind is installed now");
        }
    }

    /// Takes in what the watch says. Returns when the API server says that it doesn't know the kind.
    async fn follow<K>(
        &self,
        events: impl Stream<Item = watcher::Result<Event<K>>>,
        read: impl Fn(K) -> Option<V>,
    ) where
        K: Resource + Clone + Debug,
    {
        let events = events.default_backoff();
        pin_mut!(events);
        let mut last_error = String::new();
        while let Some(event) = events.next().await {
            let event = match event {
                Ok(event) => event,
                Err(error) if is_unknown_kind(&error) => return,
                Err(error) => {
                    // The same error again on each retry is one line.
                    let text = described(&error);
                    self.caches.troubles.note(self.kind, text.clone());
                    if text != last_error {
                        tracing::warn!(cache = self.kind.as_str(), error = text, "Watch failed");
                        last_error = text;
                    }
                    continue;
                }
            };
            let step = match event {
                Event::Apply(object) => read(object).map(Step::Apply),
                Event::Delete(object) => key_of(object.meta()).map(Step::Delete),
                Event::Init => Some(Step::Init),
                Event::InitApply(object) => read(object).map(Step::InitApply),
                Event::InitDone => {
                    last_error.clear();
                    Some(Step::InitDone)
                }
            };
            if let Some(step) = step {
                self.take(step);
            }
        }
    }

    fn take(&self, step: Step<V>) {
        let is_for_all = matches!(step, Step::InitDone | Step::NotInstalled);
        let is_list = matches!(step, Step::Init);
        if !matches!(step, Step::Init | Step::InitApply(_)) {
            self.caches.troubles.end(self.kind);
        }
        for change in self.store.take(step) {
            self.caches.dirty.mark(V::concerns(self.caches, &change));
        }
        if is_for_all {
            tracing::debug!(
                cache = self.kind.as_str(),
                objects = self.store.len(),
                "Cache is complete"
            );
            self.caches.dirty.mark(everybody(self.caches, self.kind));
            self.caches.announce();
        } else if is_list {
            self.caches.announce();
        }
    }
}

/// Whether the API server serves the kind, by its discovery document.
async fn is_served(client: &Client, resource: &ApiResource) -> kube::Result<bool> {
    let found = if resource.group.is_empty() {
        client.list_core_api_resources(&resource.version).await
    } else {
        client.list_api_group_resources(&resource.api_version).await
    };
    match found {
        Ok(list) => Ok(list.resources.iter().any(|one| one.name == resource.plural)),
        Err(kube::Error::Api(status)) if is_404(&status) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether the error says that the kind isn't served: a list or a watch of a known kind is never 404.
fn is_unknown_kind(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchError(status)
        | watcher::Error::WatchFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status)) => is_404(status),
        watcher::Error::InitialListFailed(_)
        | watcher::Error::NoResourceVersion
        | watcher::Error::WatchFailed(_)
        | watcher::Error::WatchStartFailed(_) => false,
    }
}

/// Of a group that it doesn't know the API server says so in plain text, without a reason.
fn is_404(status: &Status) -> bool {
    status.code == 404
}

/// The error with what is behind it: "failed to perform initial object list" says nothing.
fn described(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let why = error.to_string();
        if !text.contains(&why) {
            text = format!("{text}: {why}");
        }
        source = error.source();
    }
    text
}

fn key_of(meta: &ObjectMeta) -> Option<Key> {
    Some(Key::new(meta.namespace.as_deref()?, meta.name.as_deref()?))
}
