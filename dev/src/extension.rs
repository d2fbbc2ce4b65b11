//! Serves one API group to the control plane's aggregation layer: what KubeVirt's virt-api and a
//! metrics adapter are in a cluster.
//!
//! Only the API server gets in: TLS demands the front proxy's certificate, as the ConfigMap of the
//! control plane names its authority. Who may do what has then been decided before a request comes
//! here, so that a group's handlers need not ask again.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use axum::Router;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum_server::Handle;
use axum_server::tls_rustls::RustlsConfig;
use http::{StatusCode, header};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::core::v1::{Namespace, Service};
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::controlplane::pki::{Authority, Pair};
use crate::controlplane::ports;

/// The API server writes its ConfigMap in its first seconds, and looks at a new group at once; a
/// busy machine takes longer.
const PATIENCE: Duration = Duration::from_mins(1);
/// Between two looks.
const POLL: Duration = Duration::from_millis(50);
const MANAGER: &str = "vmpool-dev";
/// Where the API server says how its front proxy is known.
const AUTHENTICATION: (&str, &str) = ("kube-system", "extension-apiserver-authentication");

/// A group, and the Service that it is reached through.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ApiGroup {
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    /// Namespace and name of the Service; the namespace is made.
    pub(crate) service: (&'static str, &'static str),
}

impl ApiGroup {
    /// `/apis/GROUP/VERSION`.
    pub(crate) fn path(&self) -> String {
        format!("/apis/{}/{}", self.group, self.version)
    }

    fn api_service(&self) -> String {
        format!("{}.{}", self.version, self.group)
    }
}

/// A group that is served until this is dropped; its APIService stays, as after a crash.
pub(crate) struct Extension {
    client: Client,
    group: ApiGroup,
    handle: Handle<SocketAddr>,
}

impl Extension {
    /// Serves a group and registers it. `resources` is what discovery tells of it; `router` has
    /// the full paths.
    pub(crate) async fn serve(
        client: Client,
        group: ApiGroup,
        resources: Value,
        router: Router,
    ) -> Result<Self> {
        let (namespace, service) = group.service;
        let authority = Authority::new("vmpool-dev-extension-ca")?;
        let serving = authority.serving(&[&format!("{service}.{namespace}.svc")])?;
        let tls = tls(&serving, &front_proxy_authority(&client).await?)?;
        let port = ports::free()?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
            .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
            .context("failed to listen")?;
        let handle = Handle::new();
        let server = axum_server::from_tcp_rustls(listener, RustlsConfig::from_config(tls))
            .context("failed to listen")?
            .handle(handle.clone())
            .serve(with_discovery(group, resources, router).into_make_service());
        tokio::spawn(async move {
            if let Err(error) = server.await {
                tracing::error!(%error, group = group.group, "The server of a group ended");
            }
        });
        let extension = Self {
            client,
            group,
            handle,
        };
        extension.register(port, authority.cert()).await?;
        Ok(extension)
    }

    /// Waits until the API server forwards requests.
    pub(crate) async fn available(&self) -> Result<()> {
        let services: Api<APIService> = Api::all(self.client.clone());
        let name = self.group.api_service();
        let deadline = Instant::now() + PATIENCE;
        loop {
            let found = services.get(&name).await;
            if found.as_ref().is_ok_and(is_available) {
                return Ok(());
            }
            ensure!(
                Instant::now() < deadline,
                "{name} was not Available in {PATIENCE:?}: {found:?}"
            );
            tokio::time::sleep(POLL).await;
        }
    }

    async fn register(&self, port: u16, ca: &str) -> Result<()> {
        let (namespace, service) = self.group.service;
        let client = &self.client;
        let object = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace},
        });
        apply::<Namespace>(&Api::all(client.clone()), namespace, &object).await?;
        let object = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": service, "namespace": namespace},
            "spec": {"type": "ExternalName", "externalName": "localhost"},
        });
        let services: Api<Service> = Api::namespaced(client.clone(), namespace);
        apply(&services, service, &object).await?;
        let name = self.group.api_service();
        let object = json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": name},
            "spec": {
                "group": self.group.group,
                "version": self.group.version,
                "groupPriorityMinimum": 1000,
                "versionPriority": 15,
                "service": {"namespace": namespace, "name": service, "port": port},
                "caBundle": k8s_openapi::ByteString(ca.as_bytes().to_vec()),
            },
        });
        apply::<APIService>(&Api::all(client.clone()), &name, &object).await
    }
}

impl Drop for Extension {
    fn drop(&mut self) {
        self.handle.shutdown();
    }
}

/// An answer that is a `metav1.Status`.
pub(crate) fn status(code: StatusCode, reason: &str, message: &str) -> Response {
    let outcome = if code.is_success() {
        "Success"
    } else {
        "Failure"
    };
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {},
        "status": outcome, "reason": reason, "message": message, "code": code.as_u16(),
    });
    let json_type = [(header::CONTENT_TYPE, "application/json")];
    (code, json_type, body.to_string()).into_response()
}

/// Whatever is asked for, the API server and kubectl read JSON.
pub(crate) fn answer(body: &Value) -> Response {
    let json_type = [(header::CONTENT_TYPE, "application/json")];
    (json_type, body.to_string()).into_response()
}

/// The API server asks for `/apis/GROUP/VERSION` alone; without the rest it does.
fn with_discovery(group: ApiGroup, resources: Value, router: Router) -> Router {
    let list = json!({
        "kind": "APIResourceList", "apiVersion": "v1",
        "groupVersion": format!("{}/{}", group.group, group.version),
        "resources": resources,
    });
    let not_found = async || {
        let message = "the server could not find the requested resource";
        status(StatusCode::NOT_FOUND, "NotFound", message)
    };
    router
        .route(&group.path(), get(async move || answer(&list)))
        .fallback(not_found)
}

fn is_available(service: &APIService) -> bool {
    let conditions = service.status.as_ref().and_then(|s| s.conditions.as_ref());
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|condition| condition.type_ == "Available" && condition.status == "True")
}

async fn front_proxy_authority(client: &Client) -> Result<String> {
    let (namespace, name) = AUTHENTICATION;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let deadline = Instant::now() + PATIENCE;
    loop {
        let map = maps.get_opt(name).await.ok().flatten();
        let mut data = map.and_then(|map| map.data).unwrap_or_default();
        if let Some(authority) = data.remove("requestheader-client-ca-file") {
            return Ok(authority);
        }
        ensure!(
            Instant::now() < deadline,
            "the front proxy's authority was not in the ConfigMap {namespace}/{name} in {PATIENCE:?}"
        );
        tokio::time::sleep(POLL).await;
    }
}

fn tls(serving: &Pair, front_proxy: &str) -> Result<Arc<ServerConfig>> {
    let mut roots = RootCertStore::empty();
    for root in CertificateDer::pem_slice_iter(front_proxy.as_bytes()) {
        let root = root.context("failed to read the front proxy's authority")?;
        roots.add(root).context("failed to trust the front proxy")?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .build()
            .context("failed to make the verifier of client certificates")?;
    let certificates = CertificateDer::pem_slice_iter(serving.cert.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .context("failed to read the serving certificate")?;
    let key = PrivateKeyDer::from_pem_slice(serving.key.as_bytes())
        .context("failed to read the serving key")?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .context("failed to choose TLS versions")?
        .with_client_cert_verifier(verifier)
        .with_single_cert(certificates, key)
        .context("failed to use the serving certificate")?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

async fn apply<K>(api: &Api<K>, name: &str, object: &Value) -> Result<()>
where
    K: Clone + DeserializeOwned + std::fmt::Debug,
{
    let params = PatchParams::apply(MANAGER).force();
    api.patch(name, &params, &Patch::Apply(object))
        .await
        .with_context(|| format!("failed to apply {} {name}", object["kind"]))?;
    Ok(())
}
