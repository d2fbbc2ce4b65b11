//! What a pool's update strategy amounts to. One that this version can't carry out changes nobody: admission
//! refuses it, but a stored pool may have it.

use crate::api::pool::{BasePolicy, OnDiskTemplateChange, UpdateStrategy};
use crate::api::quantity;

/// What becomes of members that are not at the target.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Strategy {
    /// Their objects are written; instances restart when their users restart them.
    Opportunistic,
    /// They are written and restarted within the budget, in this order.
    Proactive(BasePolicy),
    /// They are left alone.
    Unmanaged,
    /// This version doesn't know how.
    Unsupported(&'static str),
}

/// Reads it.
pub(super) fn strategy(spec: Option<&UpdateStrategy>) -> Strategy {
    let Some(spec) = spec else {
        return Strategy::Proactive(BasePolicy::default());
    };
    let proactive = match (&spec.proactive, &spec.opportunistic, &spec.unmanaged) {
        (None, None, None) => return Strategy::Proactive(BasePolicy::default()),
        (Some(proactive), None, None) => proactive,
        (None, Some(_), None) => return Strategy::Opportunistic,
        (None, None, Some(_)) => return Strategy::Unmanaged,
        _ => return Strategy::Unsupported("more than one updateStrategy"),
    };
    let partition = proactive.partition.as_ref();
    if partition.is_some_and(|share| quantity::share_of(share, u32::MAX) != Some(0)) {
        return Strategy::Unsupported("updateStrategy.proactive.partition");
    }
    if proactive.on_disk_template_change == Some(OnDiskTemplateChange::Reprovision) {
        return Strategy::Unsupported("onDiskTemplateChange Reprovision");
    }
    match &proactive.selection_policy {
        Some(policy) if !policy.ordered_policies.is_empty() => {
            Strategy::Unsupported("selectionPolicy.orderedPolicies")
        }
        Some(policy) => Strategy::Proactive(policy.base_policy.unwrap_or_default()),
        None => Strategy::Proactive(BasePolicy::default()),
    }
}
