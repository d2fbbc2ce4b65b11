//! What holds for every pool: no stranger and no VM that is going away in an action, never more deletes than
//! the surplus or creates than are missing, no number twice or taken, a status that says the same when asked
//! again, and rest at the wanted number after whatever users did.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::super::*;
use super::builders::{Vm, at, pool, stored, vm};
use super::film::Film;
use crate::api::pool::BasePolicy;

fn policy() -> impl Strategy<Value = BasePolicy> {
    prop_oneof![
        Just(BasePolicy::Random),
        Just(BasePolicy::Oldest),
        Just(BasePolicy::Newest),
        Just(BasePolicy::LowestOrdinal),
        Just(BasePolicy::HighestOrdinal),
    ]
}

/// A VM `web-<n>` in one of the states that matter.
fn any_vm(n: u32) -> impl Strategy<Value = Vm> {
    (0_u8..9).prop_map(move |state| {
        let vm = vm(&format!("web-{n}"));
        match state {
            0 => vm.ready(),
            1 => vm.halted(),
            2 => vm.deleting(),
            3 => vm.ready().protected("scale-in"),
            4 => vm.ownerless(),
            5 => vm.owned_by("pool.kubevirt.io/v1beta1", "other"),
            6 => vm.ready_since(""),
            7 => vm.stamped("old").ready(),
            _ => vm,
        }
    })
}

prop_compose! {
    fn any_snapshot()(
        vms in prop::collection::btree_set(0_u32..15, 0..12).prop_flat_map(|numbers| {
            numbers.into_iter().map(any_vm).collect::<Vec<_>>()
        }),
        replicas in 0_i32..15,
        burst in 1_u32..6,
        policy in policy(),
        unmanaged in prop::bool::weighted(0.1),
        paused in prop::bool::weighted(0.1),
        deleting in prop::bool::weighted(0.1),
        taken in prop::collection::btree_set(0_u32..15, 0..4),
        going in prop::collection::btree_set(0_u32..15, 0..4),
        created in prop::collection::vec(0_u32..15, 0..3),
        deleted in prop::collection::vec((0_u32..15).prop_map(|n| format!("uid-web-{n}")), 0..3),
        failed in prop::option::weighted(0.2, -10_i64..10),
        min_ready in prop::option::of(0_i32..3000),
        config in 0_u8..4,
        target in prop::bool::weighted(0.9),
    ) -> Snapshot {
        let mut snapshot = pool("web").replicas(replicas).burst(burst).base(policy).with_all(vms);
        if unmanaged {
            snapshot = snapshot.unmanaged();
        }
        snapshot.pool.spec.paused = Some(paused);
        snapshot.pool.spec.min_ready_seconds = min_ready;
        snapshot.pool.deleting = deleting;
        for n in going {
            let going = Occupied::GoingAway { what: format!("disk {n}"), patience_seconds: 30 };
            snapshot.occupied.insert(n, going);
        }
        snapshot = taken.into_iter().fold(snapshot, Snapshot::taken);
        snapshot.expected_creates = created;
        snapshot.expected_deletes = deleted;
        if let Some(retry) = failed {
            snapshot = snapshot.failed(Kind::Create, at(retry));
        }
        snapshot.config = match config {
            0 => Config::Missing,
            1 => Config::Pending,
            2 => Config::Refused("no".to_owned()),
            _ => Config::Ready,
        };
        if !target {
            snapshot.target = None;
        }
        snapshot
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn actions_stay_within_what_is_missing_or_too_many(snapshot in any_snapshot()) {
        let plan = plan(&snapshot, at(0));
        let burst = snapshot.limits.burst as usize;
        let ours: Vec<&Member> = snapshot
            .members
            .iter()
            .filter(|m| m.vm.is_member_of(&snapshot.pool.uid) && m.vm.deleting_since.is_none())
            .filter(|m| !snapshot.expected_deletes.contains(&m.vm.uid))
            .collect();
        let shown: BTreeSet<u32> = ours.iter().filter_map(|m| m.ordinal).collect();
        let expected: BTreeSet<u32> = snapshot.expected_creates.iter().copied().collect();
        let live = ours.len() + expected.difference(&shown).count();
        let wanted = snapshot.pool.spec.replicas() as usize;

        let mut created = BTreeSet::new();
        let mut deleted = BTreeSet::new();
        for action in &plan.actions {
            match action {
                Action::Create { ordinal } => {
                    prop_assert!(created.insert(*ordinal), "{} twice", ordinal);
                    prop_assert!(!snapshot.occupied.contains_key(ordinal));
                    prop_assert!(!expected.contains(ordinal));
                    prop_assert!(*ordinal >= snapshot.pool.spec.ordinal_start());
                    let in_the_way = snapshot.members.iter().any(|m| {
                        m.vm.is_member_of(&snapshot.pool.uid) && m.ordinal == Some(*ordinal)
                    });
                    prop_assert!(!in_the_way);
                }
                Action::Delete { uid, .. } => {
                    prop_assert!(deleted.insert(uid.clone()), "{} twice", uid);
                    let member = ours.iter().find(|m| &m.vm.uid == uid);
                    prop_assert!(member.is_some(), "{} is not a live member", uid);
                    let protected = member.unwrap().vm.annotations.contains_key("vmpool.dev/protected");
                    prop_assert!(!protected);
                }
                Action::ClearIntents { .. } | Action::Detach { .. } => prop_assert!(false, "nothing was asked for"),
                Action::Release { .. } => prop_assert!(false, "there are no former members"),
                Action::Restart { uid, .. } | Action::Update { uid, .. } => {
                    let member = ours.iter().find(|m| &m.vm.uid == uid);
                    prop_assert!(member.is_some(), "{} is not a live member", uid);
                    prop_assert!(!deleted.contains(uid), "{} is deleted", uid);
                }
            }
        }
        prop_assert!(created.is_empty() || deleted.is_empty());
        prop_assert!(created.len() <= wanted.saturating_sub(live).min(burst));
        prop_assert!(deleted.len() <= live.saturating_sub(wanted).min(burst));
        if snapshot.pool.spec.is_paused() || snapshot.pool.deleting {
            prop_assert!(plan.actions.is_empty());
        }
    }

    #[test]
    fn a_plan_says_the_same_when_it_is_made_again(snapshot in any_snapshot()) {
        let first = plan(&snapshot, at(0));
        let again = snapshot.after(&first);
        let second = plan(&again, at(0));
        prop_assert_eq!(stored(&second.status), stored(&first.status));
        prop_assert_eq!(&second.actions, &first.actions);
        prop_assert_eq!(&second.events, &Vec::new());
        prop_assert_eq!(&second.waiting, &first.waiting);
        prop_assert_eq!(&second.memory, &first.memory);
        prop_assert_eq!(second.wake_at, first.wake_at);
        // Nothing changes by the mere passing of time before the time that was named.
        let later = first.wake_at.map_or(at(86_400), |wake| {
            Timestamp::from_second(wake.as_second() - 1).unwrap().max(at(0))
        });
        let third = plan(&again.after(&second), later);
        prop_assert_eq!(stored(&third.status), stored(&first.status));
        prop_assert_eq!(&third.actions, &first.actions);
    }

}

proptest! {
    // Each of these is a film of its own.
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn every_pool_comes_to_rest_at_the_wanted_number(
        policy in policy(),
        burst in 1_u32..5,
        strangers in prop::collection::btree_set(1_u32..8, 0..4),
        happenings in prop::collection::vec((0_u8..8, 0_u32..12), 0..25),
        replicas in 0_i32..12,
    ) {
        let mut film = Film::new(pool("web").replicas(3).burst(burst).base(policy));
        film.strangers = strangers.iter().map(|n| format!("web-{n}")).collect();
        let foreign = film.strangers.clone();
        for (what, n) in happenings {
            let name = film.names().get(n as usize).map(|name| (*name).to_owned());
            match (what, name) {
                (0, _) => film.scale(i32::try_from(n).unwrap()),
                (1, _) => film.gone(),
                (2, _) => film.boot(),
                (3, _) => film.wait(i64::from(n) * 20),
                (4, Some(name)) => film.user_deletes(&name),
                (5, Some(name)) => film.disown(&name),
                (6, _) => film.pause(n % 3 == 0),
                (7, Some(name)) => film.detach(&name, n % 2 == 0),
                _ => {}
            }
            film.step();
        }
        film.pause(false);
        film.scale(replicas);
        // Twelve VMs, one at a time, and some passes for what was going on.
        for _ in 0..16 {
            film.step();
            film.gone();
            film.boot();
        }
        let rest = film.step();
        prop_assert_eq!(&rest.actions, &Vec::new());
        prop_assert_eq!(rest.wake_at, None);
        prop_assert_eq!(rest.status.replicas, replicas);
        prop_assert_eq!(rest.status.available_replicas, replicas);
        prop_assert!(film.strangers.is_superset(&foreign));
        prop_assert!(film.snapshot.intents.detach.is_empty());
        let again = film.step();
        prop_assert_eq!(stored(&again.status), stored(&rest.status));
    }
}
