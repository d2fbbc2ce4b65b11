//! Members that follow another revision: who, when, and within what.

use serde_json::json;

use super::super::*;
use super::builders::{Vm, at, condition, deeds, pool, told, vm, vms};
use super::film::Film;
use crate::api::conditions::types;
use crate::api::pool::VirtualMachineMetadata;

/// Running members of the old revision.
pub(super) fn old(numbers: impl IntoIterator<Item = u32>) -> Vec<Vm> {
    let all = vms("web", numbers).into_iter();
    all.map(|vm| vm.ready().at("old")).collect()
}

/// So many of them, one at a time by their numbers.
pub(super) fn web(count: u32) -> Snapshot {
    let policy = json!({"proactive": {"selectionPolicy": {"basePolicy": "LowestOrdinal"}}});
    pool("web")
        .replicas(i32::try_from(count).unwrap())
        .max_unavailable(1)
        .updates(policy)
        .with_all(old(1..=count))
}

pub(super) fn two() -> Vm {
    vm("web-2").at("old")
}

/// Down, as a watch would show it: meant to run and not Ready.
pub(super) fn down(film: &Film) -> usize {
    let up = |member: &&Member| member.vmi.as_ref().is_some_and(VmiView::is_ready);
    film.snapshot.members.len() - film.snapshot.members.iter().filter(up).count()
}

#[test]
fn m89_one_by_one_written_compared_restarted_and_ready_before_the_next() {
    let film = Film::new(web(3)).play(&[
        (
            "a new revision",
            |_| {},
            "update web-1",
            "3/3 True/RollingOut",
        ),
        ("not compared yet", |_| {}, "-", "3/3 True/RollingOut"),
        (
            "compared",
            |f| f.compared(true),
            "restart web-1",
            "3/3 True/RollingOut",
        ),
        ("on its way", |_| {}, "-", "3/3 True/RollingOut"),
        (
            "ready",
            Film::restarts,
            "update web-2",
            "3/3 True/RollingOut",
        ),
        (
            "compared",
            |f| f.compared(true),
            "restart web-2",
            "3/3 True/RollingOut",
        ),
        (
            "ready",
            Film::restarts,
            "update web-3",
            "3/3 True/RollingOut",
        ),
        (
            "compared",
            |f| f.compared(true),
            "restart web-3",
            "3/3 True/RollingOut",
        ),
        ("ready", Film::restarts, "-", "3/3 True/Settled"),
    ]);
    assert_eq!(film.restarted, ["web-1", "web-2", "web-3"]);
    let mut later = film.clone();
    later.wait(60);
    let rest = later.step();
    assert_eq!((rest.wake_at, rest.memory), (None, Memory::default()));
    assert_eq!(
        (rest.status.updated_replicas, rest.status.current_replicas),
        (3, 3)
    );
}

#[test]
fn ro_01_the_default_is_a_quarter_and_never_more_are_down() {
    let mut snapshot = web(10);
    snapshot.pool.spec.max_unavailable = None;
    snapshot.pool.spec.update_strategy = None;
    let mut film = Film::new(snapshot);
    let mut most = 0;
    for step in 0..60 {
        film.step();
        film.compared(true);
        film.step();
        most = most.max(down(&film));
        if step % 2 == 0 {
            film.restarts();
        }
    }
    assert_eq!(most, 2);
    assert_eq!(film.restarted.len(), 10);
    assert_eq!(condition(&film.step(), types::PROGRESSING), "True/Settled");
}

#[test]
fn m38_exactly_one_of_four_at_a_quarter_and_m39_none_where_one_is_down() {
    let mut snapshot = web(4);
    snapshot.pool.spec.max_unavailable = None;
    assert_eq!(deeds(&plan(&snapshot, at(0))), "update web-1");
    let mut one_down = web(0).replicas(4).with_all(old(1..=3));
    one_down = one_down.with(vm("web-4").at("new"));
    let plan = plan(&one_down, at(0));
    assert_eq!(deeds(&plan), "-");
    assert_eq!(condition(&plan, types::PROGRESSING), "True/RollingOut");
}

#[test]
fn ro_02_m116_halted_members_are_written_at_once_and_cost_nothing() {
    let mut film = Film::new(web(0).replicas(3).with_all(old(1..=2)).with(two_halted()));
    assert_eq!(deeds(&film.step()), "update web-3 web-1");
    for _ in 0..4 {
        film.compared(true);
        film.step();
        film.restarts();
        film.step();
    }
    let rest = film.step();
    assert_eq!(condition(&rest, types::PROGRESSING), "True/Settled");
    assert_eq!(film.restarted, ["web-1", "web-2"]);
    assert_eq!(rest.status.halted_replicas, 1);
    assert_eq!(
        (rest.status.updated_replicas, rest.status.current_replicas),
        (3, 3)
    );
}

fn two_halted() -> Vm {
    vm("web-3").at("old").halted()
}

#[test]
fn ro_07_what_kubevirt_applies_live_restarts_nobody_and_is_refunded() {
    let film = Film::new(web(3)).play(&[
        (
            "a new revision",
            |_| {},
            "update web-1",
            "3/3 True/RollingOut",
        ),
        (
            "applied live",
            |f| f.compared(false),
            "update web-2",
            "3/3 True/RollingOut",
        ),
        (
            "applied live",
            |f| f.compared(false),
            "update web-3",
            "3/3 True/RollingOut",
        ),
        (
            "applied live",
            |f| f.compared(false),
            "-",
            "3/3 True/Settled",
        ),
    ]);
    assert!(film.restarted.is_empty());
    let status = film.clone().step().status;
    assert_eq!((status.updated_replicas, status.current_replicas), (3, 3));
}

#[test]
fn m77_other_labels_of_the_template_restart_though_kubevirt_does_not_ask_for_it() {
    let mut film = Film::new(web(1));
    let target = film.snapshot.target.as_mut().unwrap();
    target.relabelled_since.insert("desktop-old".to_owned());
    film.play(&[
        (
            "a new revision",
            |_| {},
            "update web-1",
            "1/1 True/RollingOut",
        ),
        (
            "compared",
            |f| f.compared(false),
            "restart web-1",
            "1/1 True/RollingOut",
        ),
        ("ready", Film::restarts, "-", "1/1 True/Settled"),
    ]);
}

#[test]
fn m18_unmanaged_changes_nobody_and_is_at_rest() {
    let plan = plan(&web(3).updates(json!({"unmanaged": {}})), at(0));
    assert_eq!(deeds(&plan), "-");
    assert_eq!(condition(&plan, types::PROGRESSING), "True/Settled");
    assert_eq!((plan.status.updated_replicas, plan.wake_at), (0, None));
}

#[test]
fn m19_m76_opportunistic_writes_everybody_and_restarts_nobody() {
    let snapshot = web(4)
        .updates(json!({"opportunistic": {}}))
        .with(two_halted().with("/metadata/name", json!("web-5")))
        .replicas(5);
    let mut film = Film::new(snapshot);
    let first = film.step();
    assert_eq!(deeds(&first), "update web-1 web-2 web-3 web-4 web-5");
    let keeps = |action: &Action| {
        matches!(
            action,
            Action::Update {
                keeps_run_strategy: true,
                ..
            }
        )
    };
    assert!(first.actions.iter().all(keeps));
    film.compared(true);
    let rest = film.step();
    assert_eq!(deeds(&rest), "-");
    assert_eq!(condition(&rest, types::PROGRESSING), "True/Settled");
    assert_eq!(
        (rest.status.updated_replicas, rest.status.current_replicas),
        (5, 1)
    );
}

#[test]
fn m40_after_a_failed_restart_others_come_first() {
    let due = |name| {
        vm(name)
            .ready()
            .written("new")
            .generation(2, 2)
            .restart_required()
    };
    let mut snapshot = web(0).replicas(2).with(due("web-1")).with(due("web-2"));
    snapshot.failed_updates = BTreeSet::from(["web-1".to_owned()]);
    assert_eq!(deeds(&plan(&snapshot, at(0))), "restart web-2");
    let held = snapshot.failed(Kind::Restart, at(5));
    let held = plan(&held, at(0));
    assert_eq!(deeds(&held), "-");
    assert_eq!(held.wake_at, Some(at(5)));
    assert_eq!(
        condition(&held, types::REPLICA_FAILURE),
        "True/FailedRestart"
    );
}

#[test]
fn what_is_held_back_by_a_failure_takes_no_budget_and_nobody_is_written_whom_nobody_could_restart()
{
    let again = due("web-1").ready();
    let mut snapshot = web(0).replicas(2).with(again).with(two().ready());
    snapshot.failed_updates = BTreeSet::from(["web-1".to_owned()]);
    assert_eq!(deeds(&plan(&snapshot, at(0))), "update web-2");
    let held = snapshot.clone().failed(Kind::Update, at(5));
    assert_eq!(deeds(&plan(&held, at(0))), "restart web-1");
    let held = plan(&snapshot.clone().failed(Kind::Restart, at(5)), at(0));
    assert_eq!((deeds(&held).as_str(), held.wake_at), ("-", Some(at(5))));
    let both = snapshot
        .failed(Kind::Restart, at(5))
        .failed(Kind::Update, at(9));
    let both = plan(&both, at(0));
    assert_eq!((deeds(&both).as_str(), both.wake_at), ("-", Some(at(5))));
}

/// Written, compared, and to be restarted.
fn due(name: &str) -> Vm {
    let vm = vm(name).written("new").generation(2, 2);
    vm.restart_required()
}

#[test]
fn a_revision_that_comes_in_the_middle_of_a_restart_takes_down_nobody_else() {
    let asked = json!([{"action": "Stop", "uid": "vmi-uid-web-1"}]);
    for (what, vm, expected, target) in [
        ("answered", due("web-1").ready(), true, "third"),
        (
            "asked for",
            due("web-1")
                .ready()
                .with("/status/stateChangeRequests", asked.clone()),
            false,
            "third",
        ),
        (
            "by its user",
            vm("web-1")
                .ready()
                .at("new")
                .with("/status/stateChangeRequests", asked),
            false,
            "new",
        ),
    ] {
        let mut film = Film::new(web(0).replicas(2).with(vm).with(two().ready()));
        if expected {
            let restarts = &mut film.snapshot.expected_restarts;
            restarts.insert("vmi-uid-web-1".to_owned());
        }
        film.retarget(target);
        assert_eq!(deeds(&film.step()), "-", "{what}");
    }
}

#[test]
fn members_that_are_not_ready_for_a_moment_are_restarted_within_the_budget_only() {
    let blip = web(0)
        .replicas(3)
        .with_all(["web-1", "web-2", "web-3"].map(due));
    assert_eq!(deeds(&plan(&blip, at(0))), "-");
    let ready = |name| due(name).ready();
    let one = web(0)
        .replicas(3)
        .with(ready("web-1"))
        .with(due("web-2"))
        .with(ready("web-3"));
    assert_eq!(deeds(&plan(&one, at(0))), "restart web-2");
    // After the deadline they don't become ready by themselves.
    let first = plan(&blip, at(0));
    assert_eq!(
        deeds(&plan(&blip.after(&first), at(600))),
        "restart web-1 web-2 web-3"
    );
}

#[test]
fn a_member_that_can_not_be_restarted_holds_up_nobody() {
    let mut snapshot = web(0)
        .replicas(2)
        .with(due("web-1").ready())
        .with(two().ready());
    assert_eq!(deeds(&plan(&snapshot, at(0))), "restart web-1");
    snapshot.failed_updates = BTreeSet::from(["web-1".to_owned()]);
    assert_eq!(deeds(&plan(&snapshot, at(0))), "update web-2");
}

#[test]
fn m75_m118_what_reaches_no_instance_is_written_to_all_at_once() {
    let mut snapshot = web(5);
    let labels = BTreeMap::from([("team".to_owned(), "a".to_owned())]);
    let target = snapshot.target.as_mut().unwrap();
    target.content_hash = "old".to_owned();
    target.revision = "desktop-old".to_owned();
    target.inputs.virtual_machine_metadata.labels = labels.clone();
    target.stamp_hash = crate::stamp::stamp_hash("old", &target.inputs);
    snapshot.pool.spec.virtual_machine_metadata = Some(VirtualMachineMetadata {
        labels,
        annotations: BTreeMap::new(),
    });
    let mut film = Film::new(snapshot);
    assert_eq!(deeds(&film.step()), "update web-1 web-2 web-3 web-4 web-5");
    film.compared(false);
    let rest = film.step();
    assert_eq!(condition(&rest, types::PROGRESSING), "True/Settled");
    assert!(film.restarted.is_empty());
}

#[test]
fn m115_a_stale_cache_restarts_once_in_ten_passes() {
    let due = vm("web-1")
        .ready()
        .written("new")
        .generation(2, 2)
        .restart_required();
    let mut snapshot = web(0).replicas(3).with(due).with_all(old(2..=3));
    assert_eq!(deeds(&plan(&snapshot, at(0))), "restart web-1");
    let vmi = snapshot.members[0].vmi.as_ref().unwrap().uid.clone();
    snapshot.expected_restarts = BTreeSet::from([vmi]);
    for pass in 0..10 {
        let plan = plan(&snapshot, at(pass));
        assert_eq!(deeds(&plan), "-", "pass {pass}");
        snapshot = snapshot.after(&plan);
    }
    // A write that the cache doesn't show counts too.
    let mut written = web(3);
    written.expected_updates = BTreeSet::from(["uid-web-1".to_owned()]);
    assert_eq!(deeds(&plan(&written, at(0))), "-");
}

#[test]
fn m129_there_and_back_restarts_nothing_and_a_third_revision_goes_straight() {
    let mut film = Film::new(web(3));
    assert_eq!(deeds(&film.step()), "update web-1");
    film.retarget("old");
    assert_eq!(deeds(&film.step()), "update web-1", "written back");
    film.compared(true);
    let rest = film.step();
    assert_eq!(condition(&rest, types::PROGRESSING), "True/Settled");
    assert!(film.restarted.is_empty());

    let mut film = Film::new(web(2));
    film.step();
    film.compared(true);
    film.step();
    film.retarget("third");
    film.restarts();
    assert_eq!(deeds(&film.step()), "update web-1", "from the second");
    film.compared(true);
    film.step();
    film.restarts();
    assert_eq!(
        deeds(&film.step()),
        "update web-2",
        "straight from the first"
    );
    film.compared(true);
    film.step();
    film.restarts();
    assert_eq!(condition(&film.step(), types::PROGRESSING), "True/Settled");
    assert_eq!(film.restarted, ["web-1", "web-1", "web-2"]);
}

#[test]
fn strategies_that_come_later_update_nobody_and_say_so() {
    for strategy in [
        json!({"proactive": {"partition": 1}}),
        json!({"proactive": {"onDiskTemplateChange": "Reprovision"}}),
        json!({"proactive": {"selectionPolicy": {"orderedPolicies": [{"state": "Ready"}]}}}),
    ] {
        let plan = plan(&web(2).updates(strategy.clone()), at(0));
        assert_eq!(deeds(&plan), "-", "{strategy}");
        assert_eq!(
            condition(&plan, types::UPDATE_BLOCKED),
            "True/NotSupported",
            "{strategy}"
        );
    }
    let none = web(2).updates(json!({"proactive": {"partition": "0%"}}));
    assert_eq!(deeds(&plan(&none, at(0))), "update web-1");
}

#[test]
fn ro_18_a_rollout_that_does_not_move_says_so_until_it_does() {
    let mut snapshot = web(2);
    snapshot.pool.spec.progress_deadline_seconds = Some(60);
    let mut film = Film::new(snapshot);
    film.step();
    film.compared(true);
    film.step();
    let waiting = film.step();
    assert_eq!(condition(&waiting, types::PROGRESSING), "True/RollingOut");
    assert_eq!(waiting.wake_at, Some(at(60)));
    film.wait(60);
    let stalled = film.step();
    assert_eq!(
        condition(&stalled, types::PROGRESSING),
        "False/ProgressDeadlineExceeded"
    );
    assert_eq!(told(&stalled), ["ProgressDeadlineExceeded"]);
    // A new leader knows it from the status.
    film.snapshot.memory = Memory::default();
    let again = film.step();
    assert_eq!(
        condition(&again, types::PROGRESSING),
        "False/ProgressDeadlineExceeded"
    );
    assert!(told(&again).is_empty());
    film.restarts();
    assert_eq!(
        condition(&film.step(), types::PROGRESSING),
        "True/RollingOut"
    );
}

#[test]
fn paused_pools_and_configs_that_are_not_ready_change_nobody() {
    let paused = plan(&web(2).paused(), at(0));
    assert_eq!(deeds(&paused), "-");
    assert_eq!(condition(&paused, types::PROGRESSING), "Unknown/Paused");
    assert_eq!(paused.wake_at, None);
    for config in [
        Config::Missing,
        Config::Pending,
        Config::Refused("no".to_owned()),
    ] {
        let mut snapshot = web(2);
        snapshot.config = config.clone();
        assert_eq!(deeds(&plan(&snapshot, at(0))), "-", "{config:?}");
        snapshot.pool.spec.config.revision = Some("desktop-new".to_owned());
        assert_eq!(
            deeds(&plan(&snapshot, at(0))),
            "update web-1",
            "pinned, {config:?}"
        );
    }
}

#[test]
fn ro_13_scaling_and_crashes_share_the_account() {
    // Two of ten are down, and three too many: nobody healthy is touched, and who goes is not updated.
    let crashed = |name| vm(name).at("new");
    let policy = crate::api::pool::BasePolicy::HighestOrdinal;
    let snapshot = web(10)
        .max_unavailable(2)
        .replicas(9)
        .base(policy)
        .with(crashed("web-11"))
        .with(crashed("web-12"));
    assert_eq!(
        deeds(&plan(&snapshot, at(0))),
        "delete web-12 web-11 web-10; update web-1 web-2"
    );
    let mut two_down = web(8).max_unavailable(2).replicas(10);
    two_down = two_down.with(crashed("web-9")).with(crashed("web-10"));
    assert_eq!(deeds(&plan(&two_down, at(0))), "-");
}
