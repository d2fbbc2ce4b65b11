//! Nothing of ours stands in the way of an end, whatever is missing or invalid. Case VD-03, matrix rows 102
//! and 103.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};
use dev::harness::Options;
use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt as _;
use kube::api::Api;
use serde_json::json;
use vmpool::api::API_SERVICE;

use crate::lax::Rules;
use crate::objects::{Builder, all, config, pool};
use crate::{Kind, Space, with_namespace, with_own};

const FINALIZER: &str = "example.com/hold";
const POOL: &str = "virtualmachinepools.vmpool.dev";
const CONFIG: &str = "virtualmachineconfigs.vmpool.dev";

/// A pool that somebody else's finalizer holds.
fn held(name: &str) -> Builder {
    pool(name, "cfg")
        .replicas(1)
        .with("/metadata/finalizers", json!([FINALIZER]))
}

#[test]
fn vd_03_m102_config_and_pool_go_in_any_order_and_foreign_finalizers_are_theirs_to_take_off() {
    with_namespace("vd-03", async |ns| {
        ns.accepts(all(&[config("cfg"), held("web")]))?;
        ns.settled("web", &["web-1"]).await?;

        // 1. The config first, which the pool still names.
        ns.kubectl(&format!("delete {CONFIG} cfg"))?;
        ns.kubectl(&format!("delete {POOL} web --wait=false"))?;

        // 2. The pool stays as long as the finalizer does, is not refilled, and no finalizer is put beside it.
        let stored = ns.get(Kind::Pool, "web").await?;
        ensure!(
            stored["metadata"]["finalizers"] == json!([FINALIZER]),
            "{stored}"
        );
        ensure!(
            !stored["metadata"]["deletionTimestamp"].is_null(),
            "{stored}"
        );
        ns.kubectl("delete vm web-1")?;
        ns.stays(
            "a pool that is going makes no VM",
            std::time::Duration::from_secs(3),
            async || {
                let vms = ns.list(Kind::Vm).await?;
                ensure!(vms.is_empty(), "{vms:?}");
                Ok(())
            },
        )
        .await?;
        let stored = ns.get(Kind::Pool, "web").await?;
        ensure!(
            stored["metadata"]["finalizers"] == json!([FINALIZER]),
            "{stored}"
        );

        // 3. Taking it off is an UPDATE, and the end.
        ns.kubectl(&format!(
            r#"patch {POOL} web --type=merge -p {{"metadata":{{"finalizers":null}}}}"#
        ))?;
        ns.gone(Kind::Pool, "web").await
    });
}

/// Pools that today's rules refuse: two by the schema, two by the webhook.
fn invalid() -> BTreeMap<&'static str, Builder> {
    let of = |name: &str| pool(name, "cfg").replicas(0);
    BTreeMap::from([
        ("budget", of("budget").with("/spec/maxUnavailable", 0)),
        (
            "union",
            of("union").with(
                "/spec/updateStrategy",
                json!({"unmanaged": {}, "proactive": {}}),
            ),
        ),
        (
            "label",
            of("label").with(
                "/spec/virtualMachineMetadata/labels",
                json!({"vmpool.dev/pool": "x"}),
            ),
        ),
        (
            "later",
            of("later").with("/spec/autohealing", json!({"startFailureThreshold": 3})),
        ),
    ])
}

/// Configs that today's rules refuse.
fn invalid_configs() -> BTreeMap<&'static str, Builder> {
    BTreeMap::from([
        (
            "marked",
            config("marked").with(
                "/spec/template/metadata/labels",
                json!({"vmpool.dev/pool": "x"}),
            ),
        ),
        (
            "elsewhere",
            config("elsewhere")
                .disk("root")
                .with("/spec/template/spec/hostname", "fixed")
                .push(
                    "/spec/dataVolumeTemplates",
                    json!({"metadata": {"name": "d", "namespace": "kube-system"}, "spec": {}}),
                ),
        ),
    ])
}

/// Stores what today's rules refuse.
async fn store_invalid(ns: &Space<'_>) -> Result<()> {
    let rules = Rules::relax(&ns.client).await?;
    ns.accepts(config("cfg"))?;
    for (name, pool) in invalid() {
        let what = format!("{name} is stored under laxer rules");
        ns.eventually(&what, async || ns.accepts(&pool).map(drop))
            .await?;
    }
    for (_, config) in invalid_configs() {
        ns.accepts(config.with("/metadata/finalizers", json!([FINALIZER])))?;
    }
    ns.accepts(held("held").replicas(0).with("/spec/maxUnavailable", 0))?;
    rules.restore().await?;
    ns.eventually("the rules are back", async || {
        for (name, pool) in invalid().into_iter().chain(invalid_configs()) {
            let another = pool.with("/metadata/name", format!("{name}-2"));
            let made = ns.run_with("create --dry-run=server -f -", &another.to_string())?;
            ensure!(
                !made.success && made.stderr.contains("spec."),
                "{}",
                made.stderr
            );
        }
        Ok(())
    })
    .await
}

#[test]
fn vd_03_m103_what_was_stored_under_laxer_rules_stays_editable_and_goes_away() {
    with_own(
        Options {
            without_standin: true,
            ..Options::default()
        },
        async |harness| {
            let ns = Space::new(harness, "lax").await?;
            store_invalid(&ns).await?;
            for name in invalid().into_keys() {
                // 1. Its metadata can be changed, and what does not make it worse.
                ns.kubectl(&format!("label {POOL} {name} touched=yes"))?;
                ns.kubectl(&format!("annotate {POOL} {name} touched=yes"))?;
                ns.kubectl(&format!(
                    r#"patch {POOL} {name} --type=merge -p {{"spec":{{"minReadySeconds":1}}}}"#
                ))
                .with_context(|| format!("{name}: a change elsewhere"))?;
                ns.kubectl(&format!("scale {POOL} {name} --replicas=1"))
                    .with_context(|| format!("{name}: a scale"))?;
            }
            // 2. What makes it worse can not.
            for (name, worse, path) in [
                (
                    "budget",
                    json!({"maxUnavailable": "0%"}),
                    "spec.maxUnavailable",
                ),
                (
                    "union",
                    json!({"updateStrategy": {"opportunistic": {}}}),
                    "spec.updateStrategy",
                ),
                (
                    "label",
                    json!({"virtualMachineMetadata": {"labels": {"vmpool.dev/x": "y"}}}),
                    "vmpool.dev/x",
                ),
                (
                    "later",
                    json!({"preservedDisks": {"expireAfter": "1h"}}),
                    "spec.preservedDisks",
                ),
            ] {
                let patch = json!({ "spec": worse });
                let said = ns.refused(&format!("patch {POOL} {name} --type=merge -p {patch}"))?;
                ensure!(said.contains(path), "{name}: {said}");
            }
            configs_stay_editable(&ns)?;
            // 3. It goes away, its finalizer being taken off by an UPDATE.
            ns.kubectl(&format!("delete {POOL} held --wait=false"))?;
            let patch = r#"{"metadata":{"finalizers":null}}"#;
            ns.kubectl(&format!("patch {POOL} held --type=merge -p {patch}"))?;
            ns.gone(Kind::Pool, "held").await?;
            for name in invalid().into_keys() {
                ns.kubectl(&format!("delete {POOL} {name}"))?;
            }
            Ok(())
        },
    );
}

/// The same for configs, down to their end.
fn configs_stay_editable(ns: &Space<'_>) -> Result<()> {
    for name in invalid_configs().into_keys() {
        ns.kubectl(&format!("label {CONFIG} {name} touched=yes"))?;
        let elsewhere =
            json!({"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 1}}}});
        ns.kubectl(&format!(
            "patch {CONFIG} {name} --type=merge -p {elsewhere}"
        ))
        .with_context(|| format!("{name}: a change elsewhere"))?;
        let worse = json!({"spec": {"template": {"metadata": {"labels": {"vmpool.dev/y": "z"}}}}});
        let said = ns.refused(&format!("patch {CONFIG} {name} --type=merge -p {worse}"))?;
        ensure!(said.contains("vmpool.dev/y"), "{name}: {said}");
        ns.kubectl(&format!("delete {CONFIG} {name} --wait=false"))?;
        let freed = r#"{"metadata":{"finalizers":null}}"#;
        ns.kubectl(&format!("patch {CONFIG} {name} --type=merge -p {freed}"))?;
    }
    Ok(())
}

#[test]
fn vd_03_with_vmpool_down_everything_can_be_labelled_and_deleted_and_namespaces_end() {
    with_own(Options::default(), async |harness| {
        let ns = Space::new(harness, "down").await?;
        ns.accepts(all(&[
            config("cfg").running().disk("root"),
            held("held"),
            pool("web", "cfg").replicas(2),
        ]))?;
        ns.ready("web", &["web-1", "web-2"]).await?;
        ns.ready("held", &["held-1"]).await?;
        let (space, client) = (ns.name.clone(), ns.client.clone());
        drop(ns);
        harness.stop_vmpool();
        let ns = Space {
            harness: &*harness,
            name: space,
            client,
        };

        // 1. A new spec has to wait, which also shows that nobody answers.
        let said = ns.refused(&format!(
            r#"patch {POOL} web --type=merge -p {{"spec":{{"paused":true}}}}"#
        ))?;
        ensure!(said.contains("failed calling webhook"), "{said}");

        // 2. Metadata does not.
        ns.kubectl(&format!("label {POOL},{CONFIG} --all touched=yes"))?;

        // 3. Nor does an end: config, pool with its VMs and disks, a foreign finalizer, the namespace.
        ns.kubectl(&format!("delete {CONFIG} cfg"))?;
        ns.kubectl(&format!("delete {POOL} web"))?;
        ns.gone(Kind::Vm, "web-1").await?;
        ns.kubectl(&format!("delete {POOL} held --wait=false"))?;
        let patch = r#"{"metadata":{"finalizers":null}}"#;
        ns.kubectl(&format!("patch {POOL} held --type=merge -p {patch}"))?;
        ns.gone(Kind::Pool, "held").await?;
        // The APIService of a server that doesn't answer holds up the end of every namespace (AG-03): who
        // takes the program away takes that away first.
        ns.kubectl(&format!("delete apiservice {API_SERVICE}"))?;
        ns.remove()?;
        ns.eventually("the namespace is gone", async || {
            namespace_is_gone(&ns).await
        })
        .await
    });
}

async fn namespace_is_gone(ns: &Space<'_>) -> Result<()> {
    let namespaces: Api<Namespace> = Api::all(ns.client.clone());
    match namespaces.get_opt(&ns.name).await? {
        Some(namespace) => bail!("{} is {:?}", namespace.name_any(), namespace.status),
        None => Ok(()),
    }
}
