//! What the next VMs would wait for is named.

use serde_json::{Value, json};

use super::super::objects::Named;
use super::super::{validate_pool, validate_scale};
use super::http::reviewed;
use super::{Fake, body, config, pool, scale};

fn desktop() -> Value {
    let volumes = json!([
        {"name": "c", "configMap": {"name": "cfg"}},
        {"name": "p", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "s", "secret": {"secretName": "key"}},
    ]);
    config(
        "desktop",
        json!({"template": {"spec": {"volumes": volumes}}}),
    )
}

fn appending(replicas: u32) -> Value {
    pool(
        "web",
        json!({"replicas": replicas, "nameGeneration": {
            "appendPostfixToConfigMapReferences": true,
            "appendPostfixToSecretReferences": true,
            "appendPostfixToVolumeClaimReferences": true,
        }}),
    )
}

fn there(names: &[&str]) -> Fake {
    let named = |name: &&str| match name.split_once(':') {
        Some(("claim", name)) => Named::Claim(name.to_owned()),
        _ => Named::ConfigMap((*name).to_owned()),
    };
    Fake {
        configs: vec![desktop()],
        pools: vec![appending(1)],
        existing: Some(names.iter().map(named).collect()),
        ..Fake::default()
    }
}

async fn warnings(fake: &Fake, path: &str, review: &Value) -> Vec<String> {
    let response = reviewed(fake, path, review).await;
    assert_eq!(response["allowed"], true, "{response}");
    let warnings = response["warnings"].as_array().cloned().unwrap_or_default();
    warnings
        .iter()
        .filter_map(Value::as_str)
        .filter(|warning| warning.contains("not exist"))
        .map(str::to_owned)
        .collect()
}

#[tokio::test]
async fn what_the_next_vms_of_a_pool_lack_is_named_and_secrets_are_not_asked_for() {
    let fake = there(&["cfg-1", "claim:data-1", "claim:data-2"]);
    let new = body(&appending(2), &Value::Null);
    assert_eq!(
        warnings(&fake, validate_pool::PATH, &new).await,
        ["ConfigMap cfg-2 does not exist: the VMs that refer to it wait"]
    );
    let plain = body(&pool("web", json!({"replicas": 1})), &Value::Null);
    assert_eq!(
        warnings(&there(&[]), validate_pool::PATH, &plain).await,
        [
            "ConfigMap cfg does not exist: the VMs that refer to it wait",
            "PersistentVolumeClaim data does not exist: the VMs that refer to it wait",
        ]
    );
    // The first five are enough to see what is amiss.
    let many = body(&appending(1000), &Value::Null);
    let said = warnings(&there(&[]), validate_pool::PATH, &many).await;
    assert_eq!(
        said[0],
        "ConfigMap cfg-1, cfg-2, cfg-3, cfg-4, cfg-5 do not exist: the VMs that refer to them wait"
    );
}

#[tokio::test]
async fn growing_asks_for_what_is_new_and_shrinking_for_nothing() {
    let fake = there(&["cfg-3", "claim:data-3"]);
    for (path, review) in [
        (validate_pool::PATH, body(&appending(4), &appending(2))),
        (
            validate_scale::PATH,
            body(&scale("web", 4), &scale("web", 2)),
        ),
    ] {
        assert_eq!(
            warnings(&fake, path, &review).await,
            [
                "ConfigMap cfg-4 does not exist: the VMs that refer to it wait",
                "PersistentVolumeClaim data-4 does not exist: the VMs that refer to it wait",
            ],
            "{path}"
        );
    }
    let nobody = there(&[]);
    for (path, review) in [
        (validate_pool::PATH, body(&appending(1), &appending(2))),
        (
            validate_scale::PATH,
            body(&scale("web", 1), &scale("web", 2)),
        ),
    ] {
        assert_eq!(warnings(&nobody, path, &review).await, [""; 0], "{path}");
    }
    let down = Fake {
        is_down: true,
        ..there(&[])
    };
    let review = body(&appending(4), &appending(2));
    assert_eq!(warnings(&down, validate_pool::PATH, &review).await, [""; 0]);
}
