//! Whether the Lease may be taken: a function of what has been seen of it and for how long.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;

/// What a holder writes for a duration when it releases the Lease. A person who empties the holder leaves the
/// duration alone, and the holder at work.
pub(super) const RELEASED_SECONDS: i32 = 1;
/// A longer duration in the Lease, by mistake or by another version, is not waited for.
const LONGEST: Duration = Duration::from_mins(1);

/// What may be done.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Verdict {
    /// Write it.
    Take,
    /// Look again.
    Wait {
        /// Who is in it.
        holder: String,
    },
}

/// Watches the Lease for one who wants it.
#[derive(Debug)]
pub(super) struct Judge {
    me: String,
    duration: Duration,
    /// What was seen last, and since when.
    seen: Option<(Option<String>, Duration)>,
    /// Whether that has been so since the first look.
    is_original: bool,
}

impl Judge {
    pub(super) fn new(me: &str, duration: Duration) -> Self {
        Self {
            me: me.to_owned(),
            duration,
            seen: None,
            is_original: true,
        }
    }

    /// `now` is on a clock that nobody sets.
    pub(super) fn judge(&mut self, found: Option<&Lease>, now: Duration) -> Verdict {
        let version =
            found.map(|lease| lease.metadata.resource_version.clone().unwrap_or_default());
        let since = match &self.seen {
            Some((seen, since)) if *seen == version => *since,
            before => {
                self.is_original = before.is_none();
                self.seen = Some((version, now));
                now
            }
        };
        let holder = holder_of(found);
        let is_free = match found {
            // Nobody has led yet. One that has vanished had a holder.
            None => self.is_original,
            Some(lease) if is_released(lease) => true,
            // What a process of this pod held is ours: it has ended, or this one would not run. Later it would be
            // somebody's who writes our name, while the holder is at work.
            Some(_) => self.is_original && holder == self.me,
        };
        let waited = now.saturating_sub(since);
        if is_free || waited >= self.patience(found) {
            return Verdict::Take;
        }
        Verdict::Wait { holder }
    }

    fn patience(&self, found: Option<&Lease>) -> Duration {
        let seconds = found.and_then(|lease| lease.spec.as_ref()?.lease_duration_seconds);
        let stored = u64::try_from(seconds.unwrap_or(0)).unwrap_or(0);
        self.duration.max(Duration::from_secs(stored).min(LONGEST))
    }
}

fn is_released(lease: &Lease) -> bool {
    let seconds = lease
        .spec
        .as_ref()
        .and_then(|spec| spec.lease_duration_seconds);
    holder_of(Some(lease)).is_empty() && seconds == Some(RELEASED_SECONDS)
}

/// Who is in it; empty if nobody.
pub(super) fn holder_of(lease: Option<&Lease>) -> String {
    lease
        .and_then(|lease| lease.spec.as_ref()?.holder_identity.clone())
        .unwrap_or_default()
}
