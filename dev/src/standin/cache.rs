//! The objects the stand-in knows, and who mentions whom.
//!
//! Filled by the watches and by the answers to the stand-in's own writes, so that the next
//! decision never sees a state older than its own last write. Older versions than the cached one
//! and objects already seen deleted are dropped. It decides nothing and calls nobody.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use super::kinds::Kind;
use super::object::{self, Key, Obj, items};
use super::volumes::{self, Mounted};

/// How many deleted UIDs are remembered, against a late answer bringing an object back to life.
const REMEMBERED_DELETIONS: usize = 20_000;

/// Something an object mentions, by which it is found again.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Mention {
    /// A DataVolume or claim of this name.
    Claim(Key),
    ConfigMap(Key),
    /// The controller with this UID.
    Owner(String),
    Secret(Key),
}

/// A change that the cache took in.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) kind: Kind,
    pub(super) key: Key,
    pub(super) old: Option<Obj>,
    pub(super) new: Option<Obj>,
}

struct Row {
    object: Obj,
    mentions: Vec<Mention>,
}

#[derive(Default)]
struct Tables {
    rows: [HashMap<Key, Row>; Kind::ALL.len()],
    mentioned: HashMap<Mention, HashSet<(Kind, Key)>>,
    deleted: HashSet<String>,
    deleted_order: VecDeque<String>,
    listed: [bool; Kind::ALL.len()],
}

/// All caches.
#[derive(Default)]
pub(super) struct Cache(Mutex<Tables>);

impl Cache {
    pub(super) fn get(&self, kind: Kind, key: &Key) -> Option<Obj> {
        self.lock().rows[kind.index()]
            .get(key)
            .map(|row| row.object.clone())
    }

    pub(super) fn all(&self, kind: Kind) -> Vec<Obj> {
        self.lock().rows[kind.index()]
            .values()
            .map(|row| row.object.clone())
            .collect()
    }

    #[cfg(test)]
    fn count(&self, kind: Kind) -> usize {
        self.lock().rows[kind.index()].len()
    }

    /// Objects of a kind that mention something, in the order of their names.
    pub(super) fn mentioning(&self, kind: Kind, mention: &Mention) -> Vec<Obj> {
        let tables = self.lock();
        let Some(keys) = tables.mentioned.get(mention) else {
            return Vec::new();
        };
        let mut found: Vec<Obj> = keys
            .iter()
            .filter(|(of, _)| *of == kind)
            .filter_map(|(_, key)| tables.rows[kind.index()].get(key))
            .map(|row| row.object.clone())
            .collect();
        found.sort_by(|left, right| object::name(left).cmp(object::name(right)));
        found
    }

    /// Takes an object in, unless the cache has it as new or knows that it is gone.
    pub(super) fn put(&self, kind: Kind, object: Value) -> Option<Change> {
        let object = Obj::new(object::trim(object));
        self.lock().put(kind, object)
    }

    /// Takes an object out that was seen deleted.
    pub(super) fn remove(&self, kind: Kind, object: &Value) -> Option<Change> {
        let mut tables = self.lock();
        tables.remember_deletion(object::uid(object));
        let key = Key::of(object);
        let cached = tables.rows[kind.index()].get(&key)?;
        // Another object of that name may already have taken its place.
        if object::uid(&cached.object) != object::uid(object) {
            return None;
        }
        tables.take(kind, &key)
    }

    /// Makes a kind's cache what a list returned: puts all of it, removes the rest.
    pub(super) fn replace(&self, kind: Kind, objects: Vec<Value>) -> Vec<Change> {
        let mut tables = self.lock();
        let kept: HashSet<Key> = objects.iter().map(Key::of).collect();
        let gone: Vec<Key> = tables.rows[kind.index()]
            .keys()
            .filter(|key| !kept.contains(key))
            .cloned()
            .collect();
        let mut changes: Vec<Change> = gone
            .iter()
            .filter_map(|key| tables.take(kind, key))
            .collect();
        for object in objects {
            changes.extend(tables.put(kind, Obj::new(object::trim(object))));
        }
        tables.listed[kind.index()] = true;
        changes
    }

    /// Whether every kind was listed once, or found not to be served.
    pub(super) fn is_listed(&self) -> bool {
        self.lock().listed.iter().all(|listed| *listed)
    }

    fn lock(&self) -> MutexGuard<'_, Tables> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tables {
    fn put(&mut self, kind: Kind, object: Obj) -> Option<Change> {
        if self.deleted.contains(object::uid(&object)) {
            return None;
        }
        let key = Key::of(&object);
        if let Some(row) = self.rows[kind.index()].get(&key)
            && object::version_number(&row.object) >= object::version_number(&object)
        {
            return None;
        }
        let mentions = mentions(kind, &object);
        for mention in &mentions {
            self.mentioned
                .entry(mention.clone())
                .or_default()
                .insert((kind, key.clone()));
        }
        let row = Row {
            object: object.clone(),
            mentions,
        };
        let old = self.rows[kind.index()].insert(key.clone(), row);
        if let Some(old) = &old {
            let now: HashSet<&Mention> = self.rows[kind.index()][&key].mentions.iter().collect();
            let dropped: Vec<Mention> = old
                .mentions
                .iter()
                .filter(|mention| !now.contains(mention))
                .cloned()
                .collect();
            self.forget(kind, &key, &dropped);
        }
        Some(Change {
            kind,
            key,
            old: old.map(|row| row.object),
            new: Some(object),
        })
    }

    fn take(&mut self, kind: Kind, key: &Key) -> Option<Change> {
        let row = self.rows[kind.index()].remove(key)?;
        self.forget(kind, key, &row.mentions);
        Some(Change {
            kind,
            key: key.clone(),
            old: Some(row.object),
            new: None,
        })
    }

    fn forget(&mut self, kind: Kind, key: &Key, mentions: &[Mention]) {
        let entry = (kind, key.clone());
        for mention in mentions {
            if let Some(keys) = self.mentioned.get_mut(mention) {
                keys.remove(&entry);
                if keys.is_empty() {
                    self.mentioned.remove(mention);
                }
            }
        }
    }

    fn remember_deletion(&mut self, uid: &str) {
        if self.deleted.insert(uid.to_owned()) {
            self.deleted_order.push_back(uid.to_owned());
        }
        if self.deleted_order.len() > REMEMBERED_DELETIONS
            && let Some(oldest) = self.deleted_order.pop_front()
        {
            self.deleted.remove(&oldest);
        }
    }
}

fn mentions(kind: Kind, object: &Value) -> Vec<Mention> {
    let key = |name: &str| Key::new(object::namespace(object), name);
    match kind {
        Kind::VirtualMachine => {
            let templates = items(&object["spec"]["dataVolumeTemplates"])
                .iter()
                .map(object::name);
            volumes::claims(&object["spec"]["template"]["spec"])
                .map(|(_, claim)| claim)
                .chain(templates)
                .map(|name| Mention::Claim(key(name)))
                .collect()
        }
        Kind::VirtualMachineInstance => {
            let claims = volumes::claims(&object["spec"]).map(|(_, c)| Mention::Claim(key(c)));
            let mounted =
                volumes::mounted(&object["spec"])
                    .into_iter()
                    .map(|mounted| match mounted {
                        Mounted::ConfigMap(name) => Mention::ConfigMap(key(&name)),
                        Mounted::Secret(name) => Mention::Secret(key(&name)),
                    });
            claims.chain(mounted).collect()
        }
        Kind::ControllerRevision | Kind::Pod => object::controller_of(object)
            .map(|owner| Mention::Owner(owner.uid.to_owned()))
            .into_iter()
            .collect(),
        Kind::ConfigMap
        | Kind::DataVolume
        | Kind::Node
        | Kind::PersistentVolumeClaim
        | Kind::Secret => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn vmi(version: u64, uid: &str, claim: &str) -> Value {
        json!({
            "metadata": {"namespace": "a", "name": "x", "uid": uid,
                         "resourceVersion": version.to_string(), "managedFields": [{}]},
            "spec": {"volumes": [{"name": "v", "dataVolume": {"name": claim}}]},
        })
    }

    #[test]
    fn older_versions_and_the_dead_are_dropped() {
        let cache = Cache::default();
        let kind = Kind::VirtualMachineInstance;
        assert!(cache.put(kind, vmi(5, "u1", "c")).is_some());
        assert!(cache.put(kind, vmi(4, "u1", "c")).is_none());
        assert!(cache.put(kind, vmi(5, "u1", "c")).is_none());
        assert!(cache.remove(kind, &vmi(7, "u1", "c")).is_some());
        assert!(
            cache.put(kind, vmi(6, "u1", "c")).is_none(),
            "a late answer"
        );
        assert!(cache.put(kind, vmi(8, "u2", "c")).is_some());
        assert!(cache.remove(kind, &vmi(7, "u1", "c")).is_none());
        assert_eq!(cache.count(kind), 1);
    }

    #[test]
    fn mentions_follow_the_object() {
        let cache = Cache::default();
        let kind = Kind::VirtualMachineInstance;
        let claim = |name| Mention::Claim(Key::new("a", name));
        cache.put(kind, vmi(1, "u1", "c"));
        assert_eq!(cache.mentioning(kind, &claim("c")).len(), 1);
        cache.put(kind, vmi(2, "u1", "d"));
        assert_eq!(cache.mentioning(kind, &claim("c")).len(), 0);
        assert_eq!(cache.mentioning(kind, &claim("d")).len(), 1);
        let changes = cache.replace(kind, Vec::new());
        assert_eq!(changes.len(), 1);
        assert_eq!(cache.mentioning(kind, &claim("d")).len(), 0);
    }
}
