//! Until the module is there.
pub mod server {
    use crate::admission::hooks::{MUTATING_CONFIGURATION, VALIDATING_CONFIGURATION};
    use crate::rights::Right;
    pub fn rules() -> Vec<Right> {
        let own = |resource: &str, name| {
            Right::to(
                "its CA goes into its own webhook configurations",
                &["get", "patch"],
                "admissionregistration.k8s.io",
                &[resource],
            )
            .only(name)
        };
        vec![
            own("mutatingwebhookconfigurations", MUTATING_CONFIGURATION),
            own("validatingwebhookconfigurations", VALIDATING_CONFIGURATION),
        ]
    }
}
