use kube::core::DynamicObject;
use serde_json::json;

use super::*;

fn object(value: serde_json::Value) -> DynamicObject {
    serde_json::from_value(value).unwrap()
}

#[test]
fn run_strategy_understands_the_deprecated_field() {
    assert_eq!(
        RunStrategy::of(&json!({"running": true})),
        RunStrategy::Always
    );
    assert_eq!(
        RunStrategy::of(&json!({"running": false})),
        RunStrategy::Halted
    );
    assert_eq!(RunStrategy::of(&json!({})), RunStrategy::Halted);
    assert_eq!(
        RunStrategy::of(&json!({"runStrategy": "WaitAsReceiver"})),
        RunStrategy::Other("WaitAsReceiver".to_owned())
    );
}

#[test]
fn kubevirts_own_pool_is_not_ours() {
    let vm = object(json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
        "metadata": {"name": "a-1", "namespace": "t", "uid": "u", "ownerReferences": [
            {"apiVersion": "pool.kubevirt.io/v1beta1", "kind": "VirtualMachinePool", "name": "a", "uid": "p", "controller": true}
        ]},
        "spec": {"runStrategy": 5, "dataVolumeTemplates": [null, {"metadata": {"name": "x"}}]}, "status": "odd"
    }));
    let view = VmView::read(&vm).unwrap();
    assert!(!view.is_member_of("p"));
    assert_eq!(view.run_strategy, RunStrategy::Halted);
}

#[test]
fn who_is_busy_is_left_alone() {
    let vm = |status: serde_json::Value| {
        let vm = object(json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
            "metadata": {"name": "a-1", "namespace": "t", "uid": "u"}, "status": status,
        }));
        VmView::read(&vm).unwrap().busy.is_some()
    };
    for status in [
        json!({"snapshotInProgress": "s"}),
        json!({"restoreInProgress": "r"}),
        json!({"volumeRequests": [{}]}),
        json!({"memoryDumpRequest": {"claimName": "c", "phase": "InProgress"}}),
        json!({"conditions": [{"type": "ManualRecoveryRequired", "status": "True"}]}),
    ] {
        assert!(vm(status.clone()), "{status}");
    }
    for status in [
        json!({"snapshotInProgress": null, "volumeRequests": []}),
        // It stays after the volumes have been migrated.
        json!({"volumeUpdateState": {"volumeMigrationState": {"migratedVolumes": [{}]}}}),
        json!({"memoryDumpRequest": {"claimName": "c", "phase": "Completed"}}),
        json!("odd"),
    ] {
        assert!(!vm(status.clone()), "{status}");
    }
}

#[test]
fn an_instance_is_busy_with_what_ends_and_not_with_what_only_a_restart_ends() {
    let vmi = |status: &serde_json::Value| {
        let vmi = object(json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
            "metadata": {"name": "a-1", "namespace": "t", "uid": "u"}, "status": status,
        }));
        VmiView::read(&vmi).unwrap()
    };
    let start = "2026-01-01T00:00:00Z";
    let is = |kind: &str, status: &str| json!({"type": kind, "status": status});
    let backup = |completed| json!({"backupStatus": {"backupName": "b", "completed": completed}});
    for status in [
        json!({"migrationState": {"startTimestamp": start}}),
        json!({"evacuationNodeName": "n"}),
        json!({"conditions": [is("VolumesChange", "True")]}),
        json!({"changedBlockTracking": backup(false)}),
        json!({"fsFreezeStatus": "frozen"}),
    ] {
        assert!(vmi(&status).busy.is_some(), "{status}");
    }
    for status in [
        json!({"migrationState": {"startTimestamp": start, "endTimestamp": start}}),
        json!({"evacuationNodeName": "n", "conditions": [is("LiveMigratable", "False")]}),
        json!({"conditions": [is("LiveMigratable", "True"), is("HotVCPUChange", "True")]}),
        json!({"changedBlockTracking": backup(true)}),
        json!("odd"),
    ] {
        assert_eq!(vmi(&status).busy, None, "{status}");
    }
}

#[test]
fn a_claim_with_a_machines_state_is_known_by_its_label_or_its_name() {
    let claim = |name: &str, labels: serde_json::Value| {
        let claim = object(json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": "t", "uid": "u", "labels": labels},
        }));
        DiskView::read(&claim.metadata, "Bound")
            .unwrap()
            .persistent_state_for
    };
    let label = json!({"persistent-state-for": "web-2"});
    let labelled = claim("persistent-state-for-web-2-x7k2p", label);
    assert_eq!(labelled.as_deref(), Some("web-2"));
    let by_name = claim("persistent-state-for-web-1", json!({}));
    assert_eq!(by_name.as_deref(), Some("web-1"));
    assert_eq!(claim("web-1-root", json!({})), None);
}

#[test]
fn what_is_plugged_by_a_migration_is_not_plugged_where_there_can_be_none() {
    let plug = |conditions: serde_json::Value| {
        let vmi = object(json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
            "metadata": {"name": "a-1", "namespace": "t", "uid": "u"}, "status": {"conditions": conditions},
        }));
        VmiView::read(&vmi).unwrap().plug
    };
    let condition = |kind: &str, status: &str| json!({"type": kind, "status": status});
    let migratable = condition("LiveMigratable", "True");
    let fixed = condition("LiveMigratable", "False");
    assert_eq!(plug(json!([fixed])), None);
    for kind in ["HotVCPUChange", "HotMemoryChange"] {
        let hot = condition(kind, "True");
        assert_eq!(plug(json!([hot])), Some(Plug::Pending));
        assert_eq!(plug(json!([hot, migratable])), Some(Plug::Pending));
        assert_eq!(plug(json!([hot, fixed])), Some(Plug::Impossible));
        let done = condition(kind, "False");
        assert_eq!(plug(json!([done, fixed])), None);
    }
}
