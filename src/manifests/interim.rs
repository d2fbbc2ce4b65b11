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
            crate::admission::hooks::MUTATING_CONFIGURATION.into(),
            crate::admission::hooks::VALIDATING_CONFIGURATION.into(),
        ]);
        vec![r]
    }
}
