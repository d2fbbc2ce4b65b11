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
        json!({"volumeUpdateState": {"volumeMigrationState": {}}}),
        json!({"memoryDumpRequest": {"claimName": "c", "phase": "InProgress"}}),
        json!({"conditions": [{"type": "ManualRecoveryRequired", "status": "True"}]}),
    ] {
        assert!(vm(status.clone()), "{status}");
    }
    for status in [
        json!({"snapshotInProgress": null, "volumeRequests": [], "volumeUpdateState": {}}),
        json!({"memoryDumpRequest": {"claimName": "c", "phase": "Completed"}}),
        json!("odd"),
    ] {
        assert!(!vm(status.clone()), "{status}");
    }
    let vmi = |status: serde_json::Value| {
        let vmi = object(json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
            "metadata": {"name": "a-1", "namespace": "t", "uid": "u"}, "status": status,
        }));
        VmiView::read(&vmi).unwrap().busy.is_some()
    };
    assert!(vmi(
        json!({"migrationState": {"startTimestamp": "2026-01-01T00:00:00Z"}})
    ));
    assert!(!vmi(json!({"migrationState": {
        "startTimestamp": "2026-01-01T00:00:00Z", "endTimestamp": "2026-01-01T00:01:00Z"
    }})));
    assert!(vmi(json!({"evacuationNodeName": "n"})));
    assert!(vmi(
        json!({"conditions": [{"type": "VolumesChange", "status": "True"}]})
    ));
    assert!(!vmi(
        json!({"conditions": [{"type": "LiveMigratable", "status": "True"}]})
    ));
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
