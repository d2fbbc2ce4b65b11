//! How far one member is on its way to the target revision, told by its object, its instance and what KubeVirt
//! says of the two. Pure; what is done about it is in [`super::rollout`].

use super::status::State;
use super::{Member, Snapshot, Target};
use crate::api::{annotations, labels};
use crate::kubevirt::{Phase, Plug};
use crate::stamp::{self, StampMark};

/// How far a member is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Stage {
    /// Nothing is left to do.
    Current,
    /// Its object is not at the target. `reaches_instance` is false if all that differs are labels and
    /// annotations of the VM object.
    Outdated { reaches_instance: bool },
    /// Its object is at the target, and its instance has to be restarted.
    RestartDue,
    /// Its restart was asked for and has not begun.
    Restarting,
    /// Its object was written, and KubeVirt has not compared its instance with it yet.
    Unseen,
}

/// Whether the VM object is at the target, as its mark says, and was not replaced since.
pub(super) fn is_updated(member: &Member, target: &Target) -> bool {
    mark(member)
        .is_some_and(|mark| mark.hash == target.stamp_hash && mark.restored == member.vm.restored)
}

/// Whether mark and labels of the VM object are those of the target. What puts back the template alone leaves the
/// VM's own label as it is, and the next instance is of another revision then.
pub(super) fn is_at_target(member: &Member, target: &Target) -> bool {
    let mut places = [&member.vm.labels, &member.vm.template_labels].into_iter();
    let is_labelled = places.all(|labels| {
        let label = labels.get(labels::REVISION);
        label.is_none_or(|label| *label == target.revision)
    });
    is_labelled && is_updated(member, target)
}

/// How far `member` is on its way to `target`.
pub(super) fn stage(snapshot: &Snapshot, target: &Target, member: &Member, state: State) -> Stage {
    let vm = &member.vm;
    if snapshot.expected_updates.contains(&vm.uid) {
        return Stage::Unseen;
    }
    if !is_at_target(member, target) {
        return Stage::Outdated {
            reaches_instance: reaches_instance(member, target),
        };
    }
    let running = member
        .vmi
        .as_ref()
        .filter(|vmi| state != State::Halted && !vmi.deleting && !vmi.phase.is_final());
    let Some(vmi) = running else {
        // The next instance is started from the object as it is.
        return Stage::Current;
    };
    if vmi.stamp_hash.as_deref() == Some(target.stamp_hash.as_str())
        && !keeps_what_was_plugged(target, member)
    {
        return Stage::Current;
    }
    if snapshot.expected_restarts.contains(&vmi.uid) || vm.has_requests {
        return Stage::Restarting;
    }
    // One that doesn't say is left to KubeVirt's judgement, or it would be restarted without end.
    let revision = vmi.revision.as_ref();
    let is_of_another = revision.is_some_and(|revision| *revision != target.revision);
    if state == State::Unavailable && vmi.phase != Phase::Running && is_of_another {
        // It was written because it doesn't get to run, and there is nothing to lose.
        return Stage::RestartDue;
    }
    // What KubeVirt says of its generation comes before it has compared anything while a disk is filling.
    if member.is_filling || vm.seen_generation.is_none_or(|seen| seen < vm.generation) {
        return Stage::Unseen;
    }
    let is_relabelled = vmi
        .revision
        .as_ref()
        .is_some_and(|revision| target.relabelled_since.contains(revision));
    let is_ours = vmi
        .stamp_hash
        .as_ref()
        .is_none_or(|hash| !target.alike.contains(hash));
    let asks = vm.restart_required || plugs_in_vain(member);
    let is_ours = is_ours || keeps_what_was_plugged(target, member);
    if (asks && is_ours) || is_relabelled {
        Stage::RestartDue
    } else {
        Stage::Current
    }
}

/// Whether an instance that was started from the target has been changed live since, for a revision in between,
/// and KubeVirt can't take that back: then it asks for a restart though the VM says what the target says. A VM
/// that its user edited says something else.
fn keeps_what_was_plugged(target: &Target, member: &Member) -> bool {
    let vm = &member.vm;
    let vmi = member.vmi.as_ref();
    (vm.restart_required || plugs_in_vain(member))
        && !vm.live.differs_from(&target.live)
        && vmi.is_some_and(|vmi| vmi.live.differs_from(&target.live))
}

/// Whether the instance never gets what the VM says: it can't be migrated, or it waits to be plugged with something
/// else, and KubeVirt takes no second change before the first is done (`handleCPUChangeRequest`).
fn plugs_in_vain(member: &Member) -> bool {
    member.vmi.as_ref().is_some_and(|vmi| match vmi.plug {
        None => false,
        Some(Plug::Impossible) => true,
        Some(Plug::Pending) => member.vm.live.differs_from(&vmi.live),
    })
}

/// Whether any of what is to be written could be seen by an instance.
fn reaches_instance(member: &Member, target: &Target) -> bool {
    mark(member).is_none_or(|mark| {
        let mut inputs = mark.inputs.clone();
        inputs.virtual_machine_metadata = target.inputs.virtual_machine_metadata.clone();
        mark.restored != member.vm.restored
            || stamp::stamp_hash(&target.content_hash, &mark.inputs) != mark.hash
            || inputs != target.inputs
    })
}

fn mark(member: &Member) -> Option<StampMark> {
    let text = member.vm.annotations.get(annotations::STAMP)?;
    StampMark::parse(text)
}
