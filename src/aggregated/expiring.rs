//! Answers that hold for some seconds: who a token is, what a user may do. Bounded, since callers choose the
//! keys. Keys are digests: no token is kept, and however long a name is, an entry is small.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use sha2::{Digest as _, Sha256};

/// SHA-256 of what an answer depends on.
pub(super) type Key = [u8; 32];

/// The digest of these texts, told apart from all others however they are cut.
pub(super) fn key<'a>(parts: impl IntoIterator<Item = &'a str>) -> Key {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part);
    }
    digest.finalize().into()
}

/// The answers.
#[derive(Debug)]
pub(super) struct Expiring<V> {
    lasts: Duration,
    most: usize,
    entries: Mutex<HashMap<Key, (Instant, V)>>,
}

impl<V: Clone> Expiring<V> {
    /// Each answer holds for `lasts`, and there are never more than `most`.
    pub(super) fn new(lasts: Duration, most: usize) -> Self {
        Self {
            lasts,
            most,
            entries: Mutex::new(HashMap::new()),
        }
    }

    /// The answer, if it still holds at `now`.
    pub(super) fn get(&self, key: &Key, now: Instant) -> Option<V> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, value) = entries.get(key)?;
        self.holds(*since, now).then(|| value.clone())
    }

    /// Keeps an answer that was given at `now`.
    pub(super) fn put(&self, key: Key, value: V, now: Instant) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.len() >= self.most {
            entries.retain(|_, (since, _)| self.holds(*since, now));
            // Somebody floods us: everything is asked for anew, which costs time and nothing else.
            if entries.len() >= self.most {
                entries.clear();
            }
        }
        entries.insert(key, (now, value));
    }

    fn holds(&self, since: Instant, now: Instant) -> bool {
        now.saturating_duration_since(since) < self.lasts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_hold_for_their_time_and_are_never_more_than_allowed() {
        let answers = Expiring::new(Duration::from_secs(10), 3);
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        answers.put(key(["a"]), 1, start);
        assert_eq!(answers.get(&key(["a"]), after(9)), Some(1));
        assert_eq!(answers.get(&key(["a"]), after(10)), None);
        assert_eq!(answers.get(&key(["b"]), start), None);

        for name in ["b", "c", "d"] {
            answers.put(key([name]), 2, after(10));
        }
        assert_eq!(answers.get(&key(["b"]), after(10)), Some(2), "one was old");
        answers.put(key(["e"]), 3, after(11));
        assert_eq!(answers.entries.lock().unwrap().len(), 1);
        assert_eq!(answers.get(&key(["e"]), after(11)), Some(3));
    }

    #[test]
    fn keys_tell_texts_apart_however_they_are_cut() {
        assert_ne!(key(["ab", "c"]), key(["a", "bc"]));
        assert_ne!(key(["a"]), key(["a", ""]));
        assert_eq!(key(["a", "b"]), key(["a", "b"]));
    }
}
