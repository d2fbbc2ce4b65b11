//! Which pools are refused, and what is said of those that aren't.

use kube::CustomResourceExt as _;
use serde_json::{Value, json};

use super::super::objects::VmName;
use super::super::validate_pool::{Facts, questions, review};
use super::super::verdict::Verdict;
use super::{Fake, config, create, fields, pool, request};
use crate::api::VirtualMachinePool;

fn facts(fake: &Fake) -> Facts {
    Facts {
        config: Ok(fake.config("desktop")),
        pools: Ok(fake.pools()),
        vms: Some(Ok(fake.vms.clone())),
    }
}

/// A namespace with the config `desktop` of that spec.
fn with_config(spec: Value) -> Fake {
    Fake {
        configs: vec![config("desktop", spec)],
        ..Fake::default()
    }
}

fn created(spec: Value) -> Verdict {
    let mut quiet = json!({"updateStrategy": {"unmanaged": {}}});
    super::merge(&mut quiet, spec);
    review(
        &create(&pool("web", quiet)),
        &facts(&with_config(json!({}))),
    )
}

#[test]
fn m64_a_pool_with_newest_policies_is_accepted_and_keeping_state_is_not_yet() {
    let newest = json!({"selectionPolicy": {"basePolicy": "Newest"}});
    let spec = json!({
        "replicas": 3, "maxUnavailable": "25%",
        "updateStrategy": {"unmanaged": null, "proactive": newest},
        "scaleInStrategy": {"proactive": newest},
    });
    let verdict = created(spec.clone());
    assert!(verdict.causes.is_empty(), "{:?}", verdict.causes);
    assert!(
        matches!(&*verdict.warnings, [warning] if warning.contains("readinessProbe")),
        "{:?}",
        verdict.warnings
    );
    let mut keeping = spec;
    keeping["scaleInStrategy"]["proactive"]["statePreservation"] = json!("Online");
    assert_eq!(
        fields(&created(keeping)),
        ["spec.scaleInStrategy.proactive.statePreservation"]
    );
}

#[test]
fn what_is_not_built_yet_is_refused_with_its_exact_path() {
    let ordered = json!({"orderedPolicies": [{"state": "Ready"}]});
    for (spec, path) in [
        (
            json!({"updateStrategy": {"unmanaged": null, "proactive": {"partition": 1}}}),
            "updateStrategy.proactive.partition",
        ),
        (
            json!({"updateStrategy": {"unmanaged": null, "proactive": {"partition": "1%"}}}),
            "updateStrategy.proactive.partition",
        ),
        (
            json!({"updateStrategy": {"unmanaged": null, "proactive": {"onDiskTemplateChange": "Reprovision"}}}),
            "updateStrategy.proactive.onDiskTemplateChange",
        ),
        (
            json!({"updateStrategy": {"unmanaged": null, "proactive": {"selectionPolicy": ordered}}}),
            "updateStrategy.proactive.selectionPolicy.orderedPolicies",
        ),
        (
            json!({"scaleInStrategy": {"opportunistic": {}}}),
            "scaleInStrategy.opportunistic",
        ),
        (
            json!({"scaleInStrategy": {"proactive": {"selectionPolicy": ordered}}}),
            "scaleInStrategy.proactive.selectionPolicy.orderedPolicies",
        ),
        (
            json!({"scaleInStrategy": {"proactive": {"statePreservation": "Offline"}}}),
            "scaleInStrategy.proactive.statePreservation",
        ),
        (json!({"autohealing": {}}), "autohealing"),
        (
            json!({"preservedDisks": {"whenPoolDeleted": "Retain"}}),
            "preservedDisks.whenPoolDeleted",
        ),
        (
            json!({"preservedDisks": {"expireAfter": "720h"}}),
            "preservedDisks.expireAfter",
        ),
    ] {
        let verdict = created(spec.clone());
        assert_eq!(fields(&verdict), [format!("spec.{path}")], "{spec}");
        assert_eq!(verdict.causes[0].message, "not supported yet");
        let said = explained(path);
        assert!(said.contains("Not supported yet"), "{path}: {said}");
    }
}

/// What `kubectl explain` says of a field of the spec.
fn explained(path: &str) -> String {
    let crd = serde_json::to_value(VirtualMachinePool::crd()).unwrap();
    let spec = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    let field = path
        .split('.')
        .fold(spec, |schema, field| &schema["properties"][field]);
    field["description"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn what_is_built_or_asks_for_nothing_is_accepted() {
    for spec in [
        json!({}),
        json!({"updateStrategy": {"unmanaged": null}}),
        json!({"updateStrategy": {"unmanaged": null, "proactive": {}}}),
        json!({"updateStrategy": {"unmanaged": null, "proactive": {"partition": 0, "onDiskTemplateChange": "Keep"}}}),
        json!({"updateStrategy": {"unmanaged": null, "proactive": {"partition": "0%"}}}),
        json!({"scaleInStrategy": {}}),
        json!({"scaleInStrategy": {"unmanaged": {}}}),
        json!({"scaleInStrategy": {"proactive": {"statePreservation": "Disabled"}}}),
        json!({"scaleInStrategy": {"proactive": {"selectionPolicy": {"basePolicy": "HighestOrdinal", "orderedPolicies": []}}}}),
        json!({"preservedDisks": {}}),
        json!({"paused": true, "minReadySeconds": 30, "maxUnavailable": 2}),
        json!({"updateStrategy": {"unmanaged": null, "opportunistic": {}}}),
        json!({"progressDeadlineSeconds": 600}),
        json!({"config": {"revision": "desktop-bcdfghjklm"}}),
    ] {
        let verdict = created(spec.clone());
        assert!(verdict.causes.is_empty(), "{spec}: {:?}", verdict.causes);
    }
}

#[test]
fn vd_08_absent_empty_and_proactive_are_one_and_say_nothing() {
    let base = pool("web", json!({"replicas": 1}));
    let facts = facts(&with_config(json!({})));
    for strategy in [json!({}), json!({"proactive": {}})] {
        let object = pool("web", json!({"updateStrategy": strategy}));
        let verdict = review(&create(&object), &facts);
        assert!(verdict.warnings.is_empty(), "{:?}", verdict.warnings);
        let scaled = pool("web", json!({"updateStrategy": strategy, "replicas": 4}));
        assert!(
            review(&request(&scaled, &object), &facts)
                .warnings
                .is_empty()
        );
        assert!(review(&request(&object, &base), &facts).warnings.is_empty());
    }
    let unmanaged = pool("web", json!({"updateStrategy": {"unmanaged": {}}}));
    assert!(review(&create(&unmanaged), &facts).warnings.is_empty());
}

#[test]
fn vd_09_replicas_have_stated_bounds() {
    for (replicas, refused) in [
        (json!(-1), true),
        (json!(0), false),
        (json!(null), false),
        (json!(100_000), false),
        (json!(100_001), true),
        (json!(2_147_483_647), true),
    ] {
        let verdict = created(json!({"replicas": replicas}));
        assert_eq!(!verdict.causes.is_empty(), refused, "{replicas}");
    }
}

#[test]
fn nr_07_names_that_fit_until_something_is_added_are_refused_with_the_budget() {
    let judged = |name: &str, spec: Value| {
        review(&create(&pool(name, spec)), &facts(&with_config(json!({}))))
    };
    let long = judged(&"p".repeat(61), json!({"replicas": 3}));
    assert_eq!(fields(&long), ["spec.nameGeneration.vmPrefix"]);
    assert!(long.causes[0].message.contains("61 characters; at most 56"));
    let dotted = judged("db.prod", json!({}));
    assert_eq!(fields(&dotted), ["spec.nameGeneration.vmPrefix"]);
    assert!(dotted.causes[0].message.starts_with("has to be set"));
    let named = json!({"nameGeneration": {"vmPrefix": "db"}});
    assert!(judged("db.prod", named.clone()).causes.is_empty());
    let label = judged(&"p".repeat(64), named);
    assert_eq!(fields(&label), ["metadata.name"]);
    let config = created(json!({"config": {"name": "c".repeat(53)}}));
    assert_eq!(fields(&config), ["spec.config.name"]);
    assert!(config.causes[0].message.contains("at most 52"));
}

#[test]
fn nr_07_disk_names_have_to_fit_too() {
    let template = json!({"metadata": {"name": "d".repeat(30)}, "spec": {}});
    let fake = with_config(json!({"dataVolumeTemplates": [template]}));
    let judged = |prefix: &str| {
        let object = pool("web", json!({"nameGeneration": {"vmPrefix": prefix}}));
        review(&create(&object), &facts(&fake))
    };
    assert!(judged(&"p".repeat(25)).causes.is_empty());
    let refused = judged(&"p".repeat(26));
    assert_eq!(fields(&refused), ["spec.nameGeneration.vmPrefix"]);
    assert!(
        refused.causes[0].message.contains("at most 29"),
        "{}",
        refused.causes[0]
    );
}

#[test]
fn two_pools_of_one_prefix_are_refused() {
    let mut fake = with_config(json!({}));
    fake.pools = vec![
        pool("other", json!({"nameGeneration": {"vmPrefix": "web"}})),
        pool("web", json!({})),
    ];
    let object = pool("web", json!({}));
    let verdict = review(&create(&object), &facts(&fake));
    assert_eq!(fields(&verdict), ["spec.nameGeneration.vmPrefix"]);
    assert!(verdict.causes[0].message.contains("pool other"));
    fake.pools[0]["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert!(review(&create(&object), &facts(&fake)).causes.is_empty());
}

#[test]
fn names_of_vms_that_exist_are_a_warning() {
    let vm = |ordinal: u32, uid: Option<&str>| VmName {
        name: format!("web-{ordinal}"),
        ordinal,
        pool_uid: uid.map(str::to_owned),
    };
    let mut fake = with_config(json!({}));
    fake.vms = vec![
        vm(9, None),
        vm(2, Some("another")),
        vm(1, Some("uid-of-web")),
        vm(3, None),
    ];
    let object = pool(
        "web",
        json!({"replicas": 3, "updateStrategy": {"unmanaged": {}}}),
    );
    let verdict = review(&create(&object), &facts(&fake));
    assert!(verdict.causes.is_empty());
    assert_eq!(
        verdict.warnings,
        ["VirtualMachine web-2, web-3 exist and are not this pool's: their numbers are skipped"]
    );
}

#[test]
fn a_config_that_does_not_exist_is_a_warning() {
    let object = pool("web", json!({"updateStrategy": {"unmanaged": {}}}));
    let verdict = review(&create(&object), &facts(&Fake::default()));
    assert!(verdict.causes.is_empty());
    assert!(verdict.warnings[0].contains("\"desktop\" does not exist"));
}

#[test]
fn what_only_one_vm_can_have_is_refused_for_two() {
    let fake = with_config(json!({"dataVolumeTemplates": [
        {"metadata": {"name": "root"}, "spec": {"pvc": {"volumeName": "pv-1"}}},
    ]}));
    let sized = |replicas: u32| pool("web", json!({"replicas": replicas}));
    assert!(review(&create(&sized(1)), &facts(&fake)).causes.is_empty());
    let refused = review(&request(&sized(2), &sized(1)), &facts(&fake));
    assert_eq!(fields(&refused), ["spec.replicas"]);
    assert!(
        refused.causes[0]
            .message
            .contains("spec.dataVolumeTemplates[0].spec.pvc.volumeName"),
        "{}",
        refused.causes[0]
    );
    assert!(
        review(&request(&sized(3), &sized(2)), &facts(&fake))
            .causes
            .is_empty(),
        "stored like that, it is no worse"
    );
}

#[test]
fn a_claim_that_several_vms_would_write_to_is_a_warning() {
    let fake = with_config(json!({"template": {"spec": {
        "domain": {"devices": {"disks": [{"name": "data", "disk": {}}]}},
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
    }}}));
    let judged = |names: Value| {
        let object = pool(
            "web",
            json!({"replicas": 2, "updateStrategy": {"unmanaged": {}}, "nameGeneration": names}),
        );
        review(&create(&object), &facts(&fake)).warnings
    };
    assert_eq!(judged(json!({})).len(), 1);
    assert!(judged(json!({"appendPostfixToVolumeClaimReferences": true})).is_empty());
}

#[test]
fn a_budget_that_is_written_down_is_no_better_than_the_readiness_that_it_counts() {
    let probed = json!({"template": {"spec": {"domain": {}, "readinessProbe": {"tcpSocket": {"port": 22}}}}});
    let null = json!({"template": {"spec": {"domain": {}, "readinessProbe": null}}});
    let judged = |config: &Value, spec: Value| {
        let object = pool("web", spec);
        review(&create(&object), &facts(&with_config(config.clone()))).warnings
    };
    let careful = json!({"replicas": 2, "maxUnavailable": 1});
    for config in [json!({}), null] {
        let warnings = judged(&config, careful.clone());
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(
            warnings[0].starts_with("spec.maxUnavailable: ")
                && warnings[0].contains("\"desktop\" has no readinessProbe"),
            "{warnings:?}"
        );
    }
    assert!(judged(&probed, careful.clone()).is_empty());
    // Nobody has written a budget down, it is kept to by nobody, or there is nothing to share.
    for other in [
        json!({"replicas": 2}),
        json!({"replicas": 1, "maxUnavailable": 1}),
        json!({"replicas": 2, "maxUnavailable": 1, "updateStrategy": {"opportunistic": {}}}),
        json!({"replicas": 2, "maxUnavailable": 1, "updateStrategy": {"unmanaged": {}}}),
    ] {
        assert!(judged(&json!({}), other.clone()).is_empty(), "{other}");
    }
    for same in [json!({}), json!({"proactive": {}})] {
        let mut spec = careful.clone();
        spec["updateStrategy"] = same;
        assert_eq!(judged(&json!({}), spec).len(), 1);
    }
    // And it is said once.
    let again = request(
        &pool("web", json!({"replicas": 3, "maxUnavailable": 1})),
        &pool("web", careful),
    );
    let warnings = review(&again, &facts(&with_config(json!({})))).warnings;
    assert!(warnings.is_empty(), "{warnings:?}");
}

#[test]
fn nr_03_metadata_and_shared_names_are_checked() {
    let verdict = created(json!({
        "virtualMachineMetadata": {
            "labels": {"vmpool.dev/pool": "x", "kubevirt.io/nodeName": "n", "ok": "yes", "bad": "not ok"},
            "annotations": {"vmpool.dev/stamp": "x", "fine": "anything at all"},
        },
        "nameGeneration": {
            "sharedSecrets": ["keys", "Not-A-Name"], "sharedConfigMaps": [""], "sharedVolumeClaims": ["a.b"],
        },
    }));
    assert_eq!(
        fields(&verdict),
        [
            "spec.virtualMachineMetadata.labels[bad]",
            "spec.virtualMachineMetadata.labels[kubevirt.io/nodeName]",
            "spec.virtualMachineMetadata.labels[vmpool.dev/pool]",
            "spec.virtualMachineMetadata.annotations[vmpool.dev/stamp]",
            "spec.nameGeneration.sharedSecrets[1]",
            "spec.nameGeneration.sharedConfigMaps[0]",
        ]
    );
}

#[test]
fn vd_03_stored_faults_do_not_stand_in_the_way() {
    let stored = pool(&"p".repeat(61), json!({"replicas": 3, "autohealing": {}}));
    let facts = facts(&with_config(json!({})));
    let edit = |change: Value| {
        let mut object = stored.clone();
        super::merge(&mut object, change);
        review(&request(&object, &stored), &facts)
    };
    let finalizers = json!({"metadata": {"finalizers": null, "labels": {"a": "b"}}});
    assert_eq!(edit(finalizers), Verdict::allowed());
    assert!(edit(json!({"spec": {"paused": true}})).causes.is_empty());
    assert!(edit(json!({"spec": {"replicas": 2}})).causes.is_empty());
    assert_eq!(
        fields(&edit(
            json!({"spec": {"replicas": 4, "preservedDisks": {"expireAfter": "1h"}}})
        )),
        ["spec.preservedDisks.expireAfter", "spec.replicas"]
    );
    let going = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"replicas": -4}});
    assert_eq!(edit(going), Verdict::allowed());
}

#[test]
fn the_prefix_stays_while_there_are_vms_also_where_it_is_the_pools_name() {
    let mut stored = pool("web", json!({}));
    stored["status"] = json!({"replicas": 2});
    let renamed = |prefix: &str, members: i64| {
        let mut stored = stored.clone();
        stored["status"]["replicas"] = json!(members);
        let mut object = stored.clone();
        object["spec"]["nameGeneration"] = json!({"vmPrefix": prefix});
        review(&request(&object, &stored), &facts(&with_config(json!({}))))
    };
    assert_eq!(fields(&renamed("db", 2)), ["spec.nameGeneration.vmPrefix"]);
    assert!(renamed("db", 0).causes.is_empty());
    assert!(
        renamed("web", 2).causes.is_empty(),
        "the same, written down"
    );
}

#[test]
fn what_can_not_be_looked_up_is_admitted_with_a_warning() {
    let down = super::super::objects::Unavailable {
        what: "config desktop".to_owned(),
        why: "no answer within 3 s".to_owned(),
    };
    let facts = Facts {
        config: Err(down.clone()),
        pools: Err(down.clone()),
        vms: Some(Err(down)),
    };
    let stored = pool("web", json!({"updateStrategy": {"unmanaged": {}}}));
    let verdict = review(&create(&stored), &facts);
    assert!(verdict.causes.is_empty());
    assert_eq!(verdict.warnings.len(), 1, "{:?}", verdict.warnings);
    let mut object = stored.clone();
    object["spec"]["paused"] = json!(true);
    assert_eq!(
        review(&request(&object, &stored), &facts).warnings.len(),
        1,
        "a doubt is no less one because the stored object has it too"
    );
}

#[test]
fn vms_are_asked_for_where_a_name_is_new() {
    let stored = pool("web", json!({"replicas": 3}));
    let asked = |spec: Value| {
        let object = pool("web", spec);
        questions(&request(&object, &stored)).unwrap()
    };
    let config = "desktop".to_owned();
    assert_eq!(asked(json!({"replicas": 9})), (config.clone(), None));
    let start = json!({"nameGeneration": {"ordinalStart": 5}});
    assert_eq!(asked(start), (config.clone(), Some("web".to_owned())));
    let prefix = json!({"nameGeneration": {"vmPrefix": "db"}});
    assert_eq!(asked(prefix), (config.clone(), Some("db".to_owned())));
    assert_eq!(
        questions(&create(&stored)),
        Some((config, Some("web".to_owned())))
    );
}

#[test]
fn nothing_is_asked_for_an_edit_that_no_other_object_has_a_say_in() {
    let stored = pool("web", json!({"replicas": 3, "maxUnavailable": "25%"}));
    let facts = facts(&Fake {
        // What speaks against the pool spoke against it before.
        pools: vec![pool("db", json!({"nameGeneration": {"vmPrefix": "web"}}))],
        ..with_config(json!({"template": {"spec": {"volumes": [
            {"name": "root", "persistentVolumeClaim": {"claimName": "golden"}},
        ]}}}))
    });
    assert!(!review(&create(&stored), &facts).causes.is_empty());
    for edit in [
        json!({"maxUnavailable": "10%"}),
        json!({"paused": true}),
        json!({"progressDeadlineSeconds": 60}),
        json!({"updateStrategy": {"proactive": {"partition": 1}}}),
        json!({"replicas": 3}),
    ] {
        let mut object = stored.clone();
        super::merge(&mut object["spec"], edit.clone());
        let request = request(&object, &stored);
        assert_eq!(questions(&request), None, "{edit}");
        let with = review(&request, &facts);
        assert_eq!(with, review(&request, &Facts::none()), "{edit}");
    }
    for edit in [
        json!({"replicas": 2}),
        json!({"maxUnavailable": null}),
        json!({"updateStrategy": {"opportunistic": {}}}),
        json!({"config": {"name": "laptop"}}),
        json!({"nameGeneration": {"sharedSecrets": ["a"]}}),
        json!({"nameGeneration": {"appendPostfixToSecretReferences": true}}),
        json!({"virtualMachineMetadata": {"labels": {"a": "b"}}}),
    ] {
        let mut object = stored.clone();
        super::merge(&mut object["spec"], edit.clone());
        assert!(questions(&request(&object, &stored)).is_some(), "{edit}");
    }
}

#[test]
fn vd_04_pools_that_can_not_be_read_are_refused_and_nothing_panics() {
    for spec in [
        Value::Null,
        json!([]),
        json!("x"),
        json!({}),
        json!({"config": null}),
        json!({"config": {"name": 3}}),
        json!({"config": {"name": "a"}, "replicas": 2.5}),
        json!({"config": {"name": "a"}, "nameGeneration": [1]}),
        json!({"config": {"name": "a"}, "maxUnavailable": {"x": 1}}),
    ] {
        let mut object = pool("web", json!({}));
        object["spec"] = spec.clone();
        let verdict = review(&create(&object), &Facts::none());
        assert_eq!(fields(&verdict), ["spec"], "{spec}");
        assert_eq!(questions(&create(&object)), None);
    }
}
