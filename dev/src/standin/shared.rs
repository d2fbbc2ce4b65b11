//! What the stand-in's tasks share, and which work a change of an object calls for.
//!
//! Every object taken in, from a watch or from the answer to a write, passes here: it goes into
//! the cache, into the history when it is a VMI, and wakes those who look at it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::api::Api;
use super::cache::{Cache, Change, Mention};
use super::history::History;
use super::kinds::Kind;
use super::knobs::{Options, Table};
use super::nodes::Nodes;
use super::object::{self, Key, Obj, controller_of};
use super::pod;
use super::queue::{Queue, Work};
use super::vm::{Rules, is_final};

/// A start revision's spec, kept by VM UID with the revision's name.
type Revisions = HashMap<String, (String, Obj)>;

/// The shared state.
pub(super) struct Shared {
    pub(super) api: Api,
    pub(super) cache: Cache,
    pub(super) history: History,
    pub(super) nodes: Nodes,
    pub(super) options: Options,
    pub(super) queue: Queue,
    pub(super) rules: Rules,
    revisions: Mutex<Revisions>,
    since: Mutex<HashMap<String, HashMap<String, Instant>>>,
    table: Mutex<Table>,
}

impl Shared {
    pub(super) fn new(api: Api, options: Options) -> Self {
        Self {
            api,
            cache: Cache::default(),
            history: History::default(),
            nodes: Nodes::new(&options.nodes),
            queue: Queue::default(),
            rules: Rules {
                backoff_scale: options.backoff_scale,
                combine_writes: options.combine_writes,
                live_update: options.live_update,
            },
            options,
            revisions: Mutex::default(),
            since: Mutex::default(),
            table: Mutex::default(),
        }
    }

    /// Takes in an object; `by` is the work whose own write this is, which needs no waking.
    pub(super) fn take_object(&self, kind: Kind, object: Value, by: Option<&Work>) {
        if let Some(change) = self.cache.put(kind, object) {
            self.wake(&change, by);
        }
    }

    pub(super) fn take_deletion(&self, kind: Kind, object: &Value) {
        if let Some(change) = self.cache.remove(kind, object) {
            self.wake(&change, None);
        }
    }

    pub(super) fn take_list(&self, kind: Kind, objects: Vec<Value>) {
        let was_listed = self.cache.is_listed();
        for change in self.cache.replace(kind, objects) {
            self.wake(&change, None);
        }
        if !was_listed && self.cache.is_listed() {
            tracing::debug!("All kinds were listed");
        }
    }

    /// How long something about an object has been so: since this was first asked.
    pub(super) fn age(&self, uid: &str, what: &str) -> Duration {
        let mut since = lock(&self.since);
        let marks = since.entry(uid.to_owned()).or_default();
        if let Some(start) = marks.get(what) {
            return start.elapsed();
        }
        marks.insert(what.to_owned(), Instant::now());
        Duration::ZERO
    }

    pub(super) fn table(&self) -> MutexGuard<'_, Table> {
        lock(&self.table)
    }

    /// The spec in a start revision, if this is the one that was kept for the VM.
    pub(super) fn kept_revision(&self, vm_uid: &str, revision: &str) -> Option<Obj> {
        lock(&self.revisions)
            .get(vm_uid)
            .filter(|(name, _)| name == revision)
            .map(|(_, spec)| spec.clone())
    }

    pub(super) fn keep_revision(&self, vm_uid: &str, revision: &str, spec: Obj) {
        lock(&self.revisions).insert(vm_uid.to_owned(), (revision.to_owned(), spec));
    }

    fn wake(&self, change: &Change, by: Option<&Work>) {
        let add = |work: Work| {
            if by != Some(&work) {
                self.queue.add(work);
            }
        };
        let key = &change.key;
        match change.kind {
            Kind::VirtualMachine => {
                add(Work::Vm(key.clone()));
                if change.new.is_none() {
                    add(Work::Vmi(key.clone()));
                    self.forget_vm(change);
                }
            }
            Kind::VirtualMachineInstance => {
                self.note_vmi(change);
                add(Work::Vmi(key.clone()));
                add(Work::Vm(key.clone()));
            }
            Kind::Pod => self.note_pod(change).into_iter().for_each(add),
            Kind::DataVolume | Kind::PersistentVolumeClaim => {
                add(Work::DataVolume(key.clone()));
                self.wake_mentioning(&Mention::Claim(key.clone()), add);
                self.forget(change);
            }
            Kind::Secret if change.old.is_none() => {
                self.wake_mentioning(&Mention::Secret(key.clone()), add);
            }
            Kind::ConfigMap if change.old.is_none() => {
                self.wake_mentioning(&Mention::ConfigMap(key.clone()), add);
            }
            Kind::Node => self.wake_all_instances(),
            Kind::ConfigMap | Kind::ControllerRevision | Kind::Secret => {}
        }
    }

    pub(super) fn wake_all_instances(&self) {
        for vmi in self.cache.all(Kind::VirtualMachineInstance) {
            self.queue.add(Work::Vmi(Key::of(&vmi)));
        }
    }

    fn wake_mentioning(&self, mention: &Mention, add: impl Fn(Work)) {
        for vm in self.cache.mentioning(Kind::VirtualMachine, mention) {
            add(Work::Vm(Key::of(&vm)));
        }
        for vmi in self.cache.mentioning(Kind::VirtualMachineInstance, mention) {
            add(Work::Vmi(Key::of(&vmi)));
        }
    }

    fn note_vmi(&self, change: &Change) {
        if self.cache.is_listed() {
            self.history.record(change, vmpool::clock::now());
        }
        let ended = change.new.as_deref().is_none_or(is_final);
        if let Some(vmi) = change.old.as_deref().or(change.new.as_deref())
            && ended
        {
            for waiting in self.nodes.free(object::uid(vmi)) {
                self.queue.add(Work::Vmi(waiting));
            }
        }
        match (&change.old, &change.new) {
            (Some(old), None) => self.wake_left_behind(old),
            (None, Some(_)) => self.wake_consumed(change),
            _ => {}
        }
        self.forget(change);
    }

    /// A VMI without finalizers may go before its pods do.
    fn wake_left_behind(&self, vmi: &Value) {
        let owner = Mention::Owner(object::uid(vmi).to_owned());
        for pod in self.cache.mentioning(Kind::Pod, &owner) {
            self.queue.add(Work::Pod(Key::of(&pod)));
        }
    }

    /// A claim that waits for its first consumer may have found it.
    fn wake_consumed(&self, change: &Change) {
        if self.options.wait_for_first_consumer.is_empty() {
            return;
        }
        let Some(vmi) = change.new.as_deref() else {
            return;
        };
        for (_, claim) in super::volumes::claims(&vmi["spec"]) {
            let key = Key::new(&change.key.namespace, claim);
            self.queue.add(Work::DataVolume(key));
        }
    }

    fn note_pod(&self, change: &Change) -> Option<Work> {
        let pod = change.new.as_deref().or(change.old.as_deref())?;
        let owner = controller_of(pod)?;
        let key = Key::new(&change.key.namespace, owner.name);
        let runs = |vmi: Obj| object::uid(&vmi) == owner.uid && !is_final(&vmi);
        if let (Some(node), Some(_)) = (pod::node(pod), &change.new)
            && self
                .cache
                .get(Kind::VirtualMachineInstance, &key)
                .is_some_and(runs)
        {
            self.nodes.learn(owner.uid, node);
        }
        self.forget(change);
        if change.new.as_deref().is_some_and(object::is_deleting) {
            self.queue.add(Work::Pod(change.key.clone()));
        }
        Some(Work::Vmi(key))
    }

    fn forget(&self, change: &Change) {
        if let (Some(old), None) = (&change.old, &change.new) {
            lock(&self.since).remove(object::uid(old));
            self.table().ends.remove(object::uid(old));
        }
    }

    fn forget_vm(&self, change: &Change) {
        if let Some(old) = &change.old {
            lock(&self.revisions).remove(object::uid(old));
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
