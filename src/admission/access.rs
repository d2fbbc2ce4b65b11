//! What the user of a request may do, where a webhook does it in his place: a SubjectAccessReview.

use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::{Api, PostParams};
use kube::{Client, Config};

use super::objects::{Lookup, Unavailable};
use super::review::UserInfo;
use crate::api::{CONFIG_PLURAL, GROUP, VERSION};
use crate::rights::Right;

/// How long the question may take: with [`super::hooks::TIMEOUT_SECONDS`], it leaves time to answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// Whom to ask.
pub trait Access: Send + Sync + 'static {
    /// Whether a user may read this config.
    fn may_get_config<'a>(
        &'a self,
        user: &'a UserInfo,
        namespace: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Lookup<bool>>;
}

/// The API server.
#[derive(Clone)]
pub struct LiveAccess {
    client: Client,
}

/// What this needs.
pub(super) fn rules() -> Vec<Right> {
    vec![Right::to(
        "whether somebody who makes a single VM from a config may read that config",
        &["create"],
        "authorization.k8s.io",
        &["subjectaccessreviews"],
    )]
}

impl LiveAccess {
    /// With a client that doesn't retry: a webhook has seconds.
    pub fn new(mut config: Config) -> Result<Self, kube::Error> {
        config.default_retry = false;
        let client = Client::try_from(config)?;
        Ok(Self { client })
    }
}

impl Access for LiveAccess {
    fn may_get_config<'a>(
        &'a self,
        user: &'a UserInfo,
        namespace: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Lookup<bool>> {
        Box::pin(async move {
            let api: Api<SubjectAccessReview> = Api::all(self.client.clone());
            let (review, params) = (review(user, namespace, name), PostParams::default());
            let why = match tokio::time::timeout(PATIENCE, api.create(&params, &review)).await {
                Ok(Ok(review)) => {
                    let status = review.status.unwrap_or_default();
                    return Ok(status.allowed && status.denied != Some(true));
                }
                Ok(Err(error)) => error.to_string(),
                Err(_) => format!("no answer within {} s", PATIENCE.as_secs()),
            };
            Err(Unavailable {
                what: format!("whether {:?} may get config {name}", user.username),
                why,
            })
        })
    }
}

/// The question.
fn review(user: &UserInfo, namespace: &str, name: &str) -> SubjectAccessReview {
    SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(user.username.clone()),
            uid: user.uid.clone(),
            groups: (!user.groups.is_empty()).then(|| user.groups.clone()),
            extra: (!user.extra.is_empty()).then(|| user.extra.clone()),
            resource_attributes: Some(ResourceAttributes {
                group: Some(GROUP.to_owned()),
                version: Some(VERSION.to_owned()),
                resource: Some(CONFIG_PLURAL.to_owned()),
                namespace: Some(namespace.to_owned()),
                name: Some(name.to_owned()),
                verb: Some("get".to_owned()),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_question_is_about_the_whole_user_and_the_one_config() {
        let user: UserInfo = serde_json::from_value(serde_json::json!({
            "username": "jane", "uid": "u1", "groups": ["a", "b"], "extra": {"scopes": ["x"]},
        }))
        .unwrap();
        let spec = review(&user, "team", "desktop").spec;
        assert_eq!(spec.user.as_deref(), Some("jane"));
        assert_eq!(spec.uid.as_deref(), Some("u1"));
        assert_eq!(spec.groups.unwrap(), ["a", "b"]);
        assert_eq!(spec.extra.unwrap()["scopes"], ["x"]);
        let about = spec.resource_attributes.unwrap();
        assert_eq!(about.group.as_deref(), Some("vmpool.dev"));
        assert_eq!(about.resource.as_deref(), Some("virtualmachineconfigs"));
        assert_eq!(about.namespace.as_deref(), Some("team"));
        assert_eq!(about.name.as_deref(), Some("desktop"));
        assert_eq!(about.verb.as_deref(), Some("get"));
    }
}
