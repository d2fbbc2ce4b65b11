//! Carries out what `start`, `stop` and `restart` decide: reads VM and VMI afresh, and writes.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::api::{Patch, code};
use super::kinds::Kind;
use super::object::{Key, Obj, is_controlled_by};
use super::shared::Shared;
use super::subresources::{Change, Refusal};

/// How often a call is tried on a VM that others write to.
const TRIES: usize = 10;

/// What a caller may ask for besides the call itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Wishes {
    /// Decide, and write nothing.
    pub(super) dry_run: bool,
    /// Seconds that the running instance gets to shut down instead of its own.
    pub(super) grace_seconds: Option<i64>,
}

/// A pure decision from a VM and its VMI.
pub(super) type Decide = fn(&Value, Option<&Value>, Wishes) -> Result<Change, Refusal>;

/// One call. The error of a refused one is a [`Refusal`]; of an unknown VM the API server's.
pub(super) async fn call(shared: &Shared, key: &Key, wishes: Wishes, decide: Decide) -> Result<()> {
    let api = &shared.api;
    let kind = Kind::VirtualMachine;
    let mut tried = 0;
    loop {
        let vm = api.get(kind, key).await?;
        let vmi = instance(shared, key, &vm).await?;
        let change = decide(&vm, vmi.as_deref(), wishes)?;
        if wishes.dry_run {
            return Ok(());
        }
        tried += 1;
        // virt-api's patches mind only what they change; ours mind the whole object.
        match write(shared, key, vmi.as_deref(), wishes, &change).await {
            Err(error) if code(&error) == 409 && tried < TRIES => {}
            other => return other.context("failed to change a VM"),
        }
    }
}

/// The shorter grace period first, so that the stop that follows finds it.
async fn write(
    shared: &Shared,
    key: &Key,
    vmi: Option<&Value>,
    wishes: Wishes,
    change: &Change,
) -> Result<(), kube::Error> {
    let api = &shared.api;
    if let (Some(vmi), Some(seconds)) = (vmi, wishes.grace_seconds) {
        let path = "/spec/terminationGracePeriodSeconds";
        let patch = Patch::new(vmi).set(path, json!(seconds));
        let kind = Kind::VirtualMachineInstance;
        api.patch(kind, key, "", &patch).await?;
    }
    let (sub, patch) = match change {
        Change::Spec(patch) => ("", patch),
        Change::Status(patch) => ("status", patch),
    };
    api.patch(Kind::VirtualMachine, key, sub, patch)
        .await
        .map(drop)
}

async fn instance(shared: &Shared, key: &Key, vm: &Value) -> Result<Option<Obj>> {
    let kind = Kind::VirtualMachineInstance;
    match shared.api.get(kind, key).await {
        Ok(vmi) if is_controlled_by(&vmi, vm) => Ok(Some(Obj::new(vmi))),
        Ok(_) => Ok(None),
        Err(error) if code(&error) == 404 => Ok(None),
        Err(error) => Err(error).context("failed to read a VMI"),
    }
}
