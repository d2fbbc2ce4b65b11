//! What the subresources of this API take and give. Bodies are read strictly: a misspelt option would change
//! what is done to VMs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Takes VMs out of a pool. They keep running, with their disks, and are nobody's members from then on.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[schemars(rename = "dev.vmpool.subresources.v1alpha1.DetachOptions")]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct DetachOptions {
    /// subresources.vmpool.dev/v1alpha1
    #[expect(dead_code, reason = "it was looked at before the rest was read")]
    #[serde(default)]
    pub(super) api_version: Option<String>,
    /// DetachOptions
    #[expect(dead_code, reason = "likewise")]
    #[serde(default)]
    pub(super) kind: Option<String>,
    /// Names of the VMs, each once; at most 100.
    pub(super) virtual_machines: Vec<String>,
    /// Whether the pool makes new VMs in their place. If not, its replicas go down by as many. Default true.
    #[serde(default)]
    pub(super) replace: Option<bool>,
    /// Why, for the pool's events; at most 1024 characters.
    #[serde(default)]
    pub(super) reason: Option<String>,
}

/// What became of it.
#[derive(Clone, Debug, JsonSchema, PartialEq, Serialize)]
#[schemars(rename = "dev.vmpool.subresources.v1alpha1.DetachResult")]
#[serde(rename_all = "camelCase")]
pub(super) struct DetachResult {
    /// subresources.vmpool.dev/v1alpha1
    pub(super) api_version: String,
    /// DetachResult
    pub(super) kind: String,
    /// One entry for each VM that was named, in the same order.
    pub(super) virtual_machines: Vec<VmResult>,
    /// The pool's replicas from now on.
    pub(super) replicas: i64,
}

/// What became of one VM.
#[derive(Clone, Debug, JsonSchema, PartialEq, Serialize)]
#[schemars(rename = "dev.vmpool.subresources.v1alpha1.VirtualMachineResult")]
#[serde(rename_all = "camelCase")]
pub(super) struct VmResult {
    /// Its name.
    pub(super) name: String,
    /// Done, Recorded (accepted, and carried out as soon as that is possible) or Refused (nothing is done).
    pub(super) verdict: Verdict,
    /// Why it is not done, or what there is to know.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) reason: String,
}

/// What became of one VM, in a word.
#[derive(Clone, Copy, Debug, Eq, JsonSchema, PartialEq, Serialize)]
pub(super) enum Verdict {
    /// It is done.
    Done,
    /// It is accepted, and will be done.
    Recorded,
    /// It is not done.
    Refused,
}
