//! Removing the program from a cluster, in the order that the README says and in the worst one. Case IU-01.

use std::time::Duration;

use anyhow::{Result, ensure};
use dev::harness::{Harness, NAMESPACE, Options};
use serde_json::{Value, json};

use crate::objects::{all, config, pool, vm};
use crate::space::{controller, uid};
use crate::{Kind, Space, with_own};

/// What stands outside of our namespace and is called or asked by the API server.
const OUTSIDE: &str = "mutatingwebhookconfigurations,validatingwebhookconfigurations,apiservices,\
validatingadmissionpolicies,validatingadmissionpolicybindings";
const ROLES: &str = "clusterroles,clusterrolebindings";
const LABEL: &str = "app.kubernetes.io/part-of=vmpool";
const CRDS: &str = "virtualmachinepools.vmpool.dev virtualmachineconfigs.vmpool.dev";

/// Waits for the end of a namespace.
async fn ends(ns: &Space<'_>, namespace: &str) -> Result<()> {
    ns.eventually(&format!("the namespace {namespace} ends"), async || {
        let found = ns.run(&format!("get namespace {namespace} -o json"))?;
        ensure!(!found.success, "{}", found.stdout);
        Ok(())
    })
    .await
}

/// A stranger's namespace with a VM in it begins and ends.
async fn strangers_live(ns: &Space<'_>, name: &str) -> Result<()> {
    ns.kubectl(&format!("create namespace {name}"))?;
    let mut vm = vm("theirs").value().clone();
    vm["metadata"]["namespace"] = json!(name);
    let create = format!("create -n {name} -f -");
    let made = ns.harness.kubectl().run_with_input(
        &create.split_whitespace().collect::<Vec<_>>(),
        &vm.to_string(),
    )?;
    ensure!(made.success, "{}", made.stderr);
    ns.kubectl(&format!("delete namespace {name} --wait=false"))?;
    ends(ns, name).await
}

/// Of what was installed, in no namespace and of no kind.
fn ensure_nothing_is_left(ns: &Space<'_>) -> Result<()> {
    let kinds = ns.kubectl("api-resources --verbs=list,delete -o name")?;
    let kinds: Vec<&str> = kinds.split_whitespace().collect();
    ensure!(kinds.contains(&"rolebindings.rbac.authorization.k8s.io"));
    let kinds = kinds.join(",");
    let left = ns.kubectl(&format!("get {kinds} -A -l {LABEL} -o name"))?;
    ensure!(left.trim().is_empty(), "{left}");
    Ok(())
}

async fn start_over(cluster: &mut Harness) -> Result<()> {
    cluster.install_vmpool().await?;
    cluster.start_vmpool().await
}

fn names_and_uids(vms: &[Value]) -> Vec<String> {
    vms.iter().map(|vm| uid(vm).to_owned()).collect()
}

#[test]
fn iu_01_removed_in_order_nothing_hangs_vms_stay_and_it_can_be_installed_again() {
    with_own(
        Options::default(),
        async |cluster: &mut Harness| -> Result<()> {
            let name = cluster.namespace("ordered").await?;
            let vms = {
                let ns = Space::at(cluster, &name)?;
                ns.accepts(all(&[
                    config("cfg").running(),
                    pool("web", "cfg").replicas(2),
                ]))?;
                ns.ready("web", &["web-1", "web-2"]).await?;
                // 1. VMs are to stay.
                ns.kubectl("delete vpool --all --cascade=orphan")?;
                ns.gone(Kind::Pool, "web").await?;
                // 2. Nobody is asked any more.
                ns.kubectl(&format!("delete {OUTSIDE} -l {LABEL}"))?;
                ns.list(Kind::Vm).await?
            };
            // 3. The program, with its namespace.
            cluster.stop_vmpool();
            let ns = Space::at(cluster, &name)?;
            ns.kubectl(&format!("delete namespace {NAMESPACE} --wait=false"))?;
            ends(&ns, NAMESPACE).await?;
            // 4. The kinds, and the rights.
            ns.kubectl(&format!("delete crd {CRDS} --timeout=60s"))?;
            ns.kubectl(&format!("delete {ROLES} -l {LABEL}"))?;
            ns.kubectl(&format!("delete rolebindings -n kube-system -l {LABEL}"))?;
            ensure_nothing_is_left(&ns)?;
            strangers_live(&ns, "after-ordered").await?;
            let after = ns.list(Kind::Vm).await?;
            ensure!(
                names_and_uids(&after) == names_and_uids(&vms),
                "VMs went with it"
            );
            ensure!(after.iter().all(|vm| controller(vm).is_none()));
            ensure!(
                ns.list(Kind::Instance).await?.len() == 2,
                "instances went with it"
            );
            drop(ns);

            // 5. And again: the names of VMs that stayed are taken, and skipped.
            start_over(cluster).await?;
            let ns = Space::at(cluster, &name)?;
            ns.accepts(all(&[config("cfg"), pool("web", "cfg").replicas(1)]))?;
            ns.settled("web", &["web-3"]).await?;
            Ok(())
        },
    );
}

#[test]
fn iu_01_with_its_namespace_deleted_outright_vms_and_other_namespaces_never_notice() {
    with_own(
        Options::default(),
        async |cluster: &mut Harness| -> Result<()> {
            let name = cluster.namespace("outright").await?;
            let before = {
                let ns = Space::at(cluster, &name)?;
                ns.accepts(all(&[
                    config("cfg").running(),
                    pool("web", "cfg").replicas(2),
                ]))?;
                let before = ns.ready("web", &["web-1", "web-2"]).await?;
                ns.kubectl(&format!("delete namespace {NAMESPACE} --wait=false"))?;
                before
            };
            cluster.stop_vmpool();
            let ns = Space::at(cluster, &name)?;
            // An APIService without a backend keeps every namespace from ending: this is what ends that.
            ns.kubectl(&format!("delete apiservices -l {LABEL}"))?;
            ends(&ns, NAMESPACE).await?;
            strangers_live(&ns, "after-outright").await?;
            // Members live on, can be stopped and deleted; pools wait.
            let stop = json!({"spec": {"runStrategy": "Halted"}});
            ns.merge(Kind::Vm, "web-1", &stop).await?;
            ns.kubectl("delete vm web-1")?;
            ns.gone(Kind::Vm, "web-1").await?;
            let kept = ns.get(Kind::Vm, "web-2").await?;
            ensure!(uid(&kept) == uid(&before[1]));
            let said = ns.refused("scale vpool web --replicas=3")?;
            ensure!(
                said.contains("validate.vmpool.dev") || said.contains("webhook"),
                "{said}"
            );
            drop(ns);

            start_over(cluster).await?;
            let ns = Space::at(cluster, &name)?;
            let after = ns.settled("web", &["web-1", "web-2"]).await?;
            ensure!(uid(&after[1]) == uid(&kept), "a member was replaced");
            tokio::time::sleep(Duration::from_secs(1)).await;
            ns.kubectl("scale vpool web --replicas=3")?;
            ns.settled("web", &["web-1", "web-2", "web-3"]).await?;
            Ok(())
        },
    );
}
