//! Asks KubeVirt for its verdict on a config, by dry run, and remembers it: once for each spec; again after a
//! while where it is open or a refusal, since a quota, KubeVirt itself or its version may have changed since.

use std::time::Duration;

use tokio::time::Instant;

use super::Shared;
use super::window::Backoff;
use crate::api::conditions::{reasons, types};
use crate::cache::ConfigEntry;
use crate::kubevirt::verdict::{Fault, Verdict};
use crate::stamp;

/// How long an answer is waited for: meanwhile the config has no revision, and its pools no new VMs.
const PATIENCE: Duration = Duration::from_secs(5);
/// After a refusal, for KubeVirt may be another one by then.
const ASK_AGAIN: Duration = Duration::from_mins(10);
/// Faults that a message names before it says "and so many more".
const NAMED: usize = 5;

/// Whether VMs can come of a config.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Accepted {
    pub(super) status: &'static str,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// The last verdict.
#[derive(Debug, Default)]
pub(super) struct Trial {
    known: Option<Known>,
    backoff: Backoff,
}

#[derive(Debug)]
struct Known {
    content_hash: String,
    accepted: Accepted,
    again: Option<Instant>,
}

impl Trial {
    /// KubeVirt's verdict on `config`, asked for if it isn't known.
    pub(super) async fn verdict(&mut self, shared: &Shared, config: &ConfigEntry) -> Accepted {
        let now = Instant::now();
        if !shared.caches.kubevirt_installed() {
            self.known = None;
            return open("KubeVirt is not installed".to_owned());
        }
        if let Some(known) = self.known.as_ref().filter(|known| {
            known.content_hash == config.content_hash && known.again.is_none_or(|at| at > now)
        }) {
            return known.accepted.clone();
        }
        let verdict = match self.known.is_none() && is_stored(config) {
            true => Verdict::Accepted,
            false => ask(shared, config).await,
        };
        let again = match &verdict {
            Verdict::Accepted => None,
            Verdict::Open(_) => Some(now + PATIENCE + self.backoff.next(None, false)),
            Verdict::Refused(_) => Some(now + ASK_AGAIN),
        };
        if !matches!(verdict, Verdict::Open(_)) {
            self.backoff.reset();
        }
        let accepted = accepted(verdict);
        self.known = Some(Known {
            content_hash: config.content_hash.clone(),
            accepted: accepted.clone(),
            again,
        });
        accepted
    }

    /// When to ask again.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.known.as_ref()?.again
    }
}

async fn ask(shared: &Shared, config: &ConfigEntry) -> Verdict {
    let namespace = &config.id.namespace;
    let vm = stamp::trial(namespace, &config.spec, None);
    let answer = shared.calls.dry_run(namespace, &vm);
    tokio::time::timeout(PATIENCE, answer)
        .await
        .unwrap_or_else(|_| Verdict::Open(format!("no answer within {} s", PATIENCE.as_secs())))
}

/// Whether an earlier run of the program was told that KubeVirt takes this very spec.
fn is_stored(config: &ConfigEntry) -> bool {
    config.status.conditions.iter().any(|condition| {
        condition.type_ == types::ACCEPTED
            && condition.status == "True"
            && condition.observed_generation == Some(config.id.generation)
    })
}

fn accepted(verdict: Verdict) -> Accepted {
    match verdict {
        Verdict::Accepted => Accepted {
            status: "True",
            reason: reasons::ACCEPTED_BY_KUBEVIRT,
            message: "KubeVirt takes a VM of this spec".to_owned(),
        },
        Verdict::Open(why) => open(format!("KubeVirt's verdict is not known yet: {why}")),
        Verdict::Refused(faults) => Accepted {
            status: "False",
            reason: reasons::REFUSED_BY_KUBEVIRT,
            message: format!("KubeVirt refuses a VM of this spec: {}", listed(&faults)),
        },
    }
}

fn open(message: String) -> Accepted {
    Accepted {
        status: "Unknown",
        reason: reasons::NOT_CHECKED,
        message,
    }
}

fn listed(faults: &[Fault]) -> String {
    let mut named: Vec<String> = faults
        .iter()
        .take(NAMED)
        .map(|Fault { field, message }| format!("{field}: {message}"))
        .collect();
    if faults.len() > NAMED {
        named.push(format!("and {} more", faults.len() - NAMED));
    }
    named.join("; ")
}
