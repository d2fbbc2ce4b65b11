//! Certificates of the TLS port: where they come from, who has to trust them, and when they are renewed.
//!
//! | file | what it is about |
//! |---|---|
//! | [`decide`] | what is to be done, from what there is and the time |
//! | [`keys`] | making and reading certificates |
//! | [`secret`] | ours: a CA and what it signed, in a Secret that all replicas share |
//! | [`files`] | somebody else's: files on disk, such as cert-manager's |
//! | [`consumers`] | the `caBundle`s |
//! | [`serving`] | what this replica serves with |
//! | [`keeper`] | the loop over all that |
//!
//! The order that costs no call: a new CA is in the Secret and in every `caBundle`, beside the old one, before any
//! replica serves with what it signed; each replica sees to that for itself, so that nobody has to count replicas.
//! The old one leaves the `caBundle`s when every replica has long changed over.

mod consumers;
mod decide;
mod files;
mod keeper;
mod keys;
mod secret;
mod serving;

pub use decide::Lifetimes;
pub use files::{Files, ReadFiles};
pub use keeper::{Keeper, KeeperConfig, Source};
pub use keys::{Names, ReadCertificate};
pub use secret::SECRET;
pub use serving::Served;

use crate::rights::Right;

/// What a program that makes its own certificates may do in the whole cluster.
pub fn rules() -> Vec<Right> {
    consumers::rules()
}

/// And in its own namespace.
pub fn namespaced_rules() -> Vec<Right> {
    secret::rules()
}

#[cfg(test)]
pub(crate) mod tests;
