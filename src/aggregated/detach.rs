//! `detach`: VMs leave their pool whole, and work on alone. What is accepted is recorded on the pool first, in
//! one write with the `replicas` that go with it; the leader carries it out ([`crate::plan::intents`]), which
//! the request waits for, but not for ever.
//!
//! Each VM has its verdict. One that can't leave stands in no other's way; if none can, the request as a
//! whole is refused.
//!
//! A scale-in under way stops when the leader's cache shows the record. Until then, some milliseconds, a delete
//! planned before can still be sent for a VM that was just accepted: to shut that out too the VM itself would
//! have to be written first, so that the precondition of every earlier delete fails. That is not done yet; who
//! wants to be sure detaches first and scales in when that is done.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::http::{HeaderMap, StatusCode};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::StatusCause;
use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::caller::Caller;
use super::options::{DetachOptions, DetachResult, Verdict, VmResult};
use super::path::PoolPath;
use super::pools::StoredPool;
use super::refusal::Refusal;
use super::request::{Options, check_json};
use super::reviews::ask;
use super::router::Server;
use super::{API_VERSION, DETACH_KIND};
use crate::admission::field::{Cause, Path};
use crate::admission::review::GroupKind;
use crate::api::intent::{Intent, Intents, Verb};
use crate::api::{MANAGER, SUBRESOURCES_GROUP, annotations};
use crate::kubevirt::{self, VmView};

/// Most VMs in one request.
const MAX_NAMES: usize = 100;
/// Most operations that wait on one pool.
const MAX_OPEN: usize = 400;
/// Most bytes that they take, of the 256 KiB that all annotations of an object have: some 200 each without a
/// reason.
const MAX_OPEN_BYTES: usize = 64 * 1024;
/// So many characters of who asked are recorded: names of users have no bound.
const MAX_BY: usize = 253;
/// Longest reason.
const MAX_REASON: usize = 1024;
/// How long the request waits for what it asked for to be done.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often it looks; the look is one into memory.
const LOOK: Duration = Duration::from_millis(20);
/// How often a pool that changes under our hands is read again.
const ATTEMPTS: usize = 10;
/// VMs that are looked up at once.
const AT_ONCE: usize = 8;

/// What is known of a VM that was named, and what is to become of it.
#[derive(Clone, Debug)]
enum Judged {
    /// It is recorded, now or by an earlier request.
    Leaves {
        uid: String,
        version: String,
        /// Said of it beside the verdict.
        note: &'static str,
    },
    /// It can't leave.
    Refused(String),
}

/// Carries out a request.
pub(super) async fn create(
    server: &Server,
    path: &PoolPath,
    caller: &Caller,
    headers: &HeaderMap,
    options: &Options,
    body: &[u8],
) -> Result<(StatusCode, Value), Refusal> {
    let asked = read(headers, path, body)?;
    let mut attempt = 0;
    let mut refused: Option<(String, Refusal)> = None;
    let (judged, pool) = loop {
        attempt += 1;
        let pool = server.pools.live(path).await?;
        // Its version was not what was refused, then: to ask again is of no use.
        if let Some((version, refusal)) = refused.take()
            && version == pool.version()
        {
            return Err(refusal);
        }
        let mut intents = open_intents(&pool, path)?;
        let judged = judge_all(server, path, &pool, &intents, &asked).await?;
        let added = add(&mut intents, &asked, &judged, caller);
        check_room(&intents, added, path)?;
        let replicas = if asked.replaces() { 0 } else { added };
        match record(server, path, &pool, &intents, added, replicas, options).await {
            Ok(pool) => break (judged, pool),
            Err(refusal) if is_stale(&refusal) && attempt < ATTEMPTS => {
                if refusal.code().as_u16() == 422 {
                    refused = Some((pool.version().to_owned(), refusal));
                }
            }
            Err(refusal) => return Err(refusal),
        }
    };
    answer(server, path, &asked, &judged, &pool, options).await
}

impl DetachOptions {
    fn replaces(&self) -> bool {
        self.replace.unwrap_or(true)
    }
}

/// The test of the resource version failed (422), or it changed meanwhile (409).
fn is_stale(refusal: &Refusal) -> bool {
    matches!(refusal.code().as_u16(), 409 | 422)
}

/// Refuses more than is to wait on one pool.
fn check_room(intents: &Intents, added: usize, path: &PoolPath) -> Result<(), Refusal> {
    let before = intents.len() - added;
    let bytes = intents.write().map_or(0, |text| text.len());
    if added == 0 || (intents.len() <= MAX_OPEN && bytes <= MAX_OPEN_BYTES) {
        return Ok(());
    }
    if before == 0 {
        let names = Path::root("virtualMachines");
        let message = format!(
            "to record this takes {bytes} bytes, and at most {MAX_OPEN_BYTES} are there for it: name fewer VMs \
             or give a shorter reason"
        );
        let cause = Cause::invalid(names, message);
        return Err(Refusal::invalid(&options_kind(), &path.name, &[cause]));
    }
    Err(Refusal::too_many_requests(format!(
        "{before} operations wait to be carried out on the pool, and at most {MAX_OPEN} of together \
         {MAX_OPEN_BYTES} bytes may: ask again when some are done, or for fewer VMs at once"
    )))
}

fn options_kind() -> GroupKind {
    GroupKind {
        group: SUBRESOURCES_GROUP.to_owned(),
        kind: DETACH_KIND.to_owned(),
    }
}

fn read(headers: &HeaderMap, path: &PoolPath, body: &[u8]) -> Result<DetachOptions, Refusal> {
    check_json(headers)?;
    let value: Value = serde_json::from_slice(body).map_err(|error| {
        Refusal::bad_request(format!("failed to read the body as JSON: {error}"))
    })?;
    let is_ours = |key: &str, ours| value.get(key).is_none_or(|value| value == ours);
    if !is_ours("kind", DETACH_KIND) || !is_ours("apiVersion", API_VERSION) {
        return Err(Refusal::bad_request(format!(
            "expected {DETACH_KIND} of {API_VERSION}, found kind {} of {}",
            value["kind"], value["apiVersion"]
        )));
    }
    let options: DetachOptions = serde_json::from_value(value).map_err(|error| {
        Refusal::bad_request(format!("failed to read the body as {DETACH_KIND}: {error}"))
    })?;
    let causes = check(&options);
    if causes.is_empty() {
        return Ok(options);
    }
    Err(Refusal::invalid(&options_kind(), &path.name, &causes))
}

/// All that is wrong with the options by themselves.
fn check(options: &DetachOptions) -> Vec<Cause> {
    let names = Path::root("virtualMachines");
    let mut causes = Vec::new();
    let count = options.virtual_machines.len();
    if count == 0 {
        causes.push(Cause::required(
            names.clone(),
            "name the VMs that are to leave the pool",
        ));
    } else if count > MAX_NAMES {
        let message = format!("{count} names are too many: at most {MAX_NAMES} in one request");
        causes.push(Cause::invalid(names, message));
        return causes;
    }
    let mut seen = BTreeSet::new();
    for (index, name) in options.virtual_machines.iter().enumerate() {
        if !seen.insert(name) {
            causes.push(Cause::duplicate(
                Path::root("virtualMachines").index(index),
                name,
            ));
        }
    }
    let length = options
        .reason
        .as_deref()
        .unwrap_or_default()
        .chars()
        .count();
    if length > MAX_REASON {
        let message = format!("{length} characters are too many: at most {MAX_REASON}");
        causes.push(Cause::invalid(Path::root("reason"), message));
    }
    causes
}

/// What is recorded on the pool, which must be one that VMs can leave by themselves.
fn open_intents(pool: &StoredPool, path: &PoolPath) -> Result<Intents, Refusal> {
    if pool.meta().deletion_timestamp.is_some() {
        return Err(Refusal::conflict(
            &path.name,
            format!(
                "pool {:?} is being deleted, and its VMs with it; a pool that is deleted with \
                 --cascade=orphan leaves them all",
                path.name
            ),
        ));
    }
    let text = pool.meta().annotations.as_ref();
    let text = text.and_then(|map| map.get(annotations::INTENT));
    Intents::read(text.map(String::as_str)).map_err(|error| {
        let message = format!("{error}; take the annotation off the pool to go on");
        Refusal::conflict(&path.name, message)
    })
}

async fn judge_all(
    server: &Server,
    path: &PoolPath,
    pool: &StoredPool,
    intents: &Intents,
    asked: &DetachOptions,
) -> Result<Vec<Judged>, Refusal> {
    let resource = kubevirt::virtual_machine();
    let api: Api<DynamicObject> =
        Api::namespaced_with(server.client.clone(), &path.namespace, &resource);
    let names = asked.virtual_machines.iter().cloned();
    let looked_up = futures::stream::iter(names).map(|name| {
        let api = api.clone();
        async move {
            if !is_a_name(&name) {
                return Ok(None);
            }
            ask("look up the VM", api.get_opt(&name)).await
        }
    });
    let found: Vec<Option<DynamicObject>> = looked_up.buffered(AT_ONCE).try_collect().await?;
    Ok(found
        .iter()
        .map(|vm| {
            let vm = vm.as_ref().and_then(VmView::read);
            judge(vm.as_ref(), pool.uid(), &path.name, intents, asked)
        })
        .collect())
}

/// Whether it can stand in a path; no object has any other name.
fn is_a_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !name.is_empty()
        && name.len() <= 253
        && name.bytes().all(|byte| plain(byte) || byte == b'.')
        && !name.starts_with('.')
}

/// Says whether a VM can leave the pool.
fn judge(
    vm: Option<&VmView>,
    pool_uid: &str,
    pool: &str,
    intents: &Intents,
    asked: &DetachOptions,
) -> Judged {
    // The same whether there is such a VM or not: who may detach need not be one who may read VMs.
    let Some(vm) = vm.filter(|vm| vm.is_member_of(pool_uid)) else {
        return Judged::Refused(format!("it is no member of pool {pool}"));
    };
    if vm.deleting_since.is_some() {
        return Judged::Refused("it is being deleted".to_owned());
    }
    let leaves = |note| Judged::Leaves {
        uid: vm.uid.clone(),
        version: vm.resource_version.clone(),
        note,
    };
    match intents.of_vm(&vm.uid) {
        None => leaves(""),
        Some(intent) if intent.replace == asked.replaces() => leaves("it was asked for before"),
        Some(intent) => Judged::Refused(format!(
            "it is being detached already, with replace: {}",
            intent.replace
        )),
    }
}

/// Adds those that are new; says how many they are.
fn add(intents: &mut Intents, asked: &DetachOptions, judged: &[Judged], caller: &Caller) -> usize {
    let before = intents.len();
    for (name, judged) in asked.virtual_machines.iter().zip(judged) {
        let Judged::Leaves { uid, version, .. } = judged else {
            continue;
        };
        if intents.of_vm(uid).is_some() {
            continue;
        }
        intents.add(Intent {
            verb: Verb::Detach,
            name: name.clone(),
            uid: uid.clone(),
            version: version.clone(),
            replace: asked.replaces(),
            by: caller.name.chars().take(MAX_BY).collect(),
            reason: asked.reason.clone().unwrap_or_default(),
        });
    }
    intents.len() - before
}

/// Records what was accepted, and takes `fewer` off the replicas, in one write that is done only if the pool
/// still is in the version that was judged. Nothing new is no write.
async fn record(
    server: &Server,
    path: &PoolPath,
    pool: &StoredPool,
    intents: &Intents,
    added: usize,
    fewer: usize,
    options: &Options,
) -> Result<Recorded, Refusal> {
    let replicas = (pool.replicas() - i64::try_from(fewer).unwrap_or(i64::MAX)).max(0);
    let recorded = Recorded {
        replicas,
        is_paused: pool.is_paused(),
    };
    if added == 0 {
        return Ok(recorded);
    }
    let mut operations = vec![json!({
        "op": "test", "path": "/metadata/resourceVersion", "value": pool.version(),
    })];
    if pool.meta().annotations.is_none() {
        operations.push(json!({"op": "add", "path": "/metadata/annotations", "value": {}}));
    }
    operations.push(json!({
        "op": "add",
        "path": format!("/metadata/annotations/{}", annotations::INTENT.replace('/', "~1")),
        "value": intents.write().unwrap_or_default(),
    }));
    if fewer > 0 {
        operations.push(json!({"op": "add", "path": "/spec/replicas", "value": replicas}));
    }
    let patch = serde_json::from_value(operations.into());
    let patch: json_patch::Patch = patch.expect("each operation above is one of JSON patch");
    let params = PatchParams {
        dry_run: options.dry_run,
        // Ours, whoever asked: an apply under the caller's name would take the annotation off again.
        field_manager: Some(MANAGER.to_owned()),
        ..PatchParams::default()
    };
    let api = server.pools.api(path);
    let patch = Patch::Json::<()>(patch);
    let call = api.patch(&path.name, &params, &patch);
    let written = match tokio::time::timeout(PATIENCE, call).await {
        Ok(Ok(written)) => written,
        Ok(Err(error)) => return Err(Refusal::of_call("record it on the pool", &error)),
        Err(_) => {
            return Err(Refusal::timeout(
                "the API server has not answered whether it was recorded; ask again: it is done once",
            ));
        }
    };
    if let (false, Some(version)) = (options.dry_run, &written.metadata.resource_version) {
        server.pools.wrote(path, version);
    }
    Ok(recorded)
}

/// The pool after the write.
struct Recorded {
    replicas: i64,
    is_paused: bool,
}

/// Waits for what was accepted, and says what became of each VM.
async fn answer(
    server: &Server,
    path: &PoolPath,
    asked: &DetachOptions,
    judged: &[Judged],
    pool: &Recorded,
    options: &Options,
) -> Result<(StatusCode, Value), Refusal> {
    if judged
        .iter()
        .all(|judged| matches!(judged, Judged::Refused(_)))
    {
        return Err(all_refused(path, asked, judged));
    }
    let waits = !pool.is_paused && !options.dry_run;
    if waits {
        let until = Instant::now() + PATIENCE;
        let is_open = |judged: &Judged| !matches!(judged, Judged::Refused(_));
        let names = asked.virtual_machines.iter().zip(judged);
        let open: Vec<_> = names.filter(|(_, judged)| is_open(judged)).collect();
        while Instant::now() < until
            && !open.iter().all(|(name, j)| has_left(server, path, name, j))
        {
            tokio::time::sleep(LOOK).await;
        }
    }
    let results: Vec<VmResult> = asked
        .virtual_machines
        .iter()
        .zip(judged)
        .map(|(name, judged)| result(server, path, name, judged, pool, options))
        .collect();
    let is_done = results
        .iter()
        .all(|result| result.verdict != Verdict::Recorded);
    let code = if is_done {
        StatusCode::OK
    } else {
        StatusCode::ACCEPTED
    };
    let result = DetachResult {
        api_version: API_VERSION.to_owned(),
        kind: "DetachResult".to_owned(),
        virtual_machines: results,
        replicas: pool.replicas,
    };
    let result = serde_json::to_value(result).expect("a result is strings and numbers");
    Ok((code, result))
}

/// Whether the cache shows that the VM is no member any more.
fn has_left(server: &Server, path: &PoolPath, name: &str, judged: &Judged) -> bool {
    let Judged::Leaves { uid, version, .. } = judged else {
        return true;
    };
    if !server.caches.vms.is_synced() {
        return false;
    }
    match server.caches.vm(&path.namespace, name) {
        Some(vm) if vm.uid == *uid => vm.owner.as_ref().is_none_or(|owner| !owner.is_pool()),
        _ => server.caches.vms.has_reached(version),
    }
}

fn result(
    server: &Server,
    path: &PoolPath,
    name: &str,
    judged: &Judged,
    pool: &Recorded,
    options: &Options,
) -> VmResult {
    let (verdict, reason) = match judged {
        Judged::Refused(reason) => (Verdict::Refused, reason.clone()),
        Judged::Leaves { note, .. } if options.dry_run => {
            let reason = if note.is_empty() {
                "nothing is stored in a dry run"
            } else {
                note
            };
            (Verdict::Recorded, reason.to_owned())
        }
        Judged::Leaves { .. } if pool.is_paused => (
            Verdict::Recorded,
            "the pool is paused: it is carried out when the pool goes on".to_owned(),
        ),
        Judged::Leaves { uid, note, .. } if has_left(server, path, name, judged) => {
            let vm = server.caches.vm(&path.namespace, name);
            let is_there = vm.is_some_and(|vm| vm.uid == *uid);
            let note = if is_there {
                note
            } else {
                "it was deleted meanwhile"
            };
            (Verdict::Done, note.to_owned())
        }
        Judged::Leaves { .. } => (
            Verdict::Recorded,
            format!(
                "not carried out within {} s, and it will be",
                PATIENCE.as_secs()
            ),
        ),
    };
    VmResult {
        name: name.to_owned(),
        verdict,
        reason,
    }
}

fn all_refused(path: &PoolPath, asked: &DetachOptions, judged: &[Judged]) -> Refusal {
    let names = asked.virtual_machines.iter().enumerate().zip(judged);
    let causes: Vec<StatusCause> = names
        .filter_map(|((index, name), judged)| match judged {
            Judged::Refused(reason) => Some(StatusCause {
                field: Some(format!("virtualMachines[{index}]")),
                message: Some(format!("{name}: {reason}")),
                reason: Some("Refused".to_owned()),
            }),
            Judged::Leaves { .. } => None,
        })
        .collect();
    let listed: Vec<&str> = causes
        .iter()
        .take(10)
        .filter_map(|cause| cause.message.as_deref())
        .collect();
    let more = causes.len().saturating_sub(listed.len());
    let more = if more == 0 {
        String::new()
    } else {
        format!(" and {more} more")
    };
    let message = format!(
        "nothing was detached from pool {:?}: {}{more}",
        path.name,
        listed.join("; ")
    );
    Refusal::conflict(&path.name, message).with_causes(causes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_objects_can_have_are_asked_for() {
        for name in ["web-1", "a.b", "0"] {
            assert!(is_a_name(name), "{name}");
        }
        let long = "a".repeat(254);
        for name in [
            "",
            "..",
            ".",
            "../secrets/a",
            "web-1/status",
            "web 1",
            "Web-1",
            "a?b",
            &long,
        ] {
            assert!(!is_a_name(name), "{name}");
        }
    }
}
