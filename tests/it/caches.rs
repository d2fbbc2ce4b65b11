//! Caches that are slow, broken, behind or of another KubeVirt. Cases CC-01, CC-02, CC-06 and CC-07.
//!
//! Each test has a cluster of its own, with `vmpool` behind the fault proxy.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use dev::harness::{Harness, Options, SERVICE_ACCOUNT};
use dev::proxy::{Action, Answer, Rule};
use dev::supervisor::Signal;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::objects::{config, pool};
use crate::resilience::{behind_proxy, count, vm_writes};
use crate::{Kind, Space, with_own};

/// The collection of all VMs, which `vmpool` lists and watches.
const ALL_VMS: &str = "/apis/kubevirt.io/v1/virtualmachines";

#[test]
fn cc_01_nothing_is_decided_before_every_cache_is_filled_at_start_and_after_a_reset() {
    with_own(
        behind_proxy(),
        async |cluster: &mut Harness| -> Result<()> {
            let ns = Space::new(cluster, "cc01").await?;
            ns.accepts(config("cfg"))?;
            ns.accepts(pool("web", "cfg").replicas(50))?;
            count(&ns, "web", 50).await?;

            // At start: the list of VMs takes its time.
            let start = ns.harness.audit().mark();
            let slow = Action::DelayRequest(Duration::from_secs(5));
            let slow = cluster
                .proxy()
                .add(Rule::new(slow).path_end(ALL_VMS).except_watches());
            let restarts = cluster.vmpool().restarts();
            cluster.vmpool().kill(Signal::KILL);
            cluster
                .vmpool()
                .wait_restarts(restarts + 1, Duration::from_secs(60))
                .await?;
            cluster.vmpool().wait_ready(Duration::from_secs(60)).await?;
            ensure!(slow.hits() >= 1);
            tokio::time::sleep(Duration::from_secs(2)).await;
            ensure!(
                vm_writes(&ns, start).await? == 0,
                "wrote after a restart at rest"
            );
            slow.remove();

            // In mid-run: the watch is too old, and the new list takes its time.
            let expire = cluster.proxy().add(
                Rule::new(Action::ExpireWatch { after: 0 })
                    .path_end(ALL_VMS)
                    .times(1),
            );
            let held = cluster.proxy().add(
                Rule::new(Action::HoldRequest)
                    .path_end(ALL_VMS)
                    .except_watches(),
            );
            // Ends the watch that runs: the next one expires at once.
            cluster.plane().restart_apiserver().await?;
            ns.eventually("the list is asked for again", async || {
                ensure!(held.hits() >= 1 || expire.hits() >= 1);
                ensure!(held.hits() >= 1, "no list yet");
                Ok(())
            })
            .await?;
            ns.kubectl("scale vpool web --replicas=55")?;
            tokio::time::sleep(Duration::from_secs(3)).await;
            ensure!(
                vm_writes(&ns, start).await? == 0,
                "decided on a cache that is being filled"
            );
            held.remove();
            count(&ns, "web", 55).await
        },
    );
}

#[test]
fn cc_02_a_stale_cache_makes_no_duplicates() {
    with_own(
        behind_proxy(),
        async |cluster: &mut Harness| -> Result<()> {
            let ns = Space::new(cluster, "cc02").await?;
            ns.accepts(config("cfg"))?;
            ns.accepts(pool("web", "cfg").replicas(0))?;
            ns.settled("web", &[]).await?;
            // Cuts the watch that runs; the next one tells nothing.
            let held = cluster
                .proxy()
                .add(Rule::new(Action::HoldWatch { after: 0 }).path_end(ALL_VMS));
            cluster.plane().restart_apiserver().await?;
            ns.eventually("the watch is held", async || {
                ensure!(held.hits() >= 1);
                Ok(())
            })
            .await?;
            let start = ns.harness.audit().mark();
            ns.kubectl("scale vpool web --replicas=3")?;
            ns.eventually("3 VMs", async || {
                ensure!(ns.member_names("web").await?.len() == 3);
                Ok(())
            })
            .await?;
            for pass in 0..5 {
                ns.kubectl(&format!("annotate vpool web pass={pass} --overwrite"))?;
                tokio::time::sleep(Duration::from_millis(700)).await;
            }
            ensure!(ns.member_names("web").await? == ["web-1", "web-2", "web-3"]);
            ensure!(
                vm_writes(&ns, start).await? == 3,
                "exactly one write per VM"
            );
            // And nothing more once it is shown.
            held.remove();
            ns.settled("web", &["web-1", "web-2", "web-3"]).await?;
            ensure!(vm_writes(&ns, start).await? == 3);
            Ok(())
        },
    );
}

#[test]
fn cc_06_a_broken_watch_backs_off_and_resumes() {
    with_own(
        behind_proxy(),
        async |cluster: &mut Harness| -> Result<()> {
            let ns = Space::new(cluster, "cc06").await?;
            ns.accepts(config("cfg"))?;
            ns.accepts(pool("web", "cfg").replicas(1))?;
            ns.settled("web", &["web-1"]).await?;
            let mut wanted = 1;
            let faults = [
                Action::ExpireWatch { after: 0 },
                Action::CutWatch {
                    after: 0,
                    cleanly: false,
                },
                Action::CutWatch {
                    after: 0,
                    cleanly: true,
                },
                Action::Answer(Answer::too_many_requests(1)),
                Action::Answer(Answer::expired()),
                Action::Answer(Answer::internal_error()),
                Action::DropRequest,
            ];
            for fault in faults {
                let what = fault.name();
                let rule = cluster.proxy().add(Rule::new(fault).watches().times(12));
                cluster.plane().restart_apiserver().await?;
                wanted += 1;
                ns.kubectl(&format!("scale vpool web --replicas={wanted}"))?;
                count(&ns, "web", wanted).await.context(what)?;
                ensure!(rule.hits() >= 1, "{what} never happened");
                rule.remove();
            }
            ensure!(cluster.vmpool().restarts() == 0, "it was restarted");

            // An odd VM, which no type of ours would decode, stops nothing.
            let crds: Api<CustomResourceDefinition> = Api::all(ns.client.clone());
            open_up(&crds).await?;
            let odd = json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": "odd"},
            "spec": {"runStrategy": 5, "dataVolumeTemplates": "none", "template": []}});
            ns.eventually("the odd VM is stored", async || {
                ns.create(Kind::Vm, &odd).await.map(drop)
            })
            .await?;
            wanted += 1;
            ns.kubectl(&format!("scale vpool web --replicas={wanted}"))?;
            count(&ns, "web", wanted).await.context("with an odd VM")?;

            // Rights that are taken and given back.
            let bindings: Api<ClusterRoleBinding> = Api::all(ns.client.clone());
            let ours = bindings
                .list(&kube::api::ListParams::default())
                .await?
                .into_iter();
            let ours: Vec<_> = ours
                .filter(|b| {
                    b.subjects
                        .iter()
                        .flatten()
                        .any(|s| s.name == SERVICE_ACCOUNT)
                })
                .collect();
            ensure!(!ours.is_empty());
            for binding in &ours {
                bindings
                    .delete(name_of(binding), &DeleteParams::default())
                    .await?;
            }
            cluster.plane().restart_apiserver().await?;
            wanted += 1;
            ns.run(&format!("scale vpool web --replicas={wanted}"))?;
            tokio::time::sleep(Duration::from_secs(3)).await;
            for mut binding in ours {
                binding.metadata.resource_version = None;
                binding.metadata.uid = None;
                bindings.create(&PostParams::default(), &binding).await?;
            }
            ns.eventually("scaled", async || {
                ns.kubectl(&format!("scale vpool web --replicas={wanted}"))
                    .map(drop)
            })
            .await?;
            count(&ns, "web", wanted)
                .await
                .context("after rights came back")
        },
    );
}

fn name_of(binding: &ClusterRoleBinding) -> &str {
    binding.metadata.name.as_deref().unwrap_or_default()
}

/// Lets the CRD of VMs take anything, as one of a newer KubeVirt would take new fields.
async fn open_up(crds: &Api<CustomResourceDefinition>) -> Result<()> {
    let name = "virtualmachines.kubevirt.io";
    let mut crd = serde_json::to_value(crds.get(name).await?)?;
    for version in crd["spec"]["versions"]
        .as_array_mut()
        .context("no versions")?
    {
        let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        version["schema"]["openAPIV3Schema"]["properties"]["spec"] = open;
    }
    let patch = json!({"spec": {"versions": crd["spec"]["versions"]}});
    crds.patch(name, &PatchParams::default(), &Patch::Merge(patch))
        .await?;
    Ok(())
}

#[test]
fn cc_07_fields_of_a_newer_kubevirt_arrive_and_survive() {
    with_own(
        Options::default(),
        async |cluster: &mut Harness| -> Result<()> {
            let ns = Space::new(cluster, "cc07").await?;
            open_up(&Api::all(ns.client.clone())).await?;
            let newer = config("cfg")
            .with("/spec/template/metadata/annotations", json!({"standin.vmpool.dev/newer-kubevirt": "yes"}))
            .with("/spec/template/spec/domain/brandNewField", 1)
            .with("/spec/template/spec/domain/brandNewMap", json!({"half": 0.5, "big": 9_007_199_254_740_993_u64, "list": [1, "a", {"b": false}]}))
            .with("/spec/brandNewPolicy", "Unheard")
            .with("/spec/template/metadata/brandNewMeta", "kept");
            ns.accepts(&newer)?;
            ns.accepts(pool("web", "cfg").replicas(1))?;
            let wanted = newer.value()["spec"]["template"]["spec"]["domain"].clone();
            ns.eventually("a VM with the new fields", async || {
                let vm = ns.get(Kind::Vm, "web-1").await?;
                ensure!(vm["spec"]["brandNewPolicy"] == "Unheard", "{}", vm["spec"]);
                for field in ["brandNewField", "brandNewMap"] {
                    ensure!(
                        vm["spec"]["template"]["spec"]["domain"][field] == wanted[field],
                        "{}",
                        vm["spec"]
                    );
                }
                ensure!(vm["spec"]["template"]["metadata"]["brandNewMeta"] == "kept");
                Ok(())
            })
            .await?;
            // An update brings what the config changed of it, and leaves what somebody added.
            ns.merge(
                Kind::Vm,
                "web-1",
                &json!({"spec": {"template": {"spec": {"domain": {"brandNewToo": "theirs"}}}}}),
            )
            .await?;
            let changed = newer
                .with("/spec/template/spec/domain/brandNewField", 2)
                .with("/spec/template/spec/evictionStrategy", "Unheard");
            ns.accepts(&changed)?;
            ns.eventually("web-1 follows", async || {
                let vm = ns.get(Kind::Vm, "web-1").await?;
                let spec = &vm["spec"]["template"]["spec"];
                ensure!(spec["domain"]["brandNewField"] == 2, "{spec}");
                ensure!(spec["evictionStrategy"] == "Unheard", "{spec}");
                ensure!(spec["domain"]["brandNewToo"] == "theirs", "{spec}");
                ensure!(
                    spec["domain"]["brandNewMap"] == wanted["brandNewMap"],
                    "{spec}"
                );
                Ok(())
            })
            .await?;
            // And through the write that takes our marks off.
            ns.merge(
                Kind::Vm,
                "web-1",
                &json!({"metadata": {"ownerReferences": null}}),
            )
            .await?;
            ns.settled("web", &["web-2"]).await?;
            ns.eventually("web-1 is released", async || {
                let vm = ns.get(Kind::Vm, "web-1").await?;
                ensure!(vm["metadata"]["labels"]["vmpool.dev/pool"].is_null());
                ensure!(
                    vm["spec"]["template"]["spec"]["domain"]["brandNewMap"]
                        == wanted["brandNewMap"]
                );
                ensure!(!vm["spec"].to_string().contains("null"), "{}", vm["spec"]);
                Ok(())
            })
            .await
        },
    );
}
