//! The KubeVirt stand-in against a real control plane: VMs start, stop, fail and leave nothing.
//!
//! With `VMPOOL_KUBEVIRT_CRDS` on KubeVirt's real CRDs, and then with its own examples beside
//! that folder; without it on small ones.

#![allow(
    clippy::unwrap_used,
    reason = "the steps of these tests are functions, which the lint takes for other code"
)]

use std::path::PathBuf;
use std::time::{Duration, Instant};

use dev::audit::Filter;
use dev::controlplane::{ControlPlane, Options as PlaneOptions};
use dev::standin::{Event, GuestEnd, Knobs, NodeSpec, Options, Refusal, Standin};
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_mins(1);

struct World {
    plane: ControlPlane,
    standin: Standin,
}

impl World {
    async fn start(options: Options) -> Self {
        let plane = ControlPlane::start(PlaneOptions::default()).await.unwrap();
        dev::crds::install(&plane.admin()).await.unwrap();
        let standin = Standin::start(plane.admin(), options).await.unwrap();
        standin.ready().await;
        Self { plane, standin }
    }

    async fn namespace(&self, name: &str) {
        self.kubectl(&["create", "namespace", name]);
        self.plane.wait_default_service_account(name).await.unwrap();
    }

    fn kubectl(&self, args: &[&str]) -> String {
        self.plane.kubectl().run_ok(args).unwrap()
    }

    fn apply(&self, object: &Value) {
        self.plane.kubectl().apply(&object.to_string()).unwrap();
    }

    /// An object, or null.
    fn get(&self, kind: &str, namespace: &str, name: &str) -> Value {
        let args = ["get", kind, "-n", namespace, name, "-o", "json"];
        let output = self.plane.kubectl().run(&args).unwrap();
        serde_json::from_str(&output.stdout).unwrap_or(Value::Null)
    }

    fn list(&self, kind: &str, namespace: &str) -> Vec<Value> {
        let text = self.kubectl(&["get", kind, "-n", namespace, "-o", "json"]);
        let mut list: Value = serde_json::from_str(&text).unwrap();
        match list["items"].take() {
            Value::Array(items) => items,
            _ => Vec::new(),
        }
    }

    /// Waits until an object is as wanted; answers it.
    async fn until(
        &self,
        (kind, namespace, name): (&str, &str, &str),
        wanted: impl Fn(&Value) -> bool,
    ) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let object = self.get(kind, namespace, name);
            if wanted(&object) {
                return object;
            }
            assert!(
                Instant::now() < deadline,
                "{kind} {namespace}/{name} is not as wanted:\n{}",
                serde_json::to_string_pretty(&object["status"]).unwrap()
            );
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn until_shows(&self, namespace: &str, vm: &str, status: &str) -> Value {
        self.until(("vm", namespace, vm), |vm| {
            vm["status"]["printableStatus"] == status
        })
        .await
    }

    async fn until_ready(&self, namespace: &str, vm: &str) -> Value {
        self.until(("vm", namespace, vm), |vm| vm["status"]["ready"] == true)
            .await
    }

    async fn until_gone(&self, kind: &str, namespace: &str, name: &str) {
        self.until((kind, namespace, name), Value::is_null).await;
    }
}

fn vm(namespace: &str, name: &str, strategy: &str) -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"namespace": namespace, "name": name},
        "spec": {
            "runStrategy": strategy,
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {
                    "domain": {"devices": {}, "memory": {"guest": "128Mi"}},
                    "terminationGracePeriodSeconds": 0,
                },
            },
        },
    })
}

fn disk(vm: &mut Value, name: &str) {
    vm["spec"]["dataVolumeTemplates"] = json!([{
        "metadata": {"name": name},
        "spec": {"source": {"blank": {}},
                 "storage": {"resources": {"requests": {"storage": "1Gi"}}}},
    }]);
    vm["spec"]["template"]["spec"]["volumes"] =
        json!([{"name": "root", "dataVolume": {"name": name}}]);
}

fn ready_reason(vm: &Value) -> Option<&str> {
    vm["status"]["conditions"]
        .as_array()?
        .iter()
        .find(|condition| condition["type"] == "Ready")?["reason"]
        .as_str()
}

fn has_condition(object: &Value, kind: &str, status: &str) -> bool {
    object["status"]["conditions"]
        .as_array()
        .is_some_and(|conditions| {
            conditions
                .iter()
                .any(|c| c["type"] == kind && c["status"] == status)
        })
}

#[ignore = "its step about claims of disks races with the garbage collector; see the closing note of issue 3"]
#[tokio::test(flavor = "multi_thread")]
async fn vms_live_as_under_kubevirt() {
    let world = World::start(Options {
        backoff_scale: 0.02,
        wait_for_first_consumer: vec!["late".to_owned()],
        nodes: vec![NodeSpec::new("n1").label("zone", "a"), NodeSpec::new("n2")],
        ..Options::default()
    })
    .await;
    world.namespace("a").await;
    a_halted_vm_is_stopped_and_has_its_disk(&world).await;
    a_vm_starts_restarts_and_goes(&world).await;
    run_strategies(&world).await;
    failed_starts_back_off(&world).await;
    a_missing_secret_holds_the_vm(&world).await;
    missing_and_late_claims(&world).await;
    disks_are_claimed_and_adopted(&world).await;
    edits_ask_for_a_restart(&world).await;
    orphans_are_adopted_and_left_pods_end(&world).await;
    nodes_fill_and_get_lost(&world).await;
    nothing_is_written_at_rest(&world).await;
    a_hung_guest_takes_its_grace_period(&world).await;
    examples(&world).await;
}

async fn a_halted_vm_is_stopped_and_has_its_disk(world: &World) {
    eprintln!("a halted VM");
    let mut halted = vm("a", "off", "Halted");
    disk(&mut halted, "off-root");
    world.apply(&halted);
    let vm = world.until_shows("a", "off", "Stopped").await;
    assert_eq!(ready_reason(&vm), Some("VMINotExists"));
    let dv = world
        .until(("dv", "a", "off-root"), |dv| {
            dv["status"]["phase"] == "Succeeded"
        })
        .await;
    assert_eq!(dv["metadata"]["ownerReferences"][0]["name"], "off");
    let claim = world.get("pvc", "a", "off-root");
    assert_eq!(claim["status"]["phase"], "Bound");
    assert_eq!(
        claim["metadata"]["ownerReferences"][0]["kind"],
        "DataVolume"
    );
    assert!(world.get("vmi", "a", "off").is_null());
    world.kubectl(&["delete", "vm", "-n", "a", "off", "--wait=true"]);
    world.until_gone("dv", "a", "off-root").await;
    world.until_gone("pvc", "a", "off-root").await;
}

async fn a_vm_starts_restarts_and_goes(world: &World) {
    eprintln!("a running VM");
    let mut on = vm("a", "on", "Always");
    disk(&mut on, "on-root");
    world.apply(&on);
    let first = world.until_ready("a", "on").await;
    assert_eq!(first["status"]["printableStatus"], "Running");
    assert_eq!(
        first["metadata"]["generation"], 2,
        "firmware UUID came late"
    );
    let vmi = world.get("vmi", "a", "on");
    assert_eq!(vmi["metadata"]["labels"]["app"], "on");
    assert!(vmi["metadata"]["labels"]["kubevirt.io/nodeName"].is_string());
    let pods = world.list("pods", "a");
    assert_eq!(pods.len(), 1);
    assert_eq!(pods[0]["metadata"]["labels"]["app"], "on");
    assert!(has_condition(&pods[0], "Ready", "True"));

    // A VMI deleted by hand comes back.
    world.kubectl(&["delete", "vmi", "-n", "a", "on", "--wait=false"]);
    let uid = vmi["metadata"]["uid"].clone();
    world
        .until(("vmi", "a", "on"), |vmi| {
            vmi["metadata"]["uid"] != uid && vmi["status"]["phase"] == "Running"
        })
        .await;
    // So does one restarted through its subresource.
    world.until_ready("a", "on").await;
    let starts = world.standin.count("a", "on", Event::Started);
    world.standin.restart_vm("a", "on").await.unwrap();
    world
        .until(("vm", "a", "on"), |vm| {
            vm["status"]["ready"] == true
                && vm["status"]["stateChangeRequests"].is_null()
                && world.standin.count("a", "on", Event::Started) == starts + 1
        })
        .await;
    let revisions = world.list("controllerrevisions", "a");
    assert_eq!(revisions.len(), 1, "the old start revision went");

    world.kubectl(&["delete", "vm", "-n", "a", "on", "--wait=true"]);
    world.until_gone("vmi", "a", "on").await;
    world.until_gone("pvc", "a", "on-root").await;
    assert!(world.list("pods", "a").is_empty());
}

async fn run_strategies(world: &World) {
    eprintln!("run strategies");
    world.apply(&vm("a", "manual", "Manual"));
    world.until_shows("a", "manual", "Stopped").await;
    world.standin.start_vm("a", "manual").await.unwrap();
    world.until_ready("a", "manual").await;
    world.kubectl(&["delete", "vmi", "-n", "a", "manual"]);
    world.until_shows("a", "manual", "Stopped").await;

    world.apply(&vm("a", "rerun", "RerunOnFailure"));
    world.until_ready("a", "rerun").await;
    world.standin.end_guest("a", "rerun", GuestEnd::Crash);
    world
        .until(("vm", "a", "rerun"), |vm| {
            vm["status"]["ready"] == true && world.standin.count("a", "rerun", Event::Started) == 2
        })
        .await;
    world.standin.end_guest("a", "rerun", GuestEnd::PowerOff);
    world.until_shows("a", "rerun", "Stopped").await;
    assert_eq!(world.standin.count("a", "rerun", Event::Started), 2);

    world.apply(&vm("a", "once", "Once"));
    world.until_ready("a", "once").await;
    world.standin.end_guest("a", "once", GuestEnd::PowerOff);
    world.until_shows("a", "once", "Stopped").await;
    assert_eq!(
        world.get("vmi", "a", "once")["status"]["phase"],
        "Succeeded"
    );
    let refused = world.standin.restart_vm("a", "once").await.unwrap_err();
    assert_eq!(refused.downcast_ref::<Refusal>().unwrap().code, 409);

    let mut old = vm("a", "old", "Always");
    old["spec"].as_object_mut().unwrap().remove("runStrategy");
    old["spec"]["running"] = json!(true);
    world.apply(&old);
    world.until_ready("a", "old").await;
    world.standin.stop_vm("a", "old").await.unwrap();
    world.until_shows("a", "old", "Stopped").await;
    world.kubectl(&["delete", "vm", "-n", "a", "--all", "--wait=true"]);
}

async fn failed_starts_back_off(world: &World) {
    eprintln!("failed starts");
    let mut bad = vm("a", "bad", "Always");
    bad["spec"]["template"]["metadata"]["annotations"] =
        json!({"standin.vmpool.dev/fail-start": "2"});
    world.apply(&bad);
    let crashed = world.until_shows("a", "bad", "CrashLoopBackOff").await;
    assert!(crashed["status"]["startFailure"]["consecutiveFailCount"].is_number());
    let vm = world.until_ready("a", "bad").await;
    assert!(vm["status"]["startFailure"].is_null());
    assert_eq!(world.standin.count("a", "bad", Event::Failed), 2);
    world.kubectl(&["delete", "vm", "-n", "a", "bad", "--wait=true"]);
}

async fn a_missing_secret_holds_the_vm(world: &World) {
    eprintln!("a missing secret");
    let mut held = vm("a", "held", "Always");
    held["spec"]["template"]["spec"]["volumes"] =
        json!([{"name": "ci", "cloudInitNoCloud": {"secretRef": {"name": "ud"}}}]);
    world.apply(&held);
    world
        .until(("vmi", "a", "held"), |vmi| {
            vmi["status"]["phase"] == "Scheduling"
        })
        .await;
    world
        .until(("vm", "a", "held"), |vm| {
            ready_reason(vm) == Some("GuestNotRunning")
                && vm["status"]["printableStatus"] == "Starting"
        })
        .await;
    let args = [
        "create",
        "secret",
        "generic",
        "-n",
        "a",
        "ud",
        "--from-literal=userdata=x",
    ];
    world.kubectl(&args);
    world.until_ready("a", "held").await;
    world.kubectl(&["delete", "vm", "-n", "a", "held", "--wait=true"]);
}

async fn missing_and_late_claims(world: &World) {
    eprintln!("missing and late claims");
    let mut wanting = vm("a", "wanting", "Always");
    wanting["spec"]["template"]["spec"]["volumes"] =
        json!([{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]);
    world.apply(&wanting);
    world.until_shows("a", "wanting", "ErrorPvcNotFound").await;
    world.apply(&json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"namespace": "a", "name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"],
                 "resources": {"requests": {"storage": "1Gi"}}},
    }));
    world.until_ready("a", "wanting").await;

    let mut late = vm("a", "late", "Halted");
    disk(&mut late, "late-root");
    late["spec"]["dataVolumeTemplates"][0]["spec"]["storage"]["storageClassName"] = json!("late");
    world.apply(&late);
    world
        .until(("dv", "a", "late-root"), |dv| {
            dv["status"]["phase"] == "WaitForFirstConsumer"
        })
        .await;
    world.standin.start_vm("a", "late").await.unwrap();
    world.until_ready("a", "late").await;
    world.kubectl(&["delete", "vm", "-n", "a", "--all", "--wait=true"]);
    world.kubectl(&["delete", "pvc", "-n", "a", "data", "--wait=true"]);
}

async fn disks_are_claimed_and_adopted(world: &World) {
    eprintln!("claims of disks");
    let mut keeper = vm("a", "keeper", "Halted");
    disk(&mut keeper, "kept");
    world.apply(&keeper);
    let dv = world
        .until(("dv", "a", "kept"), |dv| {
            dv["status"]["phase"] == "Succeeded"
        })
        .await;
    // The VM goes, its disk stays without owner.
    world.kubectl(&["delete", "vm", "-n", "a", "keeper", "--cascade=orphan"]);
    let orphan = world.get("dv", "a", "kept");
    assert!(orphan["metadata"]["ownerReferences"].is_null());
    // A second owner is lost when the VM comes back: claiming replaces the list.
    world.kubectl(&["create", "configmap", "-n", "a", "holder"]);
    let holder = world.get("configmap", "a", "holder")["metadata"]["uid"].clone();
    let patch = json!([{"op": "add", "path": "/metadata/ownerReferences", "value": [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": "holder", "uid": holder}]}])
    .to_string();
    let args = ["patch", "dv", "-n", "a", "kept", "--type=json", "-p"];
    world.kubectl(&[&args[..], &[&patch]].concat());
    world.apply(&keeper);
    let claimed = world
        .until(("dv", "a", "kept"), |dv| {
            dv["metadata"]["ownerReferences"][0]["name"] == "keeper"
        })
        .await;
    assert_eq!(claimed["metadata"]["uid"], dv["metadata"]["uid"]);
    assert_eq!(
        claimed["metadata"]["ownerReferences"]
            .as_array()
            .unwrap()
            .len(),
        1
    );

    // Only the claim is left: CDI adopts it.
    let args = ["delete", "dv", "-n", "a", "kept", "--cascade=orphan"];
    let claim = world.get("pvc", "a", "kept");
    world.kubectl(&args);
    let adopted = world
        .until(("pvc", "a", "kept"), |pvc| {
            pvc["metadata"]["ownerReferences"][0]["uid"].is_string()
                && pvc["metadata"]["ownerReferences"][0]["uid"] != dv["metadata"]["uid"]
        })
        .await;
    assert_eq!(adopted["metadata"]["uid"], claim["metadata"]["uid"]);
    world.kubectl(&["delete", "vm", "-n", "a", "keeper", "--wait=true"]);
    world.until_gone("pvc", "a", "kept").await;
}

async fn edits_ask_for_a_restart(world: &World) {
    eprintln!("edits");
    world.apply(&vm("a", "edited", "Always"));
    world.until_ready("a", "edited").await;
    let label = r#"{"spec":{"template":{"metadata":{"labels":{"more":"1"}}}}}"#;
    let memory = r#"{"spec":{"template":{"spec":{"domain":{"memory":{"guest":"256Mi"}}}}}}"#;
    let patch = |p: &str| {
        world.kubectl(&["patch", "vm", "-n", "a", "edited", "--type=merge", "-p", p]);
    };
    patch(label);
    let vm = world
        .until(("vm", "a", "edited"), |vm| {
            vm["status"]["desiredGeneration"] == vm["metadata"]["generation"]
        })
        .await;
    assert!(!has_condition(&vm, "RestartRequired", "True"));
    patch(memory);
    world
        .until(("vm", "a", "edited"), |vm| {
            has_condition(vm, "RestartRequired", "True")
        })
        .await;
    world.standin.restart_vm("a", "edited").await.unwrap();
    let vm = world
        .until(("vm", "a", "edited"), |vm| {
            vm["status"]["ready"] == true && !has_condition(vm, "RestartRequired", "True")
        })
        .await;
    assert_eq!(
        vm["status"]["observedGeneration"],
        vm["status"]["desiredGeneration"]
    );
    assert_eq!(
        world.get("vmi", "a", "edited")["metadata"]["labels"]["more"],
        "1"
    );
    world.kubectl(&["delete", "vm", "-n", "a", "edited", "--wait=true"]);
}

async fn orphans_are_adopted_and_left_pods_end(world: &World) {
    eprintln!("orphans");
    world.apply(&vm("a", "left", "Always"));
    world.until_ready("a", "left").await;
    let uid = world.get("vmi", "a", "left")["metadata"]["uid"].clone();
    world.kubectl(&["delete", "vm", "-n", "a", "left", "--cascade=orphan"]);
    let vmi = world.get("vmi", "a", "left");
    assert!(vmi["metadata"]["ownerReferences"].is_null());
    assert_eq!(vmi["status"]["phase"], "Running");
    world.apply(&vm("a", "left", "Always"));
    world.until_ready("a", "left").await;
    assert_eq!(world.get("vmi", "a", "left")["metadata"]["uid"], uid);
    world.kubectl(&["delete", "vm", "-n", "a", "left", "--wait=true"]);

    world.apply(&json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
        "metadata": {"namespace": "a", "name": "alone"},
        "spec": {"domain": {"devices": {}}, "terminationGracePeriodSeconds": 0},
    }));
    world
        .until(("vmi", "a", "alone"), |vmi| {
            has_condition(vmi, "Ready", "True")
        })
        .await;
    world.kubectl(&["delete", "vmi", "-n", "a", "alone", "--wait=true"]);
    let deadline = Instant::now() + PATIENCE;
    while !world.list("pods", "a").is_empty() {
        assert!(Instant::now() < deadline, "the pod stays");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Each kind of state that lasts, and no write while it does.
async fn nothing_is_written_at_rest(world: &World) {
    eprintln!("rest");
    let mut halted = vm("a", "r-halted", "Halted");
    disk(&mut halted, "r-halted-root");
    let mut secret = vm("a", "r-secret", "Always");
    secret["spec"]["template"]["spec"]["volumes"] =
        json!([{"name": "s", "secret": {"secretName": "absent"}}]);
    let mut claim = vm("a", "r-claim", "Always");
    claim["spec"]["template"]["spec"]["volumes"] =
        json!([{"name": "d", "persistentVolumeClaim": {"claimName": "absent"}}]);
    let mut nowhere = vm("a", "r-nowhere", "Always");
    nowhere["spec"]["template"]["spec"]["nodeSelector"] = json!({"zone": "none"});
    let mut image = vm("a", "r-image", "Always");
    image["spec"]["template"]["metadata"]["annotations"] =
        json!({"standin.vmpool.dev/image-error": "ErrImagePull"});
    for object in [&halted, &secret, &claim, &nowhere, &image] {
        world.apply(object);
    }
    world.apply(&vm("a", "r-running", "Always"));
    for (vm, status) in [
        ("r-halted", "Stopped"),
        ("r-secret", "Starting"),
        ("r-claim", "ErrorPvcNotFound"),
        ("r-nowhere", "ErrorUnschedulable"),
        ("r-image", "ErrImagePull"),
        ("r-running", "Running"),
    ] {
        world.until_shows("a", vm, status).await;
    }
    world.until_ready("a", "r-running").await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let audit = world.plane.audit();
    let mark = audit.mark();
    tokio::time::sleep(Duration::from_secs(4)).await;
    audit.settle().await;
    let writes = audit.since(mark, &Filter::new().user("admin")).unwrap();
    assert!(writes.is_empty(), "{writes:#?}");
    world.kubectl(&["delete", "vm", "-n", "a", "--all", "--wait=true"]);
}

async fn nodes_fill_and_get_lost(world: &World) {
    eprintln!("nodes");
    world.standin.set_capacity(Some(1));
    let mut placed = vm("a", "placed", "Always");
    placed["spec"]["template"]["spec"]["nodeSelector"] = json!({"zone": "a"});
    world.apply(&placed);
    world.until_ready("a", "placed").await;
    assert_eq!(world.get("vmi", "a", "placed")["status"]["nodeName"], "n1");
    world.apply(&vm("a", "second", "Always"));
    world.until_shows("a", "second", "ErrorUnschedulable").await;
    world.standin.set_capacity(None);
    world.until_ready("a", "second").await;

    world.standin.lose_node("n1").await.unwrap();
    let lost = |vm: &Value| {
        vm["status"]["printableStatus"] == "Running" && vm["status"]["ready"].is_null()
    };
    world.until(("vm", "a", "placed"), lost).await;
    world.standin.restore_node("n1").await.unwrap();
    world.until_ready("a", "placed").await;
    world.kubectl(&["delete", "vm", "-n", "a", "--all", "--wait=true"]);
}

async fn a_hung_guest_takes_its_grace_period(world: &World) {
    eprintln!("a hung guest");
    let mut hung = vm("a", "hung", "Always");
    hung["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = json!(3);
    world.apply(&hung);
    world.until_ready("a", "hung").await;
    world.standin.set(
        "a",
        "hung",
        Knobs {
            hung_shutdown: Some(true),
            ..Knobs::default()
        },
    );
    let asked = Instant::now();
    world.kubectl(&["delete", "vm", "-n", "a", "hung", "--wait=false"]);
    world.until_shows("a", "hung", "Terminating").await;
    world.until_gone("vm", "a", "hung").await;
    assert!(asked.elapsed() >= Duration::from_secs(3));
}

/// KubeVirt's own examples, where they are.
async fn examples(world: &World) {
    let folder = std::env::var_os(dev::crds::KUBEVIRT_CRDS_ENV)
        .map(|crds| PathBuf::from(crds).join("../examples"))
        .filter(|folder| folder.is_dir());
    let Some(folder) = folder else {
        eprintln!("skipped: no examples of KubeVirt on this machine");
        return;
    };
    world.namespace("examples").await;
    for (file, vm) in [
        ("vm-cirros.yaml", "vm-cirros"),
        ("vm-alpine-datavolume.yaml", "vm-alpine-datavolume"),
    ] {
        eprintln!("example {file}");
        let path = folder.join(file);
        let path = path.to_str().unwrap();
        world.kubectl(&["apply", "--server-side", "-n", "examples", "-f", path]);
        world.until_shows("examples", vm, "Stopped").await;
        world.standin.start_vm("examples", vm).await.unwrap();
        world.until_ready("examples", vm).await;
    }
    world.kubectl(&["delete", "namespace", "examples", "--wait=true"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn it_waits_for_crds_survives_restarts_and_carries_hundreds() {
    let plane = ControlPlane::start(PlaneOptions::default()).await.unwrap();
    let options = Options {
        combine_writes: true,
        live_update: true,
        ..Options::default()
    };
    let standin = Standin::start(plane.admin(), options.clone())
        .await
        .unwrap();
    standin.ready().await;
    dev::crds::install_kubevirt(&plane.admin()).await.unwrap();
    let world = World { plane, standin };
    world.namespace("a").await;
    crds_come_late_and_cpus_live(&world).await;
    hundreds_of_halted_vms(&world).await;
    let world = nothing_starts_anew_after_restarts(world, options).await;

    let deleted = Instant::now();
    world.kubectl(&["delete", "vm", "-n", "a", "--all", "--wait=false"]);
    eprintln!("all asked to go in {:?}", deleted.elapsed());
    while !world.list("vm", "a").is_empty() {
        assert!(deleted.elapsed() < 2 * PATIENCE);
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    eprintln!("all gone in {:?}", deleted.elapsed());
}

async fn crds_come_late_and_cpus_live(world: &World) {
    let mut early = vm("a", "early", "Always");
    early["spec"]["template"]["spec"]["domain"]["cpu"] = json!({"sockets": 1});
    world.apply(&early);
    world.until_ready("a", "early").await;
    early["spec"]["template"]["spec"]["domain"]["cpu"]["sockets"] = json!(2);
    world.apply(&early);
    world
        .until(("vmi", "a", "early"), |vmi| {
            vmi["status"]["currentCPUTopology"]["sockets"] == 2
        })
        .await;
    let live = world.get("vm", "a", "early");
    assert!(!has_condition(&live, "RestartRequired", "True"));

    let mut disked = vm("a", "disked", "Always");
    disk(&mut disked, "disked-root");
    world.apply(&disked);
    let failing = |vm: &Value| has_condition(vm, "Failure", "True");
    world.until(("vm", "a", "disked"), failing).await;
    dev::crds::install_cdi(&world.plane.admin()).await.unwrap();
    let vm_with_disk = world.until_ready("a", "disked").await;
    assert!(!failing(&vm_with_disk));
}

async fn hundreds_of_halted_vms(world: &World) {
    let many: Vec<String> = (0..300)
        .map(|i| vm("a", &format!("h-{i}"), "Halted").to_string())
        .collect();
    let (applied, cpu) = (Instant::now(), cpu_milliseconds());
    world.plane.kubectl().apply(&many.join("\n---\n")).unwrap();
    eprintln!("300 applied in {:?}", applied.elapsed());
    let last = world.until_shows("a", "h-299", "Stopped").await;
    assert_eq!(ready_reason(&last), Some("VMINotExists"));
    let used = cpu_milliseconds() - cpu;
    eprintln!("last halted in {:?}, {used} ms of CPU", applied.elapsed());
    let halted = |world: &World| {
        let vms = world.list("vm", "a");
        let stopped = |vm: &&Value| vm["status"]["printableStatus"] == "Stopped";
        vms.iter().filter(stopped).count()
    };
    while halted(world) < 300 {
        assert!(applied.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// A restarted API server, then a restarted stand-in.
async fn nothing_starts_anew_after_restarts(world: World, options: Options) -> World {
    let early = world.get("vmi", "a", "early")["metadata"]["uid"].clone();
    world.plane.restart_apiserver().await.unwrap();
    world.apply(&vm("a", "after", "Always"));
    world.until_ready("a", "after").await;
    let World { plane, standin } = world;
    standin.stop().await;
    let standin = Standin::start(plane.admin(), options).await.unwrap();
    standin.ready().await;
    let world = World { plane, standin };
    world.apply(&vm("a", "last", "Always"));
    world.until_ready("a", "last").await;
    assert_eq!(world.get("vmi", "a", "early")["metadata"]["uid"], early);
    let history = world.standin.history();
    assert!(history.iter().all(|record| record.vm == "last"));
    world
}

/// What this process, which is the stand-in and little more, has used so far; 0 but on Linux.
fn cpu_milliseconds() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let ticks = after_name.split_whitespace().skip(11).take(2);
    // User and system time, in ticks of 10 ms.
    ticks
        .filter_map(|ticks| ticks.parse::<u64>().ok())
        .sum::<u64>()
        * 10
}
