//! Where and how the program runs: namespace, Service, Deployment. One replica that is ended before the next
//! one starts, for there is no leader election yet.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec, DeploymentStrategy};
use k8s_openapi::api::core::v1::{
    Capabilities, Container, ContainerPort, EnvVar, EnvVarSource, HTTPGetAction, Namespace,
    ObjectFieldSelector, PodSecurityContext, PodSpec, PodTemplateSpec, Probe, ResourceRequirements,
    SeccompProfile, SecurityContext, Service, ServicePort, ServiceSpec,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{File, NAME, NAMESPACE, yaml};

/// TLS port of the container: the default of `vmpool run`, which a test compares.
pub(super) const ADMISSION_PORT: i32 = 8443;
/// Plain port with probes and metrics: likewise.
pub(super) const HEALTH_PORT: i32 = 8080;
/// Port of the Service.
pub(super) const SERVICE_PORT: u16 = 443;
/// What the command line is given in the cluster.
pub(super) const ARGS: [&str; 2] = ["run", "--log-format=json"];

/// Labels of everything that is installed.
pub(super) fn labels() -> BTreeMap<String, String> {
    [
        ("app.kubernetes.io/name", NAME),
        ("app.kubernetes.io/part-of", NAME),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .into()
}

/// What Deployment and Service select by; the Deployment's can never change again.
fn selector() -> BTreeMap<String, String> {
    [("app.kubernetes.io/name".to_owned(), NAME.to_owned())].into()
}

/// Metadata of a namespaced object of the installation.
pub(super) fn metadata() -> ObjectMeta {
    ObjectMeta {
        name: Some(NAME.to_owned()),
        namespace: Some(NAMESPACE.to_owned()),
        labels: Some(labels()),
        ..ObjectMeta::default()
    }
}

/// The files of this module's objects.
pub(super) fn files() -> Vec<File> {
    [
        ("namespace.yaml", yaml::document(&namespace())),
        ("service.yaml", yaml::document(&service())),
        ("deployment.yaml", yaml::document(&deployment())),
    ]
    .map(|(name, document)| (name.to_owned(), yaml::file([document])))
    .into()
}

/// The program's namespace, in which only `restricted` pods are admitted.
pub fn namespace() -> Namespace {
    let mut labels = labels();
    for mode in ["enforce", "audit", "warn"] {
        labels.insert(
            format!("pod-security.kubernetes.io/{mode}"),
            "restricted".to_owned(),
        );
    }
    Namespace {
        metadata: ObjectMeta {
            name: Some(NAMESPACE.to_owned()),
            labels: Some(labels),
            ..ObjectMeta::default()
        },
        ..Namespace::default()
    }
}

/// How the API server reaches the webhooks.
pub fn service() -> Service {
    Service {
        metadata: metadata(),
        spec: Some(ServiceSpec {
            selector: Some(selector()),
            ports: Some(vec![ServicePort {
                name: Some("admission".to_owned()),
                port: i32::from(SERVICE_PORT),
                target_port: Some(IntOrString::String("admission".to_owned())),
                ..ServicePort::default()
            }]),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    }
}

/// The program.
pub fn deployment() -> Deployment {
    Deployment {
        metadata: metadata(),
        spec: Some(DeploymentSpec {
            replicas: Some(1),
            // Two controllers at once would fight over names: no second one before the first is gone.
            strategy: Some(DeploymentStrategy {
                type_: Some("Recreate".to_owned()),
                ..DeploymentStrategy::default()
            }),
            selector: LabelSelector {
                match_labels: Some(selector()),
                ..LabelSelector::default()
            },
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta {
                    labels: Some(labels()),
                    ..ObjectMeta::default()
                }),
                spec: Some(pod()),
            },
            ..DeploymentSpec::default()
        }),
        ..Deployment::default()
    }
}

fn pod() -> PodSpec {
    PodSpec {
        service_account_name: Some(NAME.to_owned()),
        // No runAsUser: the image's user is a number, and OpenShift wants to choose its own.
        security_context: Some(PodSecurityContext {
            run_as_non_root: Some(true),
            seccomp_profile: Some(SeccompProfile {
                type_: "RuntimeDefault".to_owned(),
                ..SeccompProfile::default()
            }),
            ..PodSecurityContext::default()
        }),
        node_selector: Some([("kubernetes.io/os".to_owned(), "linux".to_owned())].into()),
        containers: vec![container()],
        ..PodSpec::default()
    }
}

fn container() -> Container {
    Container {
        name: NAME.to_owned(),
        // Whoever installs names their registry with kustomize's `images`.
        image: Some(concat!("vmpool:", env!("CARGO_PKG_VERSION")).to_owned()),
        args: Some(ARGS.map(str::to_owned).into()),
        env: Some(
            [
                ("POD_NAME", "metadata.name"),
                ("POD_NAMESPACE", "metadata.namespace"),
            ]
            .map(|(name, path)| from_pod(name, path))
            .into(),
        ),
        ports: Some(vec![
            port("admission", ADMISSION_PORT),
            port("health", HEALTH_PORT),
        ]),
        // A minute to start on a busy node; from then on /livez within a minute too.
        startup_probe: Some(Probe {
            failure_threshold: Some(30),
            period_seconds: Some(2),
            ..probe("/livez")
        }),
        liveness_probe: Some(Probe {
            failure_threshold: Some(6),
            ..probe("/livez")
        }),
        readiness_probe: Some(Probe {
            period_seconds: Some(5),
            ..probe("/readyz")
        }),
        resources: Some(resources()),
        security_context: Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            capabilities: Some(Capabilities {
                drop: Some(vec!["ALL".to_owned()]),
                ..Capabilities::default()
            }),
            read_only_root_filesystem: Some(true),
            ..SecurityContext::default()
        }),
        ..Container::default()
    }
}

fn port(name: &str, number: i32) -> ContainerPort {
    ContainerPort {
        name: Some(name.to_owned()),
        container_port: number,
        ..ContainerPort::default()
    }
}

fn probe(path: &str) -> Probe {
    Probe {
        http_get: Some(HTTPGetAction {
            path: Some(path.to_owned()),
            port: IntOrString::String("health".to_owned()),
            ..HTTPGetAction::default()
        }),
        period_seconds: Some(10),
        timeout_seconds: Some(3),
        ..Probe::default()
    }
}

/// A bound for a leak, far above what `cargo dev bench` measures. No CPU limit: throttled webhooks hold up
/// everybody's requests.
fn resources() -> ResourceRequirements {
    let quantities = |pairs: &[(&str, &str)]| {
        pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), Quantity((*value).to_owned())))
            .collect()
    };
    ResourceRequirements {
        requests: Some(quantities(&[("cpu", "100m"), ("memory", "128Mi")])),
        limits: Some(quantities(&[("memory", "1Gi")])),
        ..ResourceRequirements::default()
    }
}

/// An environment variable with a field of the pod itself.
fn from_pod(name: &str, path: &str) -> EnvVar {
    EnvVar {
        name: name.to_owned(),
        value_from: Some(EnvVarSource {
            field_ref: Some(ObjectFieldSelector {
                field_path: path.to_owned(),
                ..ObjectFieldSelector::default()
            }),
            ..EnvVarSource::default()
        }),
        ..EnvVar::default()
    }
}
