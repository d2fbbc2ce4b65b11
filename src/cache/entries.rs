//! Our own kinds and revisions as the caches keep them. Reading never fails: an object that this version
//! can't decode is kept and known as invalid, so that it neither stops a watch nor is taken for absent.

use std::sync::Arc;

use kube::core::{DynamicObject, ObjectMeta};
use serde_json::{Map, Value};

use super::store::{Index, Key, View};
use crate::api::{
    VirtualMachineConfigStatus, VirtualMachinePool, VirtualMachinePoolStatus, annotations, labels,
};
use crate::json;
use crate::kubevirt::{DiskView, Owner, VmView, VmiView};
use crate::stamp;

/// What every kept object has.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Identity {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// Resource version.
    pub resource_version: String,
    /// Generation of the spec.
    pub generation: i64,
    /// Whether it is going away.
    pub deleting: bool,
}

impl Identity {
    fn read(meta: &ObjectMeta) -> Option<Self> {
        Some(Self {
            namespace: meta.namespace.clone()?,
            name: meta.name.clone()?,
            uid: meta.uid.clone()?,
            resource_version: meta.resource_version.clone().unwrap_or_default(),
            generation: meta.generation.unwrap_or_default(),
            deleting: meta.deletion_timestamp.is_some(),
        })
    }

    /// Namespace and name.
    pub fn key(&self) -> Key {
        Key::new(&self.namespace, &self.name)
    }
}

/// A pool.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolEntry {
    /// Which one.
    pub id: Identity,
    /// The config that it names, read leniently.
    pub config: String,
    /// The revision that it is pinned to, read leniently.
    pub pinned: Option<String>,
    /// The whole object, or why it can't be read.
    pub object: Result<Arc<VirtualMachinePool>, Undecodable>,
}

/// A stored object that this version of the program can't read.
#[derive(Clone, Debug, PartialEq)]
pub struct Undecodable {
    /// Why.
    pub message: String,
    /// Its status, if that can be read.
    pub status: VirtualMachinePoolStatus,
}

impl PoolEntry {
    /// Reads `object`. `None` only if it has no name, namespace or UID, which no stored object lacks.
    pub fn read(mut object: DynamicObject) -> Option<Self> {
        object.metadata.managed_fields = None;
        let id = Identity::read(&object.metadata)?;
        let text = |pointer| {
            object
                .data
                .pointer(pointer)
                .and_then(Value::as_str)
                .map(str::to_owned)
        };
        let (config, pinned) = (text("/spec/config/name"), text("/spec/config/revision"));
        let status = object.data.get("status").cloned();
        let object = object
            .try_parse::<VirtualMachinePool>()
            .map(Arc::new)
            .map_err(|error| Undecodable {
                message: error.to_string(),
                status: status
                    .and_then(|status| serde_json::from_value(status).ok())
                    .unwrap_or_default(),
            });
        Some(Self {
            id,
            config: config.unwrap_or_default(),
            pinned,
            object,
        })
    }

    /// What was last said of it.
    pub fn status(&self) -> VirtualMachinePoolStatus {
        match &self.object {
            Ok(pool) => pool.status.clone().unwrap_or_default(),
            Err(undecodable) => undecodable.status.clone(),
        }
    }

    /// The prefix of its VMs' names; its own name if its spec can't be read.
    pub fn vm_prefix(&self) -> &str {
        match &self.object {
            Ok(pool) => pool.spec.vm_prefix(&self.id.name),
            Err(_) => &self.id.name,
        }
    }
}

impl View for PoolEntry {
    fn key(&self) -> Key {
        self.id.key()
    }

    fn indices(&self) -> Vec<Index> {
        vec![
            Index::Config(Key::new(&self.id.namespace, &self.config)),
            Index::Namespace(self.id.namespace.clone()),
            Index::Uid(self.id.uid.clone()),
        ]
    }

    fn version(&self) -> &str {
        &self.id.resource_version
    }
}

/// A config.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigEntry {
    /// Which one.
    pub id: Identity,
    /// Its spec, as it was written.
    pub spec: Arc<Map<String, Value>>,
    /// `stamp::revision_hash` of the spec.
    pub content_hash: String,
    /// How many revisions are kept, if it says so.
    pub history_limit: Option<usize>,
    /// What was last said of it.
    pub status: VirtualMachineConfigStatus,
    /// Why its spec could not be read as a whole: no VM is to come of a part. The spec is empty then.
    pub unreadable: Option<String>,
}

impl ConfigEntry {
    /// Reads `object`. `None` only if it has no name, namespace or UID.
    pub fn read(object: impl Into<json::Object>) -> Option<Self> {
        let json::Object { mut object, is_cut } = object.into();
        let id = Identity::read(&object.metadata)?;
        let spec = match object.data.get_mut("spec").map(Value::take) {
            Some(Value::Object(spec)) if !is_cut => spec,
            _ => Map::new(),
        };
        let status = object
            .data
            .get_mut("status")
            .map(Value::take)
            .and_then(|status| serde_json::from_value(status).ok());
        Some(Self {
            id,
            content_hash: stamp::revision_hash(&spec),
            spec: Arc::new(spec),
            history_limit: object
                .metadata
                .annotations
                .as_ref()
                .and_then(|map| map.get(annotations::REVISION_HISTORY_LIMIT))
                .and_then(|limit| limit.parse().ok()),
            status: status.unwrap_or_default(),
            unreadable: is_cut.then(|| {
                format!(
                    "the spec is nested deeper than can be read: at most {} levels",
                    json::MAX_DEPTH
                )
            }),
        })
    }
}

impl View for ConfigEntry {
    fn key(&self) -> Key {
        self.id.key()
    }

    fn indices(&self) -> Vec<Index> {
        Vec::new()
    }

    fn version(&self) -> &str {
        &self.id.resource_version
    }
}

/// A revision of a config: an `apps/v1 ControllerRevision` with our label.
#[derive(Clone, Debug, PartialEq)]
pub struct RevisionEntry {
    /// Which one.
    pub id: Identity,
    /// The config's name, from the label.
    pub config: String,
    /// `.revision`: the highest is the newest.
    pub number: i64,
    /// All owners.
    pub owners: Vec<Owner>,
    /// The config's spec; empty if it holds none.
    pub spec: Arc<Map<String, Value>>,
    /// `stamp::revision_hash` of the spec.
    pub content_hash: String,
}

impl RevisionEntry {
    /// Reads `object`. `None` only if it has no name, namespace, UID or label, or is nested deeper than any
    /// that this program makes: nothing is to be stamped from a part.
    pub fn read(object: impl Into<json::Object>) -> Option<Self> {
        let json::Object { mut object, is_cut } = object.into();
        if is_cut {
            return None;
        }
        let id = Identity::read(&object.metadata)?;
        let spec = match object.data.pointer_mut("/data/spec").map(Value::take) {
            Some(Value::Object(spec)) => spec,
            _ => Map::new(),
        };
        let owners = object.metadata.owner_references.iter().flatten();
        Some(Self {
            id,
            config: object
                .metadata
                .labels
                .as_ref()?
                .get(labels::CONFIG)?
                .clone(),
            number: object
                .data
                .get("revision")
                .and_then(Value::as_i64)
                .unwrap_or_default(),
            owners: owners.map(Owner::from).collect(),
            content_hash: stamp::revision_hash(&spec),
            spec: Arc::new(spec),
        })
    }

    /// Whether the object with that UID is among the owners.
    pub fn is_owned_by(&self, uid: &str) -> bool {
        self.owners.iter().any(|owner| owner.uid == uid)
    }
}

impl View for RevisionEntry {
    fn key(&self) -> Key {
        self.id.key()
    }

    fn indices(&self) -> Vec<Index> {
        vec![Index::Config(Key::new(&self.id.namespace, &self.config))]
    }

    fn version(&self) -> &str {
        &self.id.resource_version
    }
}

impl View for VmView {
    fn key(&self) -> Key {
        Key::new(&self.namespace, &self.name)
    }

    fn indices(&self) -> Vec<Index> {
        let owner = self.owner.as_ref().filter(|owner| owner.is_pool());
        let member_of = self.annotations.get(annotations::MEMBER_OF);
        let revision = self.labels.get(labels::REVISION);
        [
            owner.map(|owner| Index::Owner(owner.uid.clone())),
            member_of.map(|uid| Index::MemberOf(uid.clone())),
            revision.map(|name| Index::Revision(Key::new(&self.namespace, name))),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    fn version(&self) -> &str {
        &self.resource_version
    }
}

impl View for VmiView {
    fn key(&self) -> Key {
        Key::new(&self.namespace, &self.name)
    }

    fn indices(&self) -> Vec<Index> {
        self.revision
            .iter()
            .map(|name| Index::Revision(Key::new(&self.namespace, name)))
            .collect()
    }

    fn version(&self) -> &'static str {
        ""
    }
}

impl View for DiskView {
    fn key(&self) -> Key {
        Key::new(&self.namespace, &self.name)
    }

    fn indices(&self) -> Vec<Index> {
        self.persistent_state_for
            .iter()
            .map(|vm| Index::PersistentStateFor(Key::new(&self.namespace, vm)))
            .collect()
    }

    fn version(&self) -> &'static str {
        ""
    }
}
