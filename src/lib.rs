//! vmpool: pools of stateful virtual machines for KubeVirt.
//!
//! Modules depend on each other in one direction only, which `tests/dependency_direction.rs` checks:
//! `api ← kubevirt ← stamp ← plan ← cache ← {admission, controller} ← run`. `clock` and `server` stand beside.

pub mod api;
pub mod cli;
pub mod clock;
pub mod kubevirt;
pub mod plan;
pub mod telemetry;
