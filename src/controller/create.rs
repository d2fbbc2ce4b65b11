//! Creates VMs: one write each, the whole stamped object. An answer that leaves it open whether the VM is
//! there, and a name that is in use, are settled by looking at the VM; only the UID in its controller
//! reference says whose it is.

use kube::core::Status;
use kube::core::response::reason;
use serde_json::Value;

use super::Shared;
use super::calls::{CallFailure, Category, Place};
use super::drive::{Effect, drive};
use super::metrics::Deed;
use super::snapshot::{Remembered, Source};
use super::window::Window;
use crate::cache::Identity;
use crate::clock;
use crate::kubevirt::{self, Owner, VmView};
use crate::stamp::{self, PoolIdentity, Revision, StampInput};

/// What became of one create.
#[derive(Debug)]
enum Outcome {
    /// The VM is there and this pool's.
    Created { uid: String, version: String },
    /// It was created, and admission took this pool off it: it was deleted again.
    Disowned,
    /// It was not created.
    Failed(CallFailure),
    /// The name was in use, and is not any more.
    Gone,
    /// The name is in use by this VM, which is somebody else's or going away.
    InUse(Box<VmView>),
}

/// What came of a pass's creates.
#[derive(Debug, Default)]
pub(super) struct Report {
    /// Names of the VMs that are there now.
    pub(super) created: Vec<String>,
    /// Names and failures.
    pub(super) failed: Vec<(String, CallFailure)>,
    /// Whether something else was learnt that the next plan should know.
    pub(super) learnt: bool,
}

/// The creates of one pool from one revision.
pub(super) struct Creates<'a> {
    pub(super) shared: &'a Shared,
    pub(super) pool: &'a Identity,
    pub(super) source: &'a Source,
}

impl Creates<'_> {
    /// Creates the VMs with these ordinals, as long as `goes_on`, and notes what is to be expected.
    pub(super) async fn run(
        &self,
        ordinals: Vec<u32>,
        window: &mut Window,
        remembered: &mut Remembered,
        goes_on: impl Fn() -> bool,
    ) -> Report {
        let now = clock::now();
        for ordinal in &ordinals {
            let name = self.name(*ordinal);
            remembered.expectations.expect_create(*ordinal, &name, now);
        }
        let answers = drive(
            window,
            ordinals.iter().copied(),
            |ordinal| async move { (ordinal, self.create(ordinal).await) },
            |(_, outcome)| effect(outcome),
            goes_on,
        )
        .await;

        let mut report = Report::default();
        let mut open: std::collections::BTreeSet<u32> = ordinals.into_iter().collect();
        for (ordinal, outcome) in answers {
            let name = self.name(ordinal);
            match outcome {
                Outcome::Created { uid, version } => {
                    open.remove(&ordinal);
                    remembered.expectations.created(ordinal, &uid, &version);
                    report.created.push(name);
                }
                Outcome::Failed(failure) => {
                    self.shared.metrics.failed(Deed::Create, failure.category());
                    report.failed.push((name, failure));
                }
                Outcome::Disowned => {
                    let failure = disowned(&name);
                    self.shared.metrics.failed(Deed::Create, failure.category());
                    report.failed.push((name, failure));
                }
                Outcome::Gone => report.learnt = true,
                Outcome::InUse(vm) => {
                    report.learnt = true;
                    let (caches, namespace) = (&self.shared.caches, &self.pool.namespace);
                    remembered
                        .live
                        .keep(caches, namespace, &name, Some(*vm), clock::now());
                }
            }
        }
        for ordinal in open {
            remembered.expectations.undo_create(ordinal);
        }
        report
    }

    fn name(&self, ordinal: u32) -> String {
        stamp::vm_name(&self.source.inputs.vm_prefix, ordinal)
    }

    async fn create(&self, ordinal: u32) -> Outcome {
        let _permit = self.shared.permit().await;
        let vm = self.stamp(ordinal);
        let resource = kubevirt::virtual_machine();
        let namespace = &self.pool.namespace;
        match self.shared.calls.create(&resource, namespace, &vm).await {
            Ok(created) => {
                self.shared.metrics.did(Deed::Create);
                let owner = Owner::controller_of(&created.metadata);
                let uid = created.metadata.uid.unwrap_or_default();
                if !owner.is_some_and(|owner| owner.is_pool() && owner.uid == self.pool.uid) {
                    return self.take_back(&self.name(ordinal), &uid).await;
                }
                Outcome::Created {
                    uid,
                    version: created.metadata.resource_version.unwrap_or_default(),
                }
            }
            Err(failure) if failure.is_already_exists() || is_open(&failure) => {
                self.settle(&self.name(ordinal), failure).await
            }
            Err(failure) => Outcome::Failed(failure),
        }
    }

    fn stamp(&self, ordinal: u32) -> Value {
        let revision = &self.source.revision;
        stamp::stamp(&StampInput {
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
            inputs: &self.source.inputs,
            ordinal,
        })
    }

    /// Deletes a VM that this very call made and that is not this pool's. Left there, its number would be
    /// taken and the next one tried, without end.
    async fn take_back(&self, name: &str, uid: &str) -> Outcome {
        let resource = kubevirt::virtual_machine();
        let place = Place {
            resource: &resource,
            namespace: &self.pool.namespace,
            name,
        };
        match self.shared.calls.delete(place, uid, None).await {
            Err(failure) if !failure.is_not_found() => Outcome::Failed(failure),
            Ok(()) | Err(_) => Outcome::Disowned,
        }
    }

    /// Looks at the VM that is there.
    async fn settle(&self, name: &str, failure: CallFailure) -> Outcome {
        let Ok(found) = self.shared.calls.vm(&self.pool.namespace, name).await else {
            return Outcome::Failed(failure);
        };
        match found {
            Some(vm) if vm.is_member_of(&self.pool.uid) && vm.deleting_since.is_none() => {
                Outcome::Created {
                    uid: vm.uid,
                    version: vm.resource_version,
                }
            }
            Some(vm) => Outcome::InUse(Box::new(vm)),
            None if failure.is_already_exists() => Outcome::Gone,
            None => Outcome::Failed(failure),
        }
    }
}

/// What is said of a VM that came back as somebody else's.
fn disowned(name: &str) -> CallFailure {
    let message = format!(
        "admission took this pool's owner reference off {name}, and it was deleted again: is --service-account \
         the account that vmpool runs as, or does another webhook drop owner references?"
    );
    CallFailure::Refuse {
        status: Status::failure(&message, reason::FORBIDDEN)
            .with_code(403)
            .boxed(),
        retry_after: None,
    }
}

/// Whether the failure leaves it open if it was done.
fn is_open(failure: &CallFailure) -> bool {
    // A time-out of the API server's own comes after the object may have been stored.
    failure.category() == Category::Unanswered
        || matches!(failure, CallFailure::Refuse { status, .. } if status.code == 504)
}

fn effect(outcome: &Outcome) -> Effect {
    match outcome {
        Outcome::Created { .. } | Outcome::Gone | Outcome::InUse(_) => Effect::Succeeded,
        Outcome::Disowned => Effect::Refused,
        Outcome::Failed(failure) => effect_of(failure),
    }
}

/// Whether a failure is that of its object or of all.
pub(super) fn effect_of(failure: &CallFailure) -> Effect {
    match failure.category() {
        Category::Quota | Category::Terminating | Category::Throttled => Effect::Refused,
        Category::Conflict
        | Category::Forbidden
        | Category::Invalid
        | Category::NotFound
        | Category::Server
        | Category::Unanswered => Effect::Failed,
    }
}
