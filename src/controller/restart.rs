//! Restarts instances through KubeVirt's `restart` subresource, which also brings back VMs that a mere delete of
//! the instance would leave off (`Manual`, `RerunOnFailure`); only `Once` has no other way than that delete. The
//! subresource takes no precondition, so VM and instance are read right before: an instance that is gone, going
//! or another one has been restarted already, and whom its user protects, what was written anew, or is Ready where it was
//! chosen for not being so, is left to the next plan.

use std::collections::BTreeSet;

use super::Shared;
use super::calls::{CallFailure, Category, Place};
use super::create::effect_of;
use super::drive::{Effect, drive};
use super::metrics::Deed;
use super::snapshot::Remembered;
use super::window::Window;
use crate::api::annotations;
use crate::cache::Identity;
use crate::clock;
use crate::kubevirt::{self, Phase, RunStrategy, VmView, VmiView};

/// An instance that is to be restarted.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) vmi_uid: String,
    pub(super) by_delete: bool,
    pub(super) stamp: Option<String>,
    pub(super) while_down: bool,
}

/// What came of one.
#[derive(Debug)]
pub(super) enum Outcome {
    /// It was not restarted.
    Failed(CallFailure),
    /// Its VM is not what the plan has seen; this is how it is, unless it is gone.
    Moved(Option<Box<VmView>>),
    /// It ends, by this call or by somebody else's.
    Restarted { by_us: bool },
    /// The instance must not be restarted now; its next event brings the next plan.
    Waits,
}

/// What came of a pass's restarts.
#[derive(Debug, Default)]
pub(super) struct Report {
    /// Names of the VMs that were restarted.
    pub(super) restarted: Vec<String>,
    /// Names and failures.
    pub(super) failed: Vec<(String, CallFailure)>,
    /// Whether something else was learnt that the next plan should know.
    pub(super) learnt: bool,
}

/// Notes that these are about to be restarted: an answer can be lost, and the caches be faster than it.
pub(super) fn expect(wanted: &[Wanted], remembered: &mut Remembered) {
    let now = clock::now();
    for one in wanted {
        let expectations = &mut remembered.expectations;
        expectations.expect_restart(&one.vmi_uid, &one.name, now);
    }
}

/// Restarts `wanted`, which are [expected](expect), as long as `goes_on`. Those that were not begun have no answer.
pub(super) async fn make<'w>(
    shared: &Shared,
    pool: &Identity,
    wanted: &'w [Wanted],
    window: &mut Window,
    goes_on: impl Fn() -> bool,
) -> Vec<(&'w Wanted, Outcome)> {
    drive(
        window,
        wanted,
        |one| async move { (one, restart(shared, pool, one).await) },
        |(_, outcome)| match outcome {
            Outcome::Failed(failure) => effect_of_restart(failure),
            Outcome::Moved(_) | Outcome::Restarted { .. } | Outcome::Waits => Effect::Succeeded,
        },
        goes_on,
    )
    .await
}

/// Takes in what came of them; the others are expected no more.
pub(super) fn note(
    shared: &Shared,
    pool: &Identity,
    wanted: &[Wanted],
    answers: Vec<(&Wanted, Outcome)>,
    remembered: &mut Remembered,
) -> Report {
    let now = clock::now();
    let mut report = Report::default();
    let mut open: BTreeSet<&str> = wanted.iter().map(|one| one.vmi_uid.as_str()).collect();
    for (one, outcome) in answers {
        match outcome {
            Outcome::Failed(failure) => {
                shared.metrics.failed(Deed::Restart, failure.category());
                report.failed.push((one.name.clone(), failure));
            }
            Outcome::Moved(vm) => {
                report.learnt = true;
                let (live, caches) = (vm.map(|vm| *vm), &shared.caches);
                remembered
                    .live
                    .keep(caches, &pool.namespace, &one.name, live, now);
            }
            Outcome::Restarted { by_us } => {
                open.remove(one.vmi_uid.as_str());
                report.learnt = true;
                if by_us {
                    report.restarted.push(one.name.clone());
                }
            }
            Outcome::Waits => {}
        }
    }
    for vmi_uid in open {
        remembered.expectations.undo_restart(vmi_uid);
    }
    report
}

/// Whether a failure is that of its VM alone. With KubeVirt's API in trouble nobody else is stopped: whether
/// they would be started again isn't known.
fn effect_of_restart(failure: &CallFailure) -> Effect {
    match failure.category() {
        Category::Server | Category::Unanswered => Effect::Refused,
        _ => effect_of(failure),
    }
}

async fn restart(shared: &Shared, pool: &Identity, wanted: &Wanted) -> Outcome {
    let _permit = shared.permit().await;
    let version = match look(shared, pool, wanted).await {
        Ok(Look::AsPlanned(version)) => version,
        Ok(Look::Ends) => return Outcome::Restarted { by_us: false },
        Ok(Look::Moved(vm)) => return Outcome::Moved(vm),
        Ok(Look::Waits) => return Outcome::Waits,
        Err(failure) => return Outcome::Failed(failure),
    };
    let failure = match send(shared, pool, wanted, version.as_deref()).await {
        Ok(()) => {
            shared.metrics.did(Deed::Restart);
            return Outcome::Restarted { by_us: true };
        }
        Err(failure) => failure,
    };
    // Somebody else may have been faster, and an answer may have been lost.
    match look(shared, pool, wanted).await {
        Ok(Look::Ends) => Outcome::Restarted { by_us: false },
        Ok(Look::Moved(vm)) => Outcome::Moved(vm),
        Ok(Look::Waits) => Outcome::Waits,
        // It has changed meanwhile: the cache will show how.
        Ok(Look::AsPlanned(_)) if wanted.by_delete && failure.is_conflict() => Outcome::Waits,
        Ok(Look::AsPlanned(_)) | Err(_) => Outcome::Failed(failure),
    }
}

/// How VM and instance are now.
enum Look {
    /// As the plan has seen them; the instance is in this version.
    AsPlanned(Option<String>),
    /// The instance is gone or going, or is asked to.
    Ends,
    /// The VM is another one, or must not be restarted now.
    Moved(Option<Box<VmView>>),
    /// The instance must not be restarted now, and the cache doesn't show it yet.
    Waits,
}

async fn look(shared: &Shared, pool: &Identity, wanted: &Wanted) -> Result<Look, CallFailure> {
    let (vm, vmi) = (
        kubevirt::virtual_machine(),
        kubevirt::virtual_machine_instance(),
    );
    let place = |resource| Place {
        resource,
        namespace: &pool.namespace,
        name: &wanted.name,
    };
    let (vm, vmi) = tokio::join!(shared.calls.get(place(&vm)), shared.calls.get(place(&vmi)));
    let Some(vm) = vm?.as_ref().and_then(VmView::read) else {
        return Ok(Look::Moved(None));
    };
    let is_it = vm.uid == wanted.uid
        && vm.is_member_of(&pool.uid)
        && vm.deleting_since.is_none()
        && vm.busy.is_none()
        && !vm.is_protected_from("update")
        && vm.annotations.get(annotations::STAMP) == wanted.stamp.as_ref()
        && vm.run_strategy != RunStrategy::Halted
        && (vm.run_strategy == RunStrategy::Once) == wanted.by_delete;
    if !is_it {
        return Ok(Look::Moved(Some(Box::new(vm))));
    }
    let vmi = vmi?;
    let version = vmi
        .as_ref()
        .and_then(|vmi| vmi.metadata.resource_version.clone());
    let vmi = vmi.as_ref().and_then(VmiView::read);
    let runs = vmi.filter(|vmi| vmi.uid == wanted.vmi_uid && !vmi.deleting);
    Ok(match runs {
        None => Look::Ends,
        Some(_) if vm.has_requests => Look::Ends,
        // A guest that ended by itself is KubeVirt's to start anew, or not; and with its node lost it can't end.
        Some(vmi) if vmi.phase.is_final() || vmi.phase == Phase::Unknown => Look::Waits,
        Some(vmi) if vmi.paused || vmi.busy.is_some() => Look::Waits,
        Some(vmi) if wanted.while_down && vmi.is_ready() => Look::Waits,
        Some(_) => Look::AsPlanned(version),
    })
}

async fn send(
    shared: &Shared,
    pool: &Identity,
    wanted: &Wanted,
    version: Option<&str>,
) -> Result<(), CallFailure> {
    if !wanted.by_delete {
        let path = kubevirt::restart_path(&pool.namespace, &wanted.name);
        return shared.calls.put(&path).await;
    }
    let resource = kubevirt::virtual_machine_instance();
    let place = Place {
        resource: &resource,
        namespace: &pool.namespace,
        name: &wanted.name,
    };
    shared.calls.delete(place, &wanted.vmi_uid, version).await
}
