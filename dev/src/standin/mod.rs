//! A stand-in for KubeVirt and CDI on a control plane without nodes: VMs get instances, launcher
//! pods, disks and statuses as the real controllers give them, and nothing ever runs.
//!
//! What is played, and where each behaviour was read or seen, stands in `dev/STANDIN.md`. The
//! decisions are functions of the objects (`vm.rs`, `vmi.rs`, `datavolume.rs`, …); around them are
//! a cache kept by watches, a work queue and a few workers. It must never know of pools: it sees
//! VMs as KubeVirt does.

mod api;
mod cache;
mod calls;
mod datavolume;
mod history;
mod kinds;
mod knobs;
mod live_update;
mod names;
mod nodes;
mod object;
mod pod;
mod queue;
mod serve;
mod shared;
mod start;
mod subresources;
mod vm;
mod vm_status;
mod vmi;
mod vmi_status;
mod volumes;
mod watch;
mod work;
mod work_disk;
mod work_vm;
mod work_vmi;
mod writer;

#[cfg(test)]
mod recorded;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use kube::Client;
use tokio::task::JoinSet;

pub use self::history::{Event, Record};
pub use self::knobs::{GuestEnd, Knobs, NodeSpec, Options};
pub use self::subresources::Refusal;

use self::api::{Api, PatchType, code};
use self::calls::{Decide, Wishes};
use self::kinds::Kind;
use self::object::{Key, uid};
use self::shared::Shared;
use crate::extension::Extension;

/// How often [`Standin::ready`] looks.
const LOOK: Duration = Duration::from_millis(20);

/// A running stand-in. Dropping it stops it; what it made stays.
pub struct Standin {
    shared: Arc<Shared>,
    /// KubeVirt's subresource API, where it is played.
    served: Option<Extension>,
    tasks: JoinSet<()>,
}

impl Standin {
    /// Starts playing with this client, which must be allowed everything (`system:masters`).
    ///
    /// KubeVirt's and CDI's CRDs may be there or come later. The client should not retry by
    /// itself for long (`Config::default_retry`), or a restart of the API server is noticed late.
    pub async fn start(client: Client, options: Options) -> Result<Self> {
        let shared = Arc::new(Shared::new(Api::new(client), options));
        make_nodes(&shared).await?;
        let served = match shared.options.without_subresources {
            true => None,
            false => Some(serve::serve(&shared).await?),
        };
        let mut tasks = JoinSet::new();
        for kind in Kind::ALL {
            let shared = shared.clone();
            tasks.spawn(async move { watch::run(&shared, kind).await });
        }
        let timers = shared.clone();
        tasks.spawn(async move { timers.queue.run_timers().await });
        for _ in 0..shared.options.workers.max(1) {
            let shared = shared.clone();
            tasks.spawn(async move {
                // A decision on half a cache would make a second instance of a running VM.
                while !shared.cache.is_listed() {
                    tokio::time::sleep(LOOK).await;
                }
                work::run(&shared).await;
            });
        }
        Ok(Self {
            shared,
            served,
            tasks,
        })
    }

    /// Waits until the caches are filled and VMs are being looked after.
    pub async fn ready(&self) {
        while !self.shared.cache.is_listed() {
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits until the API server forwards to `subresources.kubevirt.io`.
    pub async fn served(&self) -> Result<()> {
        match &self.served {
            Some(served) => served.available().await,
            None => Ok(()),
        }
    }

    /// Ends all tasks, as a crash would: a write under way may or may not have been done.
    pub async fn stop(mut self) {
        self.tasks.shutdown().await;
    }

    /// Sets speed and faults for a VM, until [`Standin::reset`]; they go before its annotations.
    pub fn set(&self, namespace: &str, vm: &str, knobs: Knobs) {
        let key = Key::new(namespace, vm);
        self.shared.table().vms.insert(key.clone(), knobs);
        self.shared.queue.add(queue::Work::Vmi(key));
    }

    /// Takes back what [`Standin::set`] set for a VM.
    pub fn reset(&self, namespace: &str, vm: &str) {
        let key = Key::new(namespace, vm);
        self.shared.table().vms.remove(&key);
        self.shared.queue.add(queue::Work::Vmi(key));
    }

    /// Lets at most so many VMs run in the whole cluster; those running stay.
    pub fn set_capacity(&self, most: Option<usize>) {
        for waiting in self.shared.nodes.set_total(most) {
            self.shared.queue.add(queue::Work::Vmi(waiting));
        }
    }

    /// A node goes silent: its Ready is Unknown, its VMs are no longer Ready and cannot stop.
    pub async fn lose_node(&self, node: &str) -> Result<()> {
        self.set_node(node, true).await
    }

    /// A silent node answers again.
    pub async fn restore_node(&self, node: &str) -> Result<()> {
        self.set_node(node, false).await
    }

    /// Ends a running guest from within. Nothing happens to a VM that does not run.
    pub fn end_guest(&self, namespace: &str, vm: &str, end: GuestEnd) {
        let key = Key::new(namespace, vm);
        let kind = Kind::VirtualMachineInstance;
        if let Some(vmi) = self.shared.cache.get(kind, &key) {
            let ends = &mut self.shared.table().ends;
            ends.insert(uid(&vmi).to_owned(), end);
        }
        self.shared.queue.add(queue::Work::Vmi(key));
    }

    /// What `virtctl start` does. The error of a refused call is a [`Refusal`].
    pub async fn start_vm(&self, namespace: &str, vm: &str) -> Result<()> {
        self.call(namespace, vm, subresources::start).await
    }

    /// What `virtctl stop` does. The error of a refused call is a [`Refusal`].
    pub async fn stop_vm(&self, namespace: &str, vm: &str) -> Result<()> {
        self.call(namespace, vm, subresources::stop).await
    }

    /// What `virtctl restart` does. The error of a refused call is a [`Refusal`].
    pub async fn restart_vm(&self, namespace: &str, vm: &str) -> Result<()> {
        self.call(namespace, vm, subresources::restart).await
    }

    /// Everything that happened to instances since the start or the last [`Standin::forget`].
    pub fn history(&self) -> Vec<Record> {
        self.shared.history.all()
    }

    /// How often something happened to a VM.
    pub fn count(&self, namespace: &str, vm: &str, event: Event) -> usize {
        let counts = |record: &&Record| {
            record.event == event && record.namespace == namespace && record.vm == vm
        };
        self.history().iter().filter(counts).count()
    }

    /// Empties the history.
    pub fn forget(&self) {
        self.shared.history.clear();
    }

    async fn set_node(&self, node: &str, lost: bool) -> Result<()> {
        self.shared.nodes.set_lost(node, lost);
        let key = Key::new("", node);
        let status = nodes::node_status(!lost, vmpool::clock::now());
        let strategic = PatchType::Strategic;
        let api = &self.shared.api;
        api.patch_as(Kind::Node, &key, "status", strategic, &status)
            .await
            .with_context(|| format!("failed to report the status of node {node:?}"))?;
        self.shared.wake_all_instances();
        Ok(())
    }

    async fn call(&self, namespace: &str, vm: &str, decide: Decide) -> Result<()> {
        let key = Key::new(namespace, vm);
        calls::call(&self.shared, &key, Wishes::default(), decide).await
    }
}

async fn make_nodes(shared: &Shared) -> Result<()> {
    for spec in &shared.options.nodes {
        let made = shared.api.create(Kind::Node, "", &nodes::node(spec)).await;
        match made {
            Err(error) if code(&error) == 409 => {}
            other => {
                other.with_context(|| format!("failed to make node {:?}", spec.name))?;
            }
        }
        let key = Key::new("", &spec.name);
        let status = nodes::node_status(true, vmpool::clock::now());
        shared
            .api
            .patch_as(Kind::Node, &key, "status", PatchType::Strategic, &status)
            .await
            .with_context(|| format!("failed to report the status of node {:?}", spec.name))?;
    }
    Ok(())
}
