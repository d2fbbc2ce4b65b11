//! Carries out what a plan says of existing members that are to follow another revision: updates and restarts,
//! at the same time, since they are never of the same member.

use super::apply::Applied;
use super::pool_task::PoolTask;
use super::snapshot::Source;
use super::update::Updates;
use super::{restart, update};
use crate::api::conditions::reasons;
use crate::cache::Identity;
use crate::clock;
use crate::plan::Kind;

impl PoolTask {
    pub(super) async fn follow(
        &mut self,
        pool: &Identity,
        source: Option<&Source>,
        updates: Vec<update::Wanted>,
        restarts: Vec<restart::Wanted>,
        applied: &mut Applied,
    ) {
        let source = source.filter(|_| !updates.is_empty());
        if source.is_none() && restarts.is_empty() {
            return;
        }
        // A config that is deleted must not take from its members what they are made from.
        let mut updated = update::Report::default();
        let mut owned = source;
        if let Some(of) = source
            && let Err(failure) = self.co_own(pool, of).await
        {
            updated.failed = vec![(of.revision.id.name.clone(), failure)];
            owned = None;
        }
        restart::expect(&restarts, &mut self.remembered);
        let (goes_on, restarts_go_on) = (self.goes_on(pool), self.goes_on(pool));
        let (shared, tried) = (&*self.shared, !restarts.is_empty());
        let (window, of_restarts) = (self.updates.begin(), self.restarts.begin());
        let update_them = async {
            let source = owned?;
            let all = Updates {
                shared,
                pool,
                source,
            };
            Some(all.make(updates, window, goes_on).await)
        };
        let restart_them = restart::make(shared, pool, restarts, of_restarts, restarts_go_on);
        let (update_answers, restart_answers) = tokio::join!(update_them, restart_them);
        if let Some(answers) = update_answers {
            updated = update::note(shared, pool, answers, &mut self.remembered);
        }
        if source.is_some() {
            self.end_updates(updated, applied);
        }
        if tried {
            let shared = std::sync::Arc::clone(&self.shared);
            let restarted = restart::note(&shared, pool, restart_answers, &mut self.remembered);
            self.end_restarts(restarted, applied);
        }
        let (updates, restarts) = (self.updates.failed(), self.restarts.failed());
        self.remembered.failed_updates = updates.union(restarts).cloned().collect();
    }

    fn end_updates(&mut self, report: update::Report, applied: &mut Applied) {
        applied.tried.push(Kind::Update);
        applied.moved |= report.learnt;
        let succeeded = !report.updated.is_empty();
        applied.did(reasons::UPDATED, "updated", report.updated);
        let failure = self
            .updates
            .end(&report.failed, succeeded, Kind::Update, clock::now());
        applied.fail(Kind::Update, failure);
    }

    fn end_restarts(&mut self, report: restart::Report, applied: &mut Applied) {
        applied.tried.push(Kind::Restart);
        applied.moved |= report.learnt;
        let succeeded = !report.restarted.is_empty();
        applied.did(reasons::RESTARTED, "restarted", report.restarted);
        let failure = self
            .restarts
            .end(&report.failed, succeeded, Kind::Restart, clock::now());
        applied.fail(Kind::Restart, failure);
    }
}
