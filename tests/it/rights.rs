//! Who may do what, by the generated roles. Case IU-05, matrix rows 66 and 67.

use anyhow::{Context, Result, ensure};
use dev::harness::{NAMESPACE, SERVICE_ACCOUNT};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::{Api, PostParams};
use serde_json::{Value, json};

use crate::objects::{all, config, pool};
use crate::space::controller;
use crate::{Space, with_namespace};

const POOLS: &str = "virtualmachinepools";
const CONFIGS: &str = "virtualmachineconfigs";

/// Whether a user may do something in a namespace.
async fn may(ns: &Space<'_>, user: &str, verb: &str, resource: &str) -> Result<bool> {
    let (group, resource) = match resource.split_once(':') {
        Some((group, resource)) => (group, resource),
        None => ("vmpool.dev", resource),
    };
    let (resource, subresource) = match resource.split_once('/') {
        Some((resource, subresource)) => (resource, Some(subresource.to_owned())),
        None => (resource, None),
    };
    let review = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(user.to_owned()),
            resource_attributes: Some(ResourceAttributes {
                namespace: Some(ns.name.clone()),
                verb: Some(verb.to_owned()),
                group: Some(group.to_owned()),
                resource: Some(resource.to_owned()),
                subresource,
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    };
    let reviews: Api<SubjectAccessReview> = Api::all(ns.client.clone());
    let review = reviews.create(&PostParams::default(), &review).await?;
    Ok(review.status.is_some_and(|status| status.allowed))
}

#[test]
fn m66_admin_edit_and_view_reach_pools_and_configs_and_others_nothing() {
    with_namespace("m66", async |ns| {
        for role in ["admin", "edit", "view"] {
            ns.kubectl(&format!(
                "create rolebinding {role} --clusterrole={role} --user={role}"
            ))?;
        }
        let reads = ["get", "list", "watch"];
        let writes = ["create", "update", "patch", "delete"];
        // A role is aggregated by a controller, and bound by another cache.
        ns.eventually("the roles are aggregated", async || {
            ensure!(
                may(ns, "view", "get", POOLS).await? && may(ns, "admin", "create", CONFIGS).await?
            );
            Ok(())
        })
        .await?;
        for kind in [POOLS, CONFIGS] {
            let status = format!("{kind}/status");
            for (user, may_read, may_write, may_clear) in [
                ("admin", true, true, true),
                ("edit", true, true, false),
                ("view", true, false, false),
                ("nobody", false, false, false),
            ] {
                let wanted = reads.iter().map(|verb| (*verb, kind, may_read));
                let wanted = wanted.chain(writes.iter().map(|verb| (*verb, kind, may_write)));
                let wanted = wanted.chain([
                    ("deletecollection", kind, may_clear),
                    ("get", &status, may_read),
                    ("update", &status, false),
                    ("patch", &status, false),
                ]);
                for (verb, resource, wanted) in wanted {
                    let found = may(ns, user, verb, resource).await?;
                    ensure!(found == wanted, "{user} may {verb} {resource}: {found}");
                }
            }
        }
        let scale = format!("{POOLS}/scale");
        for (user, may_read, may_write) in [
            ("admin", true, true),
            ("edit", true, true),
            ("view", true, false),
            ("nobody", false, false),
        ] {
            for (verb, wanted) in [
                ("get", may_read),
                ("update", may_write),
                ("patch", may_write),
            ] {
                let found = may(ns, user, verb, &scale).await?;
                ensure!(found == wanted, "{user} may {verb} {scale}: {found}");
            }
            let group = "subresources.vmpool.dev";
            for (verb, resource, wanted) in [
                ("get", "virtualmachinepools", may_read),
                ("get", "virtualmachinepools/scale", may_read),
                ("update", "virtualmachinepools/scale", may_write),
                ("patch", "virtualmachinepools/scale", may_write),
                ("create", "virtualmachinepools/detach", may_write),
            ] {
                let resource = format!("{group}:{resource}");
                let found = may(ns, user, verb, &resource).await?;
                ensure!(found == wanted, "{user} may {verb} {resource}: {found}");
            }
        }
        Ok(())
    });
}

#[test]
fn m67_the_program_may_do_its_work_and_no_more() {
    with_namespace("m67", async |ns| {
        let account = format!("system:serviceaccount:{NAMESPACE}:{SERVICE_ACCOUNT}");
        for kind in [POOLS, CONFIGS] {
            for (verb, sub) in [("update", "finalizers"), ("patch", "status")] {
                let resource = format!("{kind}/{sub}");
                ensure!(
                    may(ns, &account, verb, &resource).await?,
                    "{verb} {resource}"
                );
            }
            for verb in ["get", "list", "watch"] {
                ensure!(may(ns, &account, verb, kind).await?, "{verb} {kind}");
            }
        }
        for (verb, resource) in [
            ("create", "kubevirt.io:virtualmachines"),
            ("delete", "kubevirt.io:virtualmachines"),
            ("create", "apps:controllerrevisions"),
            ("delete", "apps:controllerrevisions"),
        ] {
            ensure!(
                may(ns, &account, verb, resource).await?,
                "{verb} {resource}"
            );
        }
        for (verb, resource) in [
            ("get", ":secrets"),
            ("list", ":secrets"),
            ("create", ":pods"),
            ("delete", ":persistentvolumeclaims"),
            ("delete", POOLS),
            ("delete", CONFIGS),
            ("deletecollection", "kubevirt.io:virtualmachines"),
            ("update", "rbac.authorization.k8s.io:roles"),
            ("impersonate", ":users"),
        ] {
            ensure!(
                !may(ns, &account, verb, resource).await?,
                "it may {verb} {resource}"
            );
        }
        Ok(())
    });
}

#[test]
fn iu_05_owners_may_block_their_deletion_where_that_needs_a_right() {
    with_namespace("iu-05", async |ns| {
        // 1. Under the generated role it works: VMs are made, with the blocking owner.
        ns.accepts(all(&[config("cfg"), pool("web", "cfg").replicas(1)]))?;
        let vms = ns.settled("web", &["web-1"]).await?;
        let owner = controller(&vms[0]).context("no owner")?.clone();
        ensure!(owner["blockOwnerDeletion"] == true, "{owner}");

        // 2. The API server does ask for the right: somebody with all but that one is refused.
        ns.kubectl("create role maker --verb=create,get --resource=configmaps")?;
        ns.kubectl("create rolebinding maker --role=maker --user=maker")?;
        let made = |owners: Value| {
            json!({
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "made", "ownerReferences": owners},
            })
            .to_string()
        };
        let create = "create --as=maker --dry-run=server -f -";
        ns.eventually("the role is seen", async || {
            let free = ns.run_with(create, &made(json!([])))?;
            ensure!(free.success, "{}", free.stderr);
            Ok(())
        })
        .await?;
        let blocking = ns.run_with(create, &made(json!([owner])))?;
        ensure!(
            !blocking.success,
            "the admission plugin is off: the test proves nothing"
        );
        ensure!(
            blocking.stderr.contains("blockOwnerDeletion"),
            "{}",
            blocking.stderr
        );
        Ok(())
    });
}
