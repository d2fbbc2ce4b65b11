//! Whether a number is free: the disk check before a create, and the names of other people's VMs. Pure, over
//! the caches.
//!
//! KubeVirt boots a new VM on whatever disk has the name that it looks for, one that the garbage collector is
//! about to take included. So a number is used only when no DataVolume, no claim and no claim with vTPM or
//! EFI state of that name exists. What belongs to an earlier VM that is going away goes with it and is waited
//! for; what is somebody else's makes the number taken. In doubt it is taken.

use super::snapshot::LiveReads;
use crate::api::annotations;
use crate::cache::{Caches, Index, Key};
use crate::kubevirt::{self, DiskView, Owner, VmView};
use crate::plan::{Occupied, patience_seconds};
use crate::stamp;

/// Whose numbers are looked at.
pub(super) struct Numbers<'a> {
    pub(super) caches: &'a Caches,
    pub(super) live: &'a LiveReads,
    pub(super) namespace: &'a str,
    pub(super) pool: &'a str,
    pub(super) pool_uid: &'a str,
    /// Names of the disk templates of the revision that is created from.
    pub(super) templates: &'a [String],
    /// `terminationGracePeriodSeconds` of that revision.
    pub(super) grace_period_seconds: Option<i64>,
}

impl Numbers<'_> {
    /// What stands in the way of the VM with that name; `None` also where a live member has it.
    pub(super) fn occupied(&self, vm_name: &str) -> Option<Occupied> {
        if let Some(vm) = self.live.vm(self.caches, self.namespace, vm_name) {
            return self.by_vm(&vm);
        }
        let disks = self.templates.iter().flat_map(|template| {
            let name = stamp::disk_name(vm_name, template);
            let data_volume = self.caches.data_volumes.get(self.namespace, &name);
            let claim = self.caches.claims.get(self.namespace, &name);
            [
                ("DataVolume", data_volume),
                ("PersistentVolumeClaim", claim),
            ]
        });
        let state = Index::PersistentStateFor(Key::new(self.namespace, vm_name));
        let states = self.caches.claims.select(&state).into_iter();
        let states = states.map(|claim| ("PersistentVolumeClaim", Some(claim)));
        let mut departure = None;
        for (kind, disk) in disks.chain(states) {
            let Some(disk) = disk else { continue };
            let what = format!("{kind} {}", disk.name);
            if !self.goes_away(&disk) {
                return Some(Occupied::Taken { by: what });
            }
            departure.get_or_insert(going_away(what, self.grace_period_seconds));
        }
        departure
    }

    fn by_vm(&self, vm: &VmView) -> Option<Occupied> {
        let what = format!("VirtualMachine {}", vm.name);
        let deleting = vm.deleting_since.is_some();
        if vm.is_member_of(self.pool_uid) {
            return deleting.then(|| going_away(what, vm.grace_period_seconds));
        }
        let was_ours = vm
            .annotations
            .get(annotations::MEMBER_OF)
            .is_some_and(|uid| uid == self.pool_uid);
        // The pool was deleted and made again: the old one's members are collected one by one.
        let is_of_predecessor = vm
            .owner
            .as_ref()
            .is_some_and(|owner| owner.is_pool() && owner.name == self.pool && self.is_gone(owner));
        if is_of_predecessor || (was_ours && deleting) {
            return Some(going_away(what, vm.grace_period_seconds));
        }
        Some(Occupied::Taken { by: what })
    }

    fn is_gone(&self, pool: &Owner) -> bool {
        self.caches
            .pools
            .select(&Index::Uid(pool.uid.clone()))
            .is_empty()
    }

    /// Whether a disk is going away, or the garbage collector will take it: each of its owners is gone or
    /// going.
    fn goes_away(&self, disk: &DiskView) -> bool {
        disk.deleting
            || (!disk.owners.is_empty() && disk.owners.iter().all(|owner| self.is_doomed(owner)))
    }

    fn is_doomed(&self, owner: &Owner) -> bool {
        match (owner.group.as_str(), owner.kind.as_str()) {
            (kubevirt::GROUP, "VirtualMachine") => self
                .caches
                .vm(self.namespace, &owner.name)
                .is_none_or(|vm| vm.uid != owner.uid || vm.deleting_since.is_some()),
            (kubevirt::CDI_GROUP, "DataVolume") => self
                .caches
                .data_volumes
                .get(self.namespace, &owner.name)
                .is_none_or(|volume| volume.uid != owner.uid || self.goes_away(&volume)),
            _ => false,
        }
    }
}

fn going_away(what: String, grace_period_seconds: Option<i64>) -> Occupied {
    Occupied::GoingAway {
        what,
        patience_seconds: patience_seconds(grace_period_seconds),
    }
}
