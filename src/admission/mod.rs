//! Admission: what the API server asks before it stores a pool, a config, or a VM of ours.
//!
//! Each webhook is one file with one pure function, `review(what is asked, facts) -> Verdict`; looking the
//! facts up, and all of HTTP, is [`router`]'s. The schema's own rules (CEL) come first and are not repeated
//! here: unions, percentages, ranges. What was stored under older rules stays editable in all that doesn't
//! make it worse ([`Verdict::since`]).
//!
//! | path | file |
//! |---|---|
//! | `/admission/default/virtualmachinepools` | [`defaulting`] |
//! | `/admission/stamp` | [`stamping`], [`single`] |
//! | `/admission/validate/virtualmachinepools` | [`validate_pool`], [`unsupported`] |
//! | `/admission/validate/virtualmachinepools/scale` | [`validate_scale`] |
//! | `/admission/validate/virtualmachineconfigs` | [`validate_config`] |
//!
//! Configs, and pools with their own names, are tried on KubeVirt by dry run before they are admitted
//! ([`trial`]).
//!
//! Configs have no defaulting webhook: there is nothing static in an opaque spec that is ours to fill in.

pub mod access;
pub mod defaulting;
pub mod field;
pub mod hooks;
pub mod metadata;
pub mod objects;
pub mod review;
pub mod single;
pub mod stamping;
pub mod unsupported;
pub mod validate_config;
pub mod validate_pool;
pub mod validate_scale;
pub mod verdict;

mod cached_objects;
mod metrics;
mod missing;
mod pool_warnings;
mod room;
mod router;
mod spec_shape;
mod trial;

pub use access::{Access, LiveAccess};
pub use cached_objects::CachedObjects;
pub use hooks::{HookKind, HookSpec, MUTATING_CONFIGURATION, VALIDATING_CONFIGURATION, hooks};
pub use metrics::AdmissionMetrics;
pub use objects::{LiveObjects, Lookup, Objects, StoredRevision, Unavailable, VmName};
pub use router::{AdmissionState, router};
pub use verdict::Verdict;

/// What the webhooks need.
pub fn rules() -> Vec<crate::rights::Right> {
    [objects::rules(), access::rules()].concat()
}

/// The name that the API server knows a service account by.
pub fn service_account_username(namespace: &str, name: &str) -> String {
    format!("system:serviceaccount:{namespace}:{name}")
}

#[cfg(test)]
mod tests;
