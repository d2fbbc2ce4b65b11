//! What the audit log says of our writes. Pure: events in, numbers out.

use std::collections::BTreeMap;

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::numbers::count;
use crate::audit::Event;

/// What was written while a pool was made.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Writes {
    /// On VMs and what belongs to them, failures included, by VM.
    pub(super) per_vm: f64,
    /// Of the pool's status in its busiest second.
    pub(super) status_per_second: f64,
    /// Everything else but events, by kind: a constant number, however large the pool.
    pub(super) apart: BTreeMap<String, usize>,
}

/// Resources of which each VM has its own.
const OF_A_VM: [&str; 5] = [
    "virtualmachines",
    "virtualmachineinstances",
    "datavolumes",
    "persistentvolumeclaims",
    "pods",
];

impl Writes {
    /// Of these events, all of ours and all of one namespace.
    pub(super) fn of(events: &[Event], vms: u32) -> Self {
        let mut of_vms = 0;
        let mut status = Vec::new();
        let mut apart = BTreeMap::new();
        for event in events.iter().filter(|event| !is_event(event)) {
            if is_of_a_vm(event) && !event.is_dry_run() {
                of_vms += 1;
                continue;
            }
            if event.resource() == "virtualmachinepools/status" {
                status.extend(event.request_received_timestamp.parse::<Timestamp>());
            }
            let tried = if event.is_dry_run() { "try to " } else { "" };
            let key = format!("{tried}{} {}", event.verb, event.resource());
            *apart.entry(key).or_default() += 1;
        }
        Self {
            per_vm: count(of_vms) / f64::from(vms),
            status_per_second: count(busiest_second(status)),
            apart,
        }
    }
}

/// Those on a VM and on what belongs to it.
pub(super) fn is_of_a_vm(event: &Event) -> bool {
    OF_A_VM.contains(&event.object_ref.resource.as_str())
}

/// Those of events.k8s.io and those of the core group.
pub(super) fn is_event(event: &Event) -> bool {
    event.object_ref.resource == "events"
}

/// A lease is renewed by whoever leads, at rest too.
pub(super) fn is_lease(event: &Event) -> bool {
    event.object_ref.resource == "leases"
}

/// The most times in any second, wherever it begins.
fn busiest_second(mut times: Vec<Timestamp>) -> usize {
    times.sort_unstable();
    let second = SignedDuration::from_secs(1);
    let within = |(at, first): (usize, &Timestamp)| {
        times[at..]
            .iter()
            .take_while(|time| time.duration_since(*first) < second)
            .count()
    };
    times.iter().enumerate().map(within).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::ObjectRef;

    fn write(verb: &str, resource: &str, at: &str) -> Event {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        Event {
            verb: verb.into(),
            object_ref: ObjectRef {
                resource: resource.into(),
                subresource: subresource.into(),
                ..ObjectRef::default()
            },
            request_received_timestamp: format!("2026-11-30T12:00:{at}Z"),
            ..Event::default()
        }
    }

    #[test]
    fn events_and_the_pools_status_are_no_writes_of_a_vm() {
        let mut tried = write("create", "virtualmachines", "00.0");
        tried.request_uri = "/apis/kubevirt.io/v1/virtualmachines?dryRun=All".to_owned();
        let events = [
            tried,
            write("create", "virtualmachines", "00.1"),
            write("create", "virtualmachines", "00.2"),
            write("delete", "virtualmachines", "00.3"),
            write("create", "events", "00.3"),
            write("patch", "virtualmachinepools/status", "00.4"),
        ];
        let writes = Writes::of(&events, 2);
        assert!((writes.per_vm - 1.5).abs() < 1e-9);
        assert!((writes.status_per_second - 1.0).abs() < 1e-9);
        let apart = BTreeMap::from([
            ("patch virtualmachinepools/status".to_owned(), 1),
            ("try to create virtualmachines".to_owned(), 1),
        ]);
        assert_eq!(writes.apart, apart);
    }

    #[test]
    fn the_busiest_second_may_begin_anywhere() {
        let times = |texts: &[&str]| {
            let parse = |text: &&str| format!("2026-11-30T12:00:{text}Z").parse().unwrap();
            texts.iter().map(parse).collect::<Vec<Timestamp>>()
        };
        assert_eq!(busiest_second(times(&[])), 0);
        assert_eq!(busiest_second(times(&["00.0", "00.5", "01.0", "01.5"])), 2);
        assert_eq!(busiest_second(times(&["00.9", "01.0", "01.8", "03.0"])), 3);
    }
}
