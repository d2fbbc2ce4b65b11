//! What this API has, in the three documents that the API server, its controllers and kubectl read. Open to
//! everybody: it is the same in every cluster, and an API server that can't read it takes the group for
//! broken, whatever the reason.
//!
//! A pool is listed with `get` alone. With `list` or `watch` the garbage collector and the quota controller
//! would start to watch it, with `delete` a namespace's end would ask us to delete them, and all of that is
//! the CRD's. But listed it must be: the autoscaler looks for the kind of its target here.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    APIGroup, APIGroupList, APIResource, APIResourceList, GroupVersionForDiscovery,
};
use serde_json::{Value, json};

use super::{API_VERSION, DETACH_KIND};
use crate::api::{POOL_KIND, POOL_PLURAL, SUBRESOURCES_GROUP, VERSION};

/// Name of one pool.
const SINGULAR: &str = "virtualmachinepool";

/// A resource, or a subresource of pools.
struct Entry {
    subresource: Option<&'static str>,
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    verbs: &'static [&'static str],
}

/// Everything.
const ENTRIES: [Entry; 3] = [
    Entry {
        subresource: None,
        group: SUBRESOURCES_GROUP,
        version: VERSION,
        kind: POOL_KIND,
        verbs: &["get"],
    },
    Entry {
        subresource: Some("detach"),
        group: SUBRESOURCES_GROUP,
        version: VERSION,
        kind: DETACH_KIND,
        verbs: &["create"],
    },
    // Group and version too: the autoscaler can't write a Scale whose version it doesn't know.
    Entry {
        subresource: Some("scale"),
        group: "autoscaling",
        version: "v1",
        kind: "Scale",
        verbs: &["get", "patch", "update"],
    },
];

/// `/apis`.
pub(super) fn groups() -> Value {
    to_json(&APIGroupList {
        groups: vec![the_group()],
    })
}

/// `/apis/<group>`.
pub(super) fn group() -> Value {
    to_json(&the_group())
}

/// `/apis/<group>/<version>`.
pub(super) fn resources() -> Value {
    let resources = ENTRIES.iter().map(|entry| APIResource {
        name: match entry.subresource {
            None => POOL_PLURAL.to_owned(),
            Some(subresource) => format!("{POOL_PLURAL}/{subresource}"),
        },
        singular_name: match entry.subresource {
            None => SINGULAR.to_owned(),
            Some(_) => String::new(),
        },
        namespaced: true,
        group: Some(entry.group.to_owned()),
        version: Some(entry.version.to_owned()),
        kind: entry.kind.to_owned(),
        verbs: entry.verbs.iter().map(|&verb| verb.to_owned()).collect(),
        ..APIResource::default()
    });
    to_json(&APIResourceList {
        group_version: API_VERSION.to_owned(),
        resources: resources.collect(),
    })
}

/// `/apis`, aggregated (`apidiscovery.k8s.io/v2`).
pub(super) fn aggregated() -> Value {
    let kind =
        |entry: &Entry| json!({"group": entry.group, "version": entry.version, "kind": entry.kind});
    let mut resources = Vec::new();
    let mut subresources = Vec::new();
    for entry in &ENTRIES {
        match entry.subresource {
            None => resources.push(json!({
                "resource": POOL_PLURAL,
                "responseKind": kind(entry),
                "scope": "Namespaced",
                "singularResource": SINGULAR,
                "verbs": entry.verbs,
            })),
            Some(subresource) => subresources.push(json!({
                "subresource": subresource,
                "responseKind": kind(entry),
                "verbs": entry.verbs,
            })),
        }
    }
    resources[0]["subresources"] = subresources.into();
    json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": [{
            "metadata": {"name": SUBRESOURCES_GROUP},
            "versions": [{"version": VERSION, "freshness": "Current", "resources": resources}],
        }],
    })
}

fn the_group() -> APIGroup {
    let version = GroupVersionForDiscovery {
        group_version: API_VERSION.to_owned(),
        version: VERSION.to_owned(),
    };
    APIGroup {
        name: SUBRESOURCES_GROUP.to_owned(),
        preferred_version: Some(version.clone()),
        versions: vec![version],
        ..APIGroup::default()
    }
}

fn to_json(document: &impl serde::Serialize) -> Value {
    serde_json::to_value(document).expect("discovery documents are strings and lists")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ag_04_the_documents_say_the_same() {
        assert_eq!(groups()["kind"], "APIGroupList");
        assert_eq!(groups()["groups"][0]["name"], SUBRESOURCES_GROUP);
        assert_eq!(group()["kind"], "APIGroup");
        assert_eq!(group()["preferredVersion"]["groupVersion"], API_VERSION);
        let list = resources();
        assert_eq!(list["kind"], "APIResourceList");
        assert_eq!(list["groupVersion"], API_VERSION);
        let aggregated = aggregated();
        let version = &aggregated["items"][0]["versions"][0];
        let pool = &version["resources"][0];
        for resource in list["resources"].as_array().unwrap() {
            let name = resource["name"].as_str().unwrap();
            let same = match name.strip_prefix("virtualmachinepools/") {
                None => pool,
                Some(subresource) => pool["subresources"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .find(|entry| entry["subresource"] == subresource)
                    .unwrap(),
            };
            assert_eq!(same["verbs"], resource["verbs"], "{name}");
            assert_eq!(same["responseKind"]["kind"], resource["kind"]);
            assert_eq!(same["responseKind"]["group"], resource["group"]);
            assert_eq!(same["responseKind"]["version"], resource["version"]);
        }
        assert_eq!(pool["verbs"], json!(["get"]), "controllers would watch it");
        assert_eq!(pool["subresources"].as_array().unwrap().len(), 2);
    }
}
