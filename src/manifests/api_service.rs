//! How the API server learns of the aggregated API, and the right to read whom to believe.

use k8s_openapi::api::rbac::v1::{RoleBinding, RoleRef, Subject};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::{
    APIService, APIServiceSpec, ServiceReference,
};

use super::program::{SERVICE_PORT, labels};
use super::rbac::cluster_metadata;
use super::{File, NAME, NAMESPACE, yaml};
use crate::aggregated::{TRUST_NAME, TRUST_NAMESPACE};
use crate::api::{API_SERVICE, SUBRESOURCES_GROUP, VERSION};

/// Below the CRDs' 1000, so that a bare `kubectl get virtualmachinepools` goes on meaning the CRD.
const GROUP_PRIORITY: i32 = 500;
/// There is one version.
const VERSION_PRIORITY: i32 = 100;

/// The group and who serves it: our Service, at this port of it. Without a CA bundle, which the program puts
/// there when it starts, or whatever hands out certificates does.
pub fn api_service(port: u16) -> APIService {
    APIService {
        metadata: cluster_metadata(API_SERVICE),
        spec: Some(APIServiceSpec {
            group: Some(SUBRESOURCES_GROUP.to_owned()),
            version: Some(VERSION.to_owned()),
            group_priority_minimum: GROUP_PRIORITY,
            version_priority: VERSION_PRIORITY,
            service: Some(ServiceReference {
                name: Some(NAME.to_owned()),
                namespace: Some(NAMESPACE.to_owned()),
                port: Some(i32::from(port)),
            }),
            ..APIServiceSpec::default()
        }),
        status: None,
    }
}

/// The right to read the ConfigMap that says whose certificates count, by the Role that every cluster has for
/// it.
pub fn trust_role_binding() -> RoleBinding {
    RoleBinding {
        metadata: ObjectMeta {
            name: Some(format!("{NAME}-auth-reader")),
            namespace: Some(TRUST_NAMESPACE.to_owned()),
            labels: Some(labels()),
            ..ObjectMeta::default()
        },
        role_ref: RoleRef {
            api_group: "rbac.authorization.k8s.io".to_owned(),
            kind: "Role".to_owned(),
            name: format!("{TRUST_NAME}-reader"),
        },
        subjects: Some(vec![Subject {
            kind: "ServiceAccount".to_owned(),
            name: NAME.to_owned(),
            namespace: Some(NAMESPACE.to_owned()),
            ..Subject::default()
        }]),
    }
}

/// The file with the APIService, as a cluster has it.
pub(super) fn files() -> Vec<File> {
    let text = yaml::file([yaml::document(&api_service(SERVICE_PORT))]);
    vec![("api-service.yaml".to_owned(), text)]
}

/// The file with the right.
pub(super) fn rights_files() -> Vec<File> {
    let text = yaml::file([yaml::document(&trust_role_binding())]);
    vec![("auth-reader.yaml".to_owned(), text)]
}
