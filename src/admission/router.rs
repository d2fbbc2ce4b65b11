//! HTTP around the webhooks: bodies in, facts looked up, answers out. Decides nothing about objects.
//!
//! Whatever comes, an answer goes back: a body that is too long, no JSON, of another kind, or that makes a
//! webhook panic. No more is read at once than there is room for ([`super::room`]).

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, FromRequest as _, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use futures::FutureExt as _;
use serde_json::Value;
use tokio::time::timeout_at;

use super::access::Access;
use super::metrics::{AdmissionMetrics, Hook, Outcome};
use super::objects::{Lookup, Named, Objects, Unavailable};
use super::review::{Answer, ReadRequest, Request};
use super::room::{MAX_BODY, Room};
use super::verdict::Verdict;
use super::{
    defaulting, missing, single, stamping, trial, validate_config, validate_pool, validate_scale,
};
use crate::api::{CONFIG_KIND, GROUP, POOL_KIND};
use crate::kubevirt::{self, verdict::Verdict as Kubevirts};
use crate::stamp::PoolInputs;

/// How long an answer may take in all, questions to others included: [`super::hooks::TIMEOUT_SECONDS`] less the
/// way here and back. What isn't known by then is a warning.
const TIME: Duration = Duration::from_millis(3500);
/// Why something isn't known by then.
const NO_TIME_LEFT: &str = "the API server took too long to answer";

/// What the webhooks share.
#[derive(Clone)]
pub struct AdmissionState {
    /// Where facts come from.
    pub objects: Arc<dyn Objects>,
    /// Who may do what.
    pub access: Arc<dyn Access>,
    /// The user name that this program itself creates VMs under ([`super::service_account_username`]).
    pub own_username: String,
    /// What is counted.
    pub metrics: AdmissionMetrics,
}

/// All webhooks, at the paths of [`super::hooks()`].
pub fn router(state: AdmissionState) -> Router {
    let route = |hook: Hook| {
        post(
            move |State(served): State<Arc<Served>>, http: axum::extract::Request| async move {
                serve(hook, &served, http).await
            },
        )
    };
    Router::new()
        .route(defaulting::PATH, route(Hook::DefaultPool))
        .route(stamping::PATH, route(Hook::Stamp))
        .route(validate_config::PATH, route(Hook::ValidateConfig))
        .route(validate_pool::PATH, route(Hook::ValidatePool))
        .route(validate_scale::PATH, route(Hook::ValidateScale))
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .with_state(Arc::new(Served {
            state,
            room: Room::default(),
        }))
}

/// Why there is no verdict.
enum NoVerdict {
    Unavailable(Unavailable),
    WrongKind { expected: String },
}

struct Served {
    state: AdmissionState,
    room: Room,
}

async fn serve(hook: Hook, served: &Served, http: axum::extract::Request) -> Response {
    let started = Instant::now();
    let length = http.headers().get(header::CONTENT_LENGTH);
    let length = length.and_then(|length| length.to_str().ok()?.parse().ok());
    let (outcome, response) = match served.room.enter(length).await {
        Err(full) => (Outcome::Shed, full.into_response()),
        Ok(_permit) => match Bytes::from_request(http, &()).await {
            Ok(body) => answer(hook, &served.state, &body, started + TIME).await,
            Err(rejection) => (Outcome::Unreadable, rejection.into_response()),
        },
    };
    served
        .state
        .metrics
        .record(hook, outcome, started.elapsed());
    response
}

async fn answer(
    hook: Hook,
    state: &AdmissionState,
    body: &[u8],
    until: Instant,
) -> (Outcome, Response) {
    let request = match Request::read(body) {
        Ok(request) => request,
        Err(error) => return unreadable(hook, &error),
    };
    // The answer to a panic is the same as to a failure: nothing was decided, and the next request finds
    // the same facts, since webhooks hold no state.
    let verdict = AssertUnwindSafe(decide(hook, state, &request, until))
        .catch_unwind()
        .await;
    match verdict {
        Ok(Ok(verdict)) => {
            let outcome = if !verdict.causes.is_empty() {
                tracing::info!(
                    ?hook,
                    namespace = request.namespace,
                    name = request.object_name(),
                    causes = verdict.causes.len(),
                    first = %verdict.causes[0],
                    "Refused an object"
                );
                Outcome::Refused
            } else if verdict.patch.0.is_empty() {
                Outcome::Allowed
            } else {
                Outcome::Patched
            };
            (outcome, json(&Answer::of(&request, verdict)))
        }
        Ok(Err(NoVerdict::Unavailable(unavailable))) => {
            tracing::warn!(?hook, error = %unavailable, "Could not judge an object");
            failed(
                &request,
                format!("vmpool can't judge this now: {unavailable}"),
            )
        }
        Ok(Err(NoVerdict::WrongKind { expected })) => {
            let found = &request.kind;
            let message = format!(
                "expected a {expected}, found kind {:?} of group {:?}",
                found.kind, found.group
            );
            let answer = Answer::failure(&request.uid, 400, "BadRequest", message);
            (Outcome::Unreadable, json(&answer))
        }
        Err(_) => {
            tracing::error!(
                ?hook,
                namespace = request.namespace,
                name = request.object_name(),
                "Panicked while judging an object"
            );
            failed(
                &request,
                "vmpool failed while judging this; its log says where".to_owned(),
            )
        }
    }
}

fn failed(request: &Request, message: String) -> (Outcome, Response) {
    let answer = Answer::failure(&request.uid, 500, "InternalError", message);
    (Outcome::Failed, json(&answer))
}

fn unreadable(hook: Hook, error: &ReadRequest) -> (Outcome, Response) {
    tracing::warn!(?hook, %error, "Could not read an admission request");
    let response = match error {
        ReadRequest::Malformed { uid, .. } => {
            json(&Answer::failure(uid, 400, "BadRequest", error.to_string()))
        }
        ReadRequest::NoUid | ReadRequest::NotJson(_) => {
            (StatusCode::BAD_REQUEST, error.to_string()).into_response()
        }
    };
    (Outcome::Unreadable, response)
}

/// Looks up what the hook has to know, and asks it.
async fn decide(
    hook: Hook,
    state: &AdmissionState,
    request: &Request,
    until: Instant,
) -> Result<Verdict, NoVerdict> {
    if let Some(cause) = request.too_deep() {
        return Ok(Verdict::refused(vec![cause]));
    }
    let (group, kind) = (request.kind.group.as_str(), request.kind.kind.as_str());
    match hook {
        Hook::DefaultPool if (group, kind) == (GROUP, POOL_KIND) => Ok(defaulting::review(request)),
        Hook::Stamp if (group, kind) == (kubevirt::GROUP, "VirtualMachine") => {
            stamp(state, request, until).await
        }
        Hook::ValidateConfig if (group, kind) == (GROUP, CONFIG_KIND) => {
            Ok(validate_config(state, request, until).await)
        }
        Hook::ValidatePool if (group, kind) == (GROUP, POOL_KIND) => {
            Ok(validate_pool(state, request, until).await)
        }
        // By kind and not by path: a Scale is never read as a pool, whichever rule brought it here.
        Hook::ValidatePool | Hook::ValidateScale if validate_scale::is_scale(group, kind) => {
            Ok(validate_scale(state, request, until).await)
        }
        Hook::DefaultPool | Hook::ValidatePool => Err(wrong_kind(POOL_KIND, GROUP)),
        Hook::Stamp => Err(wrong_kind("VirtualMachine", kubevirt::GROUP)),
        Hook::ValidateConfig => Err(wrong_kind(CONFIG_KIND, GROUP)),
        Hook::ValidateScale => Err(wrong_kind("Scale", "autoscaling")),
    }
}

async fn stamp(
    state: &AdmissionState,
    request: &Request,
    until: Instant,
) -> Result<Verdict, NoVerdict> {
    if request.user_info.username != state.own_username {
        return stamp_stranger(state, request, until).await;
    }
    let claim = match stamping::Claim::read(&request.object) {
        Ok(claim) => claim,
        Err(cause) => return Ok(Verdict::refused(vec![cause])),
    };
    let (pool, revision) = futures::join!(
        state.objects.pool(&request.namespace, &claim.owner.name),
        state.objects.revision(&request.namespace, &claim.revision),
    );
    stamping::review_member(request, &stamping::Facts { pool, revision })
        .map_err(NoVerdict::Unavailable)
}

async fn stamp_stranger(
    state: &AdmissionState,
    request: &Request,
    until: Instant,
) -> Result<Verdict, NoVerdict> {
    let verdict = stamping::review_stranger(request);
    let wish = match single::Wish::read(request) {
        None => return Ok(verdict),
        Some(Err(causes)) => return Ok(Verdict::refused(causes)),
        Some(Ok(wish)) => wish,
    };
    let (namespace, name) = (&request.namespace, &wish.config);
    let user = &request.user_info;
    let (is_allowed, config) = futures::join!(
        state.access.may_get_config(user, namespace, name),
        state.objects.config(namespace, name),
    );
    // Nobody learns from the answer which configs or disks there are who may not read the config.
    let wanted = match (&is_allowed, &config) {
        (Ok(true), Ok(Some(config))) => wish.disks(request, config),
        _ => BTreeSet::new(),
    };
    let disks = look_for(state, request, wanted, until).await;
    let facts = single::Facts {
        is_allowed,
        config,
        disks,
    };
    single::review(request, &wish, &facts, verdict).map_err(NoVerdict::Unavailable)
}

async fn validate_config(state: &AdmissionState, request: &Request, until: Instant) -> Verdict {
    let pools = state.objects.pools(&request.namespace).await;
    let mut verdict = validate_config::review(request, &pools);
    if let Some(trials) = trial::of_config(request, &verdict) {
        let (new, stored) = ask(state, request, &trials, until).await;
        trial::judge_config(&mut verdict, new, stored.as_ref());
    }
    verdict
}

/// KubeVirt's verdict on the new VM, and on the stored one where it matters.
async fn ask(
    state: &AdmissionState,
    request: &Request,
    trials: &trial::Trials,
    until: Instant,
) -> (Kubevirts, Option<Kubevirts>) {
    let dry_run = async |vm| {
        let answer = state.objects.dry_run(&request.namespace, vm);
        timeout_at(until.into(), answer)
            .await
            .unwrap_or_else(|_| Kubevirts::Open(NO_TIME_LEFT.to_owned()))
    };
    let new = dry_run(&trials.new).await;
    let stored = match (&new, &trials.stored) {
        (Kubevirts::Refused(_), Some(stored)) => Some(dry_run(stored).await),
        _ => None,
    };
    (new, stored)
}

async fn validate_pool(state: &AdmissionState, request: &Request, until: Instant) -> Verdict {
    let facts = match validate_pool::questions(request) {
        None => validate_pool::Facts::none(),
        Some((config, prefix)) => {
            let vms = async {
                match &prefix {
                    Some(prefix) => Some(state.objects.vms(&request.namespace, prefix).await),
                    None => None,
                }
            };
            let (config, pools, vms) = futures::join!(
                state.objects.config(&request.namespace, &config),
                state.objects.pools(&request.namespace),
                vms,
            );
            validate_pool::Facts { config, pools, vms }
        }
    };
    let mut verdict = validate_pool::review(request, &facts);
    let Ok(Some(config)) = &facts.config else {
        return verdict;
    };
    if !verdict.causes.is_empty() {
        return verdict;
    }
    let spec = Value::Object(config.spec.fields.clone());
    let wanted = validate_pool::wanted(request, &spec);
    let trials = trial::of_pool(request, &verdict, config);
    let trial = async {
        match &trials {
            Some(trials) => Some(ask(state, request, trials, until).await),
            None => None,
        }
    };
    let (found, answers) = futures::join!(look_for(state, request, wanted, until), trial);
    missing::warn(&mut verdict, found);
    if let Some((new, stored)) = answers {
        let name = config.metadata.name.clone().unwrap_or_default();
        trial::judge_pool(&mut verdict, &name, new, stored.as_ref());
    }
    verdict
}

/// Whether each of `wanted` exists.
async fn look_for(
    state: &AdmissionState,
    request: &Request,
    wanted: BTreeSet<Named>,
    until: Instant,
) -> Vec<(Named, Lookup<bool>)> {
    let each = wanted.into_iter().map(|named| async move {
        let answer = state.objects.exists(&request.namespace, &named);
        let exists = timeout_at(until.into(), answer).await.unwrap_or_else(|_| {
            Err(Unavailable {
                what: format!("{named:?}"),
                why: NO_TIME_LEFT.to_owned(),
            })
        });
        (named, exists)
    });
    futures::future::join_all(each).await
}

async fn validate_scale(state: &AdmissionState, request: &Request, until: Instant) -> Verdict {
    let namespace = &request.namespace;
    let pool = state.objects.pool(namespace, request.object_name()).await;
    let growth = validate_scale::growth(request);
    let config = match (&pool, growth) {
        (Ok(Some(pool)), Some(_)) => {
            state
                .objects
                .config(namespace, &pool.spec.config.name)
                .await
        }
        _ => Ok(None),
    };
    let mut verdict = validate_scale::review(request, &pool, &config);
    if let (Ok(Some(pool)), Ok(Some(config)), Some((stored, replicas))) = (&pool, &config, growth)
        && verdict.causes.is_empty()
    {
        let spec = Value::Object(config.spec.fields.clone());
        let inputs = PoolInputs::of(pool);
        let wanted = missing::wanted(&spec, &inputs, &pool.spec, replicas, Some(stored));
        missing::warn(&mut verdict, look_for(state, request, wanted, until).await);
    }
    verdict
}

fn wrong_kind(kind: &str, group: &str) -> NoVerdict {
    NoVerdict::WrongKind {
        expected: format!("{kind} of group {group}"),
    }
}

fn json(answer: &Answer) -> Response {
    let body = serde_json::to_vec(answer).expect("an answer is strings and JSON values");
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}
