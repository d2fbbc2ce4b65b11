//! The strings of KubeVirt and CDI that the stand-in writes.
//!
//! From `staging/src/kubevirt.io/api/core/v1/types.go` and `pkg/controller/controller.go` of
//! KubeVirt, `pkg/controller/common/util.go` of CDI, and the recorded objects.

pub(super) const LATEST_VERSION: &str = "kubevirt.io/latest-observed-api-version";
pub(super) const STORAGE_VERSION: &str = "kubevirt.io/storage-observed-api-version";
pub(super) const VM_GENERATION: &str = "kubevirt.io/vm-generation";
pub(super) const CREATED_BY: &str = "kubevirt.io/created-by";
pub(super) const NODE_NAME: &str = "kubevirt.io/nodeName";
pub(super) const SCHEDULABLE: &str = "kubevirt.io/schedulable";
pub(super) const IMMEDIATE_DATA_VOLUMES: &str = "kubevirt.io/immediate-data-volume-creation";
pub(super) const CLAIM_ADOPTION: &str = "cdi.kubevirt.io/allowClaimAdoption";

pub(super) const VM_FINALIZER: &str = "kubevirt.io/virtualMachineControllerFinalize";
pub(super) const VMI_FINALIZER: &str = "foregroundDeleteVirtualMachine";

pub(super) const READY: &str = "Ready";
pub(super) const FAILURE: &str = "Failure";
pub(super) const RESTART_REQUIRED: &str = "RestartRequired";
pub(super) const SYNCHRONIZED: &str = "Synchronized";
pub(super) const POD_SCHEDULED: &str = "PodScheduled";
pub(super) const UNPAUSED: &str = "kubevirt.io/virtual-machine-unpaused";

pub(super) const PVC_NOT_FOUND: &str = "FailedPvcNotFound";

/// `launcher-pod.yaml` of the recorded objects.
pub(super) const LAUNCHER_IMAGE: &str = "registry:5000/kubevirt/virt-launcher:devel";
