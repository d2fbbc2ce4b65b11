//! Takes our labels, marks and annotations off a VM that is a member no more, or is to be none, so that it
//! stays whole and nothing of ours hinders it. Launcher pod first, then instance, then the VM with its template in one last
//! write: after a crash in between the VM still has its marks, and it is done again. Until that write an
//! instance that starts, or the pod of a migration, gets them from what they are made from: so instance and pods
//! are looked at once more after it. If that fails it is told, and not done again: the VM has no marks by then.

use k8s_openapi::api::core::v1::Pod;
use kube::api::{ApiResource, DynamicObject, ObjectMeta, Patch};
use serde_json::{Map, Value, json};

use super::Shared;
use super::calls::{CallFailure, Place};
use super::metrics::Deed;
use crate::api::{annotations, labels};
use crate::cache::Identity;
use crate::kubevirt::{self, Owner, VmView};
use crate::stamp;

/// How often a VM that changes under our hands is read again.
const ATTEMPTS: usize = 4;

/// How a VM is after its release.
#[derive(Debug)]
pub(super) struct Released {
    /// The VM, unless it is gone.
    pub(super) vm: Option<VmView>,
    /// Whether anything was taken off.
    pub(super) changed: bool,
}

/// Whose VM it is before.
#[derive(Clone, Copy, Debug)]
pub(super) enum From<'a> {
    /// No pool's any more.
    Nobody,
    /// This one's: it is noted on the VM where it comes from.
    Pool(&'a Identity),
}

/// Releases the VM of that name, if it still is the one with that UID and no pool controls it.
pub(super) async fn release(
    shared: &Shared,
    namespace: &str,
    name: &str,
    uid: &str,
) -> Result<Released, CallFailure> {
    release_from(shared, namespace, name, uid, From::Nobody).await
}

/// The same of a VM that still is somebody's.
pub(super) async fn release_from(
    shared: &Shared,
    namespace: &str,
    name: &str,
    uid: &str,
    from: From<'_>,
) -> Result<Released, CallFailure> {
    let resource = kubevirt::virtual_machine();
    let place = Place {
        resource: &resource,
        namespace,
        name,
    };
    let mut attempt = 0;
    loop {
        attempt += 1;
        let Some(vm) = shared.calls.get(place).await? else {
            return Ok(Released {
                vm: None,
                changed: false,
            });
        };
        if !needs_release(&vm, uid, from) {
            return Ok(Released {
                vm: VmView::read(&vm),
                changed: false,
            });
        }
        release_instance(shared, namespace, name, &vm.metadata).await?;
        match shared.calls.patch(place, &vm_patch(&vm, from)).await {
            Ok(written) => {
                if let Err(failure) = release_instance(shared, namespace, name, &vm.metadata).await
                {
                    tracing::warn!(
                        vm = name, namespace, error = %failure,
                        "Left the VM's instance or pod with what it may have got of ours meanwhile"
                    );
                }
                shared.metrics.did(match from {
                    From::Nobody => Deed::Release,
                    From::Pool(_) => Deed::Detach,
                });
                return Ok(Released {
                    vm: VmView::read(&written),
                    changed: true,
                });
            }
            // The test of the resource version failed: 422, or 409 when it changed meanwhile.
            Err(failure) if attempt < ATTEMPTS && is_stale(&failure) => {}
            Err(failure) => return Err(failure),
        }
    }
}

pub(super) fn is_stale(failure: &CallFailure) -> bool {
    matches!(failure, CallFailure::Refuse { status, .. } if matches!(status.code, 409 | 422))
}

fn needs_release(vm: &DynamicObject, uid: &str, from: From<'_>) -> bool {
    let meta = &vm.metadata;
    let owner = Owner::controller_of(meta).filter(Owner::is_pool);
    let is_there = meta.uid.as_deref() == Some(uid) && meta.deletion_timestamp.is_none();
    is_there
        && match from {
            From::Nobody => {
                let marks = meta.annotations.as_ref();
                owner.is_none() && marks.is_some_and(|map| map.contains_key(annotations::MEMBER_OF))
            }
            From::Pool(pool) => owner.is_some_and(|owner| owner.uid == pool.uid),
        }
}

/// Takes everything of ours off the VM and its template, the controller reference included, if nobody has
/// changed it since it was read.
fn vm_patch(vm: &DynamicObject, from: From<'_>) -> Patch<Value> {
    let value = serde_json::to_value(vm).unwrap_or_default();
    let stripped = serde_json::to_value(stamp::strip(&value).patch);
    let mut operations = vec![json!({
        "op": "test",
        "path": "/metadata/resourceVersion",
        "value": vm.metadata.resource_version,
    })];
    if let Ok(Value::Array(stripped)) = stripped {
        operations.extend(stripped);
    }
    if let From::Pool(pool) = from {
        if vm.metadata.annotations.is_none() {
            operations.push(json!({"op": "add", "path": "/metadata/annotations", "value": {}}));
        }
        let key = annotations::DETACHED_FROM.replace('/', "~1");
        operations.push(json!({
            "op": "add", "path": format!("/metadata/annotations/{key}"), "value": pool.name,
        }));
    }
    // kube's `Patch::Json` wants a typed patch; on the wire it is this list.
    Patch::Json(serde_json::from_value(Value::Array(operations)).unwrap_or_default())
}

/// The instance of that VM, and its launcher pod before it. What changes under our hands is read again.
async fn release_instance(
    shared: &Shared,
    namespace: &str,
    name: &str,
    vm: &ObjectMeta,
) -> Result<(), CallFailure> {
    let mut attempt = 0;
    loop {
        attempt += 1;
        match release_instance_once(shared, namespace, name, vm).await {
            Err(failure) if attempt < ATTEMPTS && failure.is_conflict() => {}
            outcome => return outcome,
        }
    }
}

async fn release_instance_once(
    shared: &Shared,
    namespace: &str,
    name: &str,
    vm: &ObjectMeta,
) -> Result<(), CallFailure> {
    let resource = kubevirt::virtual_machine_instance();
    let place = Place {
        resource: &resource,
        namespace,
        name,
    };
    let Some(vmi) = shared.calls.get(place).await? else {
        return Ok(());
    };
    if Owner::controller_of(&vmi.metadata).is_none_or(|owner| Some(&owner.uid) != vm.uid.as_ref()) {
        return Ok(());
    }
    release_pods(shared, namespace, &vmi.metadata, vm).await?;
    if let Some(patch) = marks_patch(&vmi.metadata) {
        gone_is_fine(shared.calls.patch(place, &patch).await)?;
    }
    Ok(())
}

async fn release_pods(
    shared: &Shared,
    namespace: &str,
    vmi: &ObjectMeta,
    vm: &ObjectMeta,
) -> Result<(), CallFailure> {
    let resource = ApiResource::erase::<Pod>(&());
    // The labels that the pods have from this instance select them, so that not all of a pool are read; those of
    // its VM when the instance has lost them already.
    let selector = [labels::POOL_UID, labels::ORDINAL].map(|key| {
        let of = |meta: &ObjectMeta| meta.labels.as_ref()?.get(key).cloned();
        let value = of(vmi).or_else(|| of(vm));
        value.map_or_else(|| key.to_owned(), |value| format!("{key}={value}"))
    });
    let pods = shared
        .calls
        .list(&resource, namespace, &selector.join(","))
        .await?;
    for pod in pods {
        let is_of_instance = Owner::controller_of(&pod.metadata)
            .is_some_and(|owner| Some(&owner.uid) == vmi.uid.as_ref());
        let (Some(patch), Some(name)) = (marks_patch(&pod.metadata), &pod.metadata.name) else {
            continue;
        };
        if is_of_instance {
            let place = Place {
                resource: &resource,
                namespace,
                name,
            };
            gone_is_fine(shared.calls.patch(place, &patch).await)?;
        }
    }
    Ok(())
}

/// Takes every label and annotation of ours off this very object; `None` if it has none.
fn marks_patch(meta: &ObjectMeta) -> Option<Patch<Value>> {
    let nulls = |map: &Option<std::collections::BTreeMap<String, String>>| -> Map<String, Value> {
        map.iter()
            .flatten()
            .filter(|(key, _)| key.starts_with(labels::PREFIX))
            .map(|(key, _)| (key.clone(), Value::Null))
            .collect()
    };
    let (labels, annotations) = (nulls(&meta.labels), nulls(&meta.annotations));
    if labels.is_empty() && annotations.is_empty() {
        return None;
    }
    Some(Patch::Merge(json!({
        "metadata": {"uid": meta.uid, "labels": labels, "annotations": annotations},
    })))
}

fn gone_is_fine(answer: Result<DynamicObject, CallFailure>) -> Result<(), CallFailure> {
    match answer {
        Err(failure) if !failure.is_not_found() => Err(failure),
        Ok(_) | Err(_) => Ok(()),
    }
}
