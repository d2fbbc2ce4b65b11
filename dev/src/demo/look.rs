//! What must be true of the objects, each said in an error that names the object at fault.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::stage::Stage;

/// KubeVirt's kinds in full: short names could be somebody else's.
pub(super) const VM: &str = "virtualmachines.kubevirt.io";
pub(super) const VMI: &str = "virtualmachineinstances.kubevirt.io";
pub(super) const DATA_VOLUME: &str = "datavolumes.cdi.kubevirt.io";
pub(super) const POOL: &str = "virtualmachinepools.vmpool.dev";

/// UIDs by name, of VMs or of disks: what tells an object from its successor.
pub(super) type Uids = BTreeMap<String, String>;

/// The UID of a pool.
pub(super) fn pool_uid(stage: &Stage, pool: &str) -> Result<String> {
    Ok(uid(&stage.get(POOL, pool)?).to_owned())
}

/// The numbers that a pool's VMs have.
pub(super) fn numbers(stage: &Stage, pool: &str) -> Result<BTreeSet<u32>> {
    let owner = pool_uid(stage, pool)?;
    let vms = owned_by(stage.list(VM, "")?, &owner);
    vms.iter()
        .map(|vm| {
            let number = name(vm).strip_prefix(&format!("{pool}-"));
            let number = number.and_then(|number| number.parse().ok());
            number.with_context(|| format!("VM {} has no name of {pool}", name(vm)))
        })
        .collect()
}

/// The pool's VMs: exactly those with these numbers, complete, Ready, each with its own disk,
/// Secret and ConfigMap. Answers their UIDs.
pub(super) fn members(stage: &Stage, pool: &str, numbers: &BTreeSet<u32>) -> Result<Uids> {
    let owner = pool_uid(stage, pool)?;
    let vms = owned_by(stage.list(VM, "")?, &owner);
    let wanted: BTreeMap<String, u32> = numbers
        .iter()
        .map(|number| (format!("{pool}-{number}"), *number))
        .collect();
    let found: BTreeSet<&str> = vms.iter().map(name).collect();
    let names: BTreeSet<&str> = wanted.keys().map(String::as_str).collect();
    ensure!(
        found == names,
        "the VMs of {pool} are {found:?}, not {names:?}"
    );
    for vm in &vms {
        ensure!(
            is_ready(vm),
            "VM {} is not Ready: {}",
            name(vm),
            vm["status"]
        );
        ensure!(!is_leaving(vm), "VM {} is being deleted", name(vm));
        references(vm, wanted[name(vm)])?;
    }
    Ok(uids(&vms))
}

/// That none of the pool's VMs is on its way out.
pub(super) fn none_leaves(stage: &Stage, pool: &str) -> Result<()> {
    let owner = pool_uid(stage, pool)?;
    let mut vms = owned_by(stage.list(VM, "")?, &owner);
    vms.retain(is_leaving);
    none(VM, &vms)
}

/// The name of a VM's disk.
pub(super) fn disk_of(vm: &str) -> String {
    format!("{vm}-root")
}

/// That a VM refers to what is its own.
fn references(vm: &Value, number: u32) -> Result<()> {
    let name = name(vm);
    let volumes = vm["spec"]["template"]["spec"]["volumes"].as_array();
    let volumes = volumes.with_context(|| format!("VM {name} has no volumes"))?;
    let refers = |pointer: &str, wanted: String| {
        let mut found = volumes.iter().filter_map(|volume| volume.pointer(pointer));
        match found.next() {
            Some(found) if *found == *wanted => Ok(()),
            other => bail!("VM {name} refers to {other:?} at {pointer}, not to {wanted}"),
        }
    };
    refers(
        "/cloudInitNoCloud/secretRef/name",
        format!("desktop-init-{number}"),
    )?;
    refers("/configMap/name", format!("desktop-settings-{number}"))?;
    refers("/dataVolume/name", disk_of(name))?;
    let template = &vm["spec"]["dataVolumeTemplates"][0]["metadata"]["name"];
    ensure!(
        *template == *disk_of(name),
        "the disk template of VM {name} is named {template}"
    );
    Ok(())
}

/// The disks of these VMs, each there with its claim and owned by its VM. Answers their UIDs.
pub(super) fn disks(stage: &Stage, vms: &Uids) -> Result<Uids> {
    let volumes = stage.list(DATA_VOLUME, "")?;
    let claims = stage.list("persistentvolumeclaims", "")?;
    let mut found = Uids::new();
    for (vm, vm_uid) in vms {
        let disk = disk_of(vm);
        let volume = volumes.iter().find(|volume| name(volume) == disk);
        let volume = volume.with_context(|| format!("VM {vm} has no DataVolume {disk}"))?;
        ensure!(
            controller(volume) == Some(vm_uid),
            "DataVolume {disk} does not belong to VM {vm}"
        );
        ensure!(
            claims.iter().any(|claim| name(claim) == disk),
            "there is no claim {disk}"
        );
        found.insert(disk, uid(volume).to_owned());
    }
    Ok(found)
}

/// That nothing is left of a pool: no VM, instance, launcher pod, disk, claim or revision.
pub(super) fn nothing_left(stage: &Stage, pool_uid: &str, disks: &Uids) -> Result<()> {
    let selector = format!("vmpool.dev/pool-uid={pool_uid}");
    for kind in [VM, VMI, "pods"] {
        none(kind, &stage.list(kind, &selector)?)?;
    }
    no_disks(stage, disks)?;
    let mut revisions = stage.list("controllerrevisions", "")?;
    revisions.retain(|revision| owners(revision).any(|owner| owner["uid"] == pool_uid));
    none("controllerrevisions", &revisions)
}

/// That neither these disks nor their claims are there.
pub(super) fn no_disks(stage: &Stage, disks: &Uids) -> Result<()> {
    for kind in [DATA_VOLUME, "persistentvolumeclaims"] {
        let mut left = stage.list(kind, "")?;
        left.retain(|object| disks.contains_key(name(object)));
        none(kind, &left)?;
    }
    Ok(())
}

/// That there are no objects of a kind.
pub(super) fn none(kind: &str, objects: &[Value]) -> Result<()> {
    let names: Vec<&str> = objects.iter().map(name).collect();
    ensure!(names.is_empty(), "{kind} are left: {}", names.join(", "));
    Ok(())
}

/// That these are the very same objects.
pub(super) fn same(what: &str, before: &Uids, now: &Uids) -> Result<()> {
    ensure!(before == now, "{what} were {before:?} and are {now:?}");
    Ok(())
}

/// What of an object must not change when nobody touches it: all but what KubeVirt writes itself.
pub(super) fn untouchable(object: &Value) -> Value {
    let metadata = &object["metadata"];
    serde_json::json!({
        "uid": metadata["uid"],
        "labels": metadata["labels"],
        "ownerReferences": metadata["ownerReferences"],
        "deletionTimestamp": metadata["deletionTimestamp"],
        "ours": metadata["annotations"].as_object().map(|annotations| {
            annotations.keys().filter(|key| key.starts_with("vmpool.dev/")).collect::<Vec<_>>()
        }),
        "volumes": object["spec"]["template"]["spec"]["volumes"],
        "runStrategy": object["spec"]["runStrategy"],
    })
}

/// Names of an object's field managers.
pub(super) fn managers(object: &Value) -> BTreeSet<&str> {
    let entries = object["metadata"]["managedFields"].as_array();
    let entries = entries.into_iter().flatten();
    entries
        .filter_map(|entry| entry["manager"].as_str())
        .collect()
}

fn owned_by(mut objects: Vec<Value>, uid: &str) -> Vec<Value> {
    objects.retain(|object| controller(object) == Some(uid));
    objects
}

fn owners(object: &Value) -> impl Iterator<Item = &Value> {
    let owners = object["metadata"]["ownerReferences"].as_array();
    owners.into_iter().flatten()
}

fn controller(object: &Value) -> Option<&str> {
    let mut owners = owners(object);
    owners.find(|owner| owner["controller"] == true)?["uid"].as_str()
}

/// Whether a VM or its instance says so.
pub(super) fn is_ready(vm: &Value) -> bool {
    let conditions = vm["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

fn is_leaving(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

fn uids(objects: &[Value]) -> Uids {
    let pairs = objects.iter().map(|object| (name(object), uid(object)));
    pairs
        .map(|(name, uid)| (name.to_owned(), uid.to_owned()))
        .collect()
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

fn uid(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().unwrap_or_default()
}
