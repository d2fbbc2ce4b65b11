//! The story's part about edits of the config: everything is rolled, and never too much at once.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::look::{self, POOL, VM, VMI};
use super::stage::Stage;
use super::steps::{members, settle};
use super::trace::Trace;

/// Of ten, by the default of 25%.
const MAX_UNAVAILABLE: usize = 2;

/// An edit rolls the pool; a VM that its user stopped stays stopped, and has the new spec.
pub(super) fn edit(stage: &Stage) -> Result<()> {
    stage.screen.title("An edit of the config rolls the pool");
    let vms = members(stage, "desktop")?;
    let disks = look::disks(stage, &vms)?;
    let stopped = vms.keys().next_back().context("the pool has no VM")?;
    run_strategy(stage, stopped, "Halted")?;
    stage.check(&format!("{stopped} is stopped by its user"), || {
        is_halted(stage, stopped)
    })?;
    let trace = Trace::start(stage, "desktop", vms.len() - 1)?;
    set_memory(stage, "192Mi")?;
    stage.check("every VM has the new spec, those that run too", || {
        have_memory(stage, "192Mi", vms.len() - 1)
    })?;
    let down = trace.most_down();
    stage.check_now(
        &format!("never more than {MAX_UNAVAILABLE} were down"),
        || {
            ensure!(down <= MAX_UNAVAILABLE, "{down} were down at once");
            ensure!(down > 0, "none was restarted");
            Ok(())
        },
    )?;
    stage.check_now(
        &format!("{stopped} is still stopped, with the new spec"),
        || is_halted(stage, stopped),
    )?;
    run_strategy(stage, stopped, "Always")?;
    settle(stage, "desktop", number(vms.len()))?;
    stage.check("the same VMs with the same disks", || {
        have_memory(stage, "192Mi", vms.len())?;
        look::same("VMs", &vms, &members(stage, "desktop")?)?;
        look::same("disks", &disks, &look::disks(stage, &vms)?)
    })?;
    stage.run("get vpool,vm")
}

/// The program that decides is killed in the middle of it.
pub(super) fn killed(stage: &Stage, kill: impl Fn() -> Result<String>) -> Result<()> {
    let title = "The leader is killed in mid-rollout, and nothing changes in the outcome";
    stage.screen.title(title);
    let vms = members(stage, "desktop")?;
    let trace = Trace::start(stage, "desktop", vms.len())?;
    set_memory(stage, "128Mi")?;
    stage.quietly("the rollout is under way", || {
        let updated = updated(stage, "128Mi")?;
        ensure!((2..vms.len()).contains(&updated), "{updated} are updated");
        Ok(())
    })?;
    stage.screen.note(&kill()?);
    stage.check("every VM has the new spec, and runs", || {
        have_memory(stage, "128Mi", vms.len())
    })?;
    let (down, instances) = (trace.most_down(), trace.instances());
    stage.check_now(
        "each was restarted once, never more than two at a time",
        || {
            ensure!(down <= MAX_UNAVAILABLE, "{down} were down at once");
            let once = instances.values().all(|instances| *instances == 2);
            ensure!(once, "instances of each: {instances:?}");
            look::same("VMs", &vms, &members(stage, "desktop")?)
        },
    )?;
    settle(stage, "desktop", number(vms.len()))
}

fn set_memory(stage: &Stage, memory: &str) -> Result<()> {
    let patch = json!({"spec": {"template": {"spec": {"domain": {"memory": {"guest": memory}}}}}});
    stage.run(&format!("patch vconf desktop --type=merge -p {patch}"))
}

/// What `virtctl start` and `stop` do to a VM that runs always.
fn run_strategy(stage: &Stage, vm: &str, strategy: &str) -> Result<()> {
    let patch = json!({"spec": {"runStrategy": strategy}});
    stage.run(&format!("patch {VM} {vm} --type=merge -p {patch}"))
}

fn is_halted(stage: &Stage, vm: &str) -> Result<()> {
    let found = stage.get(VM, vm)?;
    let (strategy, status) = (
        &found["spec"]["runStrategy"],
        &found["status"]["printableStatus"],
    );
    ensure!(
        strategy == "Halted" && status == "Stopped",
        "{vm} is {status} with run strategy {strategy}"
    );
    Ok(())
}

fn memory(object: &Value, pointer: &str) -> Option<String> {
    let memory = object.pointer(pointer)?.as_str()?;
    Some(memory.to_owned())
}

fn updated(stage: &Stage, wanted: &str) -> Result<usize> {
    let vms = stage.list(VM, "vmpool.dev/pool=desktop")?;
    let has = |vm: &&Value| {
        memory(vm, "/spec/template/spec/domain/memory/guest").as_deref() == Some(wanted)
    };
    Ok(vms.iter().filter(has).count())
}

/// All VMs in their spec, so many in their running instance, and the pool says so.
fn have_memory(stage: &Stage, wanted: &str, running: usize) -> Result<()> {
    let pool = stage.get(POOL, "desktop")?;
    let replicas = &pool["spec"]["replicas"];
    let updated = updated(stage, wanted)?;
    ensure!(*replicas == updated, "{updated} of {replicas} VMs have it");
    let instances = stage.list(VMI, "vmpool.dev/pool=desktop")?;
    let has = |vmi: &&Value| {
        let memory = memory(vmi, "/spec/domain/memory/guest");
        memory.as_deref() == Some(wanted) && look::is_ready(vmi)
    };
    let current = instances.iter().filter(has).count();
    ensure!(
        current == running && instances.len() == running,
        "{current} of {running} run with it"
    );
    let status = &pool["status"];
    let all = ["updatedReplicas", "currentReplicas"];
    ensure!(
        all.iter().all(|count| status[count] == *replicas),
        "the pool says {status}"
    );
    Ok(())
}

fn number(count: usize) -> u32 {
    u32::try_from(count).expect("a demo has few VMs")
}
