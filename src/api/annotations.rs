//! Annotations of ours.

/// On a VM: `{hash, inputs}` of its stamp as JSON, so that the old stamp can be made again.
pub const STAMP: &str = "vmpool.dev/stamp";
/// On a VM: UID of the pool that it is or was a member of. Left on a VM that lost its owner, it says that marks are to be taken off.
pub const MEMBER_OF: &str = "vmpool.dev/member-of";
/// On a VM's template, and so on its instance: hash of the stamp that the instance was started with.
pub const STAMP_HASH: &str = "vmpool.dev/stamp-hash";
/// On a VM: hash of the disk templates that its disks were made from, where a later revision has others and the
/// VM kept its disks.
pub const DISKS_OF: &str = "vmpool.dev/disks-of";
/// On a VM, set by its user: `scale-in`, `update` or both, comma-separated: never chosen for that.
pub const PROTECTED: &str = "vmpool.dev/protected";
/// On a pool: named operations that were accepted and are not carried out yet, as JSON. Our service account's
/// alone to write.
pub const INTENT: &str = "vmpool.dev/intent";
/// On a VM: a request to detach it is about to be recorded on its pool, which it judged in this resource
/// version. While the pool is in no later one, the VM is not deleted by us.
pub const DETACHING: &str = "vmpool.dev/detaching";
/// On a config: how many revisions are kept. Default 10.
pub const REVISION_HISTORY_LIMIT: &str = "vmpool.dev/revision-history-limit";
/// On a VM that left a pool: the pool's name.
pub const DETACHED_FROM: &str = "vmpool.dev/detached-from";
/// On a VM that somebody creates from a config without a pool.
pub const FROM_CONFIG: &str = "vmpool.dev/config";
/// Beside [`FROM_CONFIG`]: what references get behind a dash, as members' get their ordinal.
pub const POSTFIX: &str = "vmpool.dev/postfix";
/// Beside [`FROM_CONFIG`], written when it was stamped: from which state of the config, by the name that its
/// revision has. A copy, a clone or a restore that carries it is not stamped again.
pub const STAMPED_FROM: &str = "vmpool.dev/stamped-from";
