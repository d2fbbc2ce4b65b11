//! Brings VM objects to the pool's target revision: each is read from the API server, merged with what it was
//! made from and is to be made from ([`stamp::update`]), and patched, if it still is as it was read. A VM that
//! turns out to be another one than the plan has seen, or is protected, or runs where it was to be written since it
//! doesn't, is left to the next plan. None is written that would take a disk of somebody else's.

use std::sync::Arc;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::{ApiResource, DynamicObject, Patch};
use serde_json::Value;

use super::Shared;
use super::calls::{CallFailure, Category, Place};
use super::create::effect_of;
use super::drive::{Effect, drive};
use super::member_disks;
use super::metrics::Deed;
use super::revisions;
use super::snapshot::{Remembered, Source};
use super::window::Window;
use crate::api::{annotations, labels};
use crate::cache::{Identity, RevisionEntry};
use crate::clock;
use crate::kubevirt::{self, DiskView, RunStrategy, VmView};
use crate::plan;
use crate::stamp::{
    self, Base, PoolIdentity, PoolInputs, Revision, StampInput, StampMark, UpdateInput,
};

/// A VM that is to be updated.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) is_halted: bool,
    pub(super) keeps_run_strategy: bool,
}

/// What came of one.
#[derive(Debug)]
pub(super) enum Outcome {
    /// It was not updated.
    Failed(CallFailure),
    /// It is not what the plan has seen; this is how it is, unless it is gone.
    Moved(Option<Box<VmView>>),
    /// It is at the target, and was brought there by this call or before.
    Updated { vm: Box<VmView>, changed: bool },
}

/// What came of a pass's updates.
#[derive(Debug, Default)]
pub(super) struct Report {
    /// Names of the VMs that were written.
    pub(super) updated: Vec<String>,
    /// Names and failures.
    pub(super) failed: Vec<(String, CallFailure)>,
    /// Whether something else was learnt that the next plan should know.
    pub(super) learnt: bool,
}

/// The updates of one pool to one revision.
pub(super) struct Updates<'a> {
    pub(super) shared: &'a Shared,
    pub(super) pool: &'a Identity,
    pub(super) source: &'a Source,
}

/// What a VM was made from.
struct Made {
    revision: Arc<RevisionEntry>,
    inputs: PoolInputs,
}

/// An update that was made, and what came of it.
pub(super) type Answer = (Wanted, Outcome);

/// Takes in what came of them, and notes what is to be expected.
pub(super) fn note(
    shared: &Shared,
    pool: &Identity,
    answers: Vec<Answer>,
    remembered: &mut Remembered,
) -> Report {
    let (caches, namespace, now) = (&shared.caches, &pool.namespace, clock::now());
    let mut report = Report::default();
    for (one, outcome) in answers {
        let vm = match outcome {
            Outcome::Failed(failure) => {
                shared.metrics.failed(Deed::Update, failure.category());
                report.failed.push((one.name, failure));
                continue;
            }
            Outcome::Moved(vm) => vm,
            Outcome::Updated { vm, changed } => {
                let expectations = &mut remembered.expectations;
                expectations.expect_update(&vm.uid, &one.name, &vm.resource_version, now);
                if changed {
                    report.updated.push(one.name.clone());
                }
                Some(vm)
            }
        };
        report.learnt = true;
        let live = vm.map(|vm| *vm);
        remembered
            .live
            .keep(caches, namespace, &one.name, live, now);
    }
    report
}

impl Updates<'_> {
    /// Updates `wanted` as long as `goes_on`.
    pub(super) async fn make(
        &self,
        wanted: Vec<Wanted>,
        window: &mut Window,
        goes_on: impl Fn() -> bool,
    ) -> Vec<Answer> {
        drive(
            window,
            wanted,
            |one| async move {
                let outcome = self.update(&one).await;
                (one, outcome)
            },
            |(_, outcome)| match outcome {
                Outcome::Failed(failure) => effect_of(failure),
                Outcome::Moved(_) | Outcome::Updated { .. } => Effect::Succeeded,
            },
            goes_on,
        )
        .await
    }

    async fn update(&self, wanted: &Wanted) -> Outcome {
        let _permit = self.shared.permit().await;
        let object = match self.get_vm(&wanted.name).await {
            Ok(object) => object,
            Err(failure) => return Outcome::Failed(failure),
        };
        let Some((object, vm)) = object.and_then(read) else {
            return Outcome::Moved(None);
        };
        let is_it = vm.uid == wanted.uid
            && vm.is_member_of(&self.pool.uid)
            && vm.deleting_since.is_none()
            && vm.busy.is_none()
            && !vm.is_protected_from("update")
            && (!wanted.is_halted || plan::may_be_halted(&vm));
        let prefix = &self.source.inputs.vm_prefix;
        let Some(ordinal) = stamp::parse_ordinal(prefix, &vm.name).filter(|_| is_it) else {
            return Outcome::Moved(Some(Box::new(vm)));
        };
        let made = match self.made_from(&vm).await {
            Ok(made) => made,
            Err(failure) => return Outcome::Failed(failure),
        };
        let live = serde_json::to_value(&object).unwrap_or_default();
        let patch = self.patch(wanted, &live, &vm, ordinal, made.as_ref());
        if patch.0.is_empty() {
            let vm = Box::new(vm);
            return Outcome::Updated { vm, changed: false };
        }
        if let Some(failure) = self.disk_in_the_way(&live, &vm, &patch).await {
            return Outcome::Failed(failure);
        }
        self.send(wanted, &vm, patch).await
    }

    /// What keeps `patch` from bringing new disk templates: something of their name that isn't the VM's own. The plan
    /// has looked at the caches; this is what the API server says.
    async fn disk_in_the_way(
        &self,
        live: &Value,
        vm: &VmView,
        patch: &json_patch::Patch,
    ) -> Option<CallFailure> {
        let mut after = live.clone();
        json_patch::patch(&mut after, patch).ok()?;
        for disk in member_disks::added(live, &after) {
            let found = futures::try_join!(
                self.get(kubevirt::data_volume(), &disk),
                self.get(ApiResource::erase::<PersistentVolumeClaim>(&()), &disk),
            );
            let (data_volume, claim) = match found {
                Ok(found) => found,
                Err(failure) => return Some(failure),
            };
            let view = |found: DynamicObject| DiskView::read(&found.metadata, "");
            let (data_volume, claim) = (data_volume.and_then(view), claim.and_then(view));
            let taken =
                member_disks::somebody_elses(vm, &disk, data_volume.as_ref(), claim.as_ref());
            if let Some(taken) = taken {
                let reason = format!("{taken} exists already and is not {}'s own", vm.name);
                return Some(CallFailure::Withhold { reason });
            }
        }
        None
    }

    fn patch(
        &self,
        wanted: &Wanted,
        live: &Value,
        vm: &VmView,
        ordinal: u32,
        made: Option<&Made>,
    ) -> json_patch::Patch {
        let base = made.map_or(Base::Unknown, |made| {
            Base::Known(self.input(&made.revision, &made.inputs, ordinal))
        });
        let update = stamp::update(&UpdateInput {
            base,
            target: self.input(&self.source.revision, &self.source.inputs, ordinal),
            live,
            keeps_run_strategy: wanted.keeps_run_strategy && vm.run_strategy != RunStrategy::Halted,
        });
        update.patch
    }

    async fn send(&self, wanted: &Wanted, before: &VmView, patch: json_patch::Patch) -> Outcome {
        let resource = kubevirt::virtual_machine();
        let place = Place {
            resource: &resource,
            namespace: &self.pool.namespace,
            name: &wanted.name,
        };
        let failure = match self.shared.calls.patch(place, &Patch::Json(patch)).await {
            Ok(object) => {
                self.shared.metrics.did(Deed::Update);
                let vm = read(object).map(|(_, vm)| Box::new(vm));
                return vm.map_or(Outcome::Moved(None), |vm| Outcome::Updated {
                    vm,
                    changed: true,
                });
            }
            Err(failure) if failure.is_not_found() => return Outcome::Moved(None),
            Err(failure) => failure,
        };
        // A test of the patch that doesn't hold is a 422, as a webhook's refusal is.
        let may_be_stale = matches!(
            failure.category(),
            Category::Conflict | Category::Invalid | Category::Unanswered
        );
        if !may_be_stale {
            return Outcome::Failed(failure);
        }
        match self.get_vm(&wanted.name).await {
            Ok(None) => Outcome::Moved(None),
            Ok(Some(object)) => match read(object) {
                Some((_, vm)) if vm.resource_version != before.resource_version => {
                    Outcome::Moved(Some(Box::new(vm)))
                }
                _ => Outcome::Failed(failure),
            },
            Err(_) => Outcome::Failed(failure),
        }
    }

    async fn get_vm(&self, name: &str) -> Result<Option<DynamicObject>, CallFailure> {
        self.get(kubevirt::virtual_machine(), name).await
    }

    async fn get(
        &self,
        resource: ApiResource,
        name: &str,
    ) -> Result<Option<DynamicObject>, CallFailure> {
        let place = Place {
            resource: &resource,
            namespace: &self.pool.namespace,
            name,
        };
        self.shared.calls.get(place).await
    }

    /// What the VM was made from; `None` if that can't be known, or it was replaced by a restore since.
    async fn made_from(&self, vm: &VmView) -> Result<Option<Made>, CallFailure> {
        let mark = vm.annotations.get(annotations::STAMP);
        let mark = mark.and_then(|text| StampMark::parse(text));
        let (Some(mark), Some(name)) = (mark, vm.labels.get(labels::REVISION)) else {
            return Ok(None);
        };
        if mark.restored != vm.restored {
            return Ok(None);
        }
        // Whoever puts an older template back leaves the VM's own label as it is.
        let put_back = vm.template_labels.get(labels::REVISION);
        let put_back = put_back.filter(|of_template| *of_template != name);
        let name = put_back.unwrap_or(name);
        let namespace = &self.pool.namespace;
        let revision = match self.shared.caches.revision(namespace, name) {
            Some(revision) => Some(revision),
            None => revisions::read(self.shared, namespace, name)
                .await?
                .map(Arc::new),
        };
        Ok(revision
            .filter(|revision| {
                put_back.is_some()
                    || stamp::stamp_hash(&revision.content_hash, &mark.inputs) == mark.hash
            })
            .map(|revision| Made {
                revision,
                inputs: mark.inputs,
            }))
    }

    fn input<'a>(
        &'a self,
        revision: &'a RevisionEntry,
        inputs: &'a PoolInputs,
        ordinal: u32,
    ) -> StampInput<'a> {
        StampInput {
            namespace: &self.pool.namespace,
            pool: PoolIdentity {
                name: &self.pool.name,
                uid: &self.pool.uid,
            },
            config: &revision.config,
            revision: Revision {
                name: &revision.id.name,
                content_hash: &revision.content_hash,
                spec: &revision.spec,
            },
            inputs,
            ordinal,
        }
    }
}

fn read(object: DynamicObject) -> Option<(DynamicObject, VmView)> {
    let vm = VmView::read(&object)?;
    Some((object, vm))
}
