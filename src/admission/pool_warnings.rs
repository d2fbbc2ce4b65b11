//! What of a pool may go wrong without being wrong: VMs and disks of others that are named like its own, and a
//! budget that counts what nobody measures.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::objects::VmName;
use super::verdict::{Verdict, some_of};
use crate::api::{VirtualMachinePool, VirtualMachinePoolSpec};
use crate::stamp::names::is_ambiguous_with;

/// One prefix within another: VMs never collide, disks may. `templates` are the disk templates of the pool's
/// config; the other pool's are known where both use one config.
pub(super) fn of_nested_prefixes(
    pool: &VirtualMachinePool,
    pools: &[Arc<VirtualMachinePool>],
    templates: &BTreeSet<String>,
    verdict: &mut Verdict,
) {
    let prefix_of = |pool: &VirtualMachinePool| {
        let name = pool.metadata.name.clone().unwrap_or_default();
        (pool.spec.vm_prefix(&name).to_owned(), name)
    };
    let (ours, own_name) = prefix_of(pool);
    for other in pools {
        let (theirs, name) = prefix_of(other);
        let shares_config = other.spec.config.name == pool.spec.config.name;
        let found = templates.iter().find(|template| {
            is_ambiguous_with(&ours, template, &theirs)
                || (shares_config && is_ambiguous_with(&theirs, template, &ours))
        });
        if let Some(template) = found.filter(|_| name != own_name) {
            verdict.warn(format!(
                "disks of template {template:?} may be named like those of pool {name}, whose prefix is \
                 {theirs:?}: a number whose disk exists already is skipped"
            ));
        }
    }
}

/// VMs that exist under names that the pool's members would have; `uid` is the pool's own.
pub(super) fn of_taken_names(
    spec: &VirtualMachinePoolSpec,
    uid: Option<&str>,
    vms: &[VmName],
    verdict: &mut Verdict,
) {
    let start = spec.ordinal_start();
    let wanted = start..start.saturating_add(spec.replicas());
    let mut taken: Vec<&VmName> = vms
        .iter()
        .filter(|vm| wanted.contains(&vm.ordinal))
        .filter(|vm| uid.is_none() || vm.pool_uid.as_deref() != uid)
        .collect();
    if taken.is_empty() {
        return;
    }
    taken.sort_by_key(|vm| vm.ordinal);
    let names: Vec<&str> = taken.iter().map(|vm| vm.name.as_str()).collect();
    let are = if names.len() == 1 {
        "exists and is not this pool's: its number is skipped"
    } else {
        "exist and are not this pool's: their numbers are skipped"
    };
    verdict.warn(format!("VirtualMachine {} {are}", some_of(&names)));
}

/// Whether the pool says how many VMs may be down, and updates keep to it.
pub(super) fn relies_on_readiness(spec: &VirtualMachinePoolSpec) -> bool {
    let is_proactive = spec
        .update_strategy
        .as_ref()
        .is_none_or(|strategy| strategy.opportunistic.is_none() && strategy.unmanaged.is_none());
    spec.max_unavailable.is_some() && is_proactive && spec.replicas() >= 2
}

/// Such a pool of a config whose guests nobody asks: ready then means that a process runs.
pub(super) fn of_readiness(
    spec: &VirtualMachinePoolSpec,
    config: &Map<String, Value>,
) -> Option<String> {
    let template = config.get("template");
    let probe = template.and_then(|template| template.pointer("/spec/readinessProbe"));
    (relies_on_readiness(spec) && probe.is_none_or(Value::is_null)).then(|| {
        format!(
            "spec.maxUnavailable: VirtualMachineConfig {:?} has no readinessProbe, so a VM counts as ready when its \
             process runs, whatever its guest does",
            spec.config.name
        )
    })
}
