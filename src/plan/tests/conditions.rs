//! What is said of a pool, and when it is said again.

use super::super::*;
use super::builders::{at, condition, deeds, pool, stored, told, vm, vms};
use super::film::Film;
use crate::api::conditions::{reasons, types};
use crate::api::pool::BasePolicy;

fn with_disks(mut snapshot: Snapshot) -> Snapshot {
    if let Some(target) = &mut snapshot.target {
        target.has_disk_templates = true;
    }
    snapshot
}

fn without_target(mut snapshot: Snapshot) -> Snapshot {
    snapshot.target = None;
    snapshot
}

#[test]
fn m08_a_paused_pool_of_three_missing_creates_nothing_and_says_so_once() {
    let snapshot = pool("web").replicas(3).paused();
    let first = plan(&snapshot, at(0));
    assert_eq!(deeds(&first), "-");
    assert_eq!(first.status.replicas, 0);
    assert_eq!(condition(&first, types::PAUSED), "True/Paused");
    assert_eq!(told(&first), [reasons::PAUSED]);
    let second = plan(&snapshot.after(&first), at(60));
    assert_eq!(told(&second), Vec::<&str>::new());
    assert_eq!(second.status, stored(&first.status));
}

#[test]
fn m11_a_resumed_pool_creates_what_is_missing_and_the_condition_goes() {
    let mut film = Film::new(pool("web").replicas(3).paused());
    film.step();
    film.pause(false);
    let resumed = film.step();
    assert_eq!(deeds(&resumed), "create 1 2 3");
    assert_eq!(condition(&resumed, types::PAUSED), "absent");
    assert_eq!(told(&resumed), [reasons::RESUMED]);
    assert_eq!(told(&film.step()), Vec::<&str>::new());
}

#[test]
fn m83_raised_while_paused() {
    let mut film = Film::new(pool("web").replicas(1).with(vm("web-1").ready()));
    film.step();
    film.pause(true);
    film.scale(2);
    for _ in 0..5 {
        film.wait(1);
        let plan = film.step();
        assert_eq!(deeds(&plan), "-");
        assert_eq!(condition(&plan, types::PAUSED), "True/Paused");
        assert_eq!(plan.wake_at, None);
    }
    film.pause(false);
    let resumed = film.step();
    assert_eq!(condition(&resumed, types::PAUSED), "absent");
    assert_eq!(deeds(&resumed), "create 2");
}

#[test]
fn a_paused_pool_with_nothing_to_do_is_settled() {
    let plan = plan(
        &pool("web").replicas(1).with(vm("web-1").ready()).paused(),
        at(0),
    );
    assert_eq!(condition(&plan, types::PROGRESSING), "True/Settled");
    assert_eq!(condition(&plan, types::AVAILABLE), "True/MembersAvailable");
}

#[test]
fn m10_the_failure_goes_with_a_clean_pass() {
    let mut film = Film::new(pool("web").replicas(1).failed_for(
        Kind::Create,
        reasons::QUOTA,
        at(10),
    ));
    let failed = film.step();
    assert_eq!(
        condition(&failed, types::REPLICA_FAILURE),
        "True/QuotaExceeded"
    );
    assert_eq!(condition(&failed, types::PROGRESSING), "True/ScalingOut");
    film.wait(10);
    assert_eq!(deeds(&film.step()), "create 1");
    film.snapshot.failures.clear();
    assert_eq!(condition(&film.step(), types::REPLICA_FAILURE), "absent");
}

#[test]
fn vd_11_a_missing_config_goes_on_with_the_last_revision() {
    let snapshot = pool("web").replicas(3).with_all(vms("web", 1..=3));
    let mut film = Film::new(snapshot);
    film.boot();
    assert_eq!(
        condition(&film.step(), types::CONFIG_READY),
        "True/ConfigFound"
    );

    film.snapshot.config = Config::Missing;
    let missing = film.step();
    assert_eq!(deeds(&missing), "-");
    assert_eq!(
        condition(&missing, types::CONFIG_READY),
        "False/ConfigNotFound"
    );
    assert_eq!(condition(&missing, types::PROGRESSING), "True/Settled");
    assert_eq!(told(&missing), [reasons::CONFIG_NOT_FOUND]);
    assert_eq!(told(&film.step()), Vec::<&str>::new());

    film.scale(5);
    assert_eq!(deeds(&film.step()), "create 4 5");

    film.snapshot.config = Config::Ready;
    film.retarget("other");
    let back = film.step();
    assert_eq!(deeds(&back), "-");
    assert_eq!(told(&back), [reasons::CONFIG_FOUND]);
    assert_eq!(back.status.updated_replicas, 0);
    assert_eq!(
        back.status.target_revision.as_deref(),
        Some("desktop-other")
    );
}

#[test]
fn without_a_revision_nothing_is_created_and_the_reason_is_said() {
    let pinned = |config: Config| {
        let mut snapshot = without_target(pool("web"));
        snapshot.pool.spec.config.revision = Some("desktop-gone".to_owned());
        snapshot.config = config;
        snapshot
    };
    let unpinned = |config: Config| {
        let mut snapshot = without_target(pool("web"));
        snapshot.config = config;
        snapshot
    };
    let refused = || Config::Refused("spec.template: no".to_owned());
    let cases = [
        (unpinned(Config::Missing), "False/ConfigNotFound"),
        (unpinned(refused()), "False/ConfigRefused"),
        (unpinned(Config::Pending), "Unknown/RevisionPending"),
        (unpinned(Config::Ready), "Unknown/RevisionPending"),
        (pinned(Config::Missing), "False/ConfigNotFound"),
        (pinned(Config::Ready), "False/RevisionNotFound"),
        (pinned(refused()), "False/RevisionNotFound"),
        (pinned(Config::Pending), "Unknown/RevisionPending"),
    ];
    for (snapshot, config_ready) in cases {
        let empty = snapshot.replicas(3);
        let none = plan(&empty, at(0));
        assert_eq!(deeds(&none), "-", "{config_ready}");
        assert_eq!(condition(&none, types::CONFIG_READY), config_ready);
        // What passes by itself is progress and no news.
        let progressing = config_ready.replace("Unknown", "True");
        assert_eq!(condition(&none, types::PROGRESSING), progressing);
        assert_eq!(
            none.events.len(),
            usize::from(config_ready.starts_with("False"))
        );
        // Removing needs no config.
        let one_too_many = empty.replicas(0).with(vm("web-1"));
        assert_eq!(deeds(&plan(&one_too_many, at(0))), "delete web-1");
    }
}

#[test]
fn with_a_revision_every_state_of_the_config_goes_on_but_one_that_passes() {
    let refused = Config::Refused("no".to_owned());
    let cases = [
        (Config::Missing, None, "False/ConfigNotFound"),
        (refused.clone(), None, "False/ConfigRefused"),
        (Config::Ready, None, "True/ConfigFound"),
        (Config::Missing, Some("desktop-new"), "False/ConfigNotFound"),
        (refused, Some("desktop-new"), "True/ConfigFound"),
        (Config::Pending, Some("desktop-new"), "True/ConfigFound"),
        (Config::Ready, Some("desktop-new"), "True/ConfigFound"),
    ];
    for (config, pin, config_ready) in cases {
        let mut snapshot = pool("web").replicas(1);
        snapshot.config = config;
        snapshot.pool.spec.config.revision = pin.map(str::to_owned);
        let plan = plan(&snapshot, at(0));
        assert_eq!(deeds(&plan), "create 1", "{config_ready}");
        assert_eq!(condition(&plan, types::CONFIG_READY), config_ready);
        assert_eq!(condition(&plan, types::PROGRESSING), "True/ScalingOut");
    }
    // The newest spec's revision comes within moments: a VM made before would keep the old one.
    let mut snapshot = pool("web").replicas(1);
    snapshot.config = Config::Pending;
    let plan = plan(&snapshot, at(0));
    assert_eq!(deeds(&plan), "-");
    assert_eq!(
        condition(&plan, types::CONFIG_READY),
        "Unknown/RevisionPending"
    );
}

#[test]
fn nothing_is_done_without_kubevirt_and_it_goes_on_when_it_comes() {
    let mut film = Film::new(pool("web").replicas(2));
    film.snapshot.kubevirt_installed = false;
    let absent = film.step();
    assert_eq!(deeds(&absent), "-");
    assert_eq!(
        condition(&absent, types::CONFIG_READY),
        "False/KubeVirtNotInstalled"
    );
    assert_eq!(
        condition(&absent, types::PROGRESSING),
        "False/KubeVirtNotInstalled"
    );
    assert_eq!(told(&absent), [reasons::KUBEVIRT_ABSENT]);
    film.snapshot.kubevirt_installed = true;
    let there = film.step();
    assert_eq!(deeds(&there), "create 1 2");
    assert_eq!(told(&there), [reasons::CONFIG_FOUND]);
}

#[test]
fn disks_need_cdi_and_vms_without_disks_do_not() {
    let mut snapshot = pool("web").replicas(2);
    snapshot.cdi_installed = false;
    assert_eq!(deeds(&plan(&snapshot, at(0))), "create 1 2");
    let snapshot = with_disks(snapshot);
    let absent = plan(&snapshot, at(0));
    assert_eq!(deeds(&absent), "-");
    assert_eq!(
        condition(&absent, types::CONFIG_READY),
        "False/CDINotInstalled"
    );
    assert_eq!(
        condition(&absent, types::PROGRESSING),
        "False/CDINotInstalled"
    );
    let too_many = snapshot.replicas(0).with(vm("web-1"));
    assert_eq!(deeds(&plan(&too_many, at(0))), "delete web-1");
}

#[test]
fn the_way_of_a_pool_to_rest() {
    let snapshot = pool("web").replicas(2).base(BasePolicy::HighestOrdinal);
    Film::new(snapshot).play(&[
        ("a new pool", |_| {}, "create 1 2", "0/2 True/ScalingOut"),
        ("they start", |_| {}, "-", "2/2 True/WaitingForMembers"),
        ("they boot", Film::boot, "-", "2/2 True/Settled"),
        (
            "one is wanted",
            |film| film.scale(1),
            "delete web-2",
            "2/1 True/ScalingIn",
        ),
        ("it is going away", |_| {}, "-", "1/1 True/ScalingIn"),
        ("it is gone", Film::gone, "-", "1/1 True/Settled"),
    ]);
}

#[test]
fn a_pool_of_halted_vms_and_one_of_none_are_available_and_settled() {
    let halted = pool("web")
        .replicas(2)
        .with(vm("web-1").halted())
        .with(vm("web-2").halted());
    for snapshot in [halted, pool("web")] {
        let plan = plan(&snapshot, at(0));
        assert_eq!(condition(&plan, types::AVAILABLE), "True/MembersAvailable");
        assert_eq!(condition(&plan, types::PROGRESSING), "True/Settled");
        assert_eq!(plan.wake_at, None);
    }
}

#[test]
fn transition_times_stay_while_the_status_does() {
    let mut film = Film::new(pool("web").replicas(1));
    film.step();
    film.wait(60);
    film.boot();
    let booted = film.step();
    let since = |plan: &Plan, kind: &str| {
        let found = plan.status.conditions.iter().find(|c| c.type_ == kind);
        found.unwrap().last_transition_time.0
    };
    assert_eq!(since(&booted, types::AVAILABLE), at(60));
    assert_eq!(since(&booted, types::PROGRESSING), at(0));
    for condition in &booted.status.conditions {
        assert_eq!(
            condition.observed_generation,
            Some(1),
            "{}",
            condition.type_
        );
    }
}

#[test]
fn a_condition_that_nobody_knows_any_more_is_dropped_and_the_order_is_fixed() {
    let mut snapshot =
        pool("web")
            .replicas(2)
            .paused()
            .failed_for(Kind::Create, reasons::QUOTA, at(9));
    let first = plan(&snapshot, at(0));
    snapshot.pool.status = first.status.clone();
    snapshot.pool.status.conditions.reverse();
    snapshot.pool.status.conditions[0].type_ = "Obsolete".to_owned();
    let second = plan(&snapshot, at(0));
    let kinds: Vec<&str> = second
        .status
        .conditions
        .iter()
        .map(|condition| condition.type_.as_str())
        .collect();
    assert_eq!(
        kinds,
        [
            "Available",
            "Progressing",
            "ReplicaFailure",
            "Paused",
            "ConfigReady"
        ]
    );
}
