//! Carries out what the plan says, kind by kind, and works out what the next plan is to know of it. Each deed can
//! fail without the others; what failed comes last the next time, so that one VM that can't be made holds up no
//! other.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use super::calls::{CallFailure, Category};
use super::create::Creates;
use super::deeds::Deeds;
use super::delete::{self, Victim};
use super::events::Done;
use super::metrics::Deed;
use super::pool_task::PoolTask;
use super::release::release;
use super::revisions;
use super::snapshot::{Source, View, intent_of};
use super::window::{Backoff, Window};
use crate::api::POOL_KIND;
use crate::api::conditions::reasons;
use crate::cache::Identity;
use crate::clock;
use crate::plan::{Action, Failure, Kind, Note};
use crate::stamp;

/// No new call of a kind after so long: what the pool should be may have changed since the plan, and its
/// status is due.
const BUDGET: Duration = Duration::from_secs(5);

/// So much of a failure's text is told.
const LONGEST_FAILURE: usize = 500;

/// When a namespace that is being deleted is tried again: it may be, for a finalizer, for days, and will not
/// take a VM before it has gone and been made anew.
const NAMESPACE_PATIENCE: SignedDuration = SignedDuration::from_mins(10);

/// A window that has not been used for so long starts small again.
const WINDOW_FORGOTTEN: Duration = Duration::from_secs(10);

/// A failure after so long without any deed of its kind is a new one: longer than any delay.
const FAILURES_FORGOTTEN: Duration = Duration::from_mins(30);

/// Pace and failures of one kind of deed.
#[derive(Debug)]
pub(super) struct Pace {
    window: Window,
    used: Instant,
    backoff: Backoff,
    /// Names of the VMs with which it failed last.
    pub(super) failed: BTreeSet<String>,
}

impl Pace {
    pub(super) fn new(most_at_once: usize) -> Self {
        Self {
            window: Window::new(most_at_once),
            used: Instant::now(),
            backoff: Backoff::default(),
            failed: BTreeSet::new(),
        }
    }

    pub(super) fn begin(&mut self) -> &mut Window {
        if self.used.elapsed() > WINDOW_FORGOTTEN {
            self.window.shrink();
        }
        &mut self.window
    }

    /// Names of the VMs with which it failed last.
    pub(super) fn failed(&self) -> &BTreeSet<String> {
        &self.failed
    }

    /// Takes in how a pass went; says what the next plan is to know of it. A pass in which nothing was done, be it
    /// that nothing was begun, shows nothing: what fails next waits longer still.
    pub(super) fn end(
        &mut self,
        failed: &[(String, CallFailure)],
        succeeded: bool,
        kind: Kind,
        now: Timestamp,
    ) -> Option<Failure> {
        if self.used.elapsed() > FAILURES_FORGOTTEN {
            self.backoff.reset();
        }
        self.used = Instant::now();
        self.failed = failed.iter().map(|(name, _)| name.clone()).collect();
        let Some((name, first)) = failed.first() else {
            if succeeded {
                self.backoff.reset();
            }
            return None;
        };
        if failed
            .iter()
            .any(|(_, f)| f.category() == Category::Terminating)
        {
            // One condition, told once, whichever VM met with it: the pool itself is about to go.
            return Some(Failure {
                reason: reasons::NAMESPACE_TERMINATING,
                message: "the namespace is being deleted: no VM can be made".to_owned(),
                retry_at: now
                    .checked_add(NAMESPACE_PATIENCE)
                    .unwrap_or(Timestamp::MAX),
            });
        }
        let asked = failed.iter().filter_map(|(_, f)| f.retry_after()).max();
        let delay = self.backoff.next(asked, succeeded);
        // What else is throttled keeps its reason, which says what can't be done.
        let is_for_all = kind == Kind::Create
            && failed
                .iter()
                .any(|(_, f)| matches!(f.category(), Category::Quota | Category::Throttled));
        let more = match failed.len() - 1 {
            0 => String::new(),
            more => format!(" (and {more} more VMs)"),
        };
        let delay = SignedDuration::try_from(delay).unwrap_or(SignedDuration::MAX);
        Some(Failure {
            reason: if is_for_all {
                reasons::QUOTA
            } else {
                kind.failed()
            },
            message: format!("{name}: {}{more}", shortened(&first.to_string())),
            retry_at: now.checked_add(delay).unwrap_or(Timestamp::MAX),
        })
    }
}

/// At most [`LONGEST_FAILURE`] characters of it: a refusal may quote a whole spec, which has no place in a status
/// or a log.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(LONGEST_FAILURE) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

/// What came of a plan's actions.
#[derive(Debug, Default)]
pub(super) struct Applied {
    /// Whether something was done or learnt, so that the next pass has something new to go by.
    pub(super) moved: bool,
    /// What failed, in the order of the deeds; one of a kind.
    pub(super) failures: Vec<(Kind, Failure)>,
    /// What kinds of deed were tried.
    pub(super) tried: Vec<Kind>,
    /// What was done, to be told.
    pub(super) done: Vec<Done>,
    /// What else is to be told.
    pub(super) notes: Vec<Note>,
}

impl Applied {
    /// Notes that this was done to these VMs, if there are any.
    pub(super) fn did(&mut self, reason: &'static str, verb: &'static str, names: Vec<String>) {
        if names.is_empty() {
            return;
        }
        self.moved = true;
        self.done.push(Done {
            reason,
            verb,
            names,
        });
    }

    pub(super) fn fail(&mut self, kind: Kind, failure: Option<Failure>) {
        if let Some(failure) = failure {
            self.notes.push(Note {
                warning: true,
                reason: failure.reason,
                message: failure.message.clone(),
            });
            self.failures.push((kind, failure));
        }
    }
}

impl PoolTask {
    /// Carries out `actions`.
    pub(super) async fn apply(
        &mut self,
        pool: &Identity,
        view: &View,
        actions: Vec<Action>,
    ) -> Applied {
        let Deeds {
            releases,
            creates,
            deletes,
            detaches,
            cleared,
            updates,
            restarts,
        } = Deeds::of(actions);
        let mut applied = Applied::default();
        self.remembered.intent.clone_from(&view.intent);
        if !detaches.is_empty() {
            self.detach_all(pool, detaches, &mut applied).await;
        }
        if !releases.is_empty() {
            self.release_all(pool, releases, &mut applied).await;
        }
        if let (Some(source), false) = (&view.source, creates.is_empty()) {
            self.create_all(pool, source, creates, &mut applied).await;
        }
        if !deletes.is_empty() {
            self.delete_all(pool, view, deletes, &mut applied).await;
        }
        if !cleared.is_empty() {
            self.clear_intents(pool, &cleared, &mut applied).await;
        }
        self.follow(pool, view.source.as_ref(), updates, restarts, &mut applied)
            .await;
        applied
    }

    async fn create_all(
        &mut self,
        pool: &Identity,
        source: &Source,
        mut ordinals: Vec<u32>,
        applied: &mut Applied,
    ) {
        applied.tried.push(Kind::Create);
        if let Err(failure) = self.co_own(pool, source).await {
            let failed = [(source.revision.id.name.clone(), failure)];
            let failure = self.creates.end(&failed, false, Kind::Create, clock::now());
            applied.fail(Kind::Create, failure);
            return;
        }
        let prefix = &source.inputs.vm_prefix;
        let failed = &self.creates.failed;
        ordinals.sort_by_key(|ordinal| failed.contains(&stamp::vm_name(prefix, *ordinal)));
        let goes_on = self.goes_on(pool);
        let creates = Creates {
            shared: &self.shared,
            pool,
            source,
        };
        let report = creates
            .run(
                ordinals,
                self.creates.begin(),
                &mut self.remembered,
                goes_on,
            )
            .await;
        applied.moved |= report.learnt;
        let succeeded = !report.created.is_empty();
        applied.did(reasons::CREATED, "created", report.created);
        let failure = self
            .creates
            .end(&report.failed, succeeded, Kind::Create, clock::now());
        applied.fail(Kind::Create, failure);
    }

    /// Makes the pool an owner of the revision, before anything is made from it: a config that is deleted
    /// then takes nothing from the pool.
    pub(super) async fn co_own(
        &mut self,
        pool: &Identity,
        source: &Source,
    ) -> Result<(), CallFailure> {
        let revision = &source.revision;
        let owned = self.co_owned.as_ref() == Some(&revision.id.uid);
        if !owned && !revision.is_owned_by(&pool.uid) {
            let owner = revisions::owner(POOL_KIND, pool);
            revisions::add_owner(&self.shared, &revision.id, owner).await?;
        }
        self.co_owned = Some(revision.id.uid.clone());
        Ok(())
    }

    async fn delete_all(
        &mut self,
        pool: &Identity,
        view: &View,
        mut victims: Vec<Victim>,
        applied: &mut Applied,
    ) {
        applied.tried.push(Kind::Delete);
        match self.are_there(pool, &view.snapshot).await {
            Ok(true) => {}
            Ok(false) => {
                // Who goes, if anybody, is decided anew.
                applied.moved = true;
                return;
            }
            Err(failure) => {
                let failed = [(pool.name.clone(), failure)];
                let failure = self.deletes.end(&failed, false, Kind::Delete, clock::now());
                applied.fail(Kind::Delete, failure);
                return;
            }
        }
        let failed = &self.deletes.failed;
        victims.sort_by_key(|victim| failed.contains(&victim.name));
        let (goes_on, stands) = (self.goes_on(pool), self.stands(pool));
        let deletes = delete::Deletes {
            shared: &self.shared,
            namespace: &pool.namespace,
            stands: &stands,
        };
        let window = self.deletes.begin();
        let report = deletes
            .run(victims, window, &mut self.remembered, goes_on)
            .await;
        applied.moved |= report.learnt;
        let succeeded = !report.deleted.is_empty();
        applied.did(reasons::DELETED, "deleted", report.deleted);
        let failure = self
            .deletes
            .end(&report.failed, succeeded, Kind::Delete, clock::now());
        applied.fail(Kind::Delete, failure);
    }

    /// One after the other: they are few, and nobody waits for them.
    async fn release_all(
        &mut self,
        pool: &Identity,
        mut vms: Vec<(String, String)>,
        applied: &mut Applied,
    ) {
        applied.tried.push(Kind::Release);
        let before = &self.releases.failed;
        vms.sort_by_key(|(name, _)| before.contains(name));
        let goes_on = self.goes_on(pool);
        let (mut released, mut failed) = (Vec::new(), Vec::new());
        for (name, uid) in vms {
            if !goes_on() {
                break;
            }
            match release(&self.shared, &pool.namespace, &name, &uid).await {
                Ok(outcome) => {
                    applied.moved = true;
                    let (caches, now) = (&self.shared.caches, clock::now());
                    self.remembered
                        .live
                        .keep(caches, &pool.namespace, &name, outcome.vm, now);
                    if outcome.changed {
                        released.push(name);
                    }
                }
                Err(failure) => {
                    self.shared
                        .metrics
                        .failed(Deed::Release, failure.category());
                    failed.push((name, failure));
                }
            }
        }
        let succeeded = !released.is_empty();
        applied.did(reasons::RELEASED, "released", released);
        let failure = self
            .releases
            .end(&failed, succeeded, Kind::Release, clock::now());
        applied.fail(Kind::Release, failure);
    }

    /// Whether another call may be begun: not when the plan no longer [stands](Self::stands), or the pass has
    /// taken long enough.
    pub(super) fn goes_on(&self, pool: &Identity) -> impl Fn() -> bool + use<> {
        let stands = self.stands(pool);
        let deadline = Instant::now() + BUDGET;
        move || Instant::now() < deadline && stands()
    }

    /// Whether the plan may still be carried out: not when the process is about to end or leads no more, or
    /// the pool, or what was accepted for it, has changed since. An annotation leaves the generation as it
    /// is.
    pub(super) fn stands(&self, pool: &Identity) -> impl Fn() -> bool + use<> {
        let shared = std::sync::Arc::clone(&self.shared);
        let pool = pool.clone();
        let intent = self.remembered.intent.clone();
        move || {
            !shared.shutdown.is_cancelled()
                && shared.calls.may_write()
                && shared
                    .caches
                    .pool(&pool.namespace, &pool.name)
                    .is_some_and(|now| {
                        let asked = now.object.as_ref().ok().and_then(|pool| intent_of(pool));
                        now.id.uid == pool.uid
                            && now.id.generation == pool.generation
                            && !now.id.deleting
                            && asked == intent.as_deref()
                    })
        }
    }
}
