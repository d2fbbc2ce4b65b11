//! Reads what the caches should have shown long ago from the API server, so that a lost event or a call that
//! came to nothing holds up nobody for ever.

use k8s_openapi::jiff::Timestamp;

use super::Shared;
use super::calls::{CallFailure, Place};
use super::expectations::Overdue;
use super::snapshot::Remembered;
use crate::cache::Key;
use crate::kubevirt::{self, VmView, VmiView};

/// Settles what `remembered` has been expecting for too long, for the pool with that key and UID.
pub(super) async fn settle(
    shared: &Shared,
    pool: &Key,
    pool_uid: &str,
    remembered: &mut Remembered,
    now: Timestamp,
) {
    for overdue in remembered.expectations.overdue(now) {
        let name = overdue.name();
        let Ok(live) = shared.calls.vm(&pool.namespace, name).await else {
            // Asked again when it is overdue again; and who doesn't answer this doesn't answer the next.
            return;
        };
        tracing::warn!(
            pool.namespace = pool.namespace,
            pool.name = pool.name,
            vm.name = name,
            is_there = live.is_some(),
            "Cache is far behind, looked at the VM itself"
        );
        let is_same = |uid: &str| live.as_ref().is_some_and(|vm| vm.uid == uid);
        match &overdue {
            Overdue::Create { ordinal, .. } => {
                let ours = live.as_ref().filter(|vm| vm.is_member_of(pool_uid));
                if ours.is_none_or(|vm| vm.deleting_since.is_some()) {
                    remembered.expectations.undo_create(*ordinal);
                }
            }
            Overdue::Delete { uid, .. } if is_same(uid) => {
                remembered.expectations.undo_delete(uid);
                keep(shared, pool, name, live, remembered, now);
            }
            Overdue::Delete { .. } => {}
            Overdue::Restart { vmi_uid, .. } => {
                let Ok(ends) = ends(shared, pool, name, vmi_uid, live.as_ref()).await else {
                    return;
                };
                if !ends {
                    remembered.expectations.undo_restart(vmi_uid);
                }
            }
            Overdue::Update { uid, .. } => {
                remembered.expectations.undo_update(uid);
                keep(shared, pool, name, live, remembered, now);
            }
        }
    }
}

fn keep(
    shared: &Shared,
    pool: &Key,
    name: &str,
    live: Option<VmView>,
    remembered: &mut Remembered,
    now: Timestamp,
) {
    remembered
        .live
        .keep(&shared.caches, &pool.namespace, name, live, now);
}

/// Whether that instance of the VM is gone or going, or was asked to.
async fn ends(
    shared: &Shared,
    pool: &Key,
    name: &str,
    vmi_uid: &str,
    vm: Option<&VmView>,
) -> Result<bool, CallFailure> {
    if vm.is_some_and(|vm| vm.has_requests) {
        return Ok(true);
    }
    let resource = kubevirt::virtual_machine_instance();
    let place = Place {
        resource: &resource,
        namespace: &pool.namespace,
        name,
    };
    let live = shared.calls.get(place).await?;
    let vmi = live.as_ref().and_then(VmiView::read);
    Ok(vmi.is_none_or(|vmi| vmi.uid != vmi_uid || vmi.deleting))
}
