//! The story's part about one VM that leaves whole, and about who may ask for it: curl with a token.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::backstage::Backstage;
use super::curl::{Answer, Caller, Curl};
use super::look::{self, VM, VMI};
use super::stage::Stage;
use super::steps::{members, settle, without};
use crate::controlplane::pki::Authority;

/// Group and version of the aggregated API.
const GROUP: &str = "/apis/subresources.vmpool.dev/v1alpha1";

/// The last number that has a Secret and a ConfigMap.
const LAST: u32 = 14;

/// A VM leaves the pool, works on, is replaced, and can be deleted.
pub(super) fn detach(stage: &Stage) -> Result<()> {
    stage.screen.title("A VM is detached with curl");
    let server = Curl::to_server(&stage.kubectl)?;
    let token = account(stage, "operator", Some("edit"))?;
    let before = members(stage, "desktop")?;
    let vm = before.keys().next().context("the pool has no VM")?.clone();
    let taken = look::numbers(stage, "desktop")?;
    let others = stage.list(VM, "")?;
    let is_free = |number: &u32| {
        let name = format!("desktop-{number}");
        !taken.contains(number) && others.iter().all(|vm| vm["metadata"]["name"] != *name)
    };
    let next = (1..=LAST)
        .find(is_free)
        .context("there is no number left")?;
    let instance = stage.get(VMI, &vm)?["metadata"]["uid"].clone();

    let options = json!({
        "apiVersion": "subresources.vmpool.dev/v1alpha1", "kind": "DetachOptions",
        "virtualMachines": [vm],
    });
    let path = pool_path(stage, "detach");
    let answer = server.post(stage, Caller::Token(&token), &path, &options)?;
    ensure!(
        matches!(answer.status, 200..=202),
        "detach was answered with {}: {}",
        answer.status,
        answer.body
    );
    stage.check(
        &format!("{vm} belongs to nobody and runs on, undisturbed"),
        || works_alone(stage, &vm, &before[&vm], &instance),
    )?;
    settle(stage, "desktop", u32::try_from(before.len())?)?;
    let what = format!("desktop-{next}, the next free number, replaces it");
    let now = stage.check(&what, || {
        let mut wanted = taken.clone();
        wanted.retain(|number| format!("desktop-{number}") != vm);
        wanted.insert(next);
        let now = look::members(stage, "desktop", &wanted)?;
        let stayed = without(&before, &[(vm.clone(), String::new())].into());
        let is_kept = |name: &String| before.get(name) == now.get(name);
        ensure!(stayed.keys().all(is_kept), "another was replaced: {now:?}");
        Ok(now)
    })?;
    stage.run(&format!("delete vm {vm}"))?;
    stage.check(
        "it can be deleted, with its disk; the pool stays as it is",
        || {
            let disks = [(look::disk_of(&vm), String::new())].into();
            look::no_disks(stage, &disks)?;
            look::same("VMs", &now, &members(stage, "desktop")?)
        },
    )
}

/// Who has no rights is refused, whatever the request says of its sender.
pub(super) fn refused(stage: &Stage, backstage: Option<&Backstage>) -> Result<()> {
    stage.screen.title("Who may not, is refused");
    let before = members(stage, "desktop")?;
    let vm = before.keys().next().context("the pool has no VM")?;
    let server = Curl::to_server(&stage.kubectl)?;
    let token = account(stage, "guest", None)?;
    let guest = Caller::Token(&token);
    let options = json!({
        "apiVersion": "subresources.vmpool.dev/v1alpha1", "kind": "DetachOptions",
        "virtualMachines": [vm],
    });
    let answer = server.post(stage, guest, &pool_path(stage, "detach"), &options)?;
    refusal(stage, "a user without rights gets 403", &answer, 403)?;
    let forged = ["X-Remote-User: admin", "X-Remote-Group: system:masters"];
    let path = pool_path(stage, "scale");
    let answer = server.get(stage, guest, &path, &forged)?;
    let what = "forged headers don't count, through the API server";
    refusal(stage, what, &answer, 403)?;
    if let Some(backstage) = backstage {
        straight(stage, backstage, guest, &path, &forged)?;
    }
    stage.check_now("and nothing has changed", || {
        look::same("VMs", &before, &members(stage, "desktop")?)
    })
}

/// Forged headers straight at the program, past the API server, with every certificate that is not the front proxy's.
fn straight(
    stage: &Stage,
    backstage: &Backstage,
    guest: Caller<'_>,
    path: &str,
    forged: &[&str],
) -> Result<()> {
    let program = Curl::to_program(&backstage.program_port()?);
    let answer = program.get(stage, guest, path, forged)?;
    let what = "nor straight at the program, with a token of no rights";
    refusal(stage, what, &answer, 403)?;
    let answer = program.get(stage, Caller::Nobody, path, forged)?;
    refusal(stage, "nor without one", &answer, 401)?;

    let plane = backstage.harness.plane();
    let own = Authority::new("vmpool-dev-front-proxy-ca")?;
    let proxy = "front-proxy-client";
    for (what, pair, status) in [
        (
            "nor with a certificate of a CA of one's own that has the front proxy's names",
            own.client(proxy, None)?,
            401,
        ),
        (
            "nor with a user's certificate",
            plane.authority().client("mallory", None)?,
            403,
        ),
        (
            "nor with one of the front proxy's CA that is not the front proxy's",
            plane.front_proxy().client("front-proxy-other", None)?,
            401,
        ),
    ] {
        let files = tempfile::tempdir().context("failed to make a folder")?;
        let (cert, key) = pair.write(files.path(), "client")?;
        let caller = Caller::Certificate {
            cert: &cert,
            key: &key,
        };
        let answer = program.get(stage, caller, path, forged)?;
        refusal(stage, what, &answer, status)?;
    }
    Ok(())
}

fn refusal(stage: &Stage, what: &str, answer: &Answer, status: u16) -> Result<()> {
    stage.check_now(what, || {
        let found = answer.status;
        ensure!(found == status, "it was {found}: {}", answer.body);
        ensure!(answer.body["kind"] == "Status", "it says {}", answer.body);
        Ok(())
    })
}

/// A service account with a role in the namespace, and a token of it.
fn account(stage: &Stage, name: &str, role: Option<&str>) -> Result<String> {
    stage.run(&format!("create serviceaccount {name}"))?;
    if let Some(role) = role {
        let namespace = &stage.namespace;
        let subject = format!("--serviceaccount={namespace}:{name}");
        stage.run(&format!(
            "create rolebinding {name} --clusterrole={role} {subject}"
        ))?;
    }
    stage
        .screen
        .command(&format!("TOKEN=$(kubectl create token {name})"));
    let args = ["-n", &stage.namespace, "create", "token", name];
    Ok(stage.kubectl.run_ok(&args)?.trim().to_owned())
}

fn pool_path(stage: &Stage, subresource: &str) -> String {
    let namespace = &stage.namespace;
    format!("{GROUP}/namespaces/{namespace}/virtualmachinepools/desktop/{subresource}")
}

fn works_alone(stage: &Stage, vm: &str, uid: &str, instance: &Value) -> Result<()> {
    let found = stage.get(VM, vm)?;
    let metadata = &found["metadata"];
    ensure!(metadata["uid"] == *uid, "{vm} is another VM");
    let owners = &metadata["ownerReferences"];
    ensure!(owners.is_null() || *owners == json!([]), "it has {owners}");
    let labels = metadata["labels"].as_object();
    let mut ours = labels.into_iter().flatten().map(|(key, _)| key);
    ensure!(
        !ours.any(|key| key == "vmpool.dev/pool"),
        "it has our label"
    );
    let vmi = stage.get(VMI, vm)?;
    ensure!(
        vmi["metadata"]["uid"] == *instance && look::is_ready(&vmi),
        "its instance was disturbed"
    );
    let members = stage.list(VMI, "vmpool.dev/pool=desktop")?;
    let is_counted = members.iter().any(|vmi| vmi["metadata"]["name"] == *vm);
    ensure!(!is_counted, "its instance still has the pool's label");
    Ok(())
}
