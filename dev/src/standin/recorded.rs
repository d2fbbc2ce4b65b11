//! The decisions, held against objects that the real virt-controller wrote.
//!
//! The recordings are not part of the project: without them each test says so and passes.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::knobs::{Knobs, Options};
use super::names::NODE_NAME;
use super::object::{Obj, items};
use super::vm::{self, Disks, Next, Rules, Step};
use super::vmi::{self, Ages, Place};
use super::{pod, start, vm_status};

fn folder() -> Option<PathBuf> {
    let beside = |crds: std::ffi::OsString| PathBuf::from(crds).join("../objects");
    let folder = match std::env::var_os(crate::crds::KUBEVIRT_CRDS_ENV) {
        Some(crds) if !crds.is_empty() => beside(crds),
        _ => crate::workspace().join("../shared/kubevirt/objects"),
    };
    folder.is_dir().then_some(folder)
}

fn recorded(file: &str) -> Option<Value> {
    let Some(folder) = folder() else {
        eprintln!("skipped: no recorded objects on this machine");
        return None;
    };
    let text = std::fs::read_to_string(folder.join(file)).unwrap();
    Some(serde_saphyr::from_str(&text).unwrap())
}

/// The same object with every time replaced, since those differ by nature.
fn timeless(mut value: Value) -> Value {
    fn walk(value: &mut Value) {
        match value {
            Value::Object(map) => {
                for (key, value) in map.iter_mut() {
                    if value.is_string() && (key.ends_with("Time") || key.ends_with("Timestamp")) {
                        *value = json!("t");
                    }
                    walk(value);
                }
            }
            Value::Array(list) => list.iter_mut().for_each(walk),
            _ => {}
        }
    }
    walk(&mut value);
    value
}

const RULES: Rules = Rules {
    backoff_scale: 1.0,
    combine_writes: false,
    live_update: false,
};

fn vm_view<'a>(vm: &'a Value, vmi: Option<&'a Value>, disks: &'a Disks) -> vm::View<'a> {
    vm::View {
        vm,
        vmi,
        orphan: None,
        disks,
        started_from: None,
        rules: &RULES,
        now: Timestamp::UNIX_EPOCH,
    }
}

/// The recorded VM as its user left it.
fn bare(recorded: &Value) -> Value {
    let mut vm = recorded.clone();
    vm["status"] = Value::Null;
    vm
}

#[test]
fn a_halted_vm_has_the_recorded_status() {
    for file in ["vm-halted.yaml", "vm-halted-with-virt-api-webhooks.yaml"] {
        let Some(recorded) = recorded(file) else {
            return;
        };
        let vm = bare(&recorded);
        let disks = Disks::default();
        let view = vm_view(&vm, None, &disks);
        assert_eq!(vm::next(&view), Ok(Next::Rest), "{file}");
        assert_eq!(
            timeless(vm_status::status(&view, None)),
            timeless(recorded["status"].clone()),
            "{file}"
        );
        assert_eq!(
            vm::status_patch(&vm_view(&recorded, None, &disks), None),
            None,
            "{file} is at rest"
        );
    }
}

#[test]
fn starting_and_running_vms_have_the_recorded_status() {
    let cases = [
        ("vm-running.yaml", "vmi-running.yaml"),
        ("vm-starting.yaml", "vmi-scheduling-pod-pending.yaml"),
        (
            "vm-starting-with-virt-api-webhooks.yaml",
            "vmi-with-virt-api-webhooks.yaml",
        ),
    ];
    for (vm_file, vmi_file) in cases {
        let (Some(vm), Some(vmi)) = (recorded(vm_file), recorded(vmi_file)) else {
            return;
        };
        let mut started = vm["spec"].clone();
        if let Some(domain) = started["template"]["spec"]["domain"].as_object_mut()
            && vm["metadata"]["generation"] == 2
        {
            domain.remove("firmware");
        }
        let disks = Disks::default();
        let fresh = bare(&vm);
        let mut view = vm_view(&fresh, Some(&vmi), &disks);
        view.started_from = Some(&started);
        assert_eq!(
            timeless(vm_status::status(&view, None)),
            timeless(vm["status"].clone()),
            "{vm_file}"
        );
        let mut view = vm_view(&vm, Some(&vmi), &disks);
        view.started_from = Some(&started);
        if vm["metadata"]["generation"] == 2 {
            assert_eq!(vm::next(&view), Ok(Next::Rest), "{vm_file}");
        }
        assert_eq!(vm::status_patch(&view, None), None, "{vm_file} is at rest");
    }
}

#[test]
fn a_failed_start_has_the_recorded_status() {
    let Some(recorded) = recorded("vm-crashloop.json") else {
        return;
    };
    let disks = Disks::default();
    let mut vm = recorded.clone();
    if let Some(status) = vm["status"].as_object_mut() {
        status.remove("startFailure");
        status.remove("printableStatus");
    }
    let uid = &recorded["status"]["startFailure"]["lastFailedVMIUID"];
    let vmi = json!({
        "metadata": {"name": "victim", "uid": uid,
                     "annotations": {"kubevirt.io/vm-generation": "1"}},
        "status": {"phase": "Failed"},
    });
    let failed = vm_status::status(&vm_view(&vm, Some(&vmi), &disks), None);
    assert_eq!(
        timeless(failed["startFailure"].clone()),
        timeless(recorded["status"]["startFailure"].clone())
    );
    vm["status"] = failed;
    assert_eq!(
        timeless(vm_status::status(&vm_view(&vm, None, &disks), None)),
        timeless(recorded["status"].clone())
    );
    let mut view = vm_view(&recorded, None, &disks);
    view.now = "2026-11-30T13:10:20Z".parse().unwrap();
    assert_eq!(vm::next(&view), Ok(Next::Wait(Duration::from_secs(5))));
    view.now = "2026-11-30T13:10:25Z".parse().unwrap();
    assert_eq!(vm::next(&view), Ok(Next::Do(Step::Start)));
}

/// The recorded running VM as it was when it was started: without firmware UUID, generation 1.
fn at_start(recorded: &Value) -> Value {
    let mut vm = bare(recorded);
    vm["metadata"]["generation"] = json!(1);
    if let Some(domain) = vm["spec"]["template"]["spec"]["domain"].as_object_mut() {
        domain.remove("firmware");
    }
    vm
}

#[test]
fn the_instance_and_revision_of_a_start_are_the_recorded_ones() {
    let (Some(vm), Some(vmi), Some(revisions)) = (
        recorded("vm-running.yaml"),
        recorded("vmi-running.yaml"),
        recorded("controllerrevisions-running.yaml"),
    ) else {
        return;
    };
    let vm = at_start(&vm);
    let made = start::vmi(&vm, false);
    assert_eq!(made["spec"], vmi["spec"]);
    for field in ["annotations", "name", "namespace", "ownerReferences"] {
        assert_eq!(made["metadata"][field], vmi["metadata"][field], "{field}");
    }
    assert_eq!(
        made["status"]["virtualMachineRevisionName"],
        vmi["status"]["virtualMachineRevisionName"]
    );
    let revision = start::revision(&vm);
    let real = &items(&revisions["items"])[0];
    assert_eq!(revision["data"], real["data"]);
    assert_eq!(revision["revision"], real["revision"]);
    assert_eq!(revision["metadata"]["name"], real["metadata"]["name"]);
}

#[test]
fn a_data_volume_of_a_template_is_the_recorded_one() {
    let Some(recorded) = recorded("dv-from-template.yaml") else {
        return;
    };
    let vm = json!({
        "metadata": {
            "name": "p-0", "namespace": "g2", "uid": recorded["metadata"]["labels"]["kubevirt.io/created-by"],
            "finalizers": [super::names::VM_FINALIZER],
            "annotations": {"kubevirt.io/latest-observed-api-version": "v1",
                            "kubevirt.io/storage-observed-api-version": "v1"}},
        "spec": {"runStrategy": "Halted",
                 "dataVolumeTemplates": [{"metadata": {"name": "root-0"}, "spec": recorded["spec"]}],
                 "template": {"spec": {"domain": {}}}},
    });
    let disks = Disks::default();
    let Ok(Next::Do(Step::CreateDataVolume(made))) = vm::next(&vm_view(&vm, None, &disks)) else {
        panic!("expected a new DataVolume, although the VM is halted");
    };
    assert_eq!(made["spec"], recorded["spec"]);
    for field in [
        "annotations",
        "labels",
        "name",
        "namespace",
        "ownerReferences",
    ] {
        assert_eq!(
            made["metadata"][field], recorded["metadata"][field],
            "{field}"
        );
    }
}

#[test]
fn a_launcher_pod_has_the_recorded_labels() {
    let (Some(vmi), Some(pods)) = (recorded("vmi-running.yaml"), recorded("launcher-pod.yaml"))
    else {
        return;
    };
    let real = &items(&pods["items"])[0];
    let made = pod::launcher(&vmi, Some("fake-node-1"));
    let mut labels = real["metadata"]["labels"].clone();
    labels.as_object_mut().unwrap().remove(NODE_NAME);
    assert_eq!(made["metadata"]["labels"], labels);
    for field in ["generateName", "namespace", "ownerReferences"] {
        assert_eq!(made["metadata"][field], real["metadata"][field], "{field}");
    }
    for (key, value) in made["metadata"]["annotations"].as_object().unwrap() {
        assert_eq!(real["metadata"]["annotations"][key], *value, "{key}");
    }
    for field in [
        "automountServiceAccountToken",
        "enableServiceLinks",
        "hostname",
        "nodeSelector",
        "readinessGates",
        "restartPolicy",
        "terminationGracePeriodSeconds",
    ] {
        assert_eq!(made["spec"][field], real["spec"][field], "{field}");
    }
}

/// Plays a VMI's steps in memory, to its rest, and returns it.
fn play(mut vmi: Value, mut pods: Vec<Obj>) -> Value {
    let options = Options {
        boot: Duration::ZERO,
        ..Options::default()
    };
    let (disks, knobs) = (Disks::default(), Knobs::default());
    let place = || Place::Node("fake-node-1".to_owned());
    for _ in 0..20 {
        let view = vmi::View {
            vmi: &vmi,
            has_vm: true,
            failed_starts: 0,
            pods: &pods,
            disks: &disks,
            missing: &[],
            place: &place,
            node_lost: false,
            knobs: &knobs,
            options: &options,
            end: None,
            ages: Ages::default(),
            now: Timestamp::UNIX_EPOCH,
        };
        match vmi::next(&view) {
            vmi::Next::Rest => return vmi,
            vmi::Next::Wait(_) => panic!("nothing takes time here"),
            vmi::Next::Do(vmi::Step::Patch(patch)) => vmi = patch.applied_to(&vmi),
            vmi::Next::Do(vmi::Step::CreatePod(mut pod)) => {
                pod["metadata"]["name"] = json!("pod");
                pod["metadata"]["uid"] = json!("4a52ab37-8237-4de6-b108-9c3a8a251522");
                pod["status"] = json!({"phase": "Pending", "qosClass": "Burstable"});
                pods.push(Arc::new(pod));
            }
            vmi::Next::Do(vmi::Step::ReportPod(_, status)) => {
                let mut pod = pods[0].as_ref().clone();
                for (key, value) in status.as_object().unwrap() {
                    pod["status"][key] = value.clone();
                }
                pods[0] = Arc::new(pod);
            }
            vmi::Next::Do(other) => panic!("unexpected {other:?}"),
        }
    }
    panic!("no rest");
}

#[test]
fn an_instance_comes_to_the_recorded_state() {
    let (Some(vm), Some(real)) = (recorded("vm-running.yaml"), recorded("vmi-running.yaml")) else {
        return;
    };
    let mut vmi = start::vmi(&at_start(&vm), false);
    vmi["metadata"]["uid"] = real["metadata"]["uid"].clone();
    vmi["metadata"]["resourceVersion"] = json!("1");
    let played = play(vmi, Vec::new());
    assert_eq!(played["metadata"]["labels"], real["metadata"]["labels"]);
    for field in [
        "activePods",
        "nodeName",
        "phase",
        "migrationTransport",
        "volumeStatus",
    ] {
        assert_eq!(played["status"][field], real["status"][field], "{field}");
    }
    assert_eq!(
        timeless(played["status"]["conditions"].clone()),
        timeless(real["status"]["conditions"].clone())
    );
    let keys = |object: &Value| -> BTreeSet<String> {
        object.as_object().unwrap().keys().cloned().collect()
    };
    let (played, real) = (keys(&played["status"]), keys(&real["status"]));
    let absent: Vec<_> = real.difference(&played).collect();
    assert_eq!(absent, ["memory"], "the launcher's overhead is not played");
    assert!(played.is_subset(&real), "{played:?}");
}
