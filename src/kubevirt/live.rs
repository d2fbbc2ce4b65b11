//! What KubeVirt changes in a running instance without a restart, and can't always take back: sockets can be
//! plugged and not unplugged, and memory goes no lower than what the instance was started with
//! (`handleCPUChangeRequest` and `handleMemoryHotplugRequest` in `pkg/virt-controller/watch/vm/vm.go`). So an
//! instance may differ from the very revision that it was started from. Affinity, node selector and tolerations
//! are changed live both ways and are not read.

use serde_json::Value;

/// Of an instance, or of a VM's template. What a spec doesn't say is `None`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Live {
    /// CPU sockets.
    pub sockets: Option<i64>,
    /// Guest memory, in bytes.
    pub guest_bytes: Option<i64>,
}

impl Live {
    /// Read from a VirtualMachineInstanceSpec.
    pub fn of(spec: &Value) -> Self {
        Self {
            sockets: spec.pointer("/domain/cpu/sockets").and_then(Value::as_i64),
            guest_bytes: spec.pointer("/domain/memory/guest").and_then(bytes),
        }
    }

    /// Read from a VM's template, if it has one.
    pub fn of_template(template: Option<&Value>) -> Self {
        let spec = template.and_then(|template| template.get("spec"));
        spec.map(Self::of).unwrap_or_default()
    }

    /// Whether both say something of a field, and not the same.
    pub fn differs_from(&self, other: &Self) -> bool {
        let differ = |one: Option<i64>, two: Option<i64>| matches!((one, two), (Some(one), Some(two)) if one != two);
        differ(self.sockets, other.sockets) || differ(self.guest_bytes, other.guest_bytes)
    }
}

/// A whole number of bytes, as Kubernetes writes a quantity; KubeVirt may write another unit than the user did.
fn bytes(value: &Value) -> Option<i64> {
    if let Some(number) = value.as_i64() {
        return Some(number);
    }
    let text = value.as_str()?;
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let unit: i64 = match unit {
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
    digits.parse::<i64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn live(sockets: &Value, guest: &Value) -> Live {
        Live::of(&json!({"domain": {"cpu": {"sockets": sockets}, "memory": {"guest": guest}}}))
    }

    #[test]
    fn sockets_and_memory_are_compared_whatever_the_unit() {
        let two = live(&json!(2), &json!("2Gi"));
        assert!(!two.differs_from(&live(&json!(2), &json!("2048Mi"))));
        assert!(!two.differs_from(&live(&json!(2), &json!(2_147_483_648_i64))));
        assert!(two.differs_from(&live(&json!(1), &json!("2Gi"))));
        assert!(two.differs_from(&live(&json!(2), &json!("2G"))));
    }

    #[test]
    fn what_is_not_said_or_can_not_be_read_is_no_difference() {
        let two = live(&json!(2), &json!("2Gi"));
        assert!(!two.differs_from(&Live::of(&Value::Null)));
        assert!(!two.differs_from(&live(&json!("x"), &json!("1.5Gi"))));
        assert!(!two.differs_from(&live(&Value::Null, &json!("99999999999Ti"))));
    }
}
