//! What fails again and again, over time: a model of passes in which each kind of deed fails or not, on its own.

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::core::Status;
use proptest::prelude::*;

use super::super::apply::{Applied, Pace};
use super::super::calls::CallFailure;
use super::super::fixtures::{NAMESPACE, caches, config, pool, revision, vm};
use super::super::pool_task::PoolTask;
use super::super::snapshot::build;
use super::played::{api_server, shared, spec, task};
use crate::plan::{self, Kind, Limits};

/// All that are wanted at once here, and go on being wanted.
const KINDS: [Kind; 3] = [Kind::Create, Kind::Update, Kind::Release];

/// A pool with a member missing, one outdated and one that somebody took out.
fn wanting() -> PoolTask {
    let mut old = spec();
    old["template"]["spec"]["hostname"] = "old".into();
    let outdated = vm("web-1").owner("web", "uid-web").member_of("uid-web");
    let outdated = outdated.set("/spec/runStrategy", "Halted".into());
    let caches = caches()
        .pool(pool("web", "uid-web").replicas(2))
        .config(config("desktop", spec()))
        .revision(revision("desktop", old, 1))
        .revision(revision("desktop", spec(), 2))
        .vm(outdated)
        .vm(vm("web-2").member_of("uid-web"));
    let (client, _) = api_server(|_, _| None);
    task(&shared(client, caches.done()))
}

fn pace(task: &mut PoolTask, kind: Kind) -> &mut Pace {
    match kind {
        Kind::Create => &mut task.creates,
        Kind::Update => &mut task.updates,
        _ => &mut task.releases,
    }
}

/// Plans, and lets those kinds fail for which the bit is set. Says which were tried, and whether the next pass is
/// due at once.
fn pass(task: &mut PoolTask, fails: u8, now: Timestamp) -> (Vec<Kind>, bool) {
    let caches = &task.shared.caches;
    let entry = caches.pool(NAMESPACE, "web").unwrap();
    let object = entry.object.clone().unwrap();
    let limits = Limits { burst: 250 };
    let view = build(caches, &entry, &object, &task.remembered, limits);
    let plan = plan::plan(&view.snapshot, now);
    let mut applied = Applied::default();
    for kind in KINDS {
        if !plan.actions.iter().any(|action| action.kind() == kind) {
            continue;
        }
        applied.tried.push(kind);
        let is_failing = fails & (1 << kind as u8) != 0;
        let refused = CallFailure::Refuse {
            status: Status::failure("no", "").with_code(500).boxed(),
            retry_after: None,
        };
        let failed: Vec<_> = is_failing
            .then(|| ("web-1".to_owned(), refused))
            .into_iter()
            .collect();
        let failure = pace(task, kind).end(&failed, !is_failing, kind, now);
        applied.fail(kind, failure);
    }
    let has_news = task.take_failures(&applied, now);
    (applied.tried, has_news)
}

/// After so many failures in a row, in seconds.
fn delay(failures: u32) -> i64 {
    (1 << (failures - 1).min(16)).min(120)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn no_kind_of_deed_is_tried_more_often_than_its_own_failures_allow(
        steps in prop::collection::vec((0_u8..64, prop_oneof![Just(0_i64), 1..4_i64, 1..200_i64]), 1..60),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let _guard = runtime.enter();
        let mut task = wanting();
        let mut now = Timestamp::UNIX_EPOCH;
        // Failures in a row, and when it may be tried again.
        let mut state = KINDS.map(|kind| (kind, 0, now));
        for (fails, wait) in steps {
            now += SignedDuration::from_secs(wait);
            for again in 0.. {
                prop_assert!(again < 5, "it goes round and round");
                let (tried, has_news) = pass(&mut task, fails, now);
                for (kind, failures, not_before) in &mut state {
                    let is_due = *not_before <= now;
                    // What is due is tried at once, whatever else has failed.
                    prop_assert_eq!(tried.contains(kind), is_due, "{:?} at {}", kind, now);
                    if !is_due {
                        continue;
                    }
                    *failures = if fails & (1 << *kind as u8) == 0 { 0 } else { *failures + 1 };
                    if *failures > 0 {
                        *not_before = now + SignedDuration::from_secs(delay(*failures));
                    }
                }
                if !has_news {
                    break;
                }
            }
        }
    }
}
