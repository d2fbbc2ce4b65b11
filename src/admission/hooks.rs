//! What the API server has to know to call these webhooks: names, paths, rules, conditions. The manifests
//! are built from [`hooks`]; each webhook's own part stands beside its code.
//!
//! Two things hold for all of them. Every condition uses `has()`, since an evaluation error under `Fail`
//! refuses every such object of the cluster. And what no decision of ours depends on never reaches us, so
//! that it passes while this program is down.

use k8s_openapi::api::admissionregistration::v1::{MatchCondition, RuleWithOperations};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

use super::{defaulting, stamping, validate_config, validate_pool, validate_scale};

/// Name of the one `MutatingWebhookConfiguration`. Configurations are called in the order of their names: ours
/// has to come before KubeVirt's `virt-api-mutator`, which is to default and check what was stamped.
pub const MUTATING_CONFIGURATION: &str = "stamp.vmpool.dev";
/// Name of the one `ValidatingWebhookConfiguration`.
pub const VALIDATING_CONFIGURATION: &str = "validate.vmpool.dev";
/// Seconds after which the API server gives up on us: an apply may wait, and no longer.
pub const TIMEOUT_SECONDS: i32 = 5;
/// `failurePolicy` of every hook: what passes unseen would have to be undone later.
pub const FAILURE_POLICY: &str = "Fail";
/// `sideEffects` of every hook: dry runs are answered like others.
pub const SIDE_EFFECTS: &str = "None";
/// `matchPolicy` of every hook: other served versions are converted to the one in the rule.
pub const MATCH_POLICY: &str = "Equivalent";
/// `admissionReviewVersions` of every hook.
pub const REVIEW_VERSIONS: [&str; 1] = ["v1"];

/// Condition that lets objects pass that are going away: the garbage collector's finalizer patches are
/// UPDATEs, and an outage of ours must not keep a namespace from going.
pub(super) const NOT_BEING_DELETED: (&str, &str) = (
    "not-being-deleted",
    "!has(object.metadata) || !has(object.metadata.deletionTimestamp)",
);
/// Condition that lets updates pass that leave the spec alone.
pub(super) const SPEC_CHANGED: (&str, &str) = (
    "spec-changed",
    "request.operation != 'UPDATE' || !has(object.spec) || !has(oldObject.spec) || object.spec != oldObject.spec",
);

/// Whether a hook may change the object.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum HookKind {
    /// Called first; goes into [`MUTATING_CONFIGURATION`].
    Mutating,
    /// Called on the final object; goes into [`VALIDATING_CONFIGURATION`].
    Validating,
}

/// One webhook, as its configuration has it.
#[derive(Clone, Debug, PartialEq)]
pub struct HookSpec {
    /// Name, unique in its configuration; users see it in refusals.
    pub name: &'static str,
    /// Which configuration it goes into.
    pub kind: HookKind,
    /// Path on the TLS port.
    pub path: &'static str,
    /// What it is called for.
    pub rules: Vec<RuleWithOperations>,
    /// Further conditions, all of which have to hold.
    pub match_conditions: Vec<MatchCondition>,
    /// [`FAILURE_POLICY`].
    pub failure_policy: &'static str,
    /// [`SIDE_EFFECTS`].
    pub side_effects: &'static str,
    /// [`MATCH_POLICY`].
    pub match_policy: &'static str,
    /// [`TIMEOUT_SECONDS`].
    pub timeout_seconds: i32,
}

/// All webhooks, in the order of their configurations.
pub fn hooks() -> Vec<HookSpec> {
    vec![
        defaulting::hook(),
        stamping::hook(),
        validate_pool::hook(),
        validate_scale::hook(),
        validate_config::hook(),
    ]
}

/// `namespaceSelector` of every hook: all but the namespace that this program runs in, which must not need
/// it to get started.
pub fn namespace_selector(own_namespace: &str) -> LabelSelector {
    LabelSelector {
        match_expressions: Some(vec![LabelSelectorRequirement {
            key: "kubernetes.io/metadata.name".to_owned(),
            operator: "NotIn".to_owned(),
            values: Some(vec![own_namespace.to_owned()]),
        }]),
        match_labels: None,
    }
}

impl HookSpec {
    pub(super) fn new(
        name: &'static str,
        kind: HookKind,
        path: &'static str,
        rule: RuleWithOperations,
        conditions: &[(&str, &str)],
    ) -> Self {
        Self {
            name,
            kind,
            path,
            rules: vec![rule],
            match_conditions: conditions
                .iter()
                .map(|(name, expression)| MatchCondition {
                    name: (*name).to_owned(),
                    expression: (*expression).to_owned(),
                })
                .collect(),
            failure_policy: FAILURE_POLICY,
            side_effects: SIDE_EFFECTS,
            match_policy: MATCH_POLICY,
            timeout_seconds: TIMEOUT_SECONDS,
        }
    }
}

/// A rule for one resource (`plural` or `plural/subresource`) of one version.
pub(super) fn rule(
    group: &str,
    version: &str,
    resource: &str,
    operations: &[&str],
) -> RuleWithOperations {
    RuleWithOperations {
        api_groups: Some(vec![group.to_owned()]),
        api_versions: Some(vec![version.to_owned()]),
        operations: Some(operations.iter().map(|&name| name.to_owned()).collect()),
        resources: Some(vec![resource.to_owned()]),
        scope: Some("Namespaced".to_owned()),
    }
}
