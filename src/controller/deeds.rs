//! A plan's actions by what carries them out. Decides nothing.

use super::delete::Victim;
use super::detach::Departing;
use super::{restart, update};
use crate::plan::Action;

/// Each kind in the order of the plan.
#[derive(Debug, Default)]
pub(super) struct Deeds {
    /// Names and UIDs.
    pub(super) releases: Vec<(String, String)>,
    /// Ordinals.
    pub(super) creates: Vec<u32>,
    pub(super) deletes: Vec<Victim>,
    pub(super) detaches: Vec<Departing>,
    /// UIDs whose entries go.
    pub(super) cleared: Vec<String>,
    pub(super) updates: Vec<update::Wanted>,
    pub(super) restarts: Vec<restart::Wanted>,
}

impl Deeds {
    /// Sorts them.
    pub(super) fn of(actions: Vec<Action>) -> Self {
        let mut deeds = Self::default();
        for action in actions {
            match action {
                Action::ClearIntents { uids } => deeds.cleared = uids,
                Action::Create { ordinal } => deeds.creates.push(ordinal),
                Action::Delete {
                    name,
                    uid,
                    resource_version,
                } => deeds.deletes.push(Victim {
                    name,
                    uid,
                    resource_version,
                }),
                Action::Detach { name, uid, reason } => {
                    deeds.detaches.push(Departing { name, uid, reason });
                }
                Action::Release { name, uid } => deeds.releases.push((name, uid)),
                Action::Restart {
                    name,
                    uid,
                    vmi_uid,
                    by_delete,
                    stamp,
                    while_down,
                } => deeds.restarts.push(restart::Wanted {
                    name,
                    uid,
                    vmi_uid,
                    by_delete,
                    stamp,
                    while_down,
                }),
                Action::Update {
                    name,
                    uid,
                    is_halted,
                    keeps_run_strategy,
                } => deeds.updates.push(update::Wanted {
                    name,
                    uid,
                    is_halted,
                    keeps_run_strategy,
                }),
            }
        }
        deeds
    }
}
