//! The aggregated API as kubectl, controllers and other clients see it. Cases AG-04, HS-01, HS-02.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::curl::{Curl, pool_path, robot};
use crate::objects::{all, config, pool};
use crate::{Kind, Space, with_namespace};

const WEB: &str = "virtualmachinepools.subresources.vmpool.dev web";
const BASE: &str = "/apis/subresources.vmpool.dev/v1alpha1";

fn raw(ns: &Space<'_>, path: &str) -> Result<Value> {
    Ok(serde_json::from_str(
        &ns.kubectl(&format!("get --raw {path}"))?,
    )?)
}

#[test]
fn ag_04_discovery_and_openapi_are_whole_and_make_no_noise() {
    with_namespace("ag-04", async |ns| {
        let logs = ["kube-controller-manager.log", "kube-apiserver.log"];
        let logs = logs.map(|log| ns.harness.plane().dir().join(log));
        let lengths = logs
            .each_ref()
            .map(|log| std::fs::read(log).map_or(0, |text| text.len()));
        // 1. What kubectl makes of it.
        let said = ns.run("api-resources --api-group=subresources.vmpool.dev")?;
        ensure!(said.success && said.stderr.is_empty(), "{}", said.stderr);
        ensure!(
            said.stdout.contains("VirtualMachinePool"),
            "{}",
            said.stdout
        );
        let said = ns.run("api-resources --verbs=list -o name")?;
        ensure!(said.success && said.stderr.is_empty(), "{}", said.stderr);
        ensure!(
            !said.stdout.contains("subresources.vmpool.dev"),
            "controllers would watch what is listed: {}",
            said.stdout
        );
        let explain = "explain --api-version=subresources.vmpool.dev/v1alpha1 virtualmachinepools";
        ns.eventually("kubectl explains it", async || {
            let said = ns.kubectl(explain)?;
            ensure!(
                said.contains("GROUP:      subresources.vmpool.dev"),
                "{said}"
            );
            let said = ns.kubectl(&format!("{explain}.spec.nameGeneration.vmPrefix"))?;
            ensure!(said.contains("<string>"), "{said}");
            Ok(())
        })
        .await?;

        // 2. The documents, through the API server.
        let list = raw(ns, BASE)?;
        ensure!(list["kind"] == "APIResourceList", "{list}");
        let v3 = raw(ns, &format!("/openapi/v3{BASE}"))?;
        let schemas = v3["components"]["schemas"]
            .as_object()
            .context("no schemas")?;
        let ours = "dev.vmpool.subresources.v1alpha1.DetachOptions";
        ensure!(schemas.contains_key(ours), "{:?}", schemas.keys());
        ns.eventually("the API server has merged the definitions", async || {
            let v2 = raw(ns, "/openapi/v2")?;
            ensure!(v2["definitions"].get(ours).is_some());
            Ok(())
        })
        .await?;

        // 3. The forms of them, to anybody.
        let program = Curl::to_program(ns);
        for path in [
            "/apis",
            "/apis/subresources.vmpool.dev",
            BASE,
            "/openapi/v2",
            "/openapi/v3",
        ] {
            let answer = program.get(path)?;
            ensure!(
                answer.code == 200 && answer.body.is_object(),
                "{path}: {answer:?}"
            );
        }
        let form = "Accept: application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        let answer = Curl::to_program(ns).header(form).get("/apis")?;
        ensure!(answer.body["kind"] == "APIGroupDiscoveryList", "{answer:?}");
        let protobuf = "Accept: application/vnd.kubernetes.protobuf";
        let answer = Curl::to_program(ns).header(protobuf).get(BASE)?;
        answer.refused(406, "NotAcceptable")?;
        let both = format!("{protobuf}, */*");
        let answer = Curl::to_program(ns).header(&both).get(BASE)?;
        ensure!(answer.body["kind"] == "APIResourceList", "{answer:?}");

        // 4. Nobody complains. Before the program was there they did.
        for (log, length) in logs.iter().zip(lengths) {
            let text = std::fs::read(log)?;
            let text = String::from_utf8_lossy(&text[length..]);
            let is_noise =
                |line: &&str| line.starts_with('E') && line.contains("subresources.vmpool.dev");
            let noise: Vec<&str> = text.lines().filter(is_noise).collect();
            ensure!(noise.is_empty(), "{log:?}: {noise:#?}");
        }
        Ok(())
    });
}

#[test]
fn ag_04_odd_paths_verbs_and_bodies_get_a_status_through_the_api_server_and_straight() {
    with_namespace("ag-04-odd", async |ns| {
        ns.accepts(all(&[config("cfg"), pool("web", "cfg").replicas(1)]))?;
        ns.settled("web", &["web-1"]).await?;
        ns.kubectl("create role all --verb=* --resource=virtualmachinepools.subresources.vmpool.dev,virtualmachinepools.subresources.vmpool.dev/scale")?;
        let token = robot(ns, "all", Some("all"))?;
        let curl = Curl::to_program(ns).token(&token);
        ns.eventually("the role is seen", async || {
            let answer = curl.get(&pool_path(ns, "web", "/scale"))?;
            ensure!(answer.code == 200, "{answer:?}");
            Ok(())
        })
        .await?;
        for rest in [
            "/scale/",
            "/scale/more",
            "//scale",
            "/detach/../scale",
            "/detach/%2e%2e/scale",
            "/status",
        ] {
            let answer = curl.get(&pool_path(ns, "web", rest))?;
            answer.refused(404, "NotFound")?;
        }
        let answer = curl.send("DELETE", &pool_path(ns, "web", ""), None)?;
        answer.refused(405, "MethodNotAllowed")?;
        let long = serde_json::json!({"a": "x".repeat(100_000), "b": "x".repeat(100_000), "c": "x".repeat(100_000)});
        let file = tempfile::NamedTempFile::new()?;
        std::fs::write(file.path(), long.to_string())?;
        let body = format!("@{}", file.path().display());
        let answer = curl_file(ns, &token, &pool_path(ns, "web", "/scale"), &body)?;
        ensure!(answer == 413, "{answer}");
        // Through the API server: kubectl prints what the Status says.
        let said = ns.refused(&format!("get --raw {}", pool_path(ns, "none", "/scale")))?;
        ensure!(said.contains("not found"), "{said}");
        let said = ns.refused("get virtualmachinepools.subresources.vmpool.dev")?;
        ensure!(said.contains("not listed here"), "{said}");
        Ok(())
    });
}

/// The code that a PUT of a file is answered with.
fn curl_file(ns: &Space<'_>, token: &str, path: &str, body: &str) -> Result<u16> {
    let url = format!("https://127.0.0.1:{}{path}", ns.harness.admission_port(0));
    let mut command = std::process::Command::new("curl");
    command
        .args([
            "-s",
            "-k",
            "-X",
            "PUT",
            "-o",
            "/dev/null",
            "-w",
            "%{http_code}",
        ])
        .args(["-H", &format!("Authorization: Bearer {token}")])
        .args(["-H", "Content-Type: application/json", "--data", body, &url]);
    let output = tokio::task::block_in_place(|| command.output())?;
    Ok(String::from_utf8_lossy(&output.stdout).parse()?)
}

#[test]
fn kubectl_scales_through_the_aggregated_api_as_through_the_crd() {
    with_namespace("scale-agg", async |ns| {
        ns.accepts(all(&[config("cfg"), pool("web", "cfg").replicas(1)]))?;
        // At once: the pool may not be in any cache yet.
        ns.kubectl(&format!("scale {WEB} --replicas=2"))?;
        ns.settled("web", &["web-1", "web-2"]).await?;
        ns.kubectl(&format!("scale {WEB} --replicas=3 --current-replicas=2"))?;
        ns.settled("web", &["web-1", "web-2", "web-3"]).await?;
        let said = ns.refused(&format!("scale {WEB} --replicas=5 --current-replicas=2"))?;
        ensure!(said.contains("Expected replicas"), "{said}");
        let said = ns.refused(&format!("scale {WEB} --replicas=5 --resource-version=1"))?;
        ensure!(said.contains("resource version"), "{said}");
        ns.kubectl(&format!("scale {WEB} --replicas=9 --dry-run=server"))?;
        ns.settled("web", &["web-1", "web-2", "web-3"]).await?;
        let patch = r#"{"spec":{"replicas":1}}"#;
        ns.kubectl(&format!(
            "patch {WEB} --subresource=scale --type=merge -p {patch}"
        ))?;
        ns.eventually("one is left, whichever", async || {
            ensure!(ns.member_names("web").await?.len() == 1);
            Ok(())
        })
        .await?;
        // The field is the caller's, as with the CRD's own scale (a 0 is nobody's there: a Scale leaves it out).
        let stored =
            ns.kubectl("get virtualmachinepools.vmpool.dev web -o json --show-managed-fields")?;
        let stored: Value = serde_json::from_str(&stored)?;
        let managers = stored["metadata"]["managedFields"]
            .as_array()
            .context("no fields")?;
        let is_replicas =
            |field: &&Value| field["fieldsV1"].pointer("/f:spec/f:replicas").is_some();
        let owner = managers
            .iter()
            .find(is_replicas)
            .with_context(|| format!("nobody owns replicas: {managers:#?}"))?;
        ensure!(
            owner["manager"] == "kubectl-patch" && owner["subresource"] == "scale",
            "{owner}"
        );
        let patch = r#"[{"op":"replace","path":"/spec/replicas","value":0}]"#;
        ns.kubectl(&format!(
            "patch {WEB} --subresource=scale --type=json -p {patch}"
        ))?;
        ns.settled("web", &[]).await?;
        let table = ns.kubectl(&format!("get {WEB}"))?;
        ensure!(
            table.contains("DESIRED") && table.contains("cfg"),
            "{table}"
        );
        Ok(())
    });
}

#[test]
fn hs_01_hs_02_the_selector_of_both_scales_finds_the_pods_of_the_members() {
    with_namespace("hs-01", async |ns| {
        ns.accepts(all(&[
            config("cfg").running(),
            pool("web", "cfg").replicas(0),
        ]))?;
        let selector = |group: &str| -> Result<String> {
            let scale = ns.kubectl(&format!(
                "get virtualmachinepools.{group} web --subresource=scale -o json"
            ))?;
            let scale: Value = serde_json::from_str(&scale)?;
            let selector = scale["status"]["selector"].as_str().unwrap_or_default();
            Ok(selector.to_owned())
        };
        // 1. From the first moment, and plain text.
        let first = selector("subresources.vmpool.dev")?;
        let uid = ns.get(Kind::Pool, "web").await?["metadata"]["uid"].clone();
        let wanted = format!("vmpool.dev/pool-uid={}", uid.as_str().unwrap_or_default());
        ensure!(first == wanted, "{first}");
        // 2. It selects the launcher pods of all members, and of them alone.
        ns.accepts(pool("db", "cfg").replicas(1))?;
        ns.kubectl(&format!("scale {WEB} --replicas=3"))?;
        ns.ready("web", &["web-1", "web-2", "web-3"]).await?;
        ns.ready("db", &["db-1"]).await?;
        ensure!(selector("vmpool.dev")? == wanted);
        ensure!(selector("subresources.vmpool.dev")? == wanted);
        let pods = ns.kubectl(&format!("get pods -l {wanted} -o name"))?;
        ensure!(pods.lines().count() == 3, "{pods}");
        let instances = ns.kubectl(&format!("get vmi -l {wanted} -o name"))?;
        ensure!(instances.lines().count() == 3, "{instances}");
        Ok(())
    });
}
