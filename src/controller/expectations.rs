//! What was done and is not seen yet: creates, deletes, updates and restarts that the API server answered with
//! success, until the cache shows them. Pure. Without it a pass on a stale cache would do them again.
//!
//! Deletes are known by UID. A create ends with the VM of that UID in the cache, or with the cache having
//! reached the resource version that the create was answered with: then the VM was shown and is gone again
//! already. A restart is known by the UID of the instance that it ends. What stays open for too long is read from the API server instead.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::cache::{Caches, View as _};

/// When a cache is this far behind something else may be wrong, and the API server is asked. A watch event
/// normally takes some milliseconds.
const OVERDUE: SignedDuration = SignedDuration::from_secs(30);

/// What is open in one pool.
#[derive(Clone, Debug, Default)]
pub(super) struct Expectations {
    creates: BTreeMap<u32, Create>,
    deletes: BTreeMap<String, Delete>,
    /// By the UID of the instance that is to end.
    restarts: BTreeMap<String, Restart>,
    updates: BTreeMap<String, Update>,
}

#[derive(Clone, Debug)]
struct Create {
    name: String,
    /// UID and resource version, once answered.
    answer: Option<(String, String)>,
    since: Timestamp,
}

#[derive(Clone, Debug)]
struct Delete {
    name: String,
    since: Timestamp,
}

#[derive(Clone, Debug)]
struct Restart {
    name: String,
    since: Timestamp,
}

#[derive(Clone, Debug)]
struct Update {
    name: String,
    /// The resource version that it was answered with.
    version: String,
    since: Timestamp,
}

/// Something that has been open for too long.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Overdue {
    /// A create.
    Create { ordinal: u32, name: String },
    /// A delete.
    Delete { uid: String, name: String },
    /// A restart.
    Restart { vmi_uid: String, name: String },
    /// An update.
    Update { uid: String, name: String },
}

impl Overdue {
    /// The VM's name.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Create { name, .. }
            | Self::Delete { name, .. }
            | Self::Restart { name, .. }
            | Self::Update { name, .. } => name,
        }
    }
}

impl Expectations {
    /// Before the call.
    pub(super) fn expect_create(&mut self, ordinal: u32, name: &str, now: Timestamp) {
        let create = Create {
            name: name.to_owned(),
            answer: None,
            since: now,
        };
        self.creates.insert(ordinal, create);
    }

    /// The call was answered, or the VM was found to be there.
    pub(super) fn created(&mut self, ordinal: u32, uid: &str, version: &str) {
        if let Some(create) = self.creates.get_mut(&ordinal) {
            create.answer = Some((uid.to_owned(), version.to_owned()));
        }
    }

    /// There is no such VM after all.
    pub(super) fn undo_create(&mut self, ordinal: u32) {
        self.creates.remove(&ordinal);
    }

    /// Before the call.
    pub(super) fn expect_delete(&mut self, uid: &str, name: &str, now: Timestamp) {
        let name = name.to_owned();
        self.deletes
            .insert(uid.to_owned(), Delete { name, since: now });
    }

    /// It was not deleted after all.
    pub(super) fn undo_delete(&mut self, uid: &str) {
        self.deletes.remove(uid);
    }

    /// Before the call.
    pub(super) fn expect_restart(&mut self, vmi_uid: &str, name: &str, now: Timestamp) {
        let name = name.to_owned();
        self.restarts
            .insert(vmi_uid.to_owned(), Restart { name, since: now });
    }

    /// It was not restarted after all.
    pub(super) fn undo_restart(&mut self, vmi_uid: &str) {
        self.restarts.remove(vmi_uid);
    }

    /// The VM was found, or made, to be at its target with this resource version.
    pub(super) fn expect_update(&mut self, uid: &str, name: &str, version: &str, now: Timestamp) {
        let update = Update {
            name: name.to_owned(),
            version: version.to_owned(),
            since: now,
        };
        self.updates.insert(uid.to_owned(), update);
    }

    /// The cache is not waited for any longer.
    pub(super) fn undo_update(&mut self, uid: &str) {
        self.updates.remove(uid);
    }

    /// Drops what the cache has shown by now.
    pub(super) fn observe(&mut self, caches: &Caches, namespace: &str) {
        self.creates.retain(|_, create| {
            let Some((uid, version)) = &create.answer else {
                return true;
            };
            let shown = caches.vm(namespace, &create.name);
            let is_shown = shown.is_some_and(|vm| vm.uid == *uid);
            !is_shown && !caches.vms.has_reached(version)
        });
        self.deletes.retain(|uid, delete| {
            caches
                .vm(namespace, &delete.name)
                .is_some_and(|vm| vm.uid == *uid && vm.deleting_since.is_none())
        });
        self.restarts.retain(|vmi_uid, restart| {
            caches
                .vmis
                .get(namespace, &restart.name)
                .is_some_and(|vmi| vmi.uid == *vmi_uid && !vmi.deleting)
        });
        self.updates.retain(|uid, update| {
            let shown = caches.vm(namespace, &update.name);
            shown.is_some_and(|vm| vm.uid == *uid) && !caches.vms.has_reached(&update.version)
        });
    }

    /// What has been open for too long. It starts anew, so that it is asked about once per period.
    pub(super) fn overdue(&mut self, now: Timestamp) -> Vec<Overdue> {
        let mut overdue = Vec::new();
        for (ordinal, create) in &mut self.creates {
            if is_due(create.since, now) {
                create.since = now;
                let (ordinal, name) = (*ordinal, create.name.clone());
                overdue.push(Overdue::Create { ordinal, name });
            }
        }
        for (uid, delete) in &mut self.deletes {
            if is_due(delete.since, now) {
                delete.since = now;
                let (uid, name) = (uid.clone(), delete.name.clone());
                overdue.push(Overdue::Delete { uid, name });
            }
        }
        for (vmi_uid, restart) in &mut self.restarts {
            if is_due(restart.since, now) {
                restart.since = now;
                let (vmi_uid, name) = (vmi_uid.clone(), restart.name.clone());
                overdue.push(Overdue::Restart { vmi_uid, name });
            }
        }
        for (uid, update) in &mut self.updates {
            if is_due(update.since, now) {
                update.since = now;
                let (uid, name) = (uid.clone(), update.name.clone());
                overdue.push(Overdue::Update { uid, name });
            }
        }
        overdue
    }

    /// When the next one will have been open for too long.
    pub(super) fn next_due(&self) -> Option<Timestamp> {
        let creates = self.creates.values().map(|create| create.since);
        let deletes = self.deletes.values().map(|delete| delete.since);
        let restarts = self.restarts.values().map(|restart| restart.since);
        let updates = self.updates.values().map(|update| update.since);
        let all = creates.chain(deletes).chain(restarts).chain(updates);
        let since = all.min()?;
        since.checked_add(OVERDUE).ok()
    }

    /// Ordinals of open creates.
    pub(super) fn creates(&self) -> Vec<u32> {
        self.creates.keys().copied().collect()
    }

    /// UIDs of open deletes.
    pub(super) fn deletes(&self) -> Vec<String> {
        self.deletes.keys().cloned().collect()
    }

    /// UIDs of the instances of open restarts.
    pub(super) fn restarts(&self) -> BTreeSet<String> {
        self.restarts.keys().cloned().collect()
    }

    /// UIDs of the VMs of open updates.
    pub(super) fn updates(&self) -> BTreeSet<String> {
        self.updates.keys().cloned().collect()
    }
}

/// A time to come means that the clock was set back.
fn is_due(since: Timestamp, now: Timestamp) -> bool {
    now.duration_since(since) >= OVERDUE || since > now
}

/// Where a VM is: what a live read is compared with.
pub(super) fn cached_version(caches: &Caches, namespace: &str, name: &str) -> Option<String> {
    caches.vm(namespace, name).map(|vm| vm.version().to_owned())
}
