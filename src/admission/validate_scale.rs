//! Says whether a pool may have that many VMs when its `scale` subresource is written: `kubectl scale`, an
//! autoscaler. The object is an `autoscaling/v1 Scale` and never read as a pool; the rules are the ones that
//! the pool's own validation has.

use std::sync::Arc;

use serde_json::Value;

use super::field::{Cause, Path};
use super::hooks::{HookKind, HookSpec, SPEC_CHANGED, rule};
use super::objects::Lookup;
use super::review::Request;
use super::validate_pool::{check_growth, check_replicas};
use super::verdict::Verdict;
use crate::api::{GROUP, POOL_PLURAL, VERSION, VirtualMachinePool};

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

/// Judges the Scale in `request`, given the pool that it scales.
pub fn review(request: &Request, pool: &Lookup<Option<Arc<VirtualMachinePool>>>) -> Verdict {
    if !request.operation.writes() || request.leaves_spec_alone() {
        return Verdict::allowed();
    }
    let field = Path::spec().child("replicas");
    let replicas = match request.object.pointer("/spec/replicas") {
        // Scale's replicas are an int32 that is left out of the JSON when it is 0.
        None | Some(Value::Null) => 0,
        Some(value) => match value.as_i64() {
            Some(replicas) => replicas,
            None => return Verdict::refused(vec![not_a_number(field, value)]),
        },
    };
    let stored = request
        .stored()
        .map(|scale| scale.pointer("/spec/replicas").and_then(Value::as_i64))
        .map(Option::unwrap_or_default);
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
    Verdict::refused(causes)
}

fn not_a_number(field: Path, value: &Value) -> Cause {
    Cause::invalid(field, format!("must be a whole number, not {value}"))
}
