//! What VMs refer to by name: what gets their number, what is left as it is. Cases NR-01 to NR-04, matrix
//! rows 28 to 36 and 86 to 88. The whole table of a VM's references is tested in `stamp`; here it goes through
//! kubectl, admission and controller.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::objects::{Builder, all, config, pool};
use crate::{Kind, Space, with_namespace};

const SECRETS: &str = "appendPostfixToSecretReferences";
const CONFIG_MAPS: &str = "appendPostfixToConfigMapReferences";

/// What the flags are set to; none leaves them out.
const FLAGS: [(&str, Option<bool>); 3] = [
    ("unset", None),
    ("false", Some(false)),
    ("true", Some(true)),
];

fn flagged(pool: Builder, flag: &str, value: Option<bool>) -> Builder {
    match value {
        Some(value) => pool.with(&format!("/spec/nameGeneration/{flag}"), value),
        None => pool,
    }
}

/// Makes one VM, number 4, from a config with these volumes, for each setting of both flags; checks the names
/// found at these pointers below the VM's spec: as written, or with `-4`.
async fn both_flags(ns: &Space<'_>, config: Builder, names: &[(&str, &str)]) -> Result<()> {
    ns.accepts(config)?;
    for (setting, value) in FLAGS {
        let pool = pool(setting, "cfg")
            .replicas(1)
            .with("/spec/nameGeneration/ordinalStart", 4);
        ns.accepts(flagged(flagged(pool, SECRETS, value), CONFIG_MAPS, value))?;
    }
    for (setting, value) in FLAGS {
        let vm = format!("{setting}-4");
        let vms = ns.settled(setting, &[&vm]).await?;
        for (pointer, written) in names {
            let wanted = match value {
                Some(true) => format!("{written}-4"),
                _ => (*written).to_owned(),
            };
            let found = vms[0]["spec"].pointer(pointer);
            ensure!(
                found == Some(&json!(wanted)),
                "{vm}: {pointer} is {found:?}"
            );
        }
    }
    Ok(())
}

fn cloud_init() -> Value {
    json!({"secretRef": {"name": "ud"}, "networkDataSecretRef": {"name": "nd"}})
}

#[test]
fn m28_m29_m30_secret_and_config_map_volumes_follow_their_flags() {
    with_namespace("m28", async |ns| {
        let config = config("cfg")
            .volume("s", json!({"secret": {"secretName": "keys"}}))
            .volume("c", json!({"configMap": {"name": "settings"}}));
        both_flags(
            ns,
            config,
            &[
                ("/template/spec/volumes/0/secret/secretName", "keys"),
                ("/template/spec/volumes/1/configMap/name", "settings"),
            ],
        )
        .await
    });
}

#[test]
fn m31_m32_m33_cloud_init_no_cloud_secrets_follow_the_flag() {
    with_namespace("m31", async |ns| {
        let config = config("cfg").volume("ci", json!({"cloudInitNoCloud": cloud_init()}));
        both_flags(
            ns,
            config,
            &[
                (
                    "/template/spec/volumes/0/cloudInitNoCloud/secretRef/name",
                    "ud",
                ),
                (
                    "/template/spec/volumes/0/cloudInitNoCloud/networkDataSecretRef/name",
                    "nd",
                ),
            ],
        )
        .await
    });
}

#[test]
fn m34_m35_m36_cloud_init_config_drive_secrets_follow_the_flag() {
    with_namespace("m34", async |ns| {
        let config = config("cfg").volume("ci", json!({"cloudInitConfigDrive": cloud_init()}));
        both_flags(
            ns,
            config,
            &[
                (
                    "/template/spec/volumes/0/cloudInitConfigDrive/secretRef/name",
                    "ud",
                ),
                (
                    "/template/spec/volumes/0/cloudInitConfigDrive/networkDataSecretRef/name",
                    "nd",
                ),
            ],
        )
        .await
    });
}

#[test]
fn nr_01_every_secret_of_every_vm_gets_its_number() {
    with_namespace("nr-01", async |ns| {
        ns.accepts(all(&[
            config("cfg")
                .volume("s", json!({"secret": {"secretName": "keys"}}))
                .volume("n", json!({"cloudInitNoCloud": cloud_init()}))
                .volume("d", json!({"cloudInitConfigDrive": cloud_init()})),
            pool("web", "cfg")
                .replicas(3)
                .with("/spec/nameGeneration/ordinalStart", 0)
                .with("/spec/nameGeneration/appendPostfixToSecretReferences", true),
        ]))?;
        let vms = ns.settled("web", &["web-0", "web-1", "web-2"]).await?;
        for (number, vm) in vms.iter().enumerate() {
            let volumes = &vm["spec"]["template"]["spec"]["volumes"];
            let wanted = json!([
                {"name": "s", "secret": {"secretName": format!("keys-{number}")}},
                {"name": "n", "cloudInitNoCloud": {
                    "secretRef": {"name": format!("ud-{number}")},
                    "networkDataSecretRef": {"name": format!("nd-{number}")},
                }},
                {"name": "d", "cloudInitConfigDrive": {
                    "secretRef": {"name": format!("ud-{number}")},
                    "networkDataSecretRef": {"name": format!("nd-{number}")},
                }},
            ]);
            ensure!(volumes == &wanted, "web-{number}: {volumes}");
        }
        Ok(())
    });
}

#[test]
fn nr_02_sysprep_follows_the_flag_of_what_it_names() {
    with_namespace("nr-02", async |ns| {
        // 1. Both flags.
        let config = config("cfg")
            .volume("c", json!({"sysprep": {"configMap": {"name": "unattend"}}}))
            .volume("s", json!({"sysprep": {"secret": {"name": "unattend"}}}));
        let (of_config_map, of_secret) = (
            "/template/spec/volumes/0/sysprep/configMap/name",
            "/template/spec/volumes/1/sysprep/secret/name",
        );
        both_flags(
            ns,
            config,
            &[(of_config_map, "unattend"), (of_secret, "unattend")],
        )
        .await?;

        // 2. Each by itself.
        for (name, flag, postfixed) in [
            ("maps", CONFIG_MAPS, of_config_map),
            ("secrets", SECRETS, of_secret),
        ] {
            let pool = pool(name, "cfg")
                .replicas(1)
                .with("/spec/nameGeneration/ordinalStart", 4);
            ns.accepts(flagged(pool, flag, Some(true)))?;
            let vms = ns.settled(name, &[&format!("{name}-4")]).await?;
            for pointer in [of_config_map, of_secret] {
                let wanted = if pointer == postfixed {
                    "unattend-4"
                } else {
                    "unattend"
                };
                let found = vms[0]["spec"].pointer(pointer);
                ensure!(
                    found == Some(&json!(wanted)),
                    "{flag}: {pointer} is {found:?}"
                );
            }
        }
        Ok(())
    });
}

/// A disk whose import needs a Secret, pull secret, service account, and credentials of two Secrets.
fn with_shared_references() -> Builder {
    let credential = |secret: &str| {
        json!({"sshPublicKey": {
            "source": {"secret": {"secretName": secret}},
            "propagationMethod": {"noCloud": {}},
        }})
    };
    config("cfg")
        .volume(
            "root",
            json!({"containerDisk": {"image": "i", "imagePullSecret": "reg"}}),
        )
        .volume(
            "sa",
            json!({"serviceAccount": {"serviceAccountName": "sa"}}),
        )
        .volume("img", json!({"dataVolume": {"name": "img"}}))
        .volume(
            "ci",
            json!({"cloudInitNoCloud": {"userData": "#cloud-config"}}),
        )
        .with(
            "/spec/template/spec/accessCredentials",
            json!([credential("keys"), credential("all")]),
        )
        .push(
            "/spec/dataVolumeTemplates",
            json!({
                "metadata": {"name": "img"},
                "spec": {
                    "storage": {"resources": {"requests": {"storage": "1Gi"}}},
                    "source": {"http": {"url": "http://images/img", "secretRef": "img"}},
                },
            }),
        )
}

#[test]
fn nr_04_what_is_shared_by_nature_or_by_name_never_gets_a_number() {
    with_namespace("nr-04", async |ns| {
        ns.accepts(all(&[
            with_shared_references(),
            pool("web", "cfg")
                .replicas(1)
                .with("/spec/nameGeneration/appendPostfixToSecretReferences", true)
                .with(
                    "/spec/nameGeneration/appendPostfixToConfigMapReferences",
                    true,
                )
                .with(
                    "/spec/nameGeneration/appendPostfixToVolumeClaimReferences",
                    true,
                )
                .with("/spec/nameGeneration/sharedSecrets", json!(["all"])),
        ]))?;
        let vms = ns.settled("web", &["web-1"]).await?;
        let spec = &vms[0]["spec"];
        let credentials = "/template/spec/accessCredentials";
        for (pointer, wanted) in [
            (
                "/template/spec/volumes/0/containerDisk/imagePullSecret".to_owned(),
                "reg",
            ),
            (
                "/template/spec/volumes/1/serviceAccount/serviceAccountName".to_owned(),
                "sa",
            ),
            (
                "/dataVolumeTemplates/0/spec/source/http/secretRef".to_owned(),
                "img",
            ),
            (
                "/dataVolumeTemplates/0/metadata/name".to_owned(),
                "web-1-img",
            ),
            (
                "/template/spec/volumes/2/dataVolume/name".to_owned(),
                "web-1-img",
            ),
            (
                format!("{credentials}/0/sshPublicKey/source/secret/secretName"),
                "keys-1",
            ),
            (
                format!("{credentials}/1/sshPublicKey/source/secret/secretName"),
                "all",
            ),
        ] {
            let found = spec.pointer(&pointer);
            ensure!(found == Some(&json!(wanted)), "{pointer} is {found:?}");
        }
        Ok(())
    });
}

#[test]
fn m86_m87_m88_name_generation_is_kept_as_written_and_reaches_running_instances() {
    with_namespace("m86", async |ns| {
        ns.accepts(
            config("cfg")
                .running()
                .volume("s", json!({"secret": {"secretName": "keys"}}))
                .volume("c", json!({"configMap": {"name": "settings"}})),
        )?;
        for (setting, value) in FLAGS {
            let pool = flagged(pool(setting, "cfg").replicas(1), SECRETS, value);
            let pool = flagged(pool, CONFIG_MAPS, value);
            let postfix = if value == Some(true) { "-1" } else { "" };
            for kind in [
                format!("secret generic keys{postfix}"),
                format!("configmap settings{postfix}"),
            ] {
                // Both settings without a postfix share theirs.
                ns.run(&format!("create {kind}"))?;
            }
            ns.accepts(&pool)?;

            // 1. The API keeps what was written and adds the prefix only.
            let mut wanted = pool.value()["spec"]["nameGeneration"].clone();
            wanted["vmPrefix"] = json!(setting);
            let stored = ns.get(Kind::Pool, setting).await?;
            let stored = &stored["spec"]["nameGeneration"];
            ensure!(stored == &wanted, "{setting}: {stored}");

            // 2. It is what the guest gets.
            let vm = format!("{setting}-1");
            ns.ready(setting, &[&vm]).await?;
            let instance = ns.get(Kind::Instance, &vm).await?;
            let volumes = &instance["spec"]["volumes"];
            ensure!(
                volumes[0]["secret"]["secretName"] == format!("keys{postfix}"),
                "{volumes}"
            );
            ensure!(
                volumes[1]["configMap"]["name"] == format!("settings{postfix}"),
                "{volumes}"
            );
        }
        Ok(())
    });
}

#[test]
fn nr_03_an_option_that_does_not_exist_is_refused_by_name() {
    with_namespace("nr-03", async |ns| {
        ns.accepts(config("cfg"))?;
        let pool = pool("web", "cfg")
            .replicas(1)
            .with("/spec/nameGeneration/appendIndexToSecretRefs", true);

        // 1. Strict, which is kubectl's default.
        let said = ns.rejects(&pool)?;
        ensure!(
            said.contains("spec.nameGeneration.appendIndexToSecretRefs"),
            "{said}"
        );
        ensure!(ns.find(Kind::Pool, "web").await?.is_none());

        // 2. Not strict: a warning names it, and it is not stored.
        let output = ns.run_with("apply --validate=warn -f -", &pool.to_string())?;
        ensure!(output.success, "{}", output.stderr);
        ensure!(
            output
                .stderr
                .contains("spec.nameGeneration.appendIndexToSecretRefs"),
            "{}",
            output.stderr
        );
        let stored = ns.get(Kind::Pool, "web").await?;
        ensure!(
            stored["spec"]["nameGeneration"]["appendIndexToSecretRefs"].is_null(),
            "{stored}"
        );
        Ok(())
    });
}
