//! Where pools are read: in the cache, and, whatever is not there or can't be read there, from the API server.
//! That a pool does not exist is said by the API server alone, since a pool is scaled within milliseconds of
//! being made; and nothing is said before the cache is complete, so that a start is no gap of 404s.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use kube::api::{ApiResource, DynamicObject};
use kube::core::ObjectMeta;
use kube::{Api, Client};
use serde_json::{Value, json};

use super::API_VERSION;
use super::path::PoolPath;
use super::refusal::Refusal;
use super::reviews::ask;
use crate::admission::{Lookup, Unavailable};
use crate::api::{POOL_KIND, VirtualMachineConfig, VirtualMachinePool, labels};
use crate::cache::{Caches, Key};

/// So many pools are remembered as just written before those that the cache has caught up with are forgotten.
const WRITTEN: usize = 256;

/// The pools of the cluster.
pub(super) struct Pools {
    client: Client,
    caches: Arc<Caches>,
    /// Resource versions that were written through us: whoever wrote one reads nothing older.
    written: Mutex<HashMap<Key, String>>,
}

/// A pool as it is stored.
#[derive(Clone, Debug)]
pub(super) struct StoredPool {
    /// As this version of the program reads it, or why it can't.
    pub(super) typed: Result<Arc<VirtualMachinePool>, String>,
    /// The whole of it, where it was read from the API server.
    raw: Option<Box<DynamicObject>>,
}

impl Pools {
    pub(super) fn new(client: Client, caches: Arc<Caches>) -> Self {
        Self {
            client,
            caches,
            written: Mutex::default(),
        }
    }

    /// The pool, from the cache if that is sure.
    pub(super) async fn read(&self, path: &PoolPath) -> Result<StoredPool, Refusal> {
        self.ready()?;
        let (namespace, name) = (&path.namespace, &path.name);
        if self.has_caught_up(&Key::new(namespace, name))
            && let Some(entry) = self.caches.pool(namespace, name)
            && let Ok(pool) = &entry.object
        {
            return Ok(StoredPool {
                typed: Ok(Arc::clone(pool)),
                raw: None,
            });
        }
        self.live(path).await
    }

    /// The pool as the API server has it at this moment.
    pub(super) async fn live(&self, path: &PoolPath) -> Result<StoredPool, Refusal> {
        self.ready()?;
        let found = ask("read the pool", self.api(path).get_opt(&path.name)).await?;
        let mut raw = found.ok_or_else(|| Refusal::no_pool(&path.name))?;
        raw.metadata.managed_fields = None;
        let typed = raw.clone().try_parse::<VirtualMachinePool>();
        Ok(StoredPool {
            typed: typed.map(Arc::new).map_err(|error| error.to_string()),
            raw: Some(Box::new(raw)),
        })
    }

    /// The config of that name, as the API server has it at this moment.
    pub(super) async fn config(
        &self,
        namespace: &str,
        name: &str,
    ) -> Lookup<Option<Arc<VirtualMachineConfig>>> {
        let api: Api<VirtualMachineConfig> = Api::namespaced(self.client.clone(), namespace);
        let found = ask("read the config", api.get_opt(name)).await;
        found
            .map(|config| config.map(Arc::new))
            .map_err(|refusal| Unavailable {
                what: format!("config {name}"),
                why: refusal.message().to_owned(),
            })
    }

    /// Calls on the pools of a namespace.
    pub(super) fn api(&self, path: &PoolPath) -> Api<DynamicObject> {
        let resource = ApiResource::erase::<VirtualMachinePool>(&());
        Api::namespaced_with(self.client.clone(), &path.namespace, &resource)
    }

    /// Remembers that this version was written: nothing older is read from the cache.
    pub(super) fn wrote(&self, path: &PoolPath, version: &str) {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        if written.len() >= WRITTEN {
            written.retain(|_, version| !self.caches.pools.has_reached(version));
        }
        let key = Key::new(&path.namespace, &path.name);
        written.insert(key, version.to_owned());
    }

    /// Whether the cache shows what was last written through us.
    fn has_caught_up(&self, key: &Key) -> bool {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        match written.get(key) {
            None => true,
            Some(version) if self.caches.pools.has_reached(version) => {
                written.remove(key);
                true
            }
            Some(_) => false,
        }
    }

    fn ready(&self) -> Result<(), Refusal> {
        if self.caches.pools.is_settled() {
            return Ok(());
        }
        Err(Refusal::unavailable(
            "vmpool has not read the pools yet; try again in a moment",
        ))
    }
}

impl StoredPool {
    /// Its metadata.
    pub(super) fn meta(&self) -> &ObjectMeta {
        match (&self.raw, &self.typed) {
            (Some(raw), _) => &raw.metadata,
            (None, Ok(pool)) => &pool.metadata,
            (None, Err(_)) => unreachable!("what can't be read is kept raw"),
        }
    }

    /// Its resource version.
    pub(super) fn version(&self) -> &str {
        self.meta().resource_version.as_deref().unwrap_or_default()
    }

    /// Its UID.
    pub(super) fn uid(&self) -> &str {
        self.meta().uid.as_deref().unwrap_or_default()
    }

    /// Whether nothing may be done to its VMs.
    pub(super) fn is_paused(&self) -> bool {
        match (&self.typed, &self.raw) {
            (Ok(pool), _) => pool.spec.is_paused(),
            (Err(_), Some(raw)) => raw.data.pointer("/spec/paused") == Some(&true.into()),
            (Err(_), None) => false,
        }
    }

    /// How many VMs it should have.
    pub(super) fn replicas(&self) -> i64 {
        match (&self.typed, &self.raw) {
            (Ok(pool), _) => i64::from(pool.spec.replicas()),
            (Err(_), Some(raw)) => number(&raw.data, "/spec/replicas"),
            (Err(_), None) => 0,
        }
    }

    /// How many VMs it has, and what selects their pods: never empty, also before the first status.
    pub(super) fn observed(&self) -> (i64, String) {
        let by_uid = || format!("{}={}", labels::POOL_UID, self.uid());
        let (replicas, selector) = match (&self.typed, &self.raw) {
            (Ok(pool), _) => {
                let status = pool.status.as_ref();
                let selector = status.and_then(|status| status.label_selector.clone());
                (
                    status.map_or(0, |status| i64::from(status.replicas)),
                    selector,
                )
            }
            (Err(_), Some(raw)) => {
                let selector = raw.data.pointer("/status/labelSelector");
                let selector = selector.and_then(Value::as_str).map(str::to_owned);
                (number(&raw.data, "/status/replicas"), selector)
            }
            (Err(_), None) => (0, None),
        };
        let selector = selector.filter(|selector| !selector.is_empty());
        (replicas, selector.unwrap_or_else(by_uid))
    }

    /// The object in our group: what it says is the CRD's, word for word.
    pub(super) fn to_json(&self) -> Value {
        let json = match (&self.raw, &self.typed) {
            (Some(raw), _) => serde_json::to_value(raw),
            (None, Ok(pool)) => serde_json::to_value(&**pool),
            (None, Err(_)) => Ok(json!({})),
        };
        let mut json = json.expect("what was read as JSON can be written as JSON");
        json["apiVersion"] = API_VERSION.into();
        json["kind"] = POOL_KIND.into();
        json
    }
}

fn number(value: &Value, pointer: &str) -> i64 {
    value.pointer(pointer).and_then(Value::as_i64).unwrap_or(0)
}
