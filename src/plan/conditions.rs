//! What is said of a pool in its conditions, and the events that go with a change of them.
//!
//! - `Available`: as many members as wanted are available, or halted by intent. A pool of halted VMs, or of
//!   none, is as healthy as it is meant to be. This is what `kubectl wait --for=condition=Available` waits
//!   for.
//! - `Progressing`: as in a Deployment, `True` both under way and at rest. The reason `Settled` alone means
//!   that nothing is left to do, no member that is still going away included: what Argo CD's script and
//!   Flux's expressions take for "current" (kstatus itself, not knowing the kind, only compares
//!   `observedGeneration`). `False` is what can't go on by itself (Argo CD's "degraded"), `Unknown` a paused
//!   pool that has something to do ("suspended").
//! - `ConfigReady`: new members can be stamped. `Unknown` while a revision is being made.
//! - `ReplicaFailure`, `ScaleInBlocked`, `UpdateBlocked`, `DisksOutdated`, `Paused`: there only while `True`, as a ReplicaSet does it: no
//!   condition is no news. What failed and isn't needed any more is no failure.
//!
//! The order is fixed, no message holds a time, and a transition time stays where the status does: what
//! hasn't changed is written the same again, and so not written.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;

use super::membership::Membership;
use super::rollout::Rollout;
use super::rollout_conditions::{blocked, disks_outdated, restarted_again, rolling_out, waiting};
use super::scale_in::ScaleIn;
use super::scale_out::ScaleOut;
use super::{Config, Failure, Kind, Note, Snapshot};
use crate::api::conditions::{reasons, types};
use crate::api::pool::VirtualMachinePoolStatus;

/// How many things a message names before it says "and so many more".
const NAMED: usize = 10;

/// What conditions are made from.
#[derive(Debug)]
pub(super) struct Findings<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) members: &'a Membership<'a>,
    /// Counts of this moment.
    pub(super) counts: &'a VirtualMachinePoolStatus,
    /// What is done about missing members.
    pub(super) scale_out: &'a ScaleOut,
    /// What is done about a surplus.
    pub(super) scale_in: &'a ScaleIn<'a>,
    /// Members that are to go under the pool's strategy.
    pub(super) surplus: usize,
    /// Former members whose marks are to be taken off.
    pub(super) former: usize,
    /// What is done for the target revision.
    pub(super) rollout: &'a Rollout<'a>,
    /// Whether nothing has become updated or available for too long.
    pub(super) is_stalled: bool,
}

/// Status, reason and message of one condition.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Verdict {
    pub(super) status: &'static str,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl Verdict {
    pub(super) fn new(status: &'static str, reason: &'static str, message: String) -> Self {
        Self {
            status,
            reason,
            message,
        }
    }
}

/// All conditions, in their order.
pub(super) fn conditions(findings: &Findings<'_>, now: Timestamp) -> Vec<Condition> {
    let pool = &findings.snapshot.pool;
    [
        (types::AVAILABLE, Some(available(findings))),
        (types::PROGRESSING, Some(progressing(findings))),
        (types::REPLICA_FAILURE, replica_failure(findings)),
        (
            types::SCALE_IN_BLOCKED,
            blocked(findings.scale_in.blocked.as_ref()),
        ),
        (
            types::UPDATE_BLOCKED,
            blocked(findings.rollout.blocked.as_ref()),
        ),
        (types::DISKS_OUTDATED, disks_outdated(findings)),
        (types::PAUSED, paused(findings)),
        (types::CONFIG_READY, Some(config_ready(findings.snapshot))),
    ]
    .into_iter()
    .filter_map(|(kind, verdict)| {
        let verdict = verdict?;
        let since = stored(&pool.status, kind)
            .filter(|condition| condition.status == verdict.status)
            .map(|condition| condition.last_transition_time.clone());
        Some(Condition {
            type_: kind.to_owned(),
            status: verdict.status.to_owned(),
            reason: verdict.reason.to_owned(),
            message: verdict.message,
            observed_generation: Some(pool.generation),
            last_transition_time: since.unwrap_or_else(|| Time(whole_seconds(now))),
        })
    })
    .collect()
}

/// Events for what has changed since the stored status.
pub(super) fn events(findings: &Findings<'_>) -> Vec<Note> {
    let pool = &findings.snapshot.pool;
    let mut notes = Vec::from_iter(restarted_again(findings));
    let mut note = |warning, reason, message| {
        notes.push(Note {
            warning,
            reason,
            message,
        });
    };
    let was_paused = stored(&pool.status, types::PAUSED).is_some_and(|c| c.status == "True");
    match (was_paused, paused(findings)) {
        (false, Some(verdict)) => note(false, reasons::PAUSED, verdict.message),
        (true, None) => note(false, reasons::RESUMED, "no longer paused".to_owned()),
        (true, Some(_)) | (false, None) => {}
    }
    let blocked = [
        (types::SCALE_IN_BLOCKED, &findings.scale_in.blocked),
        (types::UPDATE_BLOCKED, &findings.rollout.blocked),
    ];
    for (kind, why) in blocked {
        let told = stored(&pool.status, kind)
            .is_some_and(|c| c.status == "True" && c.observed_generation == Some(pool.generation));
        if let (Some(why), false) = (why, told) {
            note(true, why.reason, why.message.clone());
        }
    }
    let verdict = progressing(findings);
    let before = stored(&pool.status, types::PROGRESSING);
    if verdict.reason == reasons::DEADLINE_EXCEEDED
        && before.is_none_or(|before| before.reason != verdict.reason)
    {
        note(true, verdict.reason, verdict.message);
    }
    let new: Vec<String> = findings
        .scale_out
        .taken
        .iter()
        .filter(|(ordinal, _)| !findings.snapshot.memory.reported_taken.contains(ordinal))
        .map(|(ordinal, by)| format!("{ordinal} ({by})"))
        .collect();
    if !new.is_empty() {
        let message = format!(
            "numbers skipped, since something that is not this pool's has the name: {}",
            listed(&new)
        );
        note(true, reasons::NAME_TAKEN, message);
    }
    let verdict = config_ready(findings.snapshot);
    let before = stored(&pool.status, types::CONFIG_READY);
    let was_false = before.filter(|c| c.status == "False");
    match verdict.status {
        "False" if was_false.is_none_or(|c| c.reason != verdict.reason) => {
            note(true, verdict.reason, verdict.message);
        }
        "True" if was_false.is_some() => note(false, verdict.reason, verdict.message),
        _ => {}
    }
    notes
}

/// Whether new members can be stamped, and if not, what for.
pub(super) fn config_ready(snapshot: &Snapshot) -> Verdict {
    let reference = &snapshot.pool.spec.config;
    let name = &reference.name;
    let pin = reference.revision.as_deref();
    if !snapshot.kubevirt_installed {
        return Verdict::new(
            "False",
            reasons::KUBEVIRT_ABSENT,
            KUBEVIRT_ABSENT.to_owned(),
        );
    }
    if let Some(target) = &snapshot.target
        && target.has_disk_templates
        && !snapshot.cdi_installed
    {
        let message = "the config has dataVolumeTemplates, and CDI is not installed".to_owned();
        return Verdict::new("False", reasons::CDI_ABSENT, message);
    }
    let going_on = snapshot.target.as_ref().map_or_else(
        || "there is no revision to go on with".to_owned(),
        |target| format!("new VMs are made from revision {}", target.revision),
    );
    if snapshot.config == Config::Missing {
        let message = format!("VirtualMachineConfig {name} does not exist; {going_on}");
        return Verdict::new("False", reasons::CONFIG_NOT_FOUND, message);
    }
    match (&snapshot.config, &snapshot.target, pin) {
        // A pinned pool doesn't need what its config says now.
        (_, Some(target), Some(_)) => {
            let message = format!("pinned to revision {}", target.revision);
            Verdict::new("True", reasons::CONFIG_FOUND, message)
        }
        (Config::Ready | Config::Refused(_), None, Some(pin)) => {
            let message = format!("VirtualMachineConfig {name} has no revision {pin}");
            Verdict::new("False", reasons::REVISION_NOT_FOUND, message)
        }
        (Config::Refused(why), _, None) => {
            let message = format!("VirtualMachineConfig {name} is refused: {why}; {going_on}");
            Verdict::new("False", reasons::CONFIG_REFUSED, message)
        }
        (Config::Ready, Some(target), None) => {
            let message = format!("revision {}", target.revision);
            Verdict::new("True", reasons::CONFIG_FOUND, message)
        }
        (Config::Missing | Config::Pending | Config::Ready, _, _) => {
            let message = format!("the revision of VirtualMachineConfig {name} is being made");
            Verdict::new("Unknown", reasons::REVISION_PENDING, message)
        }
    }
}

fn available(findings: &Findings<'_>) -> Verdict {
    let counts = findings.counts;
    let wanted = i64::from(findings.snapshot.pool.spec.replicas());
    let right = i64::from(counts.available_replicas) + i64::from(counts.halted_replicas);
    let message = format!(
        "{wanted} wanted, {} available, {} halted",
        counts.available_replicas, counts.halted_replicas
    );
    if right >= wanted {
        Verdict::new("True", reasons::MEMBERS_AVAILABLE, message)
    } else {
        Verdict::new("False", reasons::MEMBERS_UNAVAILABLE, message)
    }
}

fn progressing(findings: &Findings<'_>) -> Verdict {
    let snapshot = findings.snapshot;
    let missing = findings.members.missing(snapshot.pool.spec.replicas());
    let awaited = findings.members.awaited.len();
    let surplus = findings.surplus;
    if !snapshot.kubevirt_installed {
        return Verdict::new(
            "False",
            reasons::KUBEVIRT_ABSENT,
            KUBEVIRT_ABSENT.to_owned(),
        );
    }
    if snapshot.pool.deleting {
        let message = "the pool is being deleted, and its VMs with it".to_owned();
        return Verdict::new("True", reasons::DELETING, message);
    }
    let pending = findings.rollout.pending;
    if snapshot.pool.spec.is_paused() && missing + surplus + pending > 0 {
        let message = format!(
            "paused with {missing} missing, {surplus} more than wanted and {pending} to be updated"
        );
        return Verdict::new("Unknown", reasons::PAUSED, message);
    }
    if missing > 0 {
        return scaling_out(findings, missing);
    }
    if surplus > 0 {
        return scaling_in(findings);
    }
    if awaited > 0 {
        let message = format!("{awaited} created and not seen yet");
        return Verdict::new("True", reasons::SCALING_OUT, message);
    }
    let blocked = findings.rollout.pending_blocked;
    if pending > blocked {
        return waiting(findings, reasons::ROLLING_OUT, rolling_out(findings));
    }
    let unavailable = findings.counts.unavailable_replicas;
    if unavailable > 0 {
        let message = format!("{unavailable} not available yet");
        return waiting(findings, reasons::WAITING_FOR_MEMBERS, message);
    }
    if let Some(why) = &findings.rollout.blocked {
        return Verdict::new("False", why.reason, why.message.clone());
    }
    let leaving = findings.members.leaving.len() + findings.members.detaching.len();
    if leaving > 0 {
        let message = format!("{leaving} going away");
        return Verdict::new("True", reasons::SCALING_IN, message);
    }
    let message = format!("{} as wanted", findings.counts.replicas);
    Verdict::new("True", reasons::SETTLED, message)
}

fn scaling_out(findings: &Findings<'_>, missing: usize) -> Verdict {
    let config = config_ready(findings.snapshot);
    if !can_stamp(findings.snapshot) {
        // What is Unknown of the config passes by itself; what is False needs somebody.
        let status = if config.status == "False" {
            "False"
        } else {
            "True"
        };
        let message = format!("{missing} missing: {}", config.message);
        return Verdict::new(status, config.reason, message);
    }
    let scale_out = findings.scale_out;
    let waited: Vec<String> = scale_out
        .waited
        .iter()
        .map(|(ordinal, (what, _))| format!("{ordinal} ({what})"))
        .collect();
    if waited.is_empty() {
        let message = format!("{missing} missing");
        return Verdict::new("True", reasons::SCALING_OUT, message);
    }
    let message = format!(
        "{missing} missing; waiting for numbers that are not free yet: {}",
        listed(&waited)
    );
    let reason = if scale_out.create.is_empty() {
        reasons::WAITING_FOR_DELETION
    } else {
        reasons::SCALING_OUT
    };
    Verdict::new("True", reason, message)
}

fn scaling_in(findings: &Findings<'_>) -> Verdict {
    match &findings.scale_in.blocked {
        Some(blocked) if findings.scale_in.remove.is_empty() => {
            Verdict::new("False", blocked.reason, blocked.message.clone())
        }
        _ => {
            let message = format!("{} more than wanted", findings.surplus);
            Verdict::new("True", reasons::SCALING_IN, message)
        }
    }
}

/// All that failed and is needed still, in the order of the kinds; the first one gives the reason. The messages
/// are bounded each, and there are few kinds.
fn replica_failure(findings: &Findings<'_>) -> Option<Verdict> {
    let missing = findings
        .members
        .missing(findings.snapshot.pool.spec.replicas());
    let is_needed = |kind: Kind| match kind {
        Kind::Create => missing > 0,
        Kind::Delete => findings.surplus > 0,
        Kind::Detach => !findings.members.detaching.is_empty(),
        Kind::Release => findings.former > 0,
        Kind::Restart | Kind::Update => findings.rollout.pending > 0,
        Kind::Clear => !findings.snapshot.intents.detach.is_empty(),
    };
    let failures = findings.snapshot.failures.iter();
    let needed: Vec<&Failure> = failures
        .filter(|(kind, _)| is_needed(**kind))
        .map(|(_, failure)| failure)
        .collect();
    let first = needed.first()?;
    let mut messages: Vec<&str> = needed.iter().map(|one| one.message.as_str()).collect();
    messages.dedup();
    Some(Verdict::new("True", first.reason, messages.join("; ")))
}

fn paused(findings: &Findings<'_>) -> Option<Verdict> {
    let message = || "spec.paused is set: nothing is done to VMs".to_owned();
    findings
        .snapshot
        .pool
        .spec
        .is_paused()
        .then(|| Verdict::new("True", reasons::PAUSED, message()))
}

/// Whether there is all that a create needs. A revision that is being made is waited for: what is made from
/// the one before would keep the old spec.
pub(super) fn can_stamp(snapshot: &Snapshot) -> bool {
    let is_pinned = snapshot.pool.spec.config.revision.is_some();
    (is_pinned || snapshot.config != Config::Pending)
        && snapshot.kubevirt_installed
        && snapshot
            .target
            .as_ref()
            .is_some_and(|target| snapshot.cdi_installed || !target.has_disk_templates)
}

fn stored<'a>(status: &'a VirtualMachinePoolStatus, kind: &str) -> Option<&'a Condition> {
    status
        .conditions
        .iter()
        .find(|condition| condition.type_ == kind)
}

/// Kubernetes stores times in whole seconds.
fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

pub(super) fn listed(items: &[String]) -> String {
    let named = items[..items.len().min(NAMED)].join(", ");
    match items.len().saturating_sub(NAMED) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

const KUBEVIRT_ABSENT: &str = "KubeVirt is not installed: there are no VirtualMachines";
