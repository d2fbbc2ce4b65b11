//! Which lists in a VM are lists of named things, and by what their elements are known.
//!
//! Others add to them (a hot-plugged disk, another webhook's volume), so they are never compared or
//! replaced by position.

use serde_json::Value;

/// Where an element's key stands, for each such list of a VM: paths with `[]` for elements.
const LISTS: &[(&str, &[&str])] = &[
    ("metadata.ownerReferences", &["/uid"]),
    ("spec.dataVolumeTemplates", &["/metadata/name"]),
    (
        "spec.template.spec.accessCredentials",
        &[
            "/sshPublicKey/source/secret/secretName",
            "/userPassword/source/secret/secretName",
        ],
    ),
    ("spec.template.spec.domain.devices.disks", NAME),
    ("spec.template.spec.domain.devices.filesystems", NAME),
    ("spec.template.spec.domain.devices.gpus", NAME),
    ("spec.template.spec.domain.devices.hostDevices", NAME),
    ("spec.template.spec.domain.devices.inputs", NAME),
    ("spec.template.spec.domain.devices.interfaces", NAME),
    ("spec.template.spec.networks", NAME),
    ("spec.template.spec.resourceClaims", NAME),
    ("spec.template.spec.utilityVolumes", NAME),
    ("spec.template.spec.volumes", NAME),
];

const NAME: &[&str] = &["/name"];

/// The keys of a list's elements, each with the place in the element that it stands at. None when
/// the list is not one of named things, an element has no key, or two have the same: then the list
/// can only be taken as a whole.
pub(crate) fn keys<'v>(path: &str, list: &'v [Value]) -> Option<Vec<(usize, &'v str)>> {
    let (_, places) = LISTS.iter().find(|(known, _)| *known == path)?;
    let mut keys = Vec::with_capacity(list.len());
    for element in list {
        let key = places
            .iter()
            .enumerate()
            .find_map(|(place, pointer)| Some((place, element.pointer(pointer)?.as_str()?)))?;
        if keys.contains(&key) {
            return None;
        }
        keys.push(key);
    }
    Some(keys)
}
