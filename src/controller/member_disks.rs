//! The disks of a member: whether KubeVirt has made and filled them, and whether a name that an update would bring
//! is somebody else's. Pure, over the caches.
//!
//! KubeVirt takes whatever DataVolume or claim has the name of a disk template, adopts it if nobody controls it, and
//! deletes it with the VM. So a template comes to a VM only where nothing of its name exists; creates have the same
//! rule ([`super::occupied`]).

use crate::api::labels;
use crate::cache::{Caches, RevisionEntry};
use crate::kubevirt::{self, DiskView, Owner, VmView, disk_template_names};
use crate::stamp;

/// What has the name of a disk that `target` brings to `vm` and that isn't the VM's own, such as
/// `DataVolume web-1-data`.
pub(super) fn taken(caches: &Caches, vm: &VmView, target: &RevisionEntry) -> Option<String> {
    // Without a base no template is added.
    let made_from = vm.labels.get(labels::REVISION)?;
    if *made_from == target.id.name {
        return None;
    }
    let base = caches.revision(&vm.namespace, made_from)?;
    let of_base = stamp::disk_templates_of(&base.spec);
    let of_target = stamp::disk_templates_of(&target.spec);
    of_target
        .difference(&of_base)
        .map(|template| stamp::disk_name(&vm.name, template))
        .filter(|disk| !vm.disks.contains(disk))
        .find_map(|disk| {
            let data_volume = caches.data_volumes.get(&vm.namespace, &disk);
            let claim = caches.claims.get(&vm.namespace, &disk);
            somebody_elses(vm, &disk, data_volume.as_deref(), claim.as_deref())
        })
}

/// Which of the two that have this name isn't the VM's own.
pub(super) fn somebody_elses(
    vm: &VmView,
    disk: &str,
    data_volume: Option<&DiskView>,
    claim: Option<&DiskView>,
) -> Option<String> {
    let is_own = |found: &DiskView| found.owners.first().is_some_and(|owner| is_it(owner, vm));
    match (data_volume, claim) {
        // Its claim is its own business.
        (Some(data_volume), _) if is_own(data_volume) && !data_volume.deleting => None,
        (Some(_), _) => Some(format!("DataVolume {disk}")),
        (None, Some(claim)) if is_own(claim) && !claim.deleting => None,
        (None, Some(_)) => Some(format!("PersistentVolumeClaim {disk}")),
        (None, None) => None,
    }
}

fn is_it(owner: &Owner, vm: &VmView) -> bool {
    owner.group == kubevirt::GROUP && owner.kind == "VirtualMachine" && owner.uid == vm.uid
}

/// Whether a disk of its templates isn't there or has no data yet. Until then KubeVirt neither compares the running
/// instance with the VM, nor starts it again, nor carries out a restart (its `sync`, which ends where
/// `handleDataVolumes` is not done).
pub(super) fn are_filling(caches: &Caches, vm: &VmView) -> bool {
    // Where they are made at the start KubeVirt waits for none before it.
    !vm.makes_disks_at_start
        && vm.disks.iter().any(|disk| {
            match caches.data_volumes.get(&vm.namespace, disk) {
                Some(data_volume) => !data_volume.has_data,
                // Old CDIs remove a DataVolume that is done.
                None => caches.claims.get(&vm.namespace, disk).is_none(),
            }
        })
}

/// Names of the disks in `after` that `before` doesn't have, both VMs.
pub(super) fn added(before: &serde_json::Value, after: &serde_json::Value) -> Vec<String> {
    let names =
        |vm: &serde_json::Value| vm.get("spec").map(disk_template_names).unwrap_or_default();
    let known = names(before);
    let mut added = names(after);
    added.retain(|disk| !known.contains(disk));
    added
}
