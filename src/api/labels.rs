//! Labels of ours. Values are names or UIDs, so they fit 63 characters wherever the names do.

/// Name of the pool; on a member, its instance and launcher pod.
pub const POOL: &str = "vmpool.dev/pool";
/// UID of the pool; what `status.labelSelector` selects by, so that orphans of an older pool don't count.
pub const POOL_UID: &str = "vmpool.dev/pool-uid";
/// Number of the member.
pub const ORDINAL: &str = "vmpool.dev/ordinal";
/// Name of the config; also on the config's ControllerRevisions.
pub const CONFIG: &str = "vmpool.dev/config";
/// Name of the revision that a member was stamped from.
pub const REVISION: &str = "vmpool.dev/revision";

/// The labels that a stamp writes on a VM and on its template.
pub const IDENTITY: [&str; 5] = [POOL, POOL_UID, ORDINAL, CONFIG, REVISION];
/// Everything of ours starts with this; users' own labels and annotations must not.
pub const PREFIX: &str = "vmpool.dev/";
