//! vmpool: pools of stateful virtual machines for KubeVirt.
//!
//! Modules depend on each other in one direction only, which a test checks:
//! `api ← kubevirt ← stamp ← plan ← cache ← {admission, aggregated, controller} ← run`. `cli`, `clock`, `json`,
//! `lease`, `rights`, `server` and `telemetry` stand beside.

pub mod admission;
pub mod aggregated;
pub mod api;
pub mod cache;
pub mod cli;
pub mod clock;
pub mod controller;
pub mod json;
pub mod kubevirt;
pub mod lease;
pub mod manifests;
pub mod plan;
pub mod rights;
pub mod run;
pub mod server;
pub mod stamp;
pub mod telemetry;

#[cfg(test)]
mod dependency_direction;
