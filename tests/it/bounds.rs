//! Where the program's bounds are: objects that are nested too deep or too large, and the namespace that it runs
//! in. Case CC-06, where one odd VM must not blind the caches.

use anyhow::ensure;
use dev::audit::Filter;
use dev::harness::{NAMESPACE, Options, SERVICE_ACCOUNT};
use serde_json::{Value, json};
use vmpool::admission::validate_config::MAX_SPEC;

use crate::objects::{Builder, config, pool, vm};
use crate::{Kind, Space, with_namespace, with_own};

/// The manifest with a field of so many levels, in a place where KubeVirt's schema takes any.
fn deep(object: Builder, levels: usize) -> String {
    let (open, close) = (r#"{"x":"#.repeat(levels), "}".repeat(levels));
    let object = object
        .with("/spec/template/metadata/odd", "HERE")
        .to_string();
    object.replace("\"HERE\"", &format!("{open}1{close}"))
}

#[test]
fn cc_06_one_undecodable_vm_does_not_stop_the_store() {
    let options = Options {
        without_standin: true,
        ..Options::default()
    };
    with_own(options, async |cluster| {
        let ns = Space::new(&*cluster, "cc-06").await?;
        ns.accepts(config("cfg"))?;
        ns.accepts(pool("web", "cfg").replicas(1))?;
        ns.settled("web", &["web-1"]).await?;

        // 1. A stranger's VM that is deeper than JSON readers go comes by the watch.
        let create = ns.run_with("create --validate=false -f -", &deep(vm("odd"), 1000))?;
        ensure!(create.success, "{}", create.stderr);
        ns.kubectl("scale vpool web --replicas=2")?;
        ns.settled("web", &["web-1", "web-2"]).await?;

        // 2. It stands in the list that the program starts with, and a member is as deep.
        let odd = format!(
            r#"{{"spec":{{"template":{{"metadata":{{"odd":{}1{}}}}}}}}}"#,
            r#"{"x":"#.repeat(1000),
            "}".repeat(1000)
        );
        let path = cluster.plane().dir().join("odd.json");
        std::fs::write(&path, odd)?;
        let file = path.display();
        ns.kubectl(&format!("patch vm web-2 --type=merge --patch-file {file}"))?;
        cluster.restart_vmpool().await?;
        ns.kubectl("scale vpool web --replicas=3")?;
        ns.settled("web", &["web-1", "web-2", "web-3"]).await?;
        ns.kubectl("scale vpool web --replicas=0")?;
        ns.settled("web", &[]).await?;

        // 3. A config as deep is refused in words.
        let create = ns.run_with("create --validate=false -f -", &deep(config("deep"), 1000))?;
        ensure!(
            create
                .stderr
                .contains("spec: is nested too deep: at most 100 levels"),
            "{}",
            create.stderr
        );
        // 4. The name of the odd VM is skipped like that of any other.
        let create = ns.run_with("create --validate=false -f -", &deep(vm("lab-1"), 1000))?;
        ensure!(create.success, "{}", create.stderr);
        ns.accepts(pool("lab", "cfg").replicas(1))?;
        ns.settled("lab", &["lab-2"]).await?;
        Ok(())
    });
}

#[test]
fn a_spec_of_the_largest_size_reaches_its_vms_and_a_larger_one_is_refused() {
    with_namespace("size", async |ns| {
        // As many fields as there is room for: each is in managedFields too.
        let sized = |name: &str, bytes: usize| {
            let mut selector = serde_json::Map::new();
            let empty = config(name).with("/spec/template/metadata/odd", json!({}));
            let mut size = empty.value()["spec"].to_string().len();
            while size + 20 < bytes {
                let key = format!("k{:06}", selector.len());
                size += key.len() + 5;
                selector.insert(key, 1.into());
            }
            let rest = bytes.saturating_sub(size + 8);
            selector.insert("z".to_owned(), "x".repeat(rest).into());
            empty.with("/spec/template/metadata/odd", selector)
        };
        let start = ns.harness.audit().mark();
        let largest = sized("largest", MAX_SPEC - 16);
        let create = ns.run_with("create --validate=false -f -", &largest.to_string())?;
        ensure!(create.success, "{}", create.stderr);
        // With as much metadata as a pool may have.
        let note = "n".repeat(110_000);
        let web = pool("web", "largest").replicas(1).with(
            "/spec/virtualMachineMetadata/annotations",
            json!({"note": note}),
        );
        let create = ns.run_with("create -f -", &web.to_string())?;
        ensure!(create.success, "{}", create.stderr);
        ns.settled("web", &["web-1"]).await?;
        let vm = ns.kubectl("get vm web-1 -o json --show-managed-fields")?;
        let size = serde_json::from_str::<Value>(&vm)?.to_string().len();
        // What etcd takes is 1.5 MiB.
        ensure!(size > 2 * MAX_SPEC && size < 1_400_000, "{size} bytes");

        // Unknown, accepted, a pool: however long the cache takes to show it, nothing is said twice.
        let audit = ns.harness.audit();
        audit.settle().await;
        let ours = Filter::new().service_account(NAMESPACE, SERVICE_ACCOUNT);
        let status = ours
            .namespace(&ns.name)
            .resource("virtualmachineconfigs/status");
        let said = audit.count_since(start, &status)?;
        ensure!(said <= 4, "said {said} times");

        let larger = sized("larger", MAX_SPEC + 100);
        let create = ns.run_with("create --validate=false -f -", &larger.to_string())?;
        ensure!(
            create.stderr.contains("bytes as JSON; at most 393216"),
            "{}",
            create.stderr
        );
        Ok(())
    });
}

#[test]
fn pools_and_configs_in_our_own_namespace_are_declined_in_words() {
    with_namespace("own", async |other| {
        let ns = Space {
            harness: other.harness,
            name: NAMESPACE.to_owned(),
            client: other.client.clone(),
        };
        ns.accepts(config("own"))?;
        ns.accepts(pool("own", "own").replicas(1))?;
        let config = ns
            .condition(Kind::Config, "own", "Accepted", "False")
            .await?;
        let pool = ns
            .condition(Kind::Pool, "own", "Progressing", "False")
            .await?;
        for condition in [config, pool] {
            ensure!(condition["reason"] == "OwnNamespace", "{condition}");
            let message = condition["message"].to_string();
            ensure!(message.contains("use another namespace"), "{message}");
        }
        ensure!(!ns.events("own", "OwnNamespace").await?.is_empty());
        ensure!(ns.names(Kind::Vm).await?.is_empty());
        ns.kubectl("delete vpool,vconf own --wait=false")?;
        ns.gone(Kind::Pool, "own").await?;
        ns.gone(Kind::Config, "own").await
    });
}
