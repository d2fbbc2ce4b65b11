//! What the controller counts. Label values come from closed sets; no name of an object is one.

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use super::calls::Category;

/// Kinds of task.
#[derive(Clone, Copy, Debug, EncodeLabelValue, Eq, Hash, PartialEq)]
pub(super) enum Task {
    /// One config's revisions.
    Config,
    /// VMs whose pool is gone.
    Former,
    /// One pool.
    Pool,
}

/// Kinds of deed.
#[derive(Clone, Copy, Debug, EncodeLabelValue, Eq, Hash, PartialEq)]
pub(super) enum Deed {
    /// A VM was created.
    Create,
    /// A VM was deleted.
    Delete,
    /// A VM left its pool as it was asked to.
    Detach,
    /// What is over was taken off a pool.
    Intent,
    /// A former member's marks were taken off.
    Release,
    /// An instance was restarted.
    Restart,
    /// A revision was made, numbered, co-owned or pruned.
    Revision,
    /// A status was written.
    Status,
    /// A VM object was brought to another revision.
    Update,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct TaskLabel {
    task: Task,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct DeedLabel {
    deed: Deed,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct FailureLabel {
    deed: Deed,
    reason: Category,
}

/// The controller's metrics. Clones share the numbers.
#[derive(Clone, Debug)]
pub struct Metrics {
    passes: Family<TaskLabel, Counter>,
    pass_seconds: Histogram,
    deeds: Family<DeedLabel, Counter>,
    failures: Family<FailureLabel, Counter>,
    panics: Family<TaskLabel, Counter>,
    tasks: Family<TaskLabel, Gauge>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            passes: Family::default(),
            // A millisecond to some sixteen seconds.
            pass_seconds: Histogram::new(exponential_buckets(0.001, 2.0, 15)),
            deeds: Family::default(),
            failures: Family::default(),
            panics: Family::default(),
            tasks: Family::default(),
        }
    }
}

impl Metrics {
    /// Adds them to what is served.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "vmpool_passes",
            "Passes of a task over its object",
            self.passes.clone(),
        );
        registry.register(
            "vmpool_pool_pass_seconds",
            "Time that a pass over a pool took, calls included",
            self.pass_seconds.clone(),
        );
        registry.register(
            "vmpool_deeds",
            "Writes that were answered with success",
            self.deeds.clone(),
        );
        registry.register(
            "vmpool_failures",
            "Writes that were not",
            self.failures.clone(),
        );
        registry.register(
            "vmpool_panics",
            "Panics, each of which stopped one task for a while",
            self.panics.clone(),
        );
        registry.register(
            "vmpool_tasks",
            "Running tasks; those of pools are the pools",
            self.tasks.clone(),
        );
    }

    pub(super) fn passed(&self, task: Task) {
        self.passes.get_or_create(&TaskLabel { task }).inc();
    }

    pub(super) fn pool_pass_took(&self, seconds: f64) {
        self.pass_seconds.observe(seconds);
    }

    pub(super) fn did(&self, deed: Deed) {
        self.deeds.get_or_create(&DeedLabel { deed }).inc();
    }

    pub(super) fn failed(&self, deed: Deed, reason: Category) {
        self.failures
            .get_or_create(&FailureLabel { deed, reason })
            .inc();
    }

    pub(super) fn panicked(&self, task: Task) {
        self.panics.get_or_create(&TaskLabel { task }).inc();
    }

    pub(super) fn started(&self, task: Task) {
        self.tasks.get_or_create(&TaskLabel { task }).inc();
    }

    pub(super) fn ended(&self, task: Task) {
        self.tasks.get_or_create(&TaskLabel { task }).dec();
    }
}
