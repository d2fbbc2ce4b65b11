//! What holds for every rollout, whatever happens on the way: nobody who is available is taken down beyond the
//! budget, and all arrive.

use proptest::prelude::*;

use super::super::*;
use super::builders::{condition, deeds};
use super::film::Film;
use super::rollout::{down, web};
use crate::api::conditions::types;
use crate::kubevirt::ConditionView;

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn nobody_who_is_available_is_taken_down_beyond_the_budget_and_all_arrive(
        most in 1_i32..4,
        happenings in prop::collection::vec((0_u8..9, 0_usize..8), 0..40),
    ) {
        let mut film = Film::new(web(8).max_unavailable(most));
        let step = |film: &mut Film| {
            let before = down(film);
            let plan = film.step();
            let is_up = |uid: &str| film.snapshot.members.iter().any(|m| {
                // The film has ended it by now.
                m.vm.uid == uid && m.vmi.as_ref().is_some_and(|vmi| vmi.ready.as_ref().is_some_and(ConditionView::is_true))
            });
            let taken = plan.actions.iter().filter(|action| {
                matches!(action, Action::Restart { uid, .. } if is_up(uid))
            });
            let most = usize::try_from(most).unwrap();
            assert!(taken.count() <= most.saturating_sub(before), "{before} are down: {}", deeds(&plan));
        };
        for (what, n) in happenings {
            let name = format!("web-{}", n + 1);
            match what {
                0 => film.compared(true),
                1 => film.compared(false),
                2 | 3 => film.restarts(),
                4 => film.retarget(["new", "old", "third"][n % 3]),
                // It crashes, and KubeVirt starts it anew some time.
                5 => film.member(&name).vmi = None,
                6 => film.member(&name).vm.busy = Some("it is being tested"),
                7 => film.member(&name).vm.busy = None,
                _ => film.wait(300),
            }
            step(&mut film);
        }
        for n in 1..=8 {
            film.member(&format!("web-{n}")).vm.busy = None;
        }
        for _ in 0..40 {
            film.compared(true);
            step(&mut film);
            film.restarts();
            step(&mut film);
        }
        let rest = film.step();
        prop_assert_eq!(condition(&rest, types::PROGRESSING), "True/Settled");
        prop_assert_eq!(rest.status.current_replicas, 8);
    }
}
