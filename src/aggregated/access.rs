//! Whether a caller may: a SubjectAccessReview for each request, also for those that came through the API
//! server, which has asked before. A direct caller was asked by nobody, and one rule for all is the one that
//! can't be got around. No answer is a no.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};

use super::caller::Caller;
use super::expiring::{Expiring, Key, key};
use super::path::PoolPath;
use super::refusal::Refusal;
use super::reviews::ask;
use crate::api::{POOL_PLURAL, SUBRESOURCES_GROUP, VERSION};
use crate::rights::Right;

/// How long an answer holds: after so long a right that was taken is gone, and one that was given is there.
const LASTS: Duration = Duration::from_secs(10);
/// Most answers kept.
const MOST: usize = 4096;

/// Asks what callers may do.
pub(super) struct Access {
    client: Client,
    answers: Expiring<Answer>,
}

#[derive(Clone, Debug)]
struct Answer {
    allowed: bool,
    reason: String,
}

/// What this needs.
pub(super) fn rules() -> Vec<Right> {
    vec![Right::to(
        "whether a caller of the aggregated API may do it (as system:auth-delegator)",
        &["create"],
        "authorization.k8s.io",
        &["subjectaccessreviews"],
    )]
}

impl Access {
    pub(super) fn new(client: Client) -> Self {
        Self {
            client,
            answers: Expiring::new(LASTS, MOST),
        }
    }

    /// Refuses what `caller` may not do.
    pub(super) async fn check(
        &self,
        caller: &Caller,
        verb: &str,
        path: &PoolPath,
    ) -> Result<(), Refusal> {
        let key = key_of(caller, verb, path);
        let answer = if let Some(known) = self.answers.get(&key, Instant::now()) {
            known
        } else {
            let answer = self.ask(caller, verb, path).await?;
            self.answers.put(key, answer.clone(), Instant::now());
            answer
        };
        if answer.allowed {
            return Ok(());
        }
        let resource = match path.part.subresource() {
            Some(subresource) => format!("{POOL_PLURAL}/{subresource}"),
            None => POOL_PLURAL.to_owned(),
        };
        // In the API server's words.
        let mut message = format!(
            "{POOL_PLURAL}.{SUBRESOURCES_GROUP} {:?} is forbidden: User {:?} cannot {verb} resource \
             {resource:?} in API group {SUBRESOURCES_GROUP:?} in the namespace {:?}",
            path.name, caller.name, path.namespace
        );
        if !answer.reason.is_empty() {
            message = format!("{message}: {}", answer.reason);
        }
        Err(Refusal::forbidden(&path.name, message))
    }

    async fn ask(&self, caller: &Caller, verb: &str, path: &PoolPath) -> Result<Answer, Refusal> {
        let api: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let (review, params) = (review(caller, verb, path), PostParams::default());
        let review = ask("review the access", api.create(&params, &review)).await?;
        let status = review.status.unwrap_or_default();
        Ok(Answer {
            allowed: status.allowed && status.denied != Some(true),
            reason: status.reason.unwrap_or_default(),
        })
    }
}

/// The question.
fn review(caller: &Caller, verb: &str, path: &PoolPath) -> SubjectAccessReview {
    let extra: BTreeMap<_, _> = caller.extra.clone();
    SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(caller.name.clone()),
            uid: caller.uid.clone(),
            groups: (!caller.groups.is_empty()).then(|| caller.groups.clone()),
            extra: (!extra.is_empty()).then_some(extra),
            resource_attributes: Some(ResourceAttributes {
                group: Some(SUBRESOURCES_GROUP.to_owned()),
                version: Some(VERSION.to_owned()),
                resource: Some(POOL_PLURAL.to_owned()),
                subresource: path.part.subresource().map(str::to_owned),
                namespace: Some(path.namespace.clone()),
                name: Some(path.name.clone()),
                verb: Some(verb.to_owned()),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    }
}

/// Everything that the answer depends on.
fn key_of(caller: &Caller, verb: &str, path: &PoolPath) -> Key {
    let asked = [
        verb,
        path.part.subresource().unwrap_or_default(),
        &path.namespace,
        &path.name,
        &caller.name,
        caller.uid.as_deref().unwrap_or_default(),
    ];
    let (groups, extras) = (caller.groups.len(), caller.extra.len());
    let counts = format!("{groups} {extras}");
    let groups = caller.groups.iter().map(String::as_str);
    let extra = caller.extra.iter().flat_map(|(name, values)| {
        let values = values.iter().map(String::as_str);
        // No value is a NUL: where one key's values end is clear.
        [name.as_str()].into_iter().chain(values).chain(["\0"])
    });
    key(asked
        .into_iter()
        .chain([counts.as_str()])
        .chain(groups)
        .chain(extra))
}

#[cfg(test)]
mod tests {
    use super::super::path::Part;
    use super::*;

    fn caller() -> Caller {
        Caller {
            name: "jane".to_owned(),
            uid: Some("u1".to_owned()),
            groups: vec!["a".to_owned(), "b".to_owned()],
            extra: [("scopes".to_owned(), vec!["x".to_owned()])].into(),
        }
    }

    fn path() -> PoolPath {
        PoolPath {
            namespace: "team".to_owned(),
            name: "web".to_owned(),
            part: Part::Detach,
        }
    }

    #[test]
    fn the_question_names_user_verb_subresource_and_pool() {
        let asked = review(&caller(), "create", &path()).spec;
        assert_eq!(asked.user.as_deref(), Some("jane"));
        assert_eq!(asked.uid.as_deref(), Some("u1"));
        assert_eq!(asked.groups.unwrap(), ["a", "b"]);
        assert_eq!(asked.extra.unwrap()["scopes"], ["x"]);
        let attributes = asked.resource_attributes.unwrap();
        let text = |part: &Option<String>| part.clone().unwrap_or_default();
        assert_eq!(text(&attributes.verb), "create");
        assert_eq!(text(&attributes.group), SUBRESOURCES_GROUP);
        assert_eq!(text(&attributes.resource), POOL_PLURAL);
        assert_eq!(text(&attributes.subresource), "detach");
        assert_eq!(text(&attributes.namespace), "team");
        assert_eq!(text(&attributes.name), "web");
        let whole = PoolPath {
            part: Part::Whole,
            ..path()
        };
        let attributes = review(&caller(), "get", &whole).spec.resource_attributes;
        assert_eq!(attributes.unwrap().subresource, None);
    }

    #[test]
    fn an_answer_holds_for_the_same_question_only() {
        let base = key_of(&caller(), "create", &path());
        assert_eq!(key_of(&caller(), "create", &path()), base);
        assert_ne!(key_of(&caller(), "get", &path()), base);
        for change in [
            |caller: &mut Caller| caller.name = "joe".to_owned(),
            |caller: &mut Caller| caller.uid = None,
            |caller: &mut Caller| caller.groups = vec!["b".to_owned(), "a".to_owned()],
            |caller: &mut Caller| caller.groups = vec!["a".to_owned()],
            |caller: &mut Caller| caller.extra.clear(),
            |caller: &mut Caller| {
                caller
                    .extra
                    .entry("scopes".to_owned())
                    .or_default()
                    .push("y".to_owned());
            },
        ] {
            let mut other = caller();
            change(&mut other);
            assert_ne!(key_of(&other, "create", &path()), base, "{other:?}");
        }
        for change in [
            |path: &mut PoolPath| path.namespace = "other".to_owned(),
            |path: &mut PoolPath| path.name = "other".to_owned(),
            |path: &mut PoolPath| path.part = Part::Scale,
        ] {
            let mut other = path();
            change(&mut other);
            assert_ne!(key_of(&caller(), "create", &other), base, "{other:?}");
        }
    }
}
