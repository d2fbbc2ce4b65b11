//! What virt-api's `start`, `stop` and `restart` subresources change, or why they refuse.
//!
//! Source: `StartVMRequestHandler`, `StopVMRequestHandler` and `RestartVMRequestHandler` in
//! `pkg/virt-api/rest/subresource.go`, and facts.md section 1. Pure; the APIService that serves
//! them over HTTP comes later and calls the same functions.

use serde_json::{Value, json};

use super::api::Patch;
use super::object::{has_condition, items, phase, uid};
use super::vm::{is_final, run_strategy};

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

pub(super) fn start(vm: &Value, vmi: Option<&Value>) -> Result<Change, Refusal> {
    if has_condition(vm, "ManualRecoveryRequired", "True") {
        return Err(conflict("VM recovery required"));
    }
    if vmi.is_some_and(|vmi| !is_final(vmi) && !matches!(phase(vmi), "" | "Unknown")) {
        return Err(conflict("VM is already running"));
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

pub(super) fn stop(vm: &Value, vmi: Option<&Value>) -> Result<Change, Refusal> {
    match (run_strategy(vm), vmi) {
        ("Always" | "Once" | "RerunOnFailure", _) => Ok(run(vm, false)),
        ("Manual", Some(vmi)) if !is_final(vmi) => request(vm, &[stop_request(vmi)]),
        ("Halted", Some(vmi)) if !is_final(vmi) => Err(conflict(
            "Halted only supports manual stop requests with a shorter graceperiod",
        )),
        _ => Err(conflict("VM is not running")),
    }
}

pub(super) fn restart(vm: &Value, vmi: Option<&Value>) -> Result<Change, Refusal> {
    let strategy = run_strategy(vm);
    if matches!(strategy, "Halted" | "Once") {
        return Err(conflict(format!(
            "RunStategy {strategy} does not support manual restart requests"
        )));
    }
    let Some(vmi) = vmi else {
        return Err(conflict("VM is not running: Halted"));
    };
    if has_condition(vm, "ManualRecoveryRequired", "True") {
        return Err(conflict("VM recovery required"));
    }
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
        assert!(matches!(
            stop(&vm("Manual"), Some(&running)),
            Ok(Change::Status(_))
        ));
        assert_eq!(stop(&vm("Manual"), None).unwrap_err().code, 409);
        assert_eq!(start(&vm("Always"), None).unwrap_err().code, 409);
        assert!(matches!(start(&vm("Halted"), None), Ok(Change::Spec(_))));
    }
}
