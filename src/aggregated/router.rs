//! HTTP around the API: who, may they, what, and an answer whatever comes. Every path that is not a webhook's
//! ends here. Decides nothing about pools.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum_server::tls::TlsInfo;
use futures::FutureExt as _;
use kube::Client;
use serde_json::Value;

use super::accept::{Accept, Form};
use super::access::Access;
use super::caller::Caller;
use super::identity::Identity;
use super::metrics::{About, AggregatedMetrics, Verb};
use super::path::{Part, PoolPath, Target};
use super::pools::Pools;
use super::refusal::Refusal;
use super::request::{self, Options};
use super::trust_watch::TrustStore;
use super::{detach, discovery, openapi, scale, table};
use crate::cache::Caches;
use crate::clock;

/// What the API stands on.
#[derive(Clone)]
pub struct AggregatedConfig {
    /// For reviews, reads and writes. To be built with `default_retry = false`.
    pub client: Client,
    /// What is known of the cluster.
    pub caches: Arc<Caches>,
    /// Whose certificates count.
    pub trust: TrustStore,
    /// What is counted.
    pub metrics: AggregatedMetrics,
}

/// The parts of the API.
pub(super) struct Server {
    identity: Identity,
    access: Access,
    pub(super) pools: Pools,
    pub(super) caches: Arc<Caches>,
    pub(super) client: Client,
    metrics: AggregatedMetrics,
}

/// Everything, at whatever path no other router has.
pub fn router(config: AggregatedConfig) -> Router {
    let server = Server {
        identity: Identity::new(config.client.clone(), config.trust),
        access: Access::new(config.client.clone()),
        pools: Pools::new(config.client.clone(), Arc::clone(&config.caches)),
        caches: config.caches,
        client: config.client,
        metrics: config.metrics,
    };
    Router::new().fallback(serve).with_state(Arc::new(server))
}

async fn serve(State(server): State<Arc<Server>>, request: Request) -> Response {
    let started = Instant::now();
    let (head, body) = request.into_parts();
    let mut body = Some(body);
    let target = Target::read(head.uri.path());
    let (about, verb) = (About::of(target.as_ref()), Verb::of(&head.method));
    // Whoever shares state across a panic here shares caches of answers alone.
    let answered = AssertUnwindSafe(answer(&server, target, verb, &head, &mut body))
        .catch_unwind()
        .await;
    let response = match answered {
        Ok(Ok(response)) => response,
        Ok(Err(refusal)) => {
            if refusal.code().is_server_error() {
                let message = refusal.message();
                tracing::warn!(?about, ?verb, message, "Could not answer a request");
            }
            refusal.into_response()
        }
        Err(_) => {
            tracing::error!(?about, ?verb, "Panicked while answering a request");
            Refusal::internal("vmpool failed at this request; its log says where").into_response()
        }
    };
    let (code, took) = (response.status(), started.elapsed());
    // A sender whose body nobody takes sees a broken stream and not our answer.
    if let Some(body) = body {
        request::discard(body).await;
    }
    server.metrics.record(about, verb, code, took);
    response
}

async fn answer(
    server: &Server,
    target: Option<Target>,
    verb: Verb,
    head: &Parts,
    body: &mut Option<Body>,
) -> Result<Response, Refusal> {
    let target = target.ok_or_else(Refusal::no_such_path)?;
    let path = match target {
        Target::Pool(path) => path,
        Target::Pools => {
            return Err(Refusal::method_not_allowed(
                "pools are not listed here: use virtualmachinepools.vmpool.dev",
            ));
        }
        open => return document(&open, verb, head),
    };
    let right = verb.as_right().filter(|_| serves(path.part, verb));
    let right = right.ok_or_else(|| {
        let what = path.part.subresource().unwrap_or("a pool");
        Refusal::method_not_allowed(format!("{what} can't be used with {}", head.method))
    })?;
    let tls = head.extensions.get::<Arc<TlsInfo>>();
    let caller = server
        .identity
        .caller(tls.map(|tls| &**tls), &head.headers, clock::now())
        .await?;
    server.access.check(&caller, right, &path).await?;
    match path.part {
        Part::Whole => pool(server, &path, head).await,
        Part::Scale => scale(server, &path, head, body).await,
        Part::Detach => detach(server, &path, &caller, head, body).await,
    }
}

/// Whether a part has a verb.
fn serves(part: Part, verb: Verb) -> bool {
    match part {
        Part::Detach => verb == Verb::Create,
        Part::Scale => matches!(verb, Verb::Get | Verb::Patch | Verb::Update),
        Part::Whole => verb == Verb::Get,
    }
}

/// Discovery and OpenAPI: the same for everybody.
fn document(target: &Target, verb: Verb, head: &Parts) -> Result<Response, Refusal> {
    if verb != Verb::Get {
        let message = format!("{} is read only", head.uri.path());
        return Err(Refusal::method_not_allowed(message));
    }
    let offered = match target {
        Target::Groups => &[Form::Json, Form::Discovery][..],
        _ => &[Form::Json],
    };
    let form = Accept::read(&head.headers).choose(offered);
    let document = match (target, form.ok_or_else(Refusal::not_acceptable)?) {
        (Target::Groups, Form::Discovery) => {
            let media_type = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
            return Ok(typed(media_type, &discovery::aggregated()));
        }
        (Target::Groups, _) => discovery::groups(),
        (Target::Group, _) => discovery::group(),
        (Target::Resources, _) => discovery::resources(),
        (Target::OpenApiV2, _) => openapi::v2(),
        (Target::OpenApiV3Index, _) => openapi::v3_index(),
        (Target::OpenApiV3, _) => openapi::v3(),
        (Target::Pool(_) | Target::Pools, _) => return Err(Refusal::no_such_path()),
    };
    Ok(json(&document))
}

async fn pool(server: &Server, path: &PoolPath, head: &Parts) -> Result<Response, Refusal> {
    let accept = Accept::read(&head.headers);
    let form = accept.choose(&[Form::Json, Form::Table]);
    let form = form.ok_or_else(Refusal::not_acceptable)?;
    let pool = server.pools.read(path).await?.to_json();
    Ok(match form {
        Form::Table => json(&table::of(&pool)),
        Form::Discovery | Form::Json => json(&pool),
    })
}

async fn scale(
    server: &Server,
    path: &PoolPath,
    head: &Parts,
    body: &mut Option<Body>,
) -> Result<Response, Refusal> {
    wants_json(head)?;
    if head.method == Method::GET {
        return Ok(json(&scale::read(&server.pools, path).await?));
    }
    let options = Options::read(head.uri.query(), &head.headers)?;
    let body = request::body(body.take()).await?;
    let pools = &server.pools;
    let (method, headers) = (&head.method, &head.headers);
    let written = scale::write(pools, path, method, headers, &options, &body).await?;
    let mut response = json(&written.scale);
    for warning in &written.warnings {
        response.headers_mut().extend(warning_header(warning));
    }
    Ok(response)
}

async fn detach(
    server: &Server,
    path: &PoolPath,
    caller: &Caller,
    head: &Parts,
    body: &mut Option<Body>,
) -> Result<Response, Refusal> {
    wants_json(head)?;
    let options = Options::read(head.uri.query(), &head.headers)?;
    let body = request::body(body.take()).await?;
    let (code, result) =
        detach::create(server, path, caller, &head.headers, &options, &body).await?;
    let mut response = json(&result);
    *response.status_mut() = code;
    Ok(response)
}

/// Refuses who can't read JSON.
fn wants_json(head: &Parts) -> Result<(), Refusal> {
    let form = Accept::read(&head.headers).choose(&[Form::Json]);
    form.map(|_| ()).ok_or_else(Refusal::not_acceptable)
}

/// What kubectl prints as `Warning: …` (RFC 7234, code 299).
fn warning_header(text: &str) -> Option<(header::HeaderName, HeaderValue)> {
    let plain: String = text
        .chars()
        .filter(|c| !c.is_control())
        .flat_map(|c| match c {
            '"' | '\\' => vec!['\\', c],
            c => vec![c],
        })
        .collect();
    let value = HeaderValue::from_bytes(format!("299 - \"{plain}\"").as_bytes());
    Some((header::WARNING, value.ok()?))
}

fn json(body: &Value) -> Response {
    typed("application/json", body)
}

fn typed(media_type: &'static str, body: &Value) -> Response {
    let bytes = serde_json::to_vec(body).expect("JSON can be written");
    (StatusCode::OK, [(header::CONTENT_TYPE, media_type)], bytes).into_response()
}
