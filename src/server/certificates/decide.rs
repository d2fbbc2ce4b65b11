//! What is to be done about the certificates in our Secret: a function of what it holds and the time.
//!
//! A serving certificate is renewed when a third of its life is left, by the same CA: nobody who trusts that CA
//! has to learn anything. A CA is replaced when what it would sign next could outlive it. The old one stays
//! trusted for a while beside the new one, since other replicas, and API servers, learn of the change later;
//! its key is gone at once. What is missing, broken, expired or not yet valid is made anew, whoever broke it.
//!
//! Nothing here says when a replica may begin to serve with a certificate: see [`super::serving`].

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::jiff::Timestamp;

use super::keys::{
    Authority, MakeCertificate, Names, Serving, certificates_in, pem_of, valid_authorities,
};

/// Keys of the Secret. `ca.crt`, `tls.crt` and `tls.key` are what cert-manager and others call them.
const CA: &str = "ca.crt";
const CA_KEY: &str = "ca.key";
const OLD_CA: &str = "old-ca.crt";
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";

/// Old CAs that are kept at most: each is in every `caBundle`.
const MOST_OLD: usize = 4;
/// Longest time that an old CA stays trusted.
const OVERLAP: Duration = Duration::from_hours(24);
/// Longest time that passes between a CA's arrival in every `caBundle` and its first use.
const SETTLE: Duration = Duration::from_secs(30);
/// How often the Secret, or the files, and every `caBundle` are looked at.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// How long certificates live. Everything else follows, so that tests can have it in seconds.
#[derive(Clone, Copy, Debug)]
pub struct Lifetimes {
    /// Of a serving certificate.
    pub serving: Duration,
    /// Of a CA.
    pub authority: Duration,
}

impl Lifetimes {
    /// With less, there is no time to renew in.
    pub const SHORTEST: Duration = Duration::from_secs(20);
    /// A CA lives so many times as long as what it signs, at least: it signs until two such lives are left.
    pub const AUTHORITY_AT_LEAST: u32 = 3;

    /// A serving certificate with less left is renewed.
    fn renew_before(self) -> Duration {
        self.serving / 3
    }

    /// A CA with less left is replaced.
    fn replace_before(self) -> Duration {
        self.serving * 2
    }

    fn overlap(self) -> Duration {
        OVERLAP.min(self.serving / 2)
    }

    pub(super) fn settle(self) -> Duration {
        SETTLE.min(self.serving / 10)
    }

    pub(super) fn look_again(self) -> Duration {
        LOOK_AGAIN.min(self.serving / 20)
    }
}

/// What the Secret holds, as far as it is of use.
#[derive(Clone, Default, PartialEq)]
pub(super) struct Stored {
    pub(super) authority: Option<Authority>,
    pub(super) serving: Option<Serving>,
    /// CAs that are to be trusted besides, one PEM text each.
    pub(super) old: Vec<String>,
}

/// All of it.
#[derive(Clone, PartialEq)]
pub(super) struct Kept {
    pub(super) authority: Authority,
    pub(super) serving: Serving,
    pub(super) old: Vec<String>,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Step {
    /// Nothing.
    Keep,
    /// The old CAs have been trusted long enough.
    DropOld,
    /// A new serving certificate by the same CA.
    Renew,
    /// A new CA and a new serving certificate.
    Replace,
}

impl Stored {
    pub(super) fn read(data: &BTreeMap<String, ByteString>) -> Self {
        let part = |key| data.get(key).map_or(&[][..], |bytes| bytes.0.as_slice());
        Self {
            authority: Authority::read(part(CA), part(CA_KEY)),
            serving: Serving::read(part(CERTIFICATE), part(KEY)).ok(),
            old: certificates_in(part(OLD_CA)).iter().map(pem_of).collect(),
        }
    }

    /// What is to be done at `now`, and why.
    pub(super) fn next(
        &self,
        names: &Names,
        lifetimes: Lifetimes,
        now: Timestamp,
    ) -> (Step, &'static str) {
        let Some(authority) = &self.authority else {
            return (Step::Replace, "there is no CA with its key");
        };
        if !authority.validity.holds(now) {
            return (Step::Replace, "the CA is not valid now");
        }
        if authority.validity.until < now + lifetimes.replace_before() {
            return (Step::Replace, "the CA ends soon");
        }
        let Some(serving) = &self.serving else {
            return (Step::Renew, "there is no certificate with its key");
        };
        if !authority.vouches_for(serving, names, now) {
            let why = "the certificate is not valid now, has other names or is another CA's";
            return (Step::Renew, why);
        }
        if serving.validity.until < now + lifetimes.renew_before() {
            return (Step::Renew, "the certificate ends soon");
        }
        if !self.old.is_empty() && authority.validity.made_at() + lifetimes.overlap() < now {
            return (Step::DropOld, "nobody uses the old CA any more");
        }
        (Step::Keep, "")
    }

    /// What of `step` may be done; `None` if nothing, and there is nothing to go on with either. A CA is replaced
    /// only if it is known whom clients trust: whoever is trusted now is to stay so beside it.
    pub(super) fn allowed(&self, step: Step, is_known_who_is_trusted: bool) -> Option<Step> {
        if step != Step::Replace || is_known_who_is_trusted {
            return Some(step);
        }
        let is_whole = self.authority.is_some() && self.serving.is_some();
        is_whole.then_some(Step::Keep)
    }

    /// Does a step. `trusted` are the CAs that clients trust now, or we did: they stay trusted beside a new one.
    pub(super) fn after(
        self,
        step: Step,
        trusted: &[String],
        names: &Names,
        lifetimes: Lifetimes,
        now: Timestamp,
    ) -> Result<Kept, MakeCertificate> {
        let (authority, mut old) = match (step, self.authority) {
            (Step::Keep | Step::Renew, Some(authority)) => (authority, self.old),
            (Step::DropOld, Some(authority)) => (authority, Vec::new()),
            (_, before) => {
                let new = Authority::make(&names.namespace, lifetimes.authority, now)?;
                let before = before.map(|before| before.pem).into_iter();
                let all = before.chain(self.old).chain(trusted.iter().cloned());
                let all: String = all.collect();
                (new, valid_authorities(all.as_bytes(), now))
            }
        };
        let serving = match (step, self.serving) {
            (Step::Keep | Step::DropOld, Some(serving)) => serving,
            _ => authority.sign(names, lifetimes.serving, now)?,
        };
        let mut seen = vec![authority.pem.clone()];
        old.retain(|pem| {
            let is_new = !seen.contains(pem);
            seen.push(pem.clone());
            is_new
        });
        old.truncate(MOST_OLD);
        Ok(Kept {
            authority,
            serving,
            old,
        })
    }
}

impl Kept {
    /// For the Secret.
    pub(super) fn data(&self) -> BTreeMap<String, ByteString> {
        [
            (CA, self.authority.pem.clone()),
            (CA_KEY, self.authority.key_pem.clone()),
            (OLD_CA, self.old.concat()),
            (CERTIFICATE, self.serving.chain_pem.clone()),
            (KEY, self.serving.key_pem.clone()),
        ]
        .map(|(key, text)| (key.to_owned(), ByteString(text.into_bytes())))
        .into()
    }

    /// What clients are to trust: the CA, then the old ones.
    pub(super) fn bundle(&self) -> String {
        let old = self.old.iter().map(String::as_str);
        std::iter::once(self.authority.pem.as_str())
            .chain(old)
            .collect()
    }
}
