//! Says whether VMs can come of a config: its shape, what has no place in it, and what goes wrong in the
//! pools that use it. KubeVirt's own verdict on the spec comes on top, from KubeVirt.
//!
//! Nothing here looks at what a spec means to a guest, and nothing looks at whether what it refers to
//! exists.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::field::{Cause, ENOUGH_CAUSES, Path};
use super::hooks::{HookKind, HookSpec, NOT_BEING_DELETED, SPEC_CHANGED, rule};
use super::objects::Lookup;
use super::pool_warnings;
use super::review::Request;
use super::spec_shape;
use super::verdict::{Verdict, some_of};
use crate::api::{CONFIG_PLURAL, GROUP, VERSION, VirtualMachinePool};
use crate::json::stored_size;
use crate::stamp::names::{check_config_name, check_disk_names, is_ambiguous_template};
use crate::stamp::references::disk_templates_of;
use crate::stamp::sharing::{self, Finding, Severity};
use crate::stamp::{PoolInputs, disks_hash};

/// Largest spec, in bytes as the API server stores it. A VM has the spec, what KubeVirt fills in, and the paths
/// of all its fields in `managedFields` (which may be twice as long as the spec), and has to fit into the 1.5 MiB
/// that etcd takes; KubeVirt writes the spec into a revision of its own when the VM starts. `tests/it/bounds.rs`
/// measures that the bound holds.
pub const MAX_SPEC: usize = 384 * 1024;

/// Where it is served.
pub const PATH: &str = "/admission/validate/virtualmachineconfigs";

/// What the API server has to know of it.
pub(super) fn hook() -> HookSpec {
    HookSpec::new(
        "validate-config.vmpool.dev",
        HookKind::Validating,
        PATH,
        rule(GROUP, VERSION, CONFIG_PLURAL, &["CREATE", "UPDATE"]),
        &[NOT_BEING_DELETED, SPEC_CHANGED],
    )
}

/// Judges the config in `request`, given all pools of its namespace.
pub fn review(request: &Request, pools: &Lookup<Vec<Arc<VirtualMachinePool>>>) -> Verdict {
    if !request.operation.writes() || request.leaves_spec_alone() {
        return Verdict::allowed();
    }
    let name = request.object_name();
    let users = users(name, pools.as_deref().unwrap_or_default());
    let mut verdict = judge(request, &request.object, &users);
    if let Some(stored) = request.stored() {
        verdict = verdict.since(&judge(request, stored, &users));
        if let Some(warning) = disks_stay(&request.object, stored, &users) {
            verdict.warn(warning);
        }
    }
    if let Err(unavailable) = pools {
        verdict.warn(format!("not all was checked: {unavailable}"));
    }
    verdict
}

/// The pools that use the config, by name.
fn users<'p>(config: &str, pools: &'p [Arc<VirtualMachinePool>]) -> Vec<&'p VirtualMachinePool> {
    let mut users: Vec<&VirtualMachinePool> = pools
        .iter()
        .map(AsRef::as_ref)
        .filter(|pool| pool.spec.config.name == config)
        .filter(|pool| pool.metadata.deletion_timestamp.is_none())
        .collect();
    users.sort_by_key(|pool| name_of(pool));
    users
}

fn judge(request: &Request, object: &Value, users: &[&VirtualMachinePool]) -> Verdict {
    let mut verdict = Verdict::allowed();
    let name = request.object_name();
    if let Err(refusal) = check_config_name(name) {
        let field = Path::metadata().child("name");
        verdict
            .causes
            .push(Cause::invalid(field, refusal.to_string()));
    }
    let Some(Value::Object(spec)) = object.get("spec") else {
        let message = "has to be a VirtualMachineSpec";
        verdict.causes.push(Cause::required(Path::spec(), message));
        return verdict;
    };
    let size = stored_size(spec);
    if size > MAX_SPEC {
        let message = format!(
            "has {size} bytes as JSON; at most {MAX_SPEC}, since a VM, with all that is noted on it, has to fit \
             into what etcd takes"
        );
        verdict.causes.push(Cause::invalid(Path::spec(), message));
        return verdict;
    }
    verdict.causes.extend(spec_shape::check(spec));
    let whole = &object["spec"];
    for finding in sharing::misplaced(whole, &request.namespace) {
        let field = Path::below_spec(&finding.path);
        verdict
            .causes
            .push(Cause::forbidden(field, finding.message));
    }
    judge_disk_names(spec, users, &mut verdict);
    judge_sharing(whole, users, &mut verdict);
    for pool in users {
        if let Some(warning) = pool_warnings::of_readiness(&pool.spec, spec) {
            verdict.warn(format!("pool {}: {warning}", name_of(pool)));
        }
    }
    verdict
}

/// Whether the names of disks fit those of the VMs they go with.
fn judge_disk_names(
    spec: &Map<String, Value>,
    users: &[&VirtualMachinePool],
    verdict: &mut Verdict,
) {
    for template in disk_templates_of(spec) {
        if verdict.causes.len() >= ENOUGH_CAUSES {
            return;
        }
        let field = Path::spec().child("dataVolumeTemplates");
        for pool in users {
            let prefix = pool.spec.vm_prefix(name_of(pool));
            if let Err(refusal) = check_disk_names(prefix, &template) {
                let message = format!("pool {}: {refusal}", name_of(pool));
                verdict.causes.push(Cause::invalid(field.clone(), message));
            }
        }
        if is_ambiguous_template(&template) {
            verdict.warn(format!(
                "{field}: with a number in its name, disks of template {template:?} may be named like those of \
                 another pool; a number whose disk exists already is skipped"
            ));
        }
    }
}

/// What goes wrong because several VMs come of the config.
fn judge_sharing(spec: &Value, users: &[&VirtualMachinePool], verdict: &mut Verdict) {
    let members = |pool: &VirtualMachinePool| u64::from(pool.spec.replicas());
    let mut findings: Vec<(String, Finding)> = Vec::new();
    for pool in users.iter().filter(|pool| members(pool) > 1) {
        if findings.len() >= ENOUGH_CAUSES {
            break;
        }
        let of_pool = sharing::for_several_vms(spec, &PoolInputs::of(pool));
        let who = format!("pool {}", name_of(pool));
        findings.extend(of_pool.into_iter().map(|finding| (who.clone(), finding)));
    }
    let busy = users.iter().filter(|pool| members(pool) > 0).count();
    if findings.is_empty() && busy > 1 {
        // One VM in each of several pools: what a pool's own settings can tell apart is not asked for.
        let mut between = sharing::exclusive(spec);
        between.extend(sharing::fixed_identity(spec));
        between.extend(sharing::shared_on_nodes(spec));
        let who = "several pools".to_owned();
        findings.extend(between.into_iter().map(|finding| (who.clone(), finding)));
    }
    for (who, finding) in findings {
        let field = Path::below_spec(&finding.path);
        match finding.severity {
            Severity::Refuse => {
                let message = format!("{who}: {}", finding.message);
                verdict.causes.push(Cause::invalid(field, message));
            }
            Severity::Warn => verdict.warn(format!("{field}: {}", finding.message)),
        }
    }
}

/// What somebody who edits disk templates of a config in use has to know: nobody's disks are destroyed by that.
fn disks_stay(object: &Value, stored: &Value, users: &[&VirtualMachinePool]) -> Option<String> {
    let hash = |object: &Value| object.get("spec")?.as_object().map(disks_hash);
    let followers: Vec<&str> = users
        .iter()
        .filter(|pool| pool.spec.config.revision.is_none() && pool.spec.replicas() > 0)
        .map(|pool| name_of(pool))
        .collect();
    if hash(object) == hash(stored) || followers.is_empty() {
        return None;
    }
    Some(format!(
        "a change of dataVolumeTemplates reaches the disks of new VMs only: existing VMs of pool {} keep the disks \
         that they have",
        some_of(&followers)
    ))
}

fn name_of(pool: &VirtualMachinePool) -> &str {
    pool.metadata.name.as_deref().unwrap_or_default()
}
