//! What goes wrong around the program: slow and broken watches, lost answers, killed processes, missing rights,
//! missing CRDs. Cases CC-01, CC-02, CC-06, CC-07, the webhook being down, KubeVirt or CDI being absent.
//!
//! Each test has a cluster of its own, with `vmpool` behind the fault proxy.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use dev::audit::{Filter, Mark};
use dev::harness::{Harness, NAMESPACE, Options, SERVICE_ACCOUNT};
use dev::proxy::{Action, Answer, Rule};
use dev::supervisor::Signal;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::objects::{config, pool, vm};
use crate::space::{condition, name, uid};
use crate::{Kind, Space, with_own};

/// The collection of all VMs, which `vmpool` lists and watches.
const ALL_VMS: &str = "/apis/kubevirt.io/v1/virtualmachines";

fn behind_proxy() -> Options {
    Options {
        behind_proxy: true,
        ..Options::default()
    }
}

/// Writes of ours on VMs since then, those that failed included.
async fn vm_writes(ns: &Space<'_>, since: Mark) -> Result<usize> {
    let audit = ns.harness.audit();
    audit.settle().await;
    let ours = Filter::new().service_account(NAMESPACE, SERVICE_ACCOUNT);
    audit.count_since(since, &ours.resource("virtualmachines").with_failures())
}

async fn count(ns: &Space<'_>, pool: &str, wanted: usize) -> Result<()> {
    ns.eventually(&format!("{pool} has {wanted} members"), async || {
        let names = ns.member_names(pool).await?;
        ensure!(names.len() == wanted, "{names:?}");
        let status = ns.get(Kind::Pool, pool).await?["status"].clone();
        ensure!(status["replicas"] == wanted, "{status}");
        Ok(())
    })
    .await
}

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
            // A new process with the same stale view: names are taken, and they are ours.
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

#[test]
fn killed_in_mid_scale_out_and_with_lost_answers_it_makes_exactly_what_was_wanted() {
    with_own(
        behind_proxy(),
        async |cluster: &mut Harness| -> Result<()> {
            let ns = Space::new(cluster, "kill").await?;
            ns.accepts(config("cfg"))?;
            ns.accepts(pool("web", "cfg").replicas(1))?;
            count(&ns, "web", 1).await?;
            // One answer in four is lost on the way back: the VM exists, and nobody said so.
            let lost = Rule::new(Action::LoseAnswer)
                .method("POST")
                .path_end("/virtualmachines")
                .chance(0.25, 7);
            let lost = cluster.proxy().add(lost);
            ns.kubectl("scale vpool web --replicas=200")?;
            tokio::time::sleep(Duration::from_millis(300)).await;
            let restarts = cluster.vmpool().restarts();
            cluster.vmpool().kill(Signal::KILL);
            cluster
                .vmpool()
                .wait_restarts(restarts + 1, Duration::from_secs(60))
                .await?;
            count(&ns, "web", 200).await?;
            ensure!(lost.hits() > 0);
            let names = ns.member_names("web").await?;
            let wanted: Vec<String> = (1..=200).map(|n| format!("web-{n}")).collect();
            ensure!(names == wanted, "{names:?}");
            lost.remove();

            // Deletes whose answer is lost, or refused, are repeated; nobody else goes.
            let lost = Rule::new(Action::LoseAnswer)
                .method("DELETE")
                .chance(0.3, 3);
            cluster.proxy().add(lost);
            cluster.proxy().add(
                Rule::answer(Answer::conflict())
                    .method("DELETE")
                    .chance(0.3, 4),
            );
            cluster.proxy().add(
                Rule::answer(Answer::too_many_requests(1))
                    .method("DELETE")
                    .times(3),
            );
            ns.kubectl("scale vpool web --replicas=120")?;
            count(&ns, "web", 120).await?;
            cluster.proxy().clear();
            ns.stays("120 stay", Duration::from_secs(3), async || {
                ensure!(ns.member_names("web").await?.len() == 120);
                Ok(())
            })
            .await
        },
    );
}

#[test]
fn pf_01_a_throttling_api_server_is_obeyed() {
    with_own(
        behind_proxy(),
        async |cluster: &mut Harness| -> Result<()> {
            let ns = Space::new(cluster, "pf01").await?;
            ns.accepts(config("cfg"))?;
            let full = Rule::answer(Answer::too_many_requests(2))
                .method("POST")
                .path_end("/virtualmachines");
            let full = cluster.proxy().add(full);
            ns.accepts(pool("web", "cfg").replicas(100))?;
            ns.condition(Kind::Pool, "web", "ReplicaFailure", "True")
                .await?;
            tokio::time::sleep(Duration::from_secs(5)).await;
            let tries = full.hits();
            ensure!(
                tries <= 12,
                "{tries} creates against an API server that said to wait 2 s"
            );
            full.remove();
            count(&ns, "web", 100).await
        },
    );
}

#[test]
fn with_vmpool_down_members_still_start_stop_and_go_and_other_vms_never_notice() {
    with_own(
        Options::default(),
        async |cluster: &mut Harness| -> Result<()> {
            {
                let ns = Space::new(cluster, "down").await?;
                ns.accepts(config("cfg").running())?;
                ns.accepts(pool("web", "cfg").replicas(3))?;
                ns.ready("web", &["web-1", "web-2", "web-3"]).await?;
            }
            cluster.stop_vmpool();
            let ns = Space {
                harness: cluster,
                name: "down-0".to_owned(),
                client: cluster.client()?,
            };
            // Members.
            ns.kubectl("patch vm web-1 --type=merge -p {\"spec\":{\"runStrategy\":\"Halted\"}}")?;
            ns.gone(Kind::Instance, "web-1").await?;
            ns.kubectl("patch vm web-1 --type=merge -p {\"spec\":{\"runStrategy\":\"Always\"}}")?;
            ns.eventually("web-1 runs again", async || {
                let instance = ns.get(Kind::Instance, "web-1").await?;
                ensure!(instance["status"]["phase"] == "Running");
                Ok(())
            })
            .await?;
            ns.kubectl("delete vm web-3 --timeout=60s")?;
            // Others.
            ns.accepts(vm("mine"))?;
            ns.kubectl("label vm mine a=b")?;
            ns.kubectl("patch vm mine --type=merge -p {\"spec\":{\"runStrategy\":\"Always\"}}")?;
            ns.kubectl("delete vm mine --timeout=60s")?;
            // What waits says what it waits for.
            let refusal = ns.refused("scale vpool web --replicas=5")?;
            ensure!(refusal.contains("vmpool.dev"), "{refusal}");
            ns.rejects(config("other"))?;
            // What does not touch a spec goes on, and so does deletion.
            ns.kubectl("label vpool web team=a")?;
            ns.kubectl("label vconf cfg team=a")?;
            ns.kubectl("delete vconf cfg")?;
            ns.kubectl("delete vpool web --timeout=60s")?;
            ns.gone(Kind::Vm, "web-1").await?;
            ns.kubectl("delete namespace down-0 --timeout=120s")?;
            Ok(())
        },
    );
}

#[test]
fn without_kubevirt_and_cdi_it_waits_says_so_and_goes_on_when_they_come() {
    let absent = Options {
        without_kubevirt_crds: true,
        without_cdi_crds: true,
        without_standin: true,
        ..Options::default()
    };
    with_own(absent, async |cluster: &mut Harness| -> Result<()> {
        let ns = Space::new(cluster, "absent").await?;
        ns.accepts(config("plain"))?;
        ns.accepts(config("disks").disk("root"))?;
        ns.accepts(pool("a", "plain").replicas(2))?;
        ns.accepts(pool("b", "disks").replicas(2))?;
        let says = |pool: Value, what: &'static str| -> Result<()> {
            let conditions = pool["status"]["conditions"].to_string();
            ensure!(conditions.contains(what), "{conditions}");
            Ok(())
        };
        for pool in ["a", "b"] {
            ns.eventually("it says that KubeVirt is absent", async || {
                says(ns.get(Kind::Pool, pool).await?, "KubeVirt")
            })
            .await?;
        }
        cluster.install_kubevirt().await?;
        count(&ns, "a", 2).await?;
        ns.eventually("it says that CDI is absent", async || {
            says(ns.get(Kind::Pool, "b").await?, "CDI")
        })
        .await?;
        ensure!(ns.member_names("b").await?.is_empty());
        cluster.install_cdi().await?;
        count(&ns, "b", 2).await?;
        let b = ns.get(Kind::Pool, "b").await?;
        ensure!(
            condition(&b, "ConfigReady").is_some_and(|c| c["status"] == "True"),
            "{}",
            b["status"]
        );
        ensure!(cluster.vmpool().restarts() == 0);
        Ok(())
    });
}

#[test]
fn a_pool_recreated_under_its_name_converges_with_one_write_per_vm() {
    // Row 95, and the stale view of a pool that is gone.
    with_own(
        Options::default(),
        async |cluster: &mut Harness| -> Result<()> {
            let ns = Space::new(cluster, "again").await?;
            ns.accepts(config("cfg"))?;
            ns.accepts(pool("web", "cfg").replicas(5))?;
            count(&ns, "web", 5).await?;
            let old = uid(&ns.get(Kind::Pool, "web").await?).to_owned();
            ns.kubectl("delete vpool web --wait=false")?;
            ns.eventually("the same name again", async || {
                ns.accepts(pool("web", "cfg").replicas(5))?;
                ensure!(uid(&ns.get(Kind::Pool, "web").await?) != old);
                Ok(())
            })
            .await?;
            count(&ns, "web", 5).await?;
            let members = ns.members("web").await?;
            ensure!(
                members
                    .iter()
                    .map(name)
                    .eq(["web-1", "web-2", "web-3", "web-4", "web-5"])
            );
            Ok(())
        },
    );
}
