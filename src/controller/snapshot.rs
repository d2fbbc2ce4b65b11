//! Puts together what one decision about one pool reads, from the caches and what the last passes left in
//! memory. Pure, and decides nothing but what the caches mean: who is a member, which revision is the target,
//! which numbers are not free.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use super::expectations::{Expectations, cached_version};
use super::member_disks;
use super::occupied::Numbers;
use super::target::{alike, relabelled_since, target};
use crate::api::intent::{self, Intent, Verb};
use crate::api::{VirtualMachinePool, VirtualMachinePoolStatus, annotations};
use crate::cache::{Caches, Index, PoolEntry, RevisionEntry};
use crate::kubevirt::{Live, VmView, disk_template_names};
use crate::plan::intents::{Detach, Intents, Progress};
use crate::plan::{self, Failure, Kind, Limits, Member, Occupied, Snapshot, Target};
use crate::stamp::{self, PoolInputs};

/// What one pass leaves for the next.
#[derive(Debug, Default)]
pub(super) struct Remembered {
    /// What was done and is not seen yet.
    pub(super) expectations: Expectations,
    /// What was read from the API server because the cache was behind.
    pub(super) live: LiveReads,
    /// From the last plan.
    pub(super) waiting: BTreeMap<u32, Timestamp>,
    /// From the last plan.
    pub(super) plan: plan::Memory,
    /// What the last plan said, whether or not it has been written yet.
    pub(super) status: Option<VirtualMachinePoolStatus>,
    /// What went wrong when it was last tried.
    pub(super) failures: BTreeMap<Kind, Failure>,
    /// Names of the VMs that could not be updated or restarted the last time.
    pub(super) failed_updates: BTreeSet<String>,
    /// The pool's annotation of what was accepted, as the last plan knew it.
    pub(super) intent: Option<String>,
}

/// How long a live read counts at most: a VM that the cache has not shown by then is gone again.
const LIVE_READ_LASTS: SignedDuration = SignedDuration::from_secs(30);

/// VMs as the API server showed them when the cache was found to be behind: each counts until the cache
/// shows anything else than it did then.
#[derive(Debug, Default)]
pub(super) struct LiveReads {
    by_name: HashMap<String, LiveRead>,
}

#[derive(Debug)]
struct LiveRead {
    /// Resource version that the cache had; `None` if it had no such VM.
    cached: Option<String>,
    live: Option<VmView>,
    since: Timestamp,
}

impl LiveReads {
    /// Keeps what the API server said of the VM with that name.
    pub(super) fn keep(
        &mut self,
        caches: &Caches,
        namespace: &str,
        name: &str,
        live: Option<VmView>,
        now: Timestamp,
    ) {
        if live
            .as_ref()
            .is_some_and(|vm| caches.vms.has_reached(&vm.resource_version))
        {
            // The cache knows as much, or more: the answer may be older than what it has shown since.
            self.by_name.remove(name);
            return;
        }
        let cached = cached_version(caches, namespace, name);
        let read = LiveRead {
            cached,
            live,
            since: now,
        };
        self.by_name.insert(name.to_owned(), read);
    }

    /// Drops what the cache has moved beyond.
    pub(super) fn observe(&mut self, caches: &Caches, namespace: &str, now: Timestamp) {
        self.by_name.retain(|name, read| {
            let age = now.duration_since(read.since);
            cached_version(caches, namespace, name) == read.cached
                && !age.is_negative()
                && age < LIVE_READ_LASTS
        });
    }

    /// When the next one stops to count.
    pub(super) fn next_due(&self) -> Option<Timestamp> {
        let since = self.by_name.values().map(|read| read.since).min()?;
        since.checked_add(LIVE_READ_LASTS).ok()
    }

    /// The VM of that name, from the API server's answer or else from the cache.
    pub(super) fn vm(&self, caches: &Caches, namespace: &str, name: &str) -> Option<VmView> {
        match self.by_name.get(name) {
            Some(read) => read.live.clone(),
            None => caches.vm(namespace, name).map(Arc::unwrap_or_clone),
        }
    }

    /// `vms`, with those replaced that are known better.
    fn apply(&self, vms: Vec<Arc<VmView>>) -> Vec<VmView> {
        vms.into_iter()
            .filter_map(|vm| match self.by_name.get(&vm.name) {
                Some(read) => read.live.clone(),
                None => Some(Arc::unwrap_or_clone(vm)),
            })
            .collect()
    }
}

/// A snapshot, and what its creates are made from.
#[derive(Debug)]
pub(super) struct View {
    /// What the plan reads.
    pub(super) snapshot: Snapshot,
    /// What VMs are stamped from.
    pub(super) source: Option<Source>,
    /// The pool's annotation of what was accepted, as it was read.
    pub(super) intent: Option<String>,
}

/// What VMs are stamped from.
#[derive(Clone, Debug)]
pub(super) struct Source {
    /// The revision.
    pub(super) revision: Arc<RevisionEntry>,
    /// What the pool says of its VMs.
    pub(super) inputs: PoolInputs,
}

/// The snapshot of `pool`, whose cache entry is `entry`.
pub(super) fn build(
    caches: &Caches,
    entry: &PoolEntry,
    pool: &VirtualMachinePool,
    remembered: &Remembered,
    limits: Limits,
) -> View {
    let id = &entry.id;
    let inputs = PoolInputs::of(pool);
    let (config, revision) = target(caches, entry);
    let members = members(caches, entry, &inputs, revision.as_deref(), remembered);
    let former = former(caches, entry, remembered);
    let expected_creates = remembered.expectations.creates();
    let intents = Intents {
        announced: announced(entry, &members),
        ..intents(caches, entry, pool, remembered)
    };
    let spec = revision.as_ref().map(|revision| &*revision.spec);
    let held = Held::of(pool, &members, &intents, remembered);
    let occupied = occupied(caches, entry, pool, &inputs, held, spec, remembered);
    let target = revision.as_ref().map(|revision| Target {
        revision: revision.id.name.clone(),
        content_hash: revision.content_hash.clone(),
        disks_hash: stamp::disks_hash(&revision.spec),
        inputs: inputs.clone(),
        relabelled_since: relabelled_since(caches, revision, &members),
        alike: alike(caches, revision, &inputs, &members),
        stamp_hash: stamp::stamp_hash(&revision.content_hash, &inputs),
        live: Live::of_template(revision.spec.get("template")),
        has_disk_templates: !disk_templates(&revision.spec).is_empty(),
    });
    let status = remembered.status.clone();
    View {
        snapshot: Snapshot {
            pool: plan::Pool {
                namespace: id.namespace.clone(),
                name: id.name.clone(),
                uid: id.uid.clone(),
                generation: id.generation,
                deleting: id.deleting,
                spec: pool.spec.clone(),
                status: status.unwrap_or_else(|| entry.status()),
            },
            config,
            target,
            members,
            former,
            intents,
            occupied,
            expected_creates,
            expected_deletes: remembered.expectations.deletes(),
            expected_updates: remembered.expectations.updates(),
            expected_restarts: remembered.expectations.restarts(),
            failed_updates: remembered.failed_updates.clone(),
            waiting: remembered.waiting.clone(),
            memory: remembered.plan.clone(),
            failures: remembered.failures.clone(),
            kubevirt_installed: caches.kubevirt_installed(),
            cdi_installed: caches.cdi_installed(),
            limits,
        },
        source: revision.map(|revision| Source { revision, inputs }),
        intent: intent_of(pool).map(str::to_owned),
    }
}

/// The annotation of what was accepted for the pool.
pub(super) fn intent_of(pool: &VirtualMachinePool) -> Option<&str> {
    let annotations = pool.metadata.annotations.as_ref()?;
    annotations.get(annotations::INTENT).map(String::as_str)
}

/// What was accepted for the pool, and how much of it the cache shows done. The cache, not what was answered:
/// see [`plan::intents`].
fn intents(
    caches: &Caches,
    entry: &PoolEntry,
    pool: &VirtualMachinePool,
    remembered: &Remembered,
) -> Intents {
    let read = match intent::Intents::read(intent_of(pool)) {
        Ok(read) => read,
        Err(error) => {
            return Intents {
                unclear: Some(error.to_string()),
                ..Intents::default()
            };
        }
    };
    let progress = |intent: &Intent| {
        let is_member = |vm: &VmView| {
            vm.uid == intent.uid && vm.deleting_since.is_none() && vm.is_member_of(&entry.id.uid)
        };
        let cached = caches.vm(&entry.id.namespace, &intent.name);
        let live = remembered.live.by_name.get(&intent.name);
        let live = live.map(|read| read.live.as_ref().is_some_and(is_member));
        // A cache that has never shown the VM may still come to show it as a member.
        let is_known = cached.as_ref().is_some_and(|vm| vm.uid == intent.uid)
            || caches.vms.has_reached(&intent.version);
        match (cached.is_some_and(|vm| is_member(&vm)), live) {
            (true, Some(false)) => Progress::Unseen,
            (false, Some(false)) if !is_known => Progress::Unseen,
            (false, Some(false)) => Progress::Over,
            (false, None) if caches.vms.has_reached(&intent.version) => Progress::Over,
            // A member; or perhaps the cache doesn't know the VM yet.
            (_, Some(true) | None) => Progress::Due,
        }
    };
    let detach = read.known().map(|intent| match intent.verb {
        Verb::Detach => Detach {
            name: intent.name.clone(),
            uid: intent.uid.clone(),
            reason: intent.reason.clone(),
            progress: progress(intent),
        },
    });
    Intents {
        detach: detach.collect(),
        announced: BTreeMap::new(),
        unclear: (read.unknown() > 0).then(|| {
            format!(
                "the annotation {} asks for something that this version doesn't know",
                annotations::INTENT
            )
        }),
    }
}

/// Members whose detach may still be recorded: what was judged is the pool as the cache shows it, or a later
/// version of it. An earlier one is over: the record is there, or will never be.
fn announced(entry: &PoolEntry, members: &[Member]) -> BTreeMap<String, String> {
    let shown = &entry.id.resource_version;
    let may_come = |judged: &str| match (judged.parse::<u64>(), shown.parse::<u64>()) {
        (Ok(judged), Ok(shown)) => shown <= judged,
        _ => judged == shown,
    };
    let marked = members.iter().filter_map(|member| {
        let judged = member.vm.annotations.get(annotations::DETACHING)?;
        Some((member.vm.uid.clone(), judged.clone()))
    });
    marked.filter(|(_, judged)| may_come(judged)).collect()
}

/// Whether a VM with the mark of the pool with that UID is a member no more, of that pool or any other.
pub(super) fn is_former(vm: &VmView, pool_uid: &str) -> bool {
    vm.annotations
        .get(annotations::MEMBER_OF)
        .map(String::as_str)
        == Some(pool_uid)
        && vm.owner.as_ref().is_none_or(|owner| !owner.is_pool())
        && vm.deleting_since.is_none()
}

/// VMs with the pool's mark that are its members no more.
fn former(caches: &Caches, entry: &PoolEntry, remembered: &Remembered) -> Vec<VmView> {
    let id = &entry.id;
    let mut marked = caches.vms.select(&Index::MemberOf(id.uid.clone()));
    // Members carry the mark too: only what may be none is copied.
    marked.retain(|vm| {
        vm.namespace == id.namespace
            && (remembered.live.by_name.contains_key(&vm.name) || is_former(vm, &id.uid))
    });
    let mut former = remembered.live.apply(marked);
    former.retain(|vm| is_former(vm, &id.uid));
    former
}

fn members(
    caches: &Caches,
    entry: &PoolEntry,
    inputs: &PoolInputs,
    revision: Option<&RevisionEntry>,
    remembered: &Remembered,
) -> Vec<Member> {
    let vms = remembered.live.apply(caches.members_of(&entry.id.uid));
    vms.into_iter()
        .filter(|vm| vm.is_member_of(&entry.id.uid) && vm.namespace == entry.id.namespace)
        .map(|vm| {
            let vmi = caches
                .vmis
                .get(&vm.namespace, &vm.name)
                .filter(|vmi| vmi.vm_uid.as_ref() == Some(&vm.uid));
            Member {
                ordinal: stamp::parse_ordinal(&inputs.vm_prefix, &vm.name),
                vmi: vmi.map(Arc::unwrap_or_clone),
                is_filling: member_disks::are_filling(caches, &vm),
                taken_disk: revision
                    .and_then(|revision| member_disks::taken(caches, &vm, revision)),
                vm,
            }
        })
        .collect()
}

/// The numbers that members hold, and how many members are missing.
struct Held {
    /// In their order.
    ordinals: Vec<u32>,
    missing: usize,
}

impl Held {
    fn of(
        pool: &VirtualMachinePool,
        members: &[Member],
        intents: &Intents,
        remembered: &Remembered,
    ) -> Self {
        // One whose delete was answered is missing to the plan already, whatever the cache says.
        let gone: BTreeSet<String> = remembered.expectations.deletes().into_iter().collect();
        let stays =
            |member: &&Member| member.vm.deleting_since.is_none() && !gone.contains(&member.vm.uid);
        let live: Vec<&Member> = members.iter().filter(stays).collect();
        let mut ordinals: Vec<u32> = live
            .iter()
            .filter_map(|member| member.ordinal)
            .chain(remembered.expectations.creates())
            .collect();
        ordinals.sort_unstable();
        ordinals.dedup();
        // Those that are to leave hold their number, and count as gone.
        let leaves = |uid: &String| intents.detach.iter().any(|detach| detach.uid == *uid);
        let leaving = live.iter().filter(|member| leaves(&member.vm.uid));
        let leaving = leaving.filter(|member| member.ordinal.is_some()).count();
        let staying = ordinals.len().saturating_sub(leaving);
        let missing = (pool.spec.replicas() as usize).saturating_sub(staying);
        Self { ordinals, missing }
    }
}

/// The numbers that are not free, from the first one on until there are as many free ones as could be needed,
/// and of those that the plan wants back. What isn't looked at here the plan takes for free. None where no member is missing: a pool at rest looks at no disk.
fn occupied(
    caches: &Caches,
    entry: &PoolEntry,
    pool: &VirtualMachinePool,
    inputs: &PoolInputs,
    held: Held,
    spec: Option<&Map<String, Value>>,
    remembered: &Remembered,
) -> BTreeMap<u32, Occupied> {
    let Held {
        ordinals: held,
        mut missing,
    } = held;
    let templates = spec.map(disk_templates).unwrap_or_default();
    let numbers = Numbers {
        caches,
        live: &remembered.live,
        namespace: &entry.id.namespace,
        pool: &entry.id.name,
        pool_uid: &entry.id.uid,
        templates: &templates,
        grace_period_seconds: spec
            .and_then(|spec| spec.get("template"))
            .and_then(|template| template.pointer("/spec/terminationGracePeriodSeconds"))
            .and_then(Value::as_i64),
    };
    let mut occupied = BTreeMap::new();
    let mut look = |ordinal: u32| {
        let name = stamp::vm_name(&inputs.vm_prefix, ordinal);
        let found = numbers.occupied(&name);
        let is_free = found.is_none();
        occupied.extend(found.map(|found| (ordinal, found)));
        is_free
    };
    let is_held = |ordinal: u32| held.binary_search(&ordinal).is_ok();
    // The plan goes back to these first, however high they are: a VM that was deleted by hand may be gone
    // before its disks are.
    if missing > 0 {
        for &ordinal in remembered.plan.vacated.iter().filter(|&&n| !is_held(n)) {
            look(ordinal);
        }
    }
    for ordinal in pool.spec.ordinal_start()..=stamp::names::MAX_ORDINAL {
        if missing == 0 {
            break;
        }
        if !is_held(ordinal) && look(ordinal) {
            missing -= 1;
        }
    }
    occupied
}

fn disk_templates(spec: &Map<String, Value>) -> Vec<String> {
    spec.get("dataVolumeTemplates")
        .map(|templates| disk_template_names(&json!({"dataVolumeTemplates": templates})))
        .unwrap_or_default()
}
