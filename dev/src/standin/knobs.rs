//! Speed and faults, for all VMs or for one: set by the program or by annotations.
//!
//! What is not set for one VM by [`super::Standin::set`] is taken from the annotations of its VMI
//! (that is, of the VM's template), then of the VM, then from [`Options`]. Reading an annotation
//! that makes no sense is not an error: it counts as absent.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use serde_json::Value;

use super::object::{Key, annotation};

const PREFIX: &str = "standin.vmpool.dev";

/// How the stand-in behaves where nothing more special is said.
#[derive(Clone, Debug)]
pub struct Options {
    /// From the launcher pod's start until the guest answers: until the VMI is Running, or, with
    /// a readiness probe, until the running VMI is Ready.
    pub boot: Duration,
    /// From an import's start until the DataVolume has Succeeded; zero skips the phases between.
    pub import: Duration,
    /// From the launcher pod's binding to a node until its containers run.
    pub launch: Duration,
    /// What a guest takes to shut down when asked; its grace period is the upper bound.
    pub shutdown: Duration,
    /// Shortens grace periods: seconds in a VM's spec times this.
    pub grace_scale: f64,
    /// Shortens the waits between failed starts (10 s to 300 s in KubeVirt).
    pub backoff_scale: f64,
    /// The cluster's nodes; made as real Node objects where absent.
    pub nodes: Vec<NodeSpec>,
    /// KubeVirt's `vmRolloutStrategy: LiveUpdate`; off is `Stage`.
    pub live_update: bool,
    /// Fewer writes per VM with the same end: annotations, finalizer and firmware UUID in one.
    pub combine_writes: bool,
    /// Do not serve `subresources.kubevirt.io`, as a cluster whose virt-api is down.
    pub without_subresources: bool,
    /// Storage classes whose claims wait for a VM before they are filled.
    pub wait_for_first_consumer: Vec<String>,
    /// How many objects are worked on at a time.
    pub workers: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            boot: Duration::from_millis(50),
            import: Duration::ZERO,
            launch: Duration::ZERO,
            shutdown: Duration::ZERO,
            grace_scale: 1.0,
            backoff_scale: 1.0,
            nodes: vec![NodeSpec::new("node-1"), NodeSpec::new("node-2")],
            live_update: false,
            combine_writes: false,
            without_subresources: false,
            wait_for_first_consumer: Vec::new(),
            workers: 8,
        }
    }
}

/// A node to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSpec {
    /// The Node's name.
    pub name: String,
    /// Further labels.
    pub labels: BTreeMap<String, String>,
    /// How many VMs fit; any number when absent.
    pub capacity: Option<usize>,
}

impl NodeSpec {
    /// A node without labels of its own and without limit.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            labels: BTreeMap::new(),
            capacity: None,
        }
    }

    /// The same node with one more label.
    #[must_use]
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.to_owned(), value.to_owned());
        self
    }

    /// The same node with room for so many VMs.
    #[must_use]
    pub fn capacity(mut self, capacity: usize) -> Self {
        self.capacity = Some(capacity);
        self
    }
}

/// What can be set for one VM; absent fields leave the next more general setting in force.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Knobs {
    /// As [`Options::boot`]; [`Duration::MAX`] is never. Annotation `…/boot: 2s | never`.
    pub boot: Option<Duration>,
    /// As [`Options::shutdown`]. Annotation `…/shutdown: 500ms`.
    pub shutdown: Option<Duration>,
    /// So many starts in a row fail before Running. Annotation `…/fail-start: "true" | "3"`.
    pub fail_start: Option<u32>,
    /// The guest does not react to a shutdown: its whole grace period passes. Annotation
    /// `…/hung-shutdown: "true"`.
    pub hung_shutdown: Option<bool>,
    /// The launcher's image cannot be pulled, with this reason. Annotation
    /// `…/image-error: ErrImagePull | ImagePullBackOff`.
    pub image_error: Option<String>,
    /// The guest runs but does not answer its readiness probe (any VM, probe or not).
    /// Annotation `…/not-ready: "true"`.
    pub not_ready: Option<bool>,
}

impl Knobs {
    /// What an object's annotations set.
    pub(super) fn of(object: &Value) -> Self {
        let read = |name: &str| annotation(object, &format!("{PREFIX}/{name}"));
        let flag = |name: &str| read(name).map(|value| value == "true");
        Self {
            boot: read("boot").and_then(duration),
            shutdown: read("shutdown").and_then(duration),
            fail_start: read("fail-start").and_then(|value| match value {
                "true" => Some(u32::MAX),
                "false" => Some(0),
                number => number.parse().ok(),
            }),
            hung_shutdown: flag("hung-shutdown"),
            image_error: read("image-error")
                .filter(|reason| !reason.is_empty())
                .map(str::to_owned),
            not_ready: flag("not-ready"),
        }
    }

    /// These settings, and another's where these are silent.
    pub(super) fn or(self, other: Self) -> Self {
        Self {
            boot: self.boot.or(other.boot),
            shutdown: self.shutdown.or(other.shutdown),
            fail_start: self.fail_start.or(other.fail_start),
            hung_shutdown: self.hung_shutdown.or(other.hung_shutdown),
            image_error: self.image_error.or(other.image_error),
            not_ready: self.not_ready.or(other.not_ready),
        }
    }
}

/// How an import goes: annotation `standin.vmpool.dev/import` of a DataVolume (or of its template
/// in a VM).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Import {
    /// It ends in Failed.
    Fails,
    /// The importer pod fails and is restarted for ever (KubeVirt: `DataVolumeError`).
    Restarts,
    Takes(Duration),
}

impl Import {
    pub(super) fn of(data_volume: &Value, default: Duration) -> Self {
        match annotation(data_volume, &format!("{PREFIX}/import")) {
            Some("fail") => Self::Fails,
            Some("error") => Self::Restarts,
            Some(text) => Self::Takes(duration(text).unwrap_or(default)),
            None => Self::Takes(default),
        }
    }
}

/// How a VM that is to end by itself ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuestEnd {
    /// The guest or its launcher crashes: VMI Failed.
    Crash,
    /// The guest powers itself off: VMI Succeeded.
    PowerOff,
}

/// Settings made by the program while it runs.
#[derive(Default)]
pub(super) struct Table {
    pub(super) vms: HashMap<Key, Knobs>,
    /// Running VMIs, by UID, that are to end now.
    pub(super) ends: HashMap<String, GuestEnd>,
}

/// Reads `500ms`, `2s`, `1m` or `never`.
fn duration(text: &str) -> Option<Duration> {
    if text == "never" {
        return Some(Duration::MAX);
    }
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let number: u64 = digits.parse().ok()?;
    match &text[digits.len()..] {
        "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        "m" => Some(Duration::from_mins(number)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn durations() {
        assert_eq!(duration("500ms"), Some(Duration::from_millis(500)));
        assert_eq!(duration("2s"), Some(Duration::from_secs(2)));
        assert_eq!(duration("1m"), Some(Duration::from_mins(1)));
        assert_eq!(duration("never"), Some(Duration::MAX));
        assert_eq!(duration("2"), None);
        assert_eq!(duration("s"), None);
        assert_eq!(duration(""), None);
    }

    #[test]
    fn the_more_special_setting_wins() {
        let template = json!({"metadata": {"annotations": {
            "standin.vmpool.dev/boot": "2s",
            "standin.vmpool.dev/fail-start": "true",
        }}});
        let set = Knobs {
            boot: Some(Duration::ZERO),
            ..Knobs::default()
        };
        let knobs = set.or(Knobs::of(&template));
        assert_eq!(knobs.boot, Some(Duration::ZERO));
        assert_eq!(knobs.fail_start, Some(u32::MAX));
        assert_eq!(knobs.not_ready, None);
    }
}
