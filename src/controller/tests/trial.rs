//! When KubeVirt is asked for its verdict on a config, and what comes of the answer.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::super::Shared;
use super::super::config_task::ConfigTask;
use super::super::fixtures::{Filled, NAMESPACE, caches, config};
use super::super::supervise::Actor as _;
use super::played::{VMS, api_server, shared, spec, status};
use crate::cache::{Key, Step};

const REVISIONS: &str = "POST controllerrevisions";
const STATUS: &str = "PATCH virtualmachineconfigs/desktop/status";

fn task(shared: &Arc<Shared>) -> ConfigTask {
    let key = Key::new(NAMESPACE, "desktop");
    ConfigTask::new(Arc::clone(shared), key, "uid-desktop".to_owned(), None)
}

fn world() -> Filled {
    caches().config(config("desktop", spec()))
}

fn accepted(said: &[Value]) -> (String, String) {
    let condition = &said.last().unwrap()["status"]["conditions"][0];
    let text = |key: &str| condition[key].as_str().unwrap().to_owned();
    assert_eq!(condition["type"], "Accepted");
    (text("status"), text("reason"))
}

#[tokio::test]
async fn kubevirt_is_asked_once_and_the_revision_follows() {
    let (client, calls) = api_server(|_, _| None);
    let mut task = task(&shared(client, world().done()));
    task.pass().await;
    let asked = calls.bodies(VMS);
    assert_eq!(asked[0]["metadata"]["name"], "vmpool-trial-999999");
    let (said, made) = (calls.bodies(STATUS), calls.take());
    assert_eq!(made, [VMS, REVISIONS, STATUS]);
    assert_eq!(
        accepted(&said),
        ("True".to_owned(), "AcceptedByKubeVirt".to_owned())
    );
    for _ in 0..3 {
        task.pass().await;
    }
    assert!(!calls.take().contains(&VMS.to_owned()), "asked again");
}

#[tokio::test]
async fn what_an_earlier_run_was_told_of_this_very_spec_is_not_asked_again() {
    let told = |generation: i64| {
        let condition = json!({
            "type": "Accepted", "status": "True", "reason": "AcceptedByKubeVirt", "message": "",
            "observedGeneration": generation, "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        let config = config("desktop", spec());
        caches().config(config.set("/status", json!({"pools": 0, "conditions": [condition]})))
    };
    for (generation, times) in [(1, 0), (0, 1)] {
        let (client, calls) = api_server(|_, _| None);
        let mut task = task(&shared(client, told(generation).done()));
        task.pass().await;
        let asked = calls.take().iter().filter(|call| *call == VMS).count();
        assert_eq!(asked, times, "of generation {generation}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_spec_becomes_no_revision_is_told_once_and_asked_about_again() {
    let (client, calls) = api_server(|call, nth| {
        let refusal = status(
            422,
            "Invalid",
            "admission webhook \"virtualmachine-validator.kubevirt.io\" denied the request: no volume",
        );
        (call == VMS && nth <= 2).then_some((422, refusal))
    });
    let mut task = task(&shared(client, world().done()));
    for _ in 0..3 {
        tokio::time::advance(Duration::from_secs(1)).await;
        task.pass().await;
    }
    let told = calls.bodies("POST events");
    assert_eq!(told.len(), 1);
    assert_eq!(told[0]["reason"], "RefusedByKubeVirt");
    let said = calls.bodies(STATUS);
    assert_eq!(
        accepted(&said),
        ("False".to_owned(), "RefusedByKubeVirt".to_owned())
    );
    let made = calls.bodies(REVISIONS);
    assert_eq!(made.len(), 0, "no VM comes of it");
    assert_eq!(calls.bodies(VMS).len(), 1);
    // KubeVirt may be another one by then.
    for asked in [2, 3] {
        tokio::time::advance(Duration::from_mins(11)).await;
        task.pass().await;
        assert_eq!(calls.bodies(VMS).len(), asked);
    }
    assert_eq!(calls.bodies(REVISIONS).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_open_verdict_lets_pools_go_on_and_is_asked_for_again_ever_more_seldom() {
    let (client, calls) = api_server(|call, _| {
        (call == VMS).then(|| (403, status(403, "Forbidden", "exceeded quota: vms")))
    });
    let mut task = task(&shared(client, world().done()));
    task.pass().await;
    let said = calls.bodies(STATUS);
    assert_eq!(
        accepted(&said),
        ("Unknown".to_owned(), "NotChecked".to_owned())
    );
    assert_eq!(calls.bodies(REVISIONS).len(), 1, "the spec is a revision");
    for _ in 0..600 {
        tokio::time::advance(Duration::from_secs(1)).await;
        task.pass().await;
    }
    let asked = calls.bodies(VMS).len();
    assert!((4..15).contains(&asked), "{asked} times in ten minutes");
}

#[tokio::test]
async fn without_kubevirt_nobody_is_asked_and_nothing_refused() {
    let caches = world().done();
    caches.vms.take(Step::NotInstalled);
    let (client, calls) = api_server(|_, _| None);
    let mut task = task(&shared(client, caches));
    task.pass().await;
    let said = calls.bodies(STATUS);
    assert_eq!(
        accepted(&said),
        ("Unknown".to_owned(), "NotChecked".to_owned())
    );
    assert_eq!(calls.take(), [REVISIONS, STATUS]);
}
