//! Builders: `pool("web").replicas(3).with(vm("web-1").ready())`. Objects are read from JSON, the way that
//! the caches read them.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::core::DynamicObject;
use serde_json::{Value, json};

use super::super::*;
use crate::api::pool::{
    BasePolicy, ProactiveScaleIn, ScaleInStrategy, SelectionPolicy, StatePreservation,
};
use crate::kubevirt::{Live, VmView, VmiView};
use crate::stamp::{PoolInputs, StampMark, parse_ordinal};

/// UID of every pool here.
pub(super) const POOL_UID: &str = "pool-uid";
/// Content hash of the revision that new VMs are stamped from.
const NEW: &str = "new";

/// So many seconds after the start of all films.
pub(super) fn at(seconds: i64) -> Timestamp {
    "2026-01-01T12:00:00Z".parse::<Timestamp>().unwrap() + SignedDuration::from_secs(seconds)
}

/// The stamp that has that revision.
pub(super) fn mark(content: &str) -> StampMark {
    StampMark::new(content, &PoolInputs::default())
}

/// A pool of no replicas, with a config and a revision.
pub(super) fn pool(name: &str) -> Snapshot {
    Snapshot {
        pool: Pool {
            namespace: "tests".to_owned(),
            name: name.to_owned(),
            uid: POOL_UID.to_owned(),
            generation: 1,
            deleting: false,
            spec: serde_json::from_value(json!({"replicas": 0, "config": {"name": "desktop"}}))
                .unwrap(),
            status: VirtualMachinePoolStatus::default(),
        },
        config: Config::Ready,
        target: Some(Target {
            revision: "desktop-new".to_owned(),
            content_hash: NEW.to_owned(),
            disks_hash: "disks-new".to_owned(),
            inputs: PoolInputs::default(),
            relabelled_since: BTreeSet::new(),
            alike: BTreeSet::new(),
            stamp_hash: mark(NEW).hash,
            live: Live::default(),
            has_disk_templates: false,
        }),
        members: Vec::new(),
        former: Vec::new(),
        intents: Intents::default(),
        occupied: BTreeMap::new(),
        expected_creates: Vec::new(),
        expected_deletes: Vec::new(),
        expected_updates: BTreeSet::new(),
        expected_restarts: BTreeSet::new(),
        failed_updates: BTreeSet::new(),
        waiting: BTreeMap::new(),
        memory: Memory::default(),
        failures: BTreeMap::new(),
        kubevirt_installed: true,
        cdi_installed: true,
        limits: Limits { burst: 250 },
    }
}

impl Snapshot {
    pub(super) fn replicas(mut self, replicas: i32) -> Self {
        self.pool.spec.replicas = Some(replicas);
        self
    }

    pub(super) fn with(mut self, vm: Vm) -> Self {
        let member = vm.member(&self.pool.name);
        self.members.push(member);
        self
    }

    pub(super) fn with_all(self, vms: impl IntoIterator<Item = Vm>) -> Self {
        vms.into_iter().fold(self, Self::with)
    }

    pub(super) fn taken(mut self, ordinal: u32) -> Self {
        let by = format!("VirtualMachine {}-{ordinal}", self.pool.name);
        self.occupied.insert(ordinal, Occupied::Taken { by });
        self
    }

    pub(super) fn burst(mut self, burst: u32) -> Self {
        self.limits.burst = burst;
        self
    }

    pub(super) fn paused(mut self) -> Self {
        self.pool.spec.paused = Some(true);
        self
    }

    pub(super) fn base(self, policy: BasePolicy) -> Self {
        self.proactive(ProactiveScaleIn {
            selection_policy: Some(SelectionPolicy {
                base_policy: Some(policy),
                ..SelectionPolicy::default()
            }),
            state_preservation: None,
        })
    }

    pub(super) fn preserving(self, preservation: StatePreservation) -> Self {
        self.proactive(ProactiveScaleIn {
            selection_policy: None,
            state_preservation: Some(preservation),
        })
    }

    pub(super) fn proactive(self, proactive: ProactiveScaleIn) -> Self {
        self.strategy(ScaleInStrategy {
            proactive: Some(proactive),
            ..ScaleInStrategy::default()
        })
    }

    pub(super) fn unmanaged(self) -> Self {
        self.strategy(serde_json::from_value(json!({"unmanaged": {}})).unwrap())
    }

    pub(super) fn strategy(mut self, strategy: ScaleInStrategy) -> Self {
        self.pool.spec.scale_in_strategy = Some(strategy);
        self
    }

    pub(super) fn max_unavailable(mut self, most: i32) -> Self {
        self.pool.spec.max_unavailable = Some(IntOrString::Int(most));
        self
    }

    /// The update strategy, as JSON.
    pub(super) fn updates(mut self, strategy: Value) -> Self {
        self.pool.spec.update_strategy = Some(serde_json::from_value(strategy).unwrap());
        self
    }

    pub(super) fn failed(self, kind: Kind, retry_at: Timestamp) -> Self {
        self.failed_for(kind, kind.failed(), retry_at)
    }

    pub(super) fn failed_for(
        mut self,
        kind: Kind,
        reason: &'static str,
        retry_at: Timestamp,
    ) -> Self {
        let failure = Failure {
            reason,
            message: format!("{kind:?} refused"),
            retry_at,
        };
        self.failures.insert(kind, failure);
        self
    }

    /// The same with what `plan` says carried over, as the controller does it.
    pub(super) fn after(mut self, plan: &Plan) -> Self {
        self.pool.status = stored(&plan.status);
        self.waiting.clone_from(&plan.waiting);
        self.memory.clone_from(&plan.memory);
        self
    }
}

/// A status as it comes back from the API server.
pub(super) fn stored(status: &VirtualMachinePoolStatus) -> VirtualMachinePoolStatus {
    serde_json::from_value(serde_json::to_value(status).unwrap()).unwrap()
}

/// A VM to be, by default a running one at the newest revision whose instance is not Ready.
#[derive(Clone, Debug)]
pub(super) struct Vm {
    name: String,
    object: Value,
    vmi: Option<Value>,
    is_filling: bool,
    taken_disk: Option<String>,
}

/// A member of that name.
pub(super) fn vm(name: &str) -> Vm {
    let uid = format!("uid-{name}");
    let hash = mark(NEW).hash;
    Vm {
        name: name.to_owned(),
        object: json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
            "metadata": {
                "name": name, "namespace": "tests", "uid": uid, "resourceVersion": "7",
                "creationTimestamp": "2026-01-01T11:00:00Z",
                "labels": {"vmpool.dev/pool-uid": POOL_UID},
                "annotations": {
                    "vmpool.dev/member-of": POOL_UID,
                    "vmpool.dev/stamp": mark(NEW).to_annotation(),
                },
                "ownerReferences": [{
                    "apiVersion": "vmpool.dev/v1alpha1", "kind": "VirtualMachinePool",
                    "name": "web", "uid": POOL_UID, "controller": true,
                }],
            },
            "spec": {"runStrategy": "Always", "template": {"spec": {}}},
        }),
        vmi: Some(json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
            "metadata": {
                "name": name, "namespace": "tests", "uid": format!("vmi-{uid}"),
                "annotations": {"vmpool.dev/stamp-hash": hash},
                "ownerReferences": [{
                    "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
                    "name": name, "uid": uid, "controller": true,
                }],
            },
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]},
        })),
        is_filling: false,
        taken_disk: None,
    }
}

/// The members `<prefix>-<n>` for those numbers.
pub(super) fn vms(prefix: &str, numbers: impl IntoIterator<Item = u32>) -> Vec<Vm> {
    numbers
        .into_iter()
        .map(|n| vm(&format!("{prefix}-{n}")))
        .collect()
}

impl Vm {
    pub(super) fn ready(self) -> Self {
        self.ready_since("2026-01-01T11:30:00Z")
    }

    pub(super) fn ready_since(mut self, since: &str) -> Self {
        if let Some(vmi) = &mut self.vmi {
            vmi["status"]["conditions"] =
                json!([{"type": "Ready", "status": "True", "lastTransitionTime": since}]);
        }
        self
    }

    pub(super) fn phase(mut self, phase: &str) -> Self {
        if let Some(vmi) = &mut self.vmi {
            vmi["status"]["phase"] = json!(phase);
        }
        self
    }

    pub(super) fn without_instance(mut self) -> Self {
        self.vmi = None;
        self
    }

    pub(super) fn run_strategy(mut self, strategy: &str) -> Self {
        self.object["spec"]["runStrategy"] = json!(strategy);
        self.object["status"]["runStrategy"] = json!(strategy);
        self
    }

    /// A disk of it has no data yet.
    pub(super) fn filling(mut self) -> Self {
        self.is_filling = true;
        self
    }

    /// What has the name of a disk that the target would bring.
    pub(super) fn disk_taken(mut self, by: &str) -> Self {
        self.taken_disk = Some(by.to_owned());
        self
    }

    pub(super) fn halted(self) -> Self {
        self.run_strategy("Halted").without_instance()
    }

    pub(super) fn start_requested(mut self) -> Self {
        self.object["status"]["stateChangeRequests"] = json!([{"action": "Start"}]);
        self
    }

    pub(super) fn restart_required(mut self) -> Self {
        self.object["status"]["conditions"] =
            json!([{"type": "RestartRequired", "status": "True"}]);
        self
    }

    /// The VM object is at another revision.
    pub(super) fn stamped(mut self, content: &str) -> Self {
        self.object["metadata"]["annotations"]["vmpool.dev/stamp"] =
            json!(mark(content).to_annotation());
        self
    }

    /// The instance was started from another revision.
    pub(super) fn started_from(mut self, content: &str) -> Self {
        if let Some(vmi) = &mut self.vmi {
            vmi["metadata"]["annotations"]["vmpool.dev/stamp-hash"] = json!(mark(content).hash);
        }
        self
    }

    /// Object and instance are at that revision, and KubeVirt has compared them.
    pub(super) fn at(self, content: &str) -> Self {
        let revision = format!("desktop-{content}");
        let mut vm = self.stamped(content).started_from(content).generation(1, 1);
        vm.object["metadata"]["labels"]["vmpool.dev/revision"] = json!(revision);
        if let Some(vmi) = &mut vm.vmi {
            vmi["metadata"]["labels"] = json!({"vmpool.dev/revision": revision});
        }
        vm
    }

    /// The object was written from `old` to that revision, and the instance still is of `old`.
    pub(super) fn written(self, content: &str) -> Self {
        let mut vm = self.at("old").stamped(content).generation(2, 1);
        vm.object["metadata"]["labels"]["vmpool.dev/revision"] =
            json!(format!("desktop-{content}"));
        vm
    }

    /// Generation of the object, and the one that KubeVirt has compared the instance with.
    pub(super) fn generation(mut self, generation: i64, seen: i64) -> Self {
        self.object["metadata"]["generation"] = json!(generation);
        self.object["status"]["desiredGeneration"] = json!(seen);
        self
    }

    /// Something at a pointer of the VM.
    pub(super) fn with(mut self, pointer: &str, value: Value) -> Self {
        place(&mut self.object, pointer, value);
        self
    }

    /// Something at a pointer of the instance.
    pub(super) fn with_vmi(mut self, pointer: &str, value: Value) -> Self {
        place(self.vmi.as_mut().unwrap(), pointer, value);
        self
    }

    pub(super) fn created(mut self, time: &str) -> Self {
        self.object["metadata"]["creationTimestamp"] = json!(time);
        self
    }

    pub(super) fn deleting(mut self) -> Self {
        self.object["metadata"]["deletionTimestamp"] = json!("2026-01-01T11:59:00Z");
        self
    }

    pub(super) fn grace(mut self, seconds: i64) -> Self {
        self.object["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = json!(seconds);
        self
    }

    pub(super) fn protected(mut self, verbs: &str) -> Self {
        self.object["metadata"]["annotations"]["vmpool.dev/protected"] = json!(verbs);
        self
    }

    pub(super) fn uid(mut self, uid: &str) -> Self {
        self.object["metadata"]["uid"] = json!(uid);
        self
    }

    /// Somebody took the owner off, or there never was one.
    pub(super) fn ownerless(mut self) -> Self {
        self.object["metadata"]["ownerReferences"] = json!([]);
        self
    }

    /// Owned by something else.
    pub(super) fn owned_by(mut self, api_version: &str, uid: &str) -> Self {
        self.object["metadata"]["ownerReferences"][0]["apiVersion"] = json!(api_version);
        self.object["metadata"]["ownerReferences"][0]["uid"] = json!(uid);
        self
    }

    pub(super) fn view(&self) -> VmView {
        VmView::read(&object(&self.object)).unwrap()
    }

    pub(super) fn member(&self, prefix: &str) -> Member {
        Member {
            vm: self.view(),
            vmi: self
                .vmi
                .as_ref()
                .map(|vmi| VmiView::read(&object(vmi)).unwrap()),
            ordinal: parse_ordinal(prefix, &self.name),
            is_filling: self.is_filling,
            taken_disk: self.taken_disk.clone(),
        }
    }
}

/// Sets a value, making the objects on the way.
fn place(object: &mut Value, pointer: &str, value: Value) {
    let mut at = object;
    for step in pointer.split('/').skip(1) {
        at = &mut at[step.replace("~1", "/")];
    }
    *at = value;
}

fn object(value: &Value) -> DynamicObject {
    serde_json::from_value(value.clone()).unwrap()
}

/// The actions in one line: `create 1 2; delete web-3`, or `-`.
pub(super) fn deeds(plan: &Plan) -> String {
    let mut deeds: Vec<(&str, Vec<String>)> = [
        "detach", "release", "create", "delete", "update", "restart", "clear",
    ]
    .map(|verb| (verb, Vec::new()))
    .into();
    for action in &plan.actions {
        let (verb, what) = match action {
            Action::Create { ordinal } => ("create", ordinal.to_string()),
            Action::ClearIntents { uids } => ("clear", uids.join(" ")),
            Action::Delete { name, .. } => ("delete", name.clone()),
            Action::Detach { name, .. } => ("detach", name.clone()),
            Action::Release { name, .. } => ("release", name.clone()),
            Action::Restart { name, .. } => ("restart", name.clone()),
            Action::Update { name, .. } => ("update", name.clone()),
        };
        let known = deeds.iter_mut().find(|(known, _)| *known == verb);
        known.unwrap().1.push(what);
    }
    let all: Vec<String> = deeds
        .into_iter()
        .filter(|(_, what)| !what.is_empty())
        .map(|(verb, what)| format!("{verb} {}", what.join(" ")))
        .collect();
    if all.is_empty() {
        "-".to_owned()
    } else {
        all.join("; ")
    }
}

/// Status and reason of a condition: `True/Settled`, or `absent`.
pub(super) fn condition(plan: &Plan, kind: &str) -> String {
    let mut found = plan.status.conditions.iter().filter(|c| c.type_ == kind);
    let text = found.next().map_or_else(
        || "absent".to_owned(),
        |c| format!("{}/{}", c.status, c.reason),
    );
    assert!(found.next().is_none(), "there is one {kind} condition");
    text
}

/// Reasons of the events.
pub(super) fn told(plan: &Plan) -> Vec<&'static str> {
    plan.events.iter().map(|note| note.reason).collect()
}
