//! Stamping among the webhooks of others: one before ours that hands out MAC addresses as kubemacpool does, one
//! behind it that fills in what KubeVirt does, and breaks what we stamped. And copies of members, which are none.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, ensure};
use axum::Router;
use axum::body::Bytes;
use axum::routing::post;
use dev::webhook_server::WebhookServer;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::{Value, json};

use crate::objects::{Builder, config, pool, vm};
use crate::space::{controller, name, uid};
use crate::{Kind, Space, with_namespace};

const INTERFACES: &str = "/spec/template/spec/domain/devices/interfaces";

/// Gives each interface without a MAC address one that nobody has had.
fn hand_out_macs(vm: &mut Value, next: &AtomicU32) {
    let interfaces = vm.pointer_mut(INTERFACES).and_then(Value::as_array_mut);
    for interface in interfaces.into_iter().flatten() {
        if interface["macAddress"].is_null() {
            let number = next.fetch_add(1, Ordering::Relaxed);
            interface["macAddress"] = json!(format!(
                "02:00:00:00:{:02x}:{:02x}",
                number / 256,
                number % 256
            ));
        }
    }
    vm["metadata"]["annotations"]["example.com/before"] = json!("yes");
}

/// Fills in, and breaks what is ours where it has not been there yet.
fn fill_in(vm: &mut Value, next: &AtomicU32) {
    let spec = &mut vm["spec"]["template"]["spec"];
    if spec["domain"]["firmware"]["uuid"].is_null() {
        let number = next.fetch_add(1, Ordering::Relaxed);
        spec["domain"]["firmware"]["uuid"] = json!(format!("5d307ca9-b3ef-428c-8861-{number:012}"));
        spec["domain"]["machine"]["type"] = json!("q35");
        spec["tolerations"] = json!([{"key": "added", "operator": "Exists"}]);
        let is_member = vm["metadata"]["labels"]["vmpool.dev/ordinal"].is_string();
        if is_member {
            vm["metadata"]["labels"]["vmpool.dev/ordinal"] = json!("99");
            vm["spec"]["template"]["metadata"]["labels"]["vmpool.dev/pool"] = json!("broken");
        }
        vm["metadata"]["annotations"]["example.com/after"] = json!("yes");
    }
}

/// A webhook that changes VMs.
fn mutator(change: fn(&mut Value, &AtomicU32)) -> Router {
    let next = Arc::new(AtomicU32::new(1));
    let review = move |body: Bytes| {
        let next = Arc::clone(&next);
        async move {
            let review: Value = serde_json::from_slice(&body).unwrap_or_default();
            let request = &review["request"];
            let mut vm = request["object"].clone();
            change(&mut vm, &next);
            let patch = json_patch::diff(&request["object"], &vm);
            let patch = k8s_openapi::ByteString(serde_json::to_vec(&patch).unwrap_or_default());
            axum::Json(json!({
                "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
                "response": {"uid": request["uid"], "allowed": true, "patchType": "JSONPatch", "patch": patch},
            }))
        }
    };
    Router::new().route("/mutate", post(review))
}

/// A played mutating webhook that is asked about VMs of one namespace.
struct Other {
    server: WebhookServer,
    api: Api<MutatingWebhookConfiguration>,
    name: String,
}

impl Other {
    async fn start(ns: &Space<'_>, name: &str, change: fn(&mut Value, &AtomicU32)) -> Result<Self> {
        let other = Self {
            server: WebhookServer::start(name, mutator(change))?,
            api: Api::all(ns.client.clone()),
            name: format!("{name}.{}.example.com", ns.name),
        };
        let configuration = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": other.name},
            "webhooks": [{
                "name": other.name, "admissionReviewVersions": ["v1"], "sideEffects": "None",
                "clientConfig": other.server.client_config("/mutate"), "failurePolicy": "Fail",
                "reinvocationPolicy": "IfNeeded",
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": ns.name}},
                "rules": [{
                    "apiGroups": ["kubevirt.io"], "apiVersions": ["v1"], "operations": ["CREATE"],
                    "resources": ["virtualmachines"],
                }],
            }],
        });
        let configuration = serde_json::from_value(configuration)?;
        other
            .api
            .create(&PostParams::default(), &configuration)
            .await?;
        Ok(other)
    }

    async fn end(self) -> Result<()> {
        self.api
            .delete(&self.name, &DeleteParams::default())
            .await?;
        drop(self.server);
        Ok(())
    }
}

/// Two of them, one on each side of ours, in effect.
async fn others(ns: &Space<'_>) -> Result<[Other; 2]> {
    let others = [
        Other::start(ns, "kubemacpool", hand_out_macs).await?,
        Other::start(ns, "virt-api", fill_in).await?,
    ];
    ns.eventually("they are called", async || {
        let said = ns.run_with(
            "create --dry-run=server -o json -f -",
            &vm("probe").to_string(),
        )?;
        ensure!(said.success, "{}", said.stderr);
        let probe: Value = serde_json::from_str(&said.stdout)?;
        let annotations = &probe["metadata"]["annotations"];
        ensure!(
            annotations["example.com/before"] == "yes" && annotations["example.com/after"] == "yes"
        );
        Ok(())
    })
    .await?;
    Ok(others)
}

/// A config with an interface, a disk and a secret.
fn connected() -> Builder {
    config("cfg")
        .running()
        .disk("root")
        .volume(
            "init",
            json!({"cloudInitNoCloud": {"secretRef": {"name": "init"}}}),
        )
        .push(
            "/spec/template/spec/networks",
            json!({"name": "default", "pod": {}}),
        )
        .push(INTERFACES, json!({"name": "default", "masquerade": {}}))
}

/// What the others gave a VM: it is all there.
fn given(vm: &Value) -> Result<[String; 2]> {
    let of = |pointer: &str| -> Result<String> {
        let found = vm.pointer(pointer).and_then(Value::as_str);
        Ok(found
            .with_context(|| format!("no {pointer}: {vm}"))?
            .to_owned())
    };
    ensure!(
        vm["spec"]["template"]["spec"]["domain"]["machine"]["type"] == "q35",
        "{vm}"
    );
    let tolerations = &vm["spec"]["template"]["spec"]["tolerations"];
    ensure!(tolerations[0]["key"] == "added", "{vm}");
    for side in ["before", "after"] {
        ensure!(
            vm["metadata"]["annotations"][format!("example.com/{side}")] == "yes",
            "{vm}"
        );
    }
    Ok([
        of(&format!("{INTERFACES}/0/macAddress"))?,
        of("/spec/template/spec/domain/firmware/uuid")?,
    ])
}

#[test]
fn what_other_webhooks_add_before_and_after_ours_survives_the_stamp_and_every_update() {
    with_namespace("webhooks", async |ns| {
        let others = others(ns).await?;
        ns.accepts(connected())?;
        let names = ["web-1", "web-2", "web-3"];
        // Instances wait for theirs.
        for number in 1..=3 {
            ns.kubectl(&format!("create secret generic init-{number}"))?;
        }
        ns.accepts(
            pool("web", "cfg")
                .replicas(3)
                .with("/spec/nameGeneration/appendPostfixToSecretReferences", true)
                .with("/spec/maxUnavailable", "100%"),
        )?;
        // 1. Everybody has what the others gave him, none of it twice, and is the stamp all the same.
        let members = ns.ready("web", &names).await?;
        let mut before = Vec::new();
        for (index, member) in members.iter().enumerate() {
            let number = (index + 1).to_string();
            ensure!(
                member["metadata"]["labels"]["vmpool.dev/ordinal"] == number,
                "{}",
                member["metadata"]
            );
            let template = &member["spec"]["template"];
            ensure!(
                template["metadata"]["labels"]["vmpool.dev/pool"] == "web",
                "{template}"
            );
            let secret = &template["spec"]["volumes"][1]["cloudInitNoCloud"]["secretRef"]["name"];
            ensure!(*secret == format!("init-{number}"), "{secret}");
            before.push(given(member)?);
        }
        let distinct: BTreeSet<&String> = before.iter().flatten().collect();
        ensure!(distinct.len() == 6, "{before:?}");

        // 2. A rollout brings what the config changed, in the same lists too, and keeps all of that.
        let changed = connected()
            .with("/spec/template/spec/domain/memory/guest", "3Gi")
            .push(
                "/spec/template/spec/networks",
                json!({"name": "second", "multus": {"networkName": "x"}}),
            )
            .push(INTERFACES, json!({"name": "second", "bridge": {}}));
        ns.accepts(changed)?;
        let members = ns
            .eventually("the update is there", async || {
                let pool = ns.get(Kind::Pool, "web").await?;
                let status = &pool["status"];
                ensure!(status["observedGeneration"] == pool["metadata"]["generation"]);
                ensure!(
                    status["currentReplicas"] == 3 && status["updatedReplicas"] == 3,
                    "{status}"
                );
                let members = ns.members("web").await?;
                for member in &members {
                    let domain = &member["spec"]["template"]["spec"]["domain"];
                    ensure!(domain["memory"]["guest"] == "3Gi", "{domain}");
                }
                Ok(members)
            })
            .await?;
        for (member, before) in members.iter().zip(&before) {
            ensure!(
                given(member)? == *before,
                "{} became {member}",
                before.join(", ")
            );
            let second = &member.pointer(INTERFACES).context("interfaces")?[1];
            ensure!(second["name"] == "second", "{second}");
        }

        // 3. A single VM from the config gets the same.
        ns.accepts(
            vm("single")
                .with("/spec", json!({}))
                .annotation("vmpool.dev/config", "cfg"),
        )?;
        let single = given(&ns.get(Kind::Vm, "single").await?)?;
        ensure!(
            single
                .iter()
                .all(|given| !before.iter().flatten().any(|other| other == given))
        );
        for other in others {
            other.end().await?;
        }
        Ok(())
    });
}

/// What makes a member, on a VM or its template.
fn marks(vm: &Value) -> Vec<String> {
    let metadata = ["/metadata", "/spec/template/metadata"];
    let maps = metadata
        .iter()
        .flat_map(|at| ["labels", "annotations"].map(|map| format!("{at}/{map}")));
    maps.filter_map(|map| vm.pointer(&map)?.as_object())
        .flat_map(|map| map.keys())
        .filter(|key| key.starts_with("vmpool.dev/"))
        .cloned()
        .collect()
}

/// As `kubectl get -o yaml`, an editor and `kubectl create` do it, or a backup that restores to another name.
#[test]
fn copies_of_members_are_plain_vms_with_a_warning_whoever_makes_them() {
    with_namespace("copies", async |ns| {
        ns.accepts(config("cfg").disk("root"))?;
        ns.accepts(pool("web", "cfg").replicas(1))?;
        let member = ns.settled("web", &["web-1"]).await?.remove(0);
        ns.kubectl("create role vms --verb=* --resource=virtualmachines.kubevirt.io")?;
        // As KubeVirt's clone and restore controllers write it.
        let account = "kubevirt:kubevirt-controller";
        ns.kubectl(&format!(
            "create rolebinding vms --role=vms --serviceaccount={account}"
        ))?;
        let account = format!("--as=system:serviceaccount:{account}");
        let with_name = |name: &str| {
            let mut copy = member.clone();
            copy["metadata"]["name"] = json!(name);
            for field in [
                "uid",
                "resourceVersion",
                "creationTimestamp",
                "generation",
                "managedFields",
            ] {
                copy["metadata"]
                    .as_object_mut()
                    .map(|metadata| metadata.remove(field));
            }
            copy.as_object_mut().map(|vm| vm.remove("status"));
            copy
        };
        // The next number's name too: it is skipped then, and not taken for the member.
        for (copy, by) in [("copy", ""), ("web-2", ""), ("clone", account.as_str())] {
            let said = ns
                .eventually("the role is seen", async || {
                    let output =
                        ns.run_with(&format!("create {by} -f -"), &with_name(copy).to_string())?;
                    ensure!(output.success, "{}", output.stderr);
                    Ok(output.stderr)
                })
                .await?;
            ensure!(
                said.contains("no member of a pool") && said.contains("vmpool.dev/pool"),
                "{said}"
            );
            let found = ns.get(Kind::Vm, copy).await?;
            ensure!(
                marks(&found).is_empty() && controller(&found).is_none(),
                "{found}"
            );
            ensure!(
                found["spec"]["dataVolumeTemplates"] == member["spec"]["dataVolumeTemplates"],
                "{found}"
            );
        }
        ns.kubectl("scale vpool web --replicas=2")?;
        let members = ns.settled("web", &["web-1", "web-3"]).await?;
        ensure!(uid(&members[0]) == uid(&member));
        ns.kubectl("delete vpool web --timeout=60s")?;
        ns.gone(Kind::Vm, "web-3").await?;
        let left = ns.list(Kind::Vm).await?;
        ensure!(
            left.iter().map(name).eq(["clone", "copy", "web-2"]),
            "{left:?}"
        );
        Ok(())
    });
}
