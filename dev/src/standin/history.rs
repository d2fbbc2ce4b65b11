//! What happened to VMs, in order, for tests and benchmarks to assert on.
//!
//! Recorded from VMIs as the cache sees them change, whoever changed them; never read by the
//! stand-in itself.

use std::sync::{Mutex, MutexGuard, PoisonError};

use k8s_openapi::jiff::Timestamp;

use super::cache::Change;
use super::object::{self, is_deleting, phase};

/// One thing that happened to a VM's instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// The VMI was made: the VM was asked to start.
    Started,
    /// The VMI came to Running.
    Running,
    /// The VMI's Ready condition became True.
    Ready,
    /// The VMI's Ready condition ceased to be True.
    Unready,
    /// The VMI was marked for deletion.
    Stopping,
    /// The VMI ended in Succeeded.
    Succeeded,
    /// The VMI ended in Failed.
    Failed,
    /// The VMI object is gone.
    Gone,
}

/// An event with its VM and time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// When the stand-in saw it.
    pub at: Timestamp,
    /// The VM's namespace.
    pub namespace: String,
    /// The VM's name.
    pub vm: String,
    /// The instance's UID.
    pub vmi_uid: String,
    /// What happened.
    pub event: Event,
}

/// All records, oldest first.
#[derive(Default)]
pub(super) struct History(Mutex<Vec<Record>>);

impl History {
    pub(super) fn record(&self, change: &Change, now: Timestamp) {
        let object = change.new.as_ref().or(change.old.as_ref());
        let Some(object) = object else { return };
        let events = events(change);
        let mut records = self.lock();
        records.extend(events.into_iter().map(|event| Record {
            at: now,
            namespace: change.key.namespace.clone(),
            vm: change.key.name.clone(),
            vmi_uid: object::uid(object).to_owned(),
            event,
        }));
    }

    pub(super) fn all(&self) -> Vec<Record> {
        self.lock().clone()
    }

    pub(super) fn clear(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Record>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn events(change: &Change) -> Vec<Event> {
    let mut events = Vec::new();
    let old = change.old.as_deref();
    let Some(new) = change.new.as_deref() else {
        return vec![Event::Gone];
    };
    // A VMI deleted and made again between two looks shows as a change of UID.
    let old = old.filter(|old| object::uid(old) == object::uid(new));
    if old.is_none() {
        events.push(Event::Started);
    }
    let old_phase = old.map_or("", phase);
    if phase(new) != old_phase {
        match phase(new) {
            "Running" => events.push(Event::Running),
            "Succeeded" => events.push(Event::Succeeded),
            "Failed" => events.push(Event::Failed),
            _ => {}
        }
    }
    let ready = |vmi| object::has_condition(vmi, "Ready", "True");
    match (old.is_some_and(ready), ready(new)) {
        (false, true) => events.push(Event::Ready),
        (true, false) => events.push(Event::Unready),
        _ => {}
    }
    if is_deleting(new) && !old.is_some_and(is_deleting) {
        events.push(Event::Stopping);
    }
    events
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use crate::standin::kinds::Kind;
    use crate::standin::object::Key;

    fn change(old: Option<Value>, new: Option<Value>) -> Change {
        Change {
            kind: Kind::VirtualMachineInstance,
            key: Key::new("a", "x"),
            old: old.map(Arc::new),
            new: new.map(Arc::new),
        }
    }

    #[test]
    fn a_life_is_told_in_order() {
        let made = json!({"metadata": {"uid": "1"}});
        let running = json!({"metadata": {"uid": "1"}, "status": {"phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}]}});
        let mut dying = running.clone();
        dying["metadata"]["deletionTimestamp"] = json!("t");
        assert_eq!(events(&change(None, Some(made.clone()))), [Event::Started]);
        assert_eq!(
            events(&change(Some(made), Some(running.clone()))),
            [Event::Running, Event::Ready]
        );
        assert_eq!(
            events(&change(Some(running.clone()), Some(dying))),
            [Event::Stopping]
        );
        assert_eq!(events(&change(Some(running), None)), [Event::Gone]);
    }
}
