//! Which revision a pool's VMs are stamped from, and what of it running instances don't have.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use crate::api::conditions::types;
use crate::cache::{Caches, PoolEntry, RevisionEntry};
use crate::plan::{Config, Member};
use crate::stamp::{self, PoolInputs};

/// The state of the pool's config, and the revision that new VMs are stamped from: the one that the pool is
/// pinned to; else that of the config's spec; else, as long as there is none, the newest that there is.
pub(super) fn target(caches: &Caches, entry: &PoolEntry) -> (Config, Option<Arc<RevisionEntry>>) {
    let namespace = &entry.id.namespace;
    let mut revisions = caches.revisions_of_config(namespace, &entry.config);
    revisions.retain(|revision| !revision.id.deleting);
    let (config, current) = match caches.config(namespace, &entry.config) {
        None => {
            // Those of an earlier config of that name, which this pool has used, and no other.
            revisions.retain(|revision| {
                revision.is_owned_by(&entry.id.uid)
                    || entry.pinned.as_ref() == Some(&revision.id.name)
            });
            (Config::Missing, None)
        }
        Some(config) => {
            let current = revisions
                .iter()
                .find(|revision| revision.content_hash == config.content_hash)
                .cloned();
            let refused = config.status.conditions.iter().find(|condition| {
                condition.type_ == types::ACCEPTED
                    && condition.status == "False"
                    && condition.observed_generation == Some(config.id.generation)
            });
            let refused = config
                .unreadable
                .as_ref()
                .or(refused.map(|refused| &refused.message));
            match (refused, current) {
                (Some(why), _) => (Config::Refused(why.clone()), None),
                (None, Some(current)) => (Config::Ready, Some(current)),
                (None, None) => (Config::Pending, None),
            }
        }
    };
    let revision = match &entry.pinned {
        Some(pinned) => revisions
            .into_iter()
            .find(|revision| revision.id.name == *pinned),
        None => current.or_else(|| revisions.pop()),
    };
    (config, revision)
}

/// The revisions that instances of members were started from, as long as they are there, whose template has other
/// labels or annotations than `target`.
pub(super) fn relabelled_since(
    caches: &Caches,
    target: &RevisionEntry,
    members: &[Member],
) -> BTreeSet<String> {
    let metadata = |revision: &RevisionEntry| {
        let normal = stamp::normalise(&revision.spec);
        normal.pointer("/template/metadata").cloned()
    };
    let started_from = started_from(target, members);
    if started_from.is_empty() {
        return BTreeSet::new();
    }
    let wanted = metadata(target);
    started_from
        .into_iter()
        .filter(|name| {
            let revision = caches.revision(&target.id.namespace, name);
            revision.is_some_and(|revision| metadata(&revision) != wanted)
        })
        .cloned()
        .collect()
}

/// Hashes of the stamps, with these inputs, of revisions that instances of members were started from, as long as
/// they are there, and that differ from `target` in nothing that KubeVirt compares a running instance with.
pub(super) fn alike(
    caches: &Caches,
    target: &RevisionEntry,
    inputs: &PoolInputs,
    members: &[Member],
) -> BTreeSet<String> {
    let started_from = started_from(target, members);
    if started_from.is_empty() {
        return BTreeSet::new();
    }
    let compared = |revision: &RevisionEntry| {
        let mut spec = stamp::normalise(&revision.spec);
        if let Some(spec) = spec.as_object_mut() {
            for key in ["dataVolumeTemplates", "runStrategy", "running"] {
                spec.remove(key);
            }
            let template = spec.get_mut("template").and_then(Value::as_object_mut);
            template.map(|template| template.remove("metadata"));
        }
        spec
    };
    let wanted = compared(target);
    started_from
        .into_iter()
        .filter_map(|name| caches.revision(&target.id.namespace, name))
        .filter(|revision| compared(revision) == wanted)
        .map(|revision| stamp::stamp_hash(&revision.content_hash, inputs))
        .collect()
}

/// Names of the other revisions that instances of members were started from.
fn started_from<'a>(target: &RevisionEntry, members: &'a [Member]) -> BTreeSet<&'a String> {
    let vmis = members.iter().filter_map(|member| member.vmi.as_ref());
    vmis.filter_map(|vmi| vmi.revision.as_ref())
        .filter(|name| **name != target.id.name)
        .collect()
}
