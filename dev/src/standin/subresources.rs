//! What virt-api's `start`, `stop` and `restart` subresources change, or why they refuse.
//!
//! Source: `StartVM`, `StopVM` and `RestartVM` in
//! `pkg/virt-api/apiserver/storage/virtualmachine/lifecycle/lifecycle.go`, and facts.md section 1.
//! Pure; `serve.rs` has the HTTP around it.

use serde_json::{Value, json};

use super::api::Patch;
use super::calls::Wishes;
use super::object::{has_condition, items, phase, uid};
use super::vm::{is_final, run_strategy};

/// The beginning of virt-api's text.
const RECOVERY: &str = "VM recovery required: Volume migration failed";

/// What a call does.
#[derive(Debug, PartialEq)]
pub(super) enum Change {
    Spec(Patch),
    Status(Patch),
}

/// Why a call is refused, with the HTTP code that virt-api answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// 409, or 500 where virt-api cannot append a request.
    pub code: u16,
    /// virt-api's message.
    pub message: String,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.code, self.message)
    }
}

impl std::error::Error for Refusal {}

fn conflict(message: impl Into<String>) -> Refusal {
    Refusal {
        code: 409,
        message: message.into(),
    }
}

pub(super) fn start(vm: &Value, vmi: Option<&Value>, _: Wishes) -> Result<Change, Refusal> {
    if vmi.is_some_and(|vmi| !is_final(vmi) && !matches!(phase(vmi), "" | "Unknown")) {
        return Err(conflict("VM is already running"));
    }
    if has_condition(vm, "ManualRecoveryRequired", "True") {
        return Err(conflict(RECOVERY));
    }
    let strategy = run_strategy(vm);
    match (strategy, vmi) {
        ("Halted", _) => Ok(run(vm, true)),
        ("RerunOnFailure", Some(vmi)) if phase(vmi) == "Failed" => Err(conflict(
            "RerunOnFailure does not support starting VM from failed state",
        )),
        ("Manual" | "RerunOnFailure", Some(vmi)) if is_final(vmi) => {
            request(vm, &[stop_request(vmi), json!({"action": "Start"})])
        }
        ("Manual" | "RerunOnFailure", _) => request(vm, &[json!({"action": "Start"})]),
        _ => Err(conflict(format!(
            "{strategy} does not support manual start requests"
        ))),
    }
}

pub(super) fn stop(vm: &Value, vmi: Option<&Value>, wishes: Wishes) -> Result<Change, Refusal> {
    let is_sooner = |vmi: &Value| {
        let current = vmi["spec"]["terminationGracePeriodSeconds"].as_i64();
        wishes
            .grace_seconds
            .is_some_and(|asked| current.is_none_or(|current| asked < current))
    };
    match (run_strategy(vm), vmi) {
        ("Always" | "Once", _) => Ok(run(vm, false)),
        ("Manual" | "RerunOnFailure", Some(vmi)) if !is_final(vmi) => {
            request(vm, &[stop_request(vmi)])
        }
        ("Halted", Some(vmi)) if !is_final(vmi) && is_sooner(vmi) => {
            request(vm, &[stop_request(vmi)])
        }
        ("Halted", Some(vmi)) if !is_final(vmi) => Err(conflict(
            "Halted only supports manual stop requests with a shorter graceperiod",
        )),
        _ => Err(conflict("VM is not running")),
    }
}

pub(super) fn restart(vm: &Value, vmi: Option<&Value>, _: Wishes) -> Result<Change, Refusal> {
    if has_condition(vm, "VolumesChange", "True") {
        return Err(conflict(RECOVERY));
    }
    let strategy = run_strategy(vm);
    if matches!(strategy, "Halted" | "Once") {
        return Err(conflict(format!(
            "RunStategy {strategy} does not support manual restart requests"
        )));
    }
    let Some(vmi) = vmi else {
        return Err(conflict("VM is not running: Halted"));
    };
    request(vm, &[stop_request(vmi), json!({"action": "Start"})])
}

fn stop_request(vmi: &Value) -> Value {
    json!({"action": "Stop", "uid": uid(vmi)})
}

fn run(vm: &Value, on: bool) -> Change {
    let patch = Patch::new(vm);
    Change::Spec(if vm["spec"]["runStrategy"].is_null() {
        patch.set("/spec/running", json!(on))
    } else {
        let strategy = if on { "Always" } else { "Halted" };
        patch.set("/spec/runStrategy", json!(strategy))
    })
}

/// `getChangeRequestJson`: a lone stop replaces what is queued, anything else needs an empty
/// queue; any request forgets failed starts.
fn request(vm: &Value, requests: &[Value]) -> Result<Change, Refusal> {
    let lone_stop = matches!(requests, [only] if only["action"] == "Stop");
    if !lone_stop && !items(&vm["status"]["stateChangeRequests"]).is_empty() {
        return Err(Refusal {
            code: 500,
            message: "unable to complete request: stop/start already underway".to_owned(),
        });
    }
    let mut status = vm["status"].clone();
    status["stateChangeRequests"] = json!(requests);
    if let Some(status) = status.as_object_mut() {
        status.remove("startFailure");
    }
    Ok(Change::Status(Patch::new(vm).set("/status", status)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Wishes = Wishes {
        dry_run: false,
        grace_seconds: None,
    };

    fn start(vm: &Value, vmi: Option<&Value>) -> Result<Change, Refusal> {
        super::start(vm, vmi, PLAIN)
    }

    fn stop(vm: &Value, vmi: Option<&Value>) -> Result<Change, Refusal> {
        super::stop(vm, vmi, PLAIN)
    }

    fn restart(vm: &Value, vmi: Option<&Value>) -> Result<Change, Refusal> {
        super::restart(vm, vmi, PLAIN)
    }

    fn vm(strategy: &str) -> Value {
        json!({"metadata": {"resourceVersion": "1"}, "spec": {"runStrategy": strategy}})
    }

    fn vmi(phase: &str) -> Value {
        json!({"metadata": {"uid": "i"}, "status": {"phase": phase}})
    }

    #[test]
    fn who_may_restart() {
        let running = vmi("Running");
        for strategy in ["Always", "Manual", "RerunOnFailure"] {
            assert!(matches!(
                restart(&vm(strategy), Some(&running)),
                Ok(Change::Status(_))
            ));
        }
        for strategy in ["Halted", "Once"] {
            assert_eq!(
                restart(&vm(strategy), Some(&running)).unwrap_err().code,
                409
            );
        }
        assert_eq!(restart(&vm("Always"), None).unwrap_err().code, 409);
        let mut busy = vm("Always");
        busy["status"] = json!({"stateChangeRequests": [{"action": "Stop", "uid": "i"}]});
        assert_eq!(restart(&busy, Some(&running)).unwrap_err().code, 500);
    }

    #[test]
    fn stopping_changes_the_strategy_or_asks() {
        let running = vmi("Running");
        assert!(matches!(
            stop(&vm("Always"), Some(&running)),
            Ok(Change::Spec(_))
        ));
        for keeps_its_strategy in ["Manual", "RerunOnFailure"] {
            assert!(matches!(
                stop(&vm(keeps_its_strategy), Some(&running)),
                Ok(Change::Status(_))
            ));
        }
        let halted = vm("Halted");
        assert_eq!(stop(&halted, Some(&running)).unwrap_err().code, 409);
        let sooner = Wishes {
            grace_seconds: Some(0),
            ..PLAIN
        };
        assert!(super::stop(&halted, Some(&running), sooner).is_ok());
        assert_eq!(stop(&vm("Manual"), None).unwrap_err().code, 409);
        assert_eq!(start(&vm("Always"), None).unwrap_err().code, 409);
        assert!(matches!(start(&vm("Halted"), None), Ok(Change::Spec(_))));
    }
}
