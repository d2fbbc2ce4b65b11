//! A single VM that its user makes from a config, without a pool: the annotation `vmpool.dev/config` asks for it,
//! and its user must be allowed to read that config.
//!
//! It is stamped once, when it is created, and gets a note of that: what carries the note (a copied manifest, a
//! clone, a restore under a new name) is admitted as it is, whoever makes it. Later changes of the config are
//! nothing to it.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};

use super::field::{Cause, Path};
use super::metadata::{is_dns_subdomain, not_a_name};
use super::objects::{Lookup, Named, Unavailable};
use super::review::{Operation, Request};
use super::verdict::Verdict;
use crate::api::{VirtualMachineConfig, annotations};
use crate::stamp::names::LABEL_BUDGET;
use crate::stamp::references::disk_templates;
use crate::stamp::{revision_hash, revision_name, single};

/// What a VM asks for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Wish {
    /// Name of the config.
    pub config: String,
    /// What references get behind a dash.
    pub postfix: Option<String>,
    vm: String,
}

/// What a verdict depends on.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Whether the user may read the config.
    pub is_allowed: Lookup<bool>,
    /// The config.
    pub config: Lookup<Option<Arc<VirtualMachineConfig>>>,
    /// Whether each of [`Wish::disks`] exists.
    pub disks: Vec<(Named, Lookup<bool>)>,
}

impl Wish {
    /// Reads it off a VM. `None`: it asks for nothing. The error is what can't be asked for.
    pub fn read(request: &Request) -> Option<Result<Self, Vec<Cause>>> {
        let of_vm = request
            .object
            .pointer("/metadata/annotations")?
            .as_object()?;
        let text = |key: &str| of_vm.get(key).and_then(Value::as_str);
        let config = text(annotations::FROM_CONFIG)?;
        if request.operation != Operation::Create || of_vm.contains_key(annotations::STAMPED_FROM) {
            return None;
        }
        let mut causes = Vec::new();
        if !is_dns_subdomain(config) {
            causes.push(not_a_name(annotation(annotations::FROM_CONFIG), config));
        }
        let postfix = text(annotations::POSTFIX);
        if let Some(postfix) = postfix
            && (!is_dns_subdomain(postfix) || postfix.len() > LABEL_BUDGET)
        {
            let message = format!(
                "{postfix:?} can't be the end of a name: at most {LABEL_BUDGET} lower case letters, digits and '-', \
                 beginning and ending with a letter or digit"
            );
            causes.push(Cause::invalid(annotation(annotations::POSTFIX), message));
        }
        // A generated name comes after the webhooks.
        let name = request.object.pointer("/metadata/name");
        let name = name.and_then(Value::as_str).unwrap_or_default();
        if name.is_empty() {
            let message = "a VM that is made from a config needs a name of its own, since its disks are named after \
                           it: generateName won't do";
            causes.push(Cause::required(Path::metadata().child("name"), message));
        }
        if !causes.is_empty() {
            return Some(Err(causes));
        }
        Some(Ok(Self {
            config: config.to_owned(),
            postfix: postfix.map(str::to_owned),
            vm: name.to_owned(),
        }))
    }

    /// The spec that it gets.
    fn spec(&self, config: &VirtualMachineConfig, own: Option<&Value>) -> Value {
        single(&config.spec.fields, &self.vm, self.postfix.as_deref(), own)
    }

    /// What must not exist: KubeVirt takes whatever has the name of a disk template, and deletes it with the VM.
    pub fn disks(&self, request: &Request, config: &VirtualMachineConfig) -> BTreeSet<Named> {
        let own = request.object.get("spec");
        let from_config = brought(&self.spec(config, own), own);
        let kinds = |disk: String| [Named::DataVolume(disk.clone()), Named::Claim(disk)];
        from_config.into_iter().flat_map(kinds).collect()
    }
}

/// Names of the disks that come from the config's templates.
fn brought(spec: &Value, own: Option<&Value>) -> BTreeSet<String> {
    let own = own.map(disk_templates).unwrap_or_default();
    disk_templates(spec).difference(&own).cloned().collect()
}

/// Adds to a verdict on a stranger's VM what it asked for. An error is no verdict: the VM has to wait.
pub fn review(
    request: &Request,
    wish: &Wish,
    facts: &Facts,
    mut verdict: Verdict,
) -> Result<Verdict, Unavailable> {
    let field = annotation(annotations::FROM_CONFIG);
    let name = &wish.config;
    // First, so that nobody learns from the answer which configs there are.
    if !facts.is_allowed.clone()? {
        let message = format!(
            "User {:?} cannot get VirtualMachineConfig {name:?}, which is needed to make a VM from it",
            request.user_info.username
        );
        return Ok(Verdict::refused(vec![Cause::forbidden(field, message)]));
    }
    let Some(config) = facts.config.clone()? else {
        let message = format!("VirtualMachineConfig {name:?} does not exist");
        return Ok(Verdict::refused(vec![Cause::invalid(field, message)]));
    };
    let mut vm = (*request.object).clone();
    json_patch::patch(&mut vm, &verdict.patch).expect("the patch was made for this object");
    let fields = &config.spec.fields;
    let spec = wish.spec(&config, vm.get("spec"));
    if let Some(cause) = no_room(&spec, &vm, &wish.vm) {
        return Ok(Verdict::refused(vec![cause]));
    }
    let mut taken = Vec::new();
    for (named, exists) in &facts.disks {
        if exists.clone()? {
            taken.push(is_taken(named));
        }
    }
    if !taken.is_empty() {
        return Ok(Verdict::refused(taken));
    }
    vm["spec"] = spec;
    let state = revision_name(name, &revision_hash(fields));
    vm["metadata"]["annotations"][annotations::STAMPED_FROM] = json!(state);
    verdict.patch = json_patch::diff(&request.object, &vm);
    Ok(verdict)
}

fn is_taken(named: &Named) -> Cause {
    let (kind, name) = match named {
        Named::DataVolume(name) => ("DataVolume", name),
        Named::Claim(name) => ("PersistentVolumeClaim", name),
        Named::ConfigMap(name) => ("ConfigMap", name),
    };
    let message = format!(
        "{kind} {name} exists already: a VM of this name would take it for its own disk, and delete it with itself;          choose another name, or say in the VM's own dataVolumeTemplates or volumes what is meant"
    );
    Cause::invalid(Path::metadata().child("name"), message)
}

/// Why the names of disks that come from the config's templates are too long.
fn no_room(spec: &Value, vm: &Value, name: &str) -> Option<Cause> {
    let longest = brought(spec, vm.get("spec"))
        .into_iter()
        .max_by_key(String::len)?;
    let over = longest
        .len()
        .checked_sub(LABEL_BUDGET)
        .filter(|over| *over > 0)?;
    let message = format!(
        "the disk {longest:?} would have a name of {} characters, with at most {LABEL_BUDGET}: at most {} are left \
         for the VM's own",
        longest.len(),
        name.len().saturating_sub(over)
    );
    Some(Cause::invalid(Path::metadata().child("name"), message))
}

fn annotation(key: &str) -> Path {
    Path::metadata().child("annotations").key(key)
}
