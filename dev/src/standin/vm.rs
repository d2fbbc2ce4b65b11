//! What KubeVirt's VM controller would do next for one VM.
//!
//! Source: `execute`, `sync`, `handleDataVolumes` and `syncRunStrategy` in
//! `pkg/virt-controller/watch/vm/vm.go`, `pkg/controller/controller_ref_manager.go` for the claims,
//! `pkg/virt-controller/watch/vm/firmware.go`. One step at a time, each decided from what exists
//! then: a step done twice, or after a restart, is the same step. No I/O.

use std::collections::HashMap;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::api::Patch;
use super::live_update::{Verdict, verdict};
use super::names::{
    CLAIM_ADOPTION, CREATED_BY, IMMEDIATE_DATA_VOLUMES, LATEST_VERSION, RESTART_REQUIRED,
    STORAGE_VERSION, VM_FINALIZER, VM_GENERATION,
};
use super::object::{
    Obj, annotation, controller_of, finalizers, generation, has_condition, has_finalizer,
    is_deleting, items, map, name, phase, same, text, uid,
};
use super::start;
use super::vm_status;

/// Settings that decisions depend on.
#[derive(Clone, Debug)]
pub(super) struct Rules {
    pub(super) backoff_scale: f64,
    pub(super) combine_writes: bool,
    pub(super) live_update: bool,
}

/// The disks that a VM or VMI mentions and that exist, by name.
#[derive(Clone, Debug, Default)]
pub(super) struct Disks {
    pub(super) claims: HashMap<String, Obj>,
    pub(super) data_volumes: HashMap<String, Obj>,
}

/// A VM and what its controller looks at.
pub(super) struct View<'a> {
    pub(super) vm: &'a Value,
    /// The VMI of the VM's name that has this VM as its controller.
    pub(super) vmi: Option<&'a Value>,
    /// The VMI of the VM's name when it has no controller.
    pub(super) orphan: Option<&'a Value>,
    pub(super) disks: &'a Disks,
    /// The VM spec that the VMI was started from, when the VM is of another generation.
    pub(super) started_from: Option<&'a Value>,
    pub(super) rules: &'a Rules,
    pub(super) now: Timestamp,
}

/// Why a pass could not do what it had to: KubeVirt's `SyncError`, shown as condition Failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SyncError {
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// One write.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    /// Take control of the DataVolume with this name and UID.
    ClaimDataVolume(String, String),
    /// Take control of the VMI with this UID.
    ClaimVmi(String),
    CreateDataVolume(Value),
    DeleteVmi,
    PatchVm(Patch),
    PatchVmStatus(Patch),
    PatchVmi(Patch),
    /// Make the start revision, then the VMI.
    Start,
}

/// What is to be done now.
#[derive(Debug, PartialEq)]
pub(super) enum Next {
    Do(Step),
    Rest,
    Wait(Duration),
}

pub(super) fn run_strategy(vm: &Value) -> &str {
    match (&vm["spec"]["runStrategy"], &vm["spec"]["running"]) {
        (Value::String(strategy), _) => strategy,
        (_, Value::Bool(true)) => "Always",
        _ => "Halted",
    }
}

pub(super) fn first_request(vm: &Value) -> Option<&Value> {
    items(&vm["status"]["stateChangeRequests"]).first()
}

pub(super) fn is_final(vmi: &Value) -> bool {
    matches!(phase(vmi), "Failed" | "Succeeded")
}

pub(super) fn was_running(vmi: &Value) -> bool {
    items(&vmi["status"]["phaseTransitionTimestamps"])
        .iter()
        .any(|entry| entry["phase"] == "Running")
}

/// The next write but for the status, which [`status_patch`] brings up to date afterwards.
pub(super) fn next(view: &View<'_>) -> Result<Next, SyncError> {
    let vm = view.vm;
    if let Some(step) = mark_as_seen(view) {
        return Ok(Next::Do(step));
    }
    if let Some(step) = claim(view) {
        return Ok(Next::Do(step));
    }
    if is_deleting(vm) {
        return Ok(delete(view));
    }
    if !has_finalizer(vm, VM_FINALIZER) {
        return Ok(Next::Do(Step::PatchVm(add_finalizer(Patch::new(vm), vm))));
    }
    if let Some(step) = bump_generation(view) {
        return Ok(Next::Do(step));
    }
    let next = sync(view)?;
    if next != Next::Rest {
        return Ok(next);
    }
    if let Some(step) = live_update(view) {
        return Ok(Next::Do(step));
    }
    if start::has_firmware_uuid(vm) {
        return Ok(Next::Rest);
    }
    let patch = start::add_firmware_uuid(Patch::new(vm), vm);
    Ok(Next::Do(Step::PatchVm(patch)))
}

/// The write that makes the status right, if it is not.
pub(super) fn status_patch(view: &View<'_>, error: Option<&SyncError>) -> Option<Patch> {
    let status = vm_status::status(view, error);
    (status != view.vm["status"]).then(|| Patch::new(view.vm).set("/status", status))
}

/// The write that lets an ended VMI go, once the VM's status tells of its end.
pub(super) fn release_vmi(view: &View<'_>) -> Option<Patch> {
    let vmi = view.vmi.filter(|vmi| is_final(vmi))?;
    has_finalizer(vmi, VM_FINALIZER).then(|| without_finalizer(Patch::new(vmi), vmi, VM_FINALIZER))
}

/// A patch that also takes a finalizer away.
pub(super) fn without_finalizer(patch: Patch, object: &Value, finalizer: &str) -> Patch {
    let rest: Vec<&str> = finalizers(object)
        .into_iter()
        .filter(|other| *other != finalizer)
        .collect();
    patch.set("/metadata/finalizers", json!(rest))
}

fn add_finalizer(patch: Patch, vm: &Value) -> Patch {
    let mut all = finalizers(vm);
    all.push(VM_FINALIZER);
    patch.set("/metadata/finalizers", json!(all))
}

fn mark_as_seen(view: &View<'_>) -> Option<Step> {
    let vm = view.vm;
    let seen = |key: &str| annotation(vm, key) == Some("v1");
    if seen(LATEST_VERSION) && seen(STORAGE_VERSION) {
        return None;
    }
    let mut annotations = map(&vm["metadata"]["annotations"]);
    annotations.insert(LATEST_VERSION.into(), json!("v1"));
    annotations.insert(STORAGE_VERSION.into(), json!("v1"));
    let mut patch = Patch::new(vm).set("/metadata/annotations", Value::Object(annotations));
    if view.rules.combine_writes && !is_deleting(vm) {
        if !has_finalizer(vm, VM_FINALIZER) {
            patch = add_finalizer(patch, vm);
        }
        if !start::has_firmware_uuid(vm) {
            patch = start::add_firmware_uuid(patch, vm);
        }
    }
    Some(Step::PatchVm(patch))
}

/// Orphans are claimed as long as neither side is being deleted; what another controls is left
/// alone, but a DataVolume of the template's name is *used* all the same (see `data_volumes`).
fn claim(view: &View<'_>) -> Option<Step> {
    if is_deleting(view.vm) {
        return None;
    }
    if let Some(orphan) = view.orphan.filter(|vmi| !is_deleting(vmi)) {
        return Some(Step::ClaimVmi(uid(orphan).to_owned()));
    }
    templates(view.vm)
        .filter_map(|template| view.disks.data_volumes.get(name(template)))
        .find(|dv| controller_of(dv).is_none() && !is_deleting(dv))
        .map(|dv| Step::ClaimDataVolume(name(dv).to_owned(), uid(dv).to_owned()))
}

fn delete(view: &View<'_>) -> Next {
    let vm = view.vm;
    match view.vmi {
        Some(vmi) if !has_finalizer(vm, "orphan") => stop(vmi),
        _ if has_finalizer(vm, VM_FINALIZER) => Next::Do(Step::PatchVm(without_finalizer(
            Patch::new(vm),
            vm,
            VM_FINALIZER,
        ))),
        _ => Next::Rest,
    }
}

fn stop(vmi: &Value) -> Next {
    if is_deleting(vmi) {
        Next::Rest
    } else {
        Next::Do(Step::DeleteVmi)
    }
}

/// A new generation that leaves the template as it was needs no restart: the VMI is told.
fn bump_generation(view: &View<'_>) -> Option<Step> {
    let (vmi, started) = (view.vmi?, view.started_from?);
    if is_deleting(vmi) || !same(&started["template"], &view.vm["spec"]["template"]) {
        return None;
    }
    let mut annotations = map(&vmi["metadata"]["annotations"]);
    annotations.insert(VM_GENERATION.into(), json!(generation(view.vm).to_string()));
    let patch = Patch::new(vmi).set("/metadata/annotations", Value::Object(annotations));
    Some(Step::PatchVmi(patch))
}

fn sync(view: &View<'_>) -> Result<Next, SyncError> {
    let strategy = run_strategy(view.vm);
    if annotation(view.vm, IMMEDIATE_DATA_VOLUMES) != Some("false") {
        match data_volumes(view) {
            DataVolumes::Missing(object) => return Ok(Next::Do(Step::CreateDataVolume(object))),
            DataVolumes::Unusable if strategy != "Halted" => return Ok(Next::Rest),
            DataVolumes::Unusable | DataVolumes::Usable => {}
        }
    }
    sync_run_strategy(view, strategy)
}

enum DataVolumes {
    Missing(Value),
    Unusable,
    Usable,
}

/// `handleDataVolumes`: whoever controls a DataVolume of a template's name, its phase counts.
fn data_volumes(view: &View<'_>) -> DataVolumes {
    let mut all = DataVolumes::Usable;
    for template in templates(view.vm) {
        let Some(dv) = view.disks.data_volumes.get(name(template)) else {
            return DataVolumes::Missing(new_data_volume(view.vm, template));
        };
        if !matches!(
            phase(dv),
            "Succeeded" | "WaitForFirstConsumer" | "PendingPopulation"
        ) {
            all = DataVolumes::Unusable;
        }
    }
    all
}

fn templates(vm: &Value) -> impl Iterator<Item = &Value> {
    items(&vm["spec"]["dataVolumeTemplates"]).iter()
}

fn new_data_volume(vm: &Value, template: &Value) -> Value {
    let mut labels = map(&template["metadata"]["labels"]);
    labels.insert(CREATED_BY.into(), json!(uid(vm)));
    let mut annotations = map(&template["metadata"]["annotations"]);
    annotations.insert(CLAIM_ADOPTION.into(), json!("true"));
    json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1",
        "kind": "DataVolume",
        "metadata": {
            "name": name(template),
            "namespace": vm["metadata"]["namespace"],
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [start::owner_reference(vm)],
        },
        "spec": template["spec"],
    })
}

fn sync_run_strategy(view: &View<'_>, strategy: &str) -> Result<Next, SyncError> {
    let vm = view.vm;
    let action = first_request(vm).map(|request| text(&request["action"]));
    let stop_requested = |vmi: &Value| {
        first_request(vm)
            .is_some_and(|r| r["action"] == "Stop" && r["uid"].as_str() == Some(uid(vmi)))
    };
    let next = match (strategy, view.vmi) {
        ("Always", Some(vmi)) if stop_requested(vmi) || is_final(vmi) => stop(vmi),
        ("Always", None) => start(view),
        ("Halted", Some(vmi)) => stop(vmi),
        ("Halted", None) if action == Some("Start") => Next::Do(Step::PatchVm(set_always(vm))),
        ("Manual", Some(vmi)) if stop_requested(vmi) => stop(vmi),
        ("Manual", None) if action == Some("Start") => start_now(view),
        ("Once", None) => start_now(view),
        ("RerunOnFailure", Some(vmi))
            if !is_deleting(vmi) && (stop_requested(vmi) || is_final(vmi)) =>
        {
            rerun(view, vmi, action)
        }
        ("RerunOnFailure", None)
            if action == Some("Start") || vm["status"]["runStrategy"] != "RerunOnFailure" =>
        {
            start(view)
        }
        ("Always" | "Halted" | "Manual" | "Once" | "RerunOnFailure", _) => Next::Rest,
        (other, _) => {
            return Err(SyncError {
                reason: "FailedCreate",
                message: format!("unknown runstrategy: {other}"),
            });
        }
    };
    Ok(next)
}

/// A failed run is followed by another: the request is left on the VM before the VMI goes.
fn rerun(view: &View<'_>, vmi: &Value, action: Option<&str>) -> Next {
    if phase(vmi) == "Failed" && action != Some("Start") {
        let mut requests = items(&view.vm["status"]["stateChangeRequests"]).to_vec();
        requests.push(json!({"action": "Start"}));
        let mut status = view.vm["status"].clone();
        status["stateChangeRequests"] = json!(requests);
        return Next::Do(Step::PatchVmStatus(
            Patch::new(view.vm).set("/status", status),
        ));
    }
    stop(vmi)
}

fn set_always(vm: &Value) -> Patch {
    if vm["spec"]["runStrategy"].is_null() {
        Patch::new(vm).set("/spec/running", json!(true))
    } else {
        Patch::new(vm).set("/spec/runStrategy", json!("Always"))
    }
}

/// A start that waits out the backoff after failed ones.
fn start(view: &View<'_>) -> Next {
    let retry = &view.vm["status"]["startFailure"]["retryAfterTimestamp"];
    let retry = retry.as_str().and_then(|t| t.parse::<Timestamp>().ok());
    let left = retry.map(|at| at.duration_since(view.now));
    match left.and_then(|left| Duration::try_from(left).ok()) {
        Some(left) if !left.is_zero() => Next::Wait(left),
        _ => start_now(view),
    }
}

fn start_now(view: &View<'_>) -> Next {
    // `startVMI` looks at the disks again, for VMs that create theirs only when started.
    match data_volumes(view) {
        DataVolumes::Missing(object) => Next::Do(Step::CreateDataVolume(object)),
        DataVolumes::Unusable => Next::Rest,
        DataVolumes::Usable if has_condition(view.vm, "ManualRecoveryRequired", "True") => {
            Next::Rest
        }
        DataVolumes::Usable => Next::Do(Step::Start),
    }
}

fn live_update(view: &View<'_>) -> Option<Step> {
    let (vmi, started) = (view.vmi?, view.started_from?);
    if is_deleting(vmi) || is_final(vmi) || has_condition(view.vm, RESTART_REQUIRED, "True") {
        return None;
    }
    let Verdict::Live(changes) = verdict(started, view.vm, vmi, view.rules.live_update) else {
        return None;
    };
    let patch = changes
        .into_iter()
        .fold(Patch::new(vmi), |patch, (path, value)| {
            if value.is_null() {
                patch.remove(path)
            } else {
                patch.set(path, value)
            }
        });
    Some(Step::PatchVmi(patch))
}
