//! The status of a VM from what exists: printable status, conditions, generations, start failures.
//!
//! Source: `updateStatus`, `setPrintableStatus`, `syncConditions`, `syncStartFailureStatus` and
//! `isTrimFirstChangeRequestNeeded` in `pkg/virt-controller/watch/vm/vm.go`,
//! `pkg/storage/types/{dv,pvc}.go`, and the recorded objects. Pure: it starts and stops nothing.

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use super::live_update::{Verdict, verdict};
use super::names::{
    FAILURE, POD_SCHEDULED, PVC_NOT_FOUND, READY, RESTART_REQUIRED, SYNCHRONIZED, VM_GENERATION,
};
use super::object::{
    annotation, condition, generation, has_condition, is_deleting, items, phase, remove_condition,
    set_condition, text, time, uid,
};
use super::vm::{SyncError, View, first_request, is_final, run_strategy, was_running};
use super::volumes;

/// KubeVirt's `defaultMaxCrashLoopBackoffDelaySeconds`.
const LONGEST_BACKOFF: i64 = 300;

/// The status that this VM should have, given that the last pass ended in this error or none.
pub(super) fn status(view: &View<'_>, error: Option<&SyncError>) -> Value {
    let mut status = view.vm["status"].as_object().cloned().unwrap_or_default();
    let created = view.vmi.is_some();
    let ready = view
        .vmi
        .is_some_and(|vmi| has_condition(vmi, READY, "True"));
    set_or_remove(&mut status, "created", created.then_some(Value::Bool(true)));
    set_or_remove(&mut status, "ready", ready.then_some(Value::Bool(true)));
    if let Some(started) = view
        .vmi
        .and_then(|vmi| annotation(vmi, VM_GENERATION))
        .and_then(|text| text.parse::<i64>().ok())
    {
        status.insert("observedGeneration".into(), json!(started));
        status.insert("desiredGeneration".into(), json!(generation(view.vm)));
    }
    if created || status.contains_key("runStrategy") {
        status.insert("runStrategy".into(), json!(run_strategy(view.vm)));
    }
    trim_requests(view, &mut status);
    start_failure(view, &mut status);
    let mut conditions = items(&view.vm["status"]["conditions"]).to_vec();
    sync_conditions(view, error, &mut conditions);
    status.insert("conditions".into(), Value::Array(conditions));
    let failing = status.contains_key("startFailure");
    status.insert(
        "printableStatus".into(),
        json!(printable_status(view, failing)),
    );
    status.insert("volumeSnapshotStatuses".into(), snapshots(view.vm));
    Value::Object(status)
}

fn set_or_remove(status: &mut Map<String, Value>, field: &str, value: Option<Value>) {
    match value {
        Some(value) => {
            status.insert(field.into(), value);
        }
        None => {
            status.remove(field);
        }
    }
}

/// Drops the first start or stop request once it is fulfilled or cannot be.
fn trim_requests(view: &View<'_>, status: &mut Map<String, Value>) {
    let Some(request) = first_request(view.vm) else {
        return;
    };
    let done = match (text(&request["action"]), view.vmi) {
        ("Stop", None) => true,
        ("Stop", Some(vmi)) => request["uid"].as_str() != Some(uid(vmi)),
        ("Start", Some(vmi)) => !is_deleting(vmi) && !is_final(vmi),
        _ => false,
    };
    if done {
        let rest = &items(&view.vm["status"]["stateChangeRequests"])[1..];
        let rest = (!rest.is_empty()).then(|| json!(rest));
        set_or_remove(status, "stateChangeRequests", rest);
    }
}

fn start_failure(view: &View<'_>, status: &mut Map<String, Value>) {
    let restarts = matches!(run_strategy(view.vm), "Always" | "RerunOnFailure" | "Once");
    if !restarts || view.vmi.is_some_and(was_running) {
        status.remove("startFailure");
        return;
    }
    let Some(vmi) = view.vmi.filter(|vmi| is_final(vmi)) else {
        return;
    };
    let last = &view.vm["status"]["startFailure"];
    if last["lastFailedVMIUID"].as_str() == Some(uid(vmi)) {
        return;
    }
    let count = last["consecutiveFailCount"].as_i64().unwrap_or(0) + 1;
    let seconds = backoff_seconds(count, uid(vmi));
    let retry = retry_after(view.now, seconds, view.rules.backoff_scale);
    status.insert(
        "startFailure".into(),
        json!({
            "consecutiveFailCount": count,
            "lastFailedVMIUID": uid(vmi),
            "retryAfterTimestamp": retry,
        }),
    );
}

/// `calculateStartBackoffTime`: 10 s times the square of the count, plus up to half, at most 300.
/// The random part comes from the UID, so that this stays a function.
fn backoff_seconds(count: i64, seed: &str) -> i64 {
    let interval = (LONGEST_BACKOFF / 30).max(10);
    let delay = interval.saturating_mul(count.saturating_mul(count));
    let random = seed
        .bytes()
        .fold(7_i64, |sum, byte| (sum * 31 + i64::from(byte)) % 1_000_003);
    (delay.saturating_add(random % (delay / 2 + 1))).min(LONGEST_BACKOFF)
}

/// Whole seconds as KubeVirt writes them, milliseconds only when a test has scaled time down.
fn retry_after(now: Timestamp, seconds: i64, scale: f64) -> Value {
    let wait = SignedDuration::from_secs(seconds);
    #[allow(
        clippy::float_cmp,
        reason = "exactly 1.0 means that time is not scaled"
    )]
    if scale == 1.0 {
        return time(now + wait);
    }
    let at = now + wait.mul_f64(scale);
    json!(at.strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string())
}

fn sync_conditions(view: &View<'_>, error: Option<&SyncError>, conditions: &mut Vec<Value>) {
    set_condition(conditions, ready_condition(view));
    match error {
        Some(error) => set_condition(
            conditions,
            json!({"type": FAILURE, "status": "True", "reason": error.reason,
                   "message": error.message, "lastProbeTime": null,
                   "lastTransitionTime": time(view.now)}),
        ),
        None => remove_condition(conditions, FAILURE),
    }
    sync_restart_required(view, conditions);
    let Some(vmi) = view.vmi else { return };
    let own = |kind: &str| matches!(kind, READY | FAILURE | RESTART_REQUIRED);
    let of_vmi = items(&vmi["status"]["conditions"]);
    conditions.retain(|old| {
        own(text(&old["type"])) || of_vmi.iter().any(|new| new["type"] == old["type"])
    });
    for condition in of_vmi.iter().filter(|c| !own(text(&c["type"]))) {
        set_condition(conditions, condition.clone());
    }
}

fn ready_condition(view: &View<'_>) -> Value {
    let now = time(view.now);
    let own = |reason: &str, message: &str| {
        json!({"type": READY, "status": "False", "reason": reason, "message": message,
               "lastProbeTime": now, "lastTransitionTime": now})
    };
    match view.vmi {
        None => own("VMINotExists", "VMI does not exist"),
        Some(vmi) => condition(vmi, READY)
            .cloned()
            .unwrap_or_else(|| own("VMIConditionMissing", "VMI is missing the Ready condition")),
    }
}

fn sync_restart_required(view: &View<'_>, conditions: &mut Vec<Value>) {
    let Some(vmi) = view.vmi else { return };
    let judged = view
        .started_from
        .map(|spec| verdict(spec, view.vm, vmi, view.rules.live_update));
    // Without a spec to compare with, the VMI runs the current generation.
    match judged {
        Some(Verdict::Restart(message)) => set_condition(
            conditions,
            json!({"type": RESTART_REQUIRED, "status": "True", "message": message,
                   "lastProbeTime": null, "lastTransitionTime": time(view.now)}),
        ),
        Some(Verdict::Live(_) | Verdict::Unchanged) | None => {
            remove_condition(conditions, RESTART_REQUIRED);
        }
    }
}

/// The first that matches, in KubeVirt's order.
fn printable_status(view: &View<'_>, failing: bool) -> &'static str {
    let vmi = view.vmi;
    let in_phase = |wanted: &[&str]| vmi.is_some_and(|vmi| wanted.contains(&phase(vmi)));
    let synchronized = |reason: &str| {
        vmi.and_then(|vmi| condition(vmi, SYNCHRONIZED))
            .is_some_and(|c| c["status"] == "False" && c["reason"] == reason)
    };
    let paused = vmi.is_some_and(|vmi| has_condition(vmi, "Paused", "True"));
    let ended = vmi.is_none_or(is_final);
    let strategy = run_strategy(view.vm);
    if is_deleting(view.vm) {
        "Terminating"
    } else if vmi.is_some_and(|vmi| !is_final(vmi) && is_deleting(vmi)) {
        "Stopping"
    } else if in_phase(&["Running"]) {
        if paused { "Paused" } else { "Running" }
    } else if synchronized(PVC_NOT_FOUND) {
        "ErrorPvcNotFound"
    } else if data_volume_error(view) {
        "DataVolumeError"
    } else if vmi
        .and_then(|vmi| condition(vmi, POD_SCHEDULED))
        .is_some_and(|c| c["status"] == "False" && c["reason"] == "Unschedulable")
    {
        "ErrorUnschedulable"
    } else if provisioning(view) {
        "Provisioning"
    } else if set_to_start(view) && unbound_claim(view) {
        "WaitingForVolumeBinding"
    } else if synchronized("ErrImagePull") {
        "ErrImagePull"
    } else if synchronized("ImagePullBackOff") {
        "ImagePullBackOff"
    } else if in_phase(&["", "Pending", "Scheduling", "Scheduled"]) {
        "Starting"
    } else if ended && failing && matches!(strategy, "Always" | "RerunOnFailure" | "Once") {
        "CrashLoopBackOff"
    } else if ended {
        "Stopped"
    } else {
        "Unknown"
    }
}

fn template(vm: &Value) -> &Value {
    &vm["spec"]["template"]["spec"]
}

fn data_volume_error(view: &View<'_>) -> bool {
    volumes::data_volumes(template(view.vm))
        .filter_map(|name| view.disks.data_volumes.get(name))
        .any(|dv| {
            phase(dv) == "Failed"
                || condition(dv, "Running").is_some_and(|c| {
                    c["status"] == "False"
                        && matches!(text(&c["reason"]), "Error" | "ImagePullFailed")
                })
        })
}

fn provisioning(view: &View<'_>) -> bool {
    volumes::data_volumes(template(view.vm))
        .filter_map(|name| view.disks.data_volumes.get(name))
        .any(|dv| match phase(dv) {
            "Succeeded" | "PendingPopulation" => false,
            "WaitForFirstConsumer" => has_condition(dv, "Bound", "True"),
            _ => true,
        })
}

fn unbound_claim(view: &View<'_>) -> bool {
    volumes::claims(template(view.vm))
        .filter_map(|(_, claim)| view.disks.claims.get(claim))
        .any(|claim| phase(claim) != "Bound")
}

fn set_to_start(view: &View<'_>) -> bool {
    let request = first_request(view.vm).map(|request| text(&request["action"]));
    match (run_strategy(view.vm), view.vmi) {
        ("Always", _) | ("Once" | "RerunOnFailure", None) => true,
        ("Manual", Some(_)) => request != Some("Stop"),
        ("Manual", None) => request == Some("Start"),
        ("RerunOnFailure", Some(vmi)) => phase(vmi) != "Succeeded",
        _ => false,
    }
}

/// What the snapshot controller writes in a cluster without `VolumeSnapshotClass`.
fn snapshots(vm: &Value) -> Value {
    let statuses = items(&template(vm)["volumes"]).iter().map(|volume| {
        let name = text(&volume["name"]);
        let reason = match volumes::claim_of(volume) {
            Some(claim) => format!(
                "No VolumeSnapshotClass: Volume snapshots are not configured for this \
                 StorageClass [{}] [{name}]",
                storage_class(vm, claim)
            ),
            None => {
                format!("Snapshot is not supported for this volumeSource type [{name}]")
            }
        };
        json!({"name": name, "enabled": false, "reason": reason})
    });
    Value::Array(statuses.collect())
}

fn storage_class<'a>(vm: &'a Value, claim: &str) -> &'a str {
    items(&vm["spec"]["dataVolumeTemplates"])
        .iter()
        .find(|template| template["metadata"]["name"] == claim)
        .and_then(|template| {
            ["storage", "pvc"]
                .iter()
                .find_map(|way| template["spec"][way]["storageClassName"].as_str())
        })
        .unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_is_quadratic_and_capped() {
        for seed in ["a", "b", "0c1d"] {
            assert!((10..=15).contains(&backoff_seconds(1, seed)));
            assert!((40..=60).contains(&backoff_seconds(2, seed)));
            assert!((90..=135).contains(&backoff_seconds(3, seed)));
            assert_eq!(backoff_seconds(6, seed), 300);
            assert_eq!(backoff_seconds(i64::MAX, seed), 300);
        }
    }
}
