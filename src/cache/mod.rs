//! What the program knows of the cluster: pools, configs and their revisions, VMs and instances of all
//! namespaces, DataVolumes and claims, each in a store that one watch feeds. Only reads from the cluster,
//! decides nothing.
//!
//! Decisions wait for [`Caches::is_synced`]. VMs are watched without a selector, since losing a label must
//! not lose a member; of those that are not ours next to nothing is kept. DataVolumes and claims are watched
//! as metadata, since the disk check reads nothing else. Kinds that are not installed are waited for
//! (KubeVirt, CDI, and our own), and that they are not is itself an answer: see [`Store::installed`]. A kind
//! that can't be read holds all decisions up, and everybody is told so ([`trouble`]); one object that can't be
//! read holds up nothing.

mod affected;
mod entries;
mod metrics;
mod store;
#[cfg(test)]
mod tests;
mod trouble;
mod watch;

use std::sync::Arc;

use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::Client;
use kube::api::ApiResource;
use tokio::sync::watch as channel;

pub use affected::{Affected, Dirty};
pub use entries::{ConfigEntry, Identity, PoolEntry, RevisionEntry, Undecodable};
pub use metrics::CacheMetrics;
pub use store::{Change, Index, Key, Step, Store, View};

use crate::api::{self, labels};
use crate::json::{Head, Object};
use crate::kubevirt::{self, DiskView, VmView, VmiView};
use crate::rights::Right;

/// Every store.
#[derive(Debug)]
pub struct Caches {
    /// Pools.
    pub pools: Store<PoolEntry>,
    /// Configs.
    pub configs: Store<ConfigEntry>,
    /// Revisions of configs.
    pub revisions: Store<RevisionEntry>,
    /// VMs of all namespaces.
    pub vms: Store<VmView>,
    /// Instances of all namespaces.
    pub vmis: Store<VmiView>,
    /// DataVolumes.
    pub data_volumes: Store<DiskView>,
    /// PersistentVolumeClaims.
    pub claims: Store<DiskView>,
    /// Who is to look again.
    pub dirty: Dirty,
    synced: channel::Sender<bool>,
    troubles: trouble::Troubles,
}

/// The kinds that are kept.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Kind {
    /// PersistentVolumeClaims.
    Claims,
    /// Configs.
    Configs,
    /// DataVolumes.
    DataVolumes,
    /// Pools.
    Pools,
    /// ControllerRevisions of configs.
    Revisions,
    /// VMs.
    Vms,
    /// Instances.
    Vmis,
}

impl Kind {
    /// For logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Claims => "persistentvolumeclaims",
            Self::Configs => "virtualmachineconfigs",
            Self::DataVolumes => "datavolumes",
            Self::Pools => "virtualmachinepools",
            Self::Revisions => "controllerrevisions",
            Self::Vms => "virtualmachines",
            Self::Vmis => "virtualmachineinstances",
        }
    }
}

impl Default for Caches {
    fn default() -> Self {
        Self {
            pools: Store::default(),
            configs: Store::default(),
            revisions: Store::default(),
            vms: Store::default(),
            vmis: Store::default(),
            data_volumes: Store::default(),
            claims: Store::default(),
            dirty: Dirty::default(),
            synced: channel::Sender::new(false),
            troubles: trouble::Troubles::default(),
        }
    }
}

impl Caches {
    /// Whether everything that a decision reads is complete. A kind that is not installed has nothing to
    /// wait for.
    pub fn is_synced(&self) -> bool {
        self.waiting_for().is_empty()
    }

    /// The caches that are not complete.
    pub fn waiting_for(&self) -> Vec<Kind> {
        [
            (Kind::Pools, self.pools.is_settled()),
            (Kind::Configs, self.configs.is_settled()),
            (Kind::Revisions, self.revisions.is_settled()),
            (Kind::Vms, self.vms.is_settled()),
            (Kind::Vmis, self.vmis.is_settled()),
            (Kind::DataVolumes, self.data_volumes.is_settled()),
            (Kind::Claims, self.claims.is_settled()),
        ]
        .into_iter()
        .filter(|(_, settled)| !settled)
        .map(|(kind, _)| kind)
        .collect()
    }

    /// Returns as soon as everything is complete.
    pub async fn synced(&self) {
        let mut synced = self.synced.subscribe();
        while !self.is_synced() {
            if synced.changed().await.is_err() {
                return;
            }
        }
    }

    /// Whether KubeVirt's kinds are there.
    pub fn kubevirt_installed(&self) -> bool {
        self.vms.installed() == Some(true) && self.vmis.installed() == Some(true)
    }

    /// Whether CDI's kinds are there.
    pub fn cdi_installed(&self) -> bool {
        self.data_volumes.installed() == Some(true)
    }

    /// The pool of that name.
    pub fn pool(&self, namespace: &str, name: &str) -> Option<Arc<PoolEntry>> {
        self.pools.get(namespace, name)
    }

    /// The pools of a namespace.
    pub fn pools_in(&self, namespace: &str) -> Vec<Arc<PoolEntry>> {
        self.pools.select(&Index::Namespace(namespace.to_owned()))
    }

    /// The pools that name a config.
    pub fn pools_of_config(&self, namespace: &str, config: &str) -> Vec<Arc<PoolEntry>> {
        self.pools
            .select(&Index::Config(Key::new(namespace, config)))
    }

    /// The config of that name.
    pub fn config(&self, namespace: &str, name: &str) -> Option<Arc<ConfigEntry>> {
        self.configs.get(namespace, name)
    }

    /// The revision of that name.
    pub fn revision(&self, namespace: &str, name: &str) -> Option<Arc<RevisionEntry>> {
        self.revisions.get(namespace, name)
    }

    /// The revisions of a config, the newest last.
    pub fn revisions_of_config(&self, namespace: &str, config: &str) -> Vec<Arc<RevisionEntry>> {
        let mut revisions = self
            .revisions
            .select(&Index::Config(Key::new(namespace, config)));
        revisions.sort_by(|a, b| (a.number, &a.id.name).cmp(&(b.number, &b.id.name)));
        revisions
    }

    /// The VM of that name.
    pub fn vm(&self, namespace: &str, name: &str) -> Option<Arc<VmView>> {
        self.vms.get(namespace, name)
    }

    /// The VMs that a pool controls.
    pub fn members_of(&self, pool_uid: &str) -> Vec<Arc<VmView>> {
        self.vms.select(&Index::Owner(pool_uid.to_owned()))
    }

    /// Watches everything. Never returns; a panic in any watch is one of this future, which is to end the
    /// process: with a cache that has stopped, decisions would silently be made from the past.
    pub async fn run(self: Arc<Self>, client: Client) {
        Box::pin(feeds(&self, &client)).await;
    }

    fn announce(&self) {
        let synced = self.is_synced();
        self.synced.send_if_modified(|before| {
            let changed = *before != synced;
            *before = synced;
            changed
        });
    }
}

/// All feeds at once, in one task: they take turns in decoding, which keeps what is in memory at one time low.
async fn feeds(caches: &Caches, client: &Client) {
    macro_rules! feed {
        ($kind:ident, $store:ident) => {
            watch::Feed {
                caches,
                kind: Kind::$kind,
                store: &caches.$store,
            }
        };
    }
    let claim = ApiResource::erase::<PersistentVolumeClaim>(&());
    let config = ApiResource::erase::<api::VirtualMachineConfig>(&());
    let data_volume = kubevirt::data_volume();
    let pool = ApiResource::erase::<api::VirtualMachinePool>(&());
    let revision = ApiResource::erase::<ControllerRevision>(&());
    let (vm, vmi) = (
        kubevirt::virtual_machine(),
        kubevirt::virtual_machine_instance(),
    );
    let (claims, data_volumes) = (feed!(Claims, claims), feed!(DataVolumes, data_volumes));
    let (configs, pools) = (feed!(Configs, configs), feed!(Pools, pools));
    let (revisions, vms, vmis) = (
        feed!(Revisions, revisions),
        feed!(Vms, vms),
        feed!(Vmis, vmis),
    );
    let disk = |object: Head| DiskView::read(&object.metadata, &object.phase);
    tokio::join!(
        claims.run(client, &claim, None, disk),
        configs.run(client, &config, None, |object: Object| ConfigEntry::read(
            object
        )),
        data_volumes.run(client, &data_volume, None, disk),
        pools.run(client, &pool, None, |object: Object| PoolEntry::read(
            object.object
        )),
        revisions.run(client, &revision, Some(labels::CONFIG), |object: Object| {
            RevisionEntry::read(object)
        }),
        vms.run(client, &vm, None, |object: Object| VmView::read(
            &object.object
        )),
        vmis.run(client, &vmi, None, |object: Object| VmiView::read(
            &object.object
        )),
    );
}

/// What the watches need.
pub fn rules() -> Vec<Right> {
    let watch = |why, group, resources: &[&str]| {
        Right::to(why, &["get", "list", "watch"], group, resources)
    };
    vec![
        watch(
            "both of our kinds",
            api::GROUP,
            &[api::POOL_PLURAL, api::CONFIG_PLURAL],
        ),
        watch(
            "members, and who else has a name that a member would get",
            kubevirt::GROUP,
            &["virtualmachines", "virtualmachineinstances"],
        ),
        watch(
            "the disk check: a name that is in use, also by a disk that is going away",
            kubevirt::CDI_GROUP,
            &["datavolumes"],
        ),
        watch("the same of claims", "", &["persistentvolumeclaims"]),
        watch("revisions of configs", "apps", &["controllerrevisions"]),
    ]
}
