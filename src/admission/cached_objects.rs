//! [`Objects`] for a running program: what stands in the caches is answered from there, everything else by
//! the API server.
//!
//! A cached pool or revision that is *found* is good enough to stamp from: the controller made the VM from the
//! same cache. That something does *not* exist is never said from a cache, and what is judged across objects
//! is asked for live, since a user's next command follows the last within milliseconds.

use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::Value;

use super::objects::{LiveObjects, Lookup, Named, Objects, StoredRevision, VmName};
use crate::api::{VirtualMachineConfig, VirtualMachinePool};
use crate::cache::Caches;
use crate::kubevirt::verdict::Verdict;

/// The caches first, where that is safe.
#[derive(Clone)]
pub struct CachedObjects {
    caches: Arc<Caches>,
    live: LiveObjects,
}

impl CachedObjects {
    /// Caches, and whom to ask when they don't know.
    pub fn new(caches: Arc<Caches>, live: LiveObjects) -> Self {
        Self { caches, live }
    }
}

impl Objects for CachedObjects {
    fn config<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Lookup<Option<Arc<VirtualMachineConfig>>>> {
        self.live.config(namespace, name)
    }

    fn pool<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Lookup<Option<Arc<VirtualMachinePool>>>> {
        let cached = self.caches.pool(namespace, name);
        match cached.and_then(|entry| entry.object.as_ref().ok().map(Arc::clone)) {
            Some(pool) => Box::pin(std::future::ready(Ok(Some(pool)))),
            None => self.live.pool(namespace, name),
        }
    }

    fn pools<'a>(
        &'a self,
        namespace: &'a str,
    ) -> BoxFuture<'a, Lookup<Vec<Arc<VirtualMachinePool>>>> {
        self.live.pools(namespace)
    }

    fn revision<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Lookup<Option<Arc<StoredRevision>>>> {
        match self.caches.revision(namespace, name) {
            Some(entry) => {
                let revision = StoredRevision {
                    name: entry.id.name.clone(),
                    config: entry.config.clone(),
                    content_hash: entry.content_hash.clone(),
                    spec: Arc::clone(&entry.spec),
                };
                Box::pin(std::future::ready(Ok(Some(Arc::new(revision)))))
            }
            None => self.live.revision(namespace, name),
        }
    }

    fn exists<'a>(&'a self, namespace: &'a str, named: &'a Named) -> BoxFuture<'a, Lookup<bool>> {
        match named {
            Named::Claim(name) if self.caches.claims.get(namespace, name).is_some() => {
                Box::pin(std::future::ready(Ok(true)))
            }
            Named::Claim(_) | Named::ConfigMap(_) | Named::DataVolume(_) => {
                self.live.exists(namespace, named)
            }
        }
    }

    fn dry_run<'a>(&'a self, namespace: &'a str, vm: &'a Value) -> BoxFuture<'a, Verdict> {
        self.live.dry_run(namespace, vm)
    }

    fn vms<'a>(
        &'a self,
        namespace: &'a str,
        prefix: &'a str,
    ) -> BoxFuture<'a, Lookup<Vec<VmName>>> {
        self.live.vms(namespace, prefix)
    }
}
