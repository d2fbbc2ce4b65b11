//! What `kubectl scale` and an autoscaler may write.

use std::sync::Arc;

use serde_json::{Value, json};

use super::super::objects::{Lookup, Unavailable};
use super::super::validate_scale::{asks_for_a_second, review};
use super::super::{validate_pool, verdict::Verdict};
use super::{config, fields, pool, request, scale};
use crate::api::VirtualMachinePool;

type Known = Lookup<Option<Arc<VirtualMachinePool>>>;

#[expect(clippy::unnecessary_wraps, reason = "it is what a review takes")]
fn known(pool: Value) -> Known {
    Ok(Some(Arc::new(serde_json::from_value(pool).unwrap())))
}

fn scaled(pool: &Known, from: i64, to: i64) -> Verdict {
    review(
        &request(&scale("web", to), &scale("web", from)),
        pool,
        &Ok(None),
    )
}

#[test]
fn vd_01_the_bounds_are_those_of_an_edit() {
    let web = known(pool("web", json!({"replicas": 3})));
    for (replicas, refused) in [
        (-1, true),
        (0, false),
        (4, false),
        (100_000, false),
        (100_001, true),
        (2_147_483_647, true),
    ] {
        let verdict = scaled(&web, 3, replicas);
        assert_eq!(!verdict.causes.is_empty(), refused, "{replicas}");
        let edited = validate_pool::review(
            &request(
                &pool("web", json!({"replicas": replicas})),
                &pool("web", json!({"replicas": 3})),
            ),
            &validate_pool::Facts::none(),
        );
        assert_eq!(edited.causes, verdict.causes, "{replicas}");
    }
}

#[test]
fn nr_07_a_pool_whose_names_do_not_fit_is_not_scaled_out() {
    let name = "p".repeat(61);
    let stored = known(pool(&name, json!({"replicas": 3})));
    let scaled = |from, to| {
        let request = request(&scale(&name, to), &scale(&name, from));
        review(&request, &stored, &Ok(None))
    };
    let out = scaled(3, 11);
    assert_eq!(fields(&out), ["spec.replicas"]);
    assert!(
        out.causes[0].message.contains("at most 56"),
        "{}",
        out.causes[0]
    );
    assert!(scaled(3, 2).causes.is_empty(), "fewer is no worse");
}

#[test]
fn vd_02_a_scale_without_replicas_is_one_to_zero() {
    let mut object = scale("web", 3);
    object["spec"] = json!({});
    let verdict = review(
        &request(&object, &scale("web", 3)),
        &known(pool("web", json!({}))),
        &Ok(None),
    );
    assert_eq!(verdict, Verdict::allowed());
    for odd in [json!("3"), json!(2.5), json!({}), json!(true)] {
        object["spec"] = json!({"replicas": odd});
        let verdict = review(&request(&object, &scale("web", 3)), &Ok(None), &Ok(None));
        assert_eq!(fields(&verdict), ["spec.replicas"]);
    }
}

#[test]
fn a_pool_that_is_not_known_does_not_stop_an_autoscaler() {
    let down = Err(Unavailable {
        what: "pool web".to_owned(),
        why: "no answer within 3 s".to_owned(),
    });
    let verdict = scaled(&down, 3, 4);
    assert!(verdict.causes.is_empty());
    assert_eq!(verdict.warnings.len(), 1);
    assert!(!scaled(&down, 3, -4).causes.is_empty());
    assert_eq!(scaled(&Ok(None), 3, 4), Verdict::allowed());
}

#[test]
fn vd_01_a_second_vm_of_a_config_that_bears_one_is_refused_as_by_an_edit() {
    let bears_one = config(
        "desktop",
        json!({"dataVolumeTemplates": [{
            "metadata": {"name": "root"},
            "spec": {"storage": {"volumeName": "pv-7"}, "source": {"blank": {}}},
        }]}),
    );
    let config = Ok(Some(Arc::new(serde_json::from_value(bears_one).unwrap())));
    let web = known(pool("web", json!({"replicas": 1})));
    let request = request(&scale("web", 2), &scale("web", 1));
    let verdict = review(&request, &web, &config);
    assert_eq!(fields(&verdict), ["spec.replicas"]);
    assert!(verdict.causes[0].message.contains("pv-7"), "{verdict:?}");
    let edited = validate_pool::review(
        &super::request(
            &pool("web", json!({"replicas": 2})),
            &pool("web", json!({"replicas": 1})),
        ),
        &validate_pool::Facts {
            config,
            ..validate_pool::Facts::none()
        },
    );
    assert_eq!(edited.causes, verdict.causes);
}

#[test]
fn the_config_matters_only_to_the_second_vm() {
    for (from, to, asks) in [
        (0, 1, false),
        (0, 2, true),
        (1, 2, true),
        (1, 5, true),
        (2, 3, false),
        (5, 2, false),
        (3, 0, false),
    ] {
        let request = request(&scale("web", to), &scale("web", from));
        assert_eq!(asks_for_a_second(&request), asks, "{from} to {to}");
    }
}
