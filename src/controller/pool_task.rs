//! Looks after one pool: observe, plan, apply, say. The decision is `plan`'s; here is what surrounds it: when
//! to look, what is remembered between two passes, and the writes.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use kube::api::ApiResource;
use tokio::time::Instant;

use super::Shared;
use super::apply::{Applied, Pace};
use super::calls::Place;
use super::events::EventWriter;
use super::metrics::{Deed, Task};
use super::overdue;
use super::snapshot::{self, Remembered, View};
use super::status::{StatusWriter, Verdict};
use super::supervise::{Actor, Next, earliest};
use crate::api::conditions::{reasons, types};
use crate::api::{API_VERSION, POOL_KIND, VirtualMachinePool, VirtualMachinePoolStatus};
use crate::cache::{Identity, Key, PoolEntry};
use crate::clock;
use crate::plan::{Action, Note, Plan};

/// Least time between two passes that are made because something changed. The events of 1000 VMs that start
/// come over some seconds: looking at each would be looking at 1000 VMs 1000 times.
const PAUSE: Duration = Duration::from_millis(25);
/// Share of the time that deciding may take: after a decision of a large pool the pause is so many times as
/// long as that took.
const PAUSE_PER_DECISION: u32 = 4;
/// Least delay of a pass that is due at once by the clock: what has just failed to help is not tried in a
/// tight loop.
const BREATH: Duration = Duration::from_millis(20);

/// One pool's task.
pub(super) struct PoolTask {
    pub(super) shared: Arc<Shared>,
    key: Key,
    uid: String,
    events: EventWriter,
    status: StatusWriter<VirtualMachinePoolStatus>,
    pub(super) remembered: Remembered,
    pub(super) creates: Pace,
    pub(super) deletes: Pace,
    pub(super) releases: Pace,
    pub(super) detaches: Pace,
    pub(super) clears: Pace,
    /// Version of the pool in which intents were last cleared: before the cache shows it they look open.
    pub(super) cleared: Option<String>,
    /// Generation of the pool at which its members were last counted, and found as the cache shows them.
    pub(super) counted: Option<i64>,
    pub(super) updates: Pace,
    pub(super) restarts: Pace,
    /// UID of the revision that this pool is known to own.
    pub(super) co_owned: Option<String>,
    /// Generations of pool and config that a failure was met with: another one may fare better.
    met_with: (i64, Option<i64>),
    decision_took: Duration,
    /// Why nothing is done, as far as an event has told of it.
    told: Option<(&'static str, String)>,
    fault: Option<String>,
}

impl PoolTask {
    pub(super) fn new(shared: Arc<Shared>, key: Key, uid: String, fault: Option<String>) -> Self {
        let regarding = ObjectReference {
            api_version: Some(API_VERSION.to_owned()),
            kind: Some(POOL_KIND.to_owned()),
            namespace: Some(key.namespace.clone()),
            name: Some(key.name.clone()),
            uid: Some(uid.clone()),
            ..ObjectReference::default()
        };
        let most = shared.max_in_flight;
        Self {
            events: EventWriter::new(regarding, &shared.instance),
            shared,
            key,
            uid,
            status: StatusWriter::default(),
            remembered: Remembered::default(),
            creates: Pace::new(most),
            deletes: Pace::new(most),
            releases: Pace::new(1),
            detaches: Pace::new(1),
            clears: Pace::new(1),
            cleared: None,
            counted: None,
            updates: Pace::new(most),
            restarts: Pace::new(most),
            co_owned: None,
            met_with: (0, None),
            decision_took: Duration::ZERO,
            told: None,
            fault,
        }
    }

    async fn tend(&mut self, entry: &PoolEntry, pool: &VirtualMachinePool) -> Next {
        let now = clock::now();
        self.catch_up(entry, now).await;
        let began = Instant::now();
        let view = snapshot::build(
            &self.shared.caches,
            entry,
            pool,
            &self.remembered,
            self.shared.limits,
        );
        let plan = (self.shared.plan)(&view.snapshot, now);
        self.decision_took = began.elapsed();
        self.remembered.waiting.clone_from(&plan.waiting);
        self.remembered.plan = plan.memory.clone();
        self.remembered.status = Some(plan.status.clone());
        for note in &plan.events {
            self.events.send(&self.shared.calls, note, now).await;
        }
        let status_due = self.write_status(entry, &plan.status).await;

        let tried = plan.actions.len();
        let applied = self.apply(&entry.id, &view, plan.actions.clone()).await;
        if tried > 0 {
            log(&entry.id, &view, &plan, &applied);
        }
        for note in &applied.notes {
            self.events
                .send(&self.shared.calls, note, clock::now())
                .await;
        }
        let has_news = self.take_failures(&applied, now);
        let next = self.next(&plan, &applied, has_news, status_due);
        for done in applied.done {
            self.events.did(done);
        }
        self.tell(next).await
    }

    /// Forgets what the caches have caught up with, and reads what they should have shown long ago.
    async fn catch_up(&mut self, entry: &PoolEntry, now: Timestamp) {
        let shared = Arc::clone(&self.shared);
        let (caches, namespace) = (&shared.caches, &self.key.namespace);
        let remembered = &mut self.remembered;
        remembered.expectations.observe(caches, namespace);
        remembered.live.observe(caches, namespace, now);
        let config = caches.config(namespace, &entry.config);
        let met_with = (
            entry.id.generation,
            config.map(|config| config.id.generation),
        );
        if self.met_with != met_with {
            self.met_with = met_with;
            for failure in remembered.failures.values_mut() {
                failure.retry_at = failure.retry_at.min(now);
            }
        }
        overdue::settle(&shared, &self.key, &self.uid, remembered, now).await;
    }

    /// Keeps what failed, kind by kind; what is no longer met with is forgotten. Says whether the next plan has
    /// news to tell. A kind that is held back is not tried, so none brings news more often than it may.
    pub(super) fn take_failures(&mut self, applied: &Applied, now: Timestamp) -> bool {
        let known = &mut self.remembered.failures;
        let before = known.len();
        // Tried again, or due and not needed any more.
        known.retain(|kind, failure| !applied.tried.contains(kind) && failure.retry_at > now);
        let has_news = known.len() < before || !applied.failures.is_empty();
        known.extend(applied.failures.iter().cloned());
        has_news
    }

    fn next(
        &self,
        plan: &Plan,
        applied: &Applied,
        has_news: bool,
        status_due: Option<Instant>,
    ) -> Next {
        if has_news {
            return Next::AtOnce;
        }
        let now = Instant::now();
        if applied.moved {
            // What was created and deleted is expected; what was merely learnt must not spin.
            return if applied.done.is_empty() {
                Next::At(now + BREATH)
            } else {
                Next::AtOnce
            };
        }
        let clock = clock::now();
        let failures = self.remembered.failures.values();
        [
            plan.wake_at,
            self.remembered.expectations.next_due(),
            self.remembered.live.next_due(),
        ]
        .into_iter()
        .flatten()
        .chain(failures.map(|failure| failure.retry_at))
        .map(|at| {
            let delay = Duration::try_from(at.duration_since(clock)).unwrap_or_default();
            now + delay.max(BREATH)
        })
        .chain(status_due)
        .fold(Next::Idle, earliest)
    }

    /// Writes the status if it differs and is due; else says when to come back for it.
    async fn write_status(
        &mut self,
        entry: &PoolEntry,
        wanted: &VirtualMachinePoolStatus,
    ) -> Option<Instant> {
        let now = Instant::now();
        let at_rest = wanted.conditions.iter().any(|condition| {
            condition.type_ == types::PROGRESSING && condition.reason == reasons::SETTLED
        });
        let (stored, version) = (entry.status(), &entry.id.resource_version);
        let patch = match self.status.judge(&stored, version, wanted, at_rest, now) {
            Verdict::Stored => return None,
            Verdict::Wait(due) => return Some(due),
            Verdict::Write(patch) => patch,
        };
        let resource = ApiResource::erase::<VirtualMachinePool>(&());
        let place = Place {
            resource: &resource,
            namespace: &self.key.namespace,
            name: &self.key.name,
        };
        match self.shared.calls.patch_status(place, patch).await {
            Ok(written) => {
                self.shared.metrics.did(Deed::Status);
                let version = written.metadata.resource_version.unwrap_or_default();
                self.status.wrote(wanted, &version, now);
                None
            }
            Err(failure) if failure.is_not_found() => None,
            Err(failure) => {
                self.shared.metrics.failed(Deed::Status, failure.category());
                tracing::warn!(
                    pool.namespace = self.key.namespace,
                    pool.name = self.key.name,
                    error = %failure,
                    "Failed to write a pool's status"
                );
                self.status.failed(now);
                let delay = failure.retry_after().unwrap_or(Duration::from_secs(1));
                Some(now + delay)
            }
        }
    }

    /// Says why nothing is done for the pool, in its status and by an event.
    async fn report(&mut self, entry: &PoolEntry, reason: &'static str, message: String) -> Next {
        let now = clock::now();
        let before = self.remembered.status.take();
        let status = stuck(
            before.unwrap_or_else(|| entry.status()),
            entry.id.generation,
            reason,
            &message,
            now,
        );
        if self.told.as_ref() != Some(&(reason, message.clone())) {
            let note = Note {
                warning: true,
                reason,
                message: message.clone(),
            };
            self.events.send(&self.shared.calls, &note, now).await;
            self.told = Some((reason, message));
        }
        let due = self.write_status(entry, &status).await;
        self.remembered.status = Some(status);
        self.tell(due.map_or(Next::Idle, Next::At)).await
    }

    /// Tells what was done, if it is due; else comes back for it.
    async fn tell(&mut self, next: Next) -> Next {
        self.events.tell(&self.shared.calls, clock::now()).await;
        self.events.due().into_iter().fold(next, earliest)
    }
}

/// `status` with `Progressing` False for this reason.
fn stuck(
    mut status: VirtualMachinePoolStatus,
    generation: i64,
    reason: &str,
    message: &str,
    now: Timestamp,
) -> VirtualMachinePoolStatus {
    let is_it = |condition: &Condition| condition.type_ == types::PROGRESSING;
    let before = status.conditions.iter().position(is_it);
    let since = before
        .map(|at| &status.conditions[at])
        .filter(|condition| condition.status == "False")
        .map(|condition| condition.last_transition_time.clone());
    let whole_second = Timestamp::from_second(now.as_second()).unwrap_or(now);
    let condition = Condition {
        type_: types::PROGRESSING.to_owned(),
        status: "False".to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        observed_generation: Some(generation),
        last_transition_time: since.unwrap_or(Time(whole_second)),
    };
    match before {
        Some(at) => status.conditions[at] = condition,
        None => status.conditions.push(condition),
    }
    status.observed_generation = Some(generation);
    status
}

/// One line per pass that did something.
fn log(pool: &Identity, view: &View, plan: &Plan, applied: &Applied) {
    let count = |is: fn(&Action) -> bool| plan.actions.iter().filter(|action| is(action)).count();
    tracing::info!(
        pool.namespace = pool.namespace,
        pool.name = pool.name,
        replicas = view.snapshot.pool.spec.replicas(),
        members = view.snapshot.members.len(),
        expected = view.snapshot.expected_creates.len(),
        create = count(|action| matches!(action, Action::Create { .. })),
        delete = count(|action| matches!(action, Action::Delete { .. })),
        release = count(|action| matches!(action, Action::Release { .. })),
        detach = count(|action| matches!(action, Action::Detach { .. })),
        update = count(|action| matches!(action, Action::Update { .. })),
        restart = count(|action| matches!(action, Action::Restart { .. })),
        failure = applied
            .failures
            .first()
            .map(|(_, failure)| failure.message.as_str()),
        "Carried out a plan"
    );
}

impl Actor for PoolTask {
    const TASK: Task = Task::Pool;

    async fn pass(&mut self) -> Next {
        let caches = &self.shared.caches;
        let found = caches.pool(&self.key.namespace, &self.key.name);
        let found = found.filter(|pool| pool.id.uid == self.uid);
        if !caches.is_synced() {
            // Whoever completes a cache, or finds that it can't be, wakes everybody.
            return match (caches.stuck(std::time::Instant::now()), found) {
                (Some(what), Some(entry)) => {
                    let message = format!("nothing is done while vmpool {what}");
                    self.report(&entry, reasons::CACHE_INCOMPLETE, message)
                        .await
                }
                (None, _) | (_, None) => Next::Idle,
            };
        }
        let Some(entry) = found else {
            return Next::Over;
        };
        let began = Instant::now();
        if let Some(message) = self.fault.take() {
            self.report(&entry, reasons::INTERNAL_ERROR, message).await;
        }
        let next = match (self.shared.declines(&self.key.namespace), &entry.object) {
            (Some(message), _) => self.report(&entry, reasons::OWN_NAMESPACE, message).await,
            (None, Ok(pool)) => self.tend(&entry, pool).await,
            (None, Err(undecodable)) => {
                let message = format!(
                    "this version of the program can't read the pool: {}",
                    undecodable.message
                );
                self.report(&entry, reasons::INVALID_SPEC, message).await
            }
        };
        let took = began.elapsed().as_secs_f64();
        self.shared.metrics.pool_pass_took(took);
        next
    }

    fn pause(&self) -> Duration {
        PAUSE.max(self.decision_took * PAUSE_PER_DECISION)
    }
}
