//! Events for pools and configs: what is done within a second of the last such event is told together, by kind and
//! not by VM, and what is said again in the same words counts up the event that is there. What is not told yet is
//! lost with the task, so what stands nowhere else, such as why a VM was detached, is sent at once.
//!
//! kube's `Recorder` is not used: it counts up by reason alone and keeps the first text, so that "Created 250
//! VMs: web-251 …" would be lost in "Created 250 VMs: web-1 …".

use std::collections::HashMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{ApiResource, Patch};
use serde_json::json;
use tokio::time::Instant;

use super::calls::{Calls, Place};
use crate::api::MANAGER;
use crate::plan::Note;

/// The same words again within this time count up; as long as kube-apiserver's own clients wait.
const SAME_EVENT: SignedDuration = SignedDuration::from_mins(6);
/// The API's limit for a note is 1024 bytes.
const LONGEST_NOTE: usize = 1000;
/// How many names a note lists.
const NAMED: usize = 3;
/// Least time between two events of what was done: a rollout goes on in small steps, several a second.
const TOGETHER: Duration = Duration::from_secs(1);

/// What was done to VMs.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Done {
    pub(super) reason: &'static str,
    /// In the past tense.
    pub(super) verb: &'static str,
    /// Names of the VMs.
    pub(super) names: Vec<String>,
}

impl Done {
    pub(super) fn note(mut self) -> Note {
        // Ordinals in their order, each once: a VM can be restarted twice before that is told.
        self.names
            .sort_by(|a, b| a.len().cmp(&b.len()).then_with(|| a.cmp(b)));
        self.names.dedup();
        let verb = self.verb;
        let message = match self.names.len() {
            1 => format!("{verb} VM {}", self.names[0]),
            count => format!("{verb} {count} VMs: {}", named(&self.names)),
        };
        Note {
            warning: false,
            reason: self.reason,
            message,
        }
    }
}

/// Sends the events of one object.
#[derive(Debug)]
pub(super) struct EventWriter {
    regarding: ObjectReference,
    instance: String,
    sent: HashMap<(&'static str, String), Sent>,
    /// The number in the last event's name.
    named: i128,
    /// Not told yet.
    done: Vec<Done>,
    /// When that may be told.
    quiet_until: Instant,
}

#[derive(Debug)]
struct Sent {
    name: String,
    count: i32,
    last: Timestamp,
}

impl EventWriter {
    /// For this object; `instance` names this process.
    pub(super) fn new(regarding: ObjectReference, instance: &str) -> Self {
        Self {
            regarding,
            instance: instance.to_owned(),
            sent: HashMap::new(),
            named: 0,
            done: Vec::new(),
            quiet_until: Instant::now(),
        }
    }

    /// Keeps what was done, to be told together with what is done soon after.
    pub(super) fn did(&mut self, done: Done) {
        let same = self
            .done
            .iter_mut()
            .find(|before| before.reason == done.reason);
        match same {
            Some(before) => before.names.extend(done.names),
            None => self.done.push(done),
        }
    }

    /// When [`Self::tell`] has something to tell.
    pub(super) fn due(&self) -> Option<Instant> {
        (!self.done.is_empty()).then_some(self.quiet_until)
    }

    /// Sends what was done, if it is due.
    pub(super) async fn tell(&mut self, calls: &Calls, now: Timestamp) {
        let moment = Instant::now();
        if self.due().is_none_or(|due| due > moment) {
            return;
        }
        self.quiet_until = moment + TOGETHER;
        for done in std::mem::take(&mut self.done) {
            self.send(calls, &done.note(), now).await;
        }
    }

    /// Sends `note`. A failure is logged and no more: events are for people.
    pub(super) async fn send(&mut self, calls: &Calls, note: &Note, now: Timestamp) {
        self.sent
            .retain(|_, sent| now.duration_since(sent.last) < SAME_EVENT);
        let text = shortened(&note.message);
        let resource = ApiResource::erase::<Event>(&());
        let namespace = self.regarding.namespace.clone().unwrap_or_default();
        let key = (note.reason, text.clone());
        if let Some(sent) = self.sent.get_mut(&key) {
            sent.count += 1;
            sent.last = now;
            let place = Place {
                resource: &resource,
                namespace: &namespace,
                name: &sent.name,
            };
            let series = json!({"count": sent.count, "lastObservedTime": micro_time(now)});
            let patch = Patch::Merge(json!({ "series": series }));
            match calls.patch(place, &patch).await {
                Ok(_) => return,
                // It has expired.
                Err(failure) if failure.is_not_found() => {}
                Err(failure) => return log(&failure, note),
            }
        }
        // The time, as all clients name events, and never twice the same.
        self.named = now.as_nanosecond().max(self.named + 1);
        let regarding = self.regarding.name.as_deref().unwrap_or(MANAGER);
        let name = format!("{regarding}.{:x}", self.named);
        let event = json!({
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "eventTime": micro_time(now),
            "reportingController": MANAGER,
            "reportingInstance": self.instance,
            "action": note.reason,
            "reason": note.reason,
            "regarding": self.regarding,
            "note": text,
            "type": if note.warning { "Warning" } else { "Normal" },
        });
        match calls.create(&resource, &namespace, &event).await {
            Ok(_) => {
                let (count, last) = (1, now);
                self.sent.insert(key, Sent { name, count, last });
            }
            Err(failure) => log(&failure, note),
        }
    }
}

/// `web-1, web-2 … web-10`.
fn named(names: &[String]) -> String {
    match names {
        [first @ .., last] if names.len() > NAMED => {
            format!("{} … {last}", first[..NAMED - 1].join(", "))
        }
        names => names.join(", "),
    }
}

fn shortened(text: &str) -> String {
    if text.len() <= LONGEST_NOTE {
        return text.to_owned();
    }
    let end = (0..=LONGEST_NOTE)
        .rev()
        .find(|&end| text.is_char_boundary(end))
        .unwrap_or_default();
    format!("{} …", &text[..end])
}

fn micro_time(time: Timestamp) -> String {
    format!("{time:.6}")
}

fn log(failure: &super::calls::CallFailure, note: &Note) {
    tracing::warn!(error = %failure, reason = note.reason, "Failed to send an event");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_listed_as_far_as_there_is_room() {
        let names = |n: usize| (1..=n).map(|n| format!("web-{n}")).collect::<Vec<_>>();
        assert_eq!(named(&[]), "");
        assert_eq!(named(&names(3)), "web-1, web-2, web-3");
        assert_eq!(named(&names(10)), "web-1, web-2 … web-10");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_done_within_a_second_is_told_together_and_the_first_at_once() {
        let done = |reason, name: &str| Done {
            reason,
            verb: "did",
            names: vec![name.to_owned()],
        };
        let mut events = EventWriter::new(ObjectReference::default(), "here");
        assert_eq!(events.due(), None);
        events.did(done("Restarted", "web-1"));
        assert!(events.due().unwrap() <= Instant::now());
        // As if it was told.
        events.done.clear();
        events.quiet_until = Instant::now() + TOGETHER;
        for name in ["web-10", "web-3", "web-10"] {
            events.did(done("Updated", name));
            events.did(done("Restarted", name));
        }
        assert_eq!(events.due(), Some(Instant::now() + TOGETHER));
        let told: Vec<String> = events
            .done
            .into_iter()
            .map(|one| one.note().message)
            .collect();
        assert_eq!(
            told,
            ["did 2 VMs: web-3, web-10", "did 2 VMs: web-3, web-10"]
        );
    }

    #[test]
    fn a_long_note_is_cut_between_characters() {
        let text = "ä".repeat(2000);
        let cut = shortened(&text);
        assert!(cut.len() <= 1024 && cut.ends_with('…'));
        assert_eq!(shortened("short"), "short");
    }

    #[test]
    fn times_have_microseconds() {
        let time: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        assert_eq!(micro_time(time), "2026-01-02T03:04:05.000000Z");
    }
}
