//! What of a request is accepted: pure, of the options, the pool, what is recorded on it already and the VMs.

use std::collections::BTreeSet;

use axum::http::HeaderMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::StatusCause;
use serde_json::Value;

use super::super::caller::Caller;
use super::super::options::DetachOptions;
use super::super::path::PoolPath;
use super::super::pools::StoredPool;
use super::super::refusal::Refusal;
use super::super::request::check_json;
use super::super::{API_VERSION, DETACH_KIND};
use crate::admission::field::{Cause, Path};
use crate::admission::review::GroupKind;
use crate::api::intent::{Intent, Intents, Verb};
use crate::api::{SUBRESOURCES_GROUP, annotations};
use crate::kubevirt::VmView;

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

/// What is known of a VM that was named, and what is to become of it.
#[derive(Clone, Debug)]
pub(super) enum Judged {
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

impl DetachOptions {
    pub(super) fn replaces(&self) -> bool {
        self.replace.unwrap_or(true)
    }
}

/// The test of the resource version failed (422), or it changed meanwhile (409).
pub(super) fn is_stale(refusal: &Refusal) -> bool {
    matches!(refusal.code().as_u16(), 409 | 422)
}

/// Refuses more than is to wait on one pool.
pub(super) fn check_room(intents: &Intents, added: usize, path: &PoolPath) -> Result<(), Refusal> {
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

pub(super) fn read(
    headers: &HeaderMap,
    path: &PoolPath,
    body: &[u8],
) -> Result<DetachOptions, Refusal> {
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
pub(super) fn open_intents(pool: &StoredPool, path: &PoolPath) -> Result<Intents, Refusal> {
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

/// Whether it can stand in a path; no object has any other name.
pub(super) fn is_a_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !name.is_empty()
        && name.len() <= 253
        && name.bytes().all(|byte| plain(byte) || byte == b'.')
        && !name.starts_with('.')
}

/// Says whether a VM can leave the pool.
pub(super) fn judge(
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
pub(super) fn add(
    intents: &mut Intents,
    asked: &DetachOptions,
    judged: &[Judged],
    caller: &Caller,
) -> usize {
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

pub(super) fn all_refused(path: &PoolPath, asked: &DetachOptions, judged: &[Judged]) -> Refusal {
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
