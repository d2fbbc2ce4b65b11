//! Writes a status only when it differs from what is stored, and not too often. Pure but for [`patch`]'s
//! caller: says what to write and when.

use std::time::Duration;

use serde::Serialize;
use serde_json::{Map, Value};
use tokio::time::Instant;

/// Between two writes while things move: counts of a pool that is starting 1000 VMs change all the time.
const WHILE_BUSY: Duration = Duration::from_secs(1);
/// Between two writes of a pool that has come to rest: what people wait for should be said at once.
const AT_REST: Duration = Duration::from_millis(500);

/// When the status of one object may be written, and what was written last.
#[derive(Debug)]
pub(super) struct StatusWriter<S> {
    written_at: Option<Instant>,
    /// What was written, and the resource version that came of it.
    written: Option<(S, String)>,
}

impl<S> Default for StatusWriter<S> {
    fn default() -> Self {
        Self {
            written_at: None,
            written: None,
        }
    }
}

/// What to do about a status.
#[derive(Debug, PartialEq)]
pub(super) enum Verdict {
    /// It is stored already.
    Stored,
    /// Write this.
    Write(Value),
    /// Not yet.
    Wait(Instant),
}

impl<S: Clone + PartialEq + Serialize> StatusWriter<S> {
    /// What to do about `wanted`, where the cache shows `cached` at `version`.
    pub(super) fn judge(
        &mut self,
        cached: &S,
        version: &str,
        wanted: &S,
        at_rest: bool,
        now: Instant,
    ) -> Verdict {
        // The cache may be older than what was written.
        if let Some((_, written)) = &self.written
            && is_as_new(version, written)
        {
            self.written = None;
        }
        let stored = self.written.as_ref().map_or(cached, |(status, _)| status);
        if stored == wanted {
            return Verdict::Stored;
        }
        let pause = if at_rest { AT_REST } else { WHILE_BUSY };
        match self.written_at.map(|at| at + pause) {
            Some(due) if due > now => Verdict::Wait(due),
            _ => Verdict::Write(merge_patch(stored, wanted)),
        }
    }

    /// It was written, with this resource version as the answer.
    pub(super) fn wrote(&mut self, wanted: &S, version: &str, now: Instant) {
        self.written_at = Some(now);
        self.written = Some((wanted.clone(), version.to_owned()));
    }

    /// It could not be written; not again before the usual pause is over.
    pub(super) fn failed(&mut self, now: Instant) {
        self.written_at = Some(now);
    }
}

/// Whether the cache's version is at least the written one. Versions that are no numbers count as new: then
/// the status is at worst written once more.
fn is_as_new(cached: &str, written: &str) -> bool {
    match (cached.parse::<u64>(), written.parse::<u64>()) {
        (Ok(cached), Ok(written)) => cached >= written,
        _ => true,
    }
}

/// The merge patch from one status to the other: whole lists, and null for what is no longer there.
fn merge_patch(stored: &impl Serialize, wanted: &impl Serialize) -> Value {
    let mut patch = object(wanted);
    for key in object(stored).keys() {
        if !patch.contains_key(key) {
            patch.insert(key.clone(), Value::Null);
        }
    }
    Value::Object(patch)
}

fn object(status: &impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(status) {
        Ok(Value::Object(object)) => object,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::VirtualMachinePoolStatus;

    fn status(replicas: i32, target: Option<&str>) -> VirtualMachinePoolStatus {
        VirtualMachinePoolStatus {
            replicas,
            target_revision: target.map(str::to_owned),
            ..VirtualMachinePoolStatus::default()
        }
    }

    #[test]
    fn a_status_that_is_stored_is_not_written() {
        let mut writer = StatusWriter::default();
        let same = status(3, Some("a"));
        let verdict = writer.judge(&same, "5", &same.clone(), true, Instant::now());
        assert_eq!(verdict, Verdict::Stored);
    }

    #[test]
    fn what_is_no_longer_there_is_cleared() {
        let mut writer = StatusWriter::default();
        let verdict = writer.judge(
            &status(3, Some("a")),
            "5",
            &status(4, None),
            true,
            Instant::now(),
        );
        let Verdict::Write(patch) = verdict else {
            panic!("{verdict:?}");
        };
        assert_eq!(patch["replicas"], 4);
        assert_eq!(patch["targetRevision"], Value::Null);
    }

    #[test]
    fn writes_are_at_most_two_a_second_and_one_while_busy() {
        let mut writer = StatusWriter::default();
        let start = Instant::now();
        let (old, new) = (status(1, None), status(2, None));
        writer.wrote(&old, "7", start);
        let soon = start + Duration::from_millis(600);
        let busy = writer.judge(&old, "7", &new, false, soon);
        assert_eq!(busy, Verdict::Wait(start + WHILE_BUSY));
        let rest = writer.judge(&old, "7", &new, true, soon);
        assert!(matches!(rest, Verdict::Write(_)));
    }

    #[test]
    fn a_cache_that_is_behind_causes_no_second_write() {
        let mut writer = StatusWriter::default();
        let start = Instant::now();
        let (old, new) = (status(1, None), status(2, None));
        writer.wrote(&new, "9", start);
        let later = start + Duration::from_secs(5);
        assert_eq!(writer.judge(&old, "8", &new, true, later), Verdict::Stored);
        // Somebody else wrote after us.
        let verdict = writer.judge(&old, "10", &new, true, later);
        assert!(matches!(verdict, Verdict::Write(_)));
    }
}
