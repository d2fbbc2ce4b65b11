//! Who leads when, against a played API server, and as films of what is seen of a Lease.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use http::{Method, Request, Response};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::*;

/// An API server that keeps one Lease.
#[derive(Clone, Default)]
struct Server(Arc<Inner>);

#[derive(Default)]
struct Inner {
    lease: Mutex<Option<Value>>,
    versions: Mutex<u64>,
    is_down: AtomicBool,
    /// Writes are done and not answered.
    loses_answers: AtomicBool,
    writes: Mutex<Vec<Value>>,
}

impl Server {
    fn client(&self) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect_bytes().await.unwrap();
                if server.0.is_down.load(Ordering::SeqCst) {
                    std::future::pending::<()>().await;
                }
                let (code, answer) = server.answer(&head.method, &body);
                if head.method != Method::GET && server.0.loses_answers.load(Ordering::SeqCst) {
                    std::future::pending::<()>().await;
                }
                let body = Body::from(answer.to_string().into_bytes());
                Ok::<_, Infallible>(Response::builder().status(code).body(body).unwrap())
            }
        });
        Client::new(service, "vmpool-system")
    }

    fn answer(&self, method: &Method, body: &[u8]) -> (u16, Value) {
        let stored = self.lease();
        let refused = |code: u16| {
            let reason = if code == 404 { "NotFound" } else { "Conflict" };
            let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
                "code": code, "reason": reason, "message": "refused", "details": {}});
            (code, status)
        };
        if method == Method::GET {
            return stored.map_or_else(|| refused(404), |lease| (200, lease));
        }
        let sent: Value = serde_json::from_slice(body).unwrap();
        self.0.writes.lock().unwrap().push(sent.clone());
        match stored {
            Some(_) if method == Method::POST => refused(409),
            None if method == Method::PUT => refused(404),
            Some(stored)
                if stored["metadata"]["resourceVersion"] != sent["metadata"]["resourceVersion"] =>
            {
                refused(409)
            }
            _ => (200, self.store(sent)),
        }
    }

    fn lease(&self) -> Option<Value> {
        self.0.lease.lock().unwrap().clone()
    }

    fn store(&self, mut lease: Value) -> Value {
        let mut version = self.0.versions.lock().unwrap();
        *version += 1;
        lease["metadata"]["resourceVersion"] = version.to_string().into();
        lease["metadata"]["uid"] = "uid".into();
        *self.0.lease.lock().unwrap() = Some(lease.clone());
        lease
    }

    /// As a person might.
    fn edit(&self, change: impl FnOnce(&mut Value)) {
        let mut lease = self.lease().unwrap();
        change(&mut lease["spec"]);
        self.store(lease);
    }

    fn holder(&self) -> String {
        let holder = self
            .lease()
            .map(|lease| lease["spec"]["holderIdentity"].clone());
        holder
            .as_ref()
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    }

    fn writes(&self) -> usize {
        self.0.writes.lock().unwrap().len()
    }
}

/// Everything seven times as fast. A duration of 1 s would mean a released Lease.
const FAST: Pace = Pace {
    duration: Duration::from_secs(2),
};

/// A replica that does nothing but lead.
struct Replica {
    task: tokio::task::JoinHandle<Result<(), KeepLease>>,
    shutdown: CancellationToken,
    leads: Arc<Notify>,
    leadership: Arc<Mutex<Option<Leadership>>>,
}

fn replica(server: &Server, holder: &str) -> Replica {
    let config = LeaseConfig {
        client: server.client(),
        namespace: "vmpool-system".to_owned(),
        holder: holder.to_owned(),
        metrics: Metrics::default(),
    };
    let (shutdown, leads) = (CancellationToken::new(), Arc::new(Notify::new()));
    let leadership = Arc::new(Mutex::new(None));
    let (stop, begun, held) = (
        shutdown.clone(),
        Arc::clone(&leads),
        Arc::clone(&leadership),
    );
    let task = tokio::spawn(lead_at(FAST, config, shutdown.clone(), move |leadership| {
        *held.lock().unwrap() = Some(leadership);
        begun.notify_one();
        async move { stop.cancelled().await }
    }));
    Replica {
        task,
        shutdown,
        leads,
        leadership,
    }
}

impl Replica {
    async fn leads(&self) {
        let patience = Duration::from_secs(20);
        tokio::time::timeout(patience, self.leads.notified())
            .await
            .expect("it never led");
    }

    fn may_write(&self) -> bool {
        self.leadership
            .lock()
            .unwrap()
            .as_ref()
            .is_some_and(Leadership::is_held)
    }

    async fn stop(self) {
        self.shutdown.cancel();
        self.task.await.unwrap().unwrap();
    }

    async fn loses(self) -> String {
        let patience = Duration::from_secs(20);
        let ended = tokio::time::timeout(patience, self.task)
            .await
            .expect("it goes on");
        ended.unwrap().expect_err("it did not lose").to_string()
    }
}

/// IU-06: a version with another name would lead beside this one.
#[test]
fn iu_06_the_name_of_the_lease_never_changes() {
    assert_eq!(NAME, "vmpool-controller");
}

#[tokio::test]
async fn one_leads_at_a_time_and_hands_over_when_it_stops() {
    let server = Server::default();
    let first = replica(&server, "a");
    first.leads().await;
    let second = replica(&server, "b");
    tokio::time::sleep(FAST.duration * 2).await;
    assert!(first.may_write() && !second.may_write());
    assert_eq!(server.holder(), "a");
    let begun = tokio::time::Instant::now();
    first.stop().await;
    second.leads().await;
    assert!(
        begun.elapsed() < FAST.duration,
        "a released Lease is not waited for"
    );
    assert_eq!(server.lease().unwrap()["spec"]["leaseTransitions"], 1);
    second.stop().await;
    assert_eq!(server.holder(), "");
}

#[tokio::test]
async fn cc_04_without_the_api_server_the_holder_ends_before_anybody_else_may_begin() {
    let server = Server::default();
    let first = replica(&server, "a");
    first.leads().await;
    let renewed = clock::since_boot();
    server.0.is_down.store(true, Ordering::SeqCst);
    let leadership = first.leadership.lock().unwrap().clone().unwrap();
    let said = first.loses().await;
    assert!(said.contains("failed to renew"), "{said}");
    assert!(!leadership.is_held());
    assert!(clock::since_boot() < renewed + FAST.duration);
}

#[tokio::test]
async fn cc_04_a_holder_that_is_overwritten_by_hand_ends_and_the_other_waits_for_that() {
    for (what, holder) in [
        ("a stranger", "x"),
        ("the other replica", "b"),
        ("nobody", ""),
    ] {
        let server = Server::default();
        let first = replica(&server, "a");
        first.leads().await;
        let second = replica(&server, "b");
        tokio::time::sleep(FAST.retry() * 2).await;
        server.edit(|spec| spec["holderIdentity"] = holder.into());
        let overwritten = clock::since_boot();
        let leadership = first.leadership.lock().unwrap().clone().unwrap();
        let said = first.loses().await;
        assert!(said.contains(&format!("to {holder:?}")), "{what}: {said}");
        assert!(!second.may_write() && !leadership.is_held(), "{what}");
        second.leads().await;
        assert!(clock::since_boot() >= overwritten + FAST.duration, "{what}");
        second.stop().await;
    }
}

#[tokio::test]
async fn a_deleted_lease_ends_its_holder_and_is_waited_for_too() {
    let server = Server::default();
    let first = replica(&server, "a");
    first.leads().await;
    let second = replica(&server, "b");
    tokio::time::sleep(FAST.retry() * 2).await;
    *server.0.lease.lock().unwrap() = None;
    let deleted = clock::since_boot();
    first.loses().await;
    second.leads().await;
    assert!(clock::since_boot() >= deleted + FAST.duration);
    second.stop().await;
}

#[tokio::test]
async fn lost_answers_of_renewals_that_were_done_cost_nothing() {
    let server = Server::default();
    let first = replica(&server, "a");
    first.leads().await;
    server.0.loses_answers.store(true, Ordering::SeqCst);
    tokio::time::sleep(FAST.renew() + FAST.patience() / 2).await;
    server.0.loses_answers.store(false, Ordering::SeqCst);
    tokio::time::sleep(FAST.duration * 2).await;
    assert!(first.may_write(), "{:?}", server.lease());
    first.stop().await;
}

#[tokio::test]
async fn a_renewal_that_is_refused_for_an_earlier_one_of_ours_is_made_without_a_wait() {
    let server = Server::default();
    let mut elector = Elector {
        store: Store::new(server.client(), "vmpool-system", "a".to_owned(), FAST),
        pace: FAST,
    };
    let (mut held, leadership) = elector.acquire().await;
    server.edit(|spec| spec["renewTime"] = "2026-01-01T00:00:00.000000Z".into());
    assert!(elector.renew(&mut held, &leadership).await.is_none());
    server.edit(|spec| spec["acquireTime"] = "2026-01-01T00:00:00.000000Z".into());
    let lost = elector.renew(&mut held, &leadership).await;
    assert!(lost.is_some_and(|lost| lost.is_some()), "it is another's");
}

#[tokio::test]
async fn a_restarted_container_leads_again_at_once_and_another_pod_waits() {
    let server = Server::default();
    for (holder, waits) in [("a", false), ("a", false), ("b", true)] {
        let begun = tokio::time::Instant::now();
        let killed = replica(&server, holder);
        killed.leads().await;
        assert_eq!(begun.elapsed() >= FAST.duration, waits, "{holder}");
        killed.task.abort();
    }
}

#[tokio::test]
async fn of_many_that_begin_together_one_leads_and_the_others_write_nothing() {
    let server = Server::default();
    let all: Vec<_> = (0..8).map(|n| replica(&server, &format!("r{n}"))).collect();
    tokio::time::sleep(FAST.duration * 3).await;
    let leading = all.iter().filter(|one| one.may_write()).count();
    assert_eq!(leading, 1);
    // At rest: renewals by one, thrice in a duration.
    let before = server.writes();
    tokio::time::sleep(FAST.duration * 3).await;
    let renewals = server.writes() - before;
    assert!((6..=10).contains(&renewals), "{renewals}");
    for one in all {
        one.stop().await;
    }
}

fn lease(version: &str, holder: &str, seconds: i32) -> Lease {
    serde_json::from_value(json!({
        "metadata": {"name": NAME, "resourceVersion": version},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": seconds,
            "renewTime": "2001-01-01T00:00:00.000000Z"},
    }))
    .unwrap()
}

#[test]
fn nobodys_clock_counts_only_how_long_nothing_has_changed() {
    let at = Duration::from_secs;
    let wait = |holder: &str| Verdict::Wait {
        holder: holder.to_owned(),
    };
    let mut judge = Judge::new("me", DURATION);
    // Renewed 25 years ago, by the holder's clock.
    let old = lease("1", "other", 15);
    assert_eq!(judge.judge(Some(&old), at(100)), wait("other"));
    assert_eq!(judge.judge(Some(&old), at(114)), wait("other"));
    let renewed = lease("2", "other", 15);
    assert_eq!(judge.judge(Some(&renewed), at(114)), wait("other"));
    assert_eq!(judge.judge(Some(&renewed), at(128)), wait("other"));
    assert_eq!(judge.judge(Some(&renewed), at(129)), Verdict::Take);
    // Our name in it, which we did not write.
    let ours = lease("3", "me", 15);
    assert_eq!(judge.judge(Some(&ours), at(130)), wait("me"));
    // A duration that is longer is waited for, within reason; a shorter one is not believed.
    let longer = lease("4", "other", 40);
    assert_eq!(judge.judge(Some(&longer), at(200)), wait("other"));
    assert_eq!(judge.judge(Some(&longer), at(239)), wait("other"));
    assert_eq!(judge.judge(Some(&longer), at(240)), Verdict::Take);
    let mad = lease("5", "other", i32::MAX);
    assert_eq!(judge.judge(Some(&mad), at(300)), wait("other"));
    assert_eq!(judge.judge(Some(&mad), at(360)), Verdict::Take);
    let negative = lease("6", "other", -1);
    assert_eq!(judge.judge(Some(&negative), at(400)), wait("other"));
    // Released, or only emptied.
    let emptied = lease("7", "", 15);
    assert_eq!(judge.judge(Some(&emptied), at(500)), wait(""));
    let released = lease("8", "", 1);
    assert_eq!(judge.judge(Some(&released), at(500)), Verdict::Take);
    assert_eq!(judge.judge(None, at(501)), wait(""), "it has vanished");

    let mut fresh = Judge::new("me", DURATION);
    assert_eq!(fresh.judge(None, at(1)), Verdict::Take);
    assert_eq!(
        fresh.judge(None, at(2)),
        Verdict::Take,
        "nobody has led yet"
    );
    let mut restarted = Judge::new("me", DURATION);
    assert_eq!(restarted.judge(Some(&ours), at(1)), Verdict::Take);
}

#[test]
fn the_holder_gives_up_before_others_may_begin() {
    for duration in [FAST.duration, DURATION] {
        let pace = Pace { duration };
        assert!(pace.claim() < duration);
        // A renewal that fails at once is tried again before it is too late, answers being slow.
        let first_tries = pace.renew() + pace.patience() + pace.retry();
        assert!(first_tries < pace.claim());
    }
    let leadership = Leadership::until(clock::since_boot());
    leadership.extend(clock::since_boot() + DURATION);
    assert!(!leadership.is_held(), "what was lost is not had back");
    assert!(Leadership::forever().is_held());
}
