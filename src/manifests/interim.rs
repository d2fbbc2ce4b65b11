//! Until the modules are there.
use k8s_openapi::api::rbac::v1::PolicyRule;
fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> PolicyRule {
    let owned = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
    PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(owned(resources)),
        verbs: owned(verbs),
        ..PolicyRule::default()
    }
}
pub mod admission {
    use super::rule;
    use k8s_openapi::api::admissionregistration::v1::{MatchCondition, RuleWithOperations};
    use k8s_openapi::api::rbac::v1::PolicyRule;
    pub const MUTATING_CONFIGURATION: &str = "stamp.vmpool.dev";
    pub const VALIDATING_CONFIGURATION: &str = "validate.vmpool.dev";
    pub struct Hook {
        pub name: &'static str,
        pub path: &'static str,
        pub mutating: bool,
        pub rules: Vec<RuleWithOperations>,
        pub match_conditions: Vec<MatchCondition>,
    }
    pub fn rules() -> Vec<PolicyRule> {
        vec![rule(
            "authorization.k8s.io",
            &["subjectaccessreviews"],
            &["create"],
        )]
    }
    fn cond(name: &str, expression: &str) -> MatchCondition {
        MatchCondition {
            name: name.into(),
            expression: expression.into(),
        }
    }
    pub fn hooks() -> Vec<Hook> {
        let on = |g: &str, v: &str, r: &str, ops: &[&str]| {
            vec![RuleWithOperations {
                api_groups: Some(vec![g.into()]),
                api_versions: Some(vec![v.into()]),
                resources: Some(vec![r.into()]),
                operations: Some(ops.iter().map(|&o| o.to_owned()).collect()),
                scope: Some("Namespaced".into()),
            }]
        };
        let ours = || {
            vec![
                cond("not-deleting", "!has(object.metadata.deletionTimestamp)"),
                cond(
                    "changed",
                    "request.operation == 'CREATE' || object.spec != oldObject.spec",
                ),
            ]
        };
        vec![
            Hook {
                name: "pools.default.vmpool.dev",
                path: "/admission/default/pools",
                mutating: true,
                rules: on(
                    "vmpool.dev",
                    "v1alpha1",
                    "virtualmachinepools",
                    &["CREATE", "UPDATE"],
                ),
                match_conditions: ours(),
            },
            Hook {
                name: "virtualmachines.stamp.vmpool.dev",
                path: "/admission/stamp",
                mutating: true,
                rules: on("kubevirt.io", "*", "virtualmachines", &["CREATE"]),
                match_conditions: vec![cond(
                    "ours",
                    "(has(object.metadata.labels) && 'vmpool.dev/pool' in object.metadata.labels) || (has(object.metadata.annotations) && 'vmpool.dev/config' in object.metadata.annotations) || (has(object.metadata.ownerReferences) && object.metadata.ownerReferences.exists(o, o.apiVersion.startsWith('vmpool.dev/') && o.kind == 'VirtualMachinePool'))",
                )],
            },
            Hook {
                name: "pools.validate.vmpool.dev",
                path: "/admission/validate/pools",
                mutating: false,
                rules: on(
                    "vmpool.dev",
                    "v1alpha1",
                    "virtualmachinepools",
                    &["CREATE", "UPDATE"],
                ),
                match_conditions: ours(),
            },
            Hook {
                name: "configs.validate.vmpool.dev",
                path: "/admission/validate/configs",
                mutating: false,
                rules: on(
                    "vmpool.dev",
                    "v1alpha1",
                    "virtualmachineconfigs",
                    &["CREATE", "UPDATE"],
                ),
                match_conditions: ours(),
            },
        ]
    }
}
pub mod cache {
    use super::rule;
    use k8s_openapi::api::rbac::v1::PolicyRule;
    pub fn rules() -> Vec<PolicyRule> {
        let read = ["get", "list", "watch"];
        vec![
            rule(
                "vmpool.dev",
                &["virtualmachinepools", "virtualmachineconfigs"],
                &read,
            ),
            rule(
                "kubevirt.io",
                &["virtualmachines", "virtualmachineinstances"],
                &read,
            ),
            rule("cdi.kubevirt.io", &["datavolumes"], &read),
            rule("", &["persistentvolumeclaims"], &read),
            rule("apps", &["controllerrevisions"], &read),
        ]
    }
}
pub mod controller {
    use super::rule;
    use k8s_openapi::api::rbac::v1::PolicyRule;
    pub fn rules() -> Vec<PolicyRule> {
        vec![
            rule(
                "vmpool.dev",
                &["virtualmachinepools/status", "virtualmachineconfigs/status"],
                &["patch"],
            ),
            rule(
                "vmpool.dev",
                &[
                    "virtualmachinepools/finalizers",
                    "virtualmachineconfigs/finalizers",
                ],
                &["update"],
            ),
            rule(
                "kubevirt.io",
                &["virtualmachines"],
                &["create", "patch", "delete"],
            ),
            rule("kubevirt.io", &["virtualmachineinstances"], &["patch"]),
            rule("", &["pods"], &["list", "patch"]),
            rule(
                "apps",
                &["controllerrevisions"],
                &["create", "patch", "delete"],
            ),
            rule("events.k8s.io", &["events"], &["create", "patch"]),
        ]
    }
}
pub mod server {
    use super::rule;
    use k8s_openapi::api::rbac::v1::PolicyRule;
    pub fn rules() -> Vec<PolicyRule> {
        let mut r = rule(
            "admissionregistration.k8s.io",
            &[
                "mutatingwebhookconfigurations",
                "validatingwebhookconfigurations",
            ],
            &["get", "patch"],
        );
        r.resource_names = Some(vec![
            super::admission::MUTATING_CONFIGURATION.into(),
            super::admission::VALIDATING_CONFIGURATION.into(),
        ]);
        vec![r]
    }
}
