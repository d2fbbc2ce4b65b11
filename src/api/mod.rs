//! The two kinds of `vmpool.dev`, and every name of ours that is written into the cluster: labels,
//! annotations, conditions, reasons. No client, no async, no decisions.

pub mod annotations;
pub mod conditions;
pub mod config;
pub mod intent;
pub mod labels;
pub mod pool;
pub mod quantity;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt as _;

pub use config::{VirtualMachineConfig, VirtualMachineConfigSpec, VirtualMachineConfigStatus};
pub use pool::{VirtualMachinePool, VirtualMachinePoolSpec, VirtualMachinePoolStatus};

/// The API group of both kinds.
pub const GROUP: &str = "vmpool.dev";
/// The only served version.
pub const VERSION: &str = "v1alpha1";
/// `apiVersion` of both kinds.
pub const API_VERSION: &str = "vmpool.dev/v1alpha1";
/// Kind of a pool. KubeVirt's own pool has the same kind in another group: always compare the group too.
pub const POOL_KIND: &str = "VirtualMachinePool";
/// Plural of a pool.
pub const POOL_PLURAL: &str = "virtualmachinepools";
/// Kind of a config.
pub const CONFIG_KIND: &str = "VirtualMachineConfig";
/// Plural of a config.
pub const CONFIG_PLURAL: &str = "virtualmachineconfigs";
/// Group of the aggregated API: another one than the CRDs', which must stay readable while it is down.
pub const SUBRESOURCES_GROUP: &str = "subresources.vmpool.dev";
/// Name of the `APIService` through which the API server reaches the aggregated API.
pub const API_SERVICE: &str = "v1alpha1.subresources.vmpool.dev";
/// The field manager and event source under which this program writes.
pub const MANAGER: &str = "vmpool";

/// Both CRDs as they are installed.
///
/// schemars marks optional fields `nullable`; that is taken off again, since a stored `null` would be a third
/// state beside "absent" and "set" (and count as a member of a union in CEL).
pub fn crds() -> Vec<CustomResourceDefinition> {
    [VirtualMachineConfig::crd(), VirtualMachinePool::crd()]
        .into_iter()
        .map(|mut crd| {
            for version in &mut crd.spec.versions {
                if let Some(schema) = version
                    .schema
                    .as_mut()
                    .and_then(|s| s.open_api_v3_schema.as_mut())
                {
                    forbid_null(schema);
                }
            }
            crd
        })
        .collect()
}

fn forbid_null(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    for property in schema.properties.iter_mut().flat_map(|p| p.values_mut()) {
        forbid_null(property);
    }
    match &mut schema.items {
        Some(JSONSchemaPropsOrArray::Schema(item)) => forbid_null(item),
        Some(JSONSchemaPropsOrArray::Schemas(items)) => items.iter_mut().for_each(forbid_null),
        None => {}
    }
    if let Some(JSONSchemaPropsOrBool::Schema(value)) = &mut schema.additional_properties {
        forbid_null(value);
    }
}

#[cfg(test)]
mod tests;
