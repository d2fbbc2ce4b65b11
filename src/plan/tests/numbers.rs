//! Which numbers are filled, how many at a time, and how long one is waited for.

use super::super::*;
use super::builders::{at, condition, deeds, pool, told, vm, vms};
use super::film::Film;
use crate::api::conditions::{reasons, types};

#[test]
fn m01_gaps_are_filled_first() {
    let mut snapshot = pool("web").replicas(5).with_all(vms("web", [1, 3]));
    snapshot.pool.spec.name_generation =
        serde_json::from_value(serde_json::json!({"ordinalStart": 0})).unwrap();
    assert_eq!(deeds(&plan(&snapshot, at(0))), "create 0 2 4");
}

#[test]
fn m02_then_the_numbers_above() {
    let snapshot = pool("web").replicas(5).with_all(vms("web", 1..=3));
    assert_eq!(deeds(&plan(&snapshot, at(0))), "create 4 5");
}

#[test]
fn members_below_a_raised_ordinal_start_stay_and_count() {
    let mut snapshot = pool("web").replicas(3).with_all(vms("web", [1]));
    snapshot.pool.spec.name_generation =
        serde_json::from_value(serde_json::json!({"ordinalStart": 100})).unwrap();
    assert_eq!(deeds(&plan(&snapshot, at(0))), "create 100 101");
}

#[test]
fn numbers_end_where_six_digits_do() {
    let mut snapshot = pool("web").replicas(3);
    snapshot.pool.spec.name_generation =
        serde_json::from_value(serde_json::json!({"ordinalStart": 999_998})).unwrap();
    assert_eq!(deeds(&plan(&snapshot, at(0))), "create 999998 999999");
}

#[test]
fn m15_a_number_that_a_stranger_has_is_skipped_with_one_event() {
    let snapshot = pool("web").replicas(3).taken(2);
    let first = plan(&snapshot, at(0));
    assert_eq!(deeds(&first), "create 1 3 4");
    assert_eq!(told(&first), [reasons::NAME_TAKEN]);
    assert!(first.events[0].message.contains("2 (VirtualMachine web-2)"));

    let again = snapshot.after(&first);
    let second = plan(&again, at(1));
    assert_eq!(deeds(&second), "create 1 3 4");
    assert_eq!(told(&second), Vec::<&str>::new());

    // One event for all that are new.
    let more = again.replicas(6).taken(4).taken(5);
    let third = plan(&more, at(2));
    assert_eq!(told(&third), [reasons::NAME_TAKEN]);
    assert!(!third.events[0].message.contains("web-2"));
    assert!(third.events[0].message.contains("web-5"));

    // While nobody is missing nobody looks; that the number is still taken is no news.
    let mut nobody_looked = more.after(&third).replicas(0);
    nobody_looked.occupied.clear();
    let rest = plan(&nobody_looked, at(3));
    let more = nobody_looked
        .after(&rest)
        .replicas(6)
        .taken(2)
        .taken(4)
        .taken(5);
    let third = plan(&more, at(4));
    assert_eq!(told(&third), Vec::<&str>::new());

    // Free again, and taken again: that is news.
    let mut free = more.after(&third);
    free.occupied.clear();
    let fourth = plan(&free, at(5));
    let taken_again = plan(&free.after(&fourth).taken(2), at(6));
    assert_eq!(told(&taken_again), [reasons::NAME_TAKEN]);
}

#[test]
fn an_event_names_ten_taken_numbers_and_counts_the_rest() {
    let snapshot = (1..=30).fold(pool("web").replicas(1), Snapshot::taken);
    let plan = plan(&snapshot, at(0));
    assert_eq!(deeds(&plan), "create 31");
    assert!(plan.events[0].message.ends_with("and 20 more"));
}

#[test]
fn m12_no_more_creates_in_a_pass_than_the_burst() {
    let snapshot = pool("web").replicas(15).burst(10);
    let plan = plan(&snapshot, at(0));
    assert_eq!(deeds(&plan), "create 1 2 3 4 5 6 7 8 9 10");
    assert_eq!(plan.wake_at, Some(at(0)));
}

#[test]
fn pf_01_a_thousand_vms_in_four_passes() {
    let mut film = Film::new(pool("web").replicas(1000));
    for pass in 1..=4 {
        let plan = film.step();
        assert_eq!(plan.actions.len(), 250, "pass {pass}");
        let is_at_once = plan.wake_at == Some(film.now);
        assert_eq!(is_at_once, pass < 4, "pass {pass}");
    }
    film.boot();
    let rest = film.step();
    assert_eq!(deeds(&rest), "-");
    assert_eq!(condition(&rest, types::PROGRESSING), "True/Settled");
    assert_eq!(rest.wake_at, None);
}

#[test]
fn a_failed_create_holds_back_creates_until_its_time() {
    let snapshot =
        pool("web")
            .replicas(2)
            .with(vm("web-1"))
            .failed_for(Kind::Create, reasons::QUOTA, at(30));
    let before = plan(&snapshot, at(29));
    assert_eq!(deeds(&before), "-");
    assert_eq!(before.wake_at, Some(at(30)));
    assert_eq!(deeds(&plan(&snapshot, at(30))), "create 2");

    let fewer = plan(&snapshot.replicas(0), at(29));
    assert_eq!(deeds(&fewer), "delete web-1");
    assert_eq!(condition(&fewer, types::REPLICA_FAILURE), "absent");
}

#[test]
fn each_kind_of_deed_waits_for_its_own_failure_and_all_failures_are_said() {
    let mut snapshot = pool("web")
        .replicas(0)
        .with(vm("web-1"))
        .failed(Kind::Delete, at(30));
    snapshot.former = vec![vm("web-2").ownerless().view()];
    let refused_delete = plan(&snapshot, at(0));
    assert_eq!(deeds(&refused_delete), "release web-2");
    assert_eq!(refused_delete.wake_at, Some(at(30)));
    assert_eq!(
        deeds(&plan(&snapshot, at(30))),
        "release web-2; delete web-1"
    );
    let failure = condition(&refused_delete, types::REPLICA_FAILURE);
    assert_eq!(failure, "True/FailedDelete");

    let mut snapshot = snapshot.failed(Kind::Release, at(20));
    let both = plan(&snapshot, at(0));
    assert_eq!((deeds(&both).as_str(), both.wake_at), ("-", Some(at(20))));
    let conditions = &both.status.conditions;
    let said = conditions
        .iter()
        .find(|c| c.type_ == types::REPLICA_FAILURE);
    assert_eq!(said.unwrap().message, "Delete refused; Release refused");
    snapshot.failures.remove(&Kind::Delete);
    assert_eq!(deeds(&plan(&snapshot, at(0))), "delete web-1");
}

#[test]
fn a_number_whose_vm_is_going_away_is_waited_for_and_then_passed_over() {
    // 60 seconds of grace and two minutes.
    let snapshot = pool("web")
        .replicas(2)
        .with(vm("web-1").ready().grace(60))
        .with(vm("web-2").ready());
    Film::new(snapshot).play(&[
        ("at rest", |_| {}, "-", "2/2 True/Settled"),
        (
            "a VM is deleted, and its finalizer hangs",
            |film| film.user_deletes("web-1"),
            "-",
            "1/2 True/WaitingForDeletion",
        ),
        (
            "one more is wanted: the next number is free",
            |film| {
                film.wait(100);
                film.scale(3);
            },
            "create 3",
            "1/3 True/ScalingOut",
        ),
        (
            "179 seconds",
            |film| film.wait(79),
            "-",
            "2/3 True/WaitingForDeletion",
        ),
        (
            "180 seconds",
            |film| film.wait(1),
            "create 4",
            "2/3 True/ScalingOut",
        ),
        ("it boots", Film::boot, "-", "3/3 True/ScalingIn"),
        (
            "one more is wanted: nobody waits again",
            |film| film.scale(4),
            "create 5",
            "3/4 True/ScalingOut",
        ),
        (
            "the finalizer is gone",
            |film| {
                film.boot();
                film.gone();
            },
            "-",
            "4/4 True/Settled",
        ),
        (
            "the number is free again",
            |film| film.scale(5),
            "create 1",
            "4/5 True/ScalingOut",
        ),
    ]);
}

#[test]
fn the_wait_has_one_timer_and_says_what_it_waits_for() {
    let snapshot = pool("web")
        .replicas(2)
        .with(vm("web-1").deleting())
        .with(vm("web-2").deleting().grace(5));
    let first = plan(&snapshot, at(0));
    assert_eq!(first.waiting, BTreeMap::from([(1, at(0)), (2, at(0))]));
    assert_eq!(first.wake_at, Some(at(125)));
    let message = &first.status.conditions[1].message;
    assert!(message.contains("1 (VirtualMachine web-1), 2 (VirtualMachine web-2)"));

    let second = plan(&snapshot.after(&first), at(125));
    assert_eq!(deeds(&second), "create 3");
    assert_eq!(second.wake_at, Some(at(150)));
}

#[test]
fn a_disk_that_is_going_away_is_waited_for_like_a_vm() {
    let mut snapshot = pool("web").replicas(1);
    let going = Occupied::GoingAway {
        what: "DataVolume web-1-root".to_owned(),
        patience_seconds: 150,
    };
    snapshot.occupied.insert(1, going);
    let first = plan(&snapshot, at(0));
    assert_eq!(deeds(&first), "-");
    assert_eq!(first.wake_at, Some(at(150)));
    let snapshot = snapshot.after(&first);
    assert_eq!(deeds(&plan(&snapshot, at(149))), "-");
    assert_eq!(deeds(&plan(&snapshot, at(150))), "create 2");
    let mut gone = snapshot;
    gone.occupied.clear();
    assert_eq!(deeds(&plan(&gone, at(149))), "create 1");
}

#[test]
fn a_disk_that_hangs_is_not_waited_for_twice() {
    let mut snapshot = pool("web").replicas(1);
    let hanging = || Occupied::GoingAway {
        what: "DataVolume web-1-root".to_owned(),
        patience_seconds: 150,
    };
    snapshot.occupied.insert(1, hanging());
    let first = plan(&snapshot, at(0));
    let mut filled = snapshot.after(&first).with(vm("web-2"));
    filled.occupied.clear();
    let second = plan(&filled, at(150));
    let mut another = filled.after(&second).replicas(2);
    another.occupied.insert(1, hanging());
    assert_eq!(deeds(&plan(&another, at(151))), "create 3");
    // A member that got the number ends the story.
    let mut got_it = another.after(&second).with(vm("web-1"));
    got_it.occupied.clear();
    assert_eq!(plan(&got_it, at(152)).waiting, BTreeMap::new());
}

#[test]
fn a_clock_set_back_or_an_absurd_grace_period_breaks_nothing() {
    let snapshot = pool("web")
        .replicas(1)
        .with(vm("web-1").deleting().grace(i64::MAX));
    let first = plan(&snapshot, at(0));
    assert_eq!(first.wake_at, Some(Timestamp::MAX));
    let second = plan(&snapshot.after(&first), at(-3600));
    assert_eq!(second.waiting[&1], at(-3600));
}

#[test]
fn a_deleted_vm_comes_back_under_its_number() {
    let snapshot = pool("web").replicas(3).with_all(vms("web", 1..=3));
    Film::new(snapshot).play(&[
        (
            "the user deletes web-2",
            |film| {
                film.boot();
                film.user_deletes("web-2");
            },
            "-",
            "2/3 True/WaitingForDeletion",
        ),
        ("it is gone", Film::gone, "create 2", "2/3 True/ScalingOut"),
    ]);
}

#[test]
fn a_vm_deleted_by_hand_comes_back_under_its_number_before_lower_gaps_are_filled() {
    let snapshot = pool("web")
        .replicas(2)
        .with(vm("web-3"))
        .with(vm("web-7").deleting());
    let first = plan(&snapshot, at(0));
    assert_eq!(deeds(&first), "-");
    let mut gone = snapshot.after(&first);
    gone.members.retain(|member| member.vm.name != "web-7");
    let second = plan(&gone, at(1));
    assert_eq!(deeds(&second), "create 7");
    // Not answered, or refused: it is still owed.
    assert_eq!(
        deeds(&plan(&gone.clone().after(&second), at(2))),
        "create 7"
    );
    let back = gone.after(&second).with(vm("web-7"));
    let third = plan(&back, at(3));
    assert!(third.memory.vacated.is_empty());
    assert_eq!(
        deeds(&plan(&back.after(&third).replicas(3), at(4))),
        "create 1"
    );
}

#[test]
fn a_number_is_not_owed_when_we_removed_its_vm_or_fewer_are_wanted() {
    let full = pool("web").replicas(1).with(vm("web-5")).with(vm("web-6"));
    let scaled_in = plan(&full, at(0));
    assert_eq!(scaled_in.memory.removed.len(), 1);
    let mut going = full.after(&scaled_in).replicas(2);
    for member in &mut going.members {
        if scaled_in.memory.removed.contains(&member.vm.uid) {
            member.vm.deleting_since = Some(at(0));
        }
    }
    assert_eq!(deeds(&plan(&going, at(1))), "create 1");

    let by_hand = pool("web")
        .replicas(1)
        .with(vm("web-5"))
        .with(vm("web-6").deleting());
    assert!(plan(&by_hand, at(0)).memory.vacated.is_empty());
}
