//! Decisions about certificates, as films of what is stored and the time.

use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;

use super::consumers::Trust;
use super::decide::{Kept, Lifetimes, Step, Stored};
use super::files::Files;
use super::keys::{Authority, Names, Serving, certificates_in, valid_authorities};
use super::serving::{Gate, Served, may_change};
use crate::clock;

/// A serving certificate, and the CA that signed it.
pub(crate) struct Made {
    pub(crate) ca_pem: String,
    serving: Serving,
}

impl Made {
    pub(crate) const LIFETIME: Duration = Duration::from_hours(24);

    pub(crate) fn serve(&self, served: &Served) {
        served.serve(&self.serving).unwrap();
    }
}

pub(crate) fn made() -> Made {
    let now = clock::now();
    let authority = Authority::make("vmpool-system", Made::LIFETIME * 3, now).unwrap();
    Made {
        serving: authority.sign(&names(), Made::LIFETIME, now).unwrap(),
        ca_pem: authority.pem,
    }
}

fn names() -> Names {
    Names {
        service: "vmpool".to_owned(),
        namespace: "vmpool-system".to_owned(),
    }
}

const DAY: Duration = Duration::from_hours(24);

/// Certificates of 9 days by CAs of 90: renewed with 3 left, replaced with 18 left.
const LIFETIMES: Lifetimes = Lifetimes {
    serving: Duration::from_hours(9 * 24),
    authority: Duration::from_hours(90 * 24),
};

fn start() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

fn step(stored: &Stored, now: Timestamp) -> Step {
    stored.next(&names(), LIFETIMES, now).0
}

/// Does what is due, and reads back what that writes.
fn look(stored: Stored, trusted: &[String], now: Timestamp) -> (Step, Kept, Stored) {
    let step = step(&stored, now);
    let kept = stored
        .after(step, trusted, &names(), LIFETIMES, now)
        .unwrap();
    let read = Stored::read(&kept.data());
    assert!(
        read == Stored {
            authority: Some(kept.authority.clone()),
            serving: Some(kept.serving.clone()),
            old: kept.old.clone()
        },
        "what is written reads back as it was"
    );
    (step, kept, read)
}

#[test]
fn ag_08_a_certificate_is_renewed_by_the_same_ca_long_before_its_end() {
    let (first, one, stored) = look(Stored::default(), &[], start());
    assert_eq!(first, Step::Replace);
    assert!(one.authority.vouches_for(&one.serving, &names(), start()));
    assert_eq!(step(&stored, start()), Step::Keep);
    assert_eq!(step(&stored, start() + DAY * 6), Step::Keep);
    let due = start() + DAY * 6 + Duration::from_secs(1);
    let (second, two, stored) = look(stored, &[], due);
    assert_eq!(second, Step::Renew);
    assert!(one.authority == two.authority && one.serving != two.serving);
    assert_eq!(one.bundle(), two.bundle(), "nobody has to learn anything");
    assert_eq!(step(&stored, due), Step::Keep);
}

#[test]
fn ag_08_what_is_missing_broken_expired_or_not_yet_valid_is_made_anew() {
    let (_, good, stored) = look(Stored::default(), &[], start());
    let (_, other, _) = look(Stored::default(), &[], start());
    let broken = |key: &str, text: &str| {
        let mut data = good.data();
        data.insert(
            key.to_owned(),
            k8s_openapi::ByteString(text.as_bytes().to_vec()),
        );
        Stored::read(&data)
    };
    let (renew, replace) = (Step::Renew, Step::Replace);
    let (ca_key, key) = (&other.authority.key_pem, &other.serving.key_pem);
    for (what, stored, now, wanted) in [
        ("all", stored.clone(), start(), Step::Keep),
        ("a junk CA", broken("ca.crt", "x"), start(), replace),
        ("no CA key", broken("ca.key", ""), start(), replace),
        (
            "another CA's key",
            broken("ca.key", ca_key),
            start(),
            replace,
        ),
        ("a junk certificate", broken("tls.crt", "x"), start(), renew),
        ("another's key", broken("tls.key", key), start(), renew),
        ("expired", stored.clone(), start() + DAY * 10, renew),
        ("long expired", stored.clone(), start() + DAY * 100, replace),
        ("made in the future", stored, start() - DAY, replace),
    ] {
        assert_eq!(step(&stored, now), wanted, "{what}");
        let (_, kept, again) = look(stored, &[], now);
        assert_eq!(step(&again, now), Step::Keep, "{what}");
        assert!(kept.authority.vouches_for(&kept.serving, &names(), now));
    }
}

#[test]
fn a_certificate_of_another_ca_or_with_other_names_is_renewed() {
    let (_, good, stored) = look(Stored::default(), &[], start());
    let (_, other, _) = look(Stored::default(), &[], start());
    let mut mixed = good.data();
    for key in ["tls.crt", "tls.key"] {
        mixed.insert(key.to_owned(), other.data()[key].clone());
    }
    assert_eq!(step(&Stored::read(&mixed), start()), Step::Renew);
    let renamed = Names {
        service: "pools".to_owned(),
        ..names()
    };
    assert_eq!(stored.next(&renamed, LIFETIMES, start()).0, Step::Renew);
}

#[test]
fn ag_10_a_new_ca_stands_beside_the_old_one_until_nobody_uses_that() {
    let (_, one, stored) = look(Stored::default(), &[], start());
    // Kept alive for 72 days, then what it signs could outlive it.
    let due = start() + DAY * 72 + Duration::from_secs(1);
    let (rotated, two, stored) = look(stored, &[], due);
    assert_eq!(rotated, Step::Replace);
    assert_eq!(two.old, std::slice::from_ref(&one.authority.pem));
    let bundle = certificates_in(two.bundle().as_bytes());
    assert_eq!(bundle.len(), 2);
    assert!(!two.authority.vouches_for(&one.serving, &names(), due));
    let old_key = one.authority.key_pem.as_bytes();
    assert!(
        !two.data().values().any(|part| part.0 == old_key),
        "it is gone"
    );
    assert_eq!(step(&stored, due + DAY), Step::Keep);
    let (dropped, three, stored) = look(stored, &[], due + DAY + Duration::from_secs(1));
    assert_eq!(dropped, Step::DropOld);
    assert!(three.old.is_empty() && three.serving == two.serving);
    assert_eq!(step(&stored, due + DAY * 2), Step::Keep);
}

#[test]
fn a_deleted_secret_is_made_anew_and_what_clients_trust_stays_trusted() {
    let (_, one, _) = look(Stored::default(), &[], start());
    let expired = Authority::make("x", DAY, start() - DAY * 5).unwrap().pem;
    let trusted = [
        one.authority.pem.clone(),
        expired,
        one.authority.pem.clone(),
    ];
    let (made, two, _) = look(Stored::default(), &trusted, start() + DAY);
    assert_eq!(made, Step::Replace);
    assert_eq!(
        two.old,
        [one.authority.pem],
        "once, and without what is expired"
    );
}

#[test]
fn no_lifetime_leaves_a_certificate_without_time_to_be_renewed_in() {
    let (_, one, _) = look(Stored::default(), &[], start());
    assert!(one.serving.validity.until < one.authority.validity.until);
    let authority = Authority::make("x", DAY, start()).unwrap();
    let serving = authority.sign(&names(), DAY * 9, start()).unwrap();
    assert_eq!(serving.validity.until, authority.validity.until);
    for serving in [Lifetimes::SHORTEST, Duration::from_mins(2), DAY * 90] {
        let lifetimes = Lifetimes {
            serving,
            authority: serving * Lifetimes::AUTHORITY_AT_LEAST,
        };
        assert!(lifetimes.look_again() < lifetimes.settle());
        assert!(lifetimes.settle() + lifetimes.look_again() * 4 < serving / 3);
    }
}

#[test]
fn ag_10_a_certificate_is_served_when_its_ca_has_been_trusted_for_a_while() {
    let (one, two) = (made(), made());
    let signer = |made: &Made| certificates_in(made.ca_pem.as_bytes());
    let settle = Duration::from_secs(10);
    let begin = Instant::now();
    let at = |seconds| begin + Duration::from_secs(seconds);
    let mut gate = Gate::default();
    assert!(!gate.is_settled(&signer(&one), true, at(0), settle));
    assert!(!gate.is_settled(&signer(&one), true, at(9), settle));
    assert!(gate.is_settled(&signer(&one), true, at(10), settle));
    // Another CA begins anew, and so does one that somebody takes out again.
    assert!(!gate.is_settled(&signer(&two), true, at(11), settle));
    assert!(!gate.is_settled(&signer(&two), false, at(15), settle));
    assert!(!gate.is_settled(&signer(&two), true, at(16), settle));
    assert!(gate.is_settled(&signer(&two), true, at(26), settle));

    let now = clock::now();
    assert!(!may_change(&one.serving, false, now));
    assert!(may_change(&one.serving, true, now));
    let later = now + Made::LIFETIME + Duration::from_secs(1);
    assert!(
        may_change(&one.serving, false, later),
        "it is worth nothing"
    );
}

#[test]
fn where_others_hand_out_certificates_their_newer_cas_stay() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (made(), made());
    let path = |name: &str| dir.path().join(name);
    let files = Files {
        certificate: path("tls.crt"),
        key: path("tls.key"),
        authority: Some(path("ca.crt")),
    };
    let said = files.check().unwrap_err().to_string();
    assert!(said.contains("tls.crt"), "{said}");
    std::fs::write(path("tls.crt"), &one.serving.chain_pem).unwrap();
    std::fs::write(path("tls.key"), &two.serving.key_pem).unwrap();
    std::fs::write(path("ca.crt"), "none").unwrap();
    assert!(files.check().is_err(), "another's key");
    std::fs::write(path("tls.key"), &one.serving.key_pem).unwrap();
    let said = files.check().unwrap_err().to_string();
    assert!(said.contains("ca.crt"), "{said}");
    std::fs::write(path("ca.crt"), &one.ca_pem).unwrap();
    let (serving, trust) = files.read().unwrap();
    assert!(serving == one.serving);
    assert_eq!(trust, Some(Trust::AtLeast(one.ca_pem.clone())));
}

#[test]
fn text_without_certificates_has_none() {
    let now = clock::now();
    assert!(valid_authorities(b"", now).is_empty());
    assert!(valid_authorities(b"-----BEGIN CERTIFICATE-----\nAAAA\n", now).is_empty());
    let one = made();
    let leaf_and_ca = format!("{}junk\n{}", one.serving.chain_pem, one.ca_pem);
    assert_eq!(valid_authorities(leaf_and_ca.as_bytes(), now), [one.ca_pem]);
}

#[test]
fn no_ca_is_replaced_while_it_is_not_known_who_is_trusted() {
    let one = made();
    let authority = Authority::make("vmpool-system", Made::LIFETIME, clock::now()).unwrap();
    let whole = Stored {
        authority: Some(authority),
        serving: Some(one.serving.clone()),
        old: Vec::new(),
    };
    assert_eq!(whole.allowed(Step::Replace, true), Some(Step::Replace));
    assert_eq!(whole.allowed(Step::Replace, false), Some(Step::Keep));
    assert_eq!(whole.allowed(Step::Renew, false), Some(Step::Renew));
    assert_eq!(Stored::default().allowed(Step::Replace, false), None);
    let first = Stored::default().allowed(Step::Replace, true);
    assert_eq!(first, Some(Step::Replace));
}
