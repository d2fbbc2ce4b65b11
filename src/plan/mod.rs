//! Decides what is to be done for one pool, and says why. Pure: [`plan`] reads a [`Snapshot`] and the time,
//! and returns data; `controller::apply` turns it into calls. Nothing here reads a clock, a cache or the
//! network, and the same `plan` is to serve previews.
//!
//! Scaling out and in never happen in one plan, and what was answered but is not seen yet is counted as done
//! (`expected_creates`, `expected_deletes`), so that a stale cache makes no VM too many and deletes none
//! twice. A paused pool and one that is being deleted get no action; their status goes on. What failed is
//! held back until [`Failure::retry_at`], kind by kind: whatever else fails or succeeds meanwhile, no kind is
//! tried more often than its own failures allow.

mod action;
mod budget;
mod candidate;
mod conditions;
pub mod intents;
mod membership;
mod pace;
mod proactive;
mod progress;
mod restarts;
mod rewrites;
mod rollout;
mod rollout_conditions;
mod scale_in;
mod scale_out;
mod selection;
mod stage;
mod status;
mod update_strategy;

pub use scale_out::patience_seconds;
pub use status::may_be_halted;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::Timestamp;

pub use self::action::{Action, Kind};
use self::action::{create, delete, release, restart, update_of};
use self::conditions::Findings;
use self::intents::{Asked, Intents};
use self::membership::Membership;
use self::pace::Pace;
pub use self::progress::Progress;
pub use self::restarts::Restarts;
pub use self::rewrites::Written;
use self::rollout::Rollout;
use self::scale_in::ScaleIn;
use self::scale_out::ScaleOut;
use self::status::earliest;
use crate::api::annotations;
use crate::api::{VirtualMachinePoolSpec, VirtualMachinePoolStatus};
use crate::kubevirt::{Live, VmView, VmiView};
use crate::stamp::PoolInputs;

/// Everything that one decision about one pool reads.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The pool itself.
    pub pool: Pool,
    /// Its config.
    pub config: Config,
    /// What new VMs are stamped from; `None` while there is no revision.
    pub target: Option<Target>,
    /// Every VM whose controller is this pool, by UID, the ones being deleted included.
    pub members: Vec<Member>,
    /// VMs that carry this pool's `member-of` annotation and are not its members any more.
    pub former: Vec<VmView>,
    /// Named operations that were accepted and are not over yet.
    pub intents: Intents,
    /// Ordinals whose VM name, or the name of one of whose disks, is in use by something that is not a live
    /// member of this pool. What isn't named here is taken for free, so all that could be chosen must have
    /// been looked at; there need be none while no member is missing.
    pub occupied: BTreeMap<u32, Occupied>,
    /// Creates that were answered with success and whose VM the cache hasn't shown yet, by ordinal.
    pub expected_creates: Vec<u32>,
    /// UIDs of members whose deletion was answered with success and that the cache still shows alive.
    pub expected_deletes: Vec<String>,
    /// UIDs of members whose update was answered with success and that the cache still shows as they were.
    pub expected_updates: BTreeSet<String>,
    /// UIDs of instances whose restart was answered with success and that the cache still shows running.
    pub expected_restarts: BTreeSet<String>,
    /// Names of members that could not be updated or restarted the last time: they come last.
    pub failed_updates: BTreeSet<String>,
    /// Since when each ordinal has been seen going away, from the last [`Plan::waiting`].
    pub waiting: BTreeMap<u32, Timestamp>,
    /// From the last [`Plan::memory`].
    pub memory: Memory,
    /// What went wrong when it was last tried.
    pub failures: BTreeMap<Kind, Failure>,
    /// Whether KubeVirt's CRDs are installed.
    pub kubevirt_installed: bool,
    /// Whether CDI's CRDs are installed.
    pub cdi_installed: bool,
    /// Limits from the command line.
    pub limits: Limits,
}

/// What one plan hands to the next one of the same pool, beside [`Plan::waiting`]. It lives in memory only:
/// losing it (a restart, a new leader) costs one repeated event or a clock that starts anew.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Memory {
    /// Taken ordinals that an event has told of.
    pub reported_taken: BTreeSet<u32>,
    /// Since when members have been seen Ready, by UID, of those whose instance doesn't say or names a time
    /// to come.
    pub ready_since: BTreeMap<String, Timestamp>,
    /// UIDs of members that were chosen to be removed, as long as they are there.
    pub removed: BTreeSet<String>,
    /// Ordinals of VMs that somebody else deleted and that are to be replaced.
    pub vacated: BTreeSet<u32>,
    /// Since when members that are to be updated have been seen unavailable, by UID, of those whose conditions
    /// don't say.
    pub unavailable_since: BTreeMap<String, Timestamp>,
    /// How often members were restarted for the target, by UID.
    pub restarts: BTreeMap<String, Restarts>,
    /// When members were last written for the target, by UID, of late.
    pub written: BTreeMap<String, Written>,
    /// What there was when something last became updated or available, while there is something to wait for.
    pub progress: Option<Progress>,
    /// Since when a surplus is kept because of members that a request has announced to leave.
    pub held_back_since: Option<Timestamp>,
}

/// The pool itself.
#[derive(Clone, Debug)]
pub struct Pool {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// Generation of the spec.
    pub generation: i64,
    /// Whether it is being deleted: then nothing is done, the garbage collector takes the members.
    pub deleting: bool,
    /// What it should be.
    pub spec: VirtualMachinePoolSpec,
    /// What was last said of it.
    pub status: VirtualMachinePoolStatus,
}

/// State of the pool's config.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Config {
    /// It does not exist; the last revision, if there is one, goes on serving.
    Missing,
    /// Its newest spec has not become a revision yet.
    Pending,
    /// Its newest spec and its revision are there.
    Ready,
    /// KubeVirt refuses its newest spec; the message says why. An older revision goes on serving.
    Refused(String),
}

/// What VMs are stamped from.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Target {
    /// Name of the ControllerRevision.
    pub revision: String,
    /// `stamp::revision_hash` of its content.
    pub content_hash: String,
    /// `stamp::disks_hash` of its content.
    pub disks_hash: String,
    /// What the pool says of its VMs.
    pub inputs: PoolInputs,
    /// Names of the revisions that members' instances were started from and whose template has other labels or
    /// annotations: KubeVirt doesn't ask for a restart because of those.
    pub relabelled_since: BTreeSet<String>,
    /// Hashes of the stamps that members' instances were started with and that have all that KubeVirt compares as
    /// this one has: if it asks for a restart, then for somebody else's write.
    pub alike: BTreeSet<String>,
    /// Hash of revision content and pool inputs (`stamp::revision::stamp_hash`).
    pub stamp_hash: String,
    /// What of its template KubeVirt changes live.
    pub live: Live,
    /// Whether the revision has disk templates: then CDI is needed.
    pub has_disk_templates: bool,
}

/// A VM of the pool, and its instance if it has one (of the same UID).
#[derive(Clone, Debug)]
pub struct Member {
    /// The VM.
    pub vm: VmView,
    /// Its instance.
    pub vmi: Option<VmiView>,
    /// Its number, from its name; `None` if the name is no `<prefix>-<n>` of the pool.
    pub ordinal: Option<u32>,
    /// Whether a disk of its templates is not there or has no data yet.
    pub is_filling: bool,
    /// What has the name of a disk that the target would bring and isn't its own: it can't be updated.
    pub taken_disk: Option<String>,
}

/// What stands in the way of an ordinal.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Occupied {
    /// Something alive that is not this pool's: the ordinal is skipped.
    Taken {
        /// Such as `VirtualMachine web-3` or `DataVolume web-3-root`.
        by: String,
    },
    /// An earlier VM of this number, or a disk of one, is going away: the ordinal is waited for.
    GoingAway {
        /// Such as `VirtualMachine web-3`.
        what: String,
        /// How long it may take before the next free ordinal is used instead: the guest's grace period and
        /// two minutes.
        patience_seconds: i64,
    },
}

/// What went wrong with deeds of one kind, and when to try again.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Failure {
    /// One of `conditions::reasons`.
    pub reason: &'static str,
    /// For people.
    pub message: String,
    /// No deed of the kind is tried before then.
    pub retry_at: Timestamp,
}

impl Snapshot {
    /// Until when no deed of that kind is tried, if so: its last one has failed.
    pub(crate) fn held(&self, kind: Kind, now: Timestamp) -> Option<Timestamp> {
        let failure = self.failures.get(&kind)?;
        Some(failure.retry_at).filter(|until| *until > now)
    }
}

/// Limits from the command line.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most deeds of one kind in one pass of one pool.
    pub burst: u32,
}

/// What is to be done for one pool.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Those of a kind in this order; each can fail without the others.
    pub actions: Vec<Action>,
    /// What to say of the pool. Conditions keep their transition time where their status stays.
    pub status: VirtualMachinePoolStatus,
    /// Events for the pool.
    pub events: Vec<Note>,
    /// When to look again if nothing happens before.
    pub wake_at: Option<Timestamp>,
    /// Since when each ordinal has been seen going away; to be handed back in the next snapshot.
    pub waiting: BTreeMap<u32, Timestamp>,
    /// To be handed back in the next snapshot.
    pub memory: Memory,
}

/// An event.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Note {
    /// Whether it is a warning.
    pub warning: bool,
    /// One of `conditions::reasons`.
    pub reason: &'static str,
    /// For people.
    pub message: String,
}

/// Decides what is to be done for the pool in `snapshot` at the time `now`, and what to say of it.
pub fn plan(snapshot: &Snapshot, now: Timestamp) -> Plan {
    let members = Membership::of(snapshot);
    let observed = status::observe(snapshot, &members, now);
    let departures = scale_out::departures(snapshot, &members);
    let waiting = scale_out::seen_since(snapshot, &members, &departures, now);
    let acts = acts(snapshot);
    let vacated = scale_out::vacated(snapshot, &members);
    let mut scale_out = ScaleOut {
        vacated: vacated.clone(),
        ..ScaleOut::default()
    };
    let scale_in = choose_leaving(snapshot, &members, acts, now);
    let former = former_members(snapshot, acts);
    if acts && conditions::can_stamp(snapshot) {
        scale_out = scale_out::choose(snapshot, &members, &departures, &waiting, &vacated, now);
    }
    let rollout = follow(snapshot, &members, &observed.states, &scale_in, acts, now);
    let progress = progress::judge(snapshot, &observed.status, &rollout, acts, now);

    let findings = Findings {
        snapshot,
        members: &members,
        counts: &observed.status,
        scale_out: &scale_out,
        scale_in: &scale_in,
        surplus: scale_in::surplus(snapshot, &members),
        former: former.len(),
        rollout: &rollout,
        is_stalled: progress.is_stalled,
    };
    let conditions = conditions::conditions(&findings, now);

    let mut pace = Pace::new(snapshot, now);
    let asked = intents::asked(snapshot, acts);
    let actions = actions(&mut pace, asked, former, &scale_out, &scale_in, &rollout);
    let timers = [rollout.next, progress.next, scale_in.next()];
    let waited = scale_out.waited.values().map(|(_, until)| *until);
    let wake_at = waited
        .chain(observed.next_available)
        .chain(timers.into_iter().flatten())
        .fold(pace.wake_at, earliest);

    Plan {
        actions,
        events: conditions::events(&findings),
        status: VirtualMachinePoolStatus {
            conditions,
            ..observed.status
        },
        wake_at,
        waiting,
        memory: Memory {
            reported_taken: reported_taken(snapshot, &scale_out, &members),
            ready_since: observed.ready_since,
            removed: scale_in::removed(snapshot, &members, &scale_in),
            vacated: scale_out.vacated,
            unavailable_since: rollout.unavailable_since,
            restarts: rollout.restarts,
            written: rollout.written,
            progress: progress.known,
            held_back_since: scale_in.held_back_since,
        },
    }
}

/// Whether anything is done to VMs at all.
fn acts(snapshot: &Snapshot) -> bool {
    let pool = &snapshot.pool;
    !pool.deleting && !pool.spec.is_paused() && snapshot.kubevirt_installed
}

/// Who goes.
fn choose_leaving<'a>(
    snapshot: &Snapshot,
    members: &Membership<'a>,
    acts: bool,
    now: Timestamp,
) -> ScaleIn<'a> {
    if acts {
        scale_in::choose(snapshot, members, now)
    } else {
        ScaleIn::default()
    }
}

/// The deeds of this pass, in their order.
fn actions(
    pace: &mut Pace<'_>,
    asked: Asked,
    former: Vec<&VmView>,
    scale_out: &ScaleOut,
    scale_in: &ScaleIn<'_>,
    rollout: &Rollout<'_>,
) -> Vec<Action> {
    let mut actions = pace.take(Kind::Detach, asked.detach.into_iter());
    actions.extend(pace.take(Kind::Release, former.into_iter().map(release)));
    let create = scale_out.create.iter().copied().map(create);
    actions.extend(pace.take(Kind::Create, create));
    let delete = scale_in.remove.iter().copied().map(delete);
    actions.extend(pace.take(Kind::Delete, delete));
    let update = rollout.update.iter().copied();
    let update = update.map(|member| update_of(member, rollout.keeps_run_strategy));
    actions.extend(pace.take(Kind::Update, update));
    let restart = rollout.restart.iter().copied().map(restart);
    actions.extend(pace.take(Kind::Restart, restart));
    actions.extend(pace.take(Kind::Clear, asked.clear.into_iter()));
    actions
}

/// What is done for the target revision. Of a pool in which nothing is done it is still known what would be.
fn follow<'a>(
    snapshot: &Snapshot,
    members: &Membership<'a>,
    states: &[status::State],
    scale_in: &ScaleIn<'_>,
    acts: bool,
    now: Timestamp,
) -> Rollout<'a> {
    let rollout = rollout::choose(snapshot, members, states, &scale_in.remove, now);
    if acts {
        return rollout;
    }
    Rollout {
        pending: rollout.pending,
        restarts: snapshot.memory.restarts.clone(),
        written: snapshot.memory.written.clone(),
        ..Rollout::default()
    }
}

/// Former members that still carry our marks and stay, if anything is done.
fn former_members(snapshot: &Snapshot, acts: bool) -> Vec<&VmView> {
    let uid = &snapshot.pool.uid;
    snapshot
        .former
        .iter()
        .filter(|_| acts)
        .filter(|vm| vm.deleting_since.is_none() && !vm.is_member_of(uid))
        .filter(|vm| vm.annotations.get(annotations::MEMBER_OF) == Some(uid))
        .collect()
}

/// Taken ordinals that an event has told of by now. One that turned out free or going away in between is told
/// of again; of one that nobody looked at nothing is known.
fn reported_taken(
    snapshot: &Snapshot,
    scale_out: &ScaleOut,
    members: &Membership<'_>,
) -> BTreeSet<u32> {
    let held = members.held();
    let mut reported = snapshot.memory.reported_taken.clone();
    reported.retain(|ordinal| !held.contains(ordinal) && !scale_out.waited.contains_key(ordinal));
    for ordinal in &scale_out.create {
        reported.remove(ordinal);
    }
    reported.extend(scale_out.taken.keys());
    reported
}

#[cfg(test)]
mod tests;
