//! Certificates that somebody else makes and puts into files, such as cert-manager through a mounted Secret.
//! They are compared by content: a mounted Secret is swapped by a link, and its times say nothing.

use std::path::{Path, PathBuf};

use super::consumers::Trust;
use super::keys::{ReadCertificate, Serving, certificates_in};

/// Where they are.
#[derive(Clone, Debug)]
pub struct Files {
    /// The serving certificate, and behind it what leads to its CA; PEM.
    pub certificate: PathBuf,
    /// Its key; PEM.
    pub key: PathBuf,
    /// The CA; PEM. With it, the program writes `caBundle`s, else somebody else does.
    pub authority: Option<PathBuf>,
}

/// The files are of no use.
#[derive(Debug, thiserror::Error)]
pub enum ReadFiles {
    /// One can't be read.
    #[error("failed to read {path:?}: {source}")]
    Open {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is in them that something is wrong. Between two writes of a pair that is so for a moment.
    #[error("failed to use {path:?}: {source}")]
    Use {
        /// The certificate's file.
        path: PathBuf,
        /// Why.
        source: ReadCertificate,
    },
    /// There is no CA in the CA's file.
    #[error("failed to find a certificate in {path:?}: it must be PEM")]
    FindAuthority {
        /// The CA's file.
        path: PathBuf,
    },
}

impl Files {
    /// Says what is wrong with them, if anything.
    pub fn check(&self) -> Result<(), ReadFiles> {
        self.read().map(drop)
    }

    pub(super) fn read(&self) -> Result<(Serving, Option<Trust>), ReadFiles> {
        let serving = Serving::read(&open(&self.certificate)?, &open(&self.key)?);
        let serving = serving.map_err(|source| ReadFiles::Use {
            path: self.certificate.clone(),
            source,
        })?;
        let trust = match &self.authority {
            None => None,
            Some(path) => {
                let pem = String::from_utf8_lossy(&open(path)?).into_owned();
                if certificates_in(pem.as_bytes()).is_empty() {
                    return Err(ReadFiles::FindAuthority { path: path.clone() });
                }
                Some(Trust::AtLeast(pem))
            }
        };
        Ok((serving, trust))
    }
}

fn open(path: &Path) -> Result<Vec<u8>, ReadFiles> {
    std::fs::read(path).map_err(|source| ReadFiles::Open {
        path: path.to_owned(),
        source,
    })
}
