//! Who is calling. In this order, and nothing else counts:
//!
//! 1. a client certificate of the front proxy: then, and only then, the user that its headers name;
//! 2. a client certificate of the cluster's client CA: its own name and organizations;
//! 3. a bearer token, by a TokenReview.
//!
//! Headers beside any other certificate, or none, are as if they were not there. What can't be found out in
//! time is no identity.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, header};
use axum_server::tls::TlsInfo;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, Client};

use super::caller::Caller;
use super::expiring::{Expiring, key};
use super::refusal::Refusal;
use super::reviews::ask;
use super::trust_watch::TrustStore;
use crate::rights::Right;

/// How long a review of a token holds: after so long a revoked one is refused.
const LASTS: Duration = Duration::from_secs(10);
/// Most tokens known at a time: far more than there are robots that call within [`LASTS`].
const MOST: usize = 4096;
/// Longest token that is looked at: those of service accounts are about a thousand bytes.
const LONGEST_TOKEN: usize = 16 * 1024;

/// Finds out who is calling.
pub(super) struct Identity {
    client: Client,
    trust: TrustStore,
    tokens: Expiring<Option<Arc<Caller>>>,
}

/// What this needs.
pub(super) fn rules() -> Vec<Right> {
    vec![Right::to(
        "who a bearer token of a direct caller is (as system:auth-delegator)",
        &["create"],
        "authentication.k8s.io",
        &["tokenreviews"],
    )]
}

impl Identity {
    pub(super) fn new(client: Client, trust: TrustStore) -> Self {
        Self {
            client,
            trust,
            tokens: Expiring::new(LASTS, MOST),
        }
    }

    /// The caller of a request with these headers over this connection.
    pub(super) async fn caller(
        &self,
        tls: Option<&TlsInfo>,
        headers: &HeaderMap,
        now: Timestamp,
    ) -> Result<Arc<Caller>, Refusal> {
        let chain = tls.map_or(&[][..], |tls| &tls.peer_certificates);
        if !chain.is_empty() {
            let Some(trust) = self.trust.newest() else {
                return Err(Refusal::unavailable(
                    "whose certificates count has not been read yet",
                ));
            };
            if let Some(names) = trust.front_proxy(chain, now)
                && let Some(caller) = Caller::read(headers, names)
            {
                return Ok(Arc::new(caller));
            }
            if let Some(caller) = trust.user(chain, now) {
                return Ok(Arc::new(caller));
            }
        }
        match bearer(headers) {
            Some(token) => self
                .of_token(token)
                .await?
                .ok_or_else(Refusal::unauthorized),
            None => Err(Refusal::unauthorized()),
        }
    }

    async fn of_token(&self, token: &str) -> Result<Option<Arc<Caller>>, Refusal> {
        let key = key([token]);
        if let Some(known) = self.tokens.get(&key, Instant::now()) {
            return Ok(known);
        }
        let review = TokenReview {
            spec: TokenReviewSpec {
                token: Some(token.to_owned()),
                ..TokenReviewSpec::default()
            },
            ..TokenReview::default()
        };
        let api: Api<TokenReview> = Api::all(self.client.clone());
        let params = PostParams::default();
        let review = ask("review the token", api.create(&params, &review)).await?;
        let status = review.status.unwrap_or_default();
        let caller = match (status.authenticated, status.user) {
            (Some(true), Some(user)) => of_user(user).map(Arc::new),
            _ => None,
        };
        self.tokens.put(key, caller.clone(), Instant::now());
        Ok(caller)
    }
}

/// The token of a `Bearer` authorization. Several are none: who knows which of them another one reads.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let (only, more) = (values.next()?, values.next());
    let (scheme, token) = only.to_str().ok()?.trim().split_once(' ')?;
    let token = token.trim();
    let is_one = more.is_none()
        && scheme.eq_ignore_ascii_case("bearer")
        && !token.is_empty()
        && token.len() <= LONGEST_TOKEN
        && !token.contains(char::is_whitespace);
    is_one.then_some(token)
}

fn of_user(user: UserInfo) -> Option<Caller> {
    let caller = Caller {
        name: user.username.filter(|name| !name.is_empty())?,
        uid: user.uid.filter(|uid| !uid.is_empty()),
        groups: user.groups.unwrap_or_default(),
        extra: user.extra.unwrap_or_default(),
    };
    Some(caller.authenticated())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_bearer_token_is_one() {
        let found = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::AUTHORIZATION, value.parse().unwrap());
            }
            bearer(&headers).map(str::to_owned)
        };
        assert_eq!(found(&["Bearer abc"]).as_deref(), Some("abc"));
        assert_eq!(found(&["bearer  abc "]).as_deref(), Some("abc"));
        let long = format!("Bearer {}", "a".repeat(LONGEST_TOKEN + 1));
        for values in [
            &[][..],
            &["Bearer"],
            &["Bearer "],
            &["Basic abc"],
            &["Bearer a b"],
            &["Bearer a", "Bearer b"],
            &[long.as_str()],
        ] {
            assert_eq!(found(values), None);
        }
    }
}
