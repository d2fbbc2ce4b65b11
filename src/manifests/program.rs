//! Where and how the program runs: namespace, Service, Deployment, and how many of its pods may be away at a time.
//!
//! Two replicas: webhooks, and an APIService without which namespaces of the whole cluster can't end, have to be
//! there while a node is drained or the program is upgraded. Only the one that holds the Lease runs the controller.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{
    Deployment, DeploymentSpec, DeploymentStrategy, RollingUpdateDeployment,
};
use k8s_openapi::api::core::v1::{
    Capabilities, Container, ContainerPort, EnvVar, EnvVarSource, HTTPGetAction, Lifecycle,
    LifecycleHandler, Namespace, ObjectFieldSelector, PodSecurityContext, PodSpec, PodTemplateSpec,
    Probe, ResourceRequirements, SeccompProfile, SecurityContext, Service, ServicePort,
    ServiceSpec, SleepAction, TopologySpreadConstraint,
};
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
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
/// How many of it run.
pub const REPLICAS: i32 = 2;
/// So long a pod that is to end goes on serving: until every node has learnt to send nothing more there.
const LAME_SECONDS: i64 = 5;
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

fn label_selector() -> LabelSelector {
    LabelSelector {
        match_labels: Some(selector()),
        ..LabelSelector::default()
    }
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
        (
            "disruption-budget.yaml",
            yaml::document(&disruption_budget()),
        ),
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
            replicas: Some(REPLICAS),
            // Never fewer than there are to be: the API server calls us for as long as we are installed.
            strategy: Some(DeploymentStrategy {
                type_: Some("RollingUpdate".to_owned()),
                rolling_update: Some(RollingUpdateDeployment {
                    max_surge: Some(IntOrString::Int(1)),
                    max_unavailable: Some(IntOrString::Int(0)),
                }),
            }),
            selector: label_selector(),
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

/// Whoever drains nodes takes one at a time.
pub fn disruption_budget() -> PodDisruptionBudget {
    PodDisruptionBudget {
        metadata: metadata(),
        spec: Some(PodDisruptionBudgetSpec {
            max_unavailable: Some(IntOrString::Int(1)),
            selector: Some(label_selector()),
            // A pod that isn't ready serves nobody: a drain need not wait for it.
            unhealthy_pod_eviction_policy: Some("AlwaysAllow".to_owned()),
            ..PodDisruptionBudgetSpec::default()
        }),
        ..PodDisruptionBudget::default()
    }
}

/// Best on two nodes in two zones; a cluster of one node runs it too.
fn spread() -> Vec<TopologySpreadConstraint> {
    ["kubernetes.io/hostname", "topology.kubernetes.io/zone"]
        .map(|key| TopologySpreadConstraint {
            label_selector: Some(label_selector()),
            // Pods of the version before don't count, or an upgrade would choose the fullest node.
            match_label_keys: Some(vec!["pod-template-hash".to_owned()]),
            max_skew: 1,
            topology_key: key.to_owned(),
            when_unsatisfiable: "ScheduleAnyway".to_owned(),
            ..TopologySpreadConstraint::default()
        })
        .into()
}

fn pod() -> PodSpec {
    PodSpec {
        topology_spread_constraints: Some(spread()),
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
                ("POD_UID", "metadata.uid"),
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
        // Quick, for what a pod that doesn't serve is asked is refused.
        readiness_probe: Some(Probe {
            failure_threshold: Some(2),
            period_seconds: Some(2),
            timeout_seconds: Some(2),
            ..probe("/readyz")
        }),
        lifecycle: Some(Lifecycle {
            pre_stop: Some(LifecycleHandler {
                sleep: Some(SleepAction {
                    seconds: LAME_SECONDS,
                }),
                ..LifecycleHandler::default()
            }),
            ..Lifecycle::default()
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
