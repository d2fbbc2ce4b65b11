//! What only the program's own service account may write, said in CEL, so that it holds with the program down and
//! costs no call: the intents on a pool, who is a member, and what a member's stamp says. And that KubeVirt's own
//! pools, whose autohealing looks at all VMs of a namespace, delete none of ours.
//!
//! Nothing here asks about CREATE of a VM: a copy or a restore that carries our marks is admitted as the plain VM
//! that it is, by the stamping webhook. Nor about anybody else's DELETE, nor about losing the reference to a pool:
//! the garbage collector, orphan deletion, the end of a namespace and a user's own release pass. Nor about what is
//! in the spec, marks on the template included: a restore of KubeVirt's puts back an older one.
//!
//! An expression that can't be evaluated lets pass (`Ignore`): a mistake here must not stop a cluster's VMs.

use k8s_openapi::api::admissionregistration::v1::{
    MatchCondition, MatchResources, NamedRuleWithOperations, ValidatingAdmissionPolicy,
    ValidatingAdmissionPolicyBinding, ValidatingAdmissionPolicyBindingSpec,
    ValidatingAdmissionPolicySpec, Validation, Variable,
};

use super::rbac::cluster_metadata;
use super::{File, NAME, NAMESPACE, yaml};
use crate::admission::service_account_username;
use crate::api::conditions::reasons;
use crate::api::{GROUP, POOL_KIND, POOL_PLURAL, annotations, labels};

/// Name of the policy about VMs, and of its binding.
const MEMBERS: &str = "members.vmpool.dev";
/// Name of the policy about pools, and of its binding.
const INTENTS: &str = "intents.vmpool.dev";
/// Name of the policy about who deletes VMs, and of its binding.
const DELETIONS: &str = "deletions.vmpool.dev";
/// Who runs KubeVirt's own pools: the service account of virt-controller, in whatever namespace KubeVirt is
/// installed (`pkg/virt-operator/resource/generate/rbac/controller.go`). Nothing else of it deletes VMs.
const VIRT_CONTROLLER: &str = "kubevirt-controller";

/// All policies.
pub fn policies() -> Vec<ValidatingAdmissionPolicy> {
    vec![members(), intents(), deletions()]
}

/// What puts them into effect, everywhere.
pub fn policy_bindings() -> Vec<ValidatingAdmissionPolicyBinding> {
    [MEMBERS, INTENTS, DELETIONS]
        .map(|name| ValidatingAdmissionPolicyBinding {
            metadata: cluster_metadata(name),
            spec: Some(ValidatingAdmissionPolicyBindingSpec {
                policy_name: Some(name.to_owned()),
                validation_actions: Some(vec!["Deny".to_owned()]),
                ..ValidatingAdmissionPolicyBindingSpec::default()
            }),
        })
        .into()
}

/// The file with all of them.
pub(super) fn files() -> Vec<File> {
    let policies = policies();
    let bindings = policy_bindings();
    let documents = policies
        .iter()
        .map(yaml::document)
        .chain(bindings.iter().map(yaml::document));
    vec![("guard-policy.yaml".to_owned(), yaml::file(documents))]
}

fn members() -> ValidatingAdmissionPolicy {
    let owners = |object: &str| {
        format!(
            "has({object}.metadata.ownerReferences) ? {object}.metadata.ownerReferences.filter(o, {}).map(o, o.uid) : []",
            is_pool()
        )
    };
    let guarded: Vec<String> = labels::IDENTITY
        .iter()
        .map(|key| format!("'{key}'"))
        .collect();
    let marks = [
        annotations::STAMP,
        annotations::MEMBER_OF,
        annotations::DETACHING,
    ]
    .map(|key| format!("'{key}'"));
    let validations = vec![
        validation(
            "variables.after.all(uid, uid in variables.before)".to_owned(),
            "a VM becomes a member of a pool by the pool alone: take its reference to a VirtualMachinePool of vmpool.dev off",
        ),
        validation(
            format!(
                "[{}].all(key, {})",
                guarded.join(", "),
                is_unchanged("labels", "key")
            ),
            "the labels vmpool.dev/* of a pool's member are the pool's to change",
        ),
        validation(
            format!(
                "[{}].all(key, {})",
                marks.join(", "),
                is_unchanged("annotations", "key")
            ),
            "the annotations vmpool.dev/stamp, vmpool.dev/member-of and vmpool.dev/detaching of a pool's member are the pool's to change",
        ),
    ];
    let member = format!(
        "has(object.metadata.ownerReferences) && object.metadata.ownerReferences.exists(o, {})",
        is_pool()
    );
    policy(
        MEMBERS,
        rule("kubevirt.io", "virtualmachines", &["UPDATE"]),
        Some(("is-a-member", member)),
        vec![
            variable("before", owners("oldObject")),
            variable("after", owners("object")),
        ],
        validations,
    )
}

/// What this version can't read, or doesn't know, anybody may take off who may change the pool: it stands in the
/// way of every scale-in, and who it was promised to is a person's to find out. What can be read is carried out.
fn intents() -> ValidatingAdmissionPolicy {
    let key = format!("'{}'", annotations::INTENT);
    let after = value_of("object", "annotations", &key);
    let unclear = format!(
        "has(oldObject.status) && has(oldObject.status.conditions) && oldObject.status.conditions.exists(c, c.reason == '{}')",
        reasons::INTENT_UNCLEAR
    );
    policy(
        INTENTS,
        rule(GROUP, POOL_PLURAL, &["CREATE", "UPDATE"]),
        None,
        Vec::new(),
        vec![validation(
            format!(
                "request.operation == 'CREATE' ? {after} == '' : {} || ({after} == '' && {unclear})",
                is_unchanged("annotations", &key)
            ),
            "the annotation vmpool.dev/intent is written by vmpool alone: leave it as it is, and off a new pool; \
             it may be taken off a pool where a condition has the reason IntentUnclear",
        )],
    )
}

fn deletions() -> ValidatingAdmissionPolicy {
    let member = format!(
        "oldObject != null && has(oldObject.metadata.ownerReferences) && oldObject.metadata.ownerReferences.exists(o, {})",
        is_pool()
    );
    policy(
        DELETIONS,
        rule("kubevirt.io", "virtualmachines", &["DELETE"]),
        Some(("is-a-member", member)),
        Vec::new(),
        vec![validation(
            format!(
                "!request.userInfo.username.matches('^system:serviceaccount:[^:]+:{VIRT_CONTROLLER}$')"
            ),
            "a member of a pool of vmpool.dev is not healed by a pool of KubeVirt's: deleting it is its own pool's to do",
        )],
    )
}

/// Whether the owner reference `o` makes a member.
fn is_pool() -> String {
    format!(
        "o.kind == '{POOL_KIND}' && o.apiVersion.startsWith('{GROUP}/') && has(o.controller) && o.controller"
    )
}

/// A value of a map in an object's metadata; empty if it is not there.
fn value_of(object: &str, map: &str, key: &str) -> String {
    format!(
        "(has({object}.metadata.{map}) && {key} in {object}.metadata.{map} ? {object}.metadata.{map}[{key}] : '')"
    )
}

fn is_unchanged(map: &str, key: &str) -> String {
    format!(
        "{} == {}",
        value_of("object", map, key),
        value_of("oldObject", map, key)
    )
}

fn policy(
    name: &str,
    rule: NamedRuleWithOperations,
    condition: Option<(&str, String)>,
    variables: Vec<Variable>,
    validations: Vec<Validation>,
) -> ValidatingAdmissionPolicy {
    let us = service_account_username(NAMESPACE, NAME);
    let not_us = ("not-us", format!("request.userInfo.username != '{us}'"));
    let conditions = [Some(not_us), condition].into_iter().flatten();
    ValidatingAdmissionPolicy {
        metadata: cluster_metadata(name),
        spec: Some(ValidatingAdmissionPolicySpec {
            failure_policy: Some("Ignore".to_owned()),
            match_constraints: Some(MatchResources {
                match_policy: Some("Equivalent".to_owned()),
                resource_rules: Some(vec![rule]),
                ..MatchResources::default()
            }),
            match_conditions: Some(
                conditions
                    .map(|(name, expression)| MatchCondition {
                        name: name.to_owned(),
                        expression,
                    })
                    .collect(),
            ),
            variables: (!variables.is_empty()).then_some(variables),
            validations: Some(validations),
            ..ValidatingAdmissionPolicySpec::default()
        }),
        ..ValidatingAdmissionPolicy::default()
    }
}

fn rule(group: &str, resource: &str, operations: &[&str]) -> NamedRuleWithOperations {
    NamedRuleWithOperations {
        api_groups: Some(vec![group.to_owned()]),
        api_versions: Some(vec!["*".to_owned()]),
        resources: Some(vec![resource.to_owned()]),
        operations: Some(operations.iter().map(|&name| name.to_owned()).collect()),
        ..NamedRuleWithOperations::default()
    }
}

fn variable(name: &str, expression: String) -> Variable {
    Variable {
        name: name.to_owned(),
        expression,
    }
}

fn validation(expression: String, message: &str) -> Validation {
    Validation {
        expression,
        message: Some(message.to_owned()),
        // As a schema's rule would be refused.
        reason: Some("Invalid".to_owned()),
        ..Validation::default()
    }
}
