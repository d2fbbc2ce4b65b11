//! The launcher pod: its manifest, and what a kubelet reports of it.
//!
//! Source: the recorded `launcher-pod.yaml` (labels, annotations, readiness gate, status),
//! `pkg/virt-controller/services/template.go` and `rendervolumes.go` (what it mounts). Shorter than
//! the real one: one container, no resources, so that a scheduler's view of the cluster is the
//! stand-in's own. No decisions about the VMI here.

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::names::{CREATED_BY, LAUNCHER_IMAGE, NODE_NAME, SCHEDULABLE, UNPAUSED, VM_GENERATION};
use super::object::{
    annotation, condition, controller_reference, is_deleting, items, map, name, namespace, phase,
    set_condition, text, time, uid,
};
use super::volumes::{self, Mounted};

/// What the launcher needs on top of the guest's grace period; `--grace-period-seconds` and the
/// pod's own field in the recorded pod (0 in the VM's spec, 30 in the pod's).
const LAUNCHER_GRACE_SECONDS: i64 = 30;

/// KubeVirt's `DefaultGracePeriodSeconds`.
const GUEST_GRACE_SECONDS: i64 = 30;

/// Every played node's pods are told this address of the host, as the recorded pod was.
const HOST_IP: &str = "192.168.0.1";

/// Seconds that the guest may take to shut down.
pub(super) fn grace_seconds(vmi: &Value) -> i64 {
    vmi["spec"]["terminationGracePeriodSeconds"]
        .as_i64()
        .unwrap_or(GUEST_GRACE_SECONDS)
}

/// A new launcher pod, on this node, or on none yet.
pub(super) fn launcher(vmi: &Value, node: Option<&str>) -> Value {
    let vm = name(vmi);
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": format!("virt-launcher-{vm}-"),
            "namespace": namespace(vmi),
            "labels": labels(vmi),
            "annotations": annotations(vmi),
            "ownerReferences": [
                controller_reference(vmi, "kubevirt.io/v1", "VirtualMachineInstance")
            ],
        },
        "spec": {
            "automountServiceAccountToken": false,
            "containers": [container(vmi)],
            "enableServiceLinks": false,
            "hostname": hostname(vmi),
            "nodeSelector": node_selector(vmi),
            "readinessGates": [{"conditionType": UNPAUSED}],
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": grace_seconds(vmi) + LAUNCHER_GRACE_SECONDS,
            "volumes": pod_volumes(&vmi["spec"]),
        },
    });
    let spec = &mut pod["spec"];
    if let Some(node) = node {
        spec["nodeName"] = json!(node);
    }
    for field in [
        "affinity",
        "tolerations",
        "priorityClassName",
        "schedulerName",
    ] {
        if !vmi["spec"][field].is_null() {
            spec[field] = vmi["spec"][field].clone();
        }
    }
    let account = items(&vmi["spec"]["volumes"])
        .iter()
        .find_map(|volume| volume["serviceAccount"]["serviceAccountName"].as_str());
    if let Some(account) = account {
        spec["serviceAccountName"] = json!(account);
    }
    pod
}

fn labels(vmi: &Value) -> Value {
    let vm = name(vmi);
    let mut labels = map(&vmi["metadata"]["labels"]);
    labels.remove(NODE_NAME);
    labels.insert("kubevirt.io".into(), json!("virt-launcher"));
    labels.insert(CREATED_BY.into(), json!(uid(vmi)));
    labels.insert("vm.kubevirt.io/name".into(), json!(vm));
    labels.insert("vmi.kubevirt.io/id".into(), json!(vm));
    Value::Object(labels)
}

fn annotations(vmi: &Value) -> Value {
    let mut annotations = map(&vmi["metadata"]["annotations"]);
    // `ShouldAnnotationBePropagated`: these stay on the VMI.
    annotations.retain(|key, _| {
        !key.ends_with("-observed-api-version")
            && key != "kubectl.kubernetes.io/last-applied-configuration"
    });
    annotations.insert("kubevirt.io/domain".into(), json!(name(vmi)));
    annotations.insert("kubevirt.io/migrationTransportUnix".into(), json!("true"));
    annotations.insert(
        "kubectl.kubernetes.io/default-container".into(),
        json!("compute"),
    );
    if let Some(generation) = annotation(vmi, VM_GENERATION) {
        annotations.insert(VM_GENERATION.into(), json!(generation));
    }
    Value::Object(annotations)
}

fn container(vmi: &Value) -> Value {
    let mut container = json!({
        "name": "compute",
        "image": LAUNCHER_IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": ["/usr/bin/virt-launcher-monitor"],
    });
    if has_readiness_probe(vmi) {
        // The real one wraps the VMI's probe into an exec of virt-probe.
        container["readinessProbe"] = json!({"exec": {"command": ["virt-probe"]}});
    }
    container
}

pub(super) fn has_readiness_probe(vmi: &Value) -> bool {
    vmi["spec"]["readinessProbe"].is_object()
}

/// `SanitizeHostname`: the VM's name up to its first dot, at most 63 characters.
fn hostname(vmi: &Value) -> String {
    let own = text(&vmi["spec"]["hostname"]);
    let name = if own.is_empty() { name(vmi) } else { own };
    let first = name.split('.').next().unwrap_or_default();
    let short: String = first.chars().take(63).collect();
    short.trim_end_matches('-').to_owned()
}

fn node_selector(vmi: &Value) -> Value {
    let mut selector = map(&vmi["spec"]["nodeSelector"]);
    selector.insert(SCHEDULABLE.into(), json!("true"));
    Value::Object(selector)
}

fn pod_volumes(spec: &Value) -> Value {
    let mut pod_volumes: Vec<Value> = volumes::claims(spec)
        .map(|(name, claim)| json!({"name": name, "persistentVolumeClaim": {"claimName": claim}}))
        .collect();
    for (index, mounted) in volumes::mounted(spec).into_iter().enumerate() {
        pod_volumes.push(match mounted {
            Mounted::ConfigMap(name) => {
                json!({"name": format!("config-{index}"), "configMap": {"name": name}})
            }
            Mounted::Secret(name) => {
                json!({"name": format!("secret-{index}"), "secret": {"secretName": name}})
            }
        });
    }
    Value::Array(pod_volumes)
}

pub(super) fn node(pod: &Value) -> Option<&str> {
    pod["spec"]["nodeName"].as_str()
}

/// `IsPodReady` of KubeVirt: the launcher runs, whatever its readiness probe says.
pub(super) fn is_running(pod: &Value) -> bool {
    phase(pod) == "Running" && !is_down(pod)
}

/// `IsPodDownOrGoingDown`.
pub(super) fn is_down(pod: &Value) -> bool {
    is_deleting(pod) || is_over(pod)
}

pub(super) fn is_over(pod: &Value) -> bool {
    matches!(phase(pod), "Failed" | "Succeeded")
}

/// Why a container waits, when one does.
pub(super) fn waiting(pod: &Value) -> Option<(&str, &str)> {
    items(&pod["status"]["containerStatuses"])
        .iter()
        .map(|status| &status["state"]["waiting"])
        .find(|waiting| waiting.is_object())
        .map(|waiting| (text(&waiting["reason"]), text(&waiting["message"])))
}

/// The status that a scheduler leaves on a pod it finds no node for.
pub(super) fn unschedulable(message: &str, now: Timestamp) -> Value {
    json!({"conditions": [{
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
        "message": message, "lastProbeTime": null, "lastTransitionTime": time(now),
    }]})
}

/// The status of a pod whose containers cannot start yet.
pub(super) fn pending(reason: &str, message: &str, now: Timestamp) -> Value {
    let mut waiting = json!({"reason": reason});
    if !message.is_empty() {
        waiting["message"] = json!(message);
    }
    json!({
        "phase": "Pending",
        "hostIP": HOST_IP,
        "startTime": time(now),
        "conditions": [
            pod_condition("PodScheduled", "True", None, now),
            pod_condition("Initialized", "True", None, now),
            pod_condition("Ready", "False", NOT_READY, now),
            pod_condition("ContainersReady", "False", NOT_READY, now),
        ],
        "containerStatuses": [container_status(false, &json!({"waiting": waiting}))],
    })
}

/// The status of a pod whose launcher runs.
pub(super) fn running(pod: &Value, ready: bool, now: Timestamp) -> Value {
    let mut conditions = vec![
        pod_condition("PodScheduled", "True", None, now),
        pod_condition("Initialized", "True", None, now),
        json!({"type": UNPAUSED, "status": "True", "reason": "NotPaused",
               "message": "the virtual machine is not paused",
               "lastProbeTime": time(now), "lastTransitionTime": time(now)}),
    ];
    conditions.extend(ready_conditions(ready, now));
    json!({
        "phase": "Running",
        "hostIP": HOST_IP,
        "podIP": ip(pod),
        "podIPs": [{"ip": ip(pod)}],
        "startTime": time(now),
        "conditions": conditions,
        "containerStatuses": [
            container_status(ready, &json!({"running": {"startedAt": time(now)}}))
        ],
    })
}

/// A change of a running pod's readiness: its conditions and container status.
pub(super) fn readiness(pod: &Value, ready: bool, now: Timestamp) -> Value {
    let mut conditions = items(&pod["status"]["conditions"]).to_vec();
    for condition in ready_conditions(ready, now) {
        set_condition(&mut conditions, condition);
    }
    let mut container = items(&pod["status"]["containerStatuses"])
        .first()
        .cloned()
        .unwrap_or_else(|| container_status(ready, &json!({})));
    container["ready"] = json!(ready);
    json!({"conditions": conditions, "containerStatuses": [container]})
}

/// The end of a launcher whose guest is gone.
pub(super) fn over(failed: bool, now: Timestamp) -> Value {
    let exit = i32::from(failed);
    let state = json!({"terminated": {
        "exitCode": exit,
        "reason": if failed { "Error" } else { "Completed" },
        "finishedAt": time(now),
    }});
    json!({
        "phase": if failed { "Failed" } else { "Succeeded" },
        "conditions": ready_conditions(false, now),
        "containerStatuses": [container_status(false, &state)],
    })
}

pub(super) fn is_ready(pod: &Value) -> bool {
    condition(pod, "Ready").is_some_and(|c| c["status"] == "True")
}

const NOT_READY: Option<&str> = Some("ContainersNotReady");

fn ready_conditions(ready: bool, now: Timestamp) -> Vec<Value> {
    let (status, reason) = if ready {
        ("True", None)
    } else {
        ("False", NOT_READY)
    };
    ["Ready", "ContainersReady"]
        .into_iter()
        .map(|kind| pod_condition(kind, status, reason, now))
        .collect()
}

fn pod_condition(kind: &str, status: &str, reason: Option<&str>, now: Timestamp) -> Value {
    let mut condition = json!({
        "type": kind, "status": status,
        "lastProbeTime": null, "lastTransitionTime": time(now),
    });
    if let Some(reason) = reason {
        condition["reason"] = json!(reason);
        condition["message"] = json!("containers with unready status: [compute]");
    }
    condition
}

fn container_status(ready: bool, state: &Value) -> Value {
    let started = state["running"].is_object();
    json!({
        "name": "compute",
        "image": LAUNCHER_IMAGE,
        "imageID": "standin@sha256:0",
        "ready": ready,
        "started": started,
        "restartCount": 0,
        "lastState": {},
        "state": state,
    })
}

/// An address in 10.244.0.0/16 that is always the same for a pod.
pub(super) fn ip(pod: &Value) -> String {
    let sum = uid(pod).bytes().fold(0_u32, |sum, byte| {
        sum.wrapping_mul(31).wrapping_add(u32::from(byte))
    });
    format!("10.244.{}.{}", (sum >> 8) % 256, sum % 254 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_follow_the_instance() {
        let vmi = json!({"metadata": {"name": "x", "namespace": "a", "uid": "u",
            "labels": {"mine": "1", NODE_NAME: "old"}}, "spec": {}});
        let pod = launcher(&vmi, Some("n"));
        assert_eq!(
            pod["metadata"]["labels"],
            json!({"mine": "1", "kubevirt.io": "virt-launcher", CREATED_BY: "u",
                   "vm.kubevirt.io/name": "x", "vmi.kubevirt.io/id": "x"})
        );
        assert_eq!(pod["spec"]["nodeName"], "n");
        assert_eq!(pod["spec"]["terminationGracePeriodSeconds"], 60);
    }

    #[test]
    fn hostnames_are_labels() {
        let vmi = |name: &str| json!({"metadata": {"name": name}, "spec": {}});
        assert_eq!(hostname(&vmi("db.prod-1")), "db");
        assert_eq!(hostname(&vmi(&"a".repeat(70))).len(), 63);
    }
}
