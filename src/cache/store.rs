//! One kind of object as the watch last showed it: trimmed, indexed, and honest about whether it is
//! complete. Knows nothing of the network: `watch` feeds it.
//!
//! kube's reflector is not used, for three reasons: it keeps whole objects, where decisions read a few
//! fields of thousands of VMs, most of which are not ours; it has no index, where each decision asks for
//! the VMs of one owner; and once ready it stays ready, also while a watch that was reset lists everything
//! anew and the store is known to be behind.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Namespace and name.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Key {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl Key {
    /// Of these two.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }
}

/// What objects are looked up by, beside their names.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Index {
    /// Pools and revisions: the config that they name.
    Config(Key),
    /// VMs: UID in the annotation `member-of`.
    MemberOf(String),
    /// Pools: the namespace.
    Namespace(String),
    /// VMs: UID of the controller.
    Owner(String),
    /// Claims: the VM whose vTPM or EFI state they hold.
    PersistentStateFor(Key),
    /// VMs and instances: the revision in their label.
    Revision(Key),
    /// Pools: their UID.
    Uid(String),
}

/// A trimmed object.
pub trait View: PartialEq + Send + Sync + 'static {
    /// Where it is.
    fn key(&self) -> Key;
    /// What it is looked up by.
    fn indices(&self) -> Vec<Index>;
    /// Its resource version; empty if the view keeps none.
    fn version(&self) -> &str;
}

/// What became of one object. Neither `None`: changed, perhaps into another object of the same name.
#[derive(Debug)]
pub struct Change<V> {
    /// As it was.
    pub old: Option<Arc<V>>,
    /// As it is.
    pub new: Option<Arc<V>>,
}

/// What a watch says.
#[derive(Debug)]
pub enum Step<V> {
    /// An object is there, or changed.
    Apply(V),
    /// An object is gone.
    Delete(Key),
    /// Everything is about to be listed.
    Init,
    /// One object of the list.
    InitApply(V),
    /// The list is complete.
    InitDone,
    /// The API server doesn't know the kind.
    NotInstalled,
}

/// The objects of one kind.
#[derive(Debug)]
pub struct Store<V> {
    state: RwLock<State<V>>,
}

#[derive(Debug)]
struct State<V> {
    objects: HashMap<Key, Arc<V>>,
    index: HashMap<Index, BTreeSet<Key>>,
    /// What a list in progress has shown so far.
    incoming: Option<HashMap<Key, Arc<V>>>,
    synced: bool,
    installed: Option<bool>,
    newest: u64,
}

impl<V> Default for Store<V> {
    fn default() -> Self {
        Self {
            state: RwLock::new(State {
                objects: HashMap::new(),
                index: HashMap::new(),
                incoming: None,
                synced: false,
                installed: None,
                newest: 0,
            }),
        }
    }
}

impl<V: View> Store<V> {
    /// Whether it holds everything that there is: false before the first list is complete, and again from a
    /// reset of the watch until the new list is complete.
    pub fn is_synced(&self) -> bool {
        self.read().synced
    }

    /// Whether the API server knows the kind; `None` before that was asked.
    pub fn installed(&self) -> Option<bool> {
        self.read().installed
    }

    /// Whether decisions can rest on it: complete, or known to have nothing to hold.
    pub fn is_settled(&self) -> bool {
        let state = self.read();
        state.synced || state.installed == Some(false)
    }

    /// The object of that name.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<V>> {
        self.read().objects.get(&Key::new(namespace, name)).cloned()
    }

    /// The objects with that index, by name.
    pub fn select(&self, index: &Index) -> Vec<Arc<V>> {
        let state = self.read();
        state
            .index
            .get(index)
            .into_iter()
            .flatten()
            .filter_map(|key| state.objects.get(key).cloned())
            .collect()
    }

    /// How many objects have that index.
    pub fn count(&self, index: &Index) -> usize {
        self.read().index.get(index).map_or(0, BTreeSet::len)
    }

    /// All objects, in no order.
    pub fn all(&self) -> Vec<Arc<V>> {
        self.read().objects.values().cloned().collect()
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.read().objects.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.read().objects.is_empty()
    }

    /// Whether the watch has shown something at least as new as `version`: then whatever that version wrote
    /// has been shown too, even if it is gone again. False in doubt.
    pub fn has_reached(&self, version: &str) -> bool {
        let state = self.read();
        // A list in progress has versions that are not shown yet.
        state.incoming.is_none()
            && version
                .parse::<u64>()
                .is_ok_and(|version| version <= state.newest)
    }

    /// Takes in what the watch says. Returns what changed; a list in progress changes nothing before it is
    /// complete.
    pub fn take(&self, step: Step<V>) -> Vec<Change<V>> {
        let mut state = self.write();
        match step {
            Step::Apply(view) => {
                state.installed = Some(true);
                state.note_version(view.version());
                state.set(Arc::new(view)).into_iter().collect()
            }
            Step::Delete(key) => state.remove(&key).into_iter().collect(),
            Step::Init => {
                state.synced = false;
                state.incoming = Some(HashMap::new());
                Vec::new()
            }
            Step::InitApply(view) => {
                state.note_version(view.version());
                let incoming = state.incoming.get_or_insert_default();
                incoming.insert(view.key(), Arc::new(view));
                Vec::new()
            }
            Step::InitDone => {
                state.installed = Some(true);
                state.synced = true;
                let incoming = state.incoming.take().unwrap_or_default();
                state.replace(incoming)
            }
            Step::NotInstalled => {
                state.installed = Some(false);
                state.synced = false;
                state.incoming = None;
                state.replace(HashMap::new())
            }
        }
    }

    /// A panic elsewhere while the lock was held leaves at worst an index entry too many, which lookups skip.
    fn read(&self) -> RwLockReadGuard<'_, State<V>> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State<V>> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<V: View> State<V> {
    fn set(&mut self, view: Arc<V>) -> Option<Change<V>> {
        let key = view.key();
        let old = self.objects.insert(key.clone(), Arc::clone(&view));
        if old.as_deref() == Some(&*view) {
            return None;
        }
        if let Some(old) = &old {
            self.unindex(old, &key);
        }
        for index in view.indices() {
            self.index.entry(index).or_default().insert(key.clone());
        }
        Some(Change {
            old,
            new: Some(view),
        })
    }

    fn remove(&mut self, key: &Key) -> Option<Change<V>> {
        let old = self.objects.remove(key)?;
        self.unindex(&old, key);
        Some(Change {
            old: Some(old),
            new: None,
        })
    }

    fn replace(&mut self, objects: HashMap<Key, Arc<V>>) -> Vec<Change<V>> {
        let gone: Vec<Key> = self
            .objects
            .keys()
            .filter(|key| !objects.contains_key(key))
            .cloned()
            .collect();
        let mut changes: Vec<_> = gone.iter().filter_map(|key| self.remove(key)).collect();
        changes.extend(objects.into_values().filter_map(|view| self.set(view)));
        changes
    }

    fn unindex(&mut self, view: &V, key: &Key) {
        for index in view.indices() {
            if let Some(keys) = self.index.get_mut(&index) {
                keys.remove(key);
                if keys.is_empty() {
                    self.index.remove(&index);
                }
            }
        }
    }

    /// Resource versions are numbers that grow over all objects of a kind (KEP-5504); what is no number is
    /// never waited for.
    fn note_version(&mut self, version: &str) {
        if let Ok(version) = version.parse() {
            self.newest = self.newest.max(version);
        }
    }
}
