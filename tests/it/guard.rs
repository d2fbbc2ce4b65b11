//! What only the program may write: intents, membership, and what a member's stamp says. Everybody else's work passes.

use anyhow::{Result, ensure};
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

use crate::objects::{all, config, pool, vm};
use crate::space::{condition, controller, uid};
use crate::{Kind, Space, with_namespace};

/// What kubectl is told of a merge patch.
fn patch(ns: &Space<'_>, kind: &str, name: &str, patch: &Value) -> Result<Option<String>> {
    let said = ns.run(&format!("patch {kind} {name} --type=merge --patch={patch}"))?;
    Ok((!said.success).then_some(said.stderr))
}

/// A policy is in effect a moment after it is installed.
async fn refuses(ns: &Space<'_>, kind: &str, name: &str, change: Value) -> Result<()> {
    ns.eventually(&format!("refused: {change}"), async || {
        let dry = ns.run(&format!(
            "patch {kind} {name} --type=merge --dry-run=server --patch={change}"
        ))?;
        ensure!(!dry.success, "admitted: {change}");
        ensure!(dry.stderr.contains("vmpool.dev"), "{}", dry.stderr);
        Ok(())
    })
    .await
}

#[test]
fn intents_are_the_programs_alone() {
    with_namespace("intents", async |ns| {
        ns.accepts(all(&[config("cfg"), pool("web", "cfg").replicas(0)]))?;
        let intent =
            |value: Value| json!({"metadata": {"annotations": {"vmpool.dev/intent": value}}});
        refuses(ns, "vpool", "web", intent(json!("[]"))).await?;
        let forged = pool("forged", "cfg")
            .replicas(0)
            .with("/metadata/annotations", json!({"vmpool.dev/intent": "[]"}));
        let said = ns.rejects(forged)?;
        ensure!(said.contains("vmpool.dev/intent"), "{said}");

        // What nobody can read is told, and may be taken off, and not changed.
        let ours = ns.harness.sa_client()?;
        let pools: Api<DynamicObject> =
            Api::namespaced_with(ours, &ns.name, &Kind::Pool.resource());
        for (unclear, is_clear) in [
            (r#"[{"verb":"reheat"}]"#, false),
            ("{", false),
            (
                r#"[{"verb":"detach","name":"web-9","uid":"x","version":"99999999999"}]"#,
                true,
            ),
        ] {
            let write = Patch::Merge(intent(json!(unclear)));
            pools.patch("web", &PatchParams::default(), &write).await?;
            if !is_clear {
                ns.condition(Kind::Pool, "web", "ScaleInBlocked", "True")
                    .await?;
                refuses(ns, "vpool", "web", intent(json!("[]"))).await?;
                let said = patch(ns, "vpool", "web", &intent(Value::Null))?;
                ensure!(said.is_none(), "{said:?}");
            }
            ns.eventually("nothing is unclear any more", async || {
                let pool = ns.get(Kind::Pool, "web").await?;
                ensure!(condition(&pool, "ScaleInBlocked").is_none(), "{pool}");
                Ok(())
            })
            .await?;
        }
        refuses(ns, "vpool", "web", intent(Value::Null)).await?;
        pools
            .patch(
                "web",
                &PatchParams::default(),
                &Patch::Merge(intent(Value::Null)),
            )
            .await?;

        // Others may change all but that.
        ns.kubectl("annotate vpool web note=x")?;
        ns.kubectl("scale vpool web --replicas=1")?;
        ns.settled("web", &["web-1"]).await?;
        Ok(())
    });
}

#[test]
fn nobody_makes_a_member_and_everybody_may_release_one() {
    with_namespace("members", async |ns| {
        ns.accepts(all(&[config("cfg"), pool("web", "cfg").replicas(2)]))?;
        let members = ns.settled("web", &["web-1", "web-2"]).await?;
        let owner = controller(&members[0]).cloned().unwrap_or_default();
        ns.accepts(vm("stranger"))?;

        // 1. Nobody becomes a member by hand, whatever else the update does.
        let references = json!({"metadata": {"ownerReferences": [owner]}});
        refuses(ns, "vm", "stranger", references).await?;

        // 2. What says who a member is stays.
        for key in ["pool", "pool-uid", "ordinal", "config", "revision"] {
            for value in [json!("x"), Value::Null] {
                let change =
                    json!({"metadata": {"labels": {(format!("vmpool.dev/{key}")): value}}});
                refuses(ns, "vm", "web-1", change).await?;
            }
        }
        for key in ["stamp", "member-of", "detaching"] {
            let change = json!({"metadata": {"annotations": {(format!("vmpool.dev/{key}")): "x"}}});
            refuses(ns, "vm", "web-1", change).await?;
        }

        // 3. Everything else is its user's.
        for change in [
            json!({"metadata": {"labels": {"mine": "x"}, "annotations": {"vmpool.dev/protected": "scale-in"}}}),
            json!({"metadata": {"finalizers": ["example.com/x"]}}),
            json!({"metadata": {"finalizers": null}}),
            json!({"spec": {"runStrategy": "Always"}}),
        ] {
            let said = patch(ns, "vm", "web-1", &change)?;
            ensure!(said.is_none(), "{change}: {said:?}");
        }

        // 4. A member may be released with all its labels changed, and deleted; the pool may be orphaned.
        let released =
            json!({"metadata": {"ownerReferences": null, "labels": {"vmpool.dev/pool": null}}});
        let said = patch(ns, "vm", "web-1", &released)?;
        ensure!(said.is_none(), "{said:?}");
        ns.settled("web", &["web-2", "web-3"]).await?;
        ns.kubectl("delete vm web-2")?;
        ns.settled("web", &["web-2", "web-3"]).await?;
        let before = ns.get(Kind::Vm, "web-3").await?;
        ns.kubectl("delete vpool web --cascade=orphan")?;
        ns.gone(Kind::Pool, "web").await?;
        ns.eventually("web-3 is nobody's", async || {
            let vm = ns.get(Kind::Vm, "web-3").await?;
            ensure!(controller(&vm).is_none() && uid(&vm) == uid(&before));
            Ok(())
        })
        .await?;

        // 5. And with members in it, a namespace ends; `with_namespace` asks for that.
        ns.accepts(pool("last", "cfg").replicas(1))?;
        ns.settled("last", &["last-1"]).await?;
        ns.remove()?;
        ns.eventually("the namespace ends", async || {
            let left = ns.list(Kind::Vm).await?;
            ensure!(left.is_empty());
            Ok(())
        })
        .await
    });
}

/// KubeVirt's own controllers, in two of the namespaces that it is found in.
const VIRT_CONTROLLERS: [&str; 2] = [
    "system:serviceaccount:kubevirt:kubevirt-controller",
    "system:serviceaccount:openshift-cnv:kubevirt-controller",
];

/// A pool of KubeVirt's heals by deleting VMs, and looks at all of the namespace (row 92). That is the one thing
/// that its controllers may not do to a member; everybody else may, and to an orphan they may too.
#[test]
fn m92_kubevirts_own_pools_heal_no_member_and_everybody_else_goes_on() {
    with_namespace("m92", async |ns| {
        ns.accepts(all(&[config("cfg"), pool("web", "cfg").replicas(3)]))?;
        let members = ns.settled("web", &["web-1", "web-2", "web-3"]).await?;
        ns.accepts(vm("stranger"))?;
        let robot = format!("system:serviceaccount:{}:robot", ns.name);
        ns.kubectl("create role vms --verb=* --resource=virtualmachines.kubevirt.io,virtualmachines.kubevirt.io/status")?;
        for account in VIRT_CONTROLLERS.iter().copied().chain([&*robot]) {
            let (namespace, name) = account["system:serviceaccount:".len()..]
                .split_once(':')
                .expect("namespace and name");
            ns.kubectl(&format!(
                "create rolebinding {namespace}-{name} --role=vms --serviceaccount={namespace}:{name}"
            ))?;
        }

        for controller in VIRT_CONTROLLERS {
            let as_it = |args: &str| ns.run(&format!("{args} --as={controller}"));
            // 1. Not deleted, neither alone nor with all others, whatever state they are in.
            ns.eventually("a member is not healed", async || {
                let said = as_it("delete vm web-1 --wait=false --dry-run=server")?;
                ensure!(
                    !said.success && said.stderr.contains("not healed"),
                    "{}",
                    said.stderr
                );
                Ok(())
            })
            .await?;
            let all = format!(
                "/apis/kubevirt.io/v1/namespaces/{}/virtualmachines",
                ns.name
            );
            let said = as_it(&format!("delete --raw {all}?dryRun=All"))?;
            ensure!(
                !said.success && said.stderr.contains("not healed"),
                "{}",
                said.stderr
            );

            // 2. What virt-controller does to every VM it does to a member.
            for change in [
                json!({"metadata": {"finalizers": ["kubevirt.io/virtualMachineControllerFinalize", "example.com/x"]}}),
                json!({"metadata": {"finalizers": ["kubevirt.io/virtualMachineControllerFinalize"]}}),
                json!({"metadata": {"annotations": {"kubevirt.io/latest-observed-api-version": "v1"}}}),
                json!({"spec": {"template": {"spec": {"domain": {"firmware": {"serial": "s"}}}}}}),
            ] {
                let said = as_it(&format!("patch vm web-1 --type=merge --patch={change}"))?;
                ensure!(said.success, "{change}: {}", said.stderr);
            }
            // 3. It is KubeVirt's to heal what is nobody's of ours.
            let said = as_it("delete vm stranger --dry-run=server")?;
            ensure!(said.success, "{}", said.stderr);
        }
        for member in &members {
            let found = ns.get(Kind::Vm, crate::space::name(member)).await?;
            ensure!(uid(&found) == uid(member) && found["metadata"]["deletionTimestamp"].is_null());
        }

        // 4. A user's delete, by a service account too, is honoured.
        ns.kubectl(&format!("delete vm web-3 --as={robot}"))?;
        ns.settled("web", &["web-1", "web-2", "web-3"]).await?;

        // 5. An orphan is nobody's: anything may be written to it, and virt-controller may delete it.
        ns.kubectl("delete vpool web --cascade=orphan")?;
        ns.gone(Kind::Pool, "web").await?;
        ns.eventually("the members are orphans", async || {
            for name in ["web-1", "web-2", "web-3"] {
                ensure!(controller(&ns.get(Kind::Vm, name).await?).is_none());
            }
            Ok(())
        })
        .await?;
        for change in [
            json!({"metadata": {"labels": {"vmpool.dev/pool": "x", "vmpool.dev/ordinal": "7"}}}),
            json!({"metadata": {"annotations": {"vmpool.dev/stamp": "x", "vmpool.dev/member-of": "x"}}}),
            json!({"metadata": {"labels": {"vmpool.dev/pool": null, "vmpool.dev/ordinal": null}}}),
        ] {
            let said = patch(ns, "vm", "web-2", &change)?;
            ensure!(said.is_none(), "{change}: {said:?}");
        }
        let [controller, _] = VIRT_CONTROLLERS;
        ns.kubectl(&format!("delete vm web-2 --as={controller}"))?;
        ns.gone(Kind::Vm, "web-2").await
    });
}
