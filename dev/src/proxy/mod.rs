//! A proxy between one of our processes and the API server that injects faults: by rules that can
//! be added and taken away while it runs, scripted or seeded, so that a failure can be repeated.
//!
//! It speaks HTTP/1.1 to its clients, where every request in flight has a connection of its own:
//! a connection that is dropped takes one request with it and no other. The caller's token goes
//! through, client certificates do not: use the kubeconfig of a service account. Upgrades (exec,
//! port-forward) are not forwarded.

mod answer;
mod rule;
mod serve;
mod stream;

use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use anyhow::{Context, Result};
use http::{Method, request::Parts};
use kube::Config;
use tokio::sync::{oneshot, watch};

pub use self::answer::Answer;
pub use self::rule::{Action, Rule, Seen};

pub(crate) use self::serve::tls;

use self::rule::Tally;
use crate::controlplane::ControlPlane;
use crate::controlplane::pki::Pair;
use crate::controlplane::ports;

/// A connection that ends without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lost;

impl std::fmt::Display for Lost {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("the connection was lost, as a rule of the fault proxy wants it")
    }
}

impl std::error::Error for Lost {}

/// A request and what became of it.
#[derive(Clone, Debug)]
pub struct Record {
    /// The request.
    pub seen: Seen,
    /// The [names](Action::name) of what befell it.
    pub faults: Vec<&'static str>,
    /// The status that the client was answered with; none while there is no answer, and where the
    /// answer was lost.
    pub status: Option<u16>,
}

/// An action that befalls a request, and whether its rule has been released.
#[derive(Clone)]
struct Chosen {
    action: Action,
    released: watch::Receiver<bool>,
}

impl Chosen {
    /// A rule that is gone holds nothing back.
    async fn released(&mut self) {
        let _ = self.released.wait_for(|released| *released).await;
    }

    /// Waits for ever for a rule that was taken away without being fired.
    async fn released_action(&mut self) -> Action {
        if self.released.wait_for(|released| *released).await.is_err() {
            std::future::pending::<()>().await;
        }
        self.action.clone()
    }
}

struct Active {
    id: usize,
    tally: Tally,
    released: watch::Sender<bool>,
}

#[derive(Default)]
struct Rules {
    active: Vec<Active>,
    added: usize,
    records: Vec<Record>,
    /// Hits of rules that have been removed.
    hits: Vec<u64>,
}

#[derive(Default)]
struct Shared {
    rules: Mutex<Rules>,
}

impl Shared {
    fn rules(&self) -> MutexGuard<'_, Rules> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a request and answers its number and what shall befall it, in the order in which
    /// the rules were added.
    fn receive(&self, parts: &Parts) -> (usize, Vec<Chosen>) {
        let mut rules = self.rules();
        let user_agent = parts.headers.get(http::header::USER_AGENT);
        let seen = Seen {
            number: rules.records.len(),
            at: Instant::now(),
            method: parts.method.clone(),
            path: parts.uri.path().to_owned(),
            query: parts.uri.query().unwrap_or_default().to_owned(),
            user_agent: user_agent
                .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
                .unwrap_or_default(),
        };
        let mut chosen: Vec<Chosen> = Vec::new();
        for active in &mut rules.active {
            if chosen.last().is_some_and(|chosen| chosen.action.is_final()) {
                break;
            }
            if active.tally.offer(&seen) {
                chosen.push(Chosen {
                    action: active.tally.rule.action.clone(),
                    released: active.released.subscribe(),
                });
            }
        }
        let number = seen.number;
        rules.records.push(Record {
            seen,
            faults: chosen.iter().map(|chosen| chosen.action.name()).collect(),
            status: None,
        });
        (number, chosen)
    }

    fn answered(&self, number: usize, status: u16) {
        if let Some(record) = self.rules().records.get_mut(number) {
            record.status = Some(status);
        }
    }
}

/// A running proxy; its connections end when it is dropped.
pub struct FaultProxy {
    url: String,
    shared: Arc<Shared>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl FaultProxy {
    /// In front of this control plane, with a certificate that its clients trust.
    pub fn start(plane: &ControlPlane) -> Result<Self> {
        let mut upstream = Config::new(plane.admin_config().cluster_url);
        upstream.root_cert = plane.admin_config().root_cert;
        Self::start_before(upstream, &plane.authority().serving(&["127.0.0.1"])?)
    }

    /// In front of the server of this configuration, which should have no credentials of its own.
    pub fn start_before(mut upstream: Config, serving: &Pair) -> Result<Self> {
        // A retry would hide from the client what it should cope with.
        upstream.default_retry = false;
        let port = ports::free()?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
            .with_context(|| format!("failed to listen on port {port}"))?;
        let tls = serve::tls(serving)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("failed to make the proxy's runtime")?;
        let shared = Arc::new(Shared::default());
        let (stop, stopped) = oneshot::channel();
        let server = {
            let _inside = runtime.enter();
            serve::server(listener, tls, upstream, Arc::clone(&shared))?
        };
        // A thread and a runtime of its own, for the reasons that the supervisor has.
        let thread = std::thread::Builder::new()
            .name("fault proxy".into())
            .spawn(move || {
                runtime.block_on(async {
                    tokio::select! {
                        result = server => if let Err(error) = result {
                            tracing::error!(%error, "The fault proxy ended");
                        },
                        _ = stopped => {}
                    }
                });
                // Not waited for: a held request would keep it.
                runtime.shutdown_background();
            })
            .context("failed to start the proxy's thread")?;
        Ok(Self {
            url: format!("https://127.0.0.1:{port}"),
            shared,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// For [`ControlPlane::service_account_kubeconfig`].
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Adds a rule for the requests that come from now on. It stays until it is
    /// [removed](RuleHandle::remove), even if the handle is dropped.
    pub fn add(&self, rule: Rule) -> RuleHandle {
        let mut rules = self.shared.rules();
        let id = rules.added;
        rules.added += 1;
        rules.hits.push(0);
        let (released, _) = watch::channel(false);
        rules.active.push(Active {
            id,
            tally: Tally::new(rule),
            released: released.clone(),
        });
        RuleHandle {
            id,
            shared: Arc::clone(&self.shared),
            released,
        }
    }

    /// Removes all rules, and releases what they hold. Watches that were to be cut are not.
    pub fn clear(&self) {
        let ids: Vec<usize> = self
            .shared
            .rules()
            .active
            .iter()
            .map(|rule| rule.id)
            .collect();
        for id in ids {
            self.shared.remove(id);
        }
    }

    /// All requests since the start, in the order in which they came.
    pub fn records(&self) -> Vec<Record> {
        self.shared.rules().records.clone()
    }

    /// Those with this method and with this in their path.
    pub fn requests(&self, method: &Method, path: &str) -> Vec<Record> {
        let mut records = self.records();
        records.retain(|record| record.seen.method == method && record.seen.path.contains(path));
        records
    }
}

impl Shared {
    fn remove(&self, id: usize) {
        let mut rules = self.rules();
        let Some(at) = rules.active.iter().position(|active| active.id == id) else {
            return;
        };
        let active = rules.active.remove(at);
        rules.hits[id] = active.tally.hits;
        if !stream::is_end(&active.tally.rule.action) {
            active.released.send_replace(true);
        }
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            // An error means that the thread has ended already.
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A rule that was added.
pub struct RuleHandle {
    id: usize,
    shared: Arc<Shared>,
    released: watch::Sender<bool>,
}

impl RuleHandle {
    /// How often it has acted.
    pub fn hits(&self) -> u64 {
        let rules = self.shared.rules();
        let mut active = rules.active.iter();
        match active.find(|active| active.id == self.id) {
            Some(active) => active.tally.hits,
            None => rules.hits[self.id],
        }
    }

    /// Lets through what it holds back, and holds back nothing more.
    pub fn release(&self) {
        self.released.send_replace(true);
    }

    /// Cuts or expires at once the watches that it was to end after some events.
    pub fn fire(&self) {
        self.release();
    }

    /// Takes it away, and releases what it holds.
    pub fn remove(self) {
        self.shared.remove(self.id);
    }
}
