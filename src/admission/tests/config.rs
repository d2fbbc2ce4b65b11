//! Which configs are refused, and what is said of those that aren't.

use serde_json::{Value, json};

use super::super::objects::Unavailable;
use super::super::validate_config::review;
use super::super::verdict::Verdict;
use super::{Fake, config, create, fields, pool, request};

fn created(spec: Value) -> Verdict {
    review(&create(&config("desktop", spec)), &Ok(Vec::new()))
}

/// A template whose `spec` has these members beside an empty domain.
fn template(spec: Value) -> Value {
    let mut whole = json!({"domain": {}});
    super::merge(&mut whole, spec);
    json!({"template": {"spec": whole}})
}

fn disk(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"storage": {}}})
}

#[test]
fn vd_04_a_bare_template_is_enough() {
    assert_eq!(created(json!({})), Verdict::allowed());
    let spec = json!({
        "dataVolumeTemplates": [disk("root")],
        "template": {
            "metadata": {"labels": {"app": "w", "kubevirt.io/domain": "w"}, "annotations": {"a/b": "c"}},
            "spec": {
                "domain": {"devices": {"disks": [{"name": "root", "disk": {}}], "interfaces": [{"name": "n", "masquerade": {}}]}},
                "networks": [{"name": "n", "pod": {}}],
                "volumes": [{"name": "root", "dataVolume": {"name": "root"}}, {"name": "s", "emptyDisk": {}}],
            },
        },
    });
    assert_eq!(created(spec), Verdict::allowed());
}

#[test]
#[expect(clippy::too_many_lines, reason = "it is a table")]
fn vd_04_malformed_shapes_are_refused_where_they_are() {
    for (spec, path) in [
        (json!({"template": null}), "template"),
        (json!({"template": []}), "template"),
        (json!({"template": {"spec": null}}), "template.spec"),
        (
            json!({"template": {"spec": {"domain": null}}}),
            "template.spec.domain",
        ),
        (
            json!({"template": {"spec": {"domain": 3}}}),
            "template.spec.domain",
        ),
        (template(json!({"volumes": {}})), "template.spec.volumes"),
        (
            template(json!({"volumes": [null]})),
            "template.spec.volumes[0]",
        ),
        (
            template(json!({"volumes": ["x"]})),
            "template.spec.volumes[0]",
        ),
        (
            template(json!({"volumes": [{"name": "x"}]})),
            "template.spec.volumes[0]",
        ),
        (
            template(json!({"volumes": [{"name": "x", "secret": null}]})),
            "template.spec.volumes[0]",
        ),
        (
            template(json!({"volumes": [{"emptyDisk": {}}]})),
            "template.spec.volumes[0].name",
        ),
        (
            template(json!({"volumes": [{"name": 3, "emptyDisk": {}}]})),
            "template.spec.volumes[0].name",
        ),
        (template(json!({"networks": "x"})), "template.spec.networks"),
        (
            template(json!({"domain": {"devices": []}})),
            "template.spec.domain.devices",
        ),
        (
            template(json!({"domain": {"devices": {"disks": [{}]}}})),
            "template.spec.domain.devices.disks[0].name",
        ),
        (json!({"dataVolumeTemplates": {}}), "dataVolumeTemplates"),
        (
            json!({"dataVolumeTemplates": [null]}),
            "dataVolumeTemplates[0]",
        ),
        (
            json!({"dataVolumeTemplates": [{"spec": {}}]}),
            "dataVolumeTemplates[0].metadata",
        ),
        (
            json!({"dataVolumeTemplates": [{"metadata": {}, "spec": {}}]}),
            "dataVolumeTemplates[0].metadata.name",
        ),
        (
            json!({"dataVolumeTemplates": [{"metadata": {"name": "a"}}]}),
            "dataVolumeTemplates[0].spec",
        ),
        (
            json!({"dataVolumeTemplates": [disk("Root")]}),
            "dataVolumeTemplates[0].metadata.name",
        ),
        (
            json!({"dataVolumeTemplates": [disk(&"d".repeat(60))]}),
            "dataVolumeTemplates[0].metadata.name",
        ),
        (
            json!({"dataVolumeTemplates": [disk("a"), disk("a")]}),
            "dataVolumeTemplates[1].metadata.name",
        ),
        (json!({"template": {"metadata": 1}}), "template.metadata"),
        (
            json!({"template": {"metadata": {"labels": [1]}}}),
            "template.metadata.labels",
        ),
        (
            json!({"template": {"metadata": {"labels": {"a": 1}}}}),
            "template.metadata.labels[a]",
        ),
        (json!({"runStrategy": 3}), "runStrategy"),
        (json!({"runStrategy": null, "running": "yes"}), "running"),
    ] {
        let verdict = created(spec.clone());
        assert_eq!(fields(&verdict), [format!("spec.{path}")], "{spec}");
    }
    for spec in [Value::Null, json!([]), json!("x"), json!(3)] {
        let mut object = config("desktop", json!({}));
        object["spec"] = spec;
        let verdict = review(&create(&object), &Ok(Vec::new()));
        assert_eq!(fields(&verdict), ["spec"]);
    }
}

#[test]
fn a_list_of_many_faults_is_not_as_many_causes() {
    for fault in [json!(null), json!({})] {
        let list = Value::Array(vec![fault; 60_000]);
        for spec in [
            template(json!({"volumes": list})),
            json!({"dataVolumeTemplates": list}),
        ] {
            let found = created(spec).causes.len();
            assert!((1000..1010).contains(&found), "{found}");
        }
    }
}

#[test]
fn run_strategies_are_those_that_a_pool_can_have() {
    for strategy in ["Always", "Halted", "Manual", "Once", "RerunOnFailure"] {
        assert_eq!(
            created(json!({"runStrategy": strategy})),
            Verdict::allowed()
        );
    }
    for strategy in ["WaitAsReceiver", "always", ""] {
        let verdict = created(json!({"runStrategy": strategy}));
        assert_eq!(fields(&verdict), ["spec.runStrategy"], "{strategy}");
    }
    for running in [true, false] {
        let spec = json!({"runStrategy": null, "running": running});
        assert_eq!(created(spec), Verdict::allowed());
    }
}

#[test]
fn nr_07_the_name_leaves_room_for_a_hash() {
    let judged = |length: usize| {
        let object = config(&"c".repeat(length), json!({}));
        review(&create(&object), &Ok(Vec::new()))
    };
    assert!(judged(52).causes.is_empty());
    let refused = judged(53);
    assert_eq!(fields(&refused), ["metadata.name"]);
    assert!(refused.causes[0].message.contains("at most 52"));
}

#[test]
fn what_belongs_to_one_vm_has_no_place_in_a_config() {
    let verdict = created(json!({
        "instancetype": {"name": "u1.small", "revisionName": "x"},
        "preference": {"name": "fedora", "revisionName": "y"},
        "dataVolumeTemplates": [
            {"metadata": {"name": "a", "namespace": "elsewhere"}, "spec": {}},
            {"metadata": {"name": "b", "namespace": "team"}, "spec": {}},
        ],
        "template": {
            "metadata": {"labels": {"vmpool.dev/pool": "x", "kubevirt.io/created-by": "y"}, "annotations": {"vmpool.dev/stamp-hash": "z"}},
            "spec": {
                "domain": {},
                "utilityVolumes": [{"name": "u", "claimName": "c"}],
                "volumes": [{"name": "d", "memoryDump": {"claimName": "c"}}],
            },
        },
    }));
    let mut found = fields(&verdict);
    found.sort_unstable();
    assert_eq!(
        found,
        [
            "spec.dataVolumeTemplates[0].metadata.namespace",
            "spec.instancetype.revisionName",
            "spec.preference.revisionName",
            "spec.template.metadata.annotations[vmpool.dev/stamp-hash]",
            "spec.template.metadata.labels[kubevirt.io/created-by]",
            "spec.template.metadata.labels[vmpool.dev/pool]",
            "spec.template.spec.utilityVolumes[0].claimName",
            "spec.template.spec.volumes[0].memoryDump.claimName",
        ]
    );
}

/// A namespace with pool `web` of that many replicas, as the config `desktop` sees it.
fn used_by(replicas: u32, more: Value) -> Fake {
    let mut spec = json!({"replicas": replicas});
    super::merge(&mut spec, more);
    Fake {
        pools: vec![
            pool("web", spec),
            pool(
                "foreign",
                json!({"replicas": 9, "config": {"name": "other"}}),
            ),
        ],
        ..Fake::default()
    }
}

#[test]
fn nr_07_disk_names_have_to_fit_the_pools_that_use_it() {
    let prefix = "p".repeat(40);
    let fake = used_by(1, json!({"nameGeneration": {"vmPrefix": prefix}}));
    let judged = |template: &str| {
        let object = config("desktop", json!({"dataVolumeTemplates": [disk(template)]}));
        review(&create(&object), &Ok(fake.pools()))
    };
    assert!(judged(&"d".repeat(15)).causes.is_empty());
    let refused = judged(&"d".repeat(16));
    assert_eq!(fields(&refused), ["spec.dataVolumeTemplates"]);
    assert!(refused.causes[0].message.starts_with("pool web: "));
}

#[test]
fn what_only_one_vm_can_have_depends_on_the_pools() {
    let pinned = json!({"dataVolumeTemplates": [
        {"metadata": {"name": "root"}, "spec": {"pvc": {"volumeName": "pv-1"}}},
    ]});
    let judged = |fake: &Fake| {
        let object = config("desktop", pinned.clone());
        review(&create(&object), &Ok(fake.pools()))
    };
    assert!(judged(&Fake::default()).causes.is_empty());
    assert!(judged(&used_by(1, json!({}))).causes.is_empty());
    let path = ["spec.dataVolumeTemplates[0].spec.pvc.volumeName"];
    assert_eq!(fields(&judged(&used_by(2, json!({})))), path);
    let mut two = used_by(1, json!({}));
    two.pools.push(pool("db", json!({"replicas": 1})));
    assert_eq!(fields(&judged(&two)), path, "one VM each is two as well");
}

#[test]
fn identities_that_several_vms_would_have_are_warnings() {
    let spec = template(json!({
        "hostname": "fixed",
        "domain": {
            "firmware": {"uuid": "5d307ca9-b3ef-428c-8861-06e72d69f223", "serial": "1"},
            "devices": {
                "disks": [{"name": "a", "serial": "2", "disk": {}}],
                "interfaces": [{"name": "n", "macAddress": "02:00:00:00:00:01"}],
            },
        },
        "volumes": [{"name": "a", "hostDisk": {"path": "/x", "type": "Disk"}}],
    }));
    let object = config("desktop", spec);
    let judged = |replicas| {
        let fake = used_by(replicas, json!({}));
        review(&create(&object), &Ok(fake.pools())).warnings
    };
    let warnings = judged(2);
    assert_eq!(warnings.len(), 6, "{warnings:#?}");
    assert!(judged(1).is_empty());
}

#[test]
fn a_probe_that_is_taken_out_is_missed_by_the_pools_that_count_on_it() {
    let probed = template(json!({"readinessProbe": {"tcpSocket": {"port": 22}}}));
    let probed = config("desktop", probed);
    let bare = config("desktop", template(json!({})));
    let fake = used_by(2, json!({"maxUnavailable": 1}));
    let judged = |object: &Value, stored: &Value| {
        review(&request(object, stored), &Ok(fake.pools())).warnings
    };
    let warnings = judged(&bare, &probed);
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].starts_with("pool web: spec.maxUnavailable: "));
    assert!(judged(&probed, &bare).is_empty());
    let other = config("desktop", template(json!({"hostname": null})));
    assert!(judged(&other, &bare).is_empty(), "it is said once");
}

#[test]
fn ro_08_an_edit_of_disk_templates_says_who_keeps_their_disks() {
    let disks = |size: &str| {
        let storage = json!({"resources": {"requests": {"storage": size}}});
        let template = json!({"metadata": {"name": "root"}, "spec": {"storage": storage}});
        config("desktop", json!({"dataVolumeTemplates": [template]}))
    };
    let stored = disks("1Gi");
    let said =
        |object: &Value, fake: &Fake| review(&request(object, &stored), &Ok(fake.pools())).warnings;
    let in_use = used_by(2, json!({}));
    let warnings = said(&disks("2Gi"), &in_use);
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("pool web") && warnings[0].contains("keep the disks"));
    assert!(said(&disks("2Gi"), &used_by(0, json!({}))).is_empty());
    let pinned = json!({"config": {"revision": "desktop-x"}});
    assert!(said(&disks("2Gi"), &used_by(2, pinned)).is_empty());
    let mut halted = disks("1Gi");
    halted["spec"]["runStrategy"] = json!("Halted");
    assert!(said(&halted, &in_use).is_empty());
}

#[test]
fn vd_03_stored_faults_do_not_stand_in_the_way() {
    let stored = config(
        "desktop",
        template(json!({"volumes": [{"name": "b"}], "utilityVolumes": [{"claimName": "c"}]})),
    );
    let edit = |change: Value| {
        let mut object = stored.clone();
        super::merge(&mut object, change);
        review(&request(&object, &stored), &Ok(Vec::new()))
    };
    assert_eq!(
        edit(json!({"metadata": {"finalizers": null}})),
        Verdict::allowed()
    );
    assert!(
        edit(json!({"spec": {"runStrategy": "Halted"}}))
            .causes
            .is_empty()
    );
    let moved = json!({"spec": {"template": {"spec": {"volumes": [
        {"name": "a", "emptyDisk": {}}, {"name": "b"}, {"name": "c"},
    ]}}}});
    assert_eq!(fields(&edit(moved)), ["spec.template.spec.volumes[2]"]);
    let going =
        json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"template": 3}});
    assert_eq!(edit(going), Verdict::allowed());
}

#[test]
fn pools_that_can_not_be_looked_up_are_a_warning() {
    let down = Unavailable {
        what: "pools of namespace team".to_owned(),
        why: "no answer within 3 s".to_owned(),
    };
    let verdict = review(&create(&config("desktop", json!({}))), &Err(down));
    assert!(verdict.causes.is_empty());
    assert_eq!(verdict.warnings.len(), 1);
}
