//! The controller: the only writer to VMs, revisions and statuses. Observes through `cache`, decides through
//! `plan`, and does here what was decided.
//!
//! There is one task per pool and per config ([`supervise`]): passes over one object never overlap, passes
//! over two never wait for each other, and a panic stops one. How many creates and deletes are under way is
//! bounded over all of them. Nothing is done while a cache that a decision reads is incomplete.

mod apply;
mod calls;
mod census;
mod config_task;
mod create;
mod deeds;
mod delete;
mod detach;
mod drive;
mod events;
mod expectations;
#[cfg(test)]
mod fixtures;
mod follow;
mod former;
mod member_disks;
mod metrics;
mod occupied;
mod overdue;
mod pool_task;
mod release;
mod restart;
mod revisions;
mod snapshot;
mod status;
mod supervise;
mod target;
#[cfg(test)]
mod tests;
mod trial;
mod update;
mod window;

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use kube::Client;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub use metrics::Metrics;

use self::calls::Calls;
use self::config_task::ConfigTask;
use self::former::FormerTask;
use self::pool_task::PoolTask;
use self::supervise::Handle;
use crate::api;
use crate::cache::{Affected, Caches, Key};
use crate::kubevirt;
use crate::lease::Leadership;
use crate::plan::{Limits, Plan, Snapshot};
use crate::rights::Right;

/// What decides: `plan::plan`, save in tests of what surrounds it.
pub type Planner = fn(&Snapshot, Timestamp) -> Plan;

/// What the controller needs.
#[derive(Clone)]
pub struct ControllerConfig {
    /// For all writes. To be built with `default_retry = false`: kube's own retries would repeat creates
    /// behind our back, for minutes.
    pub client: Client,
    /// What is known of the cluster.
    pub caches: Arc<Caches>,
    /// The namespace that this program runs in, which its webhooks leave alone.
    pub own_namespace: String,
    /// Limits per pass of one pool.
    pub limits: Limits,
    /// Most creates, updates, restarts and deletes of VMs under way at once, over all pools.
    pub max_in_flight: usize,
    /// What is counted.
    pub metrics: Metrics,
    /// What decides.
    pub plan: Planner,
    /// Name of this process, for events.
    pub instance: String,
    /// Whether this process may write: asked before every call that does.
    pub leadership: Leadership,
    /// Cancelled when the process is to end: calls under way are finished, none is begun.
    pub shutdown: CancellationToken,
}

/// What all tasks share.
pub(crate) struct Shared {
    calls: Calls,
    caches: Arc<Caches>,
    own_namespace: String,
    permits: Semaphore,
    limits: Limits,
    max_in_flight: usize,
    metrics: Metrics,
    plan: Planner,
    instance: String,
    shutdown: CancellationToken,
}

impl Shared {
    fn new(config: ControllerConfig) -> Self {
        Self {
            calls: Calls::new(config.client, config.leadership),
            caches: config.caches,
            own_namespace: config.own_namespace,
            permits: Semaphore::new(config.max_in_flight.max(1)),
            limits: config.limits,
            max_in_flight: config.max_in_flight.max(1),
            metrics: config.metrics,
            plan: config.plan,
            instance: config.instance,
            shutdown: config.shutdown,
        }
    }

    /// Why nothing is done for objects of this namespace, if so.
    fn declines(&self, namespace: &str) -> Option<String> {
        (namespace == self.own_namespace).then(|| {
            format!(
                "nothing is done in {namespace}, the namespace that vmpool runs in, since its webhooks leave \
                 that one alone: use another namespace"
            )
        })
    }

    /// Waits for a turn. Turns are given in the order of asking, so that no pool waits for all of another's.
    async fn permit(&self) -> SemaphorePermit<'_> {
        self.permits
            .acquire()
            .await
            .expect("nothing closes the semaphore")
    }
}

/// Which task.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
enum Id {
    Config(Key),
    Former,
    Pool(Key),
}

/// A running task, and the UID of the object that it was made for.
struct Running {
    uid: String,
    handle: Handle,
}

/// Runs the controller until `shutdown`. Only one may write at a time in a cluster: whoever drops this future,
/// since the Lease is lost, drops all calls that are under way.
pub async fn run(config: ControllerConfig) {
    let shared = Arc::new(Shared::new(config));
    let mut tasks = Tasks {
        shared: Arc::clone(&shared),
        running: HashMap::new(),
        set: JoinSet::new(),
    };
    wait_for_caches(&shared).await;
    loop {
        tokio::select! {
            () = shared.shutdown.cancelled() => break,
            affected = shared.caches.dirty.take() => {
                for one in affected {
                    tasks.wake(one);
                }
            }
            Some(ended) = tasks.set.join_next() => tasks.ended(ended),
        }
    }
    // They stop with the same token, each after the pass that it is in.
    while tasks.set.join_next().await.is_some() {}
    tracing::info!("Controller stopped");
}

/// Waits until the first decision can be made, and says what it is waiting for. Returns also when that may be
/// for ever: tasks wait for themselves, and are there to say so.
async fn wait_for_caches(shared: &Shared) {
    let patience = std::time::Duration::from_secs(10);
    loop {
        tokio::select! {
            () = shared.shutdown.cancelled() => return,
            () = shared.caches.synced() => {
                tracing::info!("Caches are complete");
                return;
            }
            () = tokio::time::sleep(patience) => {
                let kinds: Vec<_> = shared.caches.waiting_for();
                let kinds: Vec<_> = kinds.iter().map(|kind| kind.as_str()).collect();
                tracing::warn!(kinds = kinds.join(","), "Waiting for caches to be complete");
                if shared.caches.stuck(std::time::Instant::now()).is_some() {
                    return;
                }
            }
        }
    }
}

struct Tasks {
    shared: Arc<Shared>,
    running: HashMap<Id, Running>,
    set: JoinSet<Id>,
}

impl Tasks {
    fn wake(&mut self, affected: Affected) {
        let (id, uid) = match affected {
            Affected::Config(key) => {
                let found = self.shared.caches.config(&key.namespace, &key.name);
                (Id::Config(key), found.map(|config| config.id.uid.clone()))
            }
            Affected::Former => (Id::Former, Some(String::new())),
            Affected::Pool(key) => {
                let found = self.shared.caches.pool(&key.namespace, &key.name);
                (Id::Pool(key), found.map(|pool| pool.id.uid.clone()))
            }
        };
        match (self.running.get(&id), uid) {
            (Some(running), Some(uid)) if running.uid == uid => running.handle.wake(),
            // Its object is gone; another of that name gets its own task when this one has ended.
            (Some(running), _) => running.handle.stop(),
            (None, Some(uid)) => self.start(id, uid),
            (None, None) => {}
        }
    }

    fn start(&mut self, id: Id, uid: String) {
        let handle = Handle::new(&self.shared.shutdown);
        let shared = Arc::clone(&self.shared);
        let metrics = shared.metrics.clone();
        let (run, task_uid) = (handle.clone(), uid.clone());
        let task = id.clone();
        self.set.spawn(async move {
            match &task {
                Id::Config(key) => {
                    let make = |fault| {
                        ConfigTask::new(Arc::clone(&shared), key.clone(), task_uid.clone(), fault)
                    };
                    supervise::run(run, metrics, make).await;
                }
                Id::Former => {
                    let make = |_| FormerTask::new(Arc::clone(&shared));
                    supervise::run(run, metrics, make).await;
                }
                Id::Pool(key) => {
                    let make = |fault| {
                        PoolTask::new(Arc::clone(&shared), key.clone(), task_uid.clone(), fault)
                    };
                    supervise::run(run, metrics, make).await;
                }
            }
            task
        });
        self.running.insert(id, Running { uid, handle });
    }

    /// A task has ended: its object is gone, or another one is there under its name by now.
    fn ended(&mut self, ended: Result<Id, tokio::task::JoinError>) {
        match ended {
            Ok(id) => {
                self.running.remove(&id);
                self.wake(match id {
                    Id::Config(key) => Affected::Config(key),
                    Id::Former => Affected::Former,
                    Id::Pool(key) => Affected::Pool(key),
                });
            }
            // Passes are guarded one by one, so this is a fault in the guard itself.
            Err(error) => std::panic::panic_any(format!("failed to supervise a task: {error}")),
        }
    }
}

/// What the controller's calls need.
pub fn rules() -> Vec<Right> {
    let (pools, configs) = (api::POOL_PLURAL, api::CONFIG_PLURAL);
    let mut rules = vec![
        Right::to(
            "what is said of pools and configs",
            &["patch"],
            api::GROUP,
            &[format!("{pools}/status"), format!("{configs}/status")],
        ),
        Right::to(
            "an owner reference that blocks its owner's deletion needs this where such references are \
             guarded (OwnerReferencesPermissionEnforcement, OpenShift)",
            &["update"],
            api::GROUP,
            &[
                format!("{pools}/finalizers"),
                format!("{configs}/finalizers"),
            ],
        ),
        Right::to(
            "members: made (and by dry run KubeVirt's verdict on configs asked for), looked at before they are changed, \
             updated, released, deleted",
            &["create", "delete", "get", "patch"],
            kubevirt::GROUP,
            &["virtualmachines"],
        ),
        Right::to(
            "what was accepted for a pool is recorded on it together with its replicas, and taken off when it is over",
            &["get", "patch"],
            api::GROUP,
            &[pools],
        ),
        Right::to(
            "revisions: made, numbered, co-owned (which needs delete where owner references are guarded), pruned",
            &["create", "delete", "get", "patch"],
            "apps",
            &["controllerrevisions"],
        ),
        Right::to(
            "events; the same words again count up the event that is there",
            &["create", "patch"],
            "events.k8s.io",
            &["events"],
        ),
    ];
    rules.extend(instance_rules());
    rules
}

/// What its calls about running members need.
fn instance_rules() -> [Right; 3] {
    [
        Right::to(
            "a former member's instance is released with it; that of a member with run strategy Once is \
             restarted by deleting it",
            &["delete", "get", "patch"],
            kubevirt::GROUP,
            &["virtualmachineinstances"],
        ),
        Right::to(
            "and so is its launcher pod: Services and autoscalers select that one; of all namespaces, as pools may \
             be in any and RBAC knows no labels, though only pods of former members' instances are touched",
            &["list", "patch"],
            "",
            &["pods"],
        ),
        Right::to(
            "members take on a new revision with a restart",
            &["update"],
            kubevirt::SUBRESOURCES_GROUP,
            &["virtualmachines/restart"],
        ),
    ]
}
