//! Fills in what is absent in a pool and depends on nothing else: `replicas` and `vmPrefix`.
//!
//! It never removes or rewrites what somebody wrote, which GitOps tools would fight, and never writes into
//! a union (`updateStrategy`, `scaleInStrategy`): a merge patch that adds another member later would meet
//! two. It sees objects before the schema does, so anything may be of any type; what is odd is left alone
//! for the schema to refuse. Doing it twice changes nothing.

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, Patch, PatchOperation};
use serde_json::{Value, json};

use super::hooks::{HookKind, HookSpec, NOT_BEING_DELETED, SPEC_CHANGED, rule};
use super::review::{Operation, Request};
use super::verdict::Verdict;
use crate::api::pool::DEFAULT_REPLICAS;
use crate::api::{GROUP, POOL_PLURAL, VERSION};
use crate::stamp::names::check_prefix;

/// Where it is served.
pub const PATH: &str = "/admission/default/virtualmachinepools";

/// What the API server has to know of it.
pub(super) fn hook() -> HookSpec {
    HookSpec::new(
        "default-pool.vmpool.dev",
        HookKind::Mutating,
        PATH,
        rule(GROUP, VERSION, POOL_PLURAL, &["CREATE", "UPDATE"]),
        &[NOT_BEING_DELETED, SPEC_CHANGED],
    )
}

/// The defaults of the pool in `request`.
pub fn review(request: &Request) -> Verdict {
    let mut verdict = Verdict::allowed();
    let Some(spec) = request.object.get("spec").and_then(Value::as_object) else {
        return verdict;
    };
    if !request.operation.writes() || request.leaves_spec_alone() {
        return verdict;
    }
    if is_absent(spec.get("replicas"))
        && let Some(replicas) = default_replicas(request)
    {
        add(&mut verdict.patch, &["spec", "replicas"], replicas);
    }
    // At creation a generated name is not there yet; then the prefix stays absent, which means the name.
    let name = request
        .object
        .pointer("/metadata/name")
        .and_then(Value::as_str)
        .unwrap_or_default();
    // A name that can't be a prefix is not made one: the refusal then speaks of what was written.
    if check_prefix(name).is_ok() {
        match spec.get("nameGeneration") {
            None | Some(Value::Null) => {
                let names = json!({"vmPrefix": name});
                add(&mut verdict.patch, &["spec", "nameGeneration"], names);
            }
            Some(Value::Object(names)) if is_absent(names.get("vmPrefix")) => {
                let path = &["spec", "nameGeneration", "vmPrefix"];
                add(&mut verdict.patch, path, name.into());
            }
            Some(_) => {}
        }
    }
    verdict
}

/// 1 at creation. Later the stored number, which may be an autoscaler's: a manifest without `replicas` that
/// is applied again says nothing about it.
fn default_replicas(request: &Request) -> Option<Value> {
    if request.operation == Operation::Create {
        return Some(DEFAULT_REPLICAS.into());
    }
    let stored = request.stored()?.pointer("/spec/replicas");
    stored.filter(|replicas| replicas.is_u64()).cloned()
}

fn is_absent(value: Option<&Value>) -> bool {
    value.is_none_or(Value::is_null)
}

fn add(patch: &mut Patch, tokens: &[&str], value: Value) {
    patch.0.push(PatchOperation::Add(AddOperation {
        path: PointerBuf::from_tokens(tokens.iter().copied()),
        value,
    }));
}
