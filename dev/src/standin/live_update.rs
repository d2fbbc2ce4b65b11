//! What an edit of a running VM's template means: nothing, a live change, or a restart.
//!
//! Source: `syncRestartRequired`, `handleCPUChangeRequest`, `handleMemoryHotplugRequest`,
//! `handleAffinityChangeRequest`, `handleTolerationsChangeRequest`, `validLiveUpdateVolumes` and
//! `validLiveUpdateDisks` in `pkg/virt-controller/watch/vm/vm.go`. Compares `template.spec` only:
//! labels and annotations of the template never ask for a restart. Not played: interfaces and
//! networks (any change asks for a restart), instance types, volume migration.

use serde_json::{Value, json};

use super::object::{items, same};
use super::volumes::is_hotpluggable;

const NOT_LIVE: &str = "a non-live-updatable field was changed in the template spec";
const SOCKETS_ABOVE: &str =
    "CPU sockets updated in template spec to a value higher than what's available";
const SOCKETS_BELOW: &str = "Reduction of CPU socket count requires a restart";
const MEMORY_FIXED: &str =
    "memory updated in template spec. Memory-hotplug is not available for this VM configuration";
const MEMORY_ABOVE: &str =
    "memory updated in template spec to a value higher than what's available";
const MEMORY_BELOW: &str =
    "memory updated in template spec to a value lower than what the VM started with";

/// The verdict on a running VM's template.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Verdict {
    /// These fields of the VMI take these values; null removes a field.
    Live(Vec<(&'static str, Value)>),
    Restart(&'static str),
    Unchanged,
}

/// Compares the VM spec a VMI was started from with what the VM says now.
pub(super) fn verdict(started: &Value, vm: &Value, vmi: &Value, live_update: bool) -> Verdict {
    let mut old = started["template"]["spec"].clone();
    let new = &vm["spec"]["template"]["spec"];
    copy_hotplugged(&mut old, new);
    if live_update {
        copy_live_fields(&mut old, new);
    }
    let uuid = &new["domain"]["firmware"]["uuid"];
    if !uuid.is_null() && vmi["spec"]["domain"]["firmware"]["uuid"] == *uuid {
        old["domain"]["firmware"]["uuid"] = uuid.clone();
    }
    if !same(&old, new) {
        return Verdict::Restart(NOT_LIVE);
    }
    if !live_update {
        return Verdict::Unchanged;
    }
    live_changes(new, vmi)
}

fn copy_live_fields(old: &mut Value, new: &Value) {
    if old["domain"]["cpu"].is_object() && new["domain"]["cpu"].is_object() {
        old["domain"]["cpu"]["sockets"] = new["domain"]["cpu"]["sockets"].clone();
    }
    if !new["domain"]["memory"]["guest"].is_null() {
        old["domain"]["memory"]["guest"] = new["domain"]["memory"]["guest"].clone();
    }
    for field in ["nodeSelector", "affinity", "tolerations"] {
        old[field] = new[field].clone();
    }
}

/// Takes volumes and disks over from the new spec when only hot-pluggable ones differ.
fn copy_hotplugged(old: &mut Value, new: &Value) {
    let plugged: Vec<&str> = items(&new["volumes"])
        .iter()
        .chain(items(&old["volumes"]))
        .filter(|volume| is_hotpluggable(volume))
        .filter_map(|volume| volume["name"].as_str())
        .collect();
    let fixed = |list: &Value| -> Vec<Value> {
        items(list)
            .iter()
            .filter(|item| item["name"].as_str().is_none_or(|n| !plugged.contains(&n)))
            .cloned()
            .collect()
    };
    let volumes = fixed(&old["volumes"]) == fixed(&new["volumes"]);
    let disks =
        fixed(&old["domain"]["devices"]["disks"]) == fixed(&new["domain"]["devices"]["disks"]);
    if volumes {
        old["volumes"] = new["volumes"].clone();
    }
    if disks {
        old["domain"]["devices"]["disks"] = new["domain"]["devices"]["disks"].clone();
    }
}

fn live_changes(new: &Value, vmi: &Value) -> Verdict {
    let mut changes = Vec::new();
    let (sockets, now) = (
        new["domain"]["cpu"]["sockets"].as_i64(),
        vmi["spec"]["domain"]["cpu"]["sockets"].as_i64(),
    );
    if let (Some(sockets), Some(now)) = (sockets, now)
        && sockets != now
    {
        let most = vmi["spec"]["domain"]["cpu"]["maxSockets"].as_i64();
        if sockets > most.unwrap_or(0) {
            return Verdict::Restart(SOCKETS_ABOVE);
        }
        if sockets < now {
            return Verdict::Restart(SOCKETS_BELOW);
        }
        changes.push(("/spec/domain/cpu/sockets", json!(sockets)));
    }
    match memory_change(new, vmi) {
        Ok(Some(guest)) => changes.push(("/spec/domain/memory/guest", guest)),
        Ok(None) => {}
        Err(message) => return Verdict::Restart(message),
    }
    for (field, path) in [
        ("affinity", "/spec/affinity"),
        ("nodeSelector", "/spec/nodeSelector"),
        ("tolerations", "/spec/tolerations"),
    ] {
        if !same(&new[field], &vmi["spec"][field]) {
            changes.push((path, new[field].clone()));
        }
    }
    if changes.is_empty() {
        Verdict::Unchanged
    } else {
        Verdict::Live(changes)
    }
}

fn memory_change(new: &Value, vmi: &Value) -> Result<Option<Value>, &'static str> {
    let guest = &new["domain"]["memory"]["guest"];
    let memory = &vmi["spec"]["domain"]["memory"];
    let (Some(wanted), Some(now)) = (quantity(guest), quantity(&memory["guest"])) else {
        return Ok(None);
    };
    if wanted == now {
        return Ok(None);
    }
    let most = quantity(&memory["maxGuest"]).ok_or(MEMORY_FIXED)?;
    let at_boot = quantity(&vmi["status"]["memory"]["guestAtBoot"]);
    if at_boot.is_some_and(|at_boot| wanted < at_boot) {
        return Err(MEMORY_BELOW);
    }
    if wanted > most {
        return Err(MEMORY_ABOVE);
    }
    Ok(Some(guest.clone()))
}

/// A Kubernetes quantity of memory, in bytes.
pub(super) fn quantity(value: &Value) -> Option<i64> {
    if let Some(number) = value.as_i64() {
        return Some(number);
    }
    let text = value.as_str()?;
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: i64 = digits.parse().ok()?;
    let unit = match &text[digits.len()..] {
        "" => 1,
        "k" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "T" => 1_000_000_000_000,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        "Ti" => 1 << 40,
        _ => return None,
    };
    number.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vm(spec: &Value) -> Value {
        json!({"spec": {"template": {"metadata": {"labels": {"a": "b"}}, "spec": spec}}})
    }

    fn started(spec: &Value) -> Value {
        json!({"template": {"spec": spec}})
    }

    fn guest(sockets: i64, memory: &str) -> Value {
        json!({"domain": {"cpu": {"sockets": sockets}, "memory": {"guest": memory}}})
    }

    fn vmi() -> Value {
        json!({
            "spec": {"domain": {"cpu": {"sockets": 1, "maxSockets": 4},
                                "memory": {"guest": "1Gi", "maxGuest": "4Gi"}}},
            "status": {"memory": {"guestAtBoot": "1Gi"}},
        })
    }

    #[test]
    fn labels_and_the_late_firmware_uuid_change_nothing() {
        let old = guest(1, "1Gi");
        let mut new = old.clone();
        new["domain"]["firmware"] = json!({"uuid": "u"});
        let mut vmi = vmi();
        vmi["spec"]["domain"]["firmware"] = json!({"uuid": "u"});
        assert_eq!(
            verdict(&started(&old), &vm(&new), &vmi, false),
            Verdict::Unchanged
        );
    }

    #[test]
    fn without_live_update_every_field_asks_for_a_restart() {
        let old = started(&guest(1, "1Gi"));
        for new in [guest(2, "1Gi"), guest(1, "2Gi")] {
            assert_eq!(
                verdict(&old, &vm(&new), &vmi(), false),
                Verdict::Restart(NOT_LIVE)
            );
        }
    }

    #[test]
    fn live_updates_and_their_bounds() {
        let old = started(&guest(1, "1Gi"));
        let judge = |new: &Value| verdict(&old, &vm(new), &vmi(), true);
        assert_eq!(
            judge(&guest(2, "2Gi")),
            Verdict::Live(vec![
                ("/spec/domain/cpu/sockets", json!(2)),
                ("/spec/domain/memory/guest", json!("2Gi")),
            ])
        );
        assert_eq!(judge(&guest(8, "1Gi")), Verdict::Restart(SOCKETS_ABOVE));
        assert_eq!(judge(&guest(1, "512Mi")), Verdict::Restart(MEMORY_BELOW));
        assert_eq!(judge(&guest(1, "8Gi")), Verdict::Restart(MEMORY_ABOVE));
        let mut other = guest(1, "1Gi");
        other["hostname"] = json!("h");
        assert_eq!(judge(&other), Verdict::Restart(NOT_LIVE));
        let mut placed = guest(1, "1Gi");
        placed["nodeSelector"] = json!({"zone": "a"});
        assert_eq!(
            judge(&placed),
            Verdict::Live(vec![("/spec/nodeSelector", json!({"zone": "a"}))])
        );
    }

    #[test]
    fn only_hotpluggable_volumes_come_live() {
        let old = json!({"volumes": [{"name": "a", "containerDisk": {}}]});
        let mut new = old.clone();
        new["volumes"] = json!([
            {"name": "a", "containerDisk": {}},
            {"name": "b", "persistentVolumeClaim": {"claimName": "b", "hotpluggable": true}},
        ]);
        let judge = |new: &Value| verdict(&started(&old), &vm(new), &json!({}), false);
        assert_eq!(judge(&new), Verdict::Unchanged);
        new["volumes"][1]["persistentVolumeClaim"]["hotpluggable"] = json!(false);
        assert_eq!(judge(&new), Verdict::Restart(NOT_LIVE));
    }
}
