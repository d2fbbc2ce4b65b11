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
        let owned = match source {
            None => None,
            Some(source) => Some(self.co_own(pool, source).await.map(|()| source)),
        };
        restart::expect(&restarts, &mut self.remembered);
        let (shared, goes_on) = (&*self.shared, self.goes_on(pool));
        let (of_updates, of_restarts) = (self.updates.begin(), self.restarts.begin());
        let update_them = async {
            let source = match owned? {
                Ok(source) => source,
                Err(failure) => return Some(Err(failure)),
            };
            let all = Updates {
                shared,
                pool,
                source,
            };
            Some(Ok(all.make(updates, of_updates, &goes_on).await))
        };
        let restart_them = restart::make(shared, pool, &restarts, of_restarts, &goes_on);
        let (updated, restarted) = tokio::join!(update_them, restart_them);
        let restarted = restart::note(shared, pool, &restarts, restarted, &mut self.remembered);
        if let (Some(source), Some(updated)) = (source, updated) {
            let report = match updated {
                Ok(answers) => update::note(shared, pool, answers, &mut self.remembered),
                Err(failure) => update::Report {
                    failed: vec![(source.revision.id.name.clone(), failure)],
                    ..update::Report::default()
                },
            };
            self.end_updates(report, applied);
        }
        if !restarts.is_empty() {
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
