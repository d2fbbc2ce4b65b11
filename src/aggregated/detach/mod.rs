//! `detach`: VMs leave their pool whole, and work on alone. What is accepted is recorded on the pool, in one
//! write with the `replicas` that go with it; the leader carries it out ([`crate::plan::intents`]), which the
//! request waits for, but not for ever.
//!
//! Each VM has its verdict. One that can't leave stands in no other's way; if none can, the request as a
//! whole is refused.
//!
//! The leader may be another process, whose cache shows the record some milliseconds late, or much later; a
//! delete that it has planned by then could still be sent for a VM that was just accepted. So the VM itself is
//! written first: a mark with the version of the pool that was judged, which breaks the precondition of every
//! delete planned before, and lets no other be planned until the pool is in a later version. The record is
//! written only if the pool is still in that one, so a later version has the record or there will be none: a
//! mark whose record never came holds nothing up, and nobody has to take it off.

use std::time::Duration;

use axum::http::{HeaderMap, StatusCode};
use serde_json::Value;
use tokio::time::Instant;

use self::judge::{Judged, add, all_refused, check_room, is_stale, open_intents, read};
use self::record::{Recorded, Request};
use super::API_VERSION;
use super::caller::Caller;
use super::options::{DetachOptions, DetachResult, Verdict, VmResult};
use super::path::PoolPath;
use super::refusal::Refusal;
use super::request::Options;
use super::router::Server;

mod judge;
mod record;

/// How long the request waits for the record to be written, and then for what it asked for to be done.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often it looks; the look is one into memory.
const LOOK: Duration = Duration::from_millis(20);
/// How often a pool that changes under our hands is read again.
const ATTEMPTS: usize = 10;
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
        let intents = open_intents(&pool, path)?;
        let request = Request {
            server,
            path,
            asked: &asked,
            options,
            pool: &pool,
            open: &intents,
        };
        let judged = request.judge_all().await?;
        let mut all = intents.clone();
        let added = add(&mut all, &asked, &judged, caller);
        check_room(&all, added, path)?;
        let judged = request.mark_all(judged).await?;
        let mut accepted = intents.clone();
        let added = add(&mut accepted, &asked, &judged, caller);
        match request.record(&accepted, added).await {
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
