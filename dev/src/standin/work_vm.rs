//! One turn of the VM controller: steps until none is left, then the status, then the finalizer.

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::api::PatchType;
use super::api::{code, message};
use super::cache::Mention;
use super::kinds::Kind;
use super::names::VM_GENERATION;
use super::object::{
    Key, Obj, annotation, controller_of, generation, is_controlled_by, items, name, text, uid,
};
use super::queue::Work;
use super::shared::Shared;
use super::start;
use super::vm::{self, Disks, Next, Step, SyncError, View};
use super::volumes;
use super::work::MOST_STEPS;
use super::writer::Writer;

/// The objects around a VM.
struct Facts {
    vm: Obj,
    vmi: Option<Obj>,
    orphan: Option<Obj>,
    disks: Disks,
    started_from: Option<Obj>,
}

impl Facts {
    fn view<'a>(&'a self, shared: &'a Shared) -> View<'a> {
        View {
            vm: &self.vm,
            vmi: self.vmi.as_deref(),
            orphan: self.orphan.as_deref(),
            disks: &self.disks,
            started_from: self.started_from.as_deref(),
            rules: &shared.rules,
            now: vmpool::clock::now(),
        }
    }
}

pub(super) async fn turn(shared: &Shared, work: &Work, key: &Key) -> Result<()> {
    let writer = Writer { shared, work };
    let mut failure = None;
    for _ in 0..MOST_STEPS {
        let Some(facts) = gather(shared, key).await? else {
            return Ok(());
        };
        let view = facts.view(shared);
        // The real controller's first status comes before the start: Stopped for a moment.
        if !shared.rules.combine_writes
            && facts.vm["status"]["printableStatus"].is_null()
            && !facts.vm["metadata"]["finalizers"].is_null()
        {
            write_status(writer, key, &view, None).await?;
            continue;
        }
        match vm::next(&view) {
            Ok(Next::Do(step)) => match perform(writer, key, &facts, step).await? {
                None => {}
                Some(error) => {
                    failure = Some(error);
                    break;
                }
            },
            Ok(Next::Wait(left)) => {
                shared.queue.add_after(work.clone(), left);
                break;
            }
            Ok(Next::Rest) => break,
            Err(error) => {
                failure = Some(error);
                break;
            }
        }
    }
    finish(writer, key, failure).await
}

async fn finish(writer: Writer<'_>, key: &Key, failure: Option<SyncError>) -> Result<()> {
    if let Some(facts) = gather(writer.shared, key).await? {
        let view = facts.view(writer.shared);
        write_status(writer, key, &view, failure.as_ref()).await?;
        let now = writer.shared.cache.get(Kind::VirtualMachine, key);
        let requests = |vm: &Obj| vm["status"]["stateChangeRequests"].clone();
        if now.is_some_and(|now| requests(&now) != requests(&facts.vm)) {
            // A stop is off the list, and the start behind it is due. Own writes wake nobody.
            writer.shared.queue.add(writer.work.clone());
        }
        if let Some(patch) = vm::release_vmi(&view) {
            let kind = Kind::VirtualMachineInstance;
            match writer.patch(kind, key, "", &patch).await {
                Err(error) if code(&error) != 404 => return Err(error.into()),
                _ => {}
            }
        }
    }
    match failure {
        Some(error) => bail!("{}: {}", error.reason, error.message),
        None => Ok(()),
    }
}

async fn write_status(
    writer: Writer<'_>,
    key: &Key,
    view: &View<'_>,
    failure: Option<&SyncError>,
) -> Result<()> {
    let Some(patch) = vm::status_patch(view, failure) else {
        return Ok(());
    };
    match writer
        .patch(Kind::VirtualMachine, key, "status", &patch)
        .await
    {
        Err(error) if code(&error) == 404 => Ok(()),
        other => other.context("failed to write a VM's status"),
    }
}

async fn gather(shared: &Shared, key: &Key) -> Result<Option<Facts>> {
    let Some(vm) = shared.cache.get(Kind::VirtualMachine, key) else {
        return Ok(None);
    };
    let found = shared.cache.get(Kind::VirtualMachineInstance, key);
    let (vmi, orphan) = match found {
        Some(vmi) if is_controlled_by(&vmi, &vm) => (Some(vmi), None),
        Some(vmi) if controller_of(&vmi).is_none() => (None, Some(vmi)),
        _ => (None, None),
    };
    let templates = items(&vm["spec"]["dataVolumeTemplates"]).iter().map(name);
    let claims = volumes::claims(&vm["spec"]["template"]["spec"]).map(|(_, claim)| claim);
    let disks = disks(shared, &key.namespace, templates.chain(claims));
    let started_from = match &vmi {
        Some(vmi) => started_from(shared, &vm, vmi).await?,
        None => None,
    };
    Ok(Some(Facts {
        vm,
        vmi,
        orphan,
        disks,
        started_from,
    }))
}

/// The named disks that exist.
pub(super) fn disks<'a>(
    shared: &Shared,
    namespace: &str,
    names: impl Iterator<Item = &'a str>,
) -> Disks {
    let mut disks = Disks::default();
    for name in names {
        let key = Key::new(namespace, name);
        if let Some(dv) = shared.cache.get(Kind::DataVolume, &key) {
            disks.data_volumes.insert(name.to_owned(), dv);
        }
        if let Some(claim) = shared.cache.get(Kind::PersistentVolumeClaim, &key) {
            disks.claims.insert(name.to_owned(), claim);
        }
    }
    disks
}

/// What the VMI was started from, when the VM has moved on: nothing is read otherwise.
async fn started_from(shared: &Shared, vm: &Value, vmi: &Value) -> Result<Option<Obj>> {
    let current = generation(vm).to_string();
    let revision = text(&vmi["status"]["virtualMachineRevisionName"]);
    if annotation(vmi, VM_GENERATION) == Some(&current) || revision.is_empty() {
        return Ok(None);
    }
    if let Some(kept) = shared.kept_revision(uid(vm), revision) {
        return Ok(Some(kept));
    }
    let key = Key::new(super::object::namespace(vm), revision);
    match shared.api.get(Kind::ControllerRevision, &key).await {
        Ok(mut found) => {
            let spec = Obj::new(found["data"]["spec"].take());
            shared.keep_revision(uid(vm), revision, spec.clone());
            Ok(Some(spec))
        }
        Err(error) if code(&error) == 404 => Ok(None),
        Err(error) => Err(error).context("failed to read a start revision"),
    }
}

/// Does a step. What KubeVirt would show as the VM's Failure comes back as a value.
async fn perform(
    writer: Writer<'_>,
    key: &Key,
    facts: &Facts,
    step: Step,
) -> Result<Option<SyncError>> {
    let namespace = &key.namespace;
    match step {
        Step::ClaimDataVolume(name, uid) => {
            let key = Key::new(namespace, &name);
            take_control(writer, Kind::DataVolume, &key, &facts.vm, &uid).await?;
        }
        Step::ClaimVmi(uid) => {
            let kind = Kind::VirtualMachineInstance;
            take_control(writer, kind, key, &facts.vm, &uid).await?;
        }
        Step::CreateDataVolume(object) => {
            let answer = writer.create(Kind::DataVolume, namespace, &object).await;
            return failure(answer, "FailedCreate", |error| {
                format!(
                    "Error encountered while creating DataVolumes: failed to create \
                     DataVolume: {error}"
                )
            });
        }
        Step::DeleteVmi => {
            let Some(vmi) = &facts.vmi else {
                return Ok(None);
            };
            let kind = Kind::VirtualMachineInstance;
            let answer = writer.delete(kind, vmi, None).await;
            return failure(answer, "FailedDelete", |error| {
                format!("Failure attempting to delete VMI: {error}")
            });
        }
        Step::PatchVm(patch) => writer.patch(Kind::VirtualMachine, key, "", &patch).await?,
        Step::PatchVmStatus(patch) => {
            let kind = Kind::VirtualMachine;
            writer.patch(kind, key, "status", &patch).await?;
        }
        Step::PatchVmi(patch) => {
            let kind = Kind::VirtualMachineInstance;
            writer.patch(kind, key, "", &patch).await?;
        }
        Step::Start => return start_vm(writer, key, &facts.vm).await,
    }
    Ok(None)
}

fn failure(
    answer: Result<(), kube::Error>,
    reason: &'static str,
    say: impl FnOnce(String) -> String,
) -> Result<Option<SyncError>> {
    match answer {
        Ok(()) => Ok(None),
        // No answer, a conflict, a busy server: the turn comes again without a word.
        Err(error) if matches!(code(&error), 0 | 409 | 429 | 500..) => Err(error.into()),
        Err(error) => Ok(Some(SyncError {
            reason,
            message: say(message(&error)),
        })),
    }
}

/// As `AdoptDataVolume` does it: a merge patch that replaces the whole list of owners.
async fn take_control(
    writer: Writer<'_>,
    kind: Kind,
    key: &Key,
    vm: &Value,
    uid: &str,
) -> Result<()> {
    let body = serde_json::json!({"metadata": {
        "ownerReferences": [start::owner_reference(vm)],
        "uid": uid,
    }});
    writer
        .patch_as(kind, key, "", PatchType::Merge, &body)
        .await
        .context("failed to take control")
}

async fn start_vm(writer: Writer<'_>, key: &Key, vm: &Value) -> Result<Option<SyncError>> {
    let shared = writer.shared;
    let wanted = start::revision_name(vm);
    let owner = Mention::Owner(uid(vm).to_owned());
    let mut exists = false;
    for old in shared.cache.mentioning(Kind::ControllerRevision, &owner) {
        if name(&old) == wanted {
            exists = true;
        } else if name(&old).starts_with(&start::revision_prefix(vm)) {
            writer.delete(Kind::ControllerRevision, &old, None).await?;
        }
    }
    let say = |error: String| format!("Failure while starting VMI: {error}");
    if !exists {
        let revision = start::revision(vm);
        let kind = Kind::ControllerRevision;
        let answer = match writer.create(kind, &key.namespace, &revision).await {
            Err(error) if code(&error) == 409 => Ok(()),
            other => other,
        };
        if let Some(error) = failure(answer, "FailedCreate", say)? {
            return Ok(Some(error));
        }
        let spec = Obj::new(vm["spec"].clone());
        shared.keep_revision(uid(vm), &wanted, spec);
    }
    let kind = Kind::VirtualMachineInstance;
    let vmi = start::vmi(vm, shared.rules.live_update);
    let answer = writer.create(kind, &key.namespace, &vmi).await;
    let taken = shared.cache.get(kind, key).is_some();
    match answer {
        // A VMI of this name that another controls: KubeVirt tries, fails and says so.
        Err(error) if code(&error) == 409 && taken => Ok(Some(SyncError {
            reason: "FailedCreate",
            message: say(message(&error)),
        })),
        other => failure(other, "FailedCreate", say),
    }
}
