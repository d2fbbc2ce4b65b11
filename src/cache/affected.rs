//! Which pools and configs a change concerns. Says only who is to look again; what they do about it is
//! decided from the caches as they are by then, so marking one too many costs time and nothing else.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;

use super::entries::{ConfigEntry, PoolEntry, RevisionEntry};
use super::store::{Change, Index, Key};
use super::{Caches, Kind};
use crate::api::{annotations, labels};
use crate::kubevirt::{DiskView, VmView, VmiView};

/// Who is to look again.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Affected {
    /// A config.
    Config(Key),
    /// The VMs whose pool is gone.
    Former,
    /// A pool.
    Pool(Key),
}

/// Those who are to look again, each once, however much has changed: a thousand events about one pool cost
/// one entry.
#[derive(Debug, Default)]
pub struct Dirty {
    marked: Mutex<HashSet<Affected>>,
    notify: Notify,
}

impl Dirty {
    /// Marks these.
    pub fn mark(&self, affected: impl IntoIterator<Item = Affected>) {
        let mut marked = self.marked.lock().unwrap_or_else(PoisonError::into_inner);
        let before = marked.len();
        marked.extend(affected);
        if marked.len() > before {
            self.notify.notify_one();
        }
    }

    /// Waits until something is marked, and takes all of it. For one caller at a time.
    pub async fn take(&self) -> HashSet<Affected> {
        loop {
            {
                let mut marked = self.marked.lock().unwrap_or_else(PoisonError::into_inner);
                if !marked.is_empty() {
                    return std::mem::take(&mut marked);
                }
            }
            self.notify.notified().await;
        }
    }
}

/// A kind whose changes concern pools or configs.
pub(super) trait Concerns: Sized {
    /// Who is concerned by `change`.
    fn concerns(caches: &Caches, change: &Change<Self>) -> Vec<Affected>;
}

impl Concerns for PoolEntry {
    /// The pool; its config when what that counts or keeps has changed; the VMs that it leaves behind.
    fn concerns(_: &Caches, change: &Change<Self>) -> Vec<Affected> {
        let (old, new) = (change.old.as_deref(), change.new.as_deref());
        let mut affected: Vec<_> = either(change)
            .take(1)
            .map(|pool| Affected::Pool(pool.id.key()))
            .collect();
        let use_of = |pool: &PoolEntry| {
            let target = pool.status().target_revision;
            (
                pool.id.uid.clone(),
                pool.config.clone(),
                pool.pinned.clone(),
                target,
            )
        };
        if old.map(use_of) != new.map(use_of) {
            affected.extend(
                either(change)
                    .map(|pool| Affected::Config(Key::new(&pool.id.namespace, &pool.config))),
            );
        }
        if old.is_some_and(|old| new.is_none_or(|new| new.id.uid != old.id.uid)) {
            affected.push(Affected::Former);
        }
        affected
    }
}

impl Concerns for ConfigEntry {
    fn concerns(caches: &Caches, change: &Change<Self>) -> Vec<Affected> {
        let Some(config) = either(change).next() else {
            return Vec::new();
        };
        let mut affected = pools_of_config(caches, &config.id.key());
        affected.push(Affected::Config(config.id.key()));
        affected
    }
}

impl Concerns for RevisionEntry {
    fn concerns(caches: &Caches, change: &Change<Self>) -> Vec<Affected> {
        let Some(revision) = either(change).next() else {
            return Vec::new();
        };
        let config = Key::new(&revision.id.namespace, &revision.config);
        let mut affected = pools_of_config(caches, &config);
        affected.push(Affected::Config(config));
        affected
    }
}

impl Concerns for VmView {
    /// The pool that controls it and the one that it is marked for, before and after; its config when a
    /// revision may have lost its last user.
    fn concerns(caches: &Caches, change: &Change<Self>) -> Vec<Affected> {
        let mut affected = Vec::new();
        for vm in either(change) {
            let owner = vm.owner.as_ref().filter(|owner| owner.is_pool());
            if let Some(owner) = owner {
                affected.extend(pool_of_uid(caches, &owner.uid));
            }
            if let Some(uid) = vm.annotations.get(annotations::MEMBER_OF)
                && owner.is_none_or(|owner| owner.uid != *uid)
            {
                affected.push(pool_of_uid(caches, uid).unwrap_or(Affected::Former));
            }
        }
        let revision = |vm: &VmView| vm.labels.get(labels::REVISION).cloned();
        if let Some(old) = change.old.as_deref()
            && let Some(config) = old.labels.get(labels::CONFIG)
            && revision(old) != change.new.as_deref().and_then(revision)
        {
            affected.push(Affected::Config(Key::new(&old.namespace, config)));
        }
        affected
    }
}

impl Concerns for VmiView {
    /// The pool of its VM.
    fn concerns(caches: &Caches, change: &Change<Self>) -> Vec<Affected> {
        let Some(vmi) = either(change).next() else {
            return Vec::new();
        };
        let Some(vm) = caches.vms.get(&vmi.namespace, &vmi.name) else {
            return Vec::new();
        };
        let mut affected: Vec<_> = vm
            .owner
            .as_ref()
            .filter(|owner| owner.is_pool())
            .and_then(|owner| pool_of_uid(caches, &owner.uid))
            .into_iter()
            .collect();
        if let Some(old) = change.old.as_deref()
            && change.new.as_deref().map(|new| &new.revision) != Some(&old.revision)
            && let Some(config) = vm.labels.get(labels::CONFIG)
        {
            affected.push(Affected::Config(Key::new(&vm.namespace, config)));
        }
        affected
    }
}

impl Concerns for DiskView {
    /// The pools whose VMs could have a disk of that name.
    fn concerns(caches: &Caches, change: &Change<Self>) -> Vec<Affected> {
        let Some(disk) = either(change).next() else {
            return Vec::new();
        };
        let vm = disk.persistent_state_for.as_deref();
        caches
            .pools
            .select(&Index::Namespace(disk.namespace.clone()))
            .iter()
            .filter(|pool| {
                let may_be = |name: &str| {
                    name.strip_prefix(pool.vm_prefix())
                        .is_some_and(|rest| rest.starts_with('-'))
                };
                may_be(&disk.name) || vm.is_some_and(may_be)
            })
            .map(|pool| Affected::Pool(pool.id.key()))
            .collect()
    }
}

/// Everybody: for when a cache has become complete, or empty for good.
pub(super) fn everybody(caches: &Caches, kind: Kind) -> Vec<Affected> {
    tracing::debug!(cache = kind.as_str(), "Cache changed state");
    let pools = caches.pools.all();
    let configs = caches.configs.all();
    pools
        .iter()
        .map(|pool| Affected::Pool(pool.id.key()))
        .chain(
            configs
                .iter()
                .map(|config| Affected::Config(config.id.key())),
        )
        .chain([Affected::Former])
        .collect()
}

fn pool_of_uid(caches: &Caches, uid: &str) -> Option<Affected> {
    let pools = caches.pools.select(&Index::Uid(uid.to_owned()));
    pools.first().map(|pool| Affected::Pool(pool.id.key()))
}

fn pools_of_config(caches: &Caches, config: &Key) -> Vec<Affected> {
    let pools = caches.pools.select(&Index::Config(config.clone()));
    pools
        .iter()
        .map(|pool| Affected::Pool(pool.id.key()))
        .collect()
}

fn either<V>(change: &Change<V>) -> impl Iterator<Item = &V> {
    change
        .old
        .as_deref()
        .into_iter()
        .chain(change.new.as_deref())
}
