//! Objects and caches for tests: `caches().pool(pool("web", "uid-web")).vm(vm("web-1")).done()`. Everything is
//! read from JSON, the way that the watches read it.

use kube::core::{DynamicObject, ObjectMeta};
use serde_json::{Value, json};

use crate::api::{annotations, labels};
use crate::cache::{Caches, ConfigEntry, PoolEntry, RevisionEntry, Step, Store, View};
use crate::kubevirt::{DiskView, VmView, VmiView};
use crate::stamp;

/// Where everything here is.
pub(super) const NAMESPACE: &str = "tests";

/// An object being put together.
#[derive(Clone, Debug)]
pub(super) struct Object(pub(super) Value);

fn object(api_version: &str, kind: &str, name: &str) -> Object {
    Object(json!({
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "uid": format!("uid-{name}"),
            "resourceVersion": "100",
            "generation": 1,
        },
    }))
}

/// A pool of one replica, of the config `desktop`.
pub(super) fn pool(name: &str, uid: &str) -> Object {
    let mut pool = object("vmpool.dev/v1alpha1", "VirtualMachinePool", name).uid(uid);
    pool.0["spec"] = json!({"replicas": 1, "config": {"name": "desktop"}});
    pool
}

/// A config with this spec.
pub(super) fn config(name: &str, spec: Value) -> Object {
    let mut config = object("vmpool.dev/v1alpha1", "VirtualMachineConfig", name);
    config.0["spec"] = spec;
    config
}

/// The revision of that config's spec with this number.
pub(super) fn revision(config: &str, spec: Value, number: i64) -> Object {
    let hash = stamp::revision_hash(spec.as_object().unwrap());
    let name = stamp::revision_name(config, &hash);
    let mut revision = object("apps/v1", "ControllerRevision", &name);
    revision.0["metadata"]["labels"] = json!({labels::CONFIG: config});
    revision.0["data"] = json!({"spec": spec});
    revision.0["revision"] = number.into();
    revision
}

/// A VM of nobody's.
pub(super) fn vm(name: &str) -> Object {
    let mut vm = object("kubevirt.io/v1", "VirtualMachine", name);
    vm.0["spec"] = json!({"runStrategy": "Always", "template": {"spec": {"domain": {}}}});
    vm
}

/// The instance of the VM with that name.
pub(super) fn vmi(name: &str) -> Object {
    let mut vmi = object("kubevirt.io/v1", "VirtualMachineInstance", name);
    vmi.0["metadata"]["uid"] = format!("uid-vmi-{name}").into();
    vmi.0["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "name": name,
        "uid": format!("uid-{name}"),
        "controller": true,
    }]);
    vmi.0["status"] = json!({"phase": "Running"});
    vmi
}

/// A DataVolume or claim.
pub(super) fn disk(name: &str) -> Object {
    object("v1", "PersistentVolumeClaim", name)
}

impl Object {
    pub(super) fn uid(mut self, uid: &str) -> Self {
        self.0["metadata"]["uid"] = uid.into();
        self
    }

    pub(super) fn version(mut self, version: u64) -> Self {
        self.0["metadata"]["resourceVersion"] = version.to_string().into();
        self
    }

    pub(super) fn set(mut self, pointer: &str, value: Value) -> Self {
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        self.0.pointer_mut(parent).unwrap()[key] = value;
        self
    }

    pub(super) fn replicas(self, replicas: u32) -> Self {
        self.set("/spec/replicas", replicas.into())
    }

    pub(super) fn deleting(self) -> Self {
        self.set("/metadata/deletionTimestamp", "2026-01-01T00:00:00Z".into())
    }

    pub(super) fn label(mut self, key: &str, value: &str) -> Self {
        self.0["metadata"]["labels"][key] = value.into();
        self
    }

    /// Controlled by the pool with that name and UID.
    pub(super) fn owner(self, pool: &str, uid: &str) -> Self {
        let reference = stamp::owner_reference(&stamp::PoolIdentity { name: pool, uid });
        self.set("/metadata/ownerReferences", json!([reference]))
    }

    /// Owned by an object of KubeVirt's, CDI's or whose ever.
    pub(super) fn owned_by(mut self, api_version: &str, kind: &str, name: &str, uid: &str) -> Self {
        let reference = json!({"apiVersion": api_version, "kind": kind, "name": name, "uid": uid});
        match &mut self.0["metadata"]["ownerReferences"] {
            Value::Array(owners) => owners.push(reference),
            owners => *owners = json!([reference]),
        }
        self
    }

    pub(super) fn member_of(mut self, uid: &str) -> Self {
        self.0["metadata"]["annotations"][annotations::MEMBER_OF] = uid.into();
        self
    }

    pub(super) fn dynamic(&self) -> DynamicObject {
        serde_json::from_value(self.0.clone()).unwrap()
    }

    pub(super) fn meta(&self) -> ObjectMeta {
        self.dynamic().metadata
    }

    pub(super) fn vm_view(&self) -> VmView {
        VmView::read(&self.dynamic()).unwrap()
    }

    pub(super) fn pool_entry(&self) -> PoolEntry {
        PoolEntry::read(self.dynamic()).unwrap()
    }

    pub(super) fn config_entry(&self) -> ConfigEntry {
        ConfigEntry::read(self.dynamic()).unwrap()
    }

    pub(super) fn revision_entry(&self) -> RevisionEntry {
        RevisionEntry::read(self.dynamic()).unwrap()
    }
}

/// Caches being filled.
#[derive(Debug, Default)]
pub(super) struct Filled {
    pools: Vec<Object>,
    configs: Vec<Object>,
    revisions: Vec<Object>,
    vms: Vec<Object>,
    vmis: Vec<Object>,
    data_volumes: Vec<Object>,
    claims: Vec<Object>,
}

/// Complete caches, filled with what follows.
pub(super) fn caches() -> Filled {
    Filled::default()
}

impl Filled {
    pub(super) fn pool(mut self, pool: Object) -> Self {
        self.pools.push(pool);
        self
    }

    pub(super) fn config(mut self, config: Object) -> Self {
        self.configs.push(config);
        self
    }

    pub(super) fn revision(mut self, revision: Object) -> Self {
        self.revisions.push(revision);
        self
    }

    pub(super) fn vm(mut self, vm: Object) -> Self {
        self.vms.push(vm);
        self
    }

    pub(super) fn vmi(mut self, vmi: Object) -> Self {
        self.vmis.push(vmi);
        self
    }

    pub(super) fn data_volume(mut self, disk: Object) -> Self {
        self.data_volumes.push(disk);
        self
    }

    pub(super) fn claim(mut self, disk: Object) -> Self {
        self.claims.push(disk);
        self
    }

    pub(super) fn done(self) -> Caches {
        let caches = Caches::default();
        let disk = |object: &Object| {
            let phase = object.dynamic();
            let phase = phase.data.pointer("/status/phase");
            DiskView::read(
                &object.meta(),
                phase.and_then(Value::as_str).unwrap_or_default(),
            )
        };
        fill(&caches.pools, &self.pools, |o| Some(o.pool_entry()));
        fill(&caches.configs, &self.configs, |o| Some(o.config_entry()));
        fill(&caches.revisions, &self.revisions, |o| {
            RevisionEntry::read(o.dynamic())
        });
        fill(&caches.vms, &self.vms, |o| VmView::read(&o.dynamic()));
        fill(&caches.vmis, &self.vmis, |o| VmiView::read(&o.dynamic()));
        fill(&caches.data_volumes, &self.data_volumes, disk);
        fill(&caches.claims, &self.claims, disk);
        caches
    }
}

/// Makes `store` complete with these objects.
fn fill<V: View>(store: &Store<V>, objects: &[Object], read: impl Fn(&Object) -> Option<V>) {
    store.take(Step::Init);
    for object in objects {
        store.take(Step::InitApply(read(object).unwrap()));
    }
    store.take(Step::InitDone);
}
