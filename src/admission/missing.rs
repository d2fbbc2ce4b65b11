//! ConfigMaps and claims that a pool's next VMs would want and that do not exist: worth a warning with their
//! names, since such a VM waits for them, and nobody sees why at once. Secrets are not looked for: this program
//! may not read any. Pure; what exists is looked up by `router`.

use std::collections::BTreeSet;

use serde_json::Value;

use super::objects::{Lookup, Named};
use super::verdict::{Verdict, some_of};
use crate::api::VirtualMachinePoolSpec;
use crate::stamp::{Flag, PoolInputs, Rule, referenced_names};

/// Ordinals that are looked at: whoever makes the objects one by one finds a thousand of them by the first.
const NEXT: u32 = 5;
/// Objects that are looked for at most, each with a call.
const MOST: usize = 20;

/// What the next VMs of a pool refer to, if it is to have more VMs than `stored` said: `None` for a new pool.
pub(super) fn wanted(
    spec: &Value,
    inputs: &PoolInputs,
    pool: &VirtualMachinePoolSpec,
    replicas: u32,
    stored: Option<u32>,
) -> BTreeSet<Named> {
    let before = stored.unwrap_or(0);
    let first = pool.ordinal_start().saturating_add(before);
    let count = replicas.saturating_sub(before).min(NEXT);
    let references: Vec<(Flag, String)> = referenced_names(spec)
        .into_iter()
        .filter_map(|reference| match reference.rule {
            Rule::Opt(flag @ (Flag::ConfigMaps | Flag::VolumeClaims)) => {
                Some((flag, reference.name))
            }
            _ => None,
        })
        .filter(|(_, name)| !name.is_empty())
        .collect();
    let mut wanted = BTreeSet::new();
    for ordinal in first..first.saturating_add(count) {
        for (flag, name) in &references {
            let name = if inputs.appends(*flag) && !inputs.shares(*flag, name) {
                format!("{name}-{ordinal}")
            } else {
                name.clone()
            };
            if wanted.len() < MOST {
                wanted.insert(match flag {
                    Flag::VolumeClaims => Named::Claim(name),
                    Flag::ConfigMaps | Flag::Secrets => Named::ConfigMap(name),
                });
            }
        }
    }
    wanted
}

/// Warns of those of `wanted` that do not exist. What can't be looked up is not worth a word of its own.
pub(super) fn warn(verdict: &mut Verdict, found: Vec<(Named, Lookup<bool>)>) {
    let mut missing: [Vec<String>; 2] = [Vec::new(), Vec::new()];
    for (named, exists) in found {
        match (named, exists) {
            (_, Ok(true) | Err(_)) | (Named::DataVolume(_), _) => {}
            (Named::ConfigMap(name), Ok(false)) => missing[0].push(name),
            (Named::Claim(name), Ok(false)) => missing[1].push(name),
        }
    }
    for (kind, names) in ["ConfigMap", "PersistentVolumeClaim"].iter().zip(missing) {
        let (does, it) = match names.len() {
            0 => continue,
            1 => ("does", "it"),
            _ => ("do", "them"),
        };
        verdict.warn(format!(
            "{kind} {} {does} not exist: the VMs that refer to {it} wait",
            some_of(&names)
        ));
    }
}
