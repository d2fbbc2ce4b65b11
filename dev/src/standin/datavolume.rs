//! What CDI would do next for one DataVolume.
//!
//! Source: `pkg/controller/datavolume/{controller-base,import-controller,conditions}.go` of
//! kubevirt/containerized-data-importer, the recorded `dv-from-template.yaml`, and CDI's claim
//! adoption design. No importer pod, no data: an import is a wait. A claim is bound by writing its
//! phase, without a PersistentVolume (the development control plane runs without the binder).

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::api::Patch;
use super::knobs::Import;
use super::names::CLAIM_ADOPTION;
use super::object::{
    annotation, controller_of, controller_reference, is_controlled_by, is_deleting, items, map,
    name, namespace, phase, set_condition, time,
};

/// Of an import's time, this part passes in `ImportScheduled`.
const SCHEDULED_PART: u32 = 5;

/// A DataVolume and what is looked at.
pub(super) struct View<'a> {
    pub(super) data_volume: &'a Value,
    /// The claim of its name, whoever owns it.
    pub(super) claim: Option<&'a Value>,
    /// The claim's storage class waits for a VM and none is there.
    pub(super) waits_for_consumer: bool,
    pub(super) import: Import,
    /// Since the claim was bound.
    pub(super) age: Duration,
    /// The claim could not be created, with the server's message.
    pub(super) refused: Option<&'a str>,
    pub(super) now: Timestamp,
}

/// One write.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    /// Set the claim's status.
    BindClaim(Value),
    CreateClaim(Value),
    PatchClaim(Patch),
    /// Set the DataVolume's status.
    Report(Value),
}

/// What is to be done now.
#[derive(Debug, PartialEq)]
pub(super) enum Next {
    Do(Step),
    Rest,
    Wait(Duration),
}

/// The next write.
pub(super) fn next(view: &View<'_>) -> Next {
    let dv = view.data_volume;
    if is_deleting(dv) {
        return Next::Rest;
    }
    let Some(claim) = view.claim else {
        // A claim that was lost is made and filled again.
        return match view.refused {
            Some(message) => report(view, "Pending", Bound::Refused(message), Next::Rest),
            None => Next::Do(Step::CreateClaim(new_claim(dv))),
        };
    };
    if is_deleting(claim) {
        return Next::Rest;
    }
    if !is_controlled_by(claim, dv) {
        return foreign(view, claim);
    }
    if phase(dv) == "Succeeded" && phase(claim) == "Bound" {
        return Next::Rest;
    }
    if view.waits_for_consumer {
        return report(view, "WaitForFirstConsumer", Bound::No, Next::Rest);
    }
    if phase(claim) != "Bound" {
        return Next::Do(Step::BindClaim(bound_status(claim)));
    }
    if was_adopted(claim) {
        return report(view, "Succeeded", Bound::Yes, Next::Rest);
    }
    import(view)
}

/// A claim made by someone else: adopted when that is allowed and no other controls it.
fn foreign(view: &View<'_>, claim: &Value) -> Next {
    let dv = view.data_volume;
    let allowed = annotation(dv, CLAIM_ADOPTION) == Some("true");
    if !allowed || controller_of(claim).is_some() {
        // CDI: "Resource already exists and is not managed by DataVolume", again and again.
        return report(view, "", Bound::of(claim), Next::Rest);
    }
    let mut owners = items(&claim["metadata"]["ownerReferences"]).to_vec();
    owners.push(owner_reference(dv));
    let mut annotations = map(&claim["metadata"]["annotations"]);
    annotations.insert(ADOPTED.into(), json!("true"));
    let patch = Patch::new(claim)
        .set("/metadata/ownerReferences", json!(owners))
        .set("/metadata/annotations", Value::Object(annotations));
    Next::Do(Step::PatchClaim(patch))
}

/// On a claim that was adopted, so that it is not filled again.
const ADOPTED: &str = "standin.vmpool.dev/adopted";

fn was_adopted(claim: &Value) -> bool {
    annotation(claim, ADOPTED) == Some("true")
}

fn import(view: &View<'_>) -> Next {
    let phases = phases(view.data_volume);
    match view.import {
        Import::Fails => report(view, "Failed", Bound::Yes, Next::Rest),
        Import::Restarts => report(view, phases.running, Bound::Yes, Next::Rest),
        Import::Takes(_) if phases.running == "UploadReady" => {
            report(view, phases.running, Bound::Yes, Next::Rest)
        }
        Import::Takes(whole) => {
            let scheduled = whole / SCHEDULED_PART;
            if view.age >= whole {
                report(view, "Succeeded", Bound::Yes, Next::Rest)
            } else if view.age < scheduled {
                let wait = Next::Wait(scheduled.saturating_sub(view.age));
                report(view, phases.scheduled, Bound::Yes, wait)
            } else {
                let wait = Next::Wait(whole.saturating_sub(view.age));
                report(view, phases.running, Bound::Yes, wait)
            }
        }
    }
}

struct Phases {
    running: &'static str,
    scheduled: &'static str,
}

fn phases(dv: &Value) -> Phases {
    let source = &dv["spec"]["source"];
    if source["upload"].is_object() {
        Phases {
            running: "UploadReady",
            scheduled: "UploadScheduled",
        }
    } else if source["pvc"].is_object()
        || source["snapshot"].is_object()
        || dv["spec"]["sourceRef"].is_object()
    {
        Phases {
            running: "CloneInProgress",
            scheduled: "CloneScheduled",
        }
    } else {
        Phases {
            running: "ImportInProgress",
            scheduled: "ImportScheduled",
        }
    }
}

#[derive(Clone, Copy)]
enum Bound<'a> {
    No,
    Refused(&'a str),
    Yes,
}

impl Bound<'_> {
    fn of(claim: &Value) -> Self {
        if phase(claim) == "Bound" {
            Self::Yes
        } else {
            Self::No
        }
    }
}

fn report(view: &View<'_>, to: &str, bound: Bound<'_>, otherwise: Next) -> Next {
    let status = status(view, to, bound);
    if Value::Object(status.clone()) == view.data_volume["status"] {
        return otherwise;
    }
    Next::Do(Step::Report(Value::Object(status)))
}

fn status(view: &View<'_>, to: &str, bound: Bound<'_>) -> Map<String, Value> {
    let dv = view.data_volume;
    let mut status = map(&dv["status"]);
    if !to.is_empty() {
        status.insert("phase".into(), json!(to));
    }
    let progress = match to {
        "Succeeded" => "100.0%",
        "ImportInProgress" | "CloneInProgress" => "50.00%",
        _ => "N/A",
    };
    status.insert("progress".into(), json!(progress));
    if view.claim.is_some() {
        status.insert("claimName".into(), json!(name(dv)));
    }
    let mut conditions = items(&dv["status"]["conditions"]).to_vec();
    let mut set = |kind: &str, status: &str, reason: &str, message: &str| {
        let mut condition = json!({
            "type": kind, "status": status,
            "lastTransitionTime": time(view.now), "lastHeartbeatTime": time(view.now),
        });
        if !reason.is_empty() {
            condition["reason"] = json!(reason);
        }
        if !message.is_empty() {
            condition["message"] = json!(message);
        }
        set_condition(&mut conditions, condition);
    };
    let running = matches!(to, "ImportInProgress" | "CloneInProgress");
    match (to, view.import) {
        ("Succeeded", _) => set("Ready", "True", "", ""),
        (_, Import::Takes(_)) if running => set("Ready", "False", "TransferRunning", ""),
        _ => set("Ready", "False", "", ""),
    }
    let claim = format!("PVC {} ", name(dv));
    match bound {
        Bound::Yes => set("Bound", "True", "Bound", &(claim + "Bound")),
        Bound::No => set("Bound", "False", "Pending", &(claim + "Pending")),
        Bound::Refused(message) => set("Bound", "False", "ErrExceededQuota", message),
    }
    match (to, view.import) {
        ("Succeeded", _) => set("Running", "False", "Completed", "Import Complete"),
        ("Failed", _) => set("Running", "False", "Error", "Unable to process data"),
        (_, Import::Restarts) if running => {
            set(
                "Running",
                "False",
                "Error",
                "Unable to connect to http data source",
            );
        }
        _ if running => set("Running", "True", "Pod is running", ""),
        _ => set("Running", "False", "", ""),
    }
    status.insert("conditions".into(), Value::Array(conditions));
    status
}

fn owner_reference(dv: &Value) -> Value {
    controller_reference(dv, "cdi.kubevirt.io/v1beta1", "DataVolume")
}

fn new_claim(dv: &Value) -> Value {
    let mut labels = map(&dv["metadata"]["labels"]);
    labels.insert("app".into(), json!("containerized-data-importer"));
    let mut annotations = map(&dv["metadata"]["annotations"]);
    annotations.insert(
        "cdi.kubevirt.io/storage.contentType".into(),
        json!("kubevirt"),
    );
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": name(dv),
            "namespace": namespace(dv),
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [owner_reference(dv)],
        },
        "spec": claim_spec(dv),
    })
}

fn claim_spec(dv: &Value) -> Value {
    let given = ["pvc", "storage"]
        .iter()
        .map(|way| &dv["spec"][way])
        .find(|spec| spec.is_object());
    let mut spec = json!({
        // What CDI takes from a StorageProfile, or from the source of a clone.
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
    });
    let fields = [
        "accessModes",
        "resources",
        "storageClassName",
        "volumeMode",
        "selector",
        "volumeName",
    ];
    for field in fields {
        let value = given.map_or(&Value::Null, |given| &given[field]);
        if !value.is_null() {
            spec[field] = value.clone();
        }
    }
    if spec["resources"]["requests"]["storage"].is_null() {
        spec["resources"]["requests"]["storage"] = json!("1Gi");
    }
    spec
}

/// The status of a bound claim; also for claims that tests make without a DataVolume.
pub(super) fn bound_status(claim: &Value) -> Value {
    json!({
        "phase": "Bound",
        "accessModes": claim["spec"]["accessModes"],
        "capacity": {"storage": claim["spec"]["resources"]["requests"]["storage"]},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dv() -> Value {
        json!({
            "metadata": {"name": "root", "namespace": "a", "uid": "dv",
                         "annotations": {CLAIM_ADOPTION: "true"}},
            "spec": {"source": {"blank": {}},
                     "storage": {"resources": {"requests": {"storage": "2Gi"}},
                                 "storageClassName": "fake"}},
        })
    }

    fn view<'a>(dv: &'a Value, claim: Option<&'a Value>) -> View<'a> {
        View {
            data_volume: dv,
            claim,
            waits_for_consumer: false,
            import: Import::Takes(Duration::from_secs(10)),
            age: Duration::ZERO,
            refused: None,
            now: Timestamp::UNIX_EPOCH,
        }
    }

    fn reported(next: Next) -> Value {
        match next {
            Next::Do(Step::Report(status)) => status,
            other => panic!("expected a report, got {other:?}"),
        }
    }

    #[test]
    fn a_claim_is_made_bound_and_filled() {
        let dv = dv();
        let Next::Do(Step::CreateClaim(mut claim)) = next(&view(&dv, None)) else {
            panic!("expected a new claim");
        };
        assert_eq!(claim["spec"]["storageClassName"], "fake");
        assert_eq!(claim["spec"]["resources"]["requests"]["storage"], "2Gi");
        assert!(is_controlled_by(&claim, &dv));
        let bind = next(&view(&dv, Some(&claim)));
        assert_eq!(bind, Next::Do(Step::BindClaim(bound_status(&claim))));
        claim["status"] = bound_status(&claim);
        let at = |seconds| {
            let mut view = view(&dv, Some(&claim));
            view.age = Duration::from_secs(seconds);
            reported(next(&view))["phase"].clone()
        };
        assert_eq!(at(0), "ImportScheduled");
        assert_eq!(at(5), "ImportInProgress");
        assert_eq!(at(10), "Succeeded");
    }

    #[test]
    fn an_unowned_claim_is_adopted_with_its_data() {
        let dv = dv();
        let mut claim = json!({"metadata": {"name": "root", "namespace": "a", "uid": "c"},
                               "status": {"phase": "Bound"}});
        assert!(matches!(
            next(&view(&dv, Some(&claim))),
            Next::Do(Step::PatchClaim(_))
        ));
        claim["metadata"]["ownerReferences"] = json!([owner_reference(&dv)]);
        claim["metadata"]["annotations"] = json!({ADOPTED: "true"});
        assert_eq!(
            reported(next(&view(&dv, Some(&claim))))["phase"],
            "Succeeded"
        );
    }

    #[test]
    fn a_claim_of_another_is_left_alone() {
        let dv = dv();
        let claim = json!({"metadata": {"name": "root", "ownerReferences": [
            {"kind": "Other", "name": "o", "uid": "o", "controller": true}]}});
        let status = reported(next(&view(&dv, Some(&claim))));
        assert!(status["phase"].is_null());
    }
}
