//! What was accepted for a pool: members that leave it and work on alone.

use super::super::intents::{Detach, Progress};
use super::super::*;
use super::builders::{at, condition, deeds, pool, vm, vms};
use super::film::Film;
use crate::api::conditions::types;
use crate::api::pool::BasePolicy;

fn asked(name: &str, progress: Progress) -> Detach {
    Detach {
        name: name.to_owned(),
        uid: format!("uid-{name}"),
        reason: String::new(),
        progress,
    }
}

fn leaving(mut snapshot: Snapshot, names: &[&str], progress: Progress) -> Snapshot {
    let asked = names.iter().map(|name| asked(name, progress));
    snapshot.intents.detach.extend(asked);
    snapshot
}

#[test]
fn dt_11_a_replaced_member_leaves_and_the_next_free_number_is_made() {
    let film = Film::new(pool("web").replicas(3).with_all(vms("web", 1..=3)));
    let film = film.play(&[
        (
            "web-2 is to leave",
            |film| film.detach("web-2", true),
            "detach web-2; create 4",
            "2/3 True/ScalingOut",
        ),
        (
            "it is seen to have left",
            |_| {},
            "clear uid-web-2",
            "3/3 True/WaitingForMembers",
        ),
        (
            "and that is all",
            |film| film.boot(),
            "-",
            "3/3 True/Settled",
        ),
        (
            "another one is wanted: its number stays its own",
            |film| film.scale(4),
            "create 5",
            "3/4 True/ScalingOut",
        ),
    ]);
    assert!(film.strangers.contains("web-2"));
}

#[test]
fn dt_11_without_a_replacement_nobody_else_goes() {
    let film = Film::new(pool("web").replicas(3).with_all(vms("web", 1..=3)));
    let film = film.play(&[
        (
            "web-1 is to leave for good",
            |film| film.detach("web-1", false),
            "detach web-1",
            "2/2 True/WaitingForMembers",
        ),
        (
            "it has left",
            |film| film.boot(),
            "clear uid-web-1",
            "2/2 True/Settled",
        ),
        ("that is all", |_| {}, "-", "2/2 True/Settled"),
    ]);
    assert_eq!(film.deleted, [] as [&str; 0]);
}

#[test]
fn dt_07_m96_a_member_that_is_to_leave_is_never_surplus_however_stale_the_cache() {
    // Asked to leave, and scaled to nothing at once.
    let stale = pool("web").replicas(0).with_all(vms("web", 1..=3));
    for progress in [Progress::Due, Progress::Unseen] {
        let snapshot = leaving(stale.clone(), &["web-2"], progress);
        let plan = plan(&snapshot, at(0));
        let deleted = plan.actions.iter().filter_map(|action| match action {
            Action::Delete { name, .. } => Some(name.as_str()),
            _ => None,
        });
        let deleted: BTreeSet<_> = deleted.collect();
        assert_eq!(deleted, ["web-1", "web-3"].into());
        assert_eq!(plan.status.replicas, 2, "it counts as gone");
    }
    // It has left, and the cache doesn't show it: nobody is removed in its place, and the entry stays.
    let shrunk = pool("web").replicas(2).with_all(vms("web", 1..=3));
    let unseen = leaving(shrunk, &["web-2"], Progress::Unseen);
    assert_eq!(deeds(&plan(&unseen, at(0))), "-");
}

fn announced(mut snapshot: Snapshot, names: &[&str], version: &str) -> Snapshot {
    let uids = names.iter().map(|name| format!("uid-{name}"));
    let announced = uids.map(|uid| (uid, version.to_owned()));
    snapshot.intents.announced.extend(announced);
    snapshot
}

#[test]
fn dt_07_a_member_that_is_announced_to_leave_is_no_surplus_and_nobody_goes_in_its_place() {
    let three = |replicas| pool("web").replicas(replicas).with_all(vms("web", 1..=3));
    let oldest = |snapshot: Snapshot| snapshot.base(BasePolicy::Oldest);
    let first = deeds(&plan(&oldest(three(2)), at(0)));
    assert_eq!(first, "delete web-1");
    let kept = announced(oldest(three(2)), &["web-1"], "70");
    assert_eq!(deeds(&plan(&kept, at(0))), "-");
    // Neither is it missing.
    assert_eq!(
        deeds(&plan(&announced(three(3), &["web-1"], "70"), at(0))),
        "-"
    );
    // Those beyond go all the same, and only they.
    let kept = announced(oldest(three(1)), &["web-1"], "70");
    assert_eq!(deeds(&plan(&kept, at(0))), "delete web-2");
    let kept = announced(oldest(three(0)), &["web-1"], "70");
    assert_eq!(deeds(&plan(&kept, at(0))), "delete web-2 web-3");
}

#[test]
fn dt_07_a_request_that_is_never_recorded_holds_up_a_scale_in_until_the_status_says_so() {
    let snapshot = pool("web").replicas(2).with_all(vms("web", 1..=3));
    let kept = announced(snapshot, &["web-1"], "70");
    let begun = plan(&kept, at(0));
    assert_eq!(condition(&begun, types::SCALE_IN_BLOCKED), "absent");
    assert_eq!(begun.wake_at, Some(at(20)));
    let kept = kept.after(&begun);
    let soon = plan(&kept, at(19));
    assert_eq!(soon.status, begun.status, "nothing that ends the request");
    assert_eq!(soon.wake_at, Some(at(20)));
    let late = plan(&kept.after(&soon), at(20));
    assert_eq!(deeds(&late), "-");
    assert_eq!(
        condition(&late, types::SCALE_IN_BLOCKED),
        "True/DetachUnrecorded"
    );
    // That is written, the version is another one, and the mark counts no more.
    let snapshot = pool("web").replicas(2).with_all(vms("web", 1..=3));
    let over = plan(&snapshot.after(&late), at(21));
    assert!(deeds(&over).starts_with("delete web-"));
    assert_eq!(over.memory.held_back_since, None);
    // Another one that is given up is said, and so written, anew.
    let again = pool("web").replicas(2).with_all(vms("web", 1..=3));
    let mut again = announced(again.after(&late), &["web-1"], "71");
    again.memory.held_back_since = Some(at(21));
    assert_ne!(plan(&again, at(60)).status, late.status);
}

#[test]
fn a_vm_that_nobody_knows_yet_is_looked_at_and_its_number_not_lost() {
    // The cache doesn't show web-3, which was made a moment ago.
    let young = pool("web").replicas(3).with_all(vms("web", 1..=2));
    let mut young = leaving(young, &["web-3"], Progress::Due);
    young.expected_creates = vec![3];
    assert_eq!(deeds(&plan(&young, at(0))), "detach web-3");
    // Another VM of that name is none of it.
    let other = pool("web").replicas(1).with(vm("web-1").uid("another"));
    let other = leaving(other, &["web-1"], Progress::Over);
    assert_eq!(deeds(&plan(&other, at(0))), "clear uid-web-1");
}

#[test]
fn a_paused_or_deleted_pool_lets_nobody_leave_and_counts_them_as_gone() {
    let members = pool("web").replicas(2).with_all(vms("web", 1..=3));
    let snapshot = leaving(members, &["web-2"], Progress::Due);
    let paused = plan(&snapshot.clone().paused(), at(0));
    assert_eq!(deeds(&paused), "-");
    assert_eq!(paused.status.replicas, 2);
    let mut deleting = snapshot;
    deleting.pool.deleting = true;
    assert_eq!(deeds(&plan(&deleting, at(0))), "-");
}

#[test]
fn a_failed_detach_is_tried_again_in_its_time_and_holds_up_nothing_else() {
    let members = pool("web").replicas(3).with_all(vms("web", 1..=2));
    let snapshot = leaving(members, &["web-2"], Progress::Due).failed(Kind::Detach, at(30));
    let plan_now = plan(&snapshot, at(0));
    assert_eq!(deeds(&plan_now), "create 3 4");
    assert_eq!(plan_now.wake_at, Some(at(30)));
    assert_eq!(
        condition(&plan_now, types::REPLICA_FAILURE),
        "True/FailedDetach"
    );
    assert_eq!(deeds(&plan(&snapshot, at(30))), "detach web-2; create 3 4");
}

#[test]
fn what_can_not_be_read_holds_back_removals_alone() {
    let mut snapshot = pool("web").replicas(1).with_all(vms("web", 1..=3));
    snapshot.intents.unclear = Some("a newer version's".to_owned());
    let plan_now = plan(&snapshot, at(0));
    assert_eq!(deeds(&plan_now), "-");
    assert_eq!(
        condition(&plan_now, types::SCALE_IN_BLOCKED),
        "True/IntentUnclear"
    );
    assert_eq!(
        deeds(&plan(&snapshot.clone().replicas(5), at(0))),
        "create 4 5"
    );
    // It is said before anybody would be removed: that lets it be taken off.
    let settled = plan(&snapshot.replicas(3), at(0));
    assert_eq!(
        condition(&settled, types::SCALE_IN_BLOCKED),
        "True/IntentUnclear"
    );
}
