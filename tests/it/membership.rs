//! Who is a member and who is not. Cases DT-05, DT-06, matrix rows 16, 17, 37, 93, 101 to 103.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::objects::{config, pool, vm};
use crate::space::{condition, controller, name, uid};
use crate::{Kind, Space, with_namespace};

/// Everything of ours on a VM or its template.
fn marks(vm: &Value) -> Vec<String> {
    ["/metadata", "/spec/template/metadata"]
        .iter()
        .flat_map(|at| ["labels", "annotations"].map(|map| format!("{at}/{map}")))
        .filter_map(|at| vm.pointer(&at)?.as_object().cloned())
        .flatten()
        .map(|(key, _)| key)
        .filter(|key| key.starts_with("vmpool.dev/") && key != "vmpool.dev/detached-from")
        .collect()
}

async fn without_marks(ns: &Space<'_>, vm: &str) -> Result<Value> {
    ns.eventually(&format!("{vm} has no marks of ours"), async || {
        let found = ns.get(Kind::Vm, vm).await?;
        ensure!(controller(&found).is_none(), "{}", found["metadata"]);
        let marks = marks(&found);
        ensure!(marks.is_empty(), "{marks:?}");
        Ok(found)
    })
    .await
}

#[test]
fn dt_05_m16_a_stranger_with_the_pools_labels_is_never_counted_adopted_changed_or_deleted() {
    with_namespace("dt05", async |ns| -> Result<()> {
        ns.accepts(config("cfg"))?;
        ns.accepts(pool("web", "cfg").replicas(3))?;
        let members = ns.settled("web", &["web-1", "web-2", "web-3"]).await?;
        let mut precious = vm("precious");
        let labels = members[0]["metadata"]["labels"]
            .as_object()
            .cloned()
            .unwrap_or_default();
        for (key, value) in labels {
            precious = precious.label(&key, value.as_str().unwrap_or_default());
        }
        let warning = ns.accepts(precious.label("app", "precious"))?;
        ensure!(
            warning.contains("vmpool.dev"),
            "says that labels were taken off: {warning:?}"
        );
        let before = ns.get(Kind::Vm, "precious").await?;
        ensure!(marks(&before).is_empty(), "{:?}", marks(&before));
        ensure!(before["metadata"]["labels"]["app"] == "precious");

        // And labels that are put on afterwards make no member either.
        ns.kubectl(&format!(
            "label vm precious vmpool.dev/pool=web vmpool.dev/pool-uid={}",
            uid(&ns.get(Kind::Pool, "web").await?)
        ))?;
        ns.kubectl("scale vpool web --replicas=0")?;
        ns.settled("web", &[]).await?;
        let after = ns.get(Kind::Vm, "precious").await?;
        ensure!(uid(&after) == uid(&before));
        for field in ["runStrategy", "dataVolumeTemplates"] {
            ensure!(after["spec"][field] == before["spec"][field]);
        }
        ensure!(
            after["metadata"]["labels"]["vmpool.dev/pool"] == "web",
            "its user's labels stay"
        );
        Ok(())
    });
}

#[test]
fn m17_m101_a_member_that_loses_its_owner_is_released_whole_and_replaced() {
    with_namespace("m101", async |ns| -> Result<()> {
        ns.accepts(
            config("cfg")
                .running()
                .with("/spec/template/metadata/labels/app", "w"),
        )?;
        ns.accepts(pool("web", "cfg").replicas(3))?;
        ns.ready("web", &["web-1", "web-2", "web-3"]).await?;
        let instance = ns.get(Kind::Instance, "web-2").await?;
        ns.merge(
            Kind::Vm,
            "web-2",
            &json!({"metadata": {"ownerReferences": null}}),
        )
        .await?;

        let freed = without_marks(ns, "web-2").await?;
        let finalizers = freed["metadata"]["finalizers"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        ensure!(
            finalizers.len() == 1,
            "KubeVirt's own finalizer stays: {finalizers:?}"
        );
        ensure!(freed["spec"]["template"]["metadata"]["labels"]["app"] == "w");
        ns.ready("web", &["web-1", "web-3", "web-4"]).await?;

        let after = ns.get(Kind::Instance, "web-2").await?;
        ensure!(uid(&after) == uid(&instance), "its instance was restarted");
        ensure!(
            after["metadata"]["labels"]["vmpool.dev/pool-uid"].is_null(),
            "{}",
            after["metadata"]
        );
        for pod in ns.list(Kind::Pod).await? {
            if name(&pod).contains("web-2") {
                ensure!(pod["metadata"]["labels"]["vmpool.dev/pool-uid"].is_null());
            }
        }
        // It can be deleted, and the pool goes on.
        ns.kubectl("delete vm web-2 --timeout=60s")?;
        ns.kubectl("scale vpool web --replicas=4")?;
        ns.ready("web", &["web-1", "web-2", "web-3", "web-4"])
            .await?;
        Ok(())
    });
}

#[test]
fn dt_06_m37_orphan_deletion_leaves_working_vms_without_a_trace_of_ours() {
    with_namespace("dt06", async |ns| -> Result<()> {
        ns.accepts(config("cfg").running().disk("root"))?;
        ns.accepts(pool("web", "cfg").replicas(3))?;
        let members = ns.ready("web", &["web-1", "web-2", "web-3"]).await?;
        ns.kubectl("delete vpool web --cascade=orphan")?;
        for member in &members {
            let vm = without_marks(ns, name(member)).await?;
            ensure!(uid(&vm) == uid(member));
        }
        ensure!(ns.names(Kind::Instance).await?.len() == 3);
        // A pool of the same name is another pool: it takes other numbers.
        ns.accepts(pool("web", "cfg").replicas(1))?;
        ns.ready("web", &["web-4"]).await?;
        ns.kubectl("delete vm web-1 web-2 web-3 --timeout=60s")?;
        ns.eventually("their disks are gone", async || {
            ensure!(ns.names(Kind::DataVolume).await? == ["web-4-root"]);
            Ok(())
        })
        .await
    });
}

#[test]
fn m93_deleting_one_pool_leaves_anothers_finalizers_alone() {
    with_namespace("m93", async |ns| -> Result<()> {
        ns.accepts(config("cfg"))?;
        ns.accepts(pool("a", "cfg").replicas(2))?;
        ns.accepts(pool("b", "cfg").replicas(2))?;
        ns.settled("a", &["a-1", "a-2"]).await?;
        let before = ns.settled("b", &["b-1", "b-2"]).await?;
        ns.eventually("KubeVirt has seen b's VMs", async || {
            for vm in ns.members("b").await? {
                ensure!(vm["metadata"]["finalizers"].is_array());
            }
            Ok(())
        })
        .await?;
        ns.kubectl("delete vpool a")?;
        ns.gone(Kind::Vm, "a-1").await?;
        ns.gone(Kind::Vm, "a-2").await?;
        for (vm, old) in ns.members("b").await?.iter().zip(&before) {
            ensure!(uid(vm) == uid(old));
            ensure!(
                vm["metadata"]["finalizers"]
                    .as_array()
                    .is_some_and(|f| f.len() == 1)
            );
        }
        Ok(())
    });
}

#[test]
fn m102_a_pool_with_a_foreign_finalizer_keeps_it() {
    with_namespace("m102", async |ns| -> Result<()> {
        ns.accepts(config("cfg"))?;
        let mut web = pool("web", "cfg").replicas(1);
        web = web.with("/metadata/finalizers", json!(["example.com/keep"]));
        ns.accepts(web)?;
        ns.settled("web", &["web-1"]).await?;
        ns.kubectl("delete vpool web --wait=false")?;
        ns.kubectl("delete vm web-1 --timeout=60s")?;
        ns.stays(
            "a pool being deleted makes nothing",
            Duration::from_secs(3),
            async || {
                ensure!(ns.find(Kind::Vm, "web-1").await?.is_none());
                Ok(())
            },
        )
        .await?;
        let pool = ns.get(Kind::Pool, "web").await?;
        ensure!(pool["metadata"]["finalizers"] == json!(["example.com/keep"]));
        ns.merge(
            Kind::Pool,
            "web",
            &json!({"metadata": {"finalizers": null}}),
        )
        .await?;
        ns.gone(Kind::Pool, "web").await
    });
}

#[test]
fn a_vm_of_kubevirts_own_pool_of_the_same_name_is_not_a_member() {
    with_namespace("theirs", async |ns| -> Result<()> {
        ns.accepts(config("cfg"))?;
        ns.accepts(pool("web", "cfg").replicas(1))?;
        ns.settled("web", &["web-1"]).await?;
        let ours = uid(&ns.get(Kind::Pool, "web").await?).to_owned();
        // The same kind and even the same UID, in KubeVirt's group. Such an owner does not exist, so the garbage
        // collector would take it: it is looked at before that.
        let stranger = vm("theirs").with(
            "/metadata/ownerReferences",
            json!([{"apiVersion": "pool.kubevirt.io/v1beta1", "kind": "VirtualMachinePool", "name": "web",
                "uid": ours, "controller": true}]),
        );
        ns.accepts(stranger)?;
        ns.kubectl("scale vpool web --replicas=2")?;
        ns.eventually("web-2 is there", async || {
            ensure!(ns.find(Kind::Vm, "web-2").await?.is_some());
            Ok(())
        })
        .await?;
        let pool = ns.get(Kind::Pool, "web").await?;
        ensure!(condition(&pool, "ReplicaFailure").is_none());
        Ok(())
    });
}
