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
