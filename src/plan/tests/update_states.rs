//! What state a member is in, and what that means for its update.

use k8s_openapi::jiff::SignedDuration;
use serde_json::json;

use super::super::*;
use super::builders::{Vm, at, condition, deeds, mark, told, vm};
use super::film::Film;
use super::rollout::{two, web};
use crate::api::conditions::{reasons, types};
use crate::api::labels;

/// One of the old revision with something about it, beside one that is taken.
fn beside(other: Vm) -> String {
    let first = vm("web-1").ready().at("old");
    deeds(&plan(&web(0).replicas(2).with(first).with(other), at(0)))
}

#[test]
fn ro_03_ro_17_members_that_can_not_become_ready_come_first_and_cost_nothing() {
    let failing =
        json!({"startFailure": {"consecutiveFailCount": 1}, "printableStatus": "CrashLoopBackOff"});
    for (what, vm) in [
        ("crash loop", two().without_instance().with("/status", failing)),
        ("no image", two().phase("Scheduling").with("/status/printableStatus", json!("ErrImagePull"))),
        ("no room", two().phase("Scheduling").with_vmi("/status/conditions", json!([
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"},
        ]))),
        ("not ready for ten minutes", two().with_vmi("/status/conditions", json!([
            {"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T11:50:00Z"},
        ]))),
    ] {
        // The budget is spent on it, and web-1 has to wait.
        assert_eq!(beside(vm), "update web-2", "{what}");
    }
    // Written, and its instance never got to run: nothing to lose, and nothing to wait for.
    let stuck = vm("web-2").written("new").phase("Scheduling");
    assert_eq!(beside(stuck), "restart web-2");
    let ended = vm("web-2").written("new").phase("Failed");
    assert_eq!(
        beside(ended),
        "-",
        "KubeVirt starts the next one from the new object"
    );
}

#[test]
fn who_is_just_starting_is_left_to_become_ready_until_the_deadline() {
    let starting = two().with_vmi(
        "/status/conditions",
        json!([
            {"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T11:59:00Z"},
        ]),
    );
    let snapshot = web(0).replicas(1).with(starting);
    let first = plan(&snapshot, at(0));
    assert_eq!(deeds(&first), "-");
    assert_eq!(first.wake_at, Some(at(540)));
    assert_eq!(
        deeds(&plan(&snapshot.clone().after(&first), at(540))),
        "update web-2"
    );
    // Without a time it is counted from when it was first seen.
    let silent = web(0).replicas(1).with(two().without_instance());
    let first = plan(&silent, at(0));
    assert_eq!(first.wake_at, Some(at(600)));
    let silent = silent.after(&first);
    assert_eq!(deeds(&plan(&silent, at(599))), "-");
    assert_eq!(deeds(&plan(&silent, at(600))), "update web-2");
}

#[test]
fn m04_a_member_whose_stamp_is_the_targets_is_left_alone_whatever_its_users_need() {
    let mine = vm("web-2").at("new").ready().restart_required();
    assert_eq!(deeds(&plan(&web(0).replicas(1).with(mine), at(0))), "-");
}

#[test]
fn m114_the_vms_own_ready_lags_and_does_not_count() {
    let lagging =
        |name| {
            vm(name).ready().at("old").with("/status/conditions", json!([
        {"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T11:00:00Z"},
    ]))
        };
    let snapshot = web(0)
        .replicas(2)
        .with(lagging("web-1"))
        .with(lagging("web-2"));
    assert_eq!(deeds(&plan(&snapshot, at(0))), "update web-1");
}

#[test]
fn m119_who_is_busy_paused_or_lost_is_deferred_and_that_is_no_failure() {
    let ready = || two().ready();
    for (what, vm) in [
        (
            "snapshot",
            ready().with("/status/snapshotInProgress", json!("s")),
        ),
        (
            "restore",
            ready().with("/status/restoreInProgress", json!("r")),
        ),
        (
            "plugging",
            ready().with("/status/volumeRequests", json!([{}])),
        ),
        (
            "migration",
            ready().with_vmi("/status/migrationState", json!({"startTimestamp": "x"})),
        ),
        (
            "drain",
            ready().with_vmi("/status/evacuationNodeName", json!("n")),
        ),
        (
            "paused",
            ready().with_vmi(
                "/status/conditions",
                json!([{"type": "Paused", "status": "True"}]),
            ),
        ),
        ("lost node", ready().phase("Unknown")),
        (
            "halted in a snapshot",
            ready()
                .halted()
                .with("/status/snapshotInProgress", json!("s")),
        ),
    ] {
        let snapshot = web(0).replicas(1).with(vm);
        let plan = plan(&snapshot, at(0));
        assert_eq!(deeds(&plan), "-", "{what}");
        assert_eq!(
            condition(&plan, types::PROGRESSING),
            "True/RollingOut",
            "{what}"
        );
        assert_eq!(condition(&plan, types::REPLICA_FAILURE), "absent", "{what}");
        let message = &plan.status.conditions[1].message;
        assert!(message.contains("waiting for web-2 ("), "{what}: {message}");
    }
}

#[test]
fn ro_12_protected_members_are_left_said_and_block() {
    let mut film = Film::new(
        web(1)
            .replicas(2)
            .with(two().ready().protected("scale-in, update")),
    );
    let first = film.step();
    assert_eq!(deeds(&first), "update web-1");
    assert_eq!(
        condition(&first, types::UPDATE_BLOCKED),
        "True/TooFewCandidates"
    );
    assert_eq!(told(&first), ["TooFewCandidates"]);
    film.compared(false);
    let rest = film.step();
    assert_eq!(
        condition(&rest, types::PROGRESSING),
        "False/TooFewCandidates"
    );
    assert!(told(&rest).is_empty());
    assert_eq!((rest.status.updated_replicas, rest.wake_at), (1, None));
}

#[test]
fn a_restored_member_is_written_again() {
    let annotation = "/metadata/annotations/restore.kubevirt.io~1lastRestoreUID";
    let restored = vm("web-1").ready().at("new").with(annotation, json!("r-1"));
    let mut film = Film::new(web(0).replicas(1).with(restored));
    assert_eq!(deeds(&film.step()), "update web-1");
    film.compared(false);
    assert_eq!(deeds(&film.step()), "-");
}

#[test]
fn once_is_restarted_by_deleting_its_instance_and_others_are_not() {
    for (strategy, deletes) in [
        ("Once", true),
        ("Always", false),
        ("Manual", false),
        ("RerunOnFailure", false),
    ] {
        let due = vm("web-1")
            .ready()
            .written("new")
            .generation(2, 2)
            .restart_required();
        let plan = plan(&web(0).replicas(1).with(due.run_strategy(strategy)), at(0));
        assert!(
            matches!(plan.actions[..], [Action::Restart { by_delete, .. }] if by_delete == deletes),
            "{strategy}: {:?}",
            plan.actions
        );
    }
}

#[test]
fn kept_disks_are_reported_as_long_as_they_are_others() {
    let keeps = |of: &str| {
        let vm = vm("web-1").ready().at("new");
        vm.with("/metadata/annotations/vmpool.dev~1disks-of", json!(of))
    };
    let first = plan(&web(0).replicas(1).with(keeps("disks-old")), at(0));
    assert_eq!(condition(&first, types::DISKS_OUTDATED), "True/DisksKept");
    assert_eq!(condition(&first, types::PROGRESSING), "True/Settled");
    let same = plan(&web(0).replicas(1).with(keeps("disks-new")), at(0));
    assert_eq!(condition(&same, types::DISKS_OUTDATED), "absent");
}

/// A member's instance is started from the old revision again, as its template was put back meanwhile.
fn put_back(film: &mut Film) {
    film.restarts();
    let member = film.member("web-1");
    member.vm.restart_required = true;
    let vmi = member.vmi.as_mut().unwrap();
    vmi.stamp_hash = Some(mark("old").hash);
    vmi.revision = Some("desktop-old".to_owned());
}

#[test]
fn a_member_whose_template_was_put_back_is_written_again() {
    let label = "/spec/template/metadata/labels/vmpool.dev~1revision";
    let of = |revision: &str| vm("web-1").ready().at("new").with(label, json!(revision));
    let put_back = web(0).replicas(1).with(of("desktop-old"));
    assert_eq!(deeds(&plan(&put_back, at(0))), "update web-1");
    let as_written = web(0).replicas(1).with(of("desktop-new"));
    assert_eq!(deeds(&plan(&as_written, at(0))), "-");
}

#[test]
fn a_member_that_something_puts_back_is_written_once_a_minute() {
    for strategy in [json!({"proactive": {}}), json!({"opportunistic": {}})] {
        let mut film = Film::new(web(1).updates(strategy));
        assert_eq!(deeds(&film.step()), "update web-1");
        film.compared(false);
        assert_eq!(deeds(&film.step()), "-");
        film.wait(20);
        for _ in 0..3 {
            let old = "desktop-old".to_owned();
            let vm = &mut film.member("web-1").vm;
            vm.template_labels.insert(labels::REVISION.to_owned(), old);
            let held = film.step();
            assert_eq!(deeds(&held), "-");
            let message = &held.status.conditions[1].message;
            assert!(message.contains("something has put it back"), "{message}");
            film.now = held.wake_at.unwrap();
            assert_eq!(deeds(&film.step()), "update web-1");
            // Refused: tried again at once, as far as it is up to this.
            assert_eq!(deeds(&film.step()), "update web-1");
            let vm = &mut film.member("web-1").vm;
            vm.template_labels.clear();
            assert_eq!(deeds(&film.step()), "-");
        }
    }
}

#[test]
fn restarts_of_one_member_for_one_revision_wait_longer_each_time_and_are_told() {
    let due = vm("web-1").ready().written("new").generation(2, 2);
    let mut film = Film::new(web(0).replicas(1).with(due.restart_required()));
    assert_eq!(deeds(&film.step()), "restart web-1");
    for wait in [60, 120, 240, 480, 960, 1920, 3600, 3600] {
        put_back(&mut film);
        let held = film.step();
        assert_eq!(deeds(&held), "-", "before {wait} s");
        let until = film.now + SignedDuration::from_secs(wait);
        assert!(held.wake_at.is_some_and(|at| at <= until));
        assert!(!told(&held).contains(&reasons::RESTARTED_AGAIN));
        let message = &held.status.conditions[1].message;
        assert!(message.contains("put its template back"), "{message}");
        film.wait(wait - 1);
        assert_eq!(deeds(&film.step()), "-", "before {wait} s");
        film.wait(1);
        let again = film.step();
        assert_eq!(deeds(&again), "restart web-1", "after {wait} s");
        assert!(told(&again).contains(&reasons::RESTARTED_AGAIN));
    }
    // Another revision begins anew.
    put_back(&mut film);
    film.retarget("third");
    assert_eq!(deeds(&film.step()), "update web-1");
    film.compared(true);
    assert_eq!(deeds(&film.step()), "restart web-1");
}

#[test]
fn a_restart_that_has_not_come_about_is_asked_for_again_without_a_wait() {
    let due = vm("web-1").ready().written("new").generation(2, 2);
    let snapshot = web(0).replicas(1).with(due.restart_required());
    let first = plan(&snapshot, at(0));
    assert_eq!(deeds(&first), "restart web-1");
    let second = plan(&snapshot.after(&first), at(1));
    assert_eq!(deeds(&second), "restart web-1");
    assert_eq!(told(&second), [""; 0]);
}

#[test]
fn an_instance_that_names_no_revision_is_not_restarted_while_it_starts() {
    let nameless = vm("web-1").written("new").phase("Scheduling");
    let nameless = nameless.with_vmi("/metadata/labels", json!({}));
    let snapshot = web(0).replicas(1).with(nameless.generation(2, 2));
    assert_eq!(deeds(&plan(&snapshot, at(0))), "-");
}

#[test]
fn a_restart_that_a_users_own_edit_needs_is_not_ours() {
    let edited = vm("web-1").ready().written("new").generation(2, 2);
    let mut snapshot = web(0).replicas(1).with(edited.restart_required());
    assert_eq!(deeds(&plan(&snapshot, at(0))), "restart web-1");
    let target = snapshot.target.as_mut().unwrap();
    target.alike.insert(mark("old").hash);
    assert_eq!(deeds(&plan(&snapshot, at(0))), "-");
    let target = snapshot.target.as_mut().unwrap();
    target.relabelled_since.insert("desktop-old".to_owned());
    assert_eq!(deeds(&plan(&snapshot, at(0))), "restart web-1");
}

/// Started from the target, and at it again after another revision in between; so many sockets in the VM and in
/// the instance.
fn returned(vm_sockets: i64, vmi_sockets: i64) -> Vm {
    let cpu = |sockets: i64| json!({"domain": {"cpu": {"sockets": sockets}}});
    vm("web-1")
        .ready()
        .generation(3, 3)
        .restart_required()
        .with("/spec/template/spec", cpu(vm_sockets))
        .with_vmi("/spec", cpu(vmi_sockets))
}

#[test]
fn what_was_plugged_for_a_revision_in_between_and_can_not_be_unplugged_is_restarted() {
    let mut snapshot = web(0).replicas(1);
    snapshot.target.as_mut().unwrap().live.sockets = Some(1);
    let plugged = snapshot.clone().with(returned(1, 2));
    let plan_of = |snapshot: &Snapshot| plan(snapshot, at(0));
    assert_eq!(deeds(&plan_of(&plugged)), "restart web-1");
    assert_eq!(
        condition(&plan_of(&plugged), types::PROGRESSING),
        "True/RollingOut"
    );
    // Its user's edits, of sockets or of anything else, are its user's to restart.
    for by_hand in [returned(2, 1), returned(2, 2), returned(1, 1)] {
        let snapshot = snapshot.clone().with(by_hand);
        assert_eq!(deeds(&plan_of(&snapshot)), "-");
    }
}

/// CPUs or memory are to be plugged into `vm`, which can be migrated or not.
fn plugging(vm: Vm, migratable: &str) -> Vm {
    vm.with_vmi(
        "/status/conditions",
        json!([
            {"type": "Ready", "status": "True"},
            {"type": "HotVCPUChange", "status": "True", "lastTransitionTime": null},
            {"type": "LiveMigratable", "status": migratable},
        ]),
    )
}

#[test]
fn who_is_being_plugged_is_waited_for_until_the_deadline_and_no_longer() {
    let mut snapshot = web(0).replicas(1).with(plugging(two().ready(), "True"));
    let first = plan(&snapshot, at(0));
    assert_eq!(deeds(&first), "-");
    let message = &first.status.conditions[1].message;
    assert!(message.contains("web-2 (CPUs or memory are being plugged)"));
    assert_eq!(first.wake_at, Some(at(600)));
    snapshot = snapshot.after(&first);
    assert_eq!(deeds(&plan(&snapshot, at(599))), "-");
    assert_eq!(deeds(&plan(&snapshot, at(600))), "update web-2");
}

#[test]
fn who_can_not_be_plugged_is_restarted_though_kubevirt_does_not_ask_for_it() {
    let outdated = plugging(two().ready(), "False");
    let snapshot = web(0).replicas(1).with(outdated);
    assert_eq!(deeds(&plan(&snapshot, at(0))), "update web-2");
    let written = vm("web-1").ready().written("new").generation(2, 2);
    let due = |migratable: &str| {
        let vm = plugging(written.clone(), migratable);
        deeds(&plan(&web(0).replicas(1).with(vm), at(0)))
    };
    assert_eq!(due("False"), "restart web-1");
    assert_eq!(due("True"), "-");
    // One that was started from the target is its user's, who plugged by hand.
    let by_hand = plugging(vm("web-1").ready(), "False");
    let snapshot = web(0).replicas(1).with(by_hand);
    assert_eq!(deeds(&plan(&snapshot, at(0))), "-");
}

#[test]
fn nr_06_who_would_get_somebody_elses_disk_is_not_written_and_others_are() {
    let taken = || vm("web-1").at("old").disk_taken("DataVolume web-1-data");
    for taken in [taken().ready(), taken().halted()] {
        let snapshot = web(0).replicas(2).with(taken);
        let snapshot = snapshot.with(vm("web-2").ready().at("old"));
        assert_eq!(deeds(&plan(&snapshot, at(0))), "update web-2");
    }
    let alone = plan(&web(0).replicas(1).with(taken().ready()), at(0));
    assert_eq!(deeds(&alone), "-");
    let progressing = alone.status.conditions.iter();
    let said = progressing
        .filter(|condition| condition.type_ == types::PROGRESSING)
        .any(|condition| {
            let why = "web-1 (DataVolume web-1-data exists already and is not its own)";
            condition.message.contains(why)
        });
    assert!(said, "{:?}", alone.status.conditions);
}

#[test]
fn while_a_disk_is_filling_nobody_else_is_taken_and_no_restart_asked_for() {
    let written = || vm("web-1").ready().written("new").generation(2, 2);
    let other = || vm("web-2").ready().at("old");
    let both = |first: Vm| web(0).replicas(2).with(first).with(other());
    // KubeVirt seems to have compared, and has not.
    let filling = written().restart_required().filling();
    assert_eq!(deeds(&plan(&both(filling), at(0))), "-");
    assert_eq!(deeds(&plan(&both(written().filling()), at(0))), "-");
    assert_eq!(deeds(&plan(&both(written()), at(0))), "update web-2");
    let due = written().restart_required();
    assert_eq!(deeds(&plan(&both(due), at(0))), "restart web-1");
}

#[test]
fn who_waits_for_a_disk_that_a_later_revision_makes_otherwise_holds_up_nobody() {
    let filling = |disks: &str| {
        let filling = vm("web-1").ready().written("new").filling();
        filling.with("/metadata/annotations/vmpool.dev~1disks-of", json!(disks))
    };
    let mut snapshot = web(0).replicas(2).with(vm("web-2").ready().at("old"));
    let current = snapshot.target.as_ref().unwrap().disks_hash.clone();
    let of_target = snapshot.clone().with(filling(&current));
    assert_eq!(deeds(&plan(&of_target, at(0))), "-");
    snapshot = snapshot.with(filling("of-another"));
    let plan = plan(&snapshot, at(0));
    assert_eq!(deeds(&plan), "update web-2");
}

#[test]
fn a_second_plug_before_the_first_is_done_is_brought_by_a_restart() {
    let cpu = |sockets: i64| json!({"domain": {"cpu": {"sockets": sockets}}});
    let plugged = |vm_sockets: i64, vm: Vm| {
        let vm = plugging(vm, "True").with("/spec/template/spec", cpu(vm_sockets));
        let vm = vm.with_vmi("/spec", cpu(2));
        let mut snapshot = web(0).replicas(1);
        snapshot.target.as_mut().unwrap().live.sockets = Some(vm_sockets);
        deeds(&plan(&snapshot.with(vm), at(0)))
    };
    let written = || vm("web-1").ready().written("new").generation(3, 3);
    // KubeVirt has taken it, and will plug it with a migration.
    assert_eq!(plugged(2, written()), "-");
    // It takes no other before that.
    assert_eq!(plugged(4, written()), "restart web-1");
    // Back to what it was started from.
    let back = vm("web-1").ready().generation(3, 3);
    assert_eq!(plugged(1, back), "restart web-1");
}
