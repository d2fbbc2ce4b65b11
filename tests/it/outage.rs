//! While this program is down. Cases AG-03 and AG-12, matrix row 130.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use dev::harness::{Harness, Options};
use dev::supervisor::Signal;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::api::Api;
use vmpool::api::API_SERVICE;

use crate::curl::{Curl, pool_path, robot};
use crate::objects::{all, config, pool};
use crate::space::uid;
use crate::{Kind, Space, with_own};

async fn available(ns: &Space<'_>) -> Result<String> {
    let services: Api<APIService> = Api::all(ns.client.clone());
    let service = services.get(API_SERVICE).await?;
    let conditions = service.status.and_then(|status| status.conditions);
    let found = conditions.unwrap_or_default().into_iter();
    let found = found.filter(|condition| condition.type_ == "Available");
    Ok(found.map(|condition| condition.status).collect())
}

#[test]
fn ag_03_ag_12_an_outage_holds_up_ends_of_namespaces_and_nothing_of_the_crds_and_passes() {
    with_own(
        Options::default(),
        async |harness: &mut Harness| -> Result<()> {
            let name = {
                let ns = Space::new(harness, "web").await?;
                ns.accepts(all(&[
                    config("cfg").running(),
                    pool("web", "cfg").replicas(2),
                ]))?;
                ns.ready("web", &["web-1", "web-2"]).await?;
                ns.name.clone()
            };
            let unrelated = harness.namespace("unrelated").await?;
            harness.stop_vmpool();
            let ns = Space::at(harness, &name)?;

            // 1. What a CRD can do is the CRD's: reads, the scale included, go on.
            let pools = "virtualmachinepools.vmpool.dev";
            ns.kubectl(&format!("get {pools} web"))?;
            ns.kubectl(&format!("get {pools} web --subresource=scale"))?;
            ns.kubectl("get vpool,vconf,vpools")?;
            let said = ns.run("get vm,vmi")?;
            ensure!(
                said.success && !said.stderr.contains("subresources"),
                "{}",
                said.stderr
            );

            // 2. The end of any namespace waits, and says for what.
            ns.eventually("the APIService is known to be down", async || {
                ensure!(available(&ns).await? == "False");
                Ok(())
            })
            .await?;
            let said =
                ns.refused("scale virtualmachinepools.subresources.vmpool.dev web --replicas=1")?;
            ensure!(!said.contains("panic"), "{said}");
            ns.kubectl(&format!("delete namespace {unrelated} --wait=false"))?;
            let namespaces: Api<Namespace> = Api::all(ns.client.clone());
            ns.eventually("it says what it waits for", async || {
                let namespace = namespaces.get(&unrelated).await?;
                let conditions = namespace.status.and_then(|status| status.conditions);
                let conditions = conditions.unwrap_or_default();
                let of = |kind: &str| conditions.iter().find(|condition| condition.type_ == kind);
                let failure =
                    of("NamespaceDeletionDiscoveryFailure").context("no such condition")?;
                ensure!(failure.status == "True", "{failure:?}");
                let message = failure.message.clone().unwrap_or_default();
                ensure!(message.contains("subresources.vmpool.dev"), "{message}");
                Ok(())
            })
            .await?;

            // 3. It passes with the outage.
            drop(ns);
            harness.start_vmpool().await?;
            let ns = Space::at(harness, &name)?;
            let namespaces: Api<Namespace> = Api::all(ns.client.clone());
            ns.eventually("the namespace is gone", async || {
                ensure!(namespaces.get_opt(&unrelated).await?.is_none());
                Ok(())
            })
            .await?;
            ns.kubectl("scale virtualmachinepools.subresources.vmpool.dev web --replicas=3")?;
            ns.ready("web", &["web-1", "web-2", "web-3"]).await?;
            Ok(())
        },
    );
}

#[test]
fn m130_a_restart_of_the_aggregated_api_is_no_gap_of_404s_and_costs_no_member() {
    with_own(
        Options::default(),
        async |harness: &mut Harness| -> Result<()> {
            let ns = Space::new(harness, "m130").await?;
            ns.accepts(all(&[
                config("cfg").running(),
                pool("web", "cfg").replicas(3),
            ]))?;
            let names = ["web-1", "web-2", "web-3"];
            let before = ns.ready("web", &names).await?;
            ns.kubectl("create role reader --verb=get --resource=virtualmachinepools.subresources.vmpool.dev,virtualmachinepools.subresources.vmpool.dev/scale")?;
            let token = robot(&ns, "reader", Some("reader"))?;
            let curl = Curl::to_program(&ns).token(&token);
            let path = pool_path(&ns, "web", "/scale");
            ns.eventually("the role is seen", async || {
                ensure!(curl.get(&path)?.code == 200);
                Ok(())
            })
            .await?;
            // Caches that take their time: killed at once, and asked all the while.
            for signal in [Signal::KILL, Signal::TERM] {
                let restarts = harness.vmpool().restarts();
                harness.vmpool().kill(signal);
                let mut answered = 0;
                while answered < 20 || harness.vmpool().restarts() == restarts {
                    // Nobody listens for a moment.
                    if let Ok(answer) = curl.get(&path) {
                        let fits = match answer.code {
                            200 => answer.body["spec"]["replicas"] == 3,
                            503 => answer.body["reason"] == "ServiceUnavailable",
                            _ => false,
                        };
                        ensure!(fits, "{answer:?}");
                        answered += i32::from(answer.code == 200);
                    }
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
            let after = ns.ready("web", &names).await?;
            let uids = |members: &[serde_json::Value]| -> Vec<String> {
                members.iter().map(|vm| uid(vm).to_owned()).collect()
            };
            ensure!(uids(&before) == uids(&after));
            ensure!(ns.names(Kind::Instance).await? == names);
            Ok(())
        },
    );
}
