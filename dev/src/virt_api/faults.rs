//! What virt-api's validator for VirtualMachines finds wrong, as far as it is played: pure.

use serde_json::{Map, Value};
use vmpool::kubevirt::RunStrategy;

/// Annotation on a VM's template: KubeVirt is a newer one, which knows fields that this list doesn't.
const NEWER: &str = "standin.vmpool.dev/newer-kubevirt";

/// What virt-api says of a field.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Fault {
    pub(super) field: String,
    pub(super) message: String,
}

/// The fields of KubeVirt's types, from the CRD of v1.9; those of other types are not looked at.
const KNOWN: &[(&str, &[&str])] = &[
    (
        "spec",
        &[
            "dataVolumeTemplates",
            "instancetype",
            "preference",
            "runStrategy",
            "running",
            "template",
            "updateVolumesStrategy",
        ],
    ),
    ("spec.template", &["metadata", "spec"]),
    (
        "spec.template.spec",
        &[
            "accessCredentials",
            "affinity",
            "architecture",
            "dnsConfig",
            "dnsPolicy",
            "domain",
            "evictionStrategy",
            "hostname",
            "livenessProbe",
            "networks",
            "nodeSelector",
            "priorityClassName",
            "readinessProbe",
            "resourceClaims",
            "schedulerName",
            "serviceAccountName",
            "startStrategy",
            "subdomain",
            "terminationGracePeriodSeconds",
            "tolerations",
            "topologySpreadConstraints",
            "utilityVolumes",
            "volumes",
        ],
    ),
    (
        "spec.template.spec.domain",
        &[
            "chassis",
            "clock",
            "cpu",
            "devices",
            "features",
            "firmware",
            "ioThreads",
            "ioThreadsPolicy",
            "launchSecurity",
            "machine",
            "memory",
            "rebootPolicy",
            "resources",
        ],
    ),
    (
        "spec.template.spec.domain.cpu",
        &[
            "cores",
            "dedicatedCpuPlacement",
            "features",
            "isolateEmulatorThread",
            "maxSockets",
            "model",
            "numa",
            "realtime",
            "sockets",
            "threads",
        ],
    ),
];

/// Everything that is wrong with a VM; as in virt-api, an unknown field hides what else there is.
pub(super) fn faults(vm: &Value) -> Vec<Fault> {
    let is_newer = vm
        .pointer("/spec/template/metadata/annotations")
        .is_some_and(|annotations| annotations.get(NEWER).is_some());
    let unknown = if is_newer {
        Vec::new()
    } else {
        unknown_fields(vm)
    };
    if !unknown.is_empty() {
        return unknown;
    }
    let mut faults = Vec::new();
    disks_without_volumes(vm, &mut faults);
    cpu(vm, &mut faults);
    unused_templates(vm, &mut faults);
    run_strategy(vm, &mut faults);
    faults
}

fn at<'v>(vm: &'v Value, path: &str) -> Option<&'v Value> {
    path.split('.').try_fold(vm, |value, key| value.get(key))
}

fn objects<'v>(vm: &'v Value, path: &str) -> impl Iterator<Item = (usize, &'v Map<String, Value>)> {
    let list = at(vm, path).and_then(Value::as_array);
    list.into_iter()
        .flatten()
        .enumerate()
        .filter_map(|(index, entry)| Some((index, entry.as_object()?)))
}

fn text<'v>(object: &'v Map<String, Value>, key: &str) -> &'v str {
    object.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn unknown_fields(vm: &Value) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (path, known) in KNOWN {
        let object = at(vm, path).and_then(Value::as_object);
        for key in object.into_iter().flat_map(Map::keys) {
            if !known.contains(&key.as_str()) {
                faults.push(Fault {
                    field: String::new(),
                    message: format!("{path}.{key} in body is a forbidden property"),
                });
            }
        }
    }
    faults
}

/// `validateDisks` and `validateVolumes`: each disk has a volume.
fn disks_without_volumes(vm: &Value, faults: &mut Vec<Fault>) {
    let volumes: Vec<&str> = objects(vm, "spec.template.spec.volumes")
        .map(|(_, volume)| text(volume, "name"))
        .collect();
    let disks = "spec.template.spec.domain.devices.disks";
    for (index, disk) in objects(vm, disks) {
        let name = text(disk, "name");
        if !volumes.contains(&name) {
            faults.push(Fault {
                field: format!("{disks}[{index}].name"),
                message: format!("{disks}[{index}].Name '{name}' not found."),
            });
        }
    }
}

/// `validateCPUHotplug`: no more sockets than can be had.
fn cpu(vm: &Value, faults: &mut Vec<Fault>) {
    let cpu = "spec.template.spec.domain.cpu";
    let number = |key: &str| at(vm, &format!("{cpu}.{key}")).and_then(Value::as_i64);
    if let (Some(sockets), Some(most)) = (number("sockets"), number("maxSockets"))
        && sockets > most
    {
        faults.push(Fault {
            field: format!("{cpu}.sockets"),
            message:
                "Number of sockets in CPU topology is greater than the maximum sockets allowed"
                    .to_owned(),
        });
    }
}

/// `validateDataVolumeTemplate`: each is used. The path is virt-api's own.
fn unused_templates(vm: &Value, faults: &mut Vec<Fault>) {
    let used: Vec<&str> = objects(vm, "spec.template.spec.volumes")
        .filter_map(|(_, volume)| {
            let data_volume = volume.get("dataVolume").map(|volume| &volume["name"]);
            let claim = volume
                .get("persistentVolumeClaim")
                .map(|claim| &claim["claimName"]);
            data_volume.or(claim)?.as_str()
        })
        .collect();
    for (index, template) in objects(vm, "spec.dataVolumeTemplates") {
        let name = template
            .get("metadata")
            .map_or("", |metadata| metadata["name"].as_str().unwrap_or_default());
        if !used.contains(&name) {
            let field = format!("spec.dataVolumeTemplate[{index}]");
            faults.push(Fault {
                message: format!(
                    "DataVolumeTemplate entry {field} must be referenced in the VMI template's 'volumes' list"
                ),
                field,
            });
        }
    }
}

/// `validateRunStrategy`: one of the two, and one that there is.
fn run_strategy(vm: &Value, faults: &mut Vec<Fault>) {
    let spec = vm.get("spec").unwrap_or(&Value::Null);
    let has = |key: &str| spec.get(key).is_some_and(|value| !value.is_null());
    let mut fault = |field: &str, message: String| {
        let field = field.to_owned();
        faults.push(Fault { field, message });
    };
    match (has("running"), has("runStrategy")) {
        (true, true) => fault(
            "spec.running",
            "Running and RunStrategy are mutually exclusive. Note that Running is deprecated, please use RunStrategy \
             instead"
                .to_owned(),
        ),
        (false, false) => fault(
            "spec.running",
            "One of Running or RunStrategy must be specified".to_owned(),
        ),
        (true, false) | (false, true) => {}
    }
    if let RunStrategy::Other(strategy) = RunStrategy::of(spec) {
        fault(
            "spec.runStrategy",
            format!("Invalid RunStrategy ({strategy})"),
        );
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn vm() -> Value {
        json!({"spec": {
            "runStrategy": "Always",
            "dataVolumeTemplates": [{"metadata": {"name": "root"}, "spec": {}}],
            "template": {"spec": {
                "domain": {"cpu": {"sockets": 2, "maxSockets": 4}, "devices": {"disks": [{"name": "root"}]}},
                "volumes": [{"name": "root", "dataVolume": {"name": "root"}}],
            }},
        }})
    }

    fn fields(pointer: &str, value: Value) -> Vec<String> {
        let mut vm = vm();
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        vm.pointer_mut(parent).unwrap()[key] = value;
        faults(&vm).into_iter().map(|fault| fault.field).collect()
    }

    #[test]
    fn a_good_vm_has_no_fault() {
        assert_eq!(faults(&vm()), []);
        assert_eq!(
            fields("/spec/template/metadata", json!({"labels": {}})),
            [""; 0]
        );
    }

    #[test]
    fn each_fault_has_virt_apis_path() {
        let disks = json!([{"name": "root"}, {"name": "odd"}]);
        let at = "/spec/template/spec/domain/devices/disks";
        assert_eq!(
            fields(at, disks),
            ["spec.template.spec.domain.devices.disks[1].name"]
        );
        assert_eq!(
            fields("/spec/template/spec/domain/cpu/sockets", json!(8)),
            ["spec.template.spec.domain.cpu.sockets"]
        );
        let unused = json!([{"metadata": {"name": "root"}}, {"metadata": {"name": "odd"}}]);
        assert_eq!(
            fields("/spec/dataVolumeTemplates", unused),
            ["spec.dataVolumeTemplate[1]"]
        );
        assert_eq!(fields("/spec/running", json!(true)), ["spec.running"]);
        assert_eq!(fields("/spec/runStrategy", Value::Null), ["spec.running"]);
        assert_eq!(
            fields("/spec/runStrategy", json!("Odd")),
            ["spec.runStrategy"]
        );
    }

    #[test]
    fn unknown_fields_are_faults_of_an_older_kubevirt_only() {
        let mut vm = vm();
        vm["spec"]["template"]["spec"]["domain"]["future"] = json!(1);
        assert_eq!(
            faults(&vm)[0].message,
            "spec.template.spec.domain.future in body is a forbidden property"
        );
        vm["spec"]["template"]["metadata"]["annotations"][NEWER] = json!("true");
        assert_eq!(faults(&vm), []);
    }
}
