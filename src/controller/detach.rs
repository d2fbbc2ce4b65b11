//! Carries out what was accepted for a pool: members leave it, whole, and then the entry is taken off the
//! pool. Repeated at any point it does no harm: a VM that has left needs nothing, an entry that is gone
//! neither.

use std::collections::BTreeMap;

use kube::api::{ApiResource, Patch};
use serde_json::{Value, json};

use super::apply::Applied;
use super::calls::{CallFailure, Place};
use super::events::Done;
use super::metrics::Deed;
use super::pool_task::PoolTask;
use super::release::{From, is_stale, release_from};
use crate::api::conditions::reasons;
use crate::api::intent::Intents;
use crate::api::{VirtualMachinePool, annotations};
use crate::cache::Identity;
use crate::clock;
use crate::plan::{Kind, Note};

/// How often a pool that changes under our hands is read again.
const ATTEMPTS: usize = 4;

/// A member that is to leave.
#[derive(Debug)]
pub(super) struct Departing {
    /// Its name.
    pub(super) name: String,
    /// Its UID.
    pub(super) uid: String,
    /// Why.
    pub(super) reason: String,
}

impl PoolTask {
    /// One after the other: whoever asked waits, but they are few.
    pub(super) async fn detach_all(
        &mut self,
        pool: &Identity,
        mut departing: Vec<Departing>,
        applied: &mut Applied,
    ) {
        applied.tried.push(Kind::Detach);
        let before = &self.detaches.failed;
        departing.sort_by_key(|vm| before.contains(&vm.name));
        let goes_on = self.goes_on(pool);
        // By why they were asked to leave.
        let mut detached = BTreeMap::<String, Vec<String>>::new();
        let mut failed = Vec::new();
        for Departing { name, uid, reason } in departing {
            if !goes_on() {
                break;
            }
            let left =
                release_from(&self.shared, &pool.namespace, &name, &uid, From::Pool(pool)).await;
            match left {
                Ok(outcome) => {
                    applied.moved = true;
                    let (caches, now) = (&self.shared.caches, clock::now());
                    let live = &mut self.remembered.live;
                    live.keep(caches, &pool.namespace, &name, outcome.vm, now);
                    if outcome.changed {
                        detached.entry(reason).or_default().push(name);
                    }
                }
                Err(failure) => {
                    let category = failure.category();
                    self.shared.metrics.failed(Deed::Detach, category);
                    failed.push((name, failure));
                }
            }
        }
        let succeeded = !detached.is_empty();
        applied
            .notes
            .extend(detached.into_iter().map(|(why, names)| told(&why, names)));
        let failure = self
            .detaches
            .end(&failed, succeeded, Kind::Detach, clock::now());
        applied.fail(Kind::Detach, failure);
    }

    /// Takes what is over off the pool.
    pub(super) async fn clear_intents(
        &mut self,
        pool: &Identity,
        uids: &[String],
        applied: &mut Applied,
    ) {
        if let Some(version) = &self.cleared
            && !self.shared.caches.pools.has_reached(version)
        {
            return;
        }
        applied.tried.push(Kind::Clear);
        let failed = match self.clear(pool, uids).await {
            Ok(version) => {
                self.shared.metrics.did(Deed::Intent);
                self.cleared = version;
                Vec::new()
            }
            Err(failure) => {
                let category = failure.category();
                self.shared.metrics.failed(Deed::Intent, category);
                vec![(pool.name.clone(), failure)]
            }
        };
        let (succeeded, now) = (failed.is_empty(), clock::now());
        let failure = self.clears.end(&failed, succeeded, Kind::Clear, now);
        applied.fail(Kind::Clear, failure);
    }

    /// The version in which the pool is without them; `None` if there is no such pool.
    async fn clear(&self, pool: &Identity, uids: &[String]) -> Result<Option<String>, CallFailure> {
        let resource = ApiResource::erase::<VirtualMachinePool>(&());
        let place = Place {
            resource: &resource,
            namespace: &pool.namespace,
            name: &pool.name,
        };
        let calls = &self.shared.calls;
        let mut attempt = 0;
        loop {
            attempt += 1;
            let found = calls.get(place).await?;
            let Some(meta) = found.map(|found| found.metadata) else {
                return Ok(None);
            };
            if meta.uid.as_ref() != Some(&pool.uid) {
                return Ok(None);
            }
            let text = meta.annotations.as_ref();
            let text = text.and_then(|map| map.get(annotations::INTENT));
            let read = Intents::read(text.map(String::as_str)).ok();
            let rest = read.and_then(|mut read| read.remove(uids).then_some(read));
            let Some(rest) = rest else {
                return Ok(meta.resource_version);
            };
            let patch = patch(meta.resource_version.as_deref(), &rest);
            match calls.patch(place, &patch).await {
                Ok(written) => return Ok(written.metadata.resource_version),
                Err(failure) if attempt < ATTEMPTS && is_stale(&failure) => {}
                Err(failure) => return Err(failure),
            }
        }
    }
}

/// Says that these have left.
fn told(why: &str, names: Vec<String>) -> Note {
    let done = Done {
        reason: reasons::DETACHED,
        verb: "detached",
        names,
    };
    let mut note = done.note();
    if !why.is_empty() {
        note.message = format!("{}: {why}", note.message);
    }
    note
}

/// Writes what is left, if the pool is still in that version.
fn patch(version: Option<&str>, rest: &Intents) -> Patch<Value> {
    let path = format!(
        "/metadata/annotations/{}",
        annotations::INTENT.replace('/', "~1")
    );
    let change = match rest.write() {
        Some(text) => json!({"op": "replace", "path": path, "value": text}),
        None => json!({"op": "remove", "path": path}),
    };
    let test = json!({"op": "test", "path": "/metadata/resourceVersion", "value": version});
    // kube's `Patch::Json` wants a typed patch; on the wire it is this list.
    Patch::Json(serde_json::from_value(json!([test, change])).unwrap_or_default())
}
