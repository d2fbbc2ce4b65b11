//! Which numbers are free.

use super::super::fixtures::{Filled, NAMESPACE, caches, disk, pool, vm};
use super::super::occupied::Numbers;
use super::super::snapshot::LiveReads;
use crate::plan::Occupied;

/// What stands in the way of `web-1`, whose only disk is `web-1-root`.
fn verdict(filled: Filled) -> Option<Occupied> {
    let caches = filled.pool(pool("web", "uid-web")).done();
    Numbers {
        caches: &caches,
        live: &LiveReads::default(),
        namespace: NAMESPACE,
        pool: "web",
        pool_uid: "uid-web",
        templates: &["root".to_owned()],
        grace_period_seconds: Some(60),
    }
    .occupied("web-1")
}

#[allow(
    clippy::unnecessary_wraps,
    reason = "what it is compared with is an Option"
)]
fn taken(by: &str) -> Option<Occupied> {
    Some(Occupied::Taken { by: by.to_owned() })
}

#[allow(
    clippy::unnecessary_wraps,
    reason = "what it is compared with is an Option"
)]
fn going_away(what: &str, patience_seconds: i64) -> Option<Occupied> {
    Some(Occupied::GoingAway {
        what: what.to_owned(),
        patience_seconds,
    })
}

#[test]
fn a_number_is_free_when_nothing_has_its_names() {
    let others = caches()
        .vm(vm("web-2"))
        .data_volume(disk("web-2-root"))
        .claim(disk("web-1-data"))
        .claim(disk("root"));
    assert_eq!(verdict(others), None);
}

#[test]
fn nr_09_a_foreign_vm_takes_the_number_dying_or_not() {
    let by = taken("VirtualMachine web-1");
    assert_eq!(verdict(caches().vm(vm("web-1"))), by);
    assert_eq!(verdict(caches().vm(vm("web-1").deleting())), by);
    let of_other_pool = vm("web-1").owner("other", "uid-other");
    let filled = caches().pool(pool("other", "uid-other")).vm(of_other_pool);
    assert_eq!(verdict(filled), by);
}

#[test]
fn a_member_is_in_nobodys_way_and_waited_for_while_it_goes() {
    let member = vm("web-1").owner("web", "uid-web");
    assert_eq!(verdict(caches().vm(member.clone())), None);
    let patient = member.set(
        "/spec/template/spec/terminationGracePeriodSeconds",
        300.into(),
    );
    assert_eq!(
        verdict(caches().vm(patient.deleting())),
        going_away("VirtualMachine web-1", 420)
    );
}

#[test]
fn m95_members_of_a_deleted_pool_of_the_same_name_are_waited_for() {
    let old = vm("web-1").owner("web", "uid-of-the-deleted-pool");
    assert_eq!(
        verdict(caches().vm(old)),
        going_away("VirtualMachine web-1", 150)
    );
}

#[test]
fn nr_05_a_disk_of_somebody_elses_takes_the_number() {
    let volume = disk("web-1-root");
    let alone = caches().data_volume(volume.clone());
    assert_eq!(verdict(alone), taken("DataVolume web-1-root"));
    let of_other_vm = volume.owned_by("kubevirt.io/v1", "VirtualMachine", "a-1", "uid-a-1");
    let filled = caches().vm(vm("a-1")).data_volume(of_other_vm.clone());
    assert_eq!(verdict(filled), taken("DataVolume web-1-root"));
    let co_owned = of_other_vm.owned_by("apps/v1", "ControllerRevision", "kept", "uid-kept");
    assert_eq!(
        verdict(caches().data_volume(co_owned)),
        taken("DataVolume web-1-root"),
        "one owner lives on"
    );
}

#[test]
fn nr_06_a_claim_of_that_name_takes_the_number() {
    let claim = caches().claim(disk("web-1-root"));
    assert_eq!(verdict(claim), taken("PersistentVolumeClaim web-1-root"));
}

#[test]
fn disks_of_an_earlier_vm_of_that_number_are_waited_for() {
    let of_dead_vm =
        disk("web-1-root").owned_by("kubevirt.io/v1", "VirtualMachine", "web-1", "uid-dead");
    let wait = going_away("DataVolume web-1-root", 180);
    assert_eq!(verdict(caches().data_volume(of_dead_vm.clone())), wait);
    assert_eq!(
        verdict(caches().data_volume(disk("web-1-root").deleting())),
        wait
    );
    // CDI's claim of that DataVolume, and one whose DataVolume is gone already.
    let claim = disk("web-1-root").owned_by(
        "cdi.kubevirt.io/v1beta1",
        "DataVolume",
        "web-1-root",
        "uid-web-1-root",
    );
    let both = caches()
        .data_volume(of_dead_vm)
        .claim(claim.clone().uid("uid-claim"));
    assert_eq!(verdict(both), wait);
    assert_eq!(
        verdict(caches().claim(claim)),
        going_away("PersistentVolumeClaim web-1-root", 180)
    );
}

#[test]
fn a_claim_with_the_state_of_a_vm_of_that_name_counts() {
    let state = disk("persistent-state-for-web-1-x7k").label("persistent-state-for", "web-1");
    assert_eq!(
        verdict(caches().claim(state.clone())),
        taken("PersistentVolumeClaim persistent-state-for-web-1-x7k")
    );
    let dying = state.owned_by("kubevirt.io/v1", "VirtualMachine", "web-1", "uid-dead");
    assert_eq!(
        verdict(caches().claim(dying)),
        going_away("PersistentVolumeClaim persistent-state-for-web-1-x7k", 180)
    );
}

#[test]
fn what_is_taken_outweighs_what_is_going_away() {
    let filled = caches()
        .data_volume(disk("web-1-root").deleting())
        .claim(disk("web-1-root"));
    assert_eq!(verdict(filled), taken("PersistentVolumeClaim web-1-root"));
}
