//! The status of a VMI from its pod, its disks and the phase it is to be in.
//!
//! Source: `updateStatus` and `syncReadyConditionFromPod` in
//! `pkg/virt-controller/watch/vmi/lifecycle.go`, `aggregateDataVolumesConditions` in
//! `…/vmi/datavolumes.go`, and the recorded VMIs. The phase itself is decided in `vmi.rs`.

use serde_json::{Map, Value, json};

use super::api::Patch;
use super::names::{LAUNCHER_IMAGE, NODE_NAME, POD_SCHEDULED, PVC_NOT_FOUND, READY, SYNCHRONIZED};
use super::object::{
    condition, has_condition, items, map, phase, remove_condition, set_condition, text, time, uid,
};
use super::pod;
use super::vm::SyncError;
use super::vmi::View;
use super::volumes;

/// The write that brings the VMI to this phase and its conditions up to date, if it is not there.
pub(super) fn patch(view: &View<'_>, to: &str, error: Option<&SyncError>) -> Option<Patch> {
    let vmi = view.vmi;
    let status = status(view, to, error);
    let mut patch = Patch::new(vmi);
    if Value::Object(status.clone()) != vmi["status"] {
        patch = patch.set("/status", Value::Object(status));
    }
    let node = view.pod().and_then(pod::node);
    if let Some(node) = node.filter(|_| matches!(to, "Scheduled" | "Running")) {
        let mut labels = map(&vmi["metadata"]["labels"]);
        if labels.insert(NODE_NAME.into(), json!(node)) != Some(json!(node)) {
            patch = patch.set("/metadata/labels", Value::Object(labels));
        }
    }
    (!patch.is_empty()).then_some(patch)
}

fn status(view: &View<'_>, to: &str, error: Option<&SyncError>) -> Map<String, Value> {
    let vmi = view.vmi;
    let mut status = map(&vmi["status"]);
    if phase(vmi) != to {
        status.insert("phase".into(), json!(to));
        let mut transitions = items(&vmi["status"]["phaseTransitionTimestamps"]).to_vec();
        transitions.retain(|entry| entry["phase"] != to);
        transitions.push(json!({"phase": to, "phaseTransitionTimestamp": time(view.now)}));
        status.insert("phaseTransitionTimestamps".into(), json!(transitions));
    }
    if !view.pods.is_empty() || status.contains_key("activePods") {
        let active: Map<String, Value> = view
            .pods
            .iter()
            .map(|pod| (uid(pod).to_owned(), json!(pod::node(pod).unwrap_or(""))))
            .collect();
        status.insert("activePods".into(), Value::Object(active));
    }
    if let Some(pod) = view.pod() {
        pod_facts(&mut status, pod);
        if matches!(to, "Scheduled" | "Running") {
            placed(view, &mut status, pod);
        }
        if to == "Running" {
            in_guest(view, &mut status, pod);
        }
    }
    let conditions = conditions(view, to, error);
    status.insert("conditions".into(), Value::Array(conditions));
    status
}

fn pod_facts(status: &mut Map<String, Value>, pod: &Value) {
    status.insert(
        "launcherContainerImageVersion".into(),
        json!(LAUNCHER_IMAGE),
    );
    status.entry("guestOSInfo").or_insert_with(|| json!({}));
    status.insert("runtimeUser".into(), json!(107));
    let class = &pod["status"]["qosClass"];
    if !class.is_null() {
        status.insert("qosClass".into(), class.clone());
    }
}

fn placed(view: &View<'_>, status: &mut Map<String, Value>, pod: &Value) {
    if let Some(node) = pod::node(pod) {
        status.insert("nodeName".into(), json!(node));
    }
    status.insert("migrationTransport".into(), json!("Unix"));
    status
        .entry("interfaces")
        .or_insert_with(|| json!([{"name": "default", "podInterfaceName": "eth0"}]));
    let volumes = items(&view.vmi["spec"]["volumes"]).iter().map(|volume| {
        let mut entry = json!({"name": volume["name"], "target": ""});
        if let Some(claim) = volumes::claim_of(volume) {
            entry["persistentVolumeClaimInfo"] = json!({"claimName": claim});
        }
        entry
    });
    status.insert("volumeStatus".into(), volumes.collect());
}

fn in_guest(view: &View<'_>, status: &mut Map<String, Value>, pod: &Value) {
    status.insert("machine".into(), json!({"type": "q35"}));
    let ip = pod::ip(pod);
    status.insert(
        "interfaces".into(),
        json!([{"name": "default", "podInterfaceName": "eth0", "infoSource": "domain",
                "ipAddress": ip, "ipAddresses": [ip]}]),
    );
    // A hot-plugged CPU or memory is there at once.
    let domain = &view.vmi["spec"]["domain"];
    if let Some(topology) = status.get_mut("currentCPUTopology") {
        topology["sockets"] = domain["cpu"]["sockets"].clone();
    }
    if let Some(memory) = status.get_mut("memory")
        && !memory["guestAtBoot"].is_null()
    {
        memory["guestCurrent"] = domain["memory"]["guest"].clone();
        memory["guestRequested"] = domain["memory"]["guest"].clone();
    }
}

fn conditions(view: &View<'_>, to: &str, error: Option<&SyncError>) -> Vec<Value> {
    let mut conditions = items(&view.vmi["status"]["conditions"]).to_vec();
    set_condition(&mut conditions, ready(view, to));
    if to == "Running" {
        for kind in ["LiveMigratable", "StorageLiveMigratable"] {
            set_condition(
                &mut conditions,
                json!({"type": kind, "status": "True",
                       "lastProbeTime": null, "lastTransitionTime": null}),
            );
        }
    }
    if let Some(condition) = data_volumes_ready(view) {
        set_condition(&mut conditions, condition);
    }
    match error {
        Some(error) => set_condition(
            &mut conditions,
            json!({"type": SYNCHRONIZED, "status": "False", "reason": error.reason,
                   "message": error.message, "lastProbeTime": null,
                   "lastTransitionTime": time(view.now)}),
        ),
        None => remove_condition(&mut conditions, SYNCHRONIZED),
    }
    match unscheduled(view, error) {
        Some(condition) => set_condition(&mut conditions, condition),
        None => remove_condition(&mut conditions, POD_SCHEDULED),
    }
    conditions
}

fn ready(view: &View<'_>, to: &str) -> Value {
    let now = time(view.now);
    let no = |reason: &str, message: &str| {
        json!({"type": READY, "status": "False", "reason": reason, "message": message,
               "lastProbeTime": now, "lastTransitionTime": now})
    };
    let Some(pod) = view.pod() else {
        return no(
            "PodNotExists",
            "virt-launcher pod has not yet been scheduled",
        );
    };
    if pod::is_down(pod) {
        return no("PodTerminating", "virt-launcher pod is terminating");
    }
    // The phase written *now* counts only in the next pass: Running shows before Ready does.
    if phase(view.vmi) != "Running" || to != "Running" {
        return no("GuestNotRunning", "Guest VM is not reported as running");
    }
    match condition(pod, "Ready") {
        Some(of_pod) => {
            let mut ready = of_pod.clone();
            if ready["lastProbeTime"].is_null() {
                ready["lastProbeTime"] = Value::Null;
            }
            ready
        }
        None => no(
            "PodConditionMissing",
            "virt-launcher pod is missing the Ready condition",
        ),
    }
}

fn data_volumes_ready(view: &View<'_>) -> Option<Value> {
    let mut found = false;
    let mut all = "True";
    for name in volumes::data_volumes(&view.vmi["spec"]) {
        let Some(dv) = view.disks.data_volumes.get(name) else {
            continue;
        };
        found = true;
        match condition(dv, "Ready").map(|c| text(&c["status"])) {
            Some("True") => {}
            Some("False") => all = "False",
            _ if all == "True" => all = "Unknown",
            _ => {}
        }
    }
    let (reason, message) = if all == "True" {
        ("AllDVsReady", "All of the VMI's DVs are bound and ready")
    } else {
        ("NotAllDVsReady", "Not all of the VMI's DVs are ready")
    };
    found.then(|| {
        json!({"type": "DataVolumesReady", "status": all, "reason": reason, "message": message,
               "lastProbeTime": null, "lastTransitionTime": null})
    })
}

fn unscheduled(view: &View<'_>, error: Option<&SyncError>) -> Option<Value> {
    if let Some(error) = error.filter(|error| error.reason == PVC_NOT_FOUND) {
        return Some(
            json!({"type": POD_SCHEDULED, "status": "False", "reason": "Unschedulable",
            "message": error.message, "lastProbeTime": null, "lastTransitionTime": null}),
        );
    }
    let pod = view.pod()?;
    has_condition(pod, POD_SCHEDULED, "False")
        .then(|| condition(pod, POD_SCHEDULED).cloned())
        .flatten()
}

/// `checkForContainerImageError`.
pub(super) fn image_error(pod: &Value) -> Option<SyncError> {
    let (reason, message) = pod::waiting(pod)?;
    let reason = match reason {
        "ErrImagePull" => "ErrImagePull",
        "ImagePullBackOff" => "ImagePullBackOff",
        _ => return None,
    };
    Some(SyncError {
        reason,
        message: message.to_owned(),
    })
}
