//! Says whether a pool may have that many VMs when its `scale` subresource is written: `kubectl scale`, an
//! autoscaler. The object is an `autoscaling/v1 Scale` and never read as a pool; the rules are the ones that
//! the pool's own validation has.

use std::sync::Arc;

use serde_json::Value;

use super::field::{Cause, Path};
use super::hooks::{HookKind, HookSpec, SPEC_CHANGED, rule};
use super::objects::Lookup;
use super::review::Request;
use super::validate_pool::{check_growth, check_replicas, judge_several};
use super::verdict::Verdict;
use crate::api::{GROUP, POOL_PLURAL, VERSION, VirtualMachineConfig, VirtualMachinePool};

/// Where it is served.
pub const PATH: &str = "/admission/validate/virtualmachinepools/scale";

/// What the API server has to know of it. The rule names the group of the pool: that of the Scale matches
/// nothing.
pub(super) fn hook() -> HookSpec {
    HookSpec::new(
        "validate-scale.vmpool.dev",
        HookKind::Validating,
        PATH,
        rule(GROUP, VERSION, &format!("{POOL_PLURAL}/scale"), &["UPDATE"]),
        &[SPEC_CHANGED],
    )
}

/// Whether an object of this group and kind is a Scale.
pub fn is_scale(group: &str, kind: &str) -> bool {
    group == "autoscaling" && kind == "Scale"
}

/// Whether the pool is to get a second VM, so that its config has to be looked up: a pool that has two got
/// them under whatever was true then, and a third makes it no worse.
pub fn asks_for_a_second(request: &Request) -> bool {
    let wanted = replicas_of(&request.object).unwrap_or_default();
    let stored = request.stored().and_then(|scale| replicas_of(scale).ok());
    stored.unwrap_or_default() < 2 && wanted >= 2
}

/// How many VMs the pool is to get, if more than it has: the old number and the new one.
pub(super) fn growth(request: &Request) -> Option<(u32, u32)> {
    let number = |scale: &Value| u32::try_from(replicas_of(scale).ok()?).ok();
    let stored = request.stored().and_then(number).unwrap_or_default();
    let wanted = number(&request.object)?;
    (wanted > stored).then_some((stored, wanted))
}

/// Judges the Scale in `request`, given the pool that it scales, and that pool's config if it is to get more VMs.
pub fn review(
    request: &Request,
    pool: &Lookup<Option<Arc<VirtualMachinePool>>>,
    config: &Lookup<Option<Arc<VirtualMachineConfig>>>,
) -> Verdict {
    if !request.operation.writes() || request.leaves_spec_alone() {
        return Verdict::allowed();
    }
    let replicas = match replicas_of(&request.object) {
        Ok(replicas) => replicas,
        Err(cause) => return Verdict::refused(vec![cause]),
    };
    let stored = request
        .stored()
        .map(|scale| replicas_of(scale).unwrap_or_default());
    let pool = match pool {
        Ok(Some(pool)) => pool,
        // The API server has just read it: it is going away.
        Ok(None) => return Verdict::refused(check_replicas(replicas, None)),
        Err(unavailable) => {
            let mut verdict = Verdict::refused(check_replicas(replicas, None));
            verdict.warn(format!("not all was checked: {unavailable}"));
            return verdict;
        }
    };
    let mut causes = check_replicas(replicas, Some(&pool.spec));
    causes.extend(check_growth(
        request.object_name(),
        &pool.spec,
        stored,
        replicas,
    ));
    let mut verdict = Verdict::refused(causes);
    match config {
        Ok(Some(config)) if asks_for_a_second(request) => {
            judge_several(pool, config, &mut verdict);
        }
        // One that has a second VM bears a third; and without a config no VM is made.
        Ok(Some(_) | None) => {}
        Err(unavailable) => verdict.warn(format!("not all was checked: {unavailable}")),
    }
    verdict
}

/// Scale's replicas are an int32 that is left out of the JSON when it is 0.
fn replicas_of(scale: &Value) -> Result<i64, Cause> {
    match scale.pointer("/spec/replicas") {
        None | Some(Value::Null) => Ok(0),
        Some(value) => value
            .as_i64()
            .ok_or_else(|| not_a_number(Path::spec().child("replicas"), value)),
    }
}

fn not_a_number(field: Path, value: &Value) -> Cause {
    Cause::invalid(field, format!("must be a whole number, not {value}"))
}
