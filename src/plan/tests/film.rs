//! A pool through several steps. Each step is something that happens, then a plan, which is carried out at
//! once on a model of the cluster: created VMs are in the cache with the next step, deleted ones are going
//! away until something lets them.

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::super::intents::{Detach, Progress};
use super::super::*;
use super::builders::{at, condition, deeds, vm};
use crate::api::conditions::types;
use crate::api::labels;
use crate::kubevirt::RunStrategy;
use crate::stamp::{StampMark, parse_ordinal, vm_name};

/// The pool and what is around it.
#[derive(Clone, Debug)]
pub(super) struct Film {
    pub(super) snapshot: Snapshot,
    /// VMs that are not the pool's.
    pub(super) strangers: BTreeSet<String>,
    /// Every VM that was ever deleted by the pool, by name.
    pub(super) deleted: Vec<String>,
    /// Every VM that was ever restarted by the pool, by name.
    pub(super) restarted: Vec<String>,
    pub(super) now: Timestamp,
    made: u32,
}

/// What happens, the deeds that it leads to, and `replicas/wanted` with the reason of `Progressing`.
pub(super) type Step = (&'static str, fn(&mut Film), &'static str, &'static str);

impl Film {
    pub(super) fn new(snapshot: Snapshot) -> Self {
        Self {
            snapshot,
            strangers: BTreeSet::new(),
            deleted: Vec::new(),
            restarted: Vec::new(),
            now: at(0),
            made: 0,
        }
    }

    /// Plays the steps.
    pub(super) fn play(mut self, steps: &[Step]) -> Self {
        for (number, (what, happens, deeds_wanted, status_wanted)) in steps.iter().enumerate() {
            happens(&mut self);
            let plan = self.step();
            let number = number + 1;
            assert_eq!(deeds(&plan), *deeds_wanted, "step {number}, {what}: deeds");
            let status = format!(
                "{}/{} {}",
                plan.status.replicas,
                self.snapshot.pool.spec.replicas(),
                condition(&plan, types::PROGRESSING)
            );
            assert_eq!(status, *status_wanted, "step {number}, {what}: status");
        }
        self
    }

    /// Plans, and carries the plan out.
    pub(super) fn step(&mut self) -> Plan {
        let plan = plan(&self.seen(), self.now);
        for action in &plan.actions {
            match action {
                Action::Create { ordinal } => self.create(*ordinal),
                Action::Delete { name, uid, .. } => {
                    let member = self.member(name);
                    assert_eq!(&member.vm.uid, uid, "precondition of the delete of {name}");
                    self.deleted.push(name.clone());
                    self.user_deletes(name);
                }
                Action::Detach { name, uid, .. } => self.leave(name, uid),
                Action::ClearIntents { uids } => {
                    let detach = &mut self.snapshot.intents.detach;
                    detach.retain(|detach| !uids.contains(&detach.uid));
                }
                Action::Release { name, .. } => {
                    self.snapshot.former.retain(|vm| &vm.name != name);
                    self.strangers.insert(name.clone());
                }
                Action::Restart {
                    name, uid, vmi_uid, ..
                } => self.restart(name, uid, vmi_uid),
                Action::Update { name, uid, .. } => self.update(name, uid),
            }
        }
        self.snapshot = self.snapshot.clone().after(&plan);
        plan
    }

    /// Somebody asks for a member to leave; it counts as recorded at once.
    pub(super) fn detach(&mut self, name: &str, replace: bool) {
        let uid = self.member(name).vm.uid.clone();
        let deleting = self.member(name).vm.deleting_since.is_some();
        let intents = &mut self.snapshot.intents.detach;
        if deleting || intents.iter().any(|detach| detach.uid == uid) {
            return;
        }
        intents.push(Detach {
            name: name.to_owned(),
            uid,
            reason: String::new(),
            progress: Progress::Due,
        });
        if !replace {
            let replicas = &mut self.snapshot.pool.spec.replicas;
            *replicas = Some((replicas.unwrap_or(1) - 1).max(0));
        }
    }

    /// A VM is detached, if it is still there, and the cache shows it at once.
    fn leave(&mut self, name: &str, uid: &str) {
        let members = &mut self.snapshot.members;
        let is_it = |member: &Member| member.vm.uid == uid && member.vm.deleting_since.is_none();
        if members.iter().any(is_it) {
            members.retain(|member| !is_it(member));
            self.strangers.insert(name.to_owned());
        }
        for detach in &mut self.snapshot.intents.detach {
            if detach.uid == uid {
                detach.progress = Progress::Over;
            }
        }
    }

    /// The snapshot of this moment.
    pub(super) fn seen(&self) -> Snapshot {
        let mut snapshot = self.snapshot.clone();
        let prefix = snapshot.pool.name.clone();
        let former = snapshot.former.iter().map(|vm| &vm.name);
        snapshot.occupied = former
            .chain(&self.strangers)
            .filter_map(|name| {
                let by = format!("VirtualMachine {name}");
                Some((parse_ordinal(&prefix, name)?, Occupied::Taken { by }))
            })
            .chain(snapshot.occupied)
            .collect();
        snapshot
    }

    fn create(&mut self, ordinal: u32) {
        let name = vm_name(&self.snapshot.pool.name, ordinal);
        let seen = self.seen();
        let clash = seen.members.iter().any(|member| member.vm.name == name)
            || seen.occupied.contains_key(&ordinal);
        assert!(!clash, "{name} exists");
        self.made += 1;
        let new = vm(&name)
            .uid(&format!("uid-{name}-{}", self.made))
            .created(&self.now.to_string())
            .without_instance();
        let member = new.member(&self.snapshot.pool.name);
        self.snapshot.members.push(member);
    }

    fn update(&mut self, name: &str, uid: &str) {
        let target = self.snapshot.target.clone().unwrap();
        let vm = &mut self.member(name).vm;
        assert_eq!(vm.uid, uid, "precondition of the update of {name}");
        let mark = StampMark {
            restored: vm.restored.clone(),
            ..StampMark::new(&target.content_hash, &target.inputs)
        };
        let annotations = &mut vm.annotations;
        annotations.insert(annotations::STAMP.to_owned(), mark.to_annotation());
        vm.labels
            .insert(labels::REVISION.to_owned(), target.revision);
        vm.generation += 1;
    }

    fn restart(&mut self, name: &str, uid: &str, vmi_uid: &str) {
        self.restarted.push(name.to_owned());
        let member = self.member(name);
        assert_eq!(member.vm.uid, uid, "precondition of the restart of {name}");
        let vmi = member.vmi.as_mut().unwrap();
        assert_eq!(vmi.uid, vmi_uid, "instance of the restart of {name}");
        assert!(!vmi.deleting, "{name} is restarted twice");
        vmi.deleting = true;
    }

    /// KubeVirt compares objects and instances, and finds that those of another stamp have to be restarted, or
    /// not.
    pub(super) fn compared(&mut self, restart: bool) {
        for member in &mut self.snapshot.members {
            let object = StampMark::parse(&member.vm.annotations[annotations::STAMP]).unwrap();
            if let Some(vmi) = &member.vmi
                && member.vm.seen_generation != Some(member.vm.generation)
            {
                member.vm.seen_generation = Some(member.vm.generation);
                member.vm.restart_required =
                    restart && vmi.stamp_hash.as_ref() != Some(&object.hash);
            }
        }
    }

    /// Instances that were ended are gone, and others run in their place, started from the object.
    pub(super) fn restarts(&mut self) {
        let prefix = self.snapshot.pool.name.clone();
        for member in &mut self.snapshot.members {
            let is_meant_to_run = member.vm.run_strategy != RunStrategy::Halted;
            if is_meant_to_run && member.vmi.as_ref().is_none_or(|vmi| vmi.deleting) {
                let mut vmi = vm(&member.vm.name).ready().member(&prefix).vmi.unwrap();
                let mark = StampMark::parse(&member.vm.annotations[annotations::STAMP]).unwrap();
                self.made += 1;
                vmi.uid = format!("vmi-{}-{}", member.vm.name, self.made);
                vmi.stamp_hash = Some(mark.hash);
                vmi.revision = member.vm.labels.get(labels::REVISION).cloned();
                member.vmi = Some(vmi);
                member.vm.restart_required = false;
                member.vm.seen_generation = Some(member.vm.generation);
            }
        }
    }

    /// The config gets another spec.
    pub(super) fn retarget(&mut self, content: &str) {
        let target = self.snapshot.target.as_mut().unwrap();
        target.revision = format!("desktop-{content}");
        content.clone_into(&mut target.content_hash);
        target.stamp_hash = StampMark::new(content, &target.inputs).hash;
    }

    pub(super) fn member(&mut self, name: &str) -> &mut Member {
        self.snapshot
            .members
            .iter_mut()
            .find(|member| member.vm.name == name)
            .unwrap_or_else(|| panic!("{name} is a member"))
    }

    /// The user changes the number of replicas.
    pub(super) fn scale(&mut self, replicas: i32) {
        self.snapshot.pool.spec.replicas = Some(replicas);
        self.snapshot.pool.generation += 1;
    }

    pub(super) fn pause(&mut self, paused: bool) {
        self.snapshot.pool.spec.paused = paused.then_some(true);
        self.snapshot.pool.generation += 1;
    }

    /// A VM is deleted; its finalizer keeps it.
    pub(super) fn user_deletes(&mut self, name: &str) {
        let now = self.now;
        self.member(name).vm.deleting_since.get_or_insert(now);
    }

    /// Everything that is being deleted is gone.
    pub(super) fn gone(&mut self) {
        self.snapshot
            .members
            .retain(|member| member.vm.deleting_since.is_none());
    }

    /// Every member that is meant to run is Ready.
    pub(super) fn boot(&mut self) {
        let prefix = self.snapshot.pool.name.clone();
        for member in &mut self.snapshot.members {
            if member.vm.deleting_since.is_none() {
                member.vmi = vm(&member.vm.name).ready().member(&prefix).vmi;
            }
        }
    }

    /// Somebody takes the owner off a VM.
    pub(super) fn disown(&mut self, name: &str) {
        self.member(name).vm.owner = None;
        let (former, members) = self
            .snapshot
            .members
            .drain(..)
            .partition(|member| member.vm.owner.is_none());
        self.snapshot.members = members;
        let former: Vec<Member> = former;
        self.snapshot
            .former
            .extend(former.into_iter().map(|member| member.vm));
    }

    pub(super) fn wait(&mut self, seconds: i64) {
        self.now += SignedDuration::from_secs(seconds);
    }

    /// Names of the members that stay.
    pub(super) fn names(&self) -> Vec<&str> {
        self.snapshot
            .members
            .iter()
            .filter(|member| member.vm.deleting_since.is_none())
            .map(|member| member.vm.name.as_str())
            .collect()
    }
}
