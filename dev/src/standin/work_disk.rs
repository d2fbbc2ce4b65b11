//! One turn of CDI for a DataVolume, or of a provisioner for a claim that has none.

use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::api::{Patch, PatchType, code, message};
use super::cache::Mention;
use super::datavolume::{self, Next, Step, View};
use super::kinds::Kind;
use super::knobs::Import;
use super::object::{Key, is_deleting, phase, text, uid};
use super::queue::Work;
use super::shared::Shared;
use super::vmi::wants_claims;
use super::work::MOST_STEPS;
use super::writer::Writer;

pub(super) async fn turn(shared: &Shared, work: &Work, key: &Key) -> Result<()> {
    let writer = Writer { shared, work };
    let mut refused: Option<String> = None;
    for _ in 0..MOST_STEPS {
        let claim = shared.cache.get(Kind::PersistentVolumeClaim, key);
        let claim = claim.as_deref();
        let Some(dv) = shared.cache.get(Kind::DataVolume, key) else {
            return provision(writer, key, claim).await;
        };
        let view = View {
            data_volume: &dv,
            claim,
            waits_for_consumer: claim.is_some_and(|claim| waits_for_consumer(shared, key, claim)),
            import: Import::of(&dv, shared.options.import),
            age: age(shared, claim),
            refused: refused.as_deref(),
            now: vmpool::clock::now(),
        };
        match datavolume::next(&view) {
            Next::Do(step) => {
                if let Some(message) = perform(writer, key, &dv, step).await? {
                    refused = Some(message);
                }
            }
            Next::Wait(left) => {
                shared.queue.add_after(work.clone(), left);
                return Ok(());
            }
            Next::Rest => break,
        }
    }
    match refused {
        Some(message) => anyhow::bail!("failed to create a claim: {message}"),
        None => Ok(()),
    }
}

fn age(shared: &Shared, claim: Option<&Value>) -> Duration {
    claim
        .filter(|claim| phase(claim) == "Bound")
        .map_or(Duration::ZERO, |claim| shared.age(uid(claim), "bound"))
}

/// A claim of a class that binds on first use, which no VMI uses yet.
fn waits_for_consumer(shared: &Shared, key: &Key, claim: &Value) -> bool {
    let class = text(&claim["spec"]["storageClassName"]);
    let late = &shared.options.wait_for_first_consumer;
    if phase(claim) == "Bound" || !late.iter().any(|late| late == class) {
        return false;
    }
    let mention = Mention::Claim(key.clone());
    !shared
        .cache
        .mentioning(Kind::VirtualMachineInstance, &mention)
        .iter()
        .any(|vmi| wants_claims(vmi))
}

/// There is no provisioner either: a claim that a user made is bound as soon as it may be.
async fn provision(writer: Writer<'_>, key: &Key, claim: Option<&Value>) -> Result<()> {
    match claim {
        Some(claim)
            if phase(claim) != "Bound"
                && !is_deleting(claim)
                && !waits_for_consumer(writer.shared, key, claim) =>
        {
            bind(writer, key, &datavolume::bound_status(claim)).await
        }
        _ => Ok(()),
    }
}

/// Does a step; returns the server's refusal of a new claim.
async fn perform(writer: Writer<'_>, key: &Key, dv: &Value, step: Step) -> Result<Option<String>> {
    let kind = Kind::PersistentVolumeClaim;
    match step {
        Step::BindClaim(status) => bind(writer, key, &status).await?,
        Step::CreateClaim(claim) => match writer.create(kind, &key.namespace, &claim).await {
            Err(error) if matches!(code(&error), 400 | 403 | 422) => {
                return Ok(Some(message(&error)));
            }
            other => other.context("failed to create a claim")?,
        },
        Step::PatchClaim(patch) => writer.patch(kind, key, "", &patch).await?,
        Step::Report(status) => {
            let patch = Patch::new(dv).set("/status", status);
            let kind = Kind::DataVolume;
            match writer.patch(kind, key, "status", &patch).await {
                // CDI's CRD has had a status subresource for some releases only.
                Err(error) if code(&error) == 404 => writer.patch(kind, key, "", &patch).await?,
                other => other.context("failed to report a DataVolume's status")?,
            }
        }
    }
    Ok(None)
}

async fn bind(writer: Writer<'_>, key: &Key, status: &Value) -> Result<()> {
    let kind = Kind::PersistentVolumeClaim;
    let body = json!({"status": status});
    writer
        .patch_as(kind, key, "status", PatchType::Merge, &body)
        .await
        .context("failed to bind a claim")
}
