//! What the demo applies: the samples that a user would take, and the few objects around them.

use anyhow::{Context, Result};
use serde_json::{Value, json};

/// Manifests as text, ready for `kubectl apply -f -`.
#[derive(Clone, Debug)]
pub(super) struct Manifests {
    pub(super) config: String,
    pub(super) pool: String,
    /// A second pool of the same config.
    pub(super) second_pool: String,
    /// A VM that belongs to nobody and is named like a member.
    pub(super) foreign: String,
}

impl Manifests {
    /// The samples, with another container disk if one is given.
    pub(super) fn read(image: Option<&str>) -> Result<Self> {
        let mut config = sample("config.yaml")?;
        let parsed: Value = serde_saphyr::from_str(&config).context("the sample is no YAML")?;
        let used = container_disk(&parsed)
            .context("the sample has no container disk")?
            .to_owned();
        let image = image.unwrap_or(&used);
        config = config.replace(&used, image);
        let pool = sample("pool.yaml")?;
        let mut second: Value = serde_saphyr::from_str(&pool).context("the sample is no YAML")?;
        second["metadata"]["name"] = json!("lab");
        second["spec"]["replicas"] = json!(3);
        Ok(Self {
            foreign: foreign("desktop-9", image).to_string(),
            second_pool: second.to_string(),
            config,
            pool,
        })
    }
}

/// The Secret and the ConfigMap of each number, which are the user's to make.
pub(super) fn inputs(numbers: std::ops::RangeInclusive<u32>) -> String {
    let items: Vec<Value> = numbers
        .flat_map(|number| {
            let user_data = format!("#cloud-config\nhostname: desktop-{number}\n");
            [
                json!({
                    "apiVersion": "v1",
                    "kind": "Secret",
                    "metadata": {"name": format!("desktop-init-{number}")},
                    "stringData": {"userdata": user_data},
                }),
                json!({
                    "apiVersion": "v1",
                    "kind": "ConfigMap",
                    "metadata": {"name": format!("desktop-settings-{number}")},
                    "data": {"seat": number.to_string()},
                }),
            ]
        })
        .collect();
    json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()
}

fn sample(file: &str) -> Result<String> {
    let path = crate::workspace().join("manifests/samples").join(file);
    std::fs::read_to_string(&path).with_context(|| format!("failed to read {}", path.display()))
}

fn container_disk(config: &Value) -> Option<&str> {
    let volumes = config["spec"]["template"]["spec"]["volumes"].as_array()?;
    volumes
        .iter()
        .find_map(|volume| volume["containerDisk"]["image"].as_str())
}

fn foreign(name: &str, image: &str) -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": name, "labels": {"owner": "somebody"}},
        "spec": {
            "runStrategy": "Halted",
            "template": {"spec": {
                "domain": {
                    "memory": {"guest": "64Mi"},
                    "devices": {"disks": [{"name": "root", "disk": {"bus": "virtio"}}]},
                },
                "volumes": [{"name": "root", "containerDisk": {"image": image}}],
            }},
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_image_reaches_the_config_and_the_foreign_vm() {
        let manifests = Manifests::read(Some("registry/image:1")).unwrap();
        let config: Value = serde_saphyr::from_str(&manifests.config).unwrap();
        assert_eq!(container_disk(&config), Some("registry/image:1"));
        assert!(manifests.foreign.contains("registry/image:1"));
        assert!(!manifests.config.contains("cirros"));
    }

    #[test]
    fn the_second_pool_differs_by_name_and_size_only() {
        let manifests = Manifests::read(None).unwrap();
        let mut first: Value = serde_saphyr::from_str(&manifests.pool).unwrap();
        let second: Value = serde_json::from_str(&manifests.second_pool).unwrap();
        first["metadata"]["name"] = json!("lab");
        first["spec"]["replicas"] = json!(3);
        assert_eq!(first, second);
    }
}
