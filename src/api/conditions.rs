//! Types and reasons of conditions and events. The same reason string reaches log, event and condition, so
//! that what one sees with kubectl can be searched in the code.

/// Condition types of a pool and a config. Meanings follow kstatus.
pub mod types {
    /// Pool: at least `replicas` members are as they should be (halted ones by intent included).
    pub const AVAILABLE: &str = "Available";
    /// Pool: True while on its way or settled, False when it can't go on.
    pub const PROGRESSING: &str = "Progressing";
    /// Pool: creating or deleting a VM failed.
    pub const REPLICA_FAILURE: &str = "ReplicaFailure";
    /// Pool: more VMs than wanted, and none may be taken.
    pub const SCALE_IN_BLOCKED: &str = "ScaleInBlocked";
    /// Pool: members are not at the target revision, and may not be brought to it.
    pub const UPDATE_BLOCKED: &str = "UpdateBlocked";
    /// Pool: members keep disks that the config would make otherwise now.
    pub const DISKS_OUTDATED: &str = "DisksOutdated";
    /// Pool: `spec.paused` is set.
    pub const PAUSED: &str = "Paused";
    /// Pool: config and revision are there to stamp from.
    pub const CONFIG_READY: &str = "ConfigReady";
    /// Config: what KubeVirt's own admission says of a VM stamped from it.
    pub const ACCEPTED: &str = "Accepted";
}

/// Reasons of conditions and events.
pub mod reasons {
    /// As wanted.
    pub const SETTLED: &str = "Settled";
    /// Members are being made.
    pub const SCALING_OUT: &str = "ScalingOut";
    /// Members are being removed.
    pub const SCALING_IN: &str = "ScalingIn";
    /// At least as many members as wanted are available, or halted by intent.
    pub const MEMBERS_AVAILABLE: &str = "MembersAvailable";
    /// Fewer members than wanted are available, or halted by intent.
    pub const MEMBERS_UNAVAILABLE: &str = "MembersUnavailable";
    /// The pool is being deleted.
    pub const DELETING: &str = "Deleting";
    /// The stored spec asks for something that this version of the program can't do.
    pub const NOT_SUPPORTED: &str = "NotSupported";
    /// Members are being brought to the target revision.
    pub const ROLLING_OUT: &str = "RollingOut";
    /// Nothing became updated or available for `progressDeadlineSeconds`.
    pub const DEADLINE_EXCEEDED: &str = "ProgressDeadlineExceeded";
    /// VM objects were brought to the target revision.
    pub const UPDATED: &str = "SuccessfulUpdate";
    /// VMs were restarted to take on the target revision.
    pub const RESTARTED: &str = "SuccessfulRestart";
    /// VMs were restarted for the target revision before, and have to be again.
    pub const RESTARTED_AGAIN: &str = "RestartedAgain";
    /// A VM could not be updated.
    pub const FAILED_UPDATE: &str = "FailedUpdate";
    /// A VM could not be restarted.
    pub const FAILED_RESTART: &str = "FailedRestart";
    /// Disks of members are of disk templates that the config has changed since.
    pub const DISKS_KEPT: &str = "DisksKept";
    /// Members exist and are not available yet.
    pub const WAITING_FOR_MEMBERS: &str = "WaitingForMembers";
    /// `spec.paused`.
    pub const PAUSED: &str = "Paused";
    /// No longer `spec.paused`.
    pub const RESUMED: &str = "Resumed";
    /// The config does not exist.
    pub const CONFIG_NOT_FOUND: &str = "ConfigNotFound";
    /// The config was refused by KubeVirt.
    pub const CONFIG_REFUSED: &str = "ConfigRefused";
    /// The config's revision has not been made yet.
    pub const REVISION_PENDING: &str = "RevisionPending";
    /// The revision that the pool is pinned to does not exist.
    pub const REVISION_NOT_FOUND: &str = "RevisionNotFound";
    /// Config and revision are there.
    pub const CONFIG_FOUND: &str = "ConfigFound";
    /// VMs were created.
    pub const CREATED: &str = "SuccessfulCreate";
    /// VMs were deleted.
    pub const DELETED: &str = "SuccessfulDelete";
    /// A VM could not be created.
    pub const FAILED_CREATE: &str = "FailedCreate";
    /// A VM could not be deleted.
    pub const FAILED_DELETE: &str = "FailedDelete";
    /// A quota or the API server's own limits refused a create.
    pub const QUOTA: &str = "QuotaExceeded";
    /// The namespace is being deleted.
    pub const NAMESPACE_TERMINATING: &str = "NamespaceTerminating";
    /// A VM name or a disk name is taken by something that is not this pool's.
    pub const NAME_TAKEN: &str = "NameTaken";
    /// An earlier VM of this number, or a disk of it, is still going away.
    pub const WAITING_FOR_DELETION: &str = "WaitingForDeletion";
    /// A member left the pool as it was asked to, and works on.
    pub const DETACHED: &str = "Detached";
    /// A member could not be detached.
    pub const FAILED_DETACH: &str = "FailedDetach";
    /// What was accepted for the pool can't be read, so nobody is removed.
    pub const INTENT_UNCLEAR: &str = "IntentUnclear";
    /// A request to detach a member was begun and not recorded, and the member was kept for it.
    pub const DETACH_UNRECORDED: &str = "DetachUnrecorded";
    /// A former member's marks were taken off.
    pub const RELEASED: &str = "Released";
    /// A former member's marks could not be taken off.
    pub const FAILED_RELEASE: &str = "FailedRelease";
    /// Too few members may be removed.
    pub const TOO_FEW_CANDIDATES: &str = "TooFewCandidates";
    /// Enough members may be removed, or none have to be.
    pub const NOT_BLOCKED: &str = "NotBlocked";
    /// KubeVirt's CRDs are absent.
    pub const KUBEVIRT_ABSENT: &str = "KubeVirtNotInstalled";
    /// CDI's CRDs are absent and the config has disk templates.
    pub const CDI_ABSENT: &str = "CDINotInstalled";
    /// Nothing failed.
    pub const NO_FAILURE: &str = "NoFailure";
    /// KubeVirt's verdict is not known yet.
    pub const NOT_CHECKED: &str = "NotChecked";
    /// KubeVirt would make a VM from the config.
    pub const ACCEPTED_BY_KUBEVIRT: &str = "AcceptedByKubeVirt";
    /// KubeVirt refuses a VM from the config.
    pub const REFUSED_BY_KUBEVIRT: &str = "RefusedByKubeVirt";
    /// The pool's spec can't be read by this version of the program.
    pub const INVALID_SPEC: &str = "InvalidSpec";
    /// The object is in the namespace that the program runs in, where nothing is done.
    pub const OWN_NAMESPACE: &str = "OwnNamespace";
    /// Objects that decisions depend on can't be listed.
    pub const CACHE_INCOMPLETE: &str = "CacheIncomplete";
    /// The program failed inside; it goes on with a delay.
    pub const INTERNAL_ERROR: &str = "InternalError";
}
