//! What an installation gives: CRDs, names and columns; who may do what is in `rights`. Cases IU-02 and IU-04, matrix row
//! 65. That the files are what is generated is tested in `src/manifests`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use dev::controlplane::{self, ControlPlane};
use dev::harness::NAMESPACE;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::Api;
use serde_json::{Value, json};

use crate::objects::{all, config, pool};
use crate::space::name;
use crate::{Kind, Space, with_namespace};

const POOLS: &str = "virtualmachinepools";
const CONFIGS: &str = "virtualmachineconfigs";
const KUBEVIRTS: &str = "virtualmachinepools.pool.kubevirt.io";

fn manifests(below: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("manifests")
        .join(below)
}

#[test]
fn iu_02_crds_can_be_applied_client_side() {
    with_namespace("iu-02", async |ns| {
        // kubectl keeps a copy in an annotation, which the API server bounds in a dry run too.
        let crds = manifests("crds");
        let said = ns.kubectl(&format!("apply --dry-run=server -k {}", crds.display()))?;
        ensure!(said.lines().count() == 2, "{said}");
        Ok(())
    });
}

/// On a control plane by itself: what is installed for tests differs in where the webhooks are, and a
/// server-side apply would make one of both.
#[test]
fn the_whole_installation_is_applied_and_its_pod_runs_where_only_restricted_ones_do() -> Result<()>
{
    let runtime = tokio::runtime::Runtime::new()?;
    let plane = runtime.block_on(ControlPlane::start(controlplane::Options {
        without_controller_manager: true,
        ..controlplane::Options::default()
    }))?;
    let kubectl = plane.kubectl();
    let overlay = manifests("overlays/self-signed").display().to_string();
    let apply = [
        "apply",
        "--server-side",
        "--validate=strict",
        "-k",
        &overlay,
    ];

    // 1. All objects, twice.
    for _ in 0..2 {
        let said = kubectl.run_ok(&apply)?;
        for object in [
            "customresourcedefinition.apiextensions.k8s.io/virtualmachinepools.vmpool.dev",
            "clusterrole.rbac.authorization.k8s.io/vmpool",
            "service/vmpool",
            "deployment.apps/vmpool",
            "poddisruptionbudget.policy/vmpool",
            "apiservice.apiregistration.k8s.io/v1alpha1.subresources.vmpool.dev",
            "validatingadmissionpolicy.admissionregistration.k8s.io/members.vmpool.dev",
            "role.rbac.authorization.k8s.io/vmpool-self-signed",
            "mutatingwebhookconfiguration.admissionregistration.k8s.io/stamp.vmpool.dev",
            "validatingwebhookconfiguration.admissionregistration.k8s.io/validate.vmpool.dev",
        ] {
            let applied = format!("{object} serverside-applied");
            ensure!(
                said.lines().any(|line| line == applied),
                "no {object}: {said}"
            );
        }
    }

    // The other overlay is put together too; what is cert-manager's is not known here.
    let overlay = manifests("overlays/cert-manager").display().to_string();
    let built = kubectl.run_ok(&["kustomize", &overlay])?;
    for part in [
        "kind: Issuer",
        "kind: Certificate",
        "--tls-cert-file=/etc/vmpool/tls/tls.crt",
        "secretName: vmpool-cert-manager-tls",
        "name: vmpool-ca-publisher",
        "name: POD_UID",
    ] {
        ensure!(built.contains(part), "no {part:?}: {built}");
    }
    ensure!(
        !built.contains("- secrets"),
        "it needs no Secret of its own"
    );

    // 2. Its pod, in its namespace, where anything that is not restricted is refused.
    let deployment =
        kubectl.run_ok(&["-n", NAMESPACE, "get", "deployment", "vmpool", "-o", "json"])?;
    let deployment: Value = serde_json::from_str(&deployment)?;
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "vmpool"}});
    pod["spec"] = deployment["spec"]["template"]["spec"].clone();
    let create = ["-n", NAMESPACE, "create", "--dry-run=server", "-f", "-"];
    kubectl.run_ok_with_input(&create, &pod.to_string())?;
    pod["spec"]["containers"][0]["securityContext"] = json!({});
    let refused = kubectl.run_with_input(&create, &pod.to_string())?;
    ensure!(
        !refused.success,
        "any pod is admitted: the check proves nothing"
    );
    ensure!(refused.stderr.contains("PodSecurity"), "{}", refused.stderr);
    Ok(())
}

/// KubeVirt's own pool, as far as kubectl needs it; with KubeVirt's real CRDs it is there already.
async fn kubevirts_pools_exist(ns: &Space<'_>) -> Result<()> {
    let crds: Api<CustomResourceDefinition> = Api::all(ns.client.clone());
    if crds.get_opt(KUBEVIRTS).await?.is_some() {
        return Ok(());
    }
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": KUBEVIRTS},
        "spec": {
            "group": "pool.kubevirt.io",
            "scope": "Namespaced",
            "names": {
                "kind": "VirtualMachinePool", "plural": POOLS, "singular": "virtualmachinepool",
                "shortNames": ["vmpool", "vmpools"],
            },
            "versions": [{
                "name": "v1alpha1", "served": true, "storage": true,
                "subresources": {"status": {}, "scale": {
                    "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
                }},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
                        "properties": {"replicas": {"type": "integer"}}},
                    "status": open,
                }}},
            }],
        },
    });
    dev::crds::apply(&ns.client, &[crd]).await
}

#[test]
fn iu_04_short_and_bare_names_go_on_meaning_kubevirts_pools() {
    with_namespace("iu-04", async |ns| {
        kubevirts_pools_exist(ns).await?;
        ns.accepts(all(&[config("cfg"), pool("web", "cfg").replicas(0)]))?;
        let template = json!({
            "metadata": {"labels": {"a": "b"}},
            "spec": {"runStrategy": "Halted", "template": {"spec": {"domain": {"devices": {}}}}},
        });
        ns.accepts(json!({
            "apiVersion": "pool.kubevirt.io/v1alpha1",
            "kind": "VirtualMachinePool",
            "metadata": {"name": "web"},
            "spec": {
                "replicas": 0,
                "selector": {"matchLabels": {"a": "b"}},
                "virtualMachineTemplate": template,
            },
        }))?;

        // 1. Scripts that worked before we came hit what they hit.
        for theirs in [
            "vmpool",
            "vmpools",
            "virtualmachinepool",
            "virtualmachinepools",
        ] {
            let found = ns.kubectl(&format!("get {theirs} web -o name"))?;
            ensure!(
                found.trim() == "virtualmachinepool.pool.kubevirt.io/web",
                "{theirs}: {found}"
            );
        }
        // 2. Ours have names of their own.
        for ours in ["vpool", "virtualmachinepools.vmpool.dev"] {
            let found = ns.kubectl(&format!("get {ours} web -o name"))?;
            ensure!(
                found.trim() == "virtualmachinepool.vmpool.dev/web",
                "{ours}: {found}"
            );
        }
        for ours in ["vconf", "virtualmachineconfig", "virtualmachineconfigs"] {
            let found = ns.kubectl(&format!("get {ours} -o name"))?;
            ensure!(
                found.trim() == "virtualmachineconfig.vmpool.dev/cfg",
                "{ours}: {found}"
            );
        }
        let both = ns.kubectl("get vpools -o name")?;
        ensure!(
            both.contains("cfg") && both.contains("vmpool.dev/web"),
            "the category: {both}"
        );

        // 3. A scale and a delete too.
        ns.kubectl("scale vmpool web --replicas=5")?;
        ns.settled("web", &[]).await?;
        ns.kubectl("delete vmpool web")?;
        ns.get(Kind::Pool, "web").await?;

        // 4. Nobody had to give way.
        let crds: Api<CustomResourceDefinition> = Api::all(ns.client.clone());
        for crd in [
            KUBEVIRTS,
            "virtualmachinepools.vmpool.dev",
            "virtualmachineconfigs.vmpool.dev",
        ] {
            let crd = serde_json::to_value(crds.get(crd).await?)?;
            let accepted =
                crate::space::condition(&crd, "NamesAccepted").context("no condition")?;
            ensure!(accepted["status"] == "True", "{}: {accepted}", name(&crd));
        }
        Ok(())
    });
}

#[test]
fn m65_crds_are_structural_with_columns_scale_and_status() {
    with_namespace("m65", async |ns| {
        ns.accepts(all(&[config("cfg"), pool("web", "cfg").replicas(2)]))?;
        ns.settled("web", &["web-1", "web-2"]).await?;

        // 1. What users see.
        let cells = |line: &str| {
            line.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        let table = ns.kubectl("get vpool")?;
        let lines: Vec<_> = table.lines().map(cells).collect();
        ensure!(
            lines[0]
                == [
                    "NAME", "CONFIG", "DESIRED", "CURRENT", "READY", "UPDATED", "AGE"
                ],
            "{table}"
        );
        ensure!(
            lines[1][..6] == ["web", "cfg", "2", "2", "0", "2"],
            "{table}"
        );
        let wide = ns.kubectl("get vpool -o wide")?;
        let header = cells(wide.lines().next().unwrap_or_default());
        ensure!(
            header[7..] == ["REVISION", "STRATEGY", "PARKED", "PRESERVED"],
            "{wide}"
        );
        let table = ns.kubectl("get vconf")?;
        let lines: Vec<_> = table.lines().map(cells).collect();
        ensure!(
            lines[0] == ["NAME", "RUNSTRATEGY", "REVISION", "POOLS", "AGE"],
            "{table}"
        );
        ensure!(
            lines[1][0] == "cfg" && lines[1][1] == "Halted" && lines[1][3] == "1",
            "{table}"
        );

        // 2. The API server finds nothing wrong with the schemas.
        let crds: Api<CustomResourceDefinition> = Api::all(ns.client.clone());
        for plural in [POOLS, CONFIGS] {
            let crd = serde_json::to_value(crds.get(&format!("{plural}.vmpool.dev")).await?)?;
            let structural = crate::space::condition(&crd, "NonStructuralSchema");
            ensure!(
                structural.is_none_or(|it| it["status"] == "False"),
                "{structural:?}"
            );
            let version = &crd["spec"]["versions"][0];
            ensure!(
                version["subresources"]["status"].is_object(),
                "{plural}: no status"
            );
        }

        // 3. kubectl can explain the fields.
        let explained = ns.kubectl("explain vpool.spec.nameGeneration.vmPrefix")?;
        ensure!(explained.contains("vmPrefix"), "{explained}");

        // 4. Status is nobody's to write with the object.
        let status = json!({"status": {"replicas": 77}});
        ns.merge(Kind::Pool, "web", &status).await?;
        let stored = ns.get(Kind::Pool, "web").await?;
        ensure!(stored["status"]["replicas"] == 2, "{stored}");
        Ok(())
    });
}
