//! Makes the certificates of one control plane: two authorities, and what they sign.
//!
//! The front proxy has an authority of its own, so that a client certificate that names itself
//! like the front proxy proves nothing. Keys live as long as the temporary folder; nothing here
//! is fit for a cluster.

use std::fs;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

/// A certificate and its key, as PEM.
#[derive(Clone, Debug)]
pub struct Pair {
    /// The certificate.
    pub cert: String,
    /// The key, PKCS 8.
    pub key: String,
}

impl Pair {
    /// Writes `<name>.crt` and `<name>.key`, the latter for the owner only.
    pub fn write(&self, dir: &Path, name: &str) -> Result<(PathBuf, PathBuf)> {
        let (cert, key) = (
            dir.join(format!("{name}.crt")),
            dir.join(format!("{name}.key")),
        );
        fs::write(&cert, &self.cert).with_context(|| format!("failed to write {cert:?}"))?;
        write_secret(&key, &self.key)?;
        Ok((cert, key))
    }
}

/// A certificate authority.
pub struct Authority {
    cert: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// Makes one with a key of its own.
    pub fn new(name: &str) -> Result<Self> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        let key = KeyPair::generate().context("failed to make a key")?;
        let cert = params
            .self_signed(&key)
            .context("failed to sign an authority")?
            .pem();
        let issuer = Issuer::new(params, key);
        Ok(Self { cert, issuer })
    }

    /// The authority's certificate, PEM.
    pub fn cert(&self) -> &str {
        &self.cert
    }

    /// A serving certificate for these DNS names and IP addresses.
    pub fn serving(&self, names: &[&str]) -> Result<Pair> {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let common_name = names.first().cloned().unwrap_or_default();
        let mut params = CertificateParams::new(names).context("failed to read a serving name")?;
        params
            .distinguished_name
            .push(DnType::CommonName, common_name);
        params.insert_extended_key_usage(ExtendedKeyUsagePurpose::ServerAuth);
        self.sign(params)
    }

    /// A client certificate: Kubernetes reads the common name as the user and the organisation as
    /// a group. It would read several organisations as several groups, which rcgen cannot write.
    pub fn client(&self, user: &str, group: Option<&str>) -> Result<Pair> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, user);
        if let Some(group) = group {
            params
                .distinguished_name
                .push(DnType::OrganizationName, group);
        }
        params.insert_extended_key_usage(ExtendedKeyUsagePurpose::ClientAuth);
        self.sign(params)
    }

    fn sign(&self, mut params: CertificateParams) -> Result<Pair> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate().context("failed to make a key")?;
        let cert = params
            .signed_by(&key, &self.issuer)
            .context("failed to sign a certificate")?;
        Ok(Pair {
            cert: cert.pem(),
            key: key.serialize_pem(),
        })
    }
}

/// Writes a file that only its owner may read.
pub(super) fn write_secret(path: &Path, content: &str) -> Result<()> {
    use std::io::Write;
    fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .and_then(|mut file| file.write_all(content.as_bytes()))
        .with_context(|| format!("failed to write {path:?}"))
}
