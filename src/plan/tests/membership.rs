//! Who counts, and who is left alone.

use super::super::*;
use super::builders::{POOL_UID, at, condition, deeds, pool, told, vm, vms};
use super::film::Film;
use crate::api::conditions::types;
use crate::api::pool::BasePolicy;

#[test]
fn si_02_more_members_terminating_than_the_surplus() {
    let snapshot = pool("web")
        .replicas(4)
        .with_all(
            vms("web", 1..=2)
                .into_iter()
                .map(super::builders::Vm::ready),
        )
        .with_all(
            vms("web", 3..=5)
                .into_iter()
                .map(super::builders::Vm::deleting),
        );
    Film::new(snapshot).play(&[
        // 3 and 4 are waited for; nothing further is deleted.
        (
            "three of five are going away",
            |_| {},
            "-",
            "2/4 True/WaitingForDeletion",
        ),
        (
            "they are gone",
            Film::gone,
            "create 3 4",
            "2/4 True/ScalingOut",
        ),
        ("they boot", Film::boot, "-", "4/4 True/Settled"),
    ]);
}

#[test]
fn m90_two_of_five_terminating_and_four_wanted() {
    let snapshot = pool("web")
        .replicas(4)
        .with_all(vms("web", 1..=3))
        .with(vm("web-4").deleting())
        .with(vm("web-5").deleting());
    let plan = plan(&snapshot, at(0));
    assert_eq!(deeds(&plan), "-");
    assert_eq!(plan.status.replicas, 3);
    assert!(plan.waiting.contains_key(&4));
}

#[test]
fn si_03_a_terminating_member_and_fewer_replicas_in_every_mode() {
    type Change = fn(Snapshot) -> Snapshot;
    let modes: [(&str, Change); 3] = [
        ("proactive", |s| s),
        ("unmanaged", Snapshot::unmanaged),
        ("opportunistic", |s| {
            s.strategy(serde_json::from_value(serde_json::json!({"opportunistic": {}})).unwrap())
        }),
    ];
    for (mode, with) in modes {
        let snapshot = with(pool("web").replicas(3)).with_all(vms("web", 1..=3));
        let film = Film::new(snapshot).play(&[
            (
                "a VM is deleted and the replicas are lowered",
                |film| {
                    film.boot();
                    film.user_deletes("web-3");
                    film.scale(2);
                },
                "-",
                "2/2 True/ScalingIn",
            ),
            ("it is gone", Film::gone, "-", "2/2 True/Settled"),
        ]);
        assert_eq!(film.names(), ["web-1", "web-2"], "{mode}");
    }
}

#[test]
fn m97_a_member_deleted_by_its_user_goes_under_unmanaged_with_lowered_replicas() {
    let snapshot = pool("web")
        .replicas(1)
        .unmanaged()
        .with_all(vms("web", 1..=3))
        .with(vm("web-4").deleting());
    let plan = plan(&snapshot, at(0));
    assert_eq!(deeds(&plan), "-");
    assert_eq!(condition(&plan, types::SCALE_IN_BLOCKED), "absent");
}

#[test]
fn m99_a_member_deleted_by_its_user_in_a_paused_pool_is_gone_and_replaced_after() {
    let snapshot = pool("web").replicas(2).with_all(vms("web", 1..=2)).paused();
    Film::new(snapshot).play(&[
        (
            "a VM is deleted",
            |film| {
                film.boot();
                film.user_deletes("web-1");
            },
            "-",
            "1/2 Unknown/Paused",
        ),
        ("it is gone", Film::gone, "-", "1/2 Unknown/Paused"),
        (
            "the pool is resumed",
            |film| film.pause(false),
            "create 1",
            "1/2 True/ScalingOut",
        ),
    ]);
}

#[test]
fn nr_09_the_number_of_a_vm_that_lost_its_owner_is_skipped_and_filled_once_it_is_free() {
    let mut names = pool("web").replicas(3);
    names.pool.spec.name_generation =
        serde_json::from_value(serde_json::json!({"ordinalStart": 0})).unwrap();
    let film = Film::new(names).play(&[
        ("a new pool", |_| {}, "create 0 1 2", "0/3 True/ScalingOut"),
        ("they boot", Film::boot, "-", "3/3 True/Settled"),
        (
            "web-1 loses its owner",
            |film| film.disown("web-1"),
            "release web-1; create 3",
            "2/3 True/ScalingOut",
        ),
        ("web-3 boots", Film::boot, "-", "3/3 True/Settled"),
        (
            "web-1 is deleted, and one more is wanted",
            |film| {
                film.strangers.clear();
                film.scale(4);
            },
            "create 1",
            "3/4 True/ScalingOut",
        ),
        ("it boots", Film::boot, "-", "4/4 True/Settled"),
    ]);
    let mut names = film.names();
    names.sort_unstable();
    assert_eq!(names, ["web-0", "web-1", "web-2", "web-3"]);
}

#[test]
fn m17_a_member_that_loses_its_owner_is_replaced_and_left_alone() {
    let snapshot = pool("web")
        .replicas(3)
        .base(BasePolicy::LowestOrdinal)
        .with_all(vms("web", 1..=3));
    let film = Film::new(snapshot).play(&[
        (
            "web-2 loses its owner",
            |film| {
                film.boot();
                film.disown("web-2");
            },
            "release web-2; create 4",
            "2/3 True/ScalingOut",
        ),
        ("web-4 boots", Film::boot, "-", "3/3 True/Settled"),
        (
            "none is wanted",
            |film| film.scale(0),
            "delete web-1 web-3 web-4",
            "3/0 True/ScalingIn",
        ),
    ]);
    assert!(film.strangers.contains("web-2"));
}

#[test]
fn dt_05_a_stranger_with_our_labels_is_not_counted_adopted_or_deleted() {
    let strangers = [
        vm("precious").ownerless(),
        vm("web-9").owned_by("pool.kubevirt.io/v1beta1", POOL_UID),
        vm("web-8").owned_by("vmpool.dev/v1alpha1", "uid of an older pool of that name"),
    ];
    let snapshot = pool("web").with_all(strangers).with_all(vms("web", 1..=3));
    let all_go = plan(&snapshot.clone().replicas(0), at(0));
    assert_eq!(all_go.status.replicas, 3);
    let mut deleted: Vec<&str> = all_go
        .actions
        .iter()
        .filter_map(|action| match action {
            Action::Delete { name, .. } => Some(name.as_str()),
            _ => None,
        })
        .collect();
    deleted.sort_unstable();
    assert_eq!(deleted, ["web-1", "web-2", "web-3"]);
    assert_eq!(deeds(&plan(&snapshot.replicas(4), at(0))), "create 4");
}

#[test]
fn m16_ownerless_vms_with_our_labels_are_not_counted() {
    let snapshot = pool("web")
        .replicas(2)
        .with(vm("other-1").ownerless())
        .with(vm("other-2").ownerless());
    let plan = plan(&snapshot, at(0));
    assert_eq!(deeds(&plan), "create 1 2");
    assert_eq!(plan.status.replicas, 0);
}

#[test]
fn a_former_member_is_released_unless_it_is_going_away_or_never_was_one() {
    let mut snapshot = pool("web");
    snapshot.former = vec![
        vm("web-1").ownerless().view(),
        vm("web-2").ownerless().deleting().view(),
        vm("web-3").view(),
    ];
    let mut other = vm("web-4").ownerless().view();
    other
        .annotations
        .insert(annotations::MEMBER_OF.to_owned(), "another pool".to_owned());
    snapshot.former.push(other);
    assert_eq!(deeds(&plan(&snapshot, at(0))), "release web-1");
    assert_eq!(
        deeds(&plan(&snapshot.clone().burst(1), at(0))),
        "release web-1"
    );
    assert_eq!(deeds(&plan(&snapshot.paused(), at(0))), "-");
}

#[test]
fn what_was_answered_and_is_not_seen_yet_counts_as_done() {
    let mut snapshot = pool("web")
        .replicas(4)
        .with_all(vms("web", 1..=2))
        .with(vm("web-9"));
    snapshot.expected_creates = vec![2, 3, 3];
    snapshot.expected_deletes = vec!["uid-web-9".to_owned()];
    let more = plan(&snapshot, at(0));
    assert_eq!(deeds(&more), "create 4");
    assert_eq!(more.status.replicas, 3);
    assert_eq!(condition(&more, types::PROGRESSING), "True/ScalingOut");
    // Who goes is chosen among all members, so when all of them are seen.
    let fewer = plan(&snapshot.clone().replicas(1), at(0));
    assert_eq!(deeds(&fewer), "-");
    assert_eq!(condition(&fewer, types::PROGRESSING), "True/ScalingIn");
    snapshot.expected_creates.clear();
    assert!(deeds(&plan(&snapshot.replicas(1), at(0))).starts_with("delete web-"));
}

#[test]
fn a_pool_being_deleted_is_left_to_the_garbage_collector() {
    for replicas in [0, 5] {
        let mut snapshot = pool("web").replicas(replicas).with_all(vms("web", 1..=3));
        snapshot.former = vec![vm("web-9").ownerless().view()];
        snapshot.pool.deleting = true;
        let plan = plan(&snapshot, at(0));
        assert_eq!(deeds(&plan), "-");
        assert_eq!(plan.status.replicas, 3);
        assert_eq!(condition(&plan, types::PROGRESSING), "True/Deleting");
        assert_eq!(told(&plan), Vec::<&str>::new());
    }
}

#[test]
fn a_vm_whose_controller_reference_was_put_by_hand_is_not_removed_and_costs_no_member() {
    let mut snapshot = pool("web")
        .replicas(2)
        .with(vm("web-1"))
        .with(vm("web-2"))
        .with(vm("innocent"));
    let innocent = snapshot
        .members
        .iter_mut()
        .find(|member| member.vm.name == "innocent");
    innocent.unwrap().vm.annotations.clear();
    assert_eq!(deeds(&plan(&snapshot, at(0))), "-");
    snapshot.pool.spec.replicas = Some(1);
    let removed = deeds(&plan(&snapshot, at(0)));
    assert!(
        removed == "delete web-1" || removed == "delete web-2",
        "{removed}"
    );
}
