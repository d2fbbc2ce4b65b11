//! Who may do what: the program's own ClusterRole, joined from the `rules()` that stand beside the calls that
//! need them, and what users get of our two kinds with the roles `admin`, `edit` and `view` that they have.
//!
//! Rights that only one way of installing needs stand in its overlay, not in the ClusterRole.

use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{
    ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::program::{labels, metadata};
use super::{File, NAME, NAMESPACE, yaml};
use crate::api::{CONFIG_PLURAL, GROUP, POOL_PLURAL, SUBRESOURCES_GROUP};
use crate::rights::Right;
use crate::{admission, aggregated, cache, controller, lease, server};

/// Name of the ClusterRole and the Role with what a program needs that makes its own certificates.
const SELF_SIGNED: &str = "vmpool-self-signed";

/// Name of the ClusterRole of a program that is given its certificates.
const PUBLISHER: &str = "vmpool-ca-publisher";

/// What the program runs as.
pub fn service_account() -> ServiceAccount {
    ServiceAccount {
        metadata: metadata(),
        ..ServiceAccount::default()
    }
}

/// Everything that the program may do, however it is installed.
pub fn cluster_role() -> ClusterRole {
    role(NAME, granted(rights()))
}

/// The ClusterRole for the program's ServiceAccount.
pub fn cluster_role_binding() -> ClusterRoleBinding {
    binding(NAME)
}

/// What the program may do in its namespace, however it is installed.
pub fn own_namespace_role() -> Role {
    namespaced_role(NAME, granted(lease::rules()))
}

/// The same for the program's ServiceAccount.
pub fn own_namespace_role_binding() -> RoleBinding {
    namespaced_binding(NAME)
}

/// What a program that makes its own certificates may do besides.
pub fn self_signed_role() -> ClusterRole {
    role(SELF_SIGNED, granted(server::rules()))
}

/// The same for the program's ServiceAccount.
pub fn self_signed_role_binding() -> ClusterRoleBinding {
    binding(SELF_SIGNED)
}

/// What a program that makes its own certificates may do in its namespace.
pub fn self_signed_namespaced_role() -> Role {
    namespaced_role(SELF_SIGNED, granted(server::namespaced_rules()))
}

/// The same for the program's ServiceAccount.
pub fn self_signed_namespaced_role_binding() -> RoleBinding {
    namespaced_binding(SELF_SIGNED)
}

/// What users may do with pools and configs, added to the cluster's own roles.
///
/// `admin` has every verb, `edit` all but deleting a whole namespace's worth at once, `view` reads. Status is
/// for the program alone to write. Who may edit a pool may scale it; the `scale` subresource is for those who
/// (or autoscalers that) may do nothing else. Of the aggregated API, `view` reads, and `edit` does what can be
/// done by editing pools and VMs one by one.
pub fn user_roles() -> Vec<ClusterRole> {
    let read = ["get", "list", "watch"];
    let write = ["create", "update", "patch", "delete"];
    let kinds = [POOL_PLURAL, CONFIG_PLURAL];
    let scale = format!("{POOL_PLURAL}/scale");
    let status = [POOL_PLURAL, CONFIG_PLURAL].map(|plural| format!("{plural}/status"));
    let edit: Vec<&str> = read.into_iter().chain(write).collect();
    let admin: Vec<&str> = edit.iter().copied().chain(["deletecollection"]).collect();
    let reads = || rule(GROUP, &[&status[0], &status[1]], &["get"]);
    let scales = || rule(GROUP, &[&scale], &["get", "update", "patch"]);
    let detach = format!("{POOL_PLURAL}/detach");
    let group = SUBRESOURCES_GROUP;
    // kubectl reads the pool before it scales it.
    let reads_there = || rule(group, &[POOL_PLURAL, &scale], &["get"]);
    let acts_there = || {
        [
            reads_there(),
            rule(group, &[&scale], &["update", "patch"]),
            rule(group, &[&detach], &["create"]),
        ]
    };
    let with_acts = |rules: [PolicyRule; 3]| rules.into_iter().chain(acts_there()).collect();
    [
        (
            "admin",
            with_acts([rule(GROUP, &kinds, &admin), reads(), scales()]),
        ),
        (
            "edit",
            with_acts([rule(GROUP, &kinds, &edit), reads(), scales()]),
        ),
        (
            "view",
            vec![
                rule(GROUP, &kinds, &read),
                reads(),
                rule(GROUP, &[&scale], &["get"]),
                reads_there(),
            ],
        ),
    ]
    .into_iter()
    .map(|(name, rules)| {
        let mut role = role(&format!("{NAME}-{name}"), rules);
        role.metadata.labels.get_or_insert_default().insert(
            format!("rbac.authorization.k8s.io/aggregate-to-{name}"),
            "true".to_owned(),
        );
        role
    })
    .collect()
}

/// The files that every installation has; each rule of the program's role stands below its reason.
pub(super) fn files() -> Vec<File> {
    let users = user_roles();
    [
        (
            "service-account.yaml",
            yaml::file([yaml::document(&service_account())]),
        ),
        (
            "cluster-role.yaml",
            yaml::file([role_with_reasons(NAME, rights())]),
        ),
        (
            "cluster-role-binding.yaml",
            yaml::file([yaml::document(&cluster_role_binding())]),
        ),
        (
            "role.yaml",
            yaml::file([
                namespaced_role_with_reasons(NAME, lease::rules()),
                yaml::document(&own_namespace_role_binding()),
            ]),
        ),
        (
            "user-roles.yaml",
            yaml::file(users.iter().map(yaml::document)),
        ),
    ]
    .map(|(name, text)| (name.to_owned(), text))
    .into()
}

/// What is added where the program makes its own certificates.
pub(super) fn self_signed_files() -> Vec<File> {
    let text = yaml::file([
        role_with_reasons(SELF_SIGNED, server::rules()),
        yaml::document(&self_signed_role_binding()),
        namespaced_role_with_reasons(SELF_SIGNED, server::namespaced_rules()),
        yaml::document(&self_signed_namespaced_role_binding()),
    ]);
    vec![("rbac.yaml".to_owned(), text)]
}

/// What is added where certificates come from elsewhere, and the program says whom to trust.
pub(super) fn publisher_file() -> String {
    yaml::file([
        role_with_reasons(PUBLISHER, server::rules()),
        yaml::document(&binding(PUBLISHER)),
    ])
}

/// What every installation needs, module by module: the same resource may come up for several reasons.
fn rights() -> Vec<Right> {
    let modules = [
        admission::rules(),
        aggregated::rules(),
        cache::rules(),
        controller::rules(),
    ];
    modules.into_iter().flatten().collect()
}

/// One rule, and all that it is there for.
struct Joined {
    whys: Vec<&'static str>,
    rule: PolicyRule,
}

/// What comes up for several reasons, once: each resource has one rule with all verbs on it, and the reasons of
/// all, so that whoever grants it sees at one place what may be done to a kind. Resources with the same verbs for
/// the same reasons share a rule.
fn joined(rights: Vec<Right>) -> Vec<Joined> {
    let mut of_resources: Vec<Joined> = Vec::new();
    for Right { why, rule } in rights {
        for resource in rule.resources.iter().flatten() {
            let one = PolicyRule {
                resources: Some(vec![resource.clone()]),
                ..rule.clone()
            };
            let found = of_resources.iter_mut().find(|joined| {
                joined.rule.api_groups == one.api_groups
                    && joined.rule.resources == one.resources
                    && joined.rule.resource_names == one.resource_names
            });
            match found {
                None => of_resources.push(Joined {
                    whys: vec![why],
                    rule: one,
                }),
                Some(joined) => {
                    joined.whys.push(why);
                    joined.rule.verbs.extend(one.verbs);
                }
            }
        }
    }
    let mut all: Vec<Joined> = Vec::new();
    for mut next in of_resources {
        next.rule.verbs.sort_unstable();
        next.rule.verbs.dedup();
        let found = all.iter().position(|joined| {
            joined.whys == next.whys
                && joined.rule.verbs == next.rule.verbs
                && joined.rule.api_groups == next.rule.api_groups
                && joined.rule.resource_names == next.rule.resource_names
        });
        match found {
            Some(at) => {
                let more = next.rule.resources.unwrap_or_default();
                let resources = &mut all[at].rule.resources;
                resources.get_or_insert_default().extend(more);
            }
            None => all.push(next),
        }
    }
    all
}

fn granted(rights: Vec<Right>) -> Vec<PolicyRule> {
    joined(rights)
        .into_iter()
        .map(|joined| joined.rule)
        .collect()
}

fn role_with_reasons(name: &str, rights: Vec<Right>) -> String {
    with_reasons(yaml::document(&role(name, Vec::new())), rights)
}

fn namespaced_role_with_reasons(name: &str, rights: Vec<Right>) -> String {
    with_reasons(yaml::document(&namespaced_role(name, Vec::new())), rights)
}

fn with_reasons(empty: String, rights: Vec<Right>) -> String {
    let rules = joined(rights).into_iter().map(|Joined { whys, rule }| {
        let rule = yaml::document(&vec![rule]);
        format!("# {}\n{rule}", whys.join("\n# "))
    });
    empty.replace("rules: []\n", "rules:\n") + &rules.collect::<String>()
}

fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> PolicyRule {
    let owned = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
    PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(owned(resources)),
        verbs: owned(verbs),
        ..PolicyRule::default()
    }
}

fn role(name: &str, rules: Vec<PolicyRule>) -> ClusterRole {
    ClusterRole {
        metadata: cluster_metadata(name),
        rules: Some(rules),
        ..ClusterRole::default()
    }
}

fn binding(role: &str) -> ClusterRoleBinding {
    ClusterRoleBinding {
        metadata: cluster_metadata(role),
        role_ref: role_ref("ClusterRole", role),
        subjects: Some(vec![subject()]),
    }
}

/// In the program's own namespace.
fn namespaced_role(name: &str, rules: Vec<PolicyRule>) -> Role {
    Role {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..metadata()
        },
        rules: Some(rules),
    }
}

fn namespaced_binding(role: &str) -> RoleBinding {
    RoleBinding {
        metadata: ObjectMeta {
            name: Some(role.to_owned()),
            ..metadata()
        },
        role_ref: role_ref("Role", role),
        subjects: Some(vec![subject()]),
    }
}

fn role_ref(kind: &str, name: &str) -> RoleRef {
    RoleRef {
        api_group: "rbac.authorization.k8s.io".to_owned(),
        kind: kind.to_owned(),
        name: name.to_owned(),
    }
}

/// The program's ServiceAccount.
fn subject() -> Subject {
    Subject {
        kind: "ServiceAccount".to_owned(),
        name: NAME.to_owned(),
        namespace: Some(NAMESPACE.to_owned()),
        ..Subject::default()
    }
}

pub(super) fn cluster_metadata(name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        labels: Some(labels()),
        ..ObjectMeta::default()
    }
}
