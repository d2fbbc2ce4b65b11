//! Counts and times of admission reviews. Labels are closed sets: nothing that a user writes becomes one.

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use std::time::Duration;

/// Bounds in seconds: most reviews take well under a millisecond, and the API server gives up after five
/// seconds.
const BUCKETS: [f64; 8] = [0.0005, 0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 5.0];

/// Which webhook.
#[derive(Clone, Copy, Debug, EncodeLabelValue, Eq, Hash, PartialEq)]
pub(super) enum Hook {
    DefaultPool,
    Stamp,
    ValidateConfig,
    ValidatePool,
    ValidateScale,
}

/// What came of a review.
#[derive(Clone, Copy, Debug, EncodeLabelValue, Eq, Hash, PartialEq)]
pub(super) enum Outcome {
    /// As it came.
    Allowed,
    /// The program failed, or what it depends on.
    Failed,
    /// With a patch.
    Patched,
    /// With causes.
    Refused,
    /// There was no room for it: the API server was told to come again.
    Shed,
    /// The body was no review, or one of another kind.
    Unreadable,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct ReviewLabels {
    hook: Hook,
    outcome: Outcome,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct HookLabels {
    hook: Hook,
}

/// Metrics of this module.
#[derive(Clone, Debug)]
pub struct AdmissionMetrics {
    reviews: Family<ReviewLabels, Counter>,
    seconds: Family<HookLabels, Histogram, fn() -> Histogram>,
}

impl AdmissionMetrics {
    /// Registers them.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "vmpool_admission_reviews",
            "Admission reviews by webhook and what came of them",
            metrics.reviews.clone(),
        );
        registry.register(
            "vmpool_admission_review_seconds",
            "Time that an admission review took",
            metrics.seconds.clone(),
        );
        metrics
    }

    pub(super) fn record(&self, hook: Hook, outcome: Outcome, took: Duration) {
        self.reviews
            .get_or_create(&ReviewLabels { hook, outcome })
            .inc();
        self.seconds
            .get_or_create(&HookLabels { hook })
            .observe(took.as_secs_f64());
    }
}

impl Default for AdmissionMetrics {
    fn default() -> Self {
        Self {
            reviews: Family::default(),
            seconds: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
        }
    }
}
