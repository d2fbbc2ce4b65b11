//! VMs that leave their pool by the aggregated API. Cases DT-01, DT-02, DT-07, matrix rows 96 and 100.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use dev::harness::{Harness, Options};
use dev::proxy::{Action, Rule};
use serde_json::{Value, json};

use crate::curl::{Answer, Curl, pool_path, robot};
use crate::objects::{all, config, pool};
use crate::space::{controller, uid};
use crate::{Kind, Space, with_namespace, with_own};

/// Somebody who may detach, with curl and a bearer token.
pub(crate) async fn detacher(ns: &Space<'_>) -> Result<Curl> {
    let resource = "virtualmachinepools.subresources.vmpool.dev/detach";
    ns.kubectl(&format!(
        "create role detacher --verb=create --resource={resource}"
    ))?;
    let token = robot(ns, "detacher", Some("detacher"))?;
    let curl = Curl::to_api_server(ns).token(&token);
    let nothing = json!({"virtualMachines": []});
    ns.eventually("the role is seen", async || {
        let answer = curl.send("POST", &pool_path(ns, "none", "/detach"), Some(&nothing))?;
        ensure!(answer.code != 403, "{answer:?}");
        Ok(())
    })
    .await?;
    Ok(curl)
}

fn detach(ns: &Space<'_>, curl: &Curl, body: &Value) -> Result<Answer> {
    curl.send("POST", &pool_path(ns, "web", "/detach"), Some(body))
}

pub(crate) fn verdict(answer: &Answer) -> &str {
    answer.body["virtualMachines"][0]["verdict"]
        .as_str()
        .unwrap_or_default()
}

/// Keys of ours on an object and its template.
pub(crate) fn marks(object: &Value) -> Vec<String> {
    let places = [
        "/metadata/labels",
        "/metadata/annotations",
        "/spec/template/metadata/labels",
        "/spec/template/metadata/annotations",
    ];
    let maps = places
        .iter()
        .filter_map(|at| object.pointer(at)?.as_object());
    let keys = maps.flat_map(|map| map.keys().cloned());
    keys.filter(|key| key.starts_with("vmpool.dev/") && key != "vmpool.dev/detached-from")
        .collect()
}

pub(crate) async fn intent(ns: &Space<'_>) -> Result<Value> {
    let pool = ns.get(Kind::Pool, "web").await?;
    Ok(pool["metadata"]["annotations"]["vmpool.dev/intent"].clone())
}

#[test]
fn dt_01_m100_a_detached_vm_works_on_alone_is_replaced_and_can_be_deleted() {
    with_namespace("dt-01", async |ns| {
        ns.accepts(all(&[
            config("cfg").running().disk("root"),
            pool("web", "cfg").replicas(3),
        ]))?;
        ns.ready("web", &["web-1", "web-2", "web-3"]).await?;
        let curl = detacher(ns).await?;
        let instance = uid(&ns.get(Kind::Instance, "web-2").await?).to_owned();
        let selector = format!(
            "vmpool.dev/pool-uid={}",
            uid(&ns.get(Kind::Pool, "web").await?)
        );

        // 1. It leaves, runs on under the same instance, keeps its disk, and is nobody's.
        let body = json!({"virtualMachines": ["web-2"], "reason": "evidence"});
        let answer = detach(ns, &curl, &body)?;
        ensure!(
            answer.code == 200 && verdict(&answer) == "Done",
            "{answer:?}"
        );
        let vm = ns.get(Kind::Vm, "web-2").await?;
        ensure!(controller(&vm).is_none() && marks(&vm).is_empty(), "{vm}");
        ensure!(vm["metadata"]["annotations"]["vmpool.dev/detached-from"] == "web");
        let vmi = ns.get(Kind::Instance, "web-2").await?;
        ensure!(uid(&vmi) == instance && vmi["status"]["phase"] == "Running");
        ensure!(marks(&vmi).is_empty(), "{:?}", marks(&vmi));
        let pods = ns.kubectl(&format!("get pods -l {selector} -o name"))?;
        ensure!(
            !pods.contains("web-2"),
            "it still feeds the autoscaler: {pods}"
        );
        ns.get(Kind::DataVolume, "web-2-root").await?;

        // 2. The next free number takes its place; its own stays taken.
        ns.ready("web", &["web-1", "web-3", "web-4"]).await?;
        ns.eventually("the entry is off the pool", async || {
            ensure!(intent(ns).await?.is_null());
            Ok(())
        })
        .await?;
        ns.eventually("an event tells of it", async || {
            let told = ns.events("web", "Detached").await?;
            ensure!(
                told.len() == 1 && told[0]["note"] == "detached VM web-2: evidence",
                "{told:?}"
            );
            Ok(())
        })
        .await?;

        // 3. Again: it is no member any more, and nothing changes.
        let again = detach(ns, &curl, &body)?;
        again.refused(409, "Conflict")?;
        ns.settled("web", &["web-1", "web-3", "web-4"]).await?;

        // 4. A pool of none leaves it alone; its user deletes it, and it goes with its disk.
        ns.kubectl("scale vpool web --replicas=0")?;
        ns.settled("web", &[]).await?;
        ensure!(uid(&ns.get(Kind::Instance, "web-2").await?) == instance);
        ns.kubectl("delete vm web-2 --timeout=60s")?;
        ns.gone(Kind::DataVolume, "web-2-root").await?;

        // 5. Its number is free again (NR-09); and the way that kubectl has to both, as README.md shows it.
        ns.kubectl("scale vpool web --replicas=3")?;
        ns.settled("web", &["web-1", "web-2", "web-3"]).await?;
        let body = json!({"virtualMachines": ["web-3"], "replace": false});
        let path = pool_path(ns, "web", "/detach");
        let answer = ns.run_with(&format!("create --raw {path} -f -"), &body.to_string())?;
        ensure!(answer.success, "{}", answer.stderr);
        ensure!(
            answer.stdout.contains(r#""replicas":2"#),
            "{}",
            answer.stdout
        );
        ns.settled("web", &["web-1", "web-2"]).await?;
        let path = pool_path(ns, "web", "/scale");
        let mut scale: Value = serde_json::from_str(&ns.kubectl(&format!("get --raw {path}"))?)?;
        scale["spec"]["replicas"] = 1.into();
        let answer = ns.run_with(&format!("replace --raw {path} -f -"), &scale.to_string())?;
        ensure!(answer.success, "{}", answer.stderr);
        ns.eventually("one member", async || {
            ensure!(ns.member_names("web").await?.len() == 1);
            Ok(())
        })
        .await
    });
}

#[test]
fn dt_02_m101_a_vm_with_other_finalizers_leaves_and_keeps_them() {
    with_namespace("dt-02", async |ns| {
        ns.accepts(all(&[config("cfg"), pool("web", "cfg").replicas(2)]))?;
        ns.settled("web", &["web-1", "web-2"]).await?;
        let held = json!({"metadata": {"finalizers": ["kubevirt.io/virtualMachineControllerFinalize", "example.com/\"held\""]}});
        let held = if ns.merge(Kind::Vm, "web-1", &held).await.is_ok() {
            held
        } else {
            let held = json!({"metadata": {"finalizers": ["kubevirt.io/virtualMachineControllerFinalize", "example.com/held"]}});
            ns.merge(Kind::Vm, "web-1", &held).await?;
            held
        };
        let curl = detacher(ns).await?;
        // Without a replacement: the pool shrinks by it, and nobody else goes.
        let body = json!({"virtualMachines": ["web-1"], "replace": false});
        let answer = detach(ns, &curl, &body)?;
        ensure!(
            answer.code == 200 && answer.body["replicas"] == 1,
            "{answer:?}"
        );
        ns.settled("web", &["web-2"]).await?;
        let vm = ns.get(Kind::Vm, "web-1").await?;
        ensure!(
            vm["metadata"]["finalizers"] == held["metadata"]["finalizers"],
            "{vm}"
        );
        ensure!(controller(&vm).is_none() && marks(&vm).is_empty(), "{vm}");
        ns.kubectl("delete vm web-1 --wait=false")?;
        ns.merge(
            Kind::Vm,
            "web-1",
            &json!({"metadata": {"finalizers": null}}),
        )
        .await?;
        ns.gone(Kind::Vm, "web-1").await
    });
}

#[test]
fn dt_07_m96_scaled_to_nothing_in_the_same_second_over_a_stale_cache_the_detached_survives() {
    let options = Options {
        behind_proxy: true,
        ..Options::default()
    };
    with_own(options, async |harness: &mut Harness| -> Result<()> {
        let ns = Space::new(harness, "dt07").await?;
        ns.accepts(all(&[
            config("cfg").running(),
            pool("web", "cfg").replicas(3),
        ]))?;
        ns.ready("web", &["web-1", "web-2", "web-3"]).await?;
        let curl = detacher(&ns).await?;
        let before = uid(&ns.get(Kind::Vm, "web-2").await?).to_owned();
        // The watch of VMs that runs is cut, and the next one tells nothing.
        let vms = "/apis/kubevirt.io/v1/virtualmachines";
        let held = ns
            .harness
            .proxy()
            .add(Rule::new(Action::HoldWatch { after: 0 }).path_end(vms));
        ns.harness.plane().restart_apiserver().await?;
        ns.eventually("the watch is held", async || {
            ensure!(held.hits() >= 1);
            Ok(())
        })
        .await?;
        ns.eventually("the aggregated API is reached again", async || {
            ns.kubectl(&format!("get --raw {}", pool_path(&ns, "web", "/scale")))
                .map(drop)
        })
        .await?;

        // Somebody takes web-3 out, which the cache doesn't show either: only what deletes go by can save it.
        ns.merge(
            Kind::Vm,
            "web-3",
            &json!({"metadata": {"ownerReferences": null}}),
        )
        .await?;

        // Both within the same second; the answer waits for the cache, and then says so.
        let body = json!({"virtualMachines": ["web-2"]});
        let answer = std::thread::scope(|scope| -> Result<Answer> {
            let detaching = scope.spawn(|| raw_detach(&ns, &curl, &body));
            std::thread::sleep(Duration::from_millis(200));
            ns.kubectl("scale virtualmachinepools.vmpool.dev web --replicas=0")?;
            detaching.join().ok().context("the request panicked")?
        })?;
        ensure!(
            answer.code == 202 && verdict(&answer) == "Recorded",
            "{answer:?}"
        );
        ns.stays("web-2 is there", Duration::from_secs(3), async || {
            let vm = ns.get(Kind::Vm, "web-2").await?;
            ensure!(
                uid(&vm) == before && vm["metadata"]["deletionTimestamp"].is_null(),
                "{vm}"
            );
            Ok(())
        })
        .await?;
        ensure!(
            !intent(&ns).await?.is_null(),
            "it was cleared on what the cache doesn't show"
        );

        held.remove();
        ns.settled("web", &[]).await?;
        let vm = ns.get(Kind::Vm, "web-2").await?;
        ensure!(uid(&vm) == before && controller(&vm).is_none(), "{vm}");
        let theirs = ns.get(Kind::Vm, "web-3").await?;
        ensure!(
            theirs["metadata"]["deletionTimestamp"].is_null(),
            "{theirs}"
        );
        ns.eventually("the entry is off the pool", async || {
            ensure!(intent(&ns).await?.is_null());
            Ok(())
        })
        .await
    });
}

/// From a thread that is none of the runtime's.
fn raw_detach(ns: &Space<'_>, curl: &Curl, body: &Value) -> Result<Answer> {
    detach(ns, curl, body)
}

#[test]
fn a_detach_that_was_recorded_is_carried_out_by_the_next_leader() {
    with_own(
        Options::default(),
        async |harness: &mut Harness| -> Result<()> {
            let ns = Space::new(harness, "next").await?;
            ns.accepts(all(&[config("cfg"), pool("web", "cfg").replicas(2)]))?;
            ns.settled("web", &["web-1", "web-2"]).await?;
            let curl = detacher(&ns).await?;
            // A paused pool: it is recorded, and waits.
            ns.kubectl(r#"patch vpool web --type=merge -p {"spec":{"paused":true}}"#)?;
            ns.condition(Kind::Pool, "web", "Paused", "True").await?;
            let body = json!({"virtualMachines": ["web-1"], "replace": false});
            let answer = detach(&ns, &curl, &body)?;
            ensure!(
                answer.code == 202 && verdict(&answer) == "Recorded",
                "{answer:?}"
            );
            ensure!(ns.member_names("web").await? == ["web-1", "web-2"]);
            harness.restart_vmpool().await?;
            ns.kubectl(r#"patch vpool web --type=merge -p {"spec":{"paused":false}}"#)?;
            ns.settled("web", &["web-2"]).await?;
            let vm = ns.get(Kind::Vm, "web-1").await?;
            ensure!(controller(&vm).is_none() && marks(&vm).is_empty(), "{vm}");
            Ok(())
        },
    );
}
