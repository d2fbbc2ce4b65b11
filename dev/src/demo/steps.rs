//! The story: one function a step, in the order in which it is told.

use anyhow::{Result, ensure};
use serde_json::Value;

use super::look::{self, Uids, VM};
use super::manifests::{Manifests, inputs};
use super::stage::Stage;

/// Kinds and columns that show what is going on.
const SHOW: &str = "get vpool,vconf,vm";

/// Plays every step; the first one that fails ends it.
pub(super) fn play(stage: &Stage, manifests: &Manifests) -> Result<()> {
    ten_vms(stage, manifests)?;
    scale(stage)?;
    delete_by_hand(stage)?;
    two_pools(stage, manifests)?;
    foreign_vm(stage, manifests)?;
    delete_pools(stage)
}

/// A config and a pool become VMs.
fn ten_vms(stage: &Stage, manifests: &Manifests) -> Result<()> {
    stage.screen.title("A config and a pool become ten VMs");
    // Quietly: the user's own objects are not what is shown.
    let apply = ["-n", &stage.namespace, "apply", "-f", "-"];
    let made = stage.kubectl.run_ok_with_input(&apply, &inputs(1..=12))?;
    let made = made.lines().count();
    stage.screen.note(&format!("{made} Secrets and ConfigMaps, desktop-init-<n> and desktop-settings-<n>"));
    stage.apply("manifests/samples/config.yaml", &manifests.config)?;
    stage.apply("manifests/samples/pool.yaml", &manifests.pool)?;
    settle(stage, "desktop", 10)?;
    stage.run(SHOW)?;
    let vms = stage.check("ten VMs, each with its own Secret and ConfigMap, all Ready", || {
        look::members(stage, "desktop", &numbers(1, 10))
    })?;
    stage.check("ten disks of their own", || look::disks(stage, &vms))?;
    Ok(())
}

/// `kubectl scale`, out and in.
fn scale(stage: &Stage) -> Result<()> {
    stage.screen.title("Scaled with kubectl");
    let before = look::members(stage, "desktop", &numbers(1, 10))?;
    stage.run("scale vpool desktop --replicas=12")?;
    settle(stage, "desktop", 12)?;
    let twelve = stage.check("two more VMs, ten untouched", || {
        let now = look::members(stage, "desktop", &numbers(1, 12))?;
        ensure!(contains(&now, &before), "a VM was replaced: {before:?}, {now:?}");
        Ok(now)
    })?;
    let disks = stage.check("two more disks", || look::disks(stage, &twelve))?;
    stage.run("scale vpool desktop --replicas=8")?;
    settle(stage, "desktop", 8)?;
    let eight = stage.check("the four with the highest numbers are gone, eight untouched", || {
        let now = look::members(stage, "desktop", &numbers(1, 8))?;
        ensure!(contains(&twelve, &now), "a VM was replaced: {twelve:?}, {now:?}");
        Ok(now)
    })?;
    stage.check("their disks too", || {
        let kept = look::disks(stage, &eight)?;
        let gone = disks.iter().filter(|(name, _)| !kept.contains_key(*name));
        let gone: Uids = gone.map(|(name, uid)| (name.clone(), uid.clone())).collect();
        ensure!(gone.len() == 4, "disks to be gone: {gone:?}");
        look::no_disks(stage, &gone)
    })?;
    stage.run("get vpool")
}

/// A VM deleted by hand is replaced.
fn delete_by_hand(stage: &Stage) -> Result<()> {
    stage.screen.title("A VM deleted by hand comes back, with a fresh disk");
    let vms = look::members(stage, "desktop", &numbers(1, 8))?;
    let disks = look::disks(stage, &vms)?;
    stage.run("delete vm desktop-3")?;
    let now = stage.check("desktop-3 is back, Ready, and another VM; the others are the same", || {
        let now = look::members(stage, "desktop", &numbers(1, 8))?;
        only_replaced(&vms, &now, "desktop-3")?;
        Ok(now)
    })?;
    stage.check("its disk is a new one", || {
        only_replaced(&disks, &look::disks(stage, &now)?, "desktop-3-data")
    })
}

/// A second pool of the same config, beside the first.
fn two_pools(stage: &Stage, manifests: &Manifests) -> Result<()> {
    stage.screen.title("Two pools of one config");
    let vms = look::members(stage, "desktop", &numbers(1, 8))?;
    let disks = look::disks(stage, &vms)?;
    stage.apply("lab.yaml", &manifests.second_pool)?;
    settle(stage, "lab", 3)?;
    let lab = stage.check("three VMs of the second pool, Ready", || {
        look::members(stage, "lab", &numbers(1, 3))
    })?;
    let lab_disks = stage.check("with disks of their own", || look::disks(stage, &lab))?;
    stage.run("get vpool,vconf")?;
    stage.run("scale vpool lab --replicas=0")?;
    stage.check("the second pool is empty, its disks are gone", || {
        look::members(stage, "lab", &[])?;
        look::no_disks(stage, &lab_disks)
    })?;
    stage.check_now("the first pool's VMs and disks are the very same", || {
        look::same("VMs", &vms, &look::members(stage, "desktop", &numbers(1, 8))?)?;
        look::same("disks", &disks, &look::disks(stage, &vms)?)
    })?;
    stage.run("scale vpool lab --replicas=2")?;
    settle(stage, "lab", 2)
}

/// Somebody's own VM has a member's name.
fn foreign_vm(stage: &Stage, manifests: &Manifests) -> Result<()> {
    stage.screen.title("Somebody else's VM is named like a member");
    stage.apply("somebodys-desktop-9.yaml", &manifests.foreign)?;
    let before = stage.get(VM, "desktop-9")?;
    stage.run("scale vpool desktop --replicas=10")?;
    settle(stage, "desktop", 10)?;
    let wanted: Vec<u32> = numbers(1, 8).into_iter().chain([10, 11]).collect();
    stage.check("its number is skipped: desktop-10 and desktop-11 are made", || {
        look::members(stage, "desktop", &wanted)
    })?;
    stage.check_now("it is untouched", || untouched(stage, &before))?;
    stage.run("get events --field-selector reason=NameTaken")
}

/// Deleting leaves nothing.
fn delete_pools(stage: &Stage) -> Result<()> {
    stage.screen.title("Deleting a pool leaves nothing of it");
    let foreign = stage.get(VM, "desktop-9")?;
    let lab = look::members(stage, "lab", &numbers(1, 2))?;
    let wanted: Vec<u32> = numbers(1, 8).into_iter().chain([10, 11]).collect();
    let vms = look::members(stage, "desktop", &wanted)?;
    let disks = look::disks(stage, &vms)?;
    let uid = look::pool_uid(stage, "desktop")?;
    stage.run("delete vpool desktop")?;
    stage.check("no VM, instance, pod, disk, claim or revision of it is left", || {
        look::nothing_left(stage, &uid, &disks)
    })?;
    stage.check_now("the other pool and somebody's VM are untouched", || {
        look::same("VMs", &lab, &look::members(stage, "lab", &numbers(1, 2))?)?;
        untouched(stage, &foreign)
    })?;
    let (uid, disks) = (look::pool_uid(stage, "lab")?, look::disks(stage, &lab)?);
    stage.run("delete vpool,vconf --all")?;
    stage.check("nothing but somebody's VM is left", || {
        look::nothing_left(stage, &uid, &disks)?;
        let revisions = stage.list("controllerrevisions", "vmpool.dev/config")?;
        look::none("controllerrevisions", &revisions)?;
        untouched(stage, &foreign)
    })?;
    stage.run("get vm")?;
    stage.run("delete vm desktop-9")
}

/// Waits as a user would, until all of the pool's VMs are there and Ready.
fn settle(stage: &Stage, pool: &str, replicas: u32) -> Result<()> {
    stage.wait(&format!("vpool/{pool} --for=jsonpath={{.status.replicas}}={replicas}"))?;
    stage.wait(&format!("vpool/{pool} --for=condition=Available"))?;
    let selector = format!("vmpool.dev/pool={pool}");
    stage.check(&format!("kubectl wait: every VM of {pool} is Ready"), || {
        let args = format!("wait vm -l {selector} --for=condition=Ready --timeout=1s");
        stage.quietly(&args)
    })
}

fn untouched(stage: &Stage, before: &Value) -> Result<()> {
    let now = stage.get(VM, before["metadata"]["name"].as_str().unwrap_or_default())?;
    let (before, after) = (look::untouchable(before), look::untouchable(&now));
    ensure!(before == after, "it was {before} and is {after}");
    let managers = look::managers(&now);
    ensure!(!managers.contains("vmpool"), "it was written to by vmpool: {managers:?}");
    Ok(())
}

/// That one object is another one now, and the rest the same.
fn only_replaced(before: &Uids, now: &Uids, name: &str) -> Result<()> {
    ensure!(before.get(name) != now.get(name), "{name} is the old one");
    let others = |uids: &Uids| {
        let mut uids = uids.clone();
        uids.remove(name);
        uids
    };
    look::same("the others", &others(before), &others(now))
}

fn contains(all: &Uids, some: &Uids) -> bool {
    some.iter().all(|(name, uid)| all.get(name) == Some(uid))
}

fn numbers(first: u32, last: u32) -> Vec<u32> {
    (first..=last).collect()
}
