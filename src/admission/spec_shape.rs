//! Whether a config's opaque spec has the shape of a `VirtualMachineSpec`, as far as this program, or the
//! first VM made of it, depends on it: lists that are no lists, entries that are null or have no name, two
//! of one name. What the values mean is KubeVirt's to judge.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::field::{Cause, ENOUGH_CAUSES, Path};
use super::metadata::{check_annotations, check_labels};
use crate::kubevirt::RunStrategy;
use crate::stamp::names::check_template_name;

/// KubeVirt's run strategies that a pool can have. `WaitAsReceiver` is left out: such a VM waits for one
/// that is migrated into it.
const RUN_STRATEGIES: &str = "Always, Halted, Manual, Once, RerunOnFailure";

/// Lists of named things below `template.spec.domain.devices`.
const DEVICE_LISTS: [&str; 6] = [
    "disks",
    "filesystems",
    "gpus",
    "hostDevices",
    "inputs",
    "interfaces",
];

/// Faults of the spec's shape, in the order of its fields.
pub(super) fn check(spec: &Map<String, Value>) -> Vec<Cause> {
    let root = Path::spec();
    let mut shape = Shape::default();
    shape.run_strategy(&root, spec);
    shape.disk_templates(&root, spec);
    if let Some(template) = shape.required(&root, spec, "template") {
        shape.instance(&root.child("template"), template);
    }
    shape.causes
}

/// Collects causes on the way down.
#[derive(Default)]
struct Shape {
    causes: Vec<Cause>,
}

impl Shape {
    fn has_enough(&self) -> bool {
        self.causes.len() >= ENOUGH_CAUSES
    }

    fn run_strategy(&mut self, root: &Path, spec: &Map<String, Value>) {
        let field = root.child("runStrategy");
        match spec.get("runStrategy") {
            None | Some(Value::Null) => {}
            Some(Value::String(_)) => {
                if let RunStrategy::Other(strategy) = RunStrategy::of(&Value::Object(spec.clone()))
                {
                    self.causes.push(Cause::not_supported(
                        field,
                        format!(
                            "{strategy:?} is none of those that a pool can have: {RUN_STRATEGIES}"
                        ),
                    ));
                }
            }
            Some(other) => self.causes.push(wrong_type(field, "a string", other)),
        }
        if let Some(running) = spec.get("running")
            && !running.is_boolean()
            && !running.is_null()
        {
            let field = root.child("running");
            self.causes.push(wrong_type(field, "a boolean", running));
        }
    }

    fn disk_templates(&mut self, root: &Path, spec: &Map<String, Value>) {
        let mut names = BTreeSet::new();
        let list = root.child("dataVolumeTemplates");
        for (index, template) in self.objects(root, spec, "dataVolumeTemplates") {
            if self.has_enough() {
                return;
            }
            let field = list.index(index);
            self.required(&field, template, "spec");
            let Some(metadata) = self.required(&field, template, "metadata") else {
                continue;
            };
            let field = field.child("metadata");
            self.labels_and_annotations(&field, metadata);
            let Some(name) = self.name(&field, metadata) else {
                continue;
            };
            let field = field.child("name");
            if !names.insert(name) {
                self.causes.push(Cause::duplicate(field.clone(), name));
            }
            if let Err(refusal) = check_template_name(name) {
                self.causes.push(Cause::invalid(field, refusal.to_string()));
            }
        }
    }

    fn instance(&mut self, field: &Path, template: &Map<String, Value>) {
        if let Some(metadata) = self.optional(field, template, "metadata") {
            self.labels_and_annotations(&field.child("metadata"), metadata);
        }
        let Some(spec) = self.required(field, template, "spec") else {
            return;
        };
        let field = field.child("spec");
        if let Some(domain) = self.required(&field, spec, "domain") {
            let field = field.child("domain");
            if let Some(devices) = self.optional(&field, domain, "devices") {
                for list in DEVICE_LISTS {
                    self.named(&field.child("devices"), devices, list);
                }
            }
        }
        self.named(&field, spec, "networks");
        let volumes = self.named(&field, spec, "volumes");
        for (index, volume) in volumes {
            if self.has_enough() {
                return;
            }
            let has_source = volume
                .iter()
                .any(|(key, value)| key != "name" && !value.is_null());
            if !has_source {
                let field = field.child("volumes").index(index);
                let message =
                    "has no source, such as containerDisk, dataVolume or persistentVolumeClaim";
                self.causes.push(Cause::required(field, message));
            }
        }
    }

    /// The entries of a list of things with names of their own; each name once.
    fn named<'v>(
        &mut self,
        parent: &Path,
        object: &'v Map<String, Value>,
        key: &str,
    ) -> Vec<(usize, &'v Map<String, Value>)> {
        let entries = self.objects(parent, object, key);
        let list = parent.child(key);
        let mut names = BTreeSet::new();
        for (index, entry) in &entries {
            if self.has_enough() {
                break;
            }
            let field = list.index(*index);
            if let Some(name) = self.name(&field, entry)
                && !names.insert(name)
            {
                self.causes
                    .push(Cause::duplicate(field.child("name"), name));
            }
        }
        entries
    }

    /// The entries of a list that are objects, with their positions; a cause for each other.
    fn objects<'v>(
        &mut self,
        parent: &Path,
        object: &'v Map<String, Value>,
        key: &str,
    ) -> Vec<(usize, &'v Map<String, Value>)> {
        let field = parent.child(key);
        let list = match object.get(key) {
            None | Some(Value::Null) => return Vec::new(),
            Some(Value::Array(list)) => list,
            Some(other) => {
                self.causes.push(wrong_type(field, "a list", other));
                return Vec::new();
            }
        };
        let mut entries = Vec::with_capacity(list.len());
        for (index, entry) in list.iter().enumerate() {
            if let Value::Object(entry) = entry {
                entries.push((index, entry));
            } else if !self.has_enough() {
                let field = field.index(index);
                self.causes.push(wrong_type(field, "an object", entry));
            }
        }
        entries
    }

    fn name<'v>(&mut self, parent: &Path, object: &'v Map<String, Value>) -> Option<&'v str> {
        let field = parent.child("name");
        match object.get("name") {
            Some(Value::String(name)) if !name.is_empty() => return Some(name),
            None | Some(Value::Null | Value::String(_)) => {
                self.causes
                    .push(Cause::required(field, "has to have a name"));
            }
            Some(other) => self.causes.push(wrong_type(field, "a string", other)),
        }
        None
    }

    fn labels_and_annotations(&mut self, field: &Path, metadata: &Map<String, Value>) {
        let labels = self.strings(field, metadata, "labels");
        let labels = check_labels(&field.child("labels"), labels.into_iter());
        self.causes.extend(labels);
        let annotations = self.strings(field, metadata, "annotations");
        let annotations = check_annotations(&field.child("annotations"), annotations.into_iter());
        self.causes.extend(annotations);
    }

    /// A map of strings.
    fn strings<'v>(
        &mut self,
        parent: &Path,
        object: &'v Map<String, Value>,
        key: &str,
    ) -> Vec<(&'v str, &'v str)> {
        let Some(map) = self.optional(parent, object, key) else {
            return Vec::new();
        };
        let field = parent.child(key);
        let mut strings = Vec::with_capacity(map.len());
        for (key, value) in map {
            match value {
                Value::String(value) => strings.push((key.as_str(), value.as_str())),
                _ if self.has_enough() => break,
                other => self
                    .causes
                    .push(wrong_type(field.key(key), "a string", other)),
            }
        }
        strings
    }

    fn required<'v>(
        &mut self,
        parent: &Path,
        object: &'v Map<String, Value>,
        key: &str,
    ) -> Option<&'v Map<String, Value>> {
        if object.get(key).is_none_or(Value::is_null) {
            let field = parent.child(key);
            self.causes.push(Cause::required(field, "has to be set"));
            return None;
        }
        self.optional(parent, object, key)
    }

    fn optional<'v>(
        &mut self,
        parent: &Path,
        object: &'v Map<String, Value>,
        key: &str,
    ) -> Option<&'v Map<String, Value>> {
        match object.get(key) {
            None | Some(Value::Null) => None,
            Some(Value::Object(member)) => Some(member),
            Some(other) => {
                let field = parent.child(key);
                self.causes.push(wrong_type(field, "an object", other));
                None
            }
        }
    }
}

fn wrong_type(field: Path, wanted: &str, value: &Value) -> Cause {
    let found = match value {
        Value::Array(_) => "a list",
        Value::Bool(_) => "a boolean",
        Value::Null => "null",
        Value::Number(_) => "a number",
        Value::Object(_) => "an object",
        Value::String(_) => "a string",
    };
    Cause::invalid(field, format!("must be {wanted}, not {found}"))
}
