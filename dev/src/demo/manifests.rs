//! What the demo applies: the samples that a user would take, and what is made of them.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

/// Where the samples are, below the workspace.
pub(super) const SAMPLES: &str = "manifests/samples";
/// Prints the Secret and the ConfigMap of each number, which are the user's to make.
pub(super) const PER_VM: &str = "per-vm-objects";
/// What a container disk's URL begins with, where a DataVolume names one.
const REGISTRY: &str = "docker://";

/// Manifests as text, ready for `kubectl apply -f -`.
#[derive(Clone, Debug)]
pub(super) struct Manifests {
    pub(super) config: String,
    pub(super) pool: String,
    /// A second pool of the same config.
    pub(super) second_pool: String,
    image: String,
}

impl Manifests {
    /// The samples, with another container disk if one is given.
    pub(super) fn read(image: Option<&str>) -> Result<Self> {
        let mut config = sample("config.yaml")?;
        let parsed: Value = serde_saphyr::from_str(&config).context("the sample is no YAML")?;
        let used = container_disk(&parsed)
            .context("the sample has no container disk")?
            .to_owned();
        let image = image.unwrap_or(&used).to_owned();
        config = config.replace(&used, &image);
        let pool = sample("pool.yaml")?;
        let mut second: Value = serde_saphyr::from_str(&pool).context("the sample is no YAML")?;
        second["metadata"]["name"] = json!("lab");
        second["spec"]["replicas"] = json!(3);
        Ok(Self {
            second_pool: second.to_string(),
            config,
            pool,
            image,
        })
    }

    /// A VM that belongs to nobody.
    pub(super) fn foreign(&self, name: &str) -> String {
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
                    "volumes": [{"name": "root", "containerDisk": {"image": self.image}}],
                }},
            },
        })
        .to_string()
    }
}

/// What the script prints for these numbers.
pub(super) fn per_vm(first: u32, last: u32) -> Result<String> {
    let path = crate::workspace().join(SAMPLES).join(PER_VM);
    let output = Command::new("sh")
        .arg(&path)
        .args([first.to_string(), last.to_string()])
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("failed to run {}", path.display()))?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{} failed: {error}",
        path.display()
    );
    String::from_utf8(output.stdout).context("the script printed no text")
}

fn sample(file: &str) -> Result<String> {
    let path = crate::workspace().join(SAMPLES).join(file);
    std::fs::read_to_string(&path).with_context(|| format!("failed to read {}", path.display()))
}

/// The image that the config's disk is imported from.
fn container_disk(config: &Value) -> Option<&str> {
    let templates = config["spec"]["dataVolumeTemplates"].as_array()?;
    let mut urls = templates
        .iter()
        .filter_map(|template| template["spec"]["source"]["registry"]["url"].as_str());
    urls.find_map(|url| url.strip_prefix(REGISTRY))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_image_reaches_the_config_and_the_foreign_vm() {
        let manifests = Manifests::read(Some("registry/image:1")).unwrap();
        let config: Value = serde_saphyr::from_str(&manifests.config).unwrap();
        assert_eq!(container_disk(&config), Some("registry/image:1"));
        assert!(manifests.foreign("x").contains("registry/image:1"));
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

    #[test]
    fn the_script_makes_two_objects_a_number() {
        let made = per_vm(3, 4).unwrap();
        assert_eq!(made.matches("kind:").count(), 4);
        assert!(made.contains("name: desktop-init-3") && made.contains("name: desktop-settings-4"));
    }
}
