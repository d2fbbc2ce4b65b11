//! What in a config goes wrong once more than one VM comes of it: claims that several VMs would
//! write to, identities that several would have.
//!
//! Findings only; whether one is a refusal or a warning for a given object, and how many VMs there
//! are going to be, is admission's to say.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::Value;

use super::inputs::PoolInputs;
use super::path::Pattern;
use super::references::{Flag, Kind, Reference, Rule, referenced_names};
use super::table::PER_VM_VALUES;

/// Something that only one VM should have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Where, below `spec`, with indices.
    pub path: String,
    /// What to do about it.
    pub severity: Severity,
    /// What comes of it, as a sentence without its subject's path.
    pub message: String,
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The second VM can't work.
    Refuse,
    /// It may be meant.
    Warn,
}

static IDENTITIES: LazyLock<Vec<(Pattern, &'static str)>> = LazyLock::new(|| {
    PER_VM_VALUES
        .iter()
        .map(|(path, why)| (Pattern::parse(path), *why))
        .collect()
});

/// Everything that speaks against a second VM from this spec in a pool with these inputs.
pub fn for_several_vms(spec: &Value, inputs: &PoolInputs) -> Vec<Finding> {
    let mut findings = exclusive(spec);
    findings.extend(shared_writable(spec, inputs));
    findings.extend(fixed_identity(spec));
    findings.extend(shared_on_nodes(spec));
    findings
}

/// Names of what one VM at a time can have.
pub fn exclusive(spec: &Value) -> Vec<Finding> {
    by_rule(spec, Rule::Exclusive)
        .map(|reference| Finding {
            severity: Severity::Refuse,
            message: format!(
                "{} {:?} can't be had by more than one VM: {}",
                reference.kind, reference.name, reference.row.note
            ),
            path: reference.path,
        })
        .collect()
}

/// Claims that every VM of the pool would write to: not from a disk template, not postfixed, and
/// neither read-only nor declared shareable nor served as a file system.
pub fn shared_writable(spec: &Value, inputs: &PoolInputs) -> Vec<Finding> {
    let uses = disk_uses(spec);
    let volumes = spec
        .pointer("/template/spec/volumes")
        .and_then(Value::as_array);
    referenced_names(spec)
        .into_iter()
        .filter(|reference| reference.rule == Rule::Opt(Flag::VolumeClaims))
        .filter(|reference| !reference.name.is_empty())
        .filter(|reference| {
            !inputs.appends(Flag::VolumeClaims)
                || inputs.shares(Flag::VolumeClaims, &reference.name)
        })
        .filter(|reference| {
            let volume = volumes.and_then(|volumes| volumes.get(index_of(&reference.path)?));
            volume.is_none_or(|volume| is_written(volume, &uses))
        })
        .map(|reference| Finding {
            severity: Severity::Warn,
            message: format!(
                "{} {:?} would be written to by several VMs; use a disk template, {}, or make the \
                 disk read-only or shareable",
                reference.kind,
                reference.name,
                Flag::VolumeClaims.field()
            ),
            path: reference.path,
        })
        .collect()
}

/// MAC addresses, serial numbers and the like that are written down.
pub fn fixed_identity(spec: &Value) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (pattern, why) in IDENTITIES.iter() {
        pattern.visit(spec, &mut |path, value| {
            if value.as_str().is_some_and(|value| !value.is_empty()) {
                findings.push(Finding {
                    path: path.to_owned(),
                    severity: Severity::Warn,
                    // Not the value: a certificate of `launchSecurity` is one, too.
                    message: format!("several VMs would have the same value here: {why}"),
                });
            }
        });
    }
    findings
}

/// Files on nodes and claims of sidecars that VMs would share.
pub fn shared_on_nodes(spec: &Value) -> Vec<Finding> {
    by_rule(spec, Rule::WarnShared)
        .map(|reference| Finding {
            severity: Severity::Warn,
            message: format!(
                "{} {:?} is shared by several VMs: {}",
                reference.kind, reference.name, reference.row.note
            ),
            path: reference.path,
        })
        .collect()
}

/// What belongs to one VM's life and has no place in a config, however many VMs come of it. A disk
/// template's namespace is allowed to be the config's own.
pub fn misplaced(spec: &Value, namespace: &str) -> Vec<Finding> {
    by_rule(spec, Rule::RefusedInConfig)
        .filter(|reference| reference.kind != Kind::Namespace || reference.name != namespace)
        .map(|reference| Finding {
            severity: Severity::Refuse,
            message: format!("has no place in a config: {}", reference.row.note),
            path: reference.path,
        })
        .collect()
}

fn by_rule(spec: &Value, rule: Rule) -> impl Iterator<Item = Reference> {
    referenced_names(spec)
        .into_iter()
        .filter(move |reference| reference.rule == rule && !reference.name.is_empty())
}

/// The first index in a concrete path.
fn index_of(path: &str) -> Option<usize> {
    path.split_once('[')?.1.split_once(']')?.0.parse().ok()
}

/// Which volumes are attached as disks, and whether any of them is for writing by one VM alone.
fn disk_uses(spec: &Value) -> BTreeMap<&str, bool> {
    let mut uses = BTreeMap::new();
    let disks = spec
        .pointer("/template/spec/domain/devices/disks")
        .and_then(Value::as_array);
    for disk in disks.into_iter().flatten() {
        let Some(name) = disk.get("name").and_then(Value::as_str) else {
            continue;
        };
        let flag = |pointer| {
            disk.pointer(pointer)
                .and_then(Value::as_bool)
                .unwrap_or_default()
        };
        // A CD-ROM is read-only unless it says otherwise.
        let read_only = flag("/disk/readonly")
            || flag("/lun/readonly")
            || disk.get("cdrom").is_some_and(|cdrom| {
                cdrom
                    .get("readonly")
                    .and_then(Value::as_bool)
                    .unwrap_or(true)
            });
        *uses.entry(name).or_default() |= !read_only && !flag("/shareable");
    }
    uses
}

fn is_written(volume: &Value, uses: &BTreeMap<&str, bool>) -> bool {
    let read_only = volume
        .pointer("/persistentVolumeClaim/readOnly")
        .and_then(Value::as_bool)
        .unwrap_or_default();
    let name = volume
        .get("name")
        .and_then(Value::as_str)
        .unwrap_or_default();
    // Not attached as a disk: a file system, which is made for sharing, or a fault that KubeVirt
    // has its own words for.
    !read_only && uses.get(name).copied().unwrap_or_default()
}
