//! The KubeVirt stand-in against a real control plane: VMs start, stop, fail and leave nothing.
//!
//! With `VMPOOL_KUBEVIRT_CRDS` on KubeVirt's real CRDs, and then with its own examples beside
//! that folder; without it on small ones.

#![allow(
    clippy::unwrap_used,
    reason = "the steps of these tests are functions, which the lint takes for other code"
)]

mod disks;
mod hundreds;
mod life;
mod metrics;
mod nodes;
mod subresources;
mod world;
