//! Reads a process from a container of a generated Deployment, so that what runs here is what
//! would run in a cluster: its arguments, its environment and its probes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::{Container, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{ProbeSpec, ProcessSpec};

/// What a node would add to a container.
#[derive(Clone, Debug, Default)]
pub struct Placement {
    /// Instead of the image.
    pub program: PathBuf,
    /// Where the output goes.
    pub log: PathBuf,
    /// From the container's ports to those that are really used, since a machine has each only
    /// once; others stay as they are. Probes follow; arguments are the caller's to change.
    pub ports: BTreeMap<u16, u16>,
    /// The values of `fieldRef`s: `metadata.namespace` and so on.
    pub fields: BTreeMap<String, String>,
}

impl ProcessSpec {
    /// What this container runs. A field of which the meaning here is unknown is an error.
    pub fn from_container(container: &Container, placement: &Placement) -> Result<Self> {
        let mut spec = Self::new(&container.name, &placement.program, &placement.log);
        spec.env = environment(container, placement)?;
        let args = container.args.iter().flatten();
        spec.args = args.map(|arg| expand(arg, &spec.env)).collect();
        let probe = |probe: &Option<Probe>| {
            probe
                .as_ref()
                .map(|probe| read_probe(probe, container, placement))
                .transpose()
        };
        spec.startup = probe(&container.startup_probe).context("startupProbe")?;
        spec.liveness = probe(&container.liveness_probe).context("livenessProbe")?;
        spec.readiness = probe(&container.readiness_probe).context("readinessProbe")?;
        Ok(spec)
    }
}

fn environment(container: &Container, placement: &Placement) -> Result<BTreeMap<String, String>> {
    let mut env = BTreeMap::new();
    for variable in container.env.iter().flatten() {
        let field = variable
            .value_from
            .as_ref()
            .map(|source| source.field_ref.as_ref().map(|field| &field.field_path));
        let value = match field {
            None => expand(variable.value.as_deref().unwrap_or_default(), &env),
            Some(path) => path
                .and_then(|path| placement.fields.get(path))
                .cloned()
                .with_context(|| format!("no value for the variable {}", variable.name))?,
        };
        env.insert(variable.name.clone(), value);
    }
    Ok(env)
}

/// `$(NAME)` as Kubernetes has it: unknown names stay as they are.
fn expand(text: &str, env: &BTreeMap<String, String>) -> String {
    let mut text = text.to_owned();
    for (name, value) in env {
        text = text.replace(&format!("$({name})"), value);
    }
    text
}

fn read_probe(probe: &Probe, container: &Container, placement: &Placement) -> Result<ProbeSpec> {
    let get = probe
        .http_get
        .as_ref()
        .context("only httpGet is played here")?;
    let port = find_port(&get.port, container)?;
    let port = placement.ports.get(&port).copied().unwrap_or(port);
    let scheme = get.scheme.as_deref().unwrap_or("HTTP").to_lowercase();
    let path = Path::new("/").join(get.path.as_deref().unwrap_or_default());
    let seconds = |value: Option<i32>, default: u64| {
        let value = value.and_then(|value| u64::try_from(value).ok());
        Duration::from_secs(value.filter(|value| *value > 0).unwrap_or(default))
    };
    let count = |value: Option<i32>, default: u32| {
        let value = value.and_then(|value| u32::try_from(value).ok());
        value.filter(|value| *value > 0).unwrap_or(default)
    };
    Ok(ProbeSpec {
        url: format!("{scheme}://127.0.0.1:{port}{}", path.display()),
        initial_delay: seconds(probe.initial_delay_seconds, 0),
        period: seconds(probe.period_seconds, 10),
        timeout: seconds(probe.timeout_seconds, 1),
        failure_threshold: count(probe.failure_threshold, 3),
        success_threshold: count(probe.success_threshold, 1),
    })
}

fn find_port(port: &IntOrString, container: &Container) -> Result<u16> {
    let number = match port {
        IntOrString::Int(number) => *number,
        IntOrString::String(name) => {
            let mut ports = container.ports.iter().flatten();
            let found = ports.find(|port| port.name.as_ref() == Some(name));
            match found {
                Some(port) => port.container_port,
                None => bail!("the container has no port {name:?}"),
            }
        }
    };
    u16::try_from(number).with_context(|| format!("{number} is not a port"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn container() -> Container {
        serde_json::from_value(json!({
            "name": "vmpool",
            "args": ["run", "--namespace=$(POD_NAMESPACE)", "--literal=$(OTHER)"],
            "env": [
                {"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
                {"name": "LOG", "value": "info"},
            ],
            "ports": [{"name": "health", "containerPort": 8081}],
            "livenessProbe": {"httpGet": {"path": "/livez", "port": "health"}, "periodSeconds": 5},
            "readinessProbe": {"httpGet": {"path": "/readyz", "port": 9443, "scheme": "HTTPS"},
                               "failureThreshold": 1},
        }))
        .unwrap()
    }

    #[test]
    fn a_container_says_what_runs_and_how_it_is_probed() {
        let placement = Placement {
            ports: BTreeMap::from([(8081, 20_001)]),
            fields: BTreeMap::from([("metadata.namespace".into(), "system".into())]),
            ..Placement::default()
        };
        let spec = ProcessSpec::from_container(&container(), &placement).unwrap();
        assert_eq!(
            spec.args,
            ["run", "--namespace=system", "--literal=$(OTHER)"]
        );
        assert_eq!(spec.env["LOG"], "info");
        let live = ProbeSpec::new("http://127.0.0.1:20001/livez").every(Duration::from_secs(5));
        assert_eq!(spec.liveness, Some(live));
        let ready = ProbeSpec::new("https://127.0.0.1:9443/readyz").failures(1);
        assert_eq!(spec.readiness, Some(ready));
        assert_eq!(spec.startup, None);
    }

    #[test]
    fn what_has_no_meaning_here_is_an_error() {
        let error = ProcessSpec::from_container(&container(), &Placement::default());
        assert!(format!("{:#}", error.unwrap_err()).contains("POD_NAMESPACE"));
        let mut exec = container();
        exec.env = None;
        exec.liveness_probe = serde_json::from_value(json!({"exec": {"command": ["x"]}})).unwrap();
        let error = ProcessSpec::from_container(&exec, &Placement::default());
        assert!(format!("{:#}", error.unwrap_err()).contains("httpGet"));
    }
}
