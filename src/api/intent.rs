//! Named operations on a pool that were accepted and are not carried out yet: the annotation
//! [`annotations::INTENT`](super::annotations::INTENT), a JSON list. What a request promised stands in the
//! cluster before anything is done, so that whoever is the leader carries it out, once, whatever happens in
//! between.
//!
//! Entries that this version doesn't know are kept as they are, and so is what it doesn't know of an entry: a
//! newer one wrote them.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What is to be done, and with which VM.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Intent {
    /// What.
    pub verb: Verb,
    /// Name of the VM.
    pub name: String,
    /// UID of the VM: another one of that name is not meant.
    pub uid: String,
    /// Resource version of the VM when this was accepted: a cache that is older may not know the VM yet.
    pub version: String,
    /// Detach: whether the pool makes another VM in its place.
    #[serde(default)]
    pub replace: bool,
    /// Who asked for it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub by: String,
    /// Why, in their words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// What is to be done with a VM.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Verb {
    /// It leaves the pool whole and goes on working.
    Detach,
}

/// The list of a pool, in the order of asking.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Intents(Vec<Entry>);

#[derive(Clone, Debug, Eq, PartialEq)]
struct Entry {
    /// As this version reads it.
    known: Option<Intent>,
    /// As it is written.
    raw: Value,
}

/// The annotation is no list.
#[derive(Debug, thiserror::Error)]
#[error("failed to read the annotation {annotation} as a list: {source}", annotation = super::annotations::INTENT)]
pub struct ReadIntents {
    source: serde_json::Error,
}

impl Intents {
    /// Reads the annotation; `None` is an empty list.
    pub fn read(annotation: Option<&str>) -> Result<Self, ReadIntents> {
        let Some(text) = annotation.filter(|text| !text.trim().is_empty()) else {
            return Ok(Self::default());
        };
        let values: Vec<Value> =
            serde_json::from_str(text).map_err(|source| ReadIntents { source })?;
        let entries = values.into_iter().map(|raw| Entry {
            known: Intent::deserialize(&raw).ok(),
            raw,
        });
        Ok(Self(entries.collect()))
    }

    /// As the annotation has it; `None` if there is nothing in it, and so no annotation.
    pub fn write(&self) -> Option<String> {
        if self.0.is_empty() {
            return None;
        }
        let values = self.0.iter().map(|entry| entry.raw.clone());
        Some(Value::Array(values.collect()).to_string())
    }

    /// Those that this version knows.
    pub fn known(&self) -> impl Iterator<Item = &Intent> {
        self.0.iter().filter_map(|entry| entry.known.as_ref())
    }

    /// How many there are that this version doesn't know.
    pub fn unknown(&self) -> usize {
        self.0.len() - self.known().count()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What is to be done with the VM of that UID.
    pub fn of_vm(&self, uid: &str) -> Option<&Intent> {
        self.known().find(|intent| intent.uid == uid)
    }

    /// Adds one at the end.
    pub fn add(&mut self, intent: Intent) {
        let raw = serde_json::to_value(&intent).expect("an intent is strings and a bool");
        self.0.push(Entry {
            known: Some(intent),
            raw,
        });
    }

    /// Takes out what was to be done with the VMs of these UIDs. Says whether there was anything.
    pub fn remove(&mut self, uids: &[String]) -> bool {
        let before = self.0.len();
        let is_over = |intent: &Intent| uids.contains(&intent.uid);
        self.0
            .retain(|entry| !entry.known.as_ref().is_some_and(is_over));
        self.0.len() < before
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn detach(name: &str) -> Intent {
        Intent {
            verb: Verb::Detach,
            name: name.to_owned(),
            uid: format!("uid-{name}"),
            version: "12".to_owned(),
            replace: true,
            by: "jane".to_owned(),
            reason: String::new(),
        }
    }

    #[test]
    fn what_is_written_is_read_and_what_is_not_known_is_kept() {
        let newer = r#"{"verb":"reheat","name":"web-9","uid":"u9","degrees":40}"#;
        let text = format!(
            r#"[{newer},{{"verb":"detach","name":"web-1","uid":"uid-web-1","version":"12","replace":true,"by":"jane"}}]"#
        );
        let mut intents = Intents::read(Some(&text)).unwrap();
        assert_eq!((intents.len(), intents.unknown()), (2, 1));
        assert_eq!(intents.of_vm("uid-web-1"), Some(&detach("web-1")));
        assert_eq!(intents.of_vm("u9"), None);
        intents.add(detach("web-2"));
        let written = intents.write().unwrap();
        assert_eq!(Intents::read(Some(&written)).unwrap(), intents);

        assert!(intents.remove(&[
            "uid-web-1".to_owned(),
            "uid-web-2".to_owned(),
            "u9".to_owned()
        ]));
        assert!(!intents.remove(&["uid-web-1".to_owned()]));
        let rest: Value = serde_json::from_str(&intents.write().unwrap()).unwrap();
        assert_eq!(
            rest,
            serde_json::from_str::<Value>(&format!("[{newer}]")).unwrap()
        );
    }

    #[test]
    fn what_a_newer_version_adds_to_an_entry_outlives_our_rewriting() {
        let entry = json!({"verb": "detach", "name": "web-1", "uid": "u1", "version": "12",
            "replace": true, "by": "jane", "until": {"noon": 12}});
        let text = Value::from(vec![entry.clone()]).to_string();
        let mut intents = Intents::read(Some(&text)).unwrap();
        assert_eq!(intents.unknown(), 0);
        intents.add(detach("web-2"));
        let written: Value = serde_json::from_str(&intents.write().unwrap()).unwrap();
        assert_eq!(written[0], entry);
        assert!(intents.remove(&["uid-web-2".to_owned()]));
        let written: Value = serde_json::from_str(&intents.write().unwrap()).unwrap();
        assert_eq!(written, json!([entry]));
    }

    #[test]
    fn nothing_is_an_empty_list_and_junk_is_an_error() {
        for nothing in [None, Some(""), Some("[]")] {
            let intents = Intents::read(nothing).unwrap();
            assert!(intents.is_empty());
            assert_eq!(intents.write(), None);
        }
        for junk in ["{", "{}", "detach web-1"] {
            assert!(Intents::read(Some(junk)).is_err(), "{junk}");
        }
    }
}
