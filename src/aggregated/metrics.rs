//! Counts and times of requests. Labels are closed sets: nothing that a caller writes becomes one.

use std::time::Duration;

use axum::http::{Method, StatusCode};
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::path::{Part, Target};

/// Bounds in seconds: an answer from the cache takes well under a millisecond, a write some ten, and a detach
/// waits up to ten seconds.
const BUCKETS: [f64; 9] = [0.0005, 0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 5.0, 12.0];

/// What a request was about.
#[derive(Clone, Copy, Debug, EncodeLabelValue, Eq, Hash, PartialEq)]
pub(super) enum About {
    Detach,
    Discovery,
    Nothing,
    OpenApi,
    Pool,
    Scale,
}

impl About {
    pub(super) fn of(target: Option<&Target>) -> Self {
        match target {
            None => Self::Nothing,
            Some(Target::Group | Target::Groups | Target::Resources) => Self::Discovery,
            Some(Target::OpenApiV2 | Target::OpenApiV3 | Target::OpenApiV3Index) => Self::OpenApi,
            Some(Target::Pools) => Self::Pool,
            Some(Target::Pool(path)) => match path.part {
                Part::Detach => Self::Detach,
                Part::Scale => Self::Scale,
                Part::Whole => Self::Pool,
            },
        }
    }
}

/// What was to be done.
#[derive(Clone, Copy, Debug, EncodeLabelValue, Eq, Hash, PartialEq)]
pub(super) enum Verb {
    Create,
    Get,
    Other,
    Patch,
    Update,
}

impl Verb {
    pub(super) fn of(method: &Method) -> Self {
        match *method {
            Method::GET => Self::Get,
            Method::PATCH => Self::Patch,
            Method::POST => Self::Create,
            Method::PUT => Self::Update,
            _ => Self::Other,
        }
    }

    /// As RBAC names it; `None` for what nobody has a right to.
    pub(super) fn as_right(self) -> Option<&'static str> {
        match self {
            Self::Create => Some("create"),
            Self::Get => Some("get"),
            Self::Other => None,
            Self::Patch => Some("patch"),
            Self::Update => Some("update"),
        }
    }
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct RequestLabels {
    about: About,
    verb: Verb,
    code: u16,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct TimeLabels {
    about: About,
    verb: Verb,
}

/// Metrics of this module.
#[derive(Clone, Debug)]
pub struct AggregatedMetrics {
    requests: Family<RequestLabels, Counter>,
    seconds: Family<TimeLabels, Histogram, fn() -> Histogram>,
}

impl AggregatedMetrics {
    /// Registers them.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "vmpool_api_requests",
            "Requests to the aggregated API by what they were about, verb and status code",
            metrics.requests.clone(),
        );
        registry.register(
            "vmpool_api_request_seconds",
            "Time that a request to the aggregated API took",
            metrics.seconds.clone(),
        );
        metrics
    }

    pub(super) fn record(&self, about: About, verb: Verb, code: StatusCode, took: Duration) {
        let code = code.as_u16();
        let labels = RequestLabels { about, verb, code };
        self.requests.get_or_create(&labels).inc();
        self.seconds
            .get_or_create(&TimeLabels { about, verb })
            .observe(took.as_secs_f64());
    }
}

impl Default for AggregatedMetrics {
    fn default() -> Self {
        Self {
            requests: Family::default(),
            seconds: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
        }
    }
}
