//! Clients and kubeconfigs for one control plane: who may come in, and as whom.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{Api, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use super::ControlPlane;
use super::kubeconfig::{self, Credential};

/// Longer than anything that is developed here is left running.
const TOKEN_SECONDS: i64 = 10 * 24 * 3600;

impl ControlPlane {
    /// A kubeconfig for a service account that exists, with a token of its own. `server_override`
    /// puts something between: the URL of a [fault proxy](crate::proxy).
    pub async fn service_account_kubeconfig(
        &self,
        namespace: &str,
        name: &str,
        server_override: Option<&str>,
    ) -> Result<PathBuf> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.admin(), namespace);
        let request = TokenRequest {
            spec: TokenRequestSpec {
                expiration_seconds: Some(TOKEN_SECONDS),
                ..TokenRequestSpec::default()
            },
            ..TokenRequest::default()
        };
        let token = accounts
            .create_token_request(name, &PostParams::default(), &request)
            .await
            .with_context(|| format!("failed to get a token for {namespace}/{name}"))?
            .status
            .context("the token request was answered without a token")?
            .token;
        let server = server_override.unwrap_or_else(|| self.url());
        // One file a use: a process behind a proxy and one that is not may be the same account.
        let file = format!("{namespace}-{name}-{}", uuid::Uuid::new_v4().simple());
        let credential = Credential::Token(&token);
        kubeconfig::write(self.dir(), &file, server, namespace, &credential)
    }

    /// A kubeconfig for a user with a client certificate, who has only the rights that bindings
    /// give to this user or group.
    pub fn user_kubeconfig(&self, user: &str, group: Option<&str>) -> Result<PathBuf> {
        let pair = self.authority().client(user, group)?;
        let file = format!("user-{}", uuid::Uuid::new_v4().simple());
        let credential = Credential::Certificate(&pair);
        kubeconfig::write(self.dir(), &file, self.url(), "default", &credential)
    }

    /// Waits until a namespace's `default` service account, which pods need, has been made.
    pub async fn wait_default_service_account(&self, namespace: &str) -> Result<()> {
        wait_service_account(&self.admin(), namespace, "default", Duration::from_secs(30)).await
    }
}

/// Reads a kubeconfig; there is no limit on the client's side, kube has none.
pub async fn client(kubeconfig: &Path) -> Result<(Config, Client)> {
    let read = Kubeconfig::read_from(kubeconfig).context("failed to read the kubeconfig")?;
    let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default())
        .await
        .context("failed to use the kubeconfig")?;
    let client = Client::try_from(config.clone()).context("failed to make a client")?;
    Ok((config, client))
}

pub(super) async fn wait_service_account(
    client: &Client,
    namespace: &str,
    name: &str,
    timeout: Duration,
) -> Result<()> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    let deadline = Instant::now() + timeout;
    loop {
        let found = accounts.get_opt(name).await;
        if matches!(found, Ok(Some(_))) {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!("service account {namespace}/{name} was not there in {timeout:?}: {found:?}");
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
