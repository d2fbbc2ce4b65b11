//! References in the known cases, and how they are listed.

use serde_json::json;

use super::*;

#[test]
fn nr_01_all_references_of_cloud_init_follow_the_secret_switch() {
    let spec = volumes(json!([
        {"name": "s", "secret": {"secretName": "plain"}},
        {"name": "n", "cloudInitNoCloud": {"secretRef": {"name": "ud"}, "networkDataSecretRef": {"name": "nd"}}},
        {"name": "d", "cloudInitConfigDrive": {"secretRef": {"name": "ud"}, "networkDataSecretRef": {"name": "nd"}}},
    ]));
    for ordinal in 0..3 {
        let vm = stamped(
            &spec,
            &inputs(json!({"appendPostfixToSecretReferences": true})),
            ordinal,
        );
        let name = |name: &str| format!("{name}-{ordinal}");
        assert_eq!(
            vm["spec"]["template"]["spec"]["volumes"],
            json!([
                {"name": "s", "secret": {"secretName": name("plain")}},
                {"name": "n", "cloudInitNoCloud": {"secretRef": {"name": name("ud")}, "networkDataSecretRef": {"name": name("nd")}}},
                {"name": "d", "cloudInitConfigDrive": {"secretRef": {"name": name("ud")}, "networkDataSecretRef": {"name": name("nd")}}},
            ])
        );
    }
}

#[test]
fn nr_02_both_kinds_of_sysprep_follow_their_own_switch() {
    let config_map =
        volumes(json!([{"name": "s", "sysprep": {"configMap": {"name": "unattend"}}}]));
    let secret = volumes(json!([{"name": "s", "sysprep": {"secret": {"name": "unattend"}}}]));
    for (secrets, config_maps) in [(false, false), (false, true), (true, false), (true, true)] {
        let inputs = inputs(json!({
            "appendPostfixToSecretReferences": secrets,
            "appendPostfixToConfigMapReferences": config_maps,
        }));
        let name = |on| if on { "unattend-4" } else { "unattend" };
        let sysprep = |spec| {
            stamped(spec, &inputs, 4)["spec"]["template"]["spec"]["volumes"][0]["sysprep"].take()
        };
        assert_eq!(
            sysprep(&config_map),
            json!({"configMap": {"name": name(config_maps)}})
        );
        assert_eq!(sysprep(&secret), json!({"secret": {"name": name(secrets)}}));
    }
}

#[test]
fn nr_04_pull_secrets_service_accounts_and_import_secrets_stay_and_credentials_follow() {
    let spec = json!({
        "runStrategy": "Always",
        "dataVolumeTemplates": [{"metadata": {"name": "root"}, "spec": {"source": {"http": {"url": "https://img", "secretRef": "img"}}}}],
        "template": {"spec": {
            "domain": {},
            "serviceAccountName": "launcher",
            "accessCredentials": [
                {"sshPublicKey": {"source": {"secret": {"secretName": "keys"}}}},
                {"userPassword": {"source": {"secret": {"secretName": "password"}}}},
            ],
            "volumes": [
                {"name": "c", "containerDisk": {"image": "i", "imagePullSecret": "reg"}},
                {"name": "sa", "serviceAccount": {"serviceAccountName": "sa"}},
            ],
        }},
    });
    let vm = stamped(&spec, &all_flags(), 0);
    let credential = |vm: &Value, index: usize, way: &str| {
        vm["spec"]["template"]["spec"]["accessCredentials"][index][way]["source"]["secret"]["secretName"].clone()
    };
    assert_eq!(
        vm["spec"]["dataVolumeTemplates"][0]["spec"],
        spec["dataVolumeTemplates"][0]["spec"]
    );
    assert_eq!(
        vm["spec"]["template"]["spec"]["volumes"],
        spec["template"]["spec"]["volumes"]
    );
    assert_eq!(
        vm["spec"]["template"]["spec"]["serviceAccountName"],
        "launcher"
    );
    assert_eq!(credential(&vm, 0, "sshPublicKey"), "keys-0");
    assert_eq!(credential(&vm, 1, "userPassword"), "password-0");

    let mut shared = all_flags();
    shared.shared_secrets.insert("keys".to_owned());
    let vm = stamped(&spec, &shared, 0);
    assert_eq!(credential(&vm, 0, "sshPublicKey"), "keys");
    assert_eq!(credential(&vm, 1, "userPassword"), "password-0");
}

#[test]
fn nr_04_a_shared_name_is_shared_for_its_own_kind_only() {
    let spec = volumes(json!([
        {"name": "a", "secret": {"secretName": "x"}},
        {"name": "b", "configMap": {"name": "x"}},
        {"name": "c", "persistentVolumeClaim": {"claimName": "x"}},
    ]));
    for (field, expected) in [
        ("sharedSecrets", ["x", "x-1", "x-1"]),
        ("sharedConfigMaps", ["x-1", "x", "x-1"]),
        ("sharedVolumeClaims", ["x-1", "x-1", "x"]),
    ] {
        let mut json = serde_json::to_value(all_flags()).unwrap();
        json[field] = json!(["x"]);
        let vm = stamped(&spec, &serde_json::from_value(json).unwrap(), 1);
        let names: Vec<_> = referenced_names(&vm["spec"])
            .into_iter()
            .map(|found| found.name)
            .collect();
        let [secret, config_map, claim] = expected;
        assert_eq!(
            names,
            [claim, config_map, secret],
            "in the order of the table, {field}"
        );
    }
}

#[test]
fn nr_05_two_pools_of_one_config_have_disks_of_their_own() {
    let spec = json!({
        "runStrategy": "Always",
        "dataVolumeTemplates": [{"metadata": {"name": "root"}, "spec": {"storage": {}}}],
        "template": {"spec": {"domain": {}, "volumes": [
            {"name": "root", "dataVolume": {"name": "root"}},
            {"name": "again", "persistentVolumeClaim": {"claimName": "root"}},
            {"name": "scratch", "ephemeral": {"persistentVolumeClaim": {"claimName": "root"}}},
            {"name": "other", "ephemeral": {"persistentVolumeClaim": {"claimName": "golden"}}},
        ]}},
    });
    let other_pool = PoolInputs {
        vm_prefix: "b".to_owned(),
        ..all_flags()
    };
    for (inputs, disk) in [(all_flags(), "a-0-root"), (other_pool, "b-0-root")] {
        let vm = stamped(&spec, &inputs, 0);
        assert_eq!(
            vm["spec"]["dataVolumeTemplates"][0]["metadata"]["name"],
            disk
        );
        assert_eq!(
            vm["spec"]["template"]["spec"]["volumes"],
            json!([
                {"name": "root", "dataVolume": {"name": disk}},
                {"name": "again", "persistentVolumeClaim": {"claimName": disk}},
                {"name": "scratch", "ephemeral": {"persistentVolumeClaim": {"claimName": disk}}},
                {"name": "other", "ephemeral": {"persistentVolumeClaim": {"claimName": "golden"}}},
            ])
        );
    }
}

#[test]
fn references_are_listed_with_their_place_their_kind_and_what_becomes_of_them() {
    let spec = json!({
        "dataVolumeTemplates": [{"metadata": {"name": "root"}}],
        "template": {
            "metadata": {"annotations": {"hooks.kubevirt.io/hookSidecars": "[{\"configMap\": {\"name\": \"hook\"}}]"}},
            "spec": {"volumes": [
                null,
                {"name": "a", "dataVolume": {"name": "root"}},
                {"name": "b", "dataVolume": {"name": "data"}},
                {"name": "c", "secret": {"secretName": 7}},
            ]},
        },
    });
    let found: Vec<_> = referenced_names(&spec)
        .into_iter()
        .map(|found| (found.path, found.kind, found.name, found.rule))
        .collect();
    let row = |path: &str, kind, name: &str, rule| (path.to_owned(), kind, name.to_owned(), rule);
    assert_eq!(
        found,
        [
            row(
                "template.spec.volumes[1].dataVolume.name",
                Kind::DataVolume,
                "root",
                Rule::PerVm
            ),
            row(
                "template.spec.volumes[2].dataVolume.name",
                Kind::DataVolume,
                "data",
                Rule::Opt(Flag::VolumeClaims)
            ),
            row(
                "template.metadata.annotations[\"hooks.kubevirt.io/hookSidecars\"][0].configMap.name",
                Kind::ConfigMap,
                "hook",
                Rule::Shared
            ),
            row(
                "dataVolumeTemplates[0].metadata.name",
                Kind::DataVolume,
                "root",
                Rule::PerVm
            ),
        ]
    );
}

#[test]
fn without_a_postfix_only_disks_are_renamed() {
    let mut spec = json!({
        "dataVolumeTemplates": [{"metadata": {"name": "root"}}],
        "template": {"spec": {"volumes": [
            {"name": "a", "dataVolume": {"name": "root"}},
            {"name": "b", "secret": {"secretName": "s"}},
        ]}},
    });
    rewrite(
        &mut spec,
        &Naming {
            vm_name: "single",
            postfix: None,
            inputs: &all_flags(),
        },
    );
    let volumes = &spec["template"]["spec"]["volumes"];
    assert_eq!(volumes[0]["dataVolume"]["name"], "single-root");
    assert_eq!(volumes[1]["secret"]["secretName"], "s");
}

#[test]
fn an_empty_name_is_no_reference() {
    let spec = json!({
        "dataVolumeTemplates": [{"metadata": {"name": ""}}],
        "template": {"spec": {"volumes": [
            {"name": "a", "dataVolume": {"name": ""}},
            {"name": "b", "secret": {"secretName": ""}},
        ]}},
    });
    let vm = stamped(&spec, &all_flags(), 1);
    assert_eq!(
        vm["spec"]["dataVolumeTemplates"],
        spec["dataVolumeTemplates"]
    );
    assert_eq!(vm["spec"]["template"]["spec"], spec["template"]["spec"]);
}
