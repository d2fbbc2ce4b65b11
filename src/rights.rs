//! How a module says what it must be allowed to do: `pub fn rules() -> Vec<Right>` beside the calls that need
//! it. The reason is data, so that it reaches the ClusterRole's file and whoever reviews that.

use k8s_openapi::api::rbac::v1::PolicyRule;

/// A rule of the program's ClusterRole, and why it is there.
#[derive(Clone, Debug)]
pub struct Right {
    /// For whoever has to grant it; one line.
    pub why: &'static str,
    /// What is granted.
    pub rule: PolicyRule,
}

impl Right {
    /// These verbs on these resources of a group.
    pub fn to(
        why: &'static str,
        verbs: &[&str],
        group: &str,
        resources: &[impl AsRef<str>],
    ) -> Self {
        let resources = resources.iter().map(|name| name.as_ref().to_owned());
        Self {
            why,
            rule: PolicyRule {
                api_groups: Some(vec![group.to_owned()]),
                resources: Some(resources.collect()),
                verbs: verbs.iter().map(|&verb| verb.to_owned()).collect(),
                ..PolicyRule::default()
            },
        }
    }

    /// Only for objects of this name; not for verbs that don't know a name (`list`, `watch`, `create`).
    pub fn only(mut self, name: &str) -> Self {
        self.rule
            .resource_names
            .get_or_insert_default()
            .push(name.to_owned());
        self
    }
}
