//! Other objects that a verdict depends on: [`Objects`] says which, [`LiveObjects`] asks the API server.
//!
//! An answer may be [`Unavailable`]. What to do then is the webhook's to say: rules across objects are
//! skipped with a warning, since the controller checks again; a VM of ours waits.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim};
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::client::Body;
use kube::core::PartialObjectMeta;
use kube::{Api, Client};
use serde_json::{Map, Value};

use crate::api::{VirtualMachineConfig, VirtualMachinePool, labels};
use crate::kubevirt::verdict::{self, Verdict};
use crate::kubevirt::{self, Owner};
use crate::rights::Right;
use crate::stamp;

/// How long one question may take: with [`super::hooks::TIMEOUT_SECONDS`], it leaves time to answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// Objects a page, when a namespace is listed.
const PAGE: u32 = 500;

/// An answer, or that there is none at the moment.
pub type Lookup<T> = Result<T, Unavailable>;

/// Why something is not known.
#[derive(Clone, Debug, thiserror::Error)]
#[error("failed to look up {what}: {why}")]
pub struct Unavailable {
    /// What was asked for.
    pub what: String,
    /// What went wrong.
    pub why: String,
}

/// The objects that verdicts depend on.
///
/// `None` means that the object does not exist. An implementation over a cache has to be sure of that: a
/// pool and its first VM are made within milliseconds, so it asks the API server before it says so.
pub trait Objects: Send + Sync + 'static {
    /// A config by name.
    fn config<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Lookup<Option<Arc<VirtualMachineConfig>>>>;

    /// A pool by name.
    fn pool<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Lookup<Option<Arc<VirtualMachinePool>>>>;

    /// All pools of a namespace.
    fn pools<'a>(
        &'a self,
        namespace: &'a str,
    ) -> BoxFuture<'a, Lookup<Vec<Arc<VirtualMachinePool>>>>;

    /// A config's revision by name.
    fn revision<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Lookup<Option<Arc<StoredRevision>>>>;

    /// Whether an object exists.
    fn exists<'a>(&'a self, namespace: &'a str, named: &'a Named) -> BoxFuture<'a, Lookup<bool>>;

    /// KubeVirt's verdict on a VM that is not made.
    fn dry_run<'a>(&'a self, namespace: &'a str, vm: &'a Value) -> BoxFuture<'a, Verdict>;

    /// All VMs of a namespace whose names are `<prefix>-<ordinal>`.
    fn vms<'a>(&'a self, namespace: &'a str, prefix: &'a str)
    -> BoxFuture<'a, Lookup<Vec<VmName>>>;
}

/// An object of a built-in kind.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Named {
    /// A ConfigMap.
    ConfigMap(String),
    /// A PersistentVolumeClaim.
    Claim(String),
    /// A DataVolume.
    DataVolume(String),
}

/// A VM, as far as names in use go.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct VmName {
    /// Its name.
    pub name: String,
    /// Its ordinal, were it a member.
    pub ordinal: u32,
    /// UID of the pool that it is a member of.
    pub pool_uid: Option<String>,
}

/// A revision of a config, ready to stamp from.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredRevision {
    /// Name of the `ControllerRevision`.
    pub name: String,
    /// Name of the config, by its label.
    pub config: String,
    /// [`stamp::revision_hash`] of the spec.
    pub content_hash: String,
    /// The config's spec.
    pub spec: Arc<Map<String, Value>>,
}

impl StoredRevision {
    /// Reads a `ControllerRevision`. `None` if it is not one of a config: any may be named in a label.
    pub fn read(object: &ControllerRevision) -> Option<Self> {
        let label = |key: &str| object.metadata.labels.as_ref()?.get(key).cloned();
        let spec = Arc::new(object.data.as_ref()?.0.get("spec")?.as_object()?.clone());
        Some(Self {
            name: object.metadata.name.clone()?,
            config: label(labels::CONFIG)?,
            content_hash: stamp::revision_hash(&spec),
            spec,
        })
    }
}

impl VmName {
    /// Reads a VM's metadata. `None` if its name is no `<prefix>-<ordinal>`.
    pub fn read(
        prefix: &str,
        meta: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
    ) -> Option<Self> {
        let name = meta.name.as_deref()?;
        Some(Self {
            name: name.to_owned(),
            ordinal: stamp::parse_ordinal(prefix, name)?,
            pool_uid: Owner::controller_of(meta)
                .filter(Owner::is_pool)
                .map(|owner| owner.uid),
        })
    }
}

/// Asks the API server, each time.
#[derive(Clone)]
pub struct LiveObjects {
    client: Client,
}

/// What [`LiveObjects`] calls.
pub fn rules() -> Vec<Right> {
    vec![
        Right::to(
            "configs and pools that a verdict on the other kind depends on",
            &["get", "list"],
            crate::api::GROUP,
            &[crate::api::POOL_PLURAL, crate::api::CONFIG_PLURAL],
        ),
        Right::to(
            "the revision that a VM of ours says it is stamped from",
            &["get"],
            "apps",
            &["controllerrevisions"],
        ),
        Right::to(
            "names that a new pool's VMs would want",
            &["list"],
            kubevirt::GROUP,
            &["virtualmachines"],
        ),
        Right::to(
            "ConfigMaps and claims that a pool's next VMs want: whether they exist, for a warning; their content is \
             not asked for, which RBAC can't tell apart",
            &["get"],
            "",
            &["configmaps", "persistentvolumeclaims"],
        ),
        Right::to(
            "KubeVirt's verdict on a config, by dry run",
            &["create"],
            kubevirt::GROUP,
            &["virtualmachines"],
        ),
    ]
}

impl LiveObjects {
    /// With a client that doesn't retry: kube's default goes on for minutes, and a webhook has seconds.
    pub fn new(mut config: kube::Config) -> Result<Self, kube::Error> {
        config.default_retry = false;
        let client = Client::try_from(config)?;
        Ok(Self { client })
    }

    async fn vm_names(&self, namespace: &str, prefix: &str) -> Result<Vec<VmName>, kube::Error> {
        let api: Api<PartialObjectMeta<DynamicObject>> =
            Api::namespaced_with(self.client.clone(), namespace, &kubevirt::virtual_machine());
        let mut parameters = ListParams::default().limit(PAGE);
        let mut names = Vec::new();
        loop {
            let page = api.list_metadata(&parameters).await?;
            names.extend(
                page.items
                    .iter()
                    .filter_map(|vm| VmName::read(prefix, &vm.metadata)),
            );
            match page.metadata.continue_ {
                Some(token) if !token.is_empty() => parameters.continue_token = Some(token),
                _ => return Ok(names),
            }
        }
    }
}

/// `call`, within [`PATIENCE`].
async fn within_patience<T>(
    what: impl FnOnce() -> String,
    call: impl Future<Output = Result<T, kube::Error>>,
) -> Lookup<T> {
    let why = match tokio::time::timeout(PATIENCE, call).await {
        Ok(Ok(answer)) => return Ok(answer),
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("no answer within {} s", PATIENCE.as_secs()),
    };
    Err(Unavailable { what: what(), why })
}

impl Objects for LiveObjects {
    fn config<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Lookup<Option<Arc<VirtualMachineConfig>>>> {
        Box::pin(async move {
            let api: Api<VirtualMachineConfig> = Api::namespaced(self.client.clone(), namespace);
            let found = within_patience(|| format!("config {name}"), api.get_opt(name)).await?;
            Ok(found.map(Arc::new))
        })
    }

    fn pool<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Lookup<Option<Arc<VirtualMachinePool>>>> {
        Box::pin(async move {
            let api: Api<VirtualMachinePool> = Api::namespaced(self.client.clone(), namespace);
            let found = within_patience(|| format!("pool {name}"), api.get_opt(name)).await?;
            Ok(found.map(Arc::new))
        })
    }

    fn pools<'a>(
        &'a self,
        namespace: &'a str,
    ) -> BoxFuture<'a, Lookup<Vec<Arc<VirtualMachinePool>>>> {
        Box::pin(async move {
            // One by one: a pool that this version can't read must not hide the others.
            let resource = ApiResource::erase::<VirtualMachinePool>(&());
            let api: Api<DynamicObject> =
                Api::namespaced_with(self.client.clone(), namespace, &resource);
            let everything = ListParams::default();
            let what = || format!("pools of namespace {namespace}");
            let list = within_patience(what, api.list(&everything)).await?;
            let pools = list.items.into_iter();
            Ok(pools
                .filter_map(|pool| pool.try_parse().ok())
                .map(Arc::new)
                .collect())
        })
    }

    fn revision<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Lookup<Option<Arc<StoredRevision>>>> {
        Box::pin(async move {
            let api: Api<ControllerRevision> = Api::namespaced(self.client.clone(), namespace);
            let found = within_patience(|| format!("revision {name}"), api.get_opt(name)).await?;
            Ok(found.as_ref().and_then(StoredRevision::read).map(Arc::new))
        })
    }

    fn exists<'a>(&'a self, namespace: &'a str, named: &'a Named) -> BoxFuture<'a, Lookup<bool>> {
        let (resource, name) = match named {
            Named::ConfigMap(name) => (ApiResource::erase::<ConfigMap>(&()), name),
            Named::Claim(name) => (ApiResource::erase::<PersistentVolumeClaim>(&()), name),
            Named::DataVolume(name) => (kubevirt::data_volume(), name),
        };
        Box::pin(async move {
            let api: Api<DynamicObject> =
                Api::namespaced_with(self.client.clone(), namespace, &resource);
            let what = || format!("{} {name}", resource.kind);
            let found = within_patience(what, api.get_metadata_opt(name)).await?;
            Ok(found.is_some())
        })
    }

    fn dry_run<'a>(&'a self, namespace: &'a str, vm: &'a Value) -> BoxFuture<'a, Verdict> {
        Box::pin(async move {
            let Some(request) = verdict::question(namespace, vm) else {
                return Verdict::Open("failed to build the request".to_owned());
            };
            let call = async {
                let response = self.client.send(request.map(Body::from)).await?;
                let (head, body) = response.into_parts();
                Ok((head.status.as_u16(), body.collect_bytes().await?))
            };
            let what = || "KubeVirt's verdict".to_owned();
            match within_patience(what, call).await {
                Ok((code, body)) => verdict::answer(code, &body),
                Err(unavailable) => Verdict::Open(unavailable.why),
            }
        })
    }

    fn vms<'a>(
        &'a self,
        namespace: &'a str,
        prefix: &'a str,
    ) -> BoxFuture<'a, Lookup<Vec<VmName>>> {
        let what = move || format!("VMs of namespace {namespace}");
        Box::pin(within_patience(what, self.vm_names(namespace, prefix)))
    }
}
