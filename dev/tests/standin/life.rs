//! A VM's life: it starts, stops, fails, waits, is edited, goes.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use dev::standin::{Event, GuestEnd, Knobs, Options, Refusal};
use serde_json::json;

use crate::world::{PATIENCE, World, disk, has_condition, ready_reason, vm};

#[tokio::test(flavor = "multi_thread")]
async fn vms_live_as_under_kubevirt() {
    let world = World::start(Options {
        backoff_scale: 0.02,
        ..Options::default()
    })
    .await;
    world.namespace("a").await;
    a_halted_vm_is_stopped_and_has_its_disk(&world).await;
    a_vm_starts_restarts_and_goes(&world).await;
    run_strategies(&world).await;
    failed_starts_back_off(&world).await;
    a_missing_secret_holds_the_vm(&world).await;
    edits_ask_for_a_restart(&world).await;
    orphans_are_adopted_and_left_pods_end(&world).await;
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
        json!({"standin.vmpool.dev/fail-start": "true"});
    world.apply(&bad);
    // The waits grow: later ones are long enough to be seen on a busy machine.
    world
        .until(("vm", "a", "bad"), |vm| {
            let failures = &vm["status"]["startFailure"]["consecutiveFailCount"];
            vm["status"]["printableStatus"] == "CrashLoopBackOff"
                && failures.as_u64().is_some_and(|failures| failures >= 2)
        })
        .await;
    let mended = Knobs {
        fail_start: Some(0),
        ..Knobs::default()
    };
    world.standin.set("a", "bad", mended);
    let vm = world.until_ready("a", "bad").await;
    assert!(vm["status"]["startFailure"].is_null());
    assert!(world.standin.count("a", "bad", Event::Failed) >= 2);
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

async fn a_hung_guest_takes_its_grace_period(world: &World) {
    eprintln!("a hung guest");
    let mut hung = vm("a", "hung", "Always");
    hung["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = json!(6);
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
    assert!(asked.elapsed() >= Duration::from_secs(6));
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
