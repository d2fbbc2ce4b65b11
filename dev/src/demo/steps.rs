//! The story: one function a step, in the order in which it is told.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::backstage::Backstage;
use super::look::{self, Uids, VM};
use super::manifests::{Manifests, PER_VM, SAMPLES, per_vm};
use super::stage::Stage;
use super::{autoscale, detach, rollout};

/// Kinds and columns that show what is going on.
const SHOW: &str = "get vpool,vconf,vm";

/// Plays every step; the first one that fails ends it. What needs more than a user has, or a
/// monitoring system, is played where that is `backstage`.
pub(super) fn play(
    stage: &Stage,
    manifests: &Manifests,
    backstage: Option<&Backstage>,
) -> Result<()> {
    ten_vms(stage, manifests)?;
    scale(stage)?;
    delete_by_hand(stage)?;
    two_pools(stage, manifests)?;
    let foreign = foreign_vm(stage, manifests)?;
    autoscale::both_groups(stage)?;
    if let Some(backstage) = backstage {
        autoscale::autoscaler(stage, &backstage.metrics)?;
    }
    rollout::edit(stage)?;
    if let Some(backstage) = backstage {
        rollout::killed(stage, || backstage.kill_leader())?;
    }
    detach::detach(stage)?;
    detach::refused(stage, backstage)?;
    delete_pools(stage, &foreign)
}

/// A config and a pool become VMs.
fn ten_vms(stage: &Stage, manifests: &Manifests) -> Result<()> {
    stage.screen.title("A config and a pool become ten VMs");
    stage.pipe(&format!("{SAMPLES}/{PER_VM} 1 14"), &per_vm(1, 14)?)?;
    stage.apply(&format!("{SAMPLES}/config.yaml"), &manifests.config)?;
    stage.apply(&format!("{SAMPLES}/pool.yaml"), &manifests.pool)?;
    settle(stage, "desktop", 10)?;
    stage.run(SHOW)?;
    let what = "ten VMs, desktop-1 to desktop-10, each with its own Secret and ConfigMap";
    let vms = stage.check(what, || {
        look::members(stage, "desktop", &(1..=10).collect())
    })?;
    stage.check("ten disks of their own", || look::disks(stage, &vms))?;
    Ok(())
}

/// `kubectl scale`, out and in.
fn scale(stage: &Stage) -> Result<()> {
    stage.screen.title("Scaled with kubectl");
    let before = members(stage, "desktop")?;
    stage.run("scale vpool desktop --replicas=12")?;
    settle(stage, "desktop", 12)?;
    let twelve = stage.check("two more VMs, the ten untouched", || {
        let now = look::members(stage, "desktop", &(1..=12).collect())?;
        ensure!(
            contains(&now, &before),
            "a VM was replaced: {before:?}, {now:?}"
        );
        Ok(now)
    })?;
    let disks = stage.check("two more disks", || look::disks(stage, &twelve))?;
    stage.run("scale vpool desktop --replicas=8")?;
    settle(stage, "desktop", 8)?;
    let eight = stage.check("four VMs are gone, eight untouched", || {
        let now = members(stage, "desktop")?;
        ensure!(now.len() == 8, "there are {}", now.len());
        ensure!(
            contains(&twelve, &now),
            "a VM was replaced: {twelve:?}, {now:?}"
        );
        Ok(now)
    })?;
    stage.check("and the disks of the four", || {
        let kept = look::disks(stage, &eight)?;
        ensure!(
            contains(&disks, &kept),
            "a disk was replaced: {disks:?}, {kept:?}"
        );
        look::no_disks(stage, &without(&disks, &kept))
    })?;
    stage.run("get vpool,vm")
}

/// A VM deleted by hand is replaced.
fn delete_by_hand(stage: &Stage) -> Result<()> {
    stage
        .screen
        .title("A VM deleted by hand comes back, with a fresh disk");
    let numbers = look::numbers(stage, "desktop")?;
    let number = numbers.first().context("the pool has no VM")?;
    let vms = look::members(stage, "desktop", &numbers)?;
    let disks = look::disks(stage, &vms)?;
    let vm = format!("desktop-{number}");
    stage.run(&format!("delete vm {vm}"))?;
    let what = format!("{vm} is back, Ready, and another VM; the others are the same");
    let now = stage.check(&what, || {
        let now = look::members(stage, "desktop", &numbers)?;
        only_replaced(&vms, &now, &vm)?;
        Ok(now)
    })?;
    stage.check("its disk is a new one", || {
        only_replaced(&disks, &look::disks(stage, &now)?, &look::disk_of(&vm))
    })
}

/// A second pool of the same config, beside the first.
fn two_pools(stage: &Stage, manifests: &Manifests) -> Result<()> {
    stage.screen.title("Two pools of one config");
    let vms = members(stage, "desktop")?;
    let disks = look::disks(stage, &vms)?;
    stage.apply("lab.yaml", &manifests.second_pool)?;
    settle(stage, "lab", 3)?;
    let lab = stage.check("three VMs of the second pool, lab-1 to lab-3", || {
        look::members(stage, "lab", &(1..=3).collect())
    })?;
    let lab_disks = stage.check("with disks of their own", || look::disks(stage, &lab))?;
    stage.run("get vpool,vconf")?;
    stage.run("scale vpool lab --replicas=0")?;
    stage.check("the second pool is empty, its disks are gone", || {
        look::members(stage, "lab", &BTreeSet::new())?;
        look::no_disks(stage, &lab_disks)
    })?;
    stage.check_now("the first pool's VMs and disks are the very same", || {
        look::same("VMs", &vms, &members(stage, "desktop")?)?;
        look::same("disks", &disks, &look::disks(stage, &vms)?)
    })?;
    stage.run("scale vpool lab --replicas=2")?;
    settle(stage, "lab", 2)
}

/// Somebody's own VM has the name that the next member would have.
fn foreign_vm(stage: &Stage, manifests: &Manifests) -> Result<Value> {
    stage
        .screen
        .title("Somebody else's VM is named like a member");
    let numbers = look::numbers(stage, "desktop")?;
    let free: Vec<u32> = (1..)
        .filter(|number| !numbers.contains(number))
        .take(3)
        .collect();
    let taken = format!("desktop-{}", free[0]);
    stage.apply(
        &format!("somebodys-{taken}.yaml"),
        &manifests.foreign(&taken),
    )?;
    let before = stage.get(VM, &taken)?;
    stage.run("scale vpool desktop --replicas=10")?;
    settle(stage, "desktop", 10)?;
    let wanted = numbers.iter().chain(&free[1..]).copied().collect();
    let what = format!(
        "{taken} is skipped: desktop-{} and desktop-{} are made",
        free[1], free[2]
    );
    stage.check(&what, || look::members(stage, "desktop", &wanted))?;
    stage.check_now("it is untouched", || untouched(stage, &before))?;
    stage.run("get events --field-selector reason=NameTaken")?;
    Ok(before)
}

/// Deleting leaves nothing.
fn delete_pools(stage: &Stage, foreign: &Value) -> Result<()> {
    stage.screen.title("Deleting a pool leaves nothing of it");
    let lab = members(stage, "lab")?;
    let vms = members(stage, "desktop")?;
    let disks = look::disks(stage, &vms)?;
    let uid = look::pool_uid(stage, "desktop")?;
    stage.run("delete vpool desktop")?;
    stage.check(
        "no VM, instance, pod, disk, claim or revision of it is left",
        || look::nothing_left(stage, &uid, &disks),
    )?;
    stage.check_now("the other pool and somebody's VM are untouched", || {
        look::same("VMs", &lab, &members(stage, "lab")?)?;
        untouched(stage, foreign)
    })?;
    let (uid, disks) = (look::pool_uid(stage, "lab")?, look::disks(stage, &lab)?);
    stage.run("delete vpool,vconf --all")?;
    stage.check("nothing but somebody's VM is left", || {
        look::nothing_left(stage, &uid, &disks)?;
        let revisions = stage.list("controllerrevisions", "vmpool.dev/config")?;
        look::none("controllerrevisions", &revisions)?;
        untouched(stage, foreign)
    })?;
    stage.run("get vm")?;
    let name = foreign["metadata"]["name"].as_str().unwrap_or_default();
    stage.run(&format!("delete vm {name}"))
}

/// Waits as a user would, until all of the pool's VMs are there and Ready, and no other is.
pub(super) fn settle(stage: &Stage, pool: &str, replicas: u32) -> Result<()> {
    let path = "{.status.replicas}";
    stage.wait(&format!("vpool/{pool} --for=jsonpath={path}={replicas}"))?;
    stage.wait(&format!("vpool/{pool} --for=condition=Available"))?;
    // kubectl fails when a VM that it waits for is deleted.
    stage.quietly("leaving VMs are gone", || look::none_leaves(stage, pool))?;
    stage.wait(&format!(
        "vm -l vmpool.dev/pool={pool} --for=condition=Ready"
    ))
}

/// The pool's VMs with whatever numbers they have.
pub(super) fn members(stage: &Stage, pool: &str) -> Result<Uids> {
    look::members(stage, pool, &look::numbers(stage, pool)?)
}

fn untouched(stage: &Stage, before: &Value) -> Result<()> {
    let now = stage.get(VM, before["metadata"]["name"].as_str().unwrap_or_default())?;
    let (before, after) = (look::untouchable(before), look::untouchable(&now));
    ensure!(before == after, "it was {before} and is {after}");
    let managers = look::managers(&now);
    ensure!(
        !managers.contains("vmpool"),
        "it was written to by vmpool: {managers:?}"
    );
    Ok(())
}

/// That one object is another one now, and the rest the same.
fn only_replaced(before: &Uids, now: &Uids, name: &str) -> Result<()> {
    ensure!(before.get(name) != now.get(name), "{name} is the old one");
    let only = |uids: &Uids| {
        let mut uids = uids.clone();
        uids.remove(name);
        uids
    };
    look::same("the others", &only(before), &only(now))
}

pub(super) fn contains(all: &Uids, some: &Uids) -> bool {
    some.iter().all(|(name, uid)| all.get(name) == Some(uid))
}

pub(super) fn without(all: &Uids, some: &Uids) -> Uids {
    let mut rest = all.clone();
    rest.retain(|name, _| !some.contains_key(name));
    rest
}
