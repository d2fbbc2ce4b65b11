//! Named operations that were accepted: what they mean for a plan. A VM that is to leave counts as gone from
//! the moment that this was recorded, in the same write that set `replicas`: so there is no instant at which
//! the pool has one too many, and nobody else is removed for it. Its number stays taken, for its name is.
//!
//! An entry is taken off when the *cache* shows that its VM is no member any more. What was answered is not
//! enough: the next plan, perhaps another program's, sees the cache and not the answer, and would take the VM
//! for a member again.

//!
//! A VM that is announced, its record not there yet and perhaps never, is in between: it is no surplus, and
//! it is not missing.

use std::collections::{BTreeMap, BTreeSet};

use super::{Action, Snapshot};

/// What was accepted for a pool.
#[derive(Clone, Debug, Default)]
pub struct Intents {
    /// VMs that are to leave.
    pub detach: Vec<Detach>,
    /// Members that a request has marked and whose record may still come, by UID; and the version of the pool
    /// that the request goes by.
    pub announced: BTreeMap<String, String>,
    /// Why not all that was accepted is known. Then nobody is removed: it might be the wrong one.
    pub unclear: Option<String>,
}

/// A VM that is to leave.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Detach {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Why, in the words of whoever asked for it.
    pub reason: String,
    /// How far it is.
    pub progress: Progress,
}

/// How far something is that was accepted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Progress {
    /// The VM is a member, or nobody knows: it is to be done.
    Due,
    /// It was done, and the cache doesn't show it yet.
    Unseen,
    /// The VM is gone or no member, and the cache shows it.
    Over,
}

/// UIDs of VMs that count as gone.
pub(super) fn leaving(snapshot: &Snapshot) -> BTreeSet<&str> {
    let detach = snapshot.intents.detach.iter();
    detach.map(|detach| detach.uid.as_str()).collect()
}

/// What is to be done now about what was accepted.
#[derive(Debug, Default)]
pub(super) struct Asked {
    /// VMs that are to be detached.
    pub(super) detach: Vec<Action>,
    /// Entries that are over, if any.
    pub(super) clear: Option<Action>,
}

/// Nothing in a pool to whose VMs nothing is done.
pub(super) fn asked(snapshot: &Snapshot, acts: bool) -> Asked {
    if !acts {
        return Asked::default();
    }
    Asked {
        detach: detaches(snapshot),
        clear: clearance(snapshot),
    }
}

fn detaches(snapshot: &Snapshot) -> Vec<Action> {
    let due = snapshot.intents.detach.iter();
    due.filter(|detach| detach.progress == Progress::Due)
        .map(|detach| Action::Detach {
            name: detach.name.clone(),
            uid: detach.uid.clone(),
            reason: detach.reason.clone(),
        })
        .collect()
}

fn clearance(snapshot: &Snapshot) -> Option<Action> {
    let over = snapshot.intents.detach.iter();
    let uids: Vec<String> = over
        .filter(|detach| detach.progress == Progress::Over)
        .map(|detach| detach.uid.clone())
        .collect();
    (!uids.is_empty()).then_some(Action::ClearIntents { uids })
}
