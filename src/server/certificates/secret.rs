//! Our own CA and serving certificate in a Secret of our namespace. All replicas read it and any of them renews
//! it: a write names the version that it replaces, so of two that begin together one wins, and the other reads
//! what that one made.

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{Api, ObjectMeta, PostParams};

use super::decide::{Kept, Lifetimes, Step, Stored};
use super::keys::{MakeCertificate, Names};
use crate::api::MANAGER;
use crate::rights::Right;

/// Name of the Secret.
pub const SECRET: &str = "vmpool-tls";

/// A certificate could not be had from the Secret.
#[derive(Debug, thiserror::Error)]
pub(super) enum LookAtSecret {
    /// Another replica was faster: what it wrote is there to be read.
    #[error("another replica has just written the Secret {SECRET}")]
    Lose,
    /// Who trusts which CA is not known, and a new one would put out who trusts another.
    #[error("new certificates are due, and wait until it can be read who trusts which CA")]
    Wait,
    #[error(transparent)]
    Make(#[from] MakeCertificate),
    #[error("failed to read the Secret {SECRET}: {0}")]
    Read(#[source] kube::Error),
    #[error("failed to write the Secret {SECRET}: {0}")]
    Write(#[source] kube::Error),
}

/// What [`SecretStore`] calls.
pub(super) fn rules() -> Vec<Right> {
    vec![
        Right::to(
            "its own CA and serving certificate, which its replicas share",
            &["get", "update"],
            "",
            &["secrets"],
        )
        .only(SECRET),
        Right::to(
            "the same for the first time: a right to create knows no name",
            &["create"],
            "",
            &["secrets"],
        ),
    ]
}

pub(super) struct SecretStore {
    api: Api<Secret>,
    names: Names,
    lifetimes: Lifetimes,
    /// What was last to be trusted: still is, if somebody deletes the Secret.
    trusted: Vec<String>,
}

impl SecretStore {
    pub(super) fn new(client: Client, names: Names, lifetimes: Lifetimes) -> Self {
        Self {
            api: Api::namespaced(client, &names.namespace),
            names,
            lifetimes,
            trusted: Vec::new(),
        }
    }

    /// Reads the Secret, and does what is due. `trusted` are the CAs that clients trust now; `None` if that
    /// could not be read.
    pub(super) async fn look(
        &mut self,
        trusted: Option<&[String]>,
        now: Timestamp,
    ) -> Result<Kept, LookAtSecret> {
        let found = self.api.get_opt(SECRET).await.map_err(LookAtSecret::Read)?;
        let data = found.as_ref().and_then(|secret| secret.data.as_ref());
        let stored = data.map(Stored::read).unwrap_or_default();
        let (step, why) = stored.next(&self.names, self.lifetimes, now);
        let is_known = trusted.is_some();
        let step = stored.allowed(step, is_known).ok_or(LookAtSecret::Wait)?;
        let trusted = self.trusted.iter().chain(trusted.unwrap_or_default());
        let trusted: Vec<String> = trusted.cloned().collect();
        let kept = stored.after(step, &trusted, &self.names, self.lifetimes, now)?;
        if step != Step::Keep {
            self.write(found, &kept).await?;
            tracing::info!(
                secret = SECRET,
                ?step,
                why,
                certificate.until = %kept.serving.validity.until,
                ca.until = %kept.authority.validity.until,
                "Wrote certificates"
            );
        }
        self.trusted = vec![kept.authority.pem.clone()];
        Ok(kept)
    }

    async fn write(&self, found: Option<Secret>, kept: &Kept) -> Result<(), LookAtSecret> {
        let params = PostParams {
            field_manager: Some(MANAGER.to_owned()),
            ..PostParams::default()
        };
        let written = if let Some(mut secret) = found {
            // Its resourceVersion is sent along, and labels and keys of others stay.
            secret.metadata.managed_fields = None;
            secret.data.get_or_insert_default().extend(kept.data());
            self.api.replace(SECRET, &params, &secret).await
        } else {
            let secret = Secret {
                metadata: ObjectMeta {
                    name: Some(SECRET.to_owned()),
                    ..ObjectMeta::default()
                },
                type_: Some("kubernetes.io/tls".to_owned()),
                data: Some(kept.data()),
                ..Secret::default()
            };
            self.api.create(&params, &secret).await
        };
        match written {
            Ok(_) => Ok(()),
            // Exists, has changed, or was deleted in the meantime.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {
                Err(LookAtSecret::Lose)
            }
            Err(error) => Err(LookAtSecret::Write(error)),
        }
    }
}
