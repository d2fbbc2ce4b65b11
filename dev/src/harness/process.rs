//! How the `vmpool` process is started and probed: as the generated Deployment says, but for what
//! only this machine knows.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Container;

use super::{NAMESPACE, Options, SERVICE_ACCOUNT};
use crate::supervisor::{Placement, ProbeSpec, ProcessSpec};

/// A kubelet's pace would make every start take seconds.
const READY_PERIOD: Duration = Duration::from_millis(100);

/// What only this machine knows.
#[derive(Clone)]
pub(super) struct Place {
    /// What the pod would be called.
    pub(super) pod: String,
    pub(super) program: PathBuf,
    pub(super) kubeconfig: PathBuf,
    pub(super) log: PathBuf,
    pub(super) admission: SocketAddr,
    pub(super) health: SocketAddr,
}

/// The process. Environment and probes are the Deployment's, arguments name the addresses here.
pub(super) fn spec(place: &Place, options: &Options) -> Result<ProcessSpec> {
    let container = container().context("the generated Deployment has no container")?;
    let placement = Placement {
        program: place.program.clone(),
        log: place.log.clone(),
        ports: ports(&container, place),
        fields: BTreeMap::from([
            ("metadata.namespace".to_owned(), NAMESPACE.to_owned()),
            ("metadata.name".to_owned(), place.pod.clone()),
            ("metadata.uid".to_owned(), format!("{}-uid", place.pod)),
        ]),
    };
    let mut spec = ProcessSpec::from_container(&container, &placement)?;
    spec.args.clear();
    spec = spec
        .args([
            "run",
            "--kubeconfig",
            &place.kubeconfig.display().to_string(),
        ])
        .args(["--admission-address", &place.admission.to_string()])
        .args(["--health-address", &place.health.to_string()])
        .args(["--namespace", NAMESPACE])
        .args(["--service-account", SERVICE_ACCOUNT])
        .args(options.args.clone());
    if !options.log.is_empty() {
        spec = spec.env("RUST_LOG", &options.log);
    }
    spec.startup = spec.startup.take().map(hasten);
    if let Some(readiness) = &mut spec.readiness {
        // As often in a row: one that hangs takes its time-out each time.
        readiness.period = READY_PERIOD;
    }
    Ok(spec)
}

/// The same patience in shorter steps.
fn hasten(mut probe: ProbeSpec) -> ProbeSpec {
    let patience = probe.period * probe.failure_threshold;
    probe.initial_delay = Duration::ZERO;
    probe.period = READY_PERIOD;
    let steps = patience.as_millis() / READY_PERIOD.as_millis();
    probe.failure_threshold = u32::try_from(steps).unwrap_or(u32::MAX).max(1);
    probe
}

/// The only container that is not there for something else.
fn container() -> Option<Container> {
    let template = vmpool::manifests::deployment().spec?.template;
    template.spec?.containers.into_iter().next()
}

/// From the container's ports to ours, told apart by name.
fn ports(container: &Container, place: &Place) -> BTreeMap<u16, u16> {
    let ports = container.ports.iter().flatten();
    ports
        .filter_map(|port| {
            let here = match port.name.as_deref() {
                Some("health") => place.health,
                Some("admission") => place.admission,
                _ => return None,
            };
            Some((u16::try_from(port.container_port).ok()?, here.port()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_probes_are_the_deployments_at_our_ports() {
        let place = Place {
            pod: "vmpool-0".to_owned(),
            program: "/bin/vmpool".into(),
            kubeconfig: "/tmp/kubeconfig".into(),
            log: "/tmp/log".into(),
            admission: SocketAddr::from(([127, 0, 0, 1], 20_001)),
            health: SocketAddr::from(([127, 0, 0, 1], 20_002)),
        };
        let spec = spec(&place, &Options::default()).unwrap();
        let liveness = spec.liveness.expect("the Deployment has a liveness probe");
        assert_eq!(liveness.url, "http://127.0.0.1:20002/livez");
        let readiness = spec
            .readiness
            .expect("the Deployment has a readiness probe");
        assert_eq!(readiness.url, "http://127.0.0.1:20002/readyz");
        assert_eq!(readiness.period, READY_PERIOD);
    }
}
