//! Which fields of a VM spec are names, what becomes of each in a pool, and the renaming itself.
//!
//! [`TABLE`](super::table::TABLE) is the one list: the stamp walks it, admission lists names by it,
//! documentation and tests print it. A field that is not in it is never touched. Nothing here looks
//! at whether what is named exists.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::inputs::PoolInputs;
use super::names::disk_name;
use super::path::Pattern;
use super::table::TABLE;

/// One field that holds a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Where, below `spec`, in the language of [`super::path`].
    pub path: &'static str,
    /// What is named.
    pub kind: Kind,
    /// What becomes of the name.
    pub rule: Rule,
    /// Whether the name may be a disk template's, and then follows it ([`Rule::PerVm`]).
    pub names_disk: bool,
    /// What to know about it, for the documentation and messages.
    pub note: &'static str,
}

/// What a name names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A `PersistentVolumeClaim`.
    Claim,
    /// A `ConfigMap`.
    ConfigMap,
    /// An object without namespace: a class, a scheduler, a binding plugin.
    ClusterScoped,
    /// A `ControllerRevision`.
    ControllerRevision,
    /// A CDI `DataSource`.
    DataSource,
    /// A `DataVolume`, and the claim of the same name.
    DataVolume,
    /// A path on the node.
    HostPath,
    /// An `ImageStream`.
    ImageStream,
    /// A `VirtualMachineInstancetype` or its cluster-wide sibling.
    Instancetype,
    /// Something inside the same VM spec.
    Internal,
    /// A namespace.
    Namespace,
    /// A `NetworkAttachmentDefinition`, `[namespace/]name`.
    Network,
    /// A `PersistentVolume`.
    PersistentVolume,
    /// A claim, a snapshot or an object of a volume populator.
    PopulatorSource,
    /// A `VirtualMachinePreference` or its cluster-wide sibling.
    Preference,
    /// A `ResourceClaim`.
    ResourceClaim,
    /// A `ResourceClaimTemplate`.
    ResourceClaimTemplate,
    /// A Secret.
    Secret,
    /// A `ServiceAccount`.
    ServiceAccount,
    /// A `VolumeSnapshot`.
    VolumeSnapshot,
}

/// What becomes of a name in the VMs of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// As written, and only one VM at a time can have it: refused for more than one.
    Exclusive,
    /// As written: it names a part of the same spec, and those keep their names.
    Internal,
    /// Gets the ordinal when the pool says so and doesn't list it as shared.
    Opt(Flag),
    /// Each VM has its own: `<vm name>-<name>`.
    PerVm,
    /// Belongs to one VM's life and has no place in a config; never touched.
    RefusedInConfig,
    /// As written.
    Shared,
    /// As written, and worth a warning when several VMs have it.
    WarnShared,
}

/// The switches of `nameGeneration`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Flag {
    /// `appendPostfixToConfigMapReferences`
    ConfigMaps,
    /// `appendPostfixToSecretReferences`
    Secrets,
    /// `appendPostfixToVolumeClaimReferences`
    VolumeClaims,
}

/// A name found in a spec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// Where, below `spec`, with indices.
    pub path: String,
    /// What is named.
    pub kind: Kind,
    /// The name as it stands there.
    pub name: String,
    /// What becomes of it: the row's rule, or [`Rule::PerVm`] where it names a disk template.
    pub rule: Rule,
    /// The row of the table that found it.
    pub row: &'static Row,
}

/// What names are changed with.
#[derive(Clone, Copy, Debug)]
pub struct Naming<'a> {
    /// The VM's name, which its disks' names begin with.
    pub vm_name: &'a str,
    /// What references get behind a `-`. None: they stay as they are.
    pub postfix: Option<&'a str>,
    /// The switches, and the names that are shared.
    pub inputs: &'a PoolInputs,
}

static PATTERNS: LazyLock<Vec<(Pattern, &'static Row)>> = LazyLock::new(|| {
    TABLE
        .iter()
        .map(|row| (Pattern::parse(row.path), row))
        .collect()
});

/// Puts the names in a VM spec right for one VM. Only string values in fields of the table change.
pub fn rewrite(spec: &mut Value, naming: &Naming<'_>) {
    let templates = disk_templates(spec);
    for (pattern, row) in PATTERNS.iter() {
        if !row.changes() {
            continue;
        }
        pattern.visit_mut(spec, &mut |value| {
            let Value::String(name) = value else { return };
            if let Cow::Owned(renamed) = row.renamed(name, &templates, naming) {
                *name = renamed;
            }
        });
    }
}

/// All names in a VM spec, in the order of the table. Of a stamped spec they are that VM's own.
pub fn referenced_names(spec: &Value) -> Vec<Reference> {
    let templates = disk_templates(spec);
    let mut references = Vec::new();
    for (pattern, row) in PATTERNS.iter() {
        pattern.visit(spec, &mut |path, value| {
            let Value::String(name) = value else { return };
            references.push(Reference {
                path: path.to_owned(),
                kind: row.kind,
                name: name.clone(),
                rule: row.rule_for(name, &templates),
                row,
            });
        });
    }
    references
}

/// The names of a spec's disk templates.
pub fn disk_templates(spec: &Value) -> BTreeSet<String> {
    spec.as_object().map(disk_templates_of).unwrap_or_default()
}

/// The same for a config's spec as it is stored.
pub fn disk_templates_of(spec: &Map<String, Value>) -> BTreeSet<String> {
    let templates = spec.get("dataVolumeTemplates").and_then(Value::as_array);
    templates
        .into_iter()
        .flatten()
        .filter_map(|template| template.pointer("/metadata/name")?.as_str())
        .filter(|name| !name.is_empty())
        .map(ToOwned::to_owned)
        .collect()
}

impl Row {
    /// A row for names that can't be a disk template's.
    pub(crate) const fn new(
        path: &'static str,
        kind: Kind,
        rule: Rule,
        note: &'static str,
    ) -> Self {
        Self {
            path,
            kind,
            rule,
            names_disk: false,
            note,
        }
    }

    /// The row, for names that may be a disk template's.
    pub(crate) const fn or_disk(mut self) -> Self {
        self.names_disk = true;
        self
    }

    /// Whether the stamp can change such a name at all.
    pub const fn changes(&self) -> bool {
        self.names_disk || matches!(self.rule, Rule::Opt(_) | Rule::PerVm)
    }

    fn rule_for(&self, name: &str, templates: &BTreeSet<String>) -> Rule {
        if self.names_disk && templates.contains(name) {
            Rule::PerVm
        } else {
            self.rule
        }
    }

    fn renamed<'n>(
        &self,
        name: &'n str,
        templates: &BTreeSet<String>,
        naming: &Naming<'_>,
    ) -> Cow<'n, str> {
        // An empty name is no reference; KubeVirt says so, with a message about what was written.
        if name.is_empty() {
            return Cow::Borrowed(name);
        }
        match (self.rule_for(name, templates), naming.postfix) {
            (Rule::PerVm, _) => Cow::Owned(disk_name(naming.vm_name, name)),
            (Rule::Opt(flag), Some(postfix))
                if naming.inputs.appends(flag) && !naming.inputs.shares(flag, name) =>
            {
                Cow::Owned(format!("{name}-{postfix}"))
            }
            _ => Cow::Borrowed(name),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Claim => "PersistentVolumeClaim",
            Self::ClusterScoped => "cluster-scoped object",
            Self::ConfigMap => "ConfigMap",
            Self::ControllerRevision => "ControllerRevision",
            Self::DataSource => "DataSource",
            Self::DataVolume => "DataVolume",
            Self::HostPath => "path on the node",
            Self::ImageStream => "ImageStream",
            Self::Instancetype => "VirtualMachineInstancetype or VirtualMachineClusterInstancetype",
            Self::Internal => "part of the same VM",
            Self::Namespace => "Namespace",
            Self::Network => "NetworkAttachmentDefinition",
            Self::PersistentVolume => "PersistentVolume",
            Self::PopulatorSource => "source of a volume",
            Self::Preference => "VirtualMachinePreference or VirtualMachineClusterPreference",
            Self::ResourceClaim => "ResourceClaim",
            Self::ResourceClaimTemplate => "ResourceClaimTemplate",
            Self::Secret => "Secret",
            Self::ServiceAccount => "ServiceAccount",
            Self::VolumeSnapshot => "VolumeSnapshot",
        })
    }
}

impl Flag {
    /// The field of `nameGeneration` that turns it on.
    pub const fn field(self) -> &'static str {
        match self {
            Self::ConfigMaps => "appendPostfixToConfigMapReferences",
            Self::Secrets => "appendPostfixToSecretReferences",
            Self::VolumeClaims => "appendPostfixToVolumeClaimReferences",
        }
    }

    /// The field of `nameGeneration` that lists exceptions.
    pub const fn exceptions_field(self) -> &'static str {
        match self {
            Self::ConfigMaps => "sharedConfigMaps",
            Self::Secrets => "sharedSecrets",
            Self::VolumeClaims => "sharedVolumeClaims",
        }
    }
}
