//! Deletes VMs in the background, each only if it is still the object that the plan has seen. A precondition
//! that doesn't hold is no failure: the VM is read, and the next plan decides anew. Just before each is sent,
//! however long it waited for its turn, the plan must still stand: a VM may have been accepted to leave.

use super::Shared;
use super::calls::{CallFailure, Category, Place};
use super::create::effect_of;
use super::drive::{Effect, drive};
use super::metrics::Deed;
use super::snapshot::Remembered;
use super::window::Window;
use crate::clock;
use crate::kubevirt::{self, VmView};

/// A VM that is to go.
#[derive(Clone, Debug)]
pub(super) struct Victim {
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) resource_version: String,
}

#[derive(Debug)]
enum Outcome {
    /// It has moved on; this is how it is now.
    Changed(Box<VmView>),
    /// It is going away, or gone.
    Deleted,
    /// The plan didn't stand any more when its turn came: nothing was asked for.
    Unsent,
    /// It was not deleted.
    Failed(CallFailure),
}

/// What came of a pass's deletes.
#[derive(Debug, Default)]
pub(super) struct Report {
    /// Names of the VMs that are going away now.
    pub(super) deleted: Vec<String>,
    /// Names and failures.
    pub(super) failed: Vec<(String, CallFailure)>,
    /// Whether something else was learnt that the next plan should know.
    pub(super) learnt: bool,
}

/// A pass's deletes.
pub(super) struct Deletes<'a, S> {
    pub(super) shared: &'a Shared,
    pub(super) namespace: &'a str,
    /// Whether the plan still holds.
    pub(super) stands: &'a S,
}

impl<S: Fn() -> bool> Deletes<'_, S> {
    /// Deletes `victims` as long as `goes_on`, and notes what is to be expected.
    pub(super) async fn run(
        &self,
        victims: Vec<Victim>,
        window: &mut Window,
        remembered: &mut Remembered,
        goes_on: impl Fn() -> bool,
    ) -> Report {
        let (shared, namespace) = (self.shared, self.namespace);
        let now = clock::now();
        let expectations = &mut remembered.expectations;
        for victim in &victims {
            expectations.expect_delete(&victim.uid, &victim.name, now);
        }
        let answers = drive(
            window,
            victims.clone(),
            |victim| async move {
                let outcome = self.delete(&victim).await;
                (victim, outcome)
            },
            |(_, outcome)| match outcome {
                Outcome::Changed(_) | Outcome::Deleted | Outcome::Unsent => Effect::Succeeded,
                Outcome::Failed(failure) => effect_of(failure),
            },
            goes_on,
        )
        .await;

        let mut report = Report::default();
        let mut open: std::collections::BTreeSet<String> =
            victims.into_iter().map(|victim| victim.uid).collect();
        for (victim, outcome) in answers {
            match outcome {
                Outcome::Changed(vm) => {
                    report.learnt = true;
                    remembered
                        .live
                        .keep(&shared.caches, namespace, &victim.name, Some(*vm), now);
                }
                Outcome::Unsent => {}
                Outcome::Deleted => {
                    open.remove(&victim.uid);
                    report.deleted.push(victim.name);
                }
                Outcome::Failed(failure) => {
                    shared.metrics.failed(Deed::Delete, failure.category());
                    report.failed.push((victim.name, failure));
                }
            }
        }
        for uid in open {
            remembered.expectations.undo_delete(&uid);
        }
        report
    }

    async fn delete(&self, victim: &Victim) -> Outcome {
        let (shared, namespace) = (self.shared, self.namespace);
        let _permit = shared.permit().await;
        if !(self.stands)() {
            return Outcome::Unsent;
        }
        let resource = kubevirt::virtual_machine();
        let place = Place {
            resource: &resource,
            namespace,
            name: &victim.name,
        };
        let answer = shared
            .calls
            .delete(place, &victim.uid, Some(&victim.resource_version))
            .await;
        let failure = match answer {
            Ok(()) => {
                shared.metrics.did(Deed::Delete);
                return Outcome::Deleted;
            }
            Err(failure) if failure.is_not_found() => return Outcome::Deleted,
            Err(failure) => failure,
        };
        if !matches!(
            failure.category(),
            Category::Conflict | Category::Unanswered
        ) {
            return Outcome::Failed(failure);
        }
        match shared.calls.get(place).await {
            Ok(None) => Outcome::Deleted,
            Ok(Some(object)) => match VmView::read(&object) {
                Some(vm) if vm.uid != victim.uid || vm.deleting_since.is_some() => Outcome::Deleted,
                Some(vm) if failure.is_conflict() => Outcome::Changed(Box::new(vm)),
                Some(_) | None => Outcome::Failed(failure),
            },
            Err(_) => Outcome::Failed(failure),
        }
    }
}
