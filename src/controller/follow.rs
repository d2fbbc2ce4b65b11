//! Carries out what a plan says of existing members that are to follow another revision: updates, then
//! restarts.

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
    pub(super) async fn update_all(
        &mut self,
        pool: &Identity,
        source: &Source,
        wanted: Vec<update::Wanted>,
        applied: &mut Applied,
    ) {
        applied.tried.push(Kind::Update);
        // A config that is deleted must not take from its members what they are made from.
        let mut report = update::Report::default();
        if let Err(failure) = self.co_own(pool, source).await {
            report.failed = vec![(source.revision.id.name.clone(), failure)];
        } else {
            let goes_on = self.goes_on(pool);
            let updates = Updates {
                shared: &self.shared,
                pool,
                source,
            };
            let window = self.updates.begin();
            report = updates
                .run(wanted, window, &mut self.remembered, goes_on)
                .await;
        }
        applied.moved |= report.learnt;
        let succeeded = !report.updated.is_empty();
        applied.note(reasons::UPDATED, "updated", &mut report.updated);
        let failure = self
            .updates
            .end(&report.failed, succeeded, Kind::Update, clock::now());
        applied.fail(Kind::Update, failure);
        self.note_failed_updates();
    }

    pub(super) async fn restart_all(
        &mut self,
        pool: &Identity,
        wanted: Vec<restart::Wanted>,
        applied: &mut Applied,
    ) {
        applied.tried.push(Kind::Restart);
        let goes_on = self.goes_on(pool);
        let window = self.restarts.begin();
        let mut report = restart::run(
            &self.shared,
            pool,
            wanted,
            window,
            &mut self.remembered,
            goes_on,
        )
        .await;
        applied.moved |= report.learnt;
        let succeeded = !report.restarted.is_empty();
        applied.note(reasons::RESTARTED, "restarted", &mut report.restarted);
        let failure = self
            .restarts
            .end(&report.failed, succeeded, Kind::Restart, clock::now());
        applied.fail(Kind::Restart, failure);
        self.note_failed_updates();
    }

    fn note_failed_updates(&mut self) {
        let (updates, restarts) = (self.updates.failed(), self.restarts.failed());
        self.remembered.failed_updates = updates.union(restarts).cloned().collect();
    }
}
