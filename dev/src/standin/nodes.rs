//! The played nodes and scheduler: which node a launcher pod gets, and which nodes are lost.
//!
//! Looks at real Node objects, so that tests may label, cordon or delete them. Counts VMs, not
//! resources. Honours `nodeSelector`, required node affinity and `unschedulable`; not taints, pod
//! affinity or preferences.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::knobs::NodeSpec;
use super::names::SCHEDULABLE;
use super::object::{Key, Obj, items, map, name, time, uid};
use super::vmi::Place;

#[derive(Default)]
struct State {
    /// Node by VMI UID.
    placed: HashMap<String, String>,
    /// VMs on each node.
    load: HashMap<String, usize>,
    capacity: HashMap<String, usize>,
    /// Most VMs on all nodes together.
    total: Option<usize>,
    lost: HashSet<String>,
    /// VMIs that found no place.
    waiting: HashSet<Key>,
}

/// Who is where.
#[derive(Default)]
pub(super) struct Nodes(Mutex<State>);

impl Nodes {
    pub(super) fn new(specs: &[NodeSpec]) -> Self {
        let capacity = specs
            .iter()
            .filter_map(|spec| Some((spec.name.clone(), spec.capacity?)))
            .collect();
        Self(Mutex::new(State {
            capacity,
            ..State::default()
        }))
    }

    /// The place of a VMI, taken for it: the least loaded node that fits.
    pub(super) fn place(&self, vmi: &Value, nodes: &[Obj]) -> Place {
        let mut state = self.lock();
        if let Some(node) = state.placed.get(uid(vmi)) {
            return Place::Node(node.clone());
        }
        let full = state.total.is_some_and(|total| state.placed.len() >= total);
        let best = nodes
            .iter()
            .filter(|node| !full && fits(vmi, node) && state.has_room(name(node)))
            .map(|node| (state.load.get(name(node)).copied().unwrap_or(0), name(node)))
            .min();
        if let Some((_, node)) = best {
            let node = node.to_owned();
            state.put(uid(vmi), &node);
            state.waiting.remove(&Key::of(vmi));
            Place::Node(node)
        } else {
            state.waiting.insert(Key::of(vmi));
            Place::Nowhere(format!(
                "0/{0} nodes are available: {0} Insufficient memory.",
                nodes.len()
            ))
        }
    }

    /// Learns where a VMI's pod is.
    pub(super) fn learn(&self, vmi_uid: &str, node: &str) {
        self.lock().put(vmi_uid, node);
    }

    /// Frees a VMI's place; returns who waits for one.
    pub(super) fn free(&self, vmi_uid: &str) -> Vec<Key> {
        let mut state = self.lock();
        let Some(node) = state.placed.remove(vmi_uid) else {
            return Vec::new();
        };
        if let Some(load) = state.load.get_mut(&node) {
            *load = load.saturating_sub(1);
        }
        state.waiting.iter().cloned().collect()
    }

    /// Bounds the number of VMs on all nodes; returns who waits for a place.
    pub(super) fn set_total(&self, total: Option<usize>) -> Vec<Key> {
        let mut state = self.lock();
        state.total = total;
        state.waiting.iter().cloned().collect()
    }

    pub(super) fn set_lost(&self, node: &str, lost: bool) {
        let mut state = self.lock();
        if lost {
            state.lost.insert(node.to_owned());
        } else {
            state.lost.remove(node);
        }
    }

    pub(super) fn is_lost(&self, node: &str) -> bool {
        self.lock().lost.contains(node)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn put(&mut self, vmi_uid: &str, node: &str) {
        let old = self.placed.insert(vmi_uid.to_owned(), node.to_owned());
        if old.as_deref() == Some(node) {
            return;
        }
        *self.load.entry(node.to_owned()).or_default() += 1;
        if let Some(load) = old.and_then(|old| self.load.get_mut(&old)) {
            *load = load.saturating_sub(1);
        }
    }

    fn has_room(&self, node: &str) -> bool {
        let load = self.load.get(node).copied().unwrap_or(0);
        !self.lost.contains(node) && self.capacity.get(node).is_none_or(|most| load < *most)
    }
}

fn fits(vmi: &Value, node: &Value) -> bool {
    let labels = &node["metadata"]["labels"];
    let selected = map(&vmi["spec"]["nodeSelector"])
        .iter()
        .all(|(key, value)| labels[key] == *value);
    labels[SCHEDULABLE] == "true"
        && node["spec"]["unschedulable"] != true
        && selected
        && affine(vmi, labels)
}

fn affine(vmi: &Value, labels: &Value) -> bool {
    let required =
        &vmi["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    if required.is_null() {
        return true;
    }
    items(&required["nodeSelectorTerms"]).iter().any(|term| {
        items(&term["matchExpressions"]).iter().all(|expression| {
            let value = expression["key"].as_str().map(|key| &labels[key]);
            let value = value.filter(|value| !value.is_null());
            let listed = value.is_some_and(|value| items(&expression["values"]).contains(value));
            match expression["operator"].as_str() {
                Some("In") => listed,
                Some("NotIn") => !listed,
                Some("Exists") => value.is_some(),
                Some("DoesNotExist") => value.is_none(),
                _ => false,
            }
        })
    })
}

/// A Node object as the stand-in makes it.
pub(super) fn node(spec: &NodeSpec) -> Value {
    let mut labels: BTreeMap<&str, &str> = BTreeMap::from([
        (SCHEDULABLE, "true"),
        ("kubernetes.io/hostname", &spec.name),
        ("kubernetes.io/arch", "amd64"),
        ("kubernetes.io/os", "linux"),
    ]);
    labels.extend(spec.labels.iter().map(|(k, v)| (k.as_str(), v.as_str())));
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": spec.name, "labels": labels},
    })
}

/// A Node's status while it answers, or after it went silent.
pub(super) fn node_status(answers: bool, now: Timestamp) -> Value {
    let (status, reason, message) = if answers {
        ("True", "KubeletReady", "kubelet is posting ready status")
    } else {
        (
            "Unknown",
            "NodeStatusUnknown",
            "Kubelet stopped posting node status.",
        )
    };
    json!({"status": {
        "conditions": [{
            "type": "Ready", "status": status, "reason": reason, "message": message,
            "lastHeartbeatTime": time(now), "lastTransitionTime": time(now),
        }],
        "capacity": {"cpu": "64", "memory": "256Gi", "pods": "10000",
                     "devices.kubevirt.io/kvm": "1k"},
    }})
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn nodes(specs: &[NodeSpec]) -> Vec<Obj> {
        specs.iter().map(|spec| Arc::new(node(spec))).collect()
    }

    fn vmi(uid: &str, spec: &Value) -> Value {
        json!({"metadata": {"namespace": "a", "name": uid, "uid": uid}, "spec": spec})
    }

    #[test]
    fn places_are_spread_and_run_out() {
        let specs = [
            NodeSpec::new("n1").capacity(1),
            NodeSpec::new("n2").capacity(1),
        ];
        let objects = nodes(&specs);
        let played = Nodes::new(&specs);
        let place = |uid| played.place(&vmi(uid, &json!({})), &objects);
        assert_eq!(place("a"), Place::Node("n1".into()));
        assert_eq!(place("a"), Place::Node("n1".into()), "asked twice");
        assert_eq!(place("b"), Place::Node("n2".into()));
        assert!(matches!(place("c"), Place::Nowhere(_)));
        assert_eq!(played.free("a"), [Key::new("a", "c")]);
        assert_eq!(place("c"), Place::Node("n1".into()));
    }

    #[test]
    fn selectors_affinity_and_loss_count() {
        let specs = [NodeSpec::new("n1"), NodeSpec::new("n2").label("zone", "b")];
        let objects = nodes(&specs);
        let played = Nodes::new(&specs);
        let selected = vmi("a", &json!({"nodeSelector": {"zone": "b"}}));
        assert_eq!(played.place(&selected, &objects), Place::Node("n2".into()));
        let term = json!({"matchExpressions": [
            {"key": "zone", "operator": "NotIn", "values": ["b"]}]});
        let affine = vmi(
            "b",
            &json!({"affinity": {"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}}),
        );
        assert_eq!(played.place(&affine, &objects), Place::Node("n1".into()));
        played.set_lost("n2", true);
        let selected = vmi("c", &json!({"nodeSelector": {"zone": "b"}}));
        assert!(matches!(
            played.place(&selected, &objects),
            Place::Nowhere(_)
        ));
    }
}
