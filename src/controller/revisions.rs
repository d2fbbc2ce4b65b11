//! Which revisions a config has: what its spec's revision is called and numbered, and which old ones may go.
//! The first half is pure; the second makes the calls.
//!
//! A revision is an immutable `apps/v1 ControllerRevision`, named after the hash of the normalised spec, so
//! that a re-apply finds the one that is there, and going back to an old spec finds the old one, which gets
//! a new number. It belongs to its config and to each pool that uses it, so that deleting one of them loses
//! nothing that the others need. None of them is its controller, and none blocks its owner's deletion.

use std::collections::BTreeSet;
use std::sync::Arc;

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, PatchOperation, TestOperation};
use k8s_openapi::api::apps::v1::ControllerRevision;
use kube::api::{ApiResource, DynamicObject, Patch};
use serde_json::{Value, json};

use super::Shared;
use super::calls::{CallFailure, Place};
use super::metrics::Deed;
use crate::api::{self, labels};
use crate::cache::{Caches, ConfigEntry, Identity, Index, Key, RevisionEntry};
use crate::stamp;

/// How many revisions a config keeps that doesn't say.
pub(super) const DEFAULT_HISTORY_LIMIT: usize = 10;

/// What is to be done for a config's spec to have its revision.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Step {
    /// The name is that of a revision with other content: 47 bits of hash were not enough, or somebody made
    /// it by hand.
    Collide { name: String },
    /// There is none yet.
    Create { name: String, number: i64 },
    /// It is there and the newest.
    Keep { name: String },
    /// It is there, and others are newer.
    Renumber { name: String, number: i64 },
}

/// What is to be done for the spec of `config`, whose revisions are `revisions`.
pub(super) fn step(config: &ConfigEntry, revisions: &[Arc<RevisionEntry>]) -> Step {
    let name = stamp::revision_name(&config.id.name, &config.content_hash);
    let newest = revisions.iter().map(|revision| revision.number).max();
    let number = newest.unwrap_or(0).saturating_add(1);
    let Some(found) = revisions.iter().find(|revision| revision.id.name == name) else {
        return Step::Create { name, number };
    };
    if !has_content(&found.spec, config) {
        return Step::Collide { name };
    }
    let is_newest = revisions
        .iter()
        .all(|other| other.number < found.number || other.id.name == name);
    if is_newest {
        Step::Keep { name }
    } else {
        Step::Renumber { name, number }
    }
}

/// Whether a revision's spec is the config's, other forms of the same included.
pub(super) fn has_content(spec: &serde_json::Map<String, Value>, config: &ConfigEntry) -> bool {
    *spec == *config.spec || stamp::normalise(spec) == stamp::normalise(&config.spec)
}

/// The revisions that may go, oldest first: those beyond the limit that nobody uses.
pub(super) fn prunable<'a>(
    revisions: &'a [Arc<RevisionEntry>],
    limit: usize,
    used: &BTreeSet<String>,
) -> Vec<&'a Arc<RevisionEntry>> {
    let mut sorted: Vec<_> = revisions
        .iter()
        .filter(|revision| !revision.id.deleting)
        .collect();
    sorted.sort_by(|a, b| (a.number, &a.id.name).cmp(&(b.number, &b.id.name)));
    let surplus = sorted.len().saturating_sub(limit.max(1));
    sorted
        .into_iter()
        .filter(|revision| !used.contains(&revision.id.name))
        .take(surplus)
        .collect()
}

/// The names of a config's revisions that must stay: the newest, what a pool is pinned to or makes new VMs
/// from, and what a VM or an instance was made from.
pub(super) fn used(caches: &Caches, config: &Key, latest: &str) -> BTreeSet<String> {
    let mut used = BTreeSet::from([latest.to_owned()]);
    for pool in caches.pools_in(&config.namespace) {
        used.extend(pool.pinned.clone());
        used.extend(pool.status().target_revision);
    }
    for revision in caches.revisions_of_config(&config.namespace, &config.name) {
        let name = &revision.id.name;
        let index = Index::Revision(Key::new(&config.namespace, name));
        if caches.vms.count(&index) + caches.vmis.count(&index) > 0 {
            used.insert(name.clone());
        }
    }
    used
}

/// The object of a new revision.
fn object(config: &ConfigEntry, owners: &[Value], name: &str, number: i64) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "name": name,
            "namespace": config.id.namespace,
            "labels": {labels::CONFIG: config.id.name},
            "ownerReferences": owners,
        },
        "data": {"spec": &*config.spec},
        "revision": number,
    })
}

/// An owner reference that keeps the revision alive and does nothing else.
pub(super) fn owner(kind: &str, id: &Identity) -> Value {
    json!({
        "apiVersion": api::API_VERSION,
        "kind": kind,
        "name": id.name,
        "uid": id.uid,
    })
}

fn resource() -> ApiResource {
    ApiResource::erase::<ControllerRevision>(&())
}

/// Creates a revision.
pub(super) async fn create(
    shared: &Shared,
    config: &ConfigEntry,
    owners: &[Value],
    name: &str,
    number: i64,
) -> Result<(), CallFailure> {
    let revision = object(config, owners, name, number);
    let namespace = &config.id.namespace;
    let answer = shared.calls.create(&resource(), namespace, &revision).await;
    count(shared, answer.map(drop))
}

/// The live revision of that name.
pub(super) async fn read(
    shared: &Shared,
    namespace: &str,
    name: &str,
) -> Result<Option<RevisionEntry>, CallFailure> {
    let resource = resource();
    let place = Place {
        resource: &resource,
        namespace,
        name,
    };
    let found: Option<DynamicObject> = shared.calls.get(place).await?;
    Ok(found.and_then(RevisionEntry::read))
}

/// Changes a revision's number.
pub(super) async fn renumber(
    shared: &Shared,
    revision: &Identity,
    number: i64,
) -> Result<(), CallFailure> {
    let patch = json!({"metadata": {"uid": revision.uid}, "revision": number});
    patch_revision(shared, revision, &Patch::Merge(patch)).await
}

/// Adds an owner, behind those that there are: whoever else adds one at the same time is not overwritten. A
/// JSON patch, since that alone leaves the data as it is to the byte (a strategic merge patch writes its
/// numbers anew, and the API server then says that the data is immutable).
pub(super) async fn add_owner(
    shared: &Shared,
    revision: &Identity,
    owner: Value,
) -> Result<(), CallFailure> {
    let patch = json_patch::Patch(vec![
        PatchOperation::Test(TestOperation {
            path: PointerBuf::from_tokens(["metadata", "uid"]),
            value: revision.uid.clone().into(),
        }),
        PatchOperation::Add(AddOperation {
            path: PointerBuf::from_tokens(["metadata", "ownerReferences", "-"]),
            value: owner,
        }),
    ]);
    patch_revision(shared, revision, &Patch::Json(patch)).await
}

async fn patch_revision(
    shared: &Shared,
    revision: &Identity,
    patch: &Patch<Value>,
) -> Result<(), CallFailure> {
    let resource = resource();
    let place = Place {
        resource: &resource,
        namespace: &revision.namespace,
        name: &revision.name,
    };
    count(shared, shared.calls.patch(place, patch).await.map(drop))
}

/// Deletes a revision, if nobody has begun to use it since: that would have changed it.
pub(super) async fn delete(shared: &Shared, revision: &Identity) -> Result<(), CallFailure> {
    let resource = resource();
    let place = Place {
        resource: &resource,
        namespace: &revision.namespace,
        name: &revision.name,
    };
    let answer = shared
        .calls
        .delete(place, &revision.uid, Some(&revision.resource_version))
        .await;
    match answer {
        Err(failure) if failure.is_not_found() || failure.is_conflict() => Ok(()),
        answer => count(shared, answer),
    }
}

fn count(shared: &Shared, answer: Result<(), CallFailure>) -> Result<(), CallFailure> {
    match &answer {
        Ok(()) => shared.metrics.did(Deed::Revision),
        Err(failure) => shared.metrics.failed(Deed::Revision, failure.category()),
    }
    answer
}
