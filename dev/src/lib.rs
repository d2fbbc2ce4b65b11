//! Everything that developing and testing vmpool needs and a cluster never sees: a real control
//! plane on loopback, what stands in for KubeVirt, a supervisor that plays kubelet, and a proxy
//! that injects faults.
//!
//! Nothing here is part of the product; the product must not depend on this crate outside tests.

pub mod audit;
pub mod bench;
pub mod binaries;
pub mod cargo;
pub mod commands;
pub mod controlplane;
pub mod crds;
pub mod demo;
mod extension;
pub mod external_metrics;
pub mod harness;
pub mod kubectl;
pub mod probe;
pub mod proxy;
pub mod reaper;
pub mod standin;
pub mod supervisor;
pub mod virt_api;
pub mod webhook_server;

use std::path::{Path, PathBuf};

/// The folder of the workspace, where `target/` and the Go module of the control plane are found.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the dev crate is a folder of the workspace")
        .to_path_buf()
}
