//! The results as a table for people and one flat object for programs. Measures nothing.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::Size;
use super::numbers::Sample;

/// One line of the table.
struct Metric {
    key: &'static str,
    /// What it is.
    text: &'static str,
    /// What it should be, where something is asked for.
    goal: &'static str,
}

/// In the order of the table. Raw values follow the number made of them.
const METRICS: [Metric; 29] = [
    metric(
        "create_ratio",
        "speed of making a pool, the plain limit = 1",
        ">= 0.8",
    ),
    metric("pool_seconds", "  from apply to the last VM", ""),
    metric(
        "plain_seconds",
        "  the same VMs created as fast as can be",
        "",
    ),
    metric(
        "writes_per_vm",
        "writes for each VM, failed ones included",
        "1",
    ),
    metric(
        "status_writes_per_s",
        "status writes of a pool in its busiest second",
        "<= 2",
    ),
    metric("idle_writes_per_min", "writes in a minute at rest", "0"),
    metric("webhook_p50_ms", "answer to the creation of a VM, ms", ""),
    metric("webhook_p99_ms", "  99 of 100 are faster", ""),
    metric(
        "review_ratio_pool_10k",
        "reviews a second of a pool, allowing all = 1",
        ">= 0.5",
    ),
    metric("review_ratio_stamp_10k", "  of a VM of ours", ">= 0.5"),
    metric(
        "review_dry_run_p50_ms",
        "review of a new config, with KubeVirt's verdict, ms",
        "",
    ),
    metric("review_dry_run_p99_ms", "  99 of 100 are faster", ""),
    metric("scale_get_p50_ms", "answer of the aggregated scale, ms", ""),
    metric("scale_get_p99_ms", "  99 of 100 are faster", ""),
    metric(
        "scale_get_proxied_ratio",
        "through the API server, the CRD's own scale = 1",
        "<= 1.5",
    ),
    metric(
        "scale_get_proxied_p50_ms",
        "  through the API server, ms",
        "",
    ),
    metric("scale_get_proxied_p99_ms", "  99 of 100 are faster", ""),
    metric("scale_get_native_p50_ms", "  the CRD's own, ms", ""),
    metric("scale_get_native_p99_ms", "  99 of 100 are faster", ""),
    metric(
        "rollout_ratio",
        "time of a rollout, ten waves of boot = 1",
        "<= 1.5",
    ),
    metric("rollout_seconds", "  from the edit to the last VM", ""),
    metric(
        "rollout_plain_ratio",
        "  the same restarts and nothing else = 1",
        "",
    ),
    metric(
        "restarts_seconds",
        "  the same restarts and nothing else",
        "",
    ),
    metric(
        "writes_per_update",
        "writes for each rolled VM, failed ones included",
        "<= 2",
    ),
    metric("restarts_per_update", "  restarts, apart from them", "1"),
    metric("rss_mib_start", "peak MiB of memory with nothing to do", ""),
    metric("rss_mib_1000", "  with 1000 members", ""),
    metric(
        "rss_mib_foreign",
        "  and 5000 VMs that are not ours beside",
        "",
    ),
    metric("rss_mib_5000", "  with 5000 members", ""),
];

const fn metric(key: &'static str, text: &'static str, goal: &'static str) -> Metric {
    Metric { key, text, goal }
}

/// What has been measured so far.
pub(super) struct Report {
    size: Size,
    samples: Vec<(&'static str, Sample)>,
    notes: Vec<String>,
}

impl Report {
    pub(super) fn new(size: Size) -> Self {
        Self {
            size,
            samples: METRICS
                .iter()
                .map(|metric| (metric.key, Sample::default()))
                .collect(),
            notes: Vec::new(),
        }
    }

    /// One more value of a metric of the table.
    pub(super) fn push(&mut self, key: &'static str, value: f64) {
        let mut samples = self.samples.iter_mut();
        let sample = samples.find(|(known, _)| *known == key);
        sample.expect("the metric is in the table").1.push(value);
    }

    /// Said below the table.
    pub(super) fn note(&mut self, text: String) {
        if !self.notes.contains(&text) {
            self.notes.push(text);
        }
    }

    pub(super) fn table(&self) -> String {
        let mut table = format!("{}\n\n", self.heading());
        let _ = writeln!(
            table,
            "{:<24} {:>8} {:>8} {:>8} {:>7}  what",
            "", "median", "min", "max", "goal"
        );
        for (metric, (key, sample)) in METRICS.iter().zip(&self.samples) {
            let number = |value: Option<f64>| value.map_or("-".to_owned(), short);
            // A number measured once has no spread.
            let spread = |value| match sample.count() {
                0 | 1 => String::new(),
                _ => number(value),
            };
            let _ = writeln!(
                table,
                "{key:<24} {:>8} {:>8} {:>8} {:>7}  {}",
                number(sample.median()),
                spread(sample.min()),
                spread(sample.max()),
                metric.goal,
                metric.text,
            );
        }
        for note in &self.notes {
            let _ = write!(table, "\n{note}");
        }
        table
    }

    fn heading(&self) -> String {
        let Size {
            rounds,
            vms,
            members,
            boot,
            ..
        } = self.size;
        let quick = match vms {
            1000 => "",
            _ => " (quick: names and goals of the table are for ten times as many)",
        };
        format!(
            "vmpool {}: {rounds} rounds of {vms} halted VMs, rollouts of {members} running ones with \
             a boot of {boot:?}, on {} cores{quick}",
            env!("CARGO_PKG_VERSION"),
            cores(),
        )
    }

    pub(super) fn json(&self) -> Value {
        let mut object = Map::new();
        for (key, sample) in &self.samples {
            object.insert((*key).to_owned(), json!(sample.median()));
            if sample.count() > 1 {
                object.insert(format!("{key}_min"), json!(sample.min()));
                object.insert(format!("{key}_max"), json!(sample.max()));
            }
        }
        object.insert("cores".to_owned(), json!(cores()));
        object.insert("rounds".to_owned(), json!(self.size.rounds));
        object.insert("vms".to_owned(), json!(self.size.vms));
        object.insert("version".to_owned(), json!(env!("CARGO_PKG_VERSION")));
        Value::Object(object)
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(0, std::num::NonZero::get)
}

/// Three digits are more than a measurement has.
fn short(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v.fract().abs() < 1e-9 => format!("{value:.0}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SIZE: Size = Size {
        rounds: 3,
        vms: 1000,
        many: 5000,
        rest: Duration::ZERO,
        members: 200,
        boot: Duration::from_secs(3),
        requests: 2000,
    };

    #[test]
    fn the_object_is_flat_and_has_every_metric() {
        let mut report = Report::new(SIZE);
        for value in [0.9, 0.8, 1.0] {
            report.push("create_ratio", value);
        }
        let json = report.json();
        assert_eq!(json["create_ratio"], 0.9);
        assert_eq!(json["create_ratio_min"], 0.8);
        for metric in &METRICS {
            let value = &json[metric.key];
            assert!(value.is_number() || value.is_null(), "{}", metric.key);
        }
        let values = json.as_object().unwrap().values();
        assert!(
            values
                .into_iter()
                .all(|value| !value.is_object() && !value.is_array())
        );
    }

    #[test]
    fn every_metric_has_a_line() {
        let table = Report::new(SIZE).table();
        for metric in &METRICS {
            assert!(table.contains(metric.key), "{table}");
        }
    }
}
