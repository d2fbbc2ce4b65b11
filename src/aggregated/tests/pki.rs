//! Authorities and client certificates, and the ConfigMap that a cluster with them has.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum_server::tls::TlsInfo;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair,
};

/// An authority.
pub(super) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(super) fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        Self(CertifiedIssuer::self_signed(params, key).unwrap())
    }

    pub(super) fn pem(&self) -> String {
        self.0.pem()
    }

    /// A connection whose client has shown a certificate with this name and organization.
    pub(super) fn client(&self, name: &str, organization: Option<&str>) -> Arc<TlsInfo> {
        self.signed(name, organization, ExtendedKeyUsagePurpose::ClientAuth)
    }

    /// The same with a certificate for something else.
    pub(super) fn signed(
        &self,
        name: &str,
        organization: Option<&str>,
        usage: ExtendedKeyUsagePurpose,
    ) -> Arc<TlsInfo> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        if let Some(organization) = organization {
            let kind = DnType::OrganizationName;
            params.distinguished_name.push(kind, organization);
        }
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        showing(vec![certificate.der().to_vec()])
    }
}

/// A connection whose client has shown these.
pub(super) fn showing(peer_certificates: Vec<Vec<u8>>) -> Arc<TlsInfo> {
    let mut info = TlsInfo::default();
    info.peer_certificates = peer_certificates;
    Arc::new(info)
}

/// The ConfigMap of a cluster with these authorities.
pub(super) fn cluster(
    clients: &Authority,
    front_proxy: &Authority,
    names: &str,
) -> BTreeMap<String, String> {
    [
        ("client-ca-file", clients.pem()),
        ("requestheader-client-ca-file", front_proxy.pem()),
        ("requestheader-allowed-names", names.to_owned()),
        (
            "requestheader-username-headers",
            r#"["X-Remote-User"]"#.to_owned(),
        ),
        (
            "requestheader-uid-headers",
            r#"["X-Remote-Uid"]"#.to_owned(),
        ),
        (
            "requestheader-group-headers",
            r#"["X-Remote-Group"]"#.to_owned(),
        ),
        (
            "requestheader-extra-headers-prefix",
            r#"["X-Remote-Extra-"]"#.to_owned(),
        ),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into()
}
