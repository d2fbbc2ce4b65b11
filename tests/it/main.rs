//! The contract, against a real etcd, kube-apiserver and kube-controller-manager, with the stand-in
//! for KubeVirt and the real `vmpool` program under the generated ClusterRole.
//!
//! Ordinary tests share one such cluster ([`shared`]) and have a namespace each ([`Space`]); a test
//! that breaks something for everybody starts one of its own ([`with_own`]). What users do by hand
//! is done with kubectl. What a pure function decides is tested beside that function, not here.
//!
//! `../README.md` maps cases and matrix rows to tests. `VMPOOL_KEEP=1` leaves the clusters running,
//! with the namespaces, and prints the kubeconfig.

#![allow(
    clippy::cast_possible_truncation,
    clippy::format_push_string,
    clippy::too_many_lines,
    clippy::unreadable_literal,
    clippy::unused_async,
    reason = "tests are films: steps in a row, with the numbers that are written to the cluster"
)]

mod curl;
mod lax;
mod objects;
mod probes;
mod shared;
mod space;

mod aggregated;
mod autoscaling;
mod bounds;
mod by_hand;
mod caches;
mod certificates;
mod config_gone;
mod config_rules;
mod defaulting;
mod deletion;
mod detach;
mod detach_races;
mod docs;
mod guard;
mod identity;
mod in_the_way;
mod install;
mod isolation;
mod lossless;
mod membership;
mod missing;
mod names;
mod outage;
mod references;
mod replicas;
mod resilience;
mod revisions;
mod rights;
mod rollout;
mod scale_paths;
mod scaling;
mod single;
mod stamping;
mod uninstall;
mod unions;
mod updates;
mod validation;
mod verdict;

pub(crate) use self::shared::{with_namespace, with_own};
pub(crate) use self::space::{Kind, Space};
