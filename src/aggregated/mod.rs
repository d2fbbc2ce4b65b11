//! The aggregated API: group `subresources.vmpool.dev`, which the API server reaches through an APIService and
//! hands on requests to. What a CRD can't have stands here: subresources with verbs of their own. What a CRD
//! can do is the CRD's, so that nothing but these is lost while this program is down.
//!
//! A request goes through [`router`]: its path ([`path`]), who is calling ([`identity`], by [`trust`]),
//! whether they may ([`access`]), then one file per thing that is asked for:
//!
//! | path below `/apis/subresources.vmpool.dev/v1alpha1` | file |
//! |---|---|
//! | (itself), `/apis`, `/openapi` | [`discovery`], [`openapi`] |
//! | `…/virtualmachinepools/<name>` | [`pools`], [`table`] |
//! | `…/virtualmachinepools/<name>/scale` | [`scale`] |
//! | `…/virtualmachinepools/<name>/detach` | [`detach`] |
//!
//! Discovery and OpenAPI are open to everybody; everything else needs an identity, however the request came.

mod accept;
mod access;
mod caller;
mod detach;
mod discovery;
mod expiring;
mod identity;
mod metrics;
mod openapi;
mod options;
mod path;
mod pools;
mod refusal;
mod request;
mod reviews;
mod router;
mod scale;
mod table;
#[cfg(test)]
mod tests;
mod trust;
mod trust_watch;

pub use metrics::AggregatedMetrics;
pub use router::{AggregatedConfig, router};
pub use trust_watch::{NAME as TRUST_NAME, NAMESPACE as TRUST_NAMESPACE, TrustStore};

use crate::api::{CONFIG_PLURAL, GROUP, POOL_PLURAL};
use crate::kubevirt;
use crate::rights::Right;

/// `apiVersion` of everything here.
const API_VERSION: &str = "subresources.vmpool.dev/v1alpha1";
/// Kind of the options of `detach`.
const DETACH_KIND: &str = "DetachOptions";

/// What this module calls, beside the ConfigMap [`TRUST_NAME`], for which every cluster has a Role.
pub fn rules() -> Vec<Right> {
    let mut rules = identity::rules();
    rules.extend(access::rules());
    rules.push(Right::to(
        "the aggregated scale is written through the CRD's own",
        &["get", "patch"],
        GROUP,
        &[format!("{POOL_PLURAL}/scale")],
    ));
    rules.push(Right::to(
        "whether a config bears as many VMs as a scale asks for",
        &["get"],
        GROUP,
        &[CONFIG_PLURAL],
    ));
    rules.push(Right::to(
        "what is accepted is recorded on the pool",
        &["get", "patch"],
        GROUP,
        &[POOL_PLURAL],
    ));
    rules.push(Right::to(
        "whether a VM is a member at this moment, and a mark on one that is to leave",
        &["get", "patch"],
        kubevirt::GROUP,
        &["virtualmachines"],
    ));
    rules
}
