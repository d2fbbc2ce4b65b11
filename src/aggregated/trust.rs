//! Whom this API believes, as the cluster says it in a ConfigMap that every aggregated API server reads: the
//! CA of the API server's front proxy and the names that it may have, the headers in which it names users,
//! and the CA of users' own certificates. Reading is pure; [`super::trust_watch`] keeps it up to date.
//!
//! Clusters have bundles with certificates in them that webpki doesn't take, an old root of version 1 say: each
//! such one is left out and told of, and the others count. Of the two authorities, too, each is read by
//! itself: what can't be read is as it was before, and the other one new.
//!
//! The two CAs never meet in one store: then a user whose certificate is named like the front proxy could
//! not be told from it.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::http::HeaderName;
use k8s_openapi::jiff::Timestamp;
use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::caller::{Caller, HeaderNames};

/// What the ConfigMap says.
#[derive(Debug)]
pub(super) struct Trust {
    /// Whose certificates name users.
    clients: Option<Arc<Authority>>,
    /// Whose certificate makes headers count.
    front_proxy: Option<Arc<FrontProxy>>,
}

/// [`Trust`] as far as it could be read.
#[derive(Debug)]
pub(super) struct Read {
    /// What counts now.
    pub(super) trust: Trust,
    /// What could not be read.
    pub(super) troubles: Vec<ReadTrust>,
}

#[derive(Debug)]
struct FrontProxy {
    authority: Authority,
    /// Common names that it may have; any if there are none.
    allowed_names: Vec<String>,
    headers: HeaderNames,
}

#[derive(Debug)]
struct Authority(Arc<dyn ClientCertVerifier>);

/// Why a ConfigMap can't be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadTrust {
    /// A list of names is none.
    #[error("failed to read {key:?} as a list of names: {source}")]
    List {
        /// Which entry.
        key: &'static str,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// The name of a header can't be one.
    #[error("failed to read {name:?} in {key:?} as the name of a header")]
    Header {
        /// Which entry.
        key: &'static str,
        /// The name.
        name: String,
    },
    /// A CA can't be used.
    #[error("failed to read the certificates in {key:?}: {why}")]
    Certificates {
        /// Which entry.
        key: &'static str,
        /// What is wrong with them.
        why: String,
    },
}

/// Subject of a certificate, as Kubernetes reads it.
#[derive(Debug, Default)]
struct Subject {
    common_name: String,
    organizations: Vec<String>,
}

impl Trust {
    /// Reads the data of the ConfigMap; what of it can't be read stays as it was `before`. A cluster without
    /// aggregation has no front proxy in it.
    pub(super) fn read(data: &BTreeMap<String, String>, before: Option<&Self>) -> Read {
        let mut troubles = Vec::new();
        let mut authority = |key| {
            let pem = data.get(key).filter(|pem| !pem.trim().is_empty());
            pem.map(|pem| Authority::read(key, pem, &mut troubles))
                .transpose()
        };
        let clients = authority("client-ca-file");
        let front_proxy = authority("requestheader-client-ca-file").and_then(|authority| {
            let read = authority.map(|authority| FrontProxy::read(authority, data));
            read.transpose()
        });
        let clients = match clients {
            Ok(read) => read.map(Arc::new),
            Err(error) => {
                troubles.push(error);
                before.and_then(|before| before.clients.clone())
            }
        };
        let front_proxy = match front_proxy {
            Ok(read) => read.map(Arc::new),
            Err(error) => {
                troubles.push(error);
                before.and_then(|before| before.front_proxy.clone())
            }
        };
        let trust = Self {
            clients,
            front_proxy,
        };
        Read { trust, troubles }
    }

    /// Whether nobody can be known by a certificate.
    pub(super) fn is_empty(&self) -> bool {
        self.clients.is_none() && self.front_proxy.is_none()
    }

    /// Whether requests through the API server can be known.
    pub(super) fn has_front_proxy(&self) -> bool {
        self.front_proxy.is_some()
    }

    /// The names of the headers that name users, if this chain, end first, is the front proxy's.
    pub(super) fn front_proxy(&self, chain: &[Vec<u8>], now: Timestamp) -> Option<&HeaderNames> {
        let proxy = self.front_proxy.as_ref()?;
        if !proxy.authority.signed(chain, now) {
            return None;
        }
        let subject = Subject::read(chain.first()?)?;
        let names = &proxy.allowed_names;
        let is_allowed = names.is_empty() || names.contains(&subject.common_name);
        is_allowed.then_some(&proxy.headers)
    }

    /// The user whom this chain, end first, names.
    pub(super) fn user(&self, chain: &[Vec<u8>], now: Timestamp) -> Option<Caller> {
        if !self.clients.as_ref()?.signed(chain, now) {
            return None;
        }
        let subject = Subject::read(chain.first()?)?;
        if subject.common_name.is_empty() {
            return None;
        }
        let caller = Caller {
            name: subject.common_name,
            groups: subject.organizations,
            ..Caller::default()
        };
        Some(caller.authenticated())
    }
}

impl FrontProxy {
    fn read(authority: Authority, data: &BTreeMap<String, String>) -> Result<Self, ReadTrust> {
        let extra_prefixes = list(data, "requestheader-extra-headers-prefix")?;
        Ok(Self {
            authority,
            allowed_names: list(data, "requestheader-allowed-names")?,
            headers: HeaderNames {
                username: headers(data, "requestheader-username-headers")?,
                uid: headers(data, "requestheader-uid-headers")?,
                group: headers(data, "requestheader-group-headers")?,
                extra_prefixes: extra_prefixes
                    .into_iter()
                    .map(|prefix| prefix.to_ascii_lowercase())
                    .filter(|prefix| !prefix.is_empty())
                    .collect(),
            },
        })
    }
}

impl Authority {
    /// Those certificates that can be used; the others are added to the `troubles`. Fails if none is left.
    fn read(
        key: &'static str,
        pem: &str,
        troubles: &mut Vec<ReadTrust>,
    ) -> Result<Self, ReadTrust> {
        let failed = |why: String| ReadTrust::Certificates { key, why };
        let mut roots = RootCertStore::empty();
        let certificates = CertificateDer::pem_slice_iter(pem.as_bytes()).zip(1..);
        for (certificate, position) in certificates {
            let added = match certificate {
                Ok(certificate) => roots.add(certificate).map_err(|error| error.to_string()),
                Err(error) => Err(error.to_string()),
            };
            if let Err(why) = added {
                let why = format!("number {position} is left out: {why}");
                troubles.push(failed(why));
            }
        }
        if roots.is_empty() {
            return Err(failed("there is none that can be used".to_owned()));
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider());
        let verifier = verifier
            .build()
            .map_err(|error| failed(error.to_string()))?;
        Ok(Self(verifier))
    }

    /// Whether the chain, end first, leads to it and is for clients.
    fn signed(&self, chain: &[Vec<u8>], now: Timestamp) -> bool {
        let mut chain = chain.iter().map(|der| CertificateDer::from(der.as_slice()));
        let Some(end) = chain.next() else {
            return false;
        };
        let between: Vec<_> = chain.collect();
        let seconds = u64::try_from(now.as_second()).unwrap_or_default();
        let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds));
        self.0.verify_client_cert(&end, &between, now).is_ok()
    }
}

impl Subject {
    /// `None` if the certificate, or a name in it, is not readable.
    fn read(der: &[u8]) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let mut subject = Self::default();
        let name = certificate.subject();
        // The last one counts, as for the API server.
        for common_name in name.iter_common_name() {
            common_name
                .as_str()
                .ok()?
                .clone_into(&mut subject.common_name);
        }
        for organization in name.iter_organization() {
            subject
                .organizations
                .push(organization.as_str().ok()?.to_owned());
        }
        Some(subject)
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// A JSON list in a string; none if it isn't there.
fn list(data: &BTreeMap<String, String>, key: &'static str) -> Result<Vec<String>, ReadTrust> {
    match data.get(key).filter(|text| !text.trim().is_empty()) {
        None => Ok(Vec::new()),
        Some(text) => serde_json::from_str(text).map_err(|source| ReadTrust::List { key, source }),
    }
}

fn headers(
    data: &BTreeMap<String, String>,
    key: &'static str,
) -> Result<Vec<HeaderName>, ReadTrust> {
    let names = list(data, key)?.into_iter();
    names
        .map(|name| {
            let parsed = HeaderName::from_bytes(name.as_bytes());
            parsed.map_err(|_| ReadTrust::Header { key, name })
        })
        .collect()
}
