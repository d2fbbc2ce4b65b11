//! Who goes when there are more than wanted.

use serde_json::json;

use super::super::*;
use super::builders::{Vm, at, condition, deeds, pool, told, vm, vms};
use super::film::Film;
use crate::api::conditions::{reasons, types};
use crate::api::pool::{BasePolicy, StatePreservation};

fn aged() -> Vec<Vm> {
    // web-3 is the oldest, web-4 the newest; web-2 and web-5 are of one second.
    [(1, 30), (2, 20), (3, 10), (4, 50), (5, 20)]
        .map(|(n, second)| vm(&format!("web-{n}")).created(&format!("2026-01-01T11:00:{second}Z")))
        .to_vec()
}

#[test]
fn m24_oldest_leaves_the_newest() {
    let snapshot = pool("web")
        .replicas(2)
        .base(BasePolicy::Oldest)
        .with_all(aged());
    assert_eq!(deeds(&plan(&snapshot, at(0))), "delete web-3 web-2 web-5");
}

#[test]
fn newest_takes_the_higher_number_of_one_second_first() {
    let snapshot = pool("web")
        .replicas(1)
        .base(BasePolicy::Newest)
        .with_all(aged());
    assert_eq!(
        deeds(&plan(&snapshot, at(0))),
        "delete web-4 web-1 web-5 web-2"
    );
}

#[test]
fn m25_highest_ordinal_leaves_the_lowest_by_number() {
    let snapshot = pool("web")
        .replicas(2)
        .base(BasePolicy::HighestOrdinal)
        .with_all(vms("web", [10, 2, 9, 100, 1]));
    assert_eq!(
        deeds(&plan(&snapshot, at(0))),
        "delete web-100 web-10 web-9"
    );
}

#[test]
fn lowest_ordinal_goes_by_number_and_takes_members_without_one_last() {
    let snapshot = pool("web")
        .replicas(1)
        .base(BasePolicy::LowestOrdinal)
        .with(vm("attached"))
        .with_all(vms("web", [10, 2, 9]));
    assert_eq!(deeds(&plan(&snapshot, at(0))), "delete web-2 web-9 web-10");
    let highest = snapshot.base(BasePolicy::HighestOrdinal);
    assert_eq!(deeds(&plan(&highest, at(0))), "delete web-10 web-9 web-2");
}

#[test]
fn random_prefers_no_instance_then_not_ready_then_ready() {
    let snapshot = pool("web")
        .with(vm("web-1").ready())
        .with(vm("web-2"))
        .with(vm("web-3").halted())
        .with(vm("web-4").ready())
        .with(vm("web-5").phase("Succeeded"))
        .with(vm("web-6").phase("Scheduling"));
    let deleted = |replicas| {
        let plan = plan(&snapshot.clone().replicas(replicas), at(0));
        let mut names: Vec<String> = deeds(&plan).split(' ').skip(1).map(str::to_owned).collect();
        names.sort();
        names.join(" ")
    };
    assert_eq!(deleted(4), "web-3 web-5");
    assert_eq!(deleted(2), "web-2 web-3 web-5 web-6");
}

#[test]
fn random_is_the_same_for_the_same_decision_only() {
    let of = |uid: &str, replicas| {
        let mut snapshot = pool("web").replicas(replicas).with_all(vms("web", 1..=20));
        of_pool(&mut snapshot, uid);
        let once = deeds(&plan(&snapshot, at(0)));
        snapshot.members.reverse();
        assert_eq!(once, deeds(&plan(&snapshot, at(99))), "order of the cache");
        once
    };
    assert_eq!(of("a", 10), of("a", 10));
    assert_ne!(of("a", 10), of("b", 10));
    assert!(!of("a", 9).starts_with(&of("a", 10)));
}

#[test]
fn m13_no_more_deletes_in_a_pass_than_the_burst() {
    let mut film = Film::new(
        pool("web")
            .replicas(5)
            .burst(10)
            .base(BasePolicy::HighestOrdinal)
            .with_all(vms("web", 1..=20)),
    );
    let first = film.step();
    assert_eq!(first.actions.len(), 10);
    assert_eq!(first.status.replicas, 20);
    assert_eq!(first.wake_at, Some(film.now));
    let second = film.step();
    assert_eq!(deeds(&second), "delete web-10 web-9 web-8 web-7 web-6");
    assert!(
        second.wake_at > Some(film.now),
        "but for the progress deadline"
    );
    assert_eq!(deeds(&film.step()), "-");
}

#[test]
fn m14_five_of_ten_going_away_and_none_wanted() {
    let snapshot = pool("web")
        .replicas(0)
        .base(BasePolicy::LowestOrdinal)
        .with_all(vms("web", 1..=5))
        .with_all(vms("web", 6..=10).into_iter().map(Vm::deleting));
    assert_eq!(
        deeds(&plan(&snapshot, at(0))),
        "delete web-1 web-2 web-3 web-4 web-5"
    );
}

#[test]
fn a_delete_names_the_very_object_that_was_seen() {
    let snapshot = pool("web").with(vm("web-1"));
    let wanted = Action::Delete {
        name: "web-1".to_owned(),
        uid: "uid-web-1".to_owned(),
        resource_version: "7".to_owned(),
    };
    let actions = plan(&snapshot, at(0)).actions;
    assert_eq!(actions, [wanted]);
    assert_eq!(actions[0].reason(), reasons::DELETED);
}

#[test]
fn si_04_a_protected_member_is_never_chosen() {
    let busy = (1..=9).map(|n| {
        vm(&format!("web-{n}"))
            .ready()
            .protected("update, scale-in")
    });
    for pool_number in 0..1000 {
        let mut snapshot = pool("web")
            .replicas(9)
            .with_all(busy.clone())
            .with(vm("web-10").ready().protected("update"));
        of_pool(&mut snapshot, &format!("pool-{pool_number}"));
        assert_eq!(deeds(&plan(&snapshot, at(0))), "delete web-10");
    }
}

#[test]
fn too_few_candidates_are_taken_and_the_rest_is_said_once_a_generation() {
    let snapshot = pool("web")
        .replicas(1)
        .with(vm("web-1").ready().protected("scale-in"))
        .with(vm("web-2").ready().protected("scale-in"))
        .with(vm("web-3").ready().protected("scale-in"))
        .with(vm("web-4").ready());
    let mut film = Film::new(snapshot);
    let first = film.step();
    assert_eq!(deeds(&first), "delete web-4");
    assert_eq!(
        condition(&first, types::SCALE_IN_BLOCKED),
        "True/TooFewCandidates"
    );
    assert_eq!(condition(&first, types::PROGRESSING), "True/ScalingIn");
    assert_eq!(told(&first), [reasons::TOO_FEW_CANDIDATES]);
    assert!(first.events[0].message.starts_with("2 more than wanted"));

    let second = film.step();
    assert_eq!(
        condition(&second, types::PROGRESSING),
        "False/TooFewCandidates"
    );
    assert_eq!(
        condition(&second, types::AVAILABLE),
        "True/MembersAvailable"
    );
    assert_eq!(told(&second), Vec::<&str>::new());

    film.scale(2);
    let next_generation = film.step();
    assert_eq!(told(&next_generation), [reasons::TOO_FEW_CANDIDATES]);
    assert!(
        next_generation.events[0]
            .message
            .starts_with("1 more than wanted")
    );

    film.scale(3);
    let enough = film.step();
    assert_eq!(condition(&enough, types::SCALE_IN_BLOCKED), "absent");
}

#[test]
fn what_this_version_cannot_carry_out_removes_nobody() {
    let proactive = |fields| serde_json::from_value(json!({"proactive": fields})).unwrap();
    let ordered = json!({"selectionPolicy": {
        "orderedPolicies": [{"labelSelector": {"matchLabels": {"importance": "low"}}}],
        "basePolicy": "Oldest",
    }});
    let both = json!({"proactive": {}, "unmanaged": {}});
    let pools = [
        pool("web").preserving(StatePreservation::Offline),
        pool("web").preserving(StatePreservation::Online),
        pool("web").strategy(proactive(ordered)),
        pool("web").strategy(serde_json::from_value(json!({"opportunistic": {}})).unwrap()),
        pool("web").strategy(serde_json::from_value(both).unwrap()),
    ];
    for snapshot in pools {
        let snapshot = snapshot.replicas(1).with_all(vms("web", 1..=3));
        let plan = plan(&snapshot, at(0));
        let strategy = &snapshot.pool.spec.scale_in_strategy;
        assert_eq!(deeds(&plan), "-", "{strategy:?}");
        assert_eq!(
            condition(&plan, types::SCALE_IN_BLOCKED),
            "True/NotSupported"
        );
        assert_eq!(condition(&plan, types::PROGRESSING), "False/NotSupported");
        assert_eq!(told(&plan), [reasons::NOT_SUPPORTED]);
    }
}

#[test]
fn absent_empty_and_disabled_mean_proactive_with_nothing_kept() {
    let strategies = [
        json!({}),
        json!({"proactive": {}}),
        json!({"proactive": {"statePreservation": "Disabled", "selectionPolicy": {}}}),
    ];
    for strategy in strategies {
        let snapshot = pool("web")
            .strategy(serde_json::from_value(strategy).unwrap())
            .with(vm("web-1"));
        assert_eq!(deeds(&plan(&snapshot, at(0))), "delete web-1");
    }
    assert_eq!(
        deeds(&plan(&pool("web").with(vm("web-1")), at(0))),
        "delete web-1"
    );
}

#[test]
fn si_11_unmanaged_removes_nobody_and_that_is_no_error() {
    let snapshot = pool("web")
        .replicas(3)
        .unmanaged()
        .updates(serde_json::json!({"unmanaged": {}}))
        .with_all(vms("web", 1..=5));
    let film = Film::new(snapshot).play(&[
        ("five for three", Film::boot, "-", "5/3 True/Settled"),
        ("paused", |film| film.pause(true), "-", "5/3 True/Settled"),
        ("resumed", |film| film.pause(false), "-", "5/3 True/Settled"),
        (
            "the controller restarts",
            |film| {
                film.snapshot.memory = Memory::default();
                film.snapshot.waiting.clear();
            },
            "-",
            "5/3 True/Settled",
        ),
        (
            "the config changes",
            |film| film.retarget("another"),
            "-",
            "5/3 True/Settled",
        ),
    ]);
    let plan = plan(&film.seen(), film.now);
    assert_eq!(condition(&plan, types::SCALE_IN_BLOCKED), "absent");
    assert_eq!(condition(&plan, types::AVAILABLE), "True/MembersAvailable");
    assert_eq!(film.names().len(), 5);
}

/// Makes pool and members those of another UID.
fn of_pool(snapshot: &mut Snapshot, uid: &str) {
    uid.clone_into(&mut snapshot.pool.uid);
    for member in &mut snapshot.members {
        uid.clone_into(&mut member.vm.owner.as_mut().unwrap().uid);
        let annotations = &mut member.vm.annotations;
        annotations.insert("vmpool.dev/member-of".to_owned(), uid.to_owned());
    }
}
