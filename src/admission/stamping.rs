//! What becomes of a VM that is being created and looks like a member of a pool.
//!
//! One that this program creates has to be the stamp of a real pool and a real revision; what is missing or
//! was changed on the way is put right, what others added stays. From anybody else's VM the marks of
//! membership are taken off, with a warning, and it is admitted as the plain VM it is: a clone, a restore, a
//! copied manifest. Stamping twice changes nothing.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde::Deserialize as _;
use serde_json::Value;

use super::field::{Cause, Path};
use super::hooks::{HookKind, HookSpec, rule};
use super::objects::{Lookup, StoredRevision, Unavailable};
use super::review::{Operation, Request};
use super::verdict::{Verdict, some_of};
use crate::api::{VirtualMachinePool, labels};
use crate::kubevirt::{self, Owner};
use crate::stamp::{
    PoolIdentity, PoolInputs, Revision, StampInput, parse_ordinal, repair, stamp, strip,
};

/// Where it is served.
pub const PATH: &str = "/admission/stamp";

/// Condition that a VM carries a mark of membership: a label of ours on it or on its template, the name of
/// a pool that it is said to be of, or a pool as its controller; or that it asks for a stamp from a config and has
/// had none. KubeVirt's own pool has the same kind in another group. A spec of another shape than KubeVirt's is KubeVirt's to refuse: an expression that fails
/// would refuse it here, in words that nobody understands.
const CONCERNS_US: (&str, &str) = (
    "concerns-us",
    "(has(object.metadata.labels) && object.metadata.labels.exists(k, k.startsWith('vmpool.dev/'))) || \
     (has(object.metadata.annotations) && 'vmpool.dev/member-of' in object.metadata.annotations) || \
     (has(object.metadata.annotations) && 'vmpool.dev/config' in object.metadata.annotations && \
     !('vmpool.dev/stamped-from' in object.metadata.annotations)) || \
     (has(object.metadata.ownerReferences) && object.metadata.ownerReferences.exists(o, \
     o.apiVersion.startsWith('vmpool.dev/') && o.kind == 'VirtualMachinePool' && has(o.controller) && o.controller)) || \
     (has(object.spec) && type(object.spec) == map && has(object.spec.template) && \
     type(object.spec.template) == map && has(object.spec.template.metadata) && \
     type(object.spec.template.metadata) == map && has(object.spec.template.metadata.labels) && \
     type(object.spec.template.metadata.labels) == map && \
     object.spec.template.metadata.labels.exists(k, k.startsWith('vmpool.dev/')))",
);

/// What the API server has to know of it.
pub(super) fn hook() -> HookSpec {
    let vms = kubevirt::virtual_machine();
    HookSpec::new(
        "stamp.vmpool.dev",
        HookKind::Mutating,
        PATH,
        rule(&vms.group, &vms.version, &vms.plural, &["CREATE"]),
        &[CONCERNS_US],
    )
}

/// The pool and the revision that a VM says it is of.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The pool by the name in the controller reference.
    pub pool: Lookup<Option<Arc<VirtualMachinePool>>>,
    /// The revision by the name in the label.
    pub revision: Lookup<Option<Arc<StoredRevision>>>,
}

/// What a VM says of itself.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Claim {
    /// Whose it is.
    pub owner: Owner,
    /// Name of the revision.
    pub revision: String,
}

impl Claim {
    /// Reads it off a VM. The error is what is missing.
    pub fn read(vm: &Value) -> Result<Self, Cause> {
        let references = vm
            .pointer("/metadata/ownerReferences")
            .and_then(Value::as_array);
        let owner = references
            .into_iter()
            .flatten()
            .filter_map(|reference| OwnerReference::deserialize(reference).ok())
            .filter(|reference| reference.controller == Some(true))
            .map(|reference| Owner::from(&reference))
            .find(Owner::is_pool);
        let Some(owner) = owner else {
            let field = Path::metadata().child("ownerReferences");
            let message =
                "a VM with vmpool.dev labels has to have its VirtualMachinePool as controller";
            return Err(Cause::required(field, message));
        };
        let revision = vm
            .pointer("/metadata/labels")
            .and_then(|map| map.get(labels::REVISION)?.as_str());
        match revision {
            Some(revision) if !revision.is_empty() => Ok(Self {
                owner,
                revision: revision.to_owned(),
            }),
            _ => {
                let message = "a member has to name the revision that it is stamped from";
                Err(Cause::required(label(labels::REVISION), message))
            }
        }
    }
}

/// Judges a VM that this program creates. An error is no verdict: the VM has to wait.
pub fn review_member(request: &Request, facts: &Facts) -> Result<Verdict, Unavailable> {
    if request.operation != Operation::Create {
        return Ok(Verdict::allowed());
    }
    let claim = match Claim::read(&request.object) {
        Ok(claim) => claim,
        Err(cause) => return Ok(Verdict::refused(vec![cause])),
    };
    let pool = facts.pool.as_ref().map_err(Clone::clone)?;
    let revision = facts.revision.as_ref().map_err(Clone::clone)?;
    let name = request.object_name();
    let (pool, revision, ordinal) =
        match identify(name, &claim, pool.as_deref(), revision.as_deref()) {
            Ok(identity) => identity,
            Err(causes) => return Ok(Verdict::refused(causes)),
        };
    let stamped = stamp(&StampInput {
        namespace: &request.namespace,
        pool: PoolIdentity {
            name: &claim.owner.name,
            uid: &claim.owner.uid,
        },
        config: &revision.config,
        revision: Revision {
            name: &revision.name,
            content_hash: &revision.content_hash,
            spec: &revision.spec,
        },
        inputs: &PoolInputs::of(pool),
        ordinal,
    });
    Ok(Verdict {
        patch: repair(&request.object, &stamped),
        ..Verdict::default()
    })
}

/// Judges a VM that somebody else creates.
pub fn review_stranger(request: &Request) -> Verdict {
    let mut verdict = Verdict::allowed();
    if request.operation != Operation::Create {
        return verdict;
    }
    let stripped = strip(&request.object);
    if !stripped.taken.is_empty() {
        verdict.warn(format!(
            "this VM is no member of a pool, so marks of one were taken off: {}",
            some_of(&stripped.taken)
        ));
    }
    verdict.patch = stripped.patch;
    verdict
}

/// Whether what a VM claims is real.
fn identify<'f>(
    name: &str,
    claim: &Claim,
    pool: Option<&'f VirtualMachinePool>,
    revision: Option<&'f StoredRevision>,
) -> Result<(&'f VirtualMachinePool, &'f StoredRevision, u32), Vec<Cause>> {
    let mut causes = Vec::new();
    let owners = Path::metadata().child("ownerReferences");
    let Owner {
        name: owner, uid, ..
    } = &claim.owner;
    let mut ordinal = None;
    match pool {
        None => {
            let message = format!("VirtualMachinePool {owner:?} does not exist");
            causes.push(Cause::invalid(owners, message));
        }
        Some(pool) if pool.metadata.uid.as_deref() != Some(uid) => {
            let message = format!("VirtualMachinePool {owner:?} has another UID than {uid}");
            causes.push(Cause::invalid(owners, message));
        }
        Some(pool) if pool.metadata.deletion_timestamp.is_some() => {
            let message = format!("VirtualMachinePool {owner:?} is being deleted");
            causes.push(Cause::forbidden(owners, message));
        }
        Some(pool) => {
            let prefix = pool.spec.vm_prefix(owner);
            ordinal = parse_ordinal(prefix, name);
            if ordinal.is_none() {
                let field = Path::metadata().child("name");
                let message = format!("{name:?} is no name of a member: {prefix}-<number>");
                causes.push(Cause::invalid(field, message));
            }
        }
    }
    if revision.is_none() {
        let message = format!(
            "ControllerRevision {:?} of a config does not exist",
            claim.revision
        );
        causes.push(Cause::invalid(label(labels::REVISION), message));
    }
    match (pool, revision, ordinal) {
        (Some(pool), Some(revision), Some(ordinal)) if causes.is_empty() => {
            Ok((pool, revision, ordinal))
        }
        _ => Err(causes),
    }
}

fn label(key: &str) -> Path {
    Path::metadata().child("labels").key(key)
}
