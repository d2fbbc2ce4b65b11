//! Where nothing can be done: it is said once, and nothing is tried in vain.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::super::fixtures::NAMESPACE;
use super::super::supervise::{Actor as _, Next};
use super::super::{ControllerConfig, Metrics, Shared};
use super::played::{STATUS, VMS, api_server, shared, status, task, world};
use crate::cache::{Kind, Step};
use crate::plan::{self, Limits};

#[tokio::test]
async fn pools_in_our_own_namespace_are_declined_in_words() {
    let (client, calls) = api_server(|_, _| None);
    let shared = Arc::new(Shared::new(ControllerConfig {
        client,
        caches: Arc::new(world(3).done()),
        own_namespace: NAMESPACE.to_owned(),
        limits: Limits { burst: 250 },
        max_in_flight: 4,
        metrics: Metrics::default(),
        plan: plan::plan,
        instance: "test".to_owned(),
        leadership: crate::lease::Leadership::forever(),
        shutdown: CancellationToken::new(),
    }));
    let mut task = task(&shared);
    for _ in 0..3 {
        task.pass().await;
    }
    let told = calls.bodies("POST events");
    assert_eq!(told.len(), 1);
    assert_eq!(told[0]["reason"], "OwnNamespace");
    let said = calls.bodies(STATUS);
    let condition = &said[0]["status"]["conditions"][0];
    assert_eq!(condition["type"], "Progressing");
    assert_eq!(condition["status"], "False");
    assert_eq!(
        condition["message"],
        "nothing is done in tests, the namespace that vmpool runs in, since its webhooks leave that one alone: \
         use another namespace"
    );
    assert_eq!(calls.take(), [STATUS], "no VM");
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_is_being_deleted_is_told_once_and_not_tried_again_soon() {
    let (client, calls) = api_server(|call, nth| {
        (call == VMS).then(|| {
            let message = format!(
                "virtualmachines \"web-{nth}\" is forbidden: unable to create new content in namespace tests \
                 because it is being terminated"
            );
            let mut refusal = status(403, "Forbidden", &message);
            refusal["details"] = json!({"causes": [{"reason": "NamespaceTerminating", "field": "metadata.namespace"}]});
            (403, refusal)
        })
    });
    let mut task = task(&shared(client, world(50).done()));
    let mut next = Next::Idle;
    for _ in 0..5 {
        // The status is written twice a second at most.
        tokio::time::advance(Duration::from_secs(1)).await;
        next = task.pass().await;
    }
    let told = calls.bodies("POST events");
    let told: Vec<_> = told.iter().map(|event| &event["note"]).collect();
    assert_eq!(told, ["the namespace is being deleted: no VM can be made"]);
    let said = calls.bodies(STATUS);
    let said = said.last().unwrap().to_string();
    assert!(said.contains("NamespaceTerminating"), "{said}");
    let posts = calls.take().iter().filter(|call| *call == VMS).count();
    assert_eq!(posts, 1);
    let Next::At(at) = next else {
        panic!("{next:?}")
    };
    let wait = at.duration_since(tokio::time::Instant::now());
    assert!(wait > Duration::from_mins(9), "{wait:?}");
}

#[tokio::test]
async fn a_kind_that_can_not_be_listed_is_said_by_every_pool() {
    let caches = world(3).done();
    caches.vms.take(Step::Init);
    let (client, calls) = api_server(|_, _| None);
    let shared = shared(client, caches);
    let mut task = task(&shared);
    assert_eq!(task.pass().await, Next::Idle, "being listed");
    assert_eq!(calls.take(), [""; 0]);
    let long_ago = Instant::now().checked_sub(Duration::from_mins(5)).unwrap();
    shared
        .caches
        .note_trouble(Kind::Vms, "forbidden".to_owned(), long_ago);
    task.pass().await;
    let said = calls.bodies(STATUS);
    let condition = &said[0]["status"]["conditions"][0];
    assert_eq!(condition["reason"], "CacheIncomplete");
    assert_eq!(
        condition["message"],
        "nothing is done while vmpool can't list virtualmachines: forbidden"
    );
    assert_eq!(calls.take(), [STATUS]);
    shared.caches.vms.take(Step::InitDone);
    task.pass().await;
    assert!(calls.take().contains(&VMS.to_owned()), "it goes on");
}
