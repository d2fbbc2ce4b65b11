//! What KubeVirt's VMI controller, virt-handler and the kubelet would do next for one VMI.
//!
//! Source: `sync` and `updateStatus` in `pkg/virt-controller/watch/vmi/lifecycle.go`,
//! `areDataVolumesReady` in `…/vmi/datavolumes.go`, `calculateVmPhaseForStatusReason` of
//! virt-handler; phases and conditions as recorded. One step at a time from what exists, with the
//! ages of phases handed in. No I/O; which node a pod gets is decided in `nodes.rs`.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use super::api::Patch;
use super::knobs::{GuestEnd, Knobs, Options};
use super::names::{PVC_NOT_FOUND, VM_FINALIZER, VMI_FINALIZER};
use super::object::{Obj, has_finalizer, is_controlled_by, is_deleting, phase, uid};
use super::pod;
use super::vm::{Disks, SyncError, is_final, without_finalizer};
use super::vmi_status;
use super::volumes;

/// Where the launcher pod may go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Node(String),
    /// Nowhere, with the scheduler's message.
    Nowhere(String),
}

/// How long things have been as they are.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ages {
    /// Since the VMI came to its phase.
    pub(super) phase: Duration,
    /// Since the VMI or its pod was marked for deletion.
    pub(super) stopping: Duration,
    /// Since the pod got its node.
    pub(super) bound: Duration,
}

/// A VMI and what is looked at.
pub(super) struct View<'a> {
    pub(super) vmi: &'a Value,
    /// The VM that controls it exists.
    pub(super) has_vm: bool,
    /// How often its VM failed to start before.
    pub(super) failed_starts: i64,
    /// Pods it controls, newest last.
    pub(super) pods: &'a [Obj],
    pub(super) disks: &'a Disks,
    /// Secrets and ConfigMaps that the pod mounts and that do not exist.
    pub(super) missing: &'a [String],
    /// Asks the scheduler for a node; asking takes the place.
    pub(super) place: &'a (dyn Fn() -> Place + Sync),
    /// The pod's node answers no more.
    pub(super) node_lost: bool,
    pub(super) knobs: &'a Knobs,
    pub(super) options: &'a Options,
    pub(super) end: Option<GuestEnd>,
    pub(super) ages: Ages,
    pub(super) now: Timestamp,
}

/// One write.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    /// Bind the pod of this name to a node.
    BindPod(String, String),
    CreatePod(Value),
    /// Ask for the pod's end, as anyone may.
    DeletePod(String),
    /// Confirm the pod's end, as only its kubelet does.
    KillPod(String),
    Patch(Patch),
    /// Report a pod's status, as its kubelet or the scheduler does.
    ReportPod(String, Value),
}

/// What is to be done now.
#[derive(Debug, PartialEq)]
pub(super) enum Next {
    Do(Step),
    Rest,
    Wait(Duration),
}

impl<'a> View<'a> {
    pub(super) fn pod(&self) -> Option<&'a Value> {
        self.pods.last().map(AsRef::as_ref)
    }

    fn patch(&self, phase: &str, error: Option<&SyncError>) -> Next {
        vmi_status::patch(self, phase, error).map_or(Next::Rest, |p| Next::Do(Step::Patch(p)))
    }

    /// Brings conditions up to date, else rests or waits.
    fn stay(&self, error: Option<&SyncError>, otherwise: Next) -> Next {
        match self.patch(phase(self.vmi), error) {
            Next::Rest => otherwise,
            next => next,
        }
    }
}

/// The next write.
pub(super) fn next(view: &View<'_>) -> Next {
    let vmi = view.vmi;
    if is_final(vmi) {
        return ended(view);
    }
    if is_deleting(vmi) {
        return stopping(view);
    }
    match (phase(vmi), view.pod()) {
        ("" | "Pending", None) => unprocessed(view),
        ("" | "Pending", Some(_)) => view.patch("Scheduling", None),
        // Someone else deleted the pod.
        (_, None) => view.patch("Failed", None),
        ("Scheduling", Some(pod)) => scheduling(view, pod),
        ("Scheduled", Some(pod)) => scheduled(view, pod),
        ("Running", Some(pod)) => running(view, pod),
        _ => Next::Rest,
    }
}

/// Before there is a pod: wait for the disks.
fn unprocessed(view: &View<'_>) -> Next {
    let failed = volumes::data_volumes(&view.vmi["spec"])
        .filter_map(|name| view.disks.data_volumes.get(name))
        .any(|dv| phase(dv) == "Failed");
    if failed {
        return view.patch("Failed", None);
    }
    match disks_ready(view) {
        Ok(true) => {
            let node = match (view.place)() {
                Place::Node(node) => Some(node),
                Place::Nowhere(_) => None,
            };
            let pod = pod::launcher(view.vmi, node.as_deref());
            Next::Do(Step::CreatePod(pod))
        }
        Ok(false) => view.patch("Pending", None),
        Err(error) => view.patch("Pending", Some(&error)),
    }
}

fn disks_ready(view: &View<'_>) -> Result<bool, SyncError> {
    let mut ready = true;
    for (_, name) in volumes::claims(&view.vmi["spec"]) {
        let Some(claim) = view.disks.claims.get(name) else {
            let namespace = &view.vmi["metadata"]["namespace"];
            return Err(SyncError {
                reason: PVC_NOT_FOUND,
                message: format!(
                    "PVC {}/{name} does not exist, waiting for it to appear",
                    namespace.as_str().unwrap_or_default()
                ),
            });
        };
        // A claim that no DataVolume controls is ready as it is.
        if let Some(dv) = view.disks.data_volumes.get(name)
            && is_controlled_by(claim, dv)
        {
            ready &= matches!(phase(dv), "Succeeded" | "PendingPopulation");
        }
    }
    Ok(ready)
}

fn scheduling(view: &View<'_>, pod: &Value) -> Next {
    if pod::is_down(pod) {
        return view.patch("Failed", None);
    }
    let name = super::object::name(pod);
    let report = |status: Value| Next::Do(Step::ReportPod(name.to_owned(), status));
    if pod::node(pod).is_none() {
        return match (view.place)() {
            Place::Node(node) => Next::Do(Step::BindPod(name.to_owned(), node)),
            Place::Nowhere(message) => {
                let known = super::object::condition(pod, "PodScheduled")
                    .is_some_and(|c| c["status"] == "False");
                if known {
                    view.stay(None, Next::Rest)
                } else {
                    report(pod::unschedulable(&message, view.now))
                }
            }
        };
    }
    if pod::is_running(pod) {
        return view.patch("Scheduled", None);
    }
    let hindrance = hindrance(view);
    if let Some((reason, message)) = hindrance {
        if pod::waiting(pod) != Some((reason, message.as_str())) {
            return report(pod::pending(reason, &message, view.now));
        }
        return view.stay(vmi_status::image_error(pod).as_ref(), Next::Rest);
    }
    if view.node_lost {
        return view.stay(None, Next::Rest);
    }
    if let Some(left) = left(view.options.launch, view.ages.bound) {
        return view.stay(None, Next::Wait(left));
    }
    let ready = !pod::has_readiness_probe(view.vmi);
    report(pod::running(pod, ready, view.now))
}

/// What keeps the containers of a pod from starting.
fn hindrance<'a>(view: &'a View<'_>) -> Option<(&'a str, String)> {
    if let Some(reason) = &view.knobs.image_error {
        return Some((reason, "Back-off pulling the launcher's image".to_owned()));
    }
    (!view.missing.is_empty()).then(|| ("ContainerCreating", String::new()))
}

fn scheduled(view: &View<'_>, pod: &Value) -> Next {
    if pod::is_down(pod) {
        return view.patch("Failed", None);
    }
    if view.node_lost {
        return view.stay(None, Next::Rest);
    }
    // With a probe the domain runs at once and `boot` passes until the guest answers.
    if !pod::has_readiness_probe(view.vmi)
        && let Some(left) = left(boot(view), view.ages.phase)
    {
        return view.stay(None, Next::Wait(left));
    }
    let failing = view.knobs.fail_start.unwrap_or(0);
    if view.failed_starts < i64::from(failing) {
        return view.patch("Failed", None);
    }
    view.patch("Running", None)
}

fn running(view: &View<'_>, pod: &Value) -> Next {
    if view.node_lost {
        return report_ready(view, pod, false, Next::Rest);
    }
    match view.end {
        Some(GuestEnd::Crash) => return view.patch("Failed", None),
        Some(GuestEnd::PowerOff) => return view.patch("Succeeded", None),
        None => {}
    }
    if pod::is_over(pod) {
        return view.patch("Failed", None);
    }
    if is_deleting(pod) {
        // Evicted or deleted by hand: the launcher shuts its guest down.
        return match left(shutdown(view), view.ages.stopping) {
            Some(left) => view.stay(None, Next::Wait(left)),
            None => view.patch("Succeeded", None),
        };
    }
    let wait = if pod::has_readiness_probe(view.vmi) {
        left(boot(view), view.ages.phase)
    } else {
        None
    };
    let ready = wait.is_none() && view.knobs.not_ready != Some(true);
    report_ready(view, pod, ready, wait.map_or(Next::Rest, Next::Wait))
}

fn report_ready(view: &View<'_>, pod: &Value, ready: bool, otherwise: Next) -> Next {
    if pod::is_ready(pod) == ready {
        return view.stay(None, otherwise);
    }
    let status = pod::readiness(pod, ready, view.now);
    Next::Do(Step::ReportPod(super::object::name(pod).to_owned(), status))
}

/// Marked for deletion and not ended yet.
fn stopping(view: &View<'_>) -> Next {
    if let Some(pod) = view.pods.iter().find(|pod| !is_deleting(pod)) {
        return Next::Do(Step::DeletePod(super::object::name(pod).to_owned()));
    }
    let guest_runs = phase(view.vmi) == "Running";
    if view.pod().is_none() || !guest_runs {
        return view.patch("Failed", None);
    }
    if view.node_lost {
        return view.stay(None, Next::Rest);
    }
    match left(shutdown(view), view.ages.stopping) {
        Some(left) => view.stay(None, Next::Wait(left)),
        None => view.patch("Succeeded", None),
    }
}

/// Ended: the pod ends with its guest, then the finalizers go.
fn ended(view: &View<'_>) -> Next {
    let vmi = view.vmi;
    for pod in view.pods {
        let name = super::object::name(pod).to_owned();
        if is_deleting(pod) {
            if view.node_lost {
                continue;
            }
            return Next::Do(Step::KillPod(name));
        }
        if is_deleting(vmi) {
            return Next::Do(Step::DeletePod(name));
        }
        if !pod::is_over(pod) && pod::node(pod).is_some() && !view.node_lost {
            let failed = phase(vmi) == "Failed";
            return Next::Do(Step::ReportPod(name, pod::over(failed, view.now)));
        }
    }
    if view.pods.is_empty() && has_finalizer(vmi, VMI_FINALIZER) {
        let patch = without_finalizer(Patch::new(vmi), vmi, VMI_FINALIZER);
        return Next::Do(Step::Patch(patch));
    }
    if !view.has_vm && has_finalizer(vmi, VM_FINALIZER) {
        let patch = without_finalizer(Patch::new(vmi), vmi, VM_FINALIZER);
        return Next::Do(Step::Patch(patch));
    }
    Next::Rest
}

fn boot(view: &View<'_>) -> Duration {
    view.knobs.boot.unwrap_or(view.options.boot)
}

/// How long the guest takes to go: as long as it likes, at most its grace period.
fn shutdown(view: &View<'_>) -> Duration {
    let seconds = u32::try_from(pod::grace_seconds(view.vmi)).unwrap_or(0);
    let grace = Duration::from_secs(1).mul_f64(f64::from(seconds) * view.options.grace_scale);
    if view.knobs.hung_shutdown == Some(true) {
        return grace;
    }
    view.knobs
        .shutdown
        .unwrap_or(view.options.shutdown)
        .min(grace)
}

fn left(whole: Duration, passed: Duration) -> Option<Duration> {
    whole.checked_sub(passed).filter(|left| !left.is_zero())
}

/// Whether the VMI wants a claim that waits for its first consumer.
pub(super) fn wants_claims(vmi: &Value) -> bool {
    !uid(vmi).is_empty() && !is_deleting(vmi) && !is_final(vmi)
}
