//! Counts.

use serde_json::json;

use super::super::*;
use super::builders::{POOL_UID, Vm, at, pool, vm};

fn of(vm: Vm) -> VirtualMachinePoolStatus {
    plan(&pool("web").replicas(1).with(vm), at(0)).status
}

/// (ready, available, unavailable, halted)
fn counts(vm: Vm) -> (i32, i32, i32, i32) {
    let status = of(vm);
    assert_eq!(status.replicas, 1);
    assert_eq!(
        status.available_replicas + status.unavailable_replicas + status.halted_replicas,
        1
    );
    (
        status.ready_replicas,
        status.available_replicas,
        status.unavailable_replicas,
        status.halted_replicas,
    )
}

const AVAILABLE: (i32, i32, i32, i32) = (1, 1, 0, 0);
const UNAVAILABLE: (i32, i32, i32, i32) = (0, 0, 1, 0);
const HALTED: (i32, i32, i32, i32) = (0, 0, 0, 1);

#[test]
#[allow(clippy::too_many_lines, reason = "one table")]
fn each_member_is_available_unavailable_or_halted() {
    let web = || vm("web-1");
    let stopped = || web().without_instance();
    let cases = [
        ("ready", web().ready(), AVAILABLE),
        ("not ready", web(), UNAVAILABLE),
        ("scheduling", web().ready().phase("Scheduling"), UNAVAILABLE),
        (
            "of an unknown phase",
            web().ready().phase("WaitingForSync"),
            UNAVAILABLE,
        ),
        ("no instance yet", stopped(), UNAVAILABLE),
        ("failed", web().phase("Failed"), UNAVAILABLE),
        (
            "Always, shut down by its guest",
            web().phase("Succeeded"),
            UNAVAILABLE,
        ),
        ("halted", web().halted(), HALTED),
        (
            "halted, still stopping",
            web().run_strategy("Halted"),
            HALTED,
        ),
        (
            "Manual, never started",
            stopped().run_strategy("Manual"),
            HALTED,
        ),
        (
            "Manual, start requested",
            stopped().run_strategy("Manual").start_requested(),
            UNAVAILABLE,
        ),
        (
            "Manual, running",
            web().ready().run_strategy("Manual"),
            AVAILABLE,
        ),
        (
            "Manual, shut down",
            web().phase("Succeeded").run_strategy("Manual"),
            HALTED,
        ),
        (
            "Manual, failed",
            web().phase("Failed").run_strategy("Manual"),
            UNAVAILABLE,
        ),
        (
            "RerunOnFailure, stopped",
            stopped().run_strategy("RerunOnFailure"),
            HALTED,
        ),
        (
            "RerunOnFailure, which KubeVirt has not come to yet",
            stopped()
                .run_strategy("RerunOnFailure")
                .with("/status/runStrategy", json!("Halted")),
            UNAVAILABLE,
        ),
        (
            "RerunOnFailure, done",
            web().phase("Succeeded").run_strategy("RerunOnFailure"),
            HALTED,
        ),
        (
            "Once, not started yet",
            stopped().run_strategy("Once"),
            UNAVAILABLE,
        ),
        (
            "Once, done",
            web().phase("Succeeded").run_strategy("Once"),
            HALTED,
        ),
        (
            "Once, done and deleted to be started anew",
            web()
                .phase("Succeeded")
                .run_strategy("Once")
                .with_vmi("/metadata/deletionTimestamp", json!("2026-01-01T11:59:00Z")),
            UNAVAILABLE,
        ),
        (
            "Manual, restarted, and the cache of instances is behind",
            stopped()
                .run_strategy("Manual")
                .with("/status/printableStatus", json!("Starting")),
            UNAVAILABLE,
        ),
        (
            "Manual, stopped",
            stopped()
                .run_strategy("Manual")
                .with("/status/printableStatus", json!("Stopped")),
            HALTED,
        ),
        (
            "Once, failed",
            web().phase("Failed").run_strategy("Once"),
            UNAVAILABLE,
        ),
        (
            "a strategy of tomorrow",
            stopped().run_strategy("WaitAsReceiver"),
            UNAVAILABLE,
        ),
    ];
    for (what, vm, expected) in cases {
        assert_eq!(counts(vm), expected, "{what}");
    }
}

#[test]
fn members_going_away_count_nowhere() {
    let status = of(vm("web-1").ready().deleting());
    assert_eq!(status.replicas, 0);
    assert_eq!(status.ready_replicas, 0);
    assert_eq!(status.available_replicas, 0);
    assert_eq!(status.updated_replicas, 0);
}

#[test]
fn updated_is_the_object_and_current_the_instance_too() {
    let web = || vm("web-1").ready();
    let cases = [
        ("both", web(), (1, 1)),
        (
            "old object",
            web().stamped("old").started_from("old"),
            (0, 0),
        ),
        ("old instance", web().started_from("old"), (1, 0)),
        ("needs a restart", web().restart_required(), (1, 0)),
        ("no instance yet", web().without_instance(), (1, 0)),
        ("halted", web().halted(), (1, 1)),
        ("halted, old object", web().halted().stamped("old"), (0, 0)),
        (
            "new instance of an old object",
            web().stamped("old"),
            (0, 0),
        ),
    ];
    for (what, vm, expected) in cases {
        let status = of(vm);
        assert_eq!(
            (status.updated_replicas, status.current_replicas),
            expected,
            "{what}"
        );
    }
}

#[test]
fn a_mark_that_cannot_be_read_is_not_updated() {
    for text in ["", "{", "[]", r#"{"hash":7}"#] {
        let mut snapshot = pool("web").replicas(1).with(vm("web-1"));
        let annotations = &mut snapshot.members[0].vm.annotations;
        annotations.insert(annotations::STAMP.to_owned(), text.to_owned());
        assert_eq!(plan(&snapshot, at(0)).status.updated_replicas, 0, "{text}");
    }
}

#[test]
fn the_first_status_names_selector_revision_and_generation() {
    let mut snapshot = pool("web").replicas(3);
    snapshot.pool.generation = 4;
    let status = plan(&snapshot, at(0)).status;
    let selector = format!("vmpool.dev/pool-uid={POOL_UID}");
    assert_eq!(status.label_selector, Some(selector));
    assert_eq!(status.target_revision.as_deref(), Some("desktop-new"));
    assert_eq!(status.observed_generation, Some(4));
}

fn min_ready(seconds: i32) -> Snapshot {
    let mut snapshot = pool("web").replicas(1);
    snapshot.pool.spec.min_ready_seconds = Some(seconds);
    snapshot
}

#[test]
fn available_after_min_ready_seconds_on_time() {
    let snapshot = min_ready(60).with(vm("web-1").ready_since("2026-01-01T11:59:30Z"));
    let before = plan(&snapshot, at(29));
    assert_eq!(before.status.ready_replicas, 1);
    assert_eq!(before.status.available_replicas, 0);
    assert_eq!(before.status.unavailable_replicas, 1);
    assert_eq!(before.wake_at, Some(at(30)));
    let then = plan(&snapshot, at(30));
    assert_eq!(then.status.available_replicas, 1);
    assert_eq!(then.wake_at, None);
}

#[test]
fn a_missing_time_and_one_to_come_start_when_they_are_seen() {
    let missing = vm("web-1").ready_since("");
    let to_come = vm("web-1").ready_since("2026-01-02T00:00:00Z");
    for vm in [missing, to_come] {
        let snapshot = min_ready(60).with(vm);
        let first = plan(&snapshot, at(0));
        assert_eq!(first.status.available_replicas, 0);
        assert_eq!(first.wake_at, Some(at(60)));
        let second = plan(&snapshot.after(&first), at(60));
        assert_eq!(second.status.available_replicas, 1);
        assert_eq!(second.memory.ready_since, first.memory.ready_since);
    }
}

#[test]
fn who_loses_readiness_starts_again() {
    let snapshot = min_ready(60).with(vm("web-1").ready_since(""));
    let first = plan(&snapshot, at(0));
    let mut lost = snapshot.after(&first);
    lost.members[0] = vm("web-1").member("web");
    let second = plan(&lost, at(30));
    assert!(second.memory.ready_since.is_empty());
}
