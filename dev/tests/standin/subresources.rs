//! KubeVirt's subresources through the API server, as `virtctl` and vmpool call them.

use dev::kubectl::{Kubectl, Output};
use dev::standin::{Event, Knobs, Options};
use k8s_openapi::ByteString;
use serde_json::{Value, json};

use crate::world::{World, vm};

/// PUT of a subresource of a VM in namespace `a`.
fn put(kubectl: &Kubectl, vm: &str, verb: &str, body: &Value) -> Output {
    let group = "/apis/subresources.kubevirt.io/v1";
    let path = format!("{group}/namespaces/a/virtualmachines/{vm}/{verb}");
    let args = ["replace", "--raw", &path, "-f", "-"];
    kubectl.run_with_input(&args, &body.to_string()).unwrap()
}

fn assert_refused(output: &Output, reason: &str, text: &str) {
    let stderr = &output.stderr;
    assert!(!output.success, "it was accepted");
    assert!(stderr.contains(reason) && stderr.contains(text), "{stderr}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vm_is_stopped_started_and_restarted_through_the_api_server() {
    let world = World::start(Options::default()).await;
    world.namespace("a").await;
    let admin = world.plane.kubectl();
    let ask = |vm: &str, verb: &str, body: Value| put(&admin, vm, verb, &body);

    world.apply(&vm("a", "on", "Always"));
    world.until_ready("a", "on").await;
    let dry = ask("on", "restart", json!({"dryRun": ["All"]}));
    assert!(dry.success, "{}", dry.stderr);
    let restarted = ask("on", "restart", json!({}));
    assert!(restarted.success, "{}", restarted.stderr);
    let is_again = |vm: &Value| {
        let is_second = world.standin.count("a", "on", Event::Started) == 2;
        vm["status"]["ready"] == true && is_second
    };
    world.until(("vm", "a", "on"), is_again).await;

    assert!(ask("on", "stop", json!({})).success);
    world.until_shows("a", "on", "Stopped").await;
    assert_refused(
        &ask("on", "restart", json!({})),
        "Conflict",
        "RunStategy Halted does not support manual restart requests",
    );
    assert!(ask("on", "start", json!({})).success);
    world.until_ready("a", "on").await;
    let twice = ask("on", "start", json!({}));
    assert_refused(&twice, "Conflict", "VM is already running");
    let patient = ask("on", "restart", json!({"gracePeriodSeconds": 30}));
    assert_refused(&patient, "BadRequest", "only gracePeriod=0");
    let absent = ask("absent", "restart", json!({}));
    assert_refused(&absent, "NotFound", "absent");
    assert_refused(&ask("on", "migrate", json!({})), "NotFound", "migrate");

    a_second_restart_waits_for_the_first(&world, &admin).await;
    rights_are_asked_for(&world, &admin);
}

/// 500 while a request is queued, which a guest that does not go keeps there; a forced restart
/// goes after a second.
async fn a_second_restart_waits_for_the_first(world: &World, admin: &Kubectl) {
    let mut hung = vm("a", "hung", "Always");
    hung["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = json!(600);
    world.apply(&hung);
    world.until_ready("a", "hung").await;
    let knobs = Knobs {
        hung_shutdown: Some(true),
        ..Knobs::default()
    };
    world.standin.set("a", "hung", knobs);
    let forced = put(
        admin,
        "hung",
        "restart",
        &json!({"gracePeriodSeconds": 0, "dryRun": ["All"]}),
    );
    assert!(forced.success, "{}", forced.stderr);
    assert!(put(admin, "hung", "restart", &json!({})).success);
    let second = put(admin, "hung", "restart", &json!({}));
    assert_refused(&second, "InternalError", "stop/start already underway");
}

/// The API server decides who may; nobody comes to the server past it.
fn rights_are_asked_for(world: &World, admin: &Kubectl) {
    let kubeconfig = world.plane.user_kubeconfig("bob", None).unwrap();
    let bob = admin.with_kubeconfig(&kubeconfig);
    let refused = put(&bob, "on", "restart", &json!({}));
    assert_refused(&refused, "Forbidden", "virtualmachines/restart");
    let service = "v1.subresources.kubevirt.io";
    let service = world.kubectl(&["get", "apiservice", service, "-o", "json"]);
    let service: Value = serde_json::from_str(&service).unwrap();
    let authority: ByteString =
        serde_json::from_value(service["spec"]["caBundle"].clone()).unwrap();
    let file = |name: &str| world.plane.dir().join(name).display().to_string();
    std::fs::write(file("virt-api-ca.crt"), authority.0).unwrap();
    let port = &service["spec"]["service"]["port"];
    let direct = |kubectl: &Kubectl, credentials: &[String]| {
        let mut args = vec![
            format!("--server=https://localhost:{port}"),
            format!("--certificate-authority={}", file("virt-api-ca.crt")),
            "--tls-server-name=virt-api.kubevirt.svc".to_owned(),
        ];
        args.extend(credentials.iter().cloned());
        let get = ["get", "--raw", "/apis/subresources.kubevirt.io/v1"];
        args.extend(get.map(str::to_owned));
        kubectl.run(&args).unwrap()
    };
    let past = direct(admin, &[]);
    // The handshake ends in an alert, or in a closed connection.
    assert_refused(&past, "Unable to connect", "");
    let front_proxy = [
        format!("--client-certificate={}", file("front-proxy-client.crt")),
        format!("--client-key={}", file("front-proxy-client.key")),
    ];
    let front_proxy = direct(&bob, &front_proxy);
    assert!(front_proxy.success, "{}", front_proxy.stderr);
}
