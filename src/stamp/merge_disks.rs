//! Volumes, the disk templates behind them and the devices before them, as a member keeps them when its pool
//! follows another revision. No disk that may hold data is pointed elsewhere or lost:
//!
//! - A volume of a disk template stays on the disk that it is on, whatever the config makes of the template or
//!   of the volume's source; the templates of a member stay as they are. Only templates that are new, and that
//!   a volume of the member uses, are added.
//! - A claim or DataVolume that somebody else put in a volume's place (a restore, a user) stays, and so does
//!   a hot-plugged volume that has the name of one that the config brings; its device too.
//! - A volume that the config drops is taken out of the VM. Its disk stays, with the VM as its owner.
//! - All other sources (container disks, cloud-init, secrets) are as the config says when it changes them.
//!
//! Without a base the sources of volumes that are there stay, and none is added that needs a template.

use std::collections::BTreeSet;

use serde_json::Value;

use super::merge_tree::{Decision, Merge, Sides, by_key, covers, is_same, is_same_or_absent};

const PATH: &str = "spec.template.spec.volumes";
/// Sources that may hold what can't be made again.
const DATA: [&str; 4] = [
    "dataVolume",
    "hostDisk",
    "memoryDump",
    "persistentVolumeClaim",
];

/// A VM's volumes, merged.
#[derive(Debug)]
pub(super) struct Volumes {
    /// `None` if they can't be taken one by one.
    merged: Option<Vec<Value>>,
    /// Names of volumes that are not as the config says, because somebody else decided: their devices are
    /// left alone.
    foreign: BTreeSet<String>,
    /// Names of the disks that the VM's volumes are on before the merge.
    in_use: BTreeSet<String>,
}

impl Volumes {
    /// Merges the volumes of a VM with this spec.
    pub(super) fn merge(spec: Sides<'_>, volumes: Sides<'_>) -> Self {
        let mut foreign = BTreeSet::new();
        let templates = Templates {
            of_base: template_names(spec.base),
            of_target: template_names(spec.target),
            has_base: spec.base.is_some(),
        };
        let merged = by_key(volumes, PATH, |sides| {
            let outcome = templates.volume(sides);
            if outcome.is_foreign {
                let named = sides.target.or(sides.live).or(sides.base);
                foreign.extend(named.and_then(name).map(str::to_owned));
            }
            outcome.volume
        });
        let live = volumes.live.and_then(Value::as_array).into_iter().flatten();
        Self {
            merged,
            foreign,
            in_use: live.flat_map(disk_names).map(str::to_owned).collect(),
        }
    }

    /// What the volumes are to be.
    pub(super) fn volumes(&self, sides: Sides<'_>) -> Option<Value> {
        if is_same_or_absent(sides.base, sides.target) {
            return sides.live.cloned();
        }
        match &self.merged {
            Some(merged) if merged.is_empty() && is_absent(sides) => None,
            Some(merged) => Some(Value::Array(merged.clone())),
            // Not what KubeVirt would take: it is the config's as long as nobody has touched it.
            None if is_same_or_absent(sides.base, sides.live) => sides.target.cloned(),
            None => sides.live.cloned(),
        }
    }

    /// What the disk templates are to be: those that are there, and the new ones that a volume uses. New to this VM:
    /// one that the config has had for long may never have come to it, as none of its volumes was put on that disk.
    pub(super) fn templates(&self, sides: Sides<'_>, path: &str) -> Option<Value> {
        let volumes = self.merged.iter().flatten();
        let used: BTreeSet<&str> = volumes.flat_map(disk_names).collect();
        let is_added = |disk: &str| used.contains(disk) && !self.in_use.contains(disk);
        if is_same_or_absent(sides.base, sides.target) && !used.iter().any(|disk| is_added(disk)) {
            return sides.live.cloned();
        }
        let merged = by_key(sides, path, |sides| match (sides.base, sides.live) {
            (_, Some(live)) => Some(live.clone()),
            (base, None) => {
                let template = sides.target?;
                let name = template.pointer("/metadata/name")?.as_str()?;
                let is_needed = used.contains(name) && (base.is_none() || is_added(name));
                is_needed.then(|| template.clone())
            }
        });
        match merged {
            Some(merged) if merged.is_empty() && is_absent(sides) => None,
            Some(merged) => Some(Value::Array(merged)),
            None => sides.live.cloned(),
        }
    }

    /// A disk or file system whose volume is somebody else's is left alone.
    pub(super) fn decide_device(&self, sides: Sides<'_>) -> Decision {
        let device = sides.target.or(sides.live).and_then(name);
        if device.is_some_and(|name| self.foreign.contains(name)) {
            Decision::Is(sides.live.cloned())
        } else {
            Decision::Merge
        }
    }
}

struct Templates {
    of_base: BTreeSet<String>,
    of_target: BTreeSet<String>,
    has_base: bool,
}

struct Outcome {
    volume: Option<Value>,
    is_foreign: bool,
}

impl Outcome {
    fn ours(volume: Option<&Value>) -> Self {
        Self {
            volume: volume.cloned(),
            is_foreign: false,
        }
    }

    fn theirs(volume: Option<&Value>) -> Self {
        Self {
            volume: volume.cloned(),
            is_foreign: true,
        }
    }
}

impl Templates {
    fn volume(&self, sides: Sides<'_>) -> Outcome {
        match (sides.base, sides.target, sides.live) {
            (None, Some(target), None) => {
                let needs_template = disk_names(target).any(|disk| self.of_target.contains(disk));
                if needs_template && !self.has_base {
                    Outcome::theirs(None)
                } else {
                    Outcome::ours(Some(target))
                }
            }
            // Somebody took it out.
            (_, _, None) => Outcome::theirs(None),
            (None, Some(target), Some(live)) => {
                if covers(live, target) || !self.has_base {
                    Outcome::ours(Some(live))
                } else if holds_data(live) {
                    Outcome::theirs(Some(live))
                } else {
                    Outcome::ours(Some(target))
                }
            }
            (Some(base), None, Some(live)) if holds_data(live) && !covers(live, base) => {
                Outcome::theirs(Some(live))
            }
            (_, None, Some(_)) => Outcome::ours(None),
            (Some(base), Some(target), Some(live)) => self.changed(base, target, live),
        }
    }

    fn changed(&self, base: &Value, target: &Value, live: &Value) -> Outcome {
        if is_same(base, target) || (holds_data(live) && !covers(live, base)) {
            return Outcome::ours(Some(live));
        }
        let is_templates = disk_names(base).any(|disk| self.of_base.contains(disk));
        let same_disk = disk_names(base).eq(disk_names(target)) && sources(base) == sources(target);
        if is_templates && !same_disk {
            return Outcome::ours(Some(live));
        }
        if sources(base) != sources(target) {
            return Outcome::ours(Some(target));
        }
        let sides = Sides {
            base: Some(base),
            target: Some(target),
            live: Some(live),
        };
        Outcome {
            volume: Plain.merged(sides, "spec.template.spec.volumes[]"),
            is_foreign: false,
        }
    }
}

/// A merge without exceptions.
struct Plain;

impl Merge for Plain {}

/// Whether a list of which nothing is left is better not there: nobody wrote an empty one.
fn is_absent(sides: Sides<'_>) -> bool {
    let is_empty = |list: &Value| list.as_array().is_some_and(Vec::is_empty);
    sides.target.is_none() || (sides.live.is_none() && !sides.target.is_some_and(is_empty))
}

fn name(element: &Value) -> Option<&str> {
    element.get("name").and_then(Value::as_str)
}

/// The names of a volume's sources: one, in all that KubeVirt takes.
fn sources(volume: &Value) -> BTreeSet<&str> {
    let members = volume.as_object().into_iter().flatten();
    members
        .map(|(key, _)| key.as_str())
        .filter(|key| *key != "name")
        .collect()
}

fn holds_data(volume: &Value) -> bool {
    DATA.iter().any(|source| volume.get(source).is_some())
}

/// Names of the DataVolumes or claims that a volume is on.
fn disk_names(volume: &Value) -> impl Iterator<Item = &str> {
    [
        "/dataVolume/name",
        "/persistentVolumeClaim/claimName",
        "/ephemeral/persistentVolumeClaim/claimName",
    ]
    .into_iter()
    .filter_map(|pointer| volume.pointer(pointer).and_then(Value::as_str))
}

fn template_names(spec: Option<&Value>) -> BTreeSet<String> {
    let names = spec.map(crate::kubevirt::disk_template_names);
    names.unwrap_or_default().into_iter().collect()
}
