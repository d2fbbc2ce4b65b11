//! Nothing of ours stands in anybody's way: who is not ours never reaches us, and what works and what waits while
//! this program is down. Case AG-11, which speaks of a dead webhook that locks a cluster.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use anyhow::{Context, Result, ensure};
use dev::harness::{Harness, Options};
use serde_json::{Value, json};

use crate::objects::{Builder, all, config, pool, vm};
use crate::{Kind, Space, with_namespace, with_own};

const POOL: &str = "virtualmachinepools.vmpool.dev";
const CONFIG: &str = "virtualmachineconfigs.vmpool.dev";

/// How often this webhook was asked, by the program's own count; all of them without a name.
fn asked(health: SocketAddr, hook: &str) -> Result<u64> {
    let mut socket = TcpStream::connect(health)?;
    socket.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    socket.read_to_string(&mut text)?;
    let hook = format!("hook=\"{hook}");
    let lines = text
        .lines()
        .filter(|line| line.starts_with("vmpool_admission_reviews_total{") && line.contains(&hook));
    lines
        .map(|line| {
            let (_, count) = line.rsplit_once(' ').context("a metric has a value")?;
            Ok(count.parse::<u64>()?)
        })
        .sum()
}

/// What is done to VMs of nobody's, KubeVirt's own marks and labels that look like somebody's included.
async fn live_a_strangers_life(ns: &Space<'_>) -> Result<()> {
    let owned_by_theirs = json!([{"apiVersion": "pool.kubevirt.io/v1beta1", "kind": "VirtualMachinePool",
        "name": "web", "uid": "7c4d9f0e-0000-0000-0000-000000000000", "controller": true}]);
    let template = "/spec/template/metadata";
    let strangers = [
        vm("plain"),
        vm("labelled")
            .label("app", "x")
            .label("example.com/vmpool.dev", "x")
            .with(
                &format!("{template}/labels"),
                json!({"kubevirt.io/vm": "x"}),
            )
            .with(
                &format!("{template}/annotations"),
                json!({"example.com/x": "y"}),
            ),
        vm("protected").annotation("vmpool.dev/protected", "update"),
        vm("theirs").with("/metadata/ownerReferences", owned_by_theirs),
        vm("stamped")
            .annotation("vmpool.dev/config", "cfg")
            .annotation("vmpool.dev/stamped-from", "cfg-x"),
    ];
    for stranger in &strangers {
        let output = ns.run_with("create --dry-run=server -f -", &stranger.to_string())?;
        ensure!(output.success, "{}", output.stderr);
    }
    ns.accepts(&strangers[1])?;
    for change in [
        json!({"spec": {"runStrategy": "Always"}}),
        json!({"metadata": {"labels": {"a": "b", "vmpool.dev/pool": "web"}}}),
        json!({"metadata": {"finalizers": ["example.com/x"]}}),
    ] {
        ns.merge(Kind::Vm, "labelled", &change).await?;
    }
    ns.eventually("it runs", async || {
        let instance = ns.get(Kind::Instance, "labelled").await?;
        ensure!(instance["status"]["phase"] == "Running");
        Ok(())
    })
    .await?;
    ns.kubectl("delete vm labelled --wait=false")?;
    ns.merge(
        Kind::Vm,
        "labelled",
        &json!({"metadata": {"finalizers": null}}),
    )
    .await?;
    ns.gone(Kind::Vm, "labelled").await
}

#[test]
fn vms_that_are_not_ours_and_changes_that_are_not_of_a_spec_never_reach_us() {
    with_own(
        Options::default(),
        async |harness: &mut Harness| -> Result<()> {
            let ns = Space::new(harness, "counted").await?;
            let health = harness.health();
            ns.accepts(all(&[config("cfg"), pool("web", "cfg").replicas(1)]))?;
            ns.settled("web", &["web-1"]).await?;
            ns.condition(Kind::Config, "cfg", "Accepted", "True")
                .await?;

            // 1. The count counts: the member was asked about, and a config that names nothing of ours is.
            let before = asked(health, "Stamp")?;
            ensure!(before > 0, "a member is stamped");
            live_a_strangers_life(&ns).await?;
            ensure!(
                asked(health, "Stamp")? == before,
                "a stranger was asked about"
            );
            ns.accepts(vm("copy").label("vmpool.dev/pool", "web"))?;
            ensure!(
                asked(health, "Stamp")? > before,
                "a copy of a member is asked about"
            );

            // 2. What leaves a spec alone, and what is going.
            let before = asked(health, "")?;
            for kind in [POOL, CONFIG] {
                ns.kubectl(&format!("label {kind} --all a=b"))?;
                ns.kubectl(&format!("annotate {kind} --all a=b"))?;
                let held =
                    r#"[{"op":"add","path":"/metadata/finalizers","value":["example.com/x"]}]"#;
                let name = if kind == POOL { "web" } else { "cfg" };
                ns.kubectl(&format!("patch {kind} {name} --type=json -p {held}"))?;
            }
            for (kind, name, object) in [(POOL, "web", Kind::Pool), (CONFIG, "cfg", Kind::Config)] {
                ns.kubectl(&format!("delete {kind} {name} --wait=false"))?;
                ns.kubectl(&format!("label {kind} {name} c=d"))?;
                let freed = r#"{"metadata":{"finalizers":null}}"#;
                ns.kubectl(&format!("patch {kind} {name} --type=merge -p {freed}"))?;
                ns.gone(object, name).await?;
            }
            ensure!(
                asked(health, "")? == before,
                "a change of no spec was asked about"
            );
            Ok(())
        },
    );
}

/// What `kubectl create --dry-run=client -o yaml`, controller-gen and Go programs write.
fn generated(object: Builder) -> Builder {
    object
        .with("/metadata/creationTimestamp", Value::Null)
        .with("/status", json!({}))
}

#[test]
fn manifests_as_generators_write_them_are_applied_like_others() {
    with_namespace("generated", async |ns| {
        let manifest = all(&[
            generated(config("cfg").with("/spec/template/metadata/creationTimestamp", Value::Null)),
            generated(pool("web", "cfg").replicas(1)),
        ]);
        for apply in [
            "create -f -",
            "apply -f -",
            "apply -f -",
            "apply --server-side --force-conflicts -f -",
            "replace -f -",
        ] {
            let output = ns.run_with(apply, &manifest)?;
            ensure!(output.success, "{apply}: {}", output.stderr);
            ensure!(
                !output.stderr.contains("unknown field"),
                "{apply}: {}",
                output.stderr
            );
        }
        ns.settled("web", &["web-1"]).await?;
        // The status is the program's all the same, and again is no change.
        ns.condition(Kind::Config, "cfg", "Accepted", "True")
            .await?;
        ns.eventually("applying again changes nothing", async || {
            let generation = async |kind, name| {
                anyhow::Ok(ns.get(kind, name).await?["metadata"]["generation"].clone())
            };
            let before = (
                generation(Kind::Config, "cfg").await?,
                generation(Kind::Pool, "web").await?,
            );
            let output = ns.run_with("apply --server-side -f -", &manifest)?;
            ensure!(output.success, "{}", output.stderr);
            let after = (
                generation(Kind::Config, "cfg").await?,
                generation(Kind::Pool, "web").await?,
            );
            ensure!(before == after, "{before:?} became {after:?}");
            Ok(())
        })
        .await?;
        let revisions = ns.names(Kind::Revision).await?;
        ensure!(
            revisions.len() == 1,
            "a null made a revision: {revisions:?}"
        );
        Ok(())
    });
}

/// What becomes of a command while this program is down.
enum Then {
    Works,
    /// With these words.
    Waits(&'static str),
}

/// A command, and the manifest that it reads.
type Row = (String, Option<Builder>, Then);

/// The table: what works, and what waits.
fn table() -> Vec<Row> {
    use Then::{Waits, Works};
    const WEBHOOK: &str = "failed calling webhook";
    let patch = |what: &str, patch: Value| format!("patch {what} --type=merge -p {patch}");
    let strategy = |name: &str| json!({"spec": {"runStrategy": name}});
    let row = |command: &str, then| (command.to_owned(), None, then);
    let make = |object: Builder, then| ("apply -f -".to_owned(), Some(object), then);
    vec![
        // Other VMs: everything.
        make(vm("mine"), Works),
        (patch("vm mine", strategy("Always")), None, Works),
        (patch("vm mine", strategy("Halted")), None, Works),
        row("label vm mine a=b", Works),
        row("delete vm mine --timeout=60s", Works),
        // Members: all that their users do.
        (patch("vm web-1", strategy("Halted")), None, Works),
        (patch("vm web-1", strategy("Always")), None, Works),
        row("label vm web-1 a=b", Works),
        row("annotate vm web-1 vmpool.dev/protected=update", Works),
        (
            patch(
                "vm web-1",
                json!({"spec": {"template": {"spec": {"domain": {"memory": {"guest": "3Gi"}}}}}}),
            ),
            None,
            Works,
        ),
        row("delete vm web-2 --timeout=60s", Works),
        // Members by hand, and strangers that look like some.
        row(
            "label vm web-1 --overwrite vmpool.dev/ordinal=9",
            Waits("are the pool's to change"),
        ),
        make(vm("copy").label("vmpool.dev/pool", "web"), Waits(WEBHOOK)),
        make(
            vm("single").annotation("vmpool.dev/config", "cfg"),
            Waits(WEBHOOK),
        ),
        // Pools and configs: reads, metadata, ends; specs wait.
        row("get vpool,vconf", Works),
        row(
            "get virtualmachinepools.vmpool.dev web --subresource=scale",
            Works,
        ),
        row("label vpool web a=b", Works),
        row("label vconf cfg a=b", Works),
        make(config("cfg"), Waits(WEBHOOK)),
        make(config("new"), Waits(WEBHOOK)),
        make(pool("new", "cfg"), Waits(WEBHOOK)),
        (
            patch("vpool web", json!({"spec": {"paused": true}})),
            None,
            Waits(WEBHOOK),
        ),
        row(
            "scale virtualmachinepools.vmpool.dev web --replicas=5",
            Waits(WEBHOOK),
        ),
        row(
            "scale virtualmachinepools.vmpool.dev web --replicas=3",
            Works,
        ),
        row("delete vpool other --timeout=60s", Works),
        row("delete vconf unused --timeout=60s", Works),
        // What has nothing to do with us.
        row("create configmap mine", Works),
        row("run pod --image=x --restart=Never", Works),
        row("delete pod/pod configmap/mine --wait=false", Works),
    ]
}

#[test]
fn ag_11_with_vmpool_down_each_thing_works_or_waits_as_the_table_says_also_after_the_api_server() {
    with_own(
        Options::default(),
        async |harness: &mut Harness| -> Result<()> {
            let name = {
                let ns = Space::new(harness, "table").await?;
                ns.accepts(all(&[
                    config("cfg").running(),
                    config("unused"),
                    pool("web", "cfg").replicas(3),
                    pool("other", "cfg").replicas(1),
                ]))?;
                ns.ready("web", &["web-1", "web-2", "web-3"]).await?;
                ns.ready("other", &["other-1"]).await?;
                ns.name.clone()
            };
            harness.stop_vmpool();
            // The API server comes back to a cluster without us, and finds its way.
            harness.plane().restart_apiserver().await?;
            let ns = Space::at(harness, &name)?;
            ns.eventually(
                "the API server knows all kinds and rules again",
                async || {
                    ns.kubectl("get vm,vpool,vconf")?;
                    let said =
                        ns.run("label vm web-1 --overwrite vmpool.dev/ordinal=9 --dry-run=server")?;
                    ensure!(
                        said.stderr.contains("are the pool's to change"),
                        "{}",
                        said.stderr
                    );
                    Ok(())
                },
            )
            .await?;
            for (command, manifest, then) in table() {
                let manifest = manifest
                    .map(|object| object.to_string())
                    .unwrap_or_default();
                let output = ns.run_with(&command, &manifest)?;
                let said = output.stderr;
                match then {
                    Then::Works => {
                        ensure!(output.success, "{command} {manifest} does not work: {said}");
                    }
                    Then::Waits(words) => ensure!(
                        !output.success && said.contains(words),
                        "{command} {manifest} does not wait with {words:?}: {said}"
                    ),
                }
            }
            ns.gone(Kind::Vm, "other-1").await?;

            // And goes on where it was.
            drop(ns);
            harness.start_vmpool().await?;
            let ns = Space::at(harness, &name)?;
            let members = ns.ready("web", &["web-1", "web-2", "web-3"]).await?;
            let memory = &members[0]["spec"]["template"]["spec"]["domain"]["memory"]["guest"];
            ensure!(memory == "3Gi", "a user's edit was undone: {memory}");
            ns.kubectl(&format!("scale {POOL} web --replicas=4"))?;
            ns.ready("web", &["web-1", "web-2", "web-3", "web-4"])
                .await?;
            Ok(())
        },
    );
}
