//! Which kinds can't be read at the moment, since when, and why. Nothing is decided while a cache is incomplete,
//! so that a list that fails for ever would be a program that does nothing and looks well: this is what makes it
//! look ill, in the log, at `/readyz`, in the metrics and in the conditions of pools.
//!
//! It does not fail readiness: webhooks look up live what they need, and pods that are not ready get no
//! requests, so that users would be kept from what still works.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{Affected, Caches, Kind};

/// After so long a list that fails is more than a hiccup of the API server's.
const STUCK_AFTER: Duration = Duration::from_secs(30);
/// How often is looked whether something is stuck.
const LOOK: Duration = Duration::from_secs(5);
/// How often the log is told of it.
const SAY_AGAIN: Duration = Duration::from_mins(1);

/// What went wrong with each kind.
#[derive(Debug, Default)]
pub(super) struct Troubles(Mutex<HashMap<Kind, Trouble>>);

#[derive(Debug, Default)]
struct Trouble {
    /// Since when without a success, and the last error.
    open: Option<(Instant, String)>,
    /// How often in all.
    times: u64,
}

impl Troubles {
    /// It could not be read.
    pub(super) fn note(&self, kind: Kind, why: String) {
        let mut kinds = self.lock();
        let trouble = kinds.entry(kind).or_default();
        trouble.times += 1;
        let since = trouble.open.take().map_or_else(Instant::now, |open| open.0);
        trouble.open = Some((since, why));
    }

    /// It could be read.
    pub(super) fn end(&self, kind: Kind) {
        if let Some(trouble) = self.lock().get_mut(&kind) {
            trouble.open = None;
        }
    }

    /// How often it could not be read.
    pub(super) fn times(&self, kind: Kind) -> u64 {
        self.lock().get(&kind).map_or(0, |trouble| trouble.times)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Kind, Trouble>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Caches {
    /// Says in a test that a kind could not be read since then.
    #[cfg(test)]
    pub(crate) fn note_trouble(&self, kind: Kind, why: String, since: Instant) {
        let open = Some((since, why));
        self.troubles
            .lock()
            .insert(kind, Trouble { open, times: 1 });
    }

    /// What has held all decisions up for some time at `now`: the kinds that can't be listed, and why. `None`
    /// as long as everything is complete, or being listed without errors.
    pub fn stuck(&self, now: Instant) -> Option<String> {
        let kinds = self.waiting_for();
        let troubles = self.troubles.lock();
        let stuck: Vec<String> = kinds
            .iter()
            .filter_map(|kind| {
                let (since, why) = troubles.get(kind)?.open.as_ref()?;
                let is_long = now.saturating_duration_since(*since) >= STUCK_AFTER;
                is_long.then(|| format!("can't list {}: {why}", kind.as_str()))
            })
            .collect();
        (!stuck.is_empty()).then(|| stuck.join("; "))
    }

    /// Tells the log and `say` what is stuck, and the pools, which say so in their status. Never returns.
    pub async fn watch_over(self: Arc<Self>, say: impl Fn(Option<String>)) {
        let mut logged: Option<Instant> = None;
        loop {
            tokio::time::sleep(LOOK).await;
            let now = Instant::now();
            let stuck = self.stuck(now);
            match &stuck {
                None => logged = None,
                Some(what) if logged.is_none_or(|at| now.duration_since(at) >= SAY_AGAIN) => {
                    logged = Some(now);
                    tracing::error!(what, "Nothing is decided while a cache is incomplete");
                    let pools = self.pools.all();
                    let pools = pools.iter().map(|pool| Affected::Pool(pool.id.key()));
                    self.dirty.mark(pools);
                }
                Some(_) => {}
            }
            say(stuck);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::Step;

    #[test]
    fn a_list_that_fails_for_long_is_said_with_its_kind_and_error_and_no_other() {
        let caches = Caches::default();
        let later = Instant::now() + STUCK_AFTER * 2;
        assert_eq!(caches.stuck(later), None, "being listed is no trouble");
        caches
            .troubles
            .note(Kind::Vms, "recursion limit".to_owned());
        caches.troubles.note(Kind::Vms, "forbidden".to_owned());
        assert_eq!(caches.stuck(Instant::now()), None, "a hiccup");
        assert_eq!(
            caches.stuck(later).as_deref(),
            Some("can't list virtualmachines: forbidden")
        );
        assert_eq!(caches.troubles.times(Kind::Vms), 2);
        caches.troubles.end(Kind::Vms);
        assert_eq!(caches.stuck(later), None);
        // A watch that fails while the cache is complete holds nothing up.
        caches.vms.take(Step::InitDone);
        caches.troubles.note(Kind::Vms, "reset".to_owned());
        assert_eq!(caches.stuck(later), None);
    }
}
