//! A config's spec is opaque: whatever is written comes back, and reaches the VM. Whatever is missing is no
//! reason to break. Cases VD-04 and VD-06.

use anyhow::{Context, Result, ensure};
use dev::harness::Options;
use kube::api::{Api, DynamicObject, PostParams};
use serde_json::{Map, Value, json};
use vmpool::api::VirtualMachineConfig;

use crate::objects::{Builder, all, config, pool};
use crate::{Kind, Space, with_namespace, with_own};

/// Labels, annotations and fields that no schema knows at every depth, and numbers of every form.
fn full() -> Builder {
    let metadata = |name: &str| {
        json!({
            "name": name,
            "labels": {"app": "w", "example.com/tier": "", "a.b/c": "1"},
            "annotations": {"example.com/note": "a\nb \"c\" ü", "empty": ""},
        })
    };
    let mut template = metadata("unused");
    template.as_object_mut().expect("an object").remove("name");
    config("cfg")
        .disk("root")
        .with("/spec/template/metadata", template)
        .push("/spec/dataVolumeTemplates", json!({
            "metadata": metadata("data"),
            "spec": {
                "storage": {"resources": {"requests": {"storage": "1Gi"}}},
                "source": {"blank": {}},
            },
        }))
        .with("/spec/futureField", json!({
            "metadata": metadata("deep"),
            "list": [{"metadata": metadata("deeper")}, [], {}, [[1], {"x": []}]],
            "emptyObject": {}, "emptyList": [], "emptyString": "", "false": false,
        }))
        .with("/spec/template/futureField", json!([{"metadata": metadata("deep")}]))
        .with("/spec/template/spec/futureField", json!({"metadata": metadata("deep"), "kind": "X"}))
        .with("/spec/template/spec/domain/futureField", json!({
            "integers": [0, -1, 1, 2_147_483_648_u64, 9_007_199_254_740_993_u64, i64::MAX, i64::MIN],
            "fractions": [0.1, -2.5, 1e-7, 1.7976931348623157e308, 0.30000000000000004],
        }))
}

fn spec_of(object: &Value) -> Result<&Value> {
    object.get("spec").context("no spec")
}

fn same(what: &str, found: &Value, wanted: &Value) -> Result<()> {
    ensure!(
        found == wanted,
        "{what}: {}",
        first_difference(found, wanted, "spec")
    );
    Ok(())
}

/// Where two values part, for whoever reads the failure.
fn first_difference(found: &Value, wanted: &Value, path: &str) -> String {
    match (found, wanted) {
        (Value::Object(a), Value::Object(b)) => {
            let keys = a.keys().chain(b.keys());
            let different = keys.clone().find(|key| a.get(*key) != b.get(*key));
            let key = different.map_or("", String::as_str);
            let of = |map: &Map<String, Value>| map.get(key).cloned().unwrap_or_default();
            first_difference(&of(a), &of(b), &format!("{path}.{key}"))
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            let index = (0..a.len())
                .find(|&index| a[index] != b[index])
                .unwrap_or_default();
            first_difference(&a[index], &b[index], &format!("{path}[{index}]"))
        }
        _ => format!("{path} is {found} instead of {wanted}"),
    }
}

/// Reads the config with kubectl and with the Rust type, and compares.
async fn reads_back(ns: &Space<'_>, wanted: &Value) -> Result<()> {
    let text = ns.kubectl("get virtualmachineconfigs.vmpool.dev cfg -o json")?;
    same("kubectl", spec_of(&serde_json::from_str(&text)?)?, wanted)?;
    let api: Api<VirtualMachineConfig> = Api::namespaced(ns.client.clone(), &ns.name);
    let typed = api.get("cfg").await?;
    same("the Rust type", &serde_json::to_value(&typed.spec)?, wanted)
}

/// Without KubeVirt: fields that it doesn't know would be its to refuse, and nobody else's.
#[test]
fn vd_06_a_config_comes_back_as_it_was_written_through_kubectl_and_the_rust_type() {
    let options = Options {
        without_standin: true,
        without_kubevirt_crds: true,
        without_cdi_crds: true,
        ..Options::default()
    };
    with_own(options, async |cluster| {
        let ns = Space::new(&*cluster, "vd-06").await?;
        let config = full();
        for apply in [
            "apply -f -",
            "apply --server-side --force-conflicts -f -",
            "replace -f -",
        ] {
            // Not strict, as GitOps tools and old clients write.
            let output = ns.run_with(&format!("{apply} --validate=ignore"), &config.to_string())?;
            ensure!(output.success, "{apply}: {}", output.stderr);
            reads_back(&ns, spec_of(config.value())?)
                .await
                .context(apply)?;
        }
        ns.kubectl("delete virtualmachineconfigs.vmpool.dev cfg")?;

        let api: Api<VirtualMachineConfig> = Api::namespaced(ns.client.clone(), &ns.name);
        let config: VirtualMachineConfig = serde_json::from_value(full().value().clone())?;
        api.create(&PostParams::default(), &config).await?;
        reads_back(&ns, spec_of(full().value())?).await?;
        // Read, changed and written as a whole, as a program does that knows the type only.
        ns.eventually("no status is written in between", async || {
            let mut changed = api.get("cfg").await?;
            let labels = changed.metadata.labels.get_or_insert_default();
            labels.insert("touched".to_owned(), "yes".to_owned());
            api.replace("cfg", &PostParams::default(), &changed).await?;
            Ok(())
        })
        .await?;
        reads_back(&ns, spec_of(full().value())?).await
    });
}

#[test]
fn vd_06_labels_and_annotations_of_every_depth_reach_the_vm() {
    with_namespace("vd-06-vm", async |ns| {
        let labels = json!({"app": "w", "example.com/tier": ""});
        let annotations = json!({"example.com/note": "a\nb"});
        let config = config("cfg")
            .with(
                "/spec/template/metadata",
                json!({"labels": labels, "annotations": annotations}),
            )
            .volume("data", json!({"dataVolume": {"name": "data"}}))
            .push(
                "/spec/dataVolumeTemplates",
                json!({
                    "metadata": {"name": "data", "labels": labels, "annotations": annotations},
                    "spec": {
                        "storage": {"resources": {"requests": {"storage": "1Gi"}}},
                        "source": {"blank": {}},
                    },
                }),
            );
        ns.accepts(all(&[config, pool("web", "cfg").replicas(1)]))?;
        let vms = ns.settled("web", &["web-1"]).await?;
        for metadata in ["/template/metadata", "/dataVolumeTemplates/0/metadata"] {
            let found = vms[0]["spec"].pointer(metadata).context(metadata)?;
            for (part, wanted) in [("labels", &labels), ("annotations", &annotations)] {
                for (key, value) in wanted.as_object().into_iter().flatten() {
                    ensure!(found[part].get(key) == Some(value), "{metadata}: {found}");
                }
            }
        }
        Ok(())
    });
}

/// What the API server answers: stored, or refused by a Status that says why.
async fn has_verdict(ns: &Space<'_>, kind: Kind, object: &Value) -> Result<bool> {
    let dry_run = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let object: DynamicObject = serde_json::from_value(object.clone())?;
    match ns.api(kind).create(&dry_run, &object).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) => {
            let structured = (400..=422).contains(&status.code);
            // A webhook that ends the connection or answers nonsense is told of with "failed calling".
            let is_answer = !status.message.contains("failed calling webhook");
            ensure!(structured && is_answer, "{status:?} for {object:?}");
            Ok(false)
        }
        Err(error) => Err(error).context(format!("no answer for {object:?}")),
    }
}

#[test]
fn vd_04_a_config_with_next_to_nothing_in_it_gets_a_verdict() {
    with_namespace("vd-04", async |ns| {
        let spec = "/spec/template/spec";
        for (object, admitted) in [
            (
                config("cfg").with(spec, json!({"domain": {"devices": {}}})),
                true,
            ),
            (config("cfg").with(spec, json!({})), false),
            (
                config("cfg").with(&format!("{spec}/volumes"), json!([{"name": "x"}])),
                false,
            ),
            (
                config("cfg").with(&format!("{spec}/volumes"), json!([])),
                true,
            ),
            (config("cfg").with("/spec/template", Value::Null), false),
            (config("cfg").with("/spec/template", json!({})), false),
            (config("cfg").without("/spec/template"), false),
            (config("cfg").without("/spec/runStrategy"), false),
            (config("cfg").with("/spec/running", true), false),
            (
                config("cfg").with("/spec/dataVolumeTemplates", json!([{}])),
                false,
            ),
            (
                config("cfg").with("/spec/dataVolumeTemplates", json!([{"metadata": {}}])),
                false,
            ),
            (config("cfg").without("/spec"), false),
        ] {
            let verdict = has_verdict(ns, Kind::Config, object.value()).await?;
            ensure!(verdict == admitted, "admitted: {verdict}: {object}");
        }
        Ok(())
    });
}

/// Every way to take one thing out of a value, at any depth, or to put null or another type in its place.
fn damaged(value: &Value) -> Vec<Value> {
    let mut all = vec![Value::Null, json!("text"), json!(7), json!([]), json!({})];
    match value {
        Value::Object(object) => {
            for (key, member) in object {
                let mut without = object.clone();
                without.remove(key);
                all.push(Value::Object(without));
                for damage in damaged(member) {
                    let mut with = object.clone();
                    with.insert(key.clone(), damage);
                    all.push(Value::Object(with));
                }
            }
        }
        Value::Array(list) => {
            for (index, item) in list.iter().enumerate() {
                for damage in damaged(item) {
                    let mut with = list.clone();
                    with[index] = damage;
                    all.push(Value::Array(with));
                }
            }
        }
        _ => {}
    }
    all
}

#[test]
fn vd_04_no_missing_or_odd_part_of_a_config_or_pool_breaks_the_webhooks() {
    with_namespace("vd-04-fuzz", async |ns| {
        let config = config("cfg").disk("root").volume(
            "ci",
            json!({"cloudInitNoCloud": {"secretRef": {"name": "s"}}}),
        );
        let pool = pool("web", "cfg")
            .replicas(2)
            .with(
                "/spec/nameGeneration",
                json!({"vmPrefix": "web", "sharedSecrets": ["a"]}),
            )
            .with(
                "/spec/virtualMachineMetadata",
                json!({"labels": {"a": "b"}, "annotations": {"a": "b"}}),
            )
            .with(
                "/spec/updateStrategy",
                json!({"proactive": {"partition": 0}}),
            )
            .with("/spec/maxUnavailable", "25%");
        ns.accepts(&config)?;
        let (mut admitted, mut refused) = (0, 0);
        for (kind, whole) in [(Kind::Config, config.value()), (Kind::Pool, pool.value())] {
            for spec in damaged(&whole["spec"]) {
                let mut object = whole.clone();
                object["spec"] = spec;
                object["metadata"]["name"] = json!("damaged");
                match has_verdict(ns, kind, &object).await? {
                    true => admitted += 1,
                    false => refused += 1,
                }
            }
        }
        ensure!(
            admitted > 20 && refused > 20,
            "{admitted} admitted, {refused} refused: too few"
        );
        Ok(())
    });
}

/// The API server compares a revision's data byte by byte, and writes these its own way.
#[test]
fn characters_and_numbers_that_go_writes_its_own_way_reach_the_vms() {
    with_namespace("bytes", async |ns| -> Result<()> {
        let script = "a && b; cat <<EOF >x\u{2028} 'é'";
        ns.accepts(
            config("cfg")
                .volume("init", json!({"cloudInitNoCloud": {"userData": script}}))
                .with(
                    "/spec/template/spec/domain/clock/odd",
                    json!([1.5, 1e-7, 1e21, 12_345_678_901_234_567_890_u64]),
                ),
        )?;
        ns.accepts(pool("web", "cfg").replicas(2))?;
        let members = ns.settled("web", &["web-1", "web-2"]).await?;
        let volume = &members[0]["spec"]["template"]["spec"]["volumes"][0];
        ensure!(volume["cloudInitNoCloud"]["userData"] == script, "{volume}");
        // Back to an old spec renumbers its revision: another patch of it.
        ns.accepts(config("cfg"))?;
        ns.accepts(pool("other", "cfg").replicas(1))?;
        ns.settled("other", &["other-1"]).await?;
        ns.accepts(
            config("cfg").volume("init", json!({"cloudInitNoCloud": {"userData": script}})),
        )?;
        ns.kubectl("scale vpool other --replicas=2")?;
        ns.settled("other", &["other-1", "other-2"]).await?;
        Ok(())
    });
}
