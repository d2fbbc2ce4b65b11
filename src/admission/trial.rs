//! What becomes of KubeVirt's verdict in ours: its faults are causes at the same paths of a config, and at the
//! config's name of a pool; a verdict that is open is a warning. Pure.
//!
//! KubeVirt is asked last, and only where nothing of our own speaks against the object. What a stored object was
//! refused for already stands in nobody's way.

use serde_json::{Map, Value};

use super::field::{Cause, Path};
use super::review::Request;
use super::verdict::Verdict;
use crate::api::{VirtualMachineConfig, VirtualMachinePoolSpec};
use crate::kubevirt::verdict::{Fault, Verdict as Kubevirts};
use crate::stamp::{PoolInputs, normalise, trial};

/// VMs to ask about: one from the object as it is to be, and one from the stored object, if that differs.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Trials {
    /// Of the object as it is to be.
    pub(super) new: Value,
    /// Of the stored object: asked about only if the new one is refused.
    pub(super) stored: Option<Value>,
}

/// What to ask about a config. `None` where nothing new can come of it.
pub(super) fn of_config(request: &Request, verdict: &Verdict) -> Option<Trials> {
    if !request.operation.writes() || request.leaves_spec_alone() || !verdict.causes.is_empty() {
        return None;
    }
    let spec = |object: &Value| object.get("spec").and_then(Value::as_object).cloned();
    let new = spec(&request.object)?;
    let stored = request.stored().and_then(spec);
    let is_same = |stored: &Map<String, Value>| normalise(stored) == normalise(&new);
    if stored.as_ref().is_some_and(is_same) {
        return None;
    }
    let vm = |spec: &Map<String, Value>| trial(&request.namespace, spec, None);
    Some(Trials {
        new: vm(&new),
        stored: stored.as_ref().map(vm),
    })
}

/// What to ask about a pool of that config: whether it bears the names that this pool makes. `None` where no
/// new name comes of it.
pub(super) fn of_pool(
    request: &Request,
    verdict: &Verdict,
    config: &VirtualMachineConfig,
) -> Option<Trials> {
    if !request.operation.writes() || request.leaves_spec_alone() || !verdict.causes.is_empty() {
        return None;
    }
    let inputs = |object: &Value| {
        let spec: VirtualMachinePoolSpec =
            serde_json::from_value(object.get("spec")?.clone()).ok()?;
        let config = spec.config.name.clone();
        let pool = crate::api::VirtualMachinePool::new(request.object_name(), spec);
        Some((config, PoolInputs::of(&pool)))
    };
    let new = inputs(&request.object)?;
    let stored = request.stored().and_then(inputs);
    if stored.as_ref() == Some(&new) {
        return None;
    }
    let (name, inputs) = new;
    let vm = |inputs: &PoolInputs| trial(&request.namespace, &config.spec.fields, Some(inputs));
    Some(Trials {
        new: vm(&inputs),
        // Of another config than the stored pool's nothing is known.
        stored: stored
            .filter(|(stored, _)| *stored == name)
            .map(|(_, inputs)| vm(&inputs)),
    })
}

/// Adds KubeVirt's verdict on a config to ours.
pub(super) fn judge_config(verdict: &mut Verdict, new: Kubevirts, stored: Option<&Kubevirts>) {
    take(verdict, new, stored, |fault| {
        let field = fault.field.strip_prefix("spec").unwrap_or_default();
        let field = Path::below_spec(field.trim_start_matches('.'));
        Cause::invalid(field, format!("KubeVirt: {}", fault.message))
    });
}

/// Adds KubeVirt's verdict on a pool's VMs to ours.
pub(super) fn judge_pool(
    verdict: &mut Verdict,
    config: &str,
    new: Kubevirts,
    stored: Option<&Kubevirts>,
) {
    take(verdict, new, stored, |fault| {
        let field = Path::spec().children(&["config", "name"]);
        let message = format!(
            "KubeVirt refuses VMs of VirtualMachineConfig {config:?}: {}: {}",
            fault.field, fault.message
        );
        Cause::invalid(field, message)
    });
}

fn take(
    verdict: &mut Verdict,
    new: Kubevirts,
    stored: Option<&Kubevirts>,
    cause: impl Fn(&Fault) -> Cause,
) {
    match new {
        Kubevirts::Accepted => {}
        Kubevirts::Open(why) => {
            verdict.warn(format!("KubeVirt's verdict is not known yet: {why}"));
        }
        Kubevirts::Refused(faults) => {
            let known: &[Fault] = match stored {
                Some(Kubevirts::Refused(faults)) => faults,
                Some(Kubevirts::Accepted | Kubevirts::Open(_)) | None => &[],
            };
            let new = faults.iter().filter(|fault| !known.contains(fault));
            verdict.causes.extend(new.map(cause));
        }
    }
}
