//! Certificates and keys as PEM: making them, and reading what others wrote. Knows no time but what it is told,
//! and no place to keep them.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, PublicKeyData as _, date_time_ymd,
};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{RootCertStore, ServerConfig};

use crate::server::tls::server_config;

/// How far back a certificate is valid, for clients whose clocks are behind.
pub(super) const CLOCK_SKEW: Duration = Duration::from_hours(1);

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub(super) enum MakeCertificate {
    /// Making or signing one failed.
    #[error("failed to make a certificate")]
    Generate(#[from] rcgen::Error),
}

/// Why a certificate can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ReadCertificate {
    /// Not a certificate, or none at all.
    #[error("failed to read a certificate: {0}")]
    Parse(String),
    /// TLS refuses it: most often a key that belongs to another certificate.
    #[error("failed to use a certificate with its key")]
    Tls(#[from] rustls::Error),
}

/// From when to when a certificate is valid.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Validity {
    pub(super) from: Timestamp,
    pub(super) until: Timestamp,
}

impl Validity {
    pub(super) fn holds(self, now: Timestamp) -> bool {
        self.from <= now && now < self.until
    }

    /// When it was made, if it was made by this program.
    pub(super) fn made_at(self) -> Timestamp {
        self.from.checked_add(CLOCK_SKEW).unwrap_or(Timestamp::MAX)
    }

    /// Of the first certificate in `pem`, and whether that is a CA.
    fn read(der: &CertificateDer<'_>) -> Result<(Self, bool), ReadCertificate> {
        let (_, parsed) = x509_parser::parse_x509_certificate(der)
            .map_err(|error| ReadCertificate::Parse(error.to_string()))?;
        let at = |seconds| {
            Timestamp::from_second(seconds)
                .map_err(|error| ReadCertificate::Parse(error.to_string()))
        };
        let validity = parsed.validity();
        let read = Self {
            from: at(validity.not_before.timestamp())?,
            until: at(validity.not_after.timestamp())?,
        };
        Ok((read, parsed.is_ca()))
    }
}

/// The certificates in a PEM text, in their order; what is no certificate is left out.
pub(super) fn certificates_in(pem: &[u8]) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem)
        .filter_map(Result::ok)
        .collect()
}

/// The CAs in a PEM text that are valid now, each as a PEM text of its own.
pub(super) fn valid_authorities(pem: &[u8], now: Timestamp) -> Vec<String> {
    certificates_in(pem)
        .iter()
        .filter(|der| {
            Validity::read(der).is_ok_and(|(validity, is_ca)| is_ca && validity.holds(now))
        })
        .map(pem_of)
        .collect()
}

/// A certificate as PEM, in the one form that this program writes.
pub(super) fn pem_of(der: &CertificateDer<'_>) -> String {
    let base64 = k8s_openapi::ByteString(der.to_vec());
    let base64 = serde_json::to_value(base64).expect("a byte string is a JSON string");
    let base64 = base64.as_str().expect("a byte string is a JSON string");
    let mut pem = "-----BEGIN CERTIFICATE-----\n".to_owned();
    // Base64 is ASCII, so that bytes are characters.
    for line in base64.as_bytes().chunks(64) {
        pem.push_str(&String::from_utf8_lossy(line));
        pem.push('\n');
    }
    pem.push_str("-----END CERTIFICATE-----\n");
    pem
}

/// A CA that can sign.
#[derive(Clone, PartialEq)]
pub(super) struct Authority {
    pub(super) pem: String,
    pub(super) key_pem: String,
    pub(super) validity: Validity,
}

impl Authority {
    pub(super) fn make(
        namespace: &str,
        lifetime: Duration,
        now: Timestamp,
    ) -> Result<Self, MakeCertificate> {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name = DistinguishedName::new();
        // One name for each CA: clients find an issuer by its name, and there may be two at a time.
        let name = format!("vmpool since {now:.0}");
        params.distinguished_name.push(DnType::CommonName, name);
        params
            .distinguished_name
            .push(DnType::OrganizationName, namespace);
        let validity = set_validity(&mut params, now, now + lifetime);
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?;
        Ok(Self {
            pem: pem_of(certificate.der()),
            key_pem: key.serialize_pem(),
            validity,
        })
    }

    /// `None` if it is not a CA with its key.
    pub(super) fn read(pem: &[u8], key_pem: &[u8]) -> Option<Self> {
        let der = certificates_in(pem).into_iter().next()?;
        let (validity, is_ca) = Validity::read(&der).ok()?;
        let key_pem = std::str::from_utf8(key_pem).ok()?;
        let key = KeyPair::from_pem(key_pem).ok()?;
        let (_, parsed) = x509_parser::parse_x509_certificate(&der).ok()?;
        let belongs = parsed.public_key().raw == key.subject_public_key_info();
        (is_ca && belongs).then(|| Self {
            pem: pem_of(&der),
            key_pem: key_pem.to_owned(),
            validity,
        })
    }

    /// Signs a new serving certificate, valid for `lifetime` or as long as the CA.
    pub(super) fn sign(
        &self,
        names: &Names,
        lifetime: Duration,
        now: Timestamp,
    ) -> Result<Serving, MakeCertificate> {
        let issuer = Issuer::from_ca_cert_pem(&self.pem, KeyPair::from_pem(&self.key_pem)?)?;
        let mut params = CertificateParams::new(names.all())?;
        params.distinguished_name = DistinguishedName::new();
        params
            .distinguished_name
            .push(DnType::CommonName, "vmpool".to_owned());
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let until = (now + lifetime).min(self.validity.until);
        let validity = set_validity(&mut params, now, until);
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &issuer)?;
        Ok(Serving {
            chain_pem: pem_of(certificate.der()),
            key_pem: key.serialize_pem(),
            validity,
        })
    }

    /// Whether clients that trust this CA accept `serving` under our service's name.
    pub(super) fn vouches_for(&self, serving: &Serving, names: &Names, now: Timestamp) -> bool {
        let Some((leaf, others)) = serving
            .chain()
            .split_first()
            .map(|(leaf, others)| (leaf.clone(), others.to_vec()))
        else {
            return false;
        };
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(certificates_in(self.pem.as_bytes()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
        let (Ok(verifier), Ok(name)) = (verifier.build(), ServerName::try_from(names.service()))
        else {
            return false;
        };
        let seconds = u64::try_from(now.as_second()).unwrap_or(0);
        let now = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        verifier
            .verify_server_cert(&leaf, &others, &name, &[], now)
            .is_ok()
    }
}

/// The names in a serving certificate.
#[derive(Clone, Debug)]
pub struct Names {
    /// The Service that the API server reaches us by.
    pub service: String,
    /// Its namespace.
    pub namespace: String,
}

impl Names {
    /// What the API server asks for.
    fn service(&self) -> String {
        format!("{}.{}.svc", self.service, self.namespace)
    }

    /// And what it asks for in development, where it finds us on its own machine.
    fn all(&self) -> Vec<String> {
        vec![
            self.service(),
            "localhost".to_owned(),
            "127.0.0.1".to_owned(),
        ]
    }
}

/// A serving certificate with what leads from it to its CA, and its key.
#[derive(Clone, PartialEq)]
pub(super) struct Serving {
    pub(super) chain_pem: String,
    pub(super) key_pem: String,
    pub(super) validity: Validity,
}

impl Serving {
    pub(super) fn read(chain_pem: &[u8], key_pem: &[u8]) -> Result<Self, ReadCertificate> {
        let text = |bytes: &[u8]| {
            String::from_utf8(bytes.to_vec())
                .map_err(|error| ReadCertificate::Parse(error.to_string()))
        };
        let chain = certificates_in(chain_pem);
        let leaf = chain
            .first()
            .ok_or_else(|| ReadCertificate::Parse("there is none in PEM".to_owned()))?;
        let (validity, _) = Validity::read(leaf)?;
        let read = Self {
            chain_pem: text(chain_pem)?,
            key_pem: text(key_pem)?,
            validity,
        };
        read.server_config()?;
        Ok(read)
    }

    pub(super) fn chain(&self) -> Vec<CertificateDer<'static>> {
        certificates_in(self.chain_pem.as_bytes())
    }

    /// What serves it.
    pub(super) fn server_config(&self) -> Result<ServerConfig, ReadCertificate> {
        let key = PrivateKeyDer::from_pem_slice(self.key_pem.as_bytes())
            .map_err(|error| ReadCertificate::Parse(error.to_string()))?;
        Ok(server_config(self.chain(), key)?)
    }
}

/// Whole seconds, as certificates have them.
fn set_validity(params: &mut CertificateParams, now: Timestamp, until: Timestamp) -> Validity {
    let from = now
        .checked_sub(CLOCK_SKEW)
        .expect("the clock is not set before 1970");
    let date = |at: Timestamp| {
        let seconds = u64::try_from(at.as_second()).expect("the clock is not set before 1970");
        date_time_ymd(1970, 1, 1) + Duration::from_secs(seconds)
    };
    params.not_before = date(from);
    params.not_after = date(until);
    let whole = |at: Timestamp| {
        Timestamp::from_second(at.as_second()).expect("a time without its fraction is one")
    };
    Validity {
        from: whole(from),
        until: whole(until),
    }
}
