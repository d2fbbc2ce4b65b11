//! KubeVirt's verdict: what it refuses is refused at `kubectl apply`, in its words and at our paths; what was
//! stored without it is known by its condition. Matrix rows 52 and 71.

use std::time::Duration;

use anyhow::{Result, ensure};
use axum::Router;
use axum::body::Bytes;
use axum::extract::Path;
use axum::routing::post;
use dev::harness::{Harness, Options};
use dev::proxy::{Action, Answer, Rule};
use dev::webhook_server::WebhookServer;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::{Value, json};

use crate::objects::{Builder, config, pool};
use crate::resilience::behind_proxy;
use crate::{Kind, Space, with_namespace, with_own};

/// Configs that KubeVirt refuses, where, and a part of its words.
fn refused() -> Vec<(Builder, &'static str, &'static str)> {
    let cpu = json!({"sockets": 8, "maxSockets": 4});
    vec![
        (
            config("cfg").push(
                "/spec/template/spec/domain/devices/disks",
                json!({"name": "odd", "disk": {}}),
            ),
            "spec.template.spec.domain.devices.disks[0].name",
            "'odd' not found",
        ),
        (
            config("cfg").with("/spec/template/spec/domain/cpu", cpu),
            "spec.template.spec.domain.cpu.sockets",
            "greater than the maximum sockets allowed",
        ),
        // By KubeVirt's webhook, or by its CRD where that knows all fields.
        (
            config("cfg").with("/spec/template/spec/hostnam", "typo"),
            "spec.template.spec.hostnam",
            "",
        ),
    ]
}

#[test]
fn m52_m71_what_kubevirt_refuses_is_refused_at_apply_in_its_words() {
    with_namespace("verdict", async |ns| {
        for (bad, field, words) in refused() {
            let said = ns.rejects(&bad)?;
            ensure!(said.contains(field) && said.contains(words), "{said}");
        }
        // The same for an edit; the stored config stays as it is, and in use.
        ns.accepts(config("cfg"))?;
        ns.accepts(pool("web", "cfg").replicas(1))?;
        ns.settled("web", &["web-1"]).await?;
        let (bad, field, _) = refused().remove(0);
        let said = ns.rejects(&bad)?;
        ensure!(said.contains(field), "{said}");
        ns.condition(Kind::Config, "cfg", "Accepted", "True")
            .await?;
        // Nothing is left of a trial.
        let vms = ns.names(Kind::Vm).await?;
        ensure!(vms == ["web-1"], "{vms:?}");
        Ok(())
    });
}

#[test]
fn a_quota_is_no_verdict_on_a_config() {
    with_namespace("verdict-quota", async |ns| {
        ns.kubectl("create quota none --hard=count/virtualmachines.kubevirt.io=0")?;
        // The quota holds once the controller manager has looked at it.
        ns.eventually("the quota holds", async || {
            let said = ns.accepts(config("cfg"))?;
            ns.kubectl("delete virtualmachineconfigs.vmpool.dev cfg")?;
            ensure!(
                said.contains("verdict is not known yet") && said.contains("exceeded quota"),
                "{said}"
            );
            Ok(())
        })
        .await?;
        ns.accepts(config("cfg"))?;
        let open = ns
            .condition(Kind::Config, "cfg", "Accepted", "Unknown")
            .await?;
        ensure!(
            open["message"].to_string().contains("exceeded quota"),
            "{open}"
        );
        // Asked again, and answered, once there is room.
        ns.kubectl("delete quota none")?;
        ns.condition(Kind::Config, "cfg", "Accepted", "True")
            .await?;
        Ok(())
    });
}

#[test]
fn what_was_stored_before_kubevirt_came_is_judged_when_it_comes() {
    let options = Options {
        without_standin: true,
        without_kubevirt_crds: true,
        ..Options::default()
    };
    with_own(options, async |cluster| {
        let ns = Space::new(&*cluster, "late").await?;
        let name = ns.name.clone();
        let (bad, field, _) = refused().remove(0);
        let said = ns.accepts(&bad)?;
        ensure!(
            said.contains("KubeVirt's verdict is not known yet"),
            "{said}"
        );
        ns.accepts(pool("web", "cfg").replicas(1))?;
        let open = ns
            .condition(Kind::Config, "cfg", "Accepted", "Unknown")
            .await?;
        ensure!(open["reason"] == "NotChecked", "{open}");

        // 1. KubeVirt comes, and finds it wrong.
        cluster.start_standin().await?;
        cluster.install_kubevirt().await?;
        let ns = Space {
            harness: &*cluster,
            client: cluster.client()?,
            name,
        };
        let accepted = ns
            .condition(Kind::Config, "cfg", "Accepted", "False")
            .await?;
        let message = accepted["message"].to_string();
        ensure!(message.contains(field), "{accepted}");
        ensure!(accepted["reason"] == "RefusedByKubeVirt", "{accepted}");
        // It was False before, since there was no KubeVirt.
        ns.eventually("the pool says so", async || {
            let ready = ns
                .condition(Kind::Pool, "web", "ConfigReady", "False")
                .await?;
            ensure!(ready["message"].to_string().contains(field), "{ready}");
            Ok(())
        })
        .await?;
        let told = ns.events("cfg", "RefusedByKubeVirt").await?;
        ensure!(told.len() == 1, "{told:?}");
        // A pool that comes to it now is told at once, by a trial with its own names.
        let said = ns.rejects(pool("late", "cfg").replicas(1))?;
        ensure!(
            said.contains("spec.config.name") && said.contains(field),
            "{said}"
        );

        // 2. It is put right, and the pool goes on.
        ns.accepts(config("cfg"))?;
        ns.condition(Kind::Config, "cfg", "Accepted", "True")
            .await?;
        ns.settled("web", &["web-1"]).await?;
        Ok(())
    });
}

/// Answers to a trial that say nothing of the config, and what is told of each.
fn no_verdicts() -> Vec<(&'static str, Rule, &'static str)> {
    let answers = [
        ("forbidden", Answer::forbidden("not you"), "not you"),
        ("taken", Answer::already_exists(), "already exists"),
        ("busy", Answer::too_many_requests(1), ""),
        ("broken", Answer::internal_error(), ""),
        ("away", Answer::unavailable(), ""),
        ("late", Answer::timeout(), ""),
    ];
    let mut all: Vec<_> = answers
        .into_iter()
        .map(|(name, answer, words)| (name, Rule::answer(answer), words))
        .collect();
    all.push(("closed", Rule::new(Action::DropRequest), ""));
    all.push(("lost", Rule::new(Action::LoseAnswer), ""));
    all.push(("silent", Rule::new(Action::HoldAnswer), "no answer"));
    all
}

#[test]
fn an_answer_that_says_nothing_of_the_config_stands_in_nobodys_way_and_is_asked_for_again() {
    with_own(
        behind_proxy(),
        async |cluster: &mut Harness| -> Result<()> {
            let ns = Space::new(cluster, "open").await?;
            let trials = |rule: Rule| {
                rule.method("POST")
                    .path_end("/virtualmachines")
                    .query("dryRun=All")
            };
            for (name, rule, words) in no_verdicts() {
                let rule = cluster.proxy().add(trials(rule));
                let said = ns.accepts(config(name))?;
                ensure!(rule.hits() > 0, "{name}: nobody was asked");
                ensure!(
                    said.contains("verdict is not known yet") && said.contains(words),
                    "{name}: {said}"
                );
                rule.remove();
            }
            for (name, ..) in no_verdicts() {
                ns.condition(Kind::Config, name, "Accepted", "True").await?;
            }
            Ok(())
        },
    );
}

/// A webhook that answers a dry run of a VM with a denial of this code, or not before it is too late: code 0.
fn denies() -> Router {
    let review = async |Path(code): Path<u16>, body: Bytes| {
        let review: Value = serde_json::from_slice(&body).unwrap_or_default();
        let request = &review["request"];
        if code == 0 {
            tokio::time::sleep(Duration::from_secs(8)).await;
        }
        axum::Json(json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "response": {"uid": request["uid"], "allowed": request["dryRun"] != true,
                "status": {"code": code.max(400), "message": "it says no"}},
        }))
    };
    Router::new().route("/{code}", post(review))
}

/// What becomes of a good config with this webhook on VMs of the namespace, once it is called: refused with these
/// words, or admitted with a warning that has them.
async fn judged(ns: &Space<'_>, webhook: &Value, is_verdict: bool, words: &str) -> Result<()> {
    let name = webhook["name"].as_str().unwrap_or_default();
    let webhooks: Api<ValidatingWebhookConfiguration> = Api::all(ns.client.clone());
    let mut configuration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": format!("{name}.{}", ns.name)},
        "webhooks": [{
            "name": name, "admissionReviewVersions": ["v1"], "sideEffects": "None", "timeoutSeconds": 10,
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": ns.name}},
            "rules": [{
                "apiGroups": ["kubevirt.io"], "apiVersions": ["v1"], "operations": ["CREATE"],
                "resources": ["virtualmachines"],
            }],
        }],
    });
    for (field, value) in webhook.as_object().into_iter().flatten() {
        configuration["webhooks"][0][field] = value.clone();
    }
    let configuration = serde_json::from_value(configuration)?;
    let made = webhooks
        .create(&PostParams::default(), &configuration)
        .await?;
    ns.eventually(&format!("{name} is heard: {words}"), async || {
        let said = ns.run_with("apply --dry-run=server -f -", &config("cfg").to_string())?;
        ensure!(said.stderr.contains(words), "{}", said.stderr);
        let is_open = said.stderr.contains("verdict is not known yet");
        ensure!(
            said.success != is_verdict && is_open != is_verdict,
            "{}",
            said.stderr
        );
        Ok(())
    })
    .await?;
    let name = made.metadata.name.unwrap_or_default();
    webhooks.delete(&name, &DeleteParams::default()).await?;
    Ok(())
}

#[test]
fn of_webhooks_kubevirts_denials_alone_are_verdicts() {
    with_namespace("denials", async |ns| {
        let server = WebhookServer::start("denials", denies())?;
        let (kubevirts, other) = ("trial-validator.kubevirt.io", "trial.example.com");
        let denial = |name: &str, code: u16| json!({"name": name, "clientConfig": server.client_config(&format!("/{code}"))});
        for code in [400, 403, 422] {
            judged(ns, &denial(kubevirts, code), true, "it says no").await?;
        }
        for code in [409, 429, 500, 503] {
            judged(ns, &denial(kubevirts, code), false, "it says no").await?;
        }
        for code in [400, 403, 422] {
            judged(ns, &denial(other, code), false, "it says no").await?;
        }
        // virt-api is away, or too slow for us.
        let away = json!({"name": kubevirts, "clientConfig": {"url": "https://127.0.0.1:1/"}});
        judged(ns, &away, false, "failed calling webhook").await?;
        judged(ns, &denial(kubevirts, 0), false, "no answer").await
    });
}
