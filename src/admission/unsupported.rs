//! Fields of a pool whose behaviour is not built yet: refused, with the exact path, and never accepted and
//! ignored. Whoever builds one takes its check out here.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::field::{Cause, Path};
use crate::api::pool::{
    Autohealing, OnDiskTemplateChange, PreservedDisks, ScaleInStrategy, SelectionPolicy,
    StatePreservation, UpdateStrategy,
};
use crate::api::{VirtualMachinePoolSpec, quantity};

/// What each refusal says.
pub const NOT_SUPPORTED_YET: &str = "not supported yet";

/// What `spec` asks for and would not get.
pub fn causes(spec: &VirtualMachinePoolSpec) -> Vec<Cause> {
    let root = Path::spec();
    let mut found = Vec::new();
    if let Some(disks) = &spec.preserved_disks {
        found.extend(preserved_disks(&root.child("preservedDisks"), disks));
    }
    if let Some(strategy) = &spec.update_strategy {
        found.extend(update(&root.child("updateStrategy"), strategy));
    }
    if let Some(strategy) = &spec.scale_in_strategy {
        found.extend(scale_in(&root.child("scaleInStrategy"), strategy));
    }
    if let Some(Autohealing { .. }) = &spec.autohealing {
        found.push(root.child("autohealing"));
    }
    found
        .into_iter()
        .map(|field| Cause::not_supported(field, NOT_SUPPORTED_YET))
        .collect()
}

/// An empty struct asks for nothing.
fn preserved_disks(field: &Path, disks: &PreservedDisks) -> Vec<Path> {
    let mut found = Vec::new();
    if disks.when_pool_deleted.is_some() {
        found.push(field.child("whenPoolDeleted"));
    }
    if disks.expire_after.is_some() {
        found.push(field.child("expireAfter"));
    }
    found
}

fn update(field: &Path, strategy: &UpdateStrategy) -> Vec<Path> {
    let mut found = Vec::new();
    if let Some(proactive) = &strategy.proactive {
        let field = field.child("proactive");
        if let Some(policy) = &proactive.selection_policy {
            found.extend(ordered_policies(&field, policy));
        }
        if let Some(partition) = &proactive.partition
            && !is_zero(partition)
        {
            found.push(field.child("partition"));
        }
        if proactive.on_disk_template_change == Some(OnDiskTemplateChange::Reprovision) {
            found.push(field.child("onDiskTemplateChange"));
        }
    }
    found
}

fn scale_in(field: &Path, strategy: &ScaleInStrategy) -> Vec<Path> {
    let mut found = Vec::new();
    if let Some(proactive) = &strategy.proactive {
        let field = field.child("proactive");
        if let Some(policy) = &proactive.selection_policy {
            found.extend(ordered_policies(&field, policy));
        }
        if keeps_something(proactive.state_preservation) {
            found.push(field.child("statePreservation"));
        }
    }
    if strategy.opportunistic.is_some() {
        found.push(field.child("opportunistic"));
    }
    found
}

fn ordered_policies(strategy: &Path, policy: &SelectionPolicy) -> Option<Path> {
    (!policy.ordered_policies.is_empty())
        .then(|| strategy.children(&["selectionPolicy", "orderedPolicies"]))
}

fn keeps_something(preservation: Option<StatePreservation>) -> bool {
    match preservation {
        None | Some(StatePreservation::Disabled) => false,
        Some(StatePreservation::Offline | StatePreservation::Online) => true,
    }
}

/// Whether no member stays behind, however many there are.
fn is_zero(partition: &IntOrString) -> bool {
    quantity::share_of(partition, u32::MAX) == Some(0)
}
