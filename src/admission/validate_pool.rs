//! Says whether a pool can work: names and what is derived from them, what its config has room for, other
//! pools that want the same names, and fields that do nothing yet.
//!
//! What the schema's own rules say (unions, percentages, ranges) is not repeated. A rule that needs an
//! object that can't be looked up is skipped with a warning; the controller meets the same facts again.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Deserialize as _;
use serde_json::Value;

use super::field::{Cause, Path};
use super::hooks::{HookKind, HookSpec, NOT_BEING_DELETED, SPEC_CHANGED, rule};
use super::metadata::{
    ANNOTATION_BUDGET, check_annotations, check_labels, check_names, is_dns_subdomain, not_a_name,
};
use super::missing;
use super::objects::{Lookup, Named, VmName};
use super::pool_warnings;
use super::review::{Operation, Request};
use super::unsupported;
use super::verdict::{Verdict, some_of};
use crate::api::annotations::STAMP;
use crate::api::pool::MAX_REPLICAS;
use crate::api::{
    GROUP, POOL_PLURAL, VERSION, VirtualMachineConfig, VirtualMachinePool, VirtualMachinePoolSpec,
};
use crate::stamp::names::{
    LABEL_BUDGET, NameRefusal, check_config_name, check_disk_names, check_ordinal, check_pool_name,
    check_prefix,
};
use crate::stamp::references::disk_templates_of;
use crate::stamp::sharing::{Severity, for_several_vms};
use crate::stamp::{PoolInputs, StampMark};

/// Where it is served.
pub const PATH: &str = "/admission/validate/virtualmachinepools";

/// What the API server has to know of it.
pub(super) fn hook() -> HookSpec {
    HookSpec::new(
        "validate-pool.vmpool.dev",
        HookKind::Validating,
        PATH,
        rule(GROUP, VERSION, POOL_PLURAL, &["CREATE", "UPDATE"]),
        &[NOT_BEING_DELETED, SPEC_CHANGED],
    )
}

/// Other objects that a verdict on a pool depends on.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The config that it names.
    pub config: Lookup<Option<Arc<VirtualMachineConfig>>>,
    /// All pools of its namespace, this one included or not.
    pub pools: Lookup<Vec<Arc<VirtualMachinePool>>>,
    /// VMs named as its members would be; not asked for where no name is new.
    pub vms: Option<Lookup<Vec<VmName>>>,
}

/// Judges the pool in `request`.
pub fn review(request: &Request, facts: &Facts) -> Verdict {
    if !request.operation.writes() || request.leaves_spec_alone() {
        return Verdict::allowed();
    }
    let pool = match Pool::read(&request.object, request.object_name()) {
        Ok(pool) => pool,
        Err(cause) => return Verdict::refused(vec![cause]),
    };
    let mut verdict = pool.judge(facts);
    let stored = request
        .stored()
        .and_then(|stored| Pool::read(stored, request.object_name()).ok());
    if let Some(stored) = stored {
        verdict = verdict.since(&stored.judge(facts));
        verdict.causes.extend(pool.compared_with(&stored));
    }
    for doubt in facts.doubts() {
        verdict.warn(doubt);
    }
    verdict
}

/// What has to be known of a request before [`Facts`] can be looked up: the config's name, and the prefix
/// whose VMs matter, if any do. `None` where nothing has to be looked up: of what can't be read, which is refused
/// without facts, and of an edit that changes nothing of what facts are compared with. Whatever they say of
/// such a pool, they said of the stored one.
pub fn questions(request: &Request) -> Option<(String, Option<String>)> {
    let pool = Pool::read(&request.object, request.object_name()).ok()?;
    let stored = request
        .stored()
        .and_then(|stored| Pool::read(stored, request.object_name()).ok());
    let names = |pool: &Pool<'_>| (pool.prefix().to_owned(), pool.spec().ordinal_start());
    let compared = |pool: &Pool<'_>| {
        let inputs = PoolInputs::of(&pool.object);
        let replicas = pool.spec().replicas();
        let relies = pool_warnings::relies_on_readiness(pool.spec());
        (
            pool.config().to_owned(),
            replicas,
            relies,
            names(pool),
            inputs,
        )
    };
    if stored
        .as_ref()
        .is_some_and(|stored| compared(stored) == compared(&pool))
    {
        return None;
    }
    let has_new_names = request.operation == Operation::Create
        || stored.is_none_or(|stored| names(&stored) != names(&pool));
    let prefix = has_new_names.then(|| pool.prefix().to_owned());
    Some((pool.config().to_owned(), prefix))
}

/// What the pool's next VMs refer to in a config with this spec.
pub(super) fn wanted(request: &Request, spec: &Value) -> BTreeSet<Named> {
    let Ok(pool) = Pool::read(&request.object, request.object_name()) else {
        return BTreeSet::new();
    };
    let stored = request
        .stored()
        .and_then(|stored| Pool::read(stored, request.object_name()).ok())
        // With other names or another config all are new.
        .filter(|stored| {
            PoolInputs::of(&stored.object) == PoolInputs::of(&pool.object)
                && stored.config() == pool.config()
        });
    missing::wanted(
        spec,
        &PoolInputs::of(&pool.object),
        pool.spec(),
        pool.spec().replicas(),
        stored.map(|stored| stored.spec().replicas()),
    )
}

/// The bounds of `replicas`, the same wherever it is written.
pub(super) fn check_replicas(replicas: i64, spec: Option<&VirtualMachinePoolSpec>) -> Vec<Cause> {
    let field = Path::spec().child("replicas");
    if !(0..=i64::from(MAX_REPLICAS)).contains(&replicas) {
        let message = format!("{replicas} is out of range: must be from 0 to {MAX_REPLICAS}");
        return vec![Cause::invalid(field, message)];
    }
    let start = spec.map_or(0, VirtualMachinePoolSpec::ordinal_start);
    let count = u32::try_from(replicas).expect("in the range just checked");
    let last = start.saturating_add(count.saturating_sub(1));
    let refusal = check_ordinal(last).err();
    refusal
        .map(|refusal| Cause::invalid(field, refusal.to_string()))
        .into_iter()
        .collect()
}

/// Whether a stored pool may get more VMs: not under names that can't be. `stored` is what it had.
pub(super) fn check_growth(
    pool: &str,
    spec: &VirtualMachinePoolSpec,
    stored: Option<i64>,
    replicas: i64,
) -> Option<Cause> {
    if stored.is_none_or(|stored| replicas <= stored) {
        return None;
    }
    let refusal = check_prefix(spec.vm_prefix(pool)).err()?;
    let message = format!("no VM can be added: {refusal}");
    Some(Cause::invalid(Path::spec().child("replicas"), message))
}

/// What speaks against more than one VM of this config in this pool: the same for a pool that is written and
/// for one that is scaled. What makes the second VM impossible is a cause, the rest a warning.
pub(super) fn judge_several(
    pool: &VirtualMachinePool,
    config: &VirtualMachineConfig,
    verdict: &mut Verdict,
) {
    let name = &pool.spec.config.name;
    let spec = Value::Object(config.spec.fields.clone());
    for finding in for_several_vms(&spec, &PoolInputs::of(pool)) {
        let message = format!(
            "VirtualMachineConfig {name:?}, {}: {}",
            Path::below_spec(&finding.path),
            finding.message
        );
        match finding.severity {
            Severity::Refuse => {
                let field = Path::spec().child("replicas");
                verdict.causes.push(Cause::invalid(field, message));
            }
            Severity::Warn => verdict.warn(message),
        }
    }
}

impl Facts {
    /// Where there is nothing to ask ([`questions`]).
    pub(super) fn none() -> Self {
        Self {
            config: Ok(None),
            pools: Ok(Vec::new()),
            vms: None,
        }
    }

    /// What could not be checked.
    fn doubts(&self) -> impl Iterator<Item = String> {
        let vms = self.vms.as_ref().and_then(|vms| vms.as_ref().err());
        [self.config.as_ref().err(), self.pools.as_ref().err(), vms]
            .into_iter()
            .flatten()
            .map(|unavailable| format!("not all was checked: {unavailable}"))
    }
}

/// A pool as it is written.
struct Pool<'a> {
    name: &'a str,
    uid: Option<&'a str>,
    object: VirtualMachinePool,
    members: i64,
}

impl<'a> Pool<'a> {
    /// Status and metadata are read no further than needed: what is odd there is nobody's fault now.
    fn read(object: &'a Value, name: &'a str) -> Result<Self, Cause> {
        let Some(spec) = object.get("spec").filter(|spec| !spec.is_null()) else {
            return Err(Cause::required(Path::spec(), "a pool has to have a spec"));
        };
        let spec = VirtualMachinePoolSpec::deserialize(spec)
            .map_err(|error| Cause::invalid(Path::spec(), format!("can't be read: {error}")))?;
        let members = object.pointer("/status/replicas").and_then(Value::as_i64);
        Ok(Self {
            name,
            uid: object.pointer("/metadata/uid").and_then(Value::as_str),
            object: VirtualMachinePool::new(name, spec),
            members: members.unwrap_or_default(),
        })
    }

    fn spec(&self) -> &VirtualMachinePoolSpec {
        &self.object.spec
    }

    fn config(&self) -> &str {
        &self.object.spec.config.name
    }

    fn prefix(&self) -> &str {
        self.spec().vm_prefix(self.name)
    }

    /// All that can be said of it by itself and with the facts.
    fn judge(&self, facts: &Facts) -> Verdict {
        let mut causes = self.check_names();
        causes.extend(self.check_metadata());
        causes.extend(unsupported::causes(self.spec()));
        if let Ok(pools) = &facts.pools {
            causes.extend(self.check_neighbours(pools));
        }
        let mut verdict = Verdict::refused(causes);
        match &facts.config {
            Ok(Some(config)) => self.judge_config(config, &mut verdict),
            Ok(None) => verdict.warn(format!(
                "VirtualMachineConfig {:?} does not exist: no VM is created until it does",
                self.config()
            )),
            Err(_) => {}
        }
        if let (Ok(pools), Ok(Some(config))) = (&facts.pools, &facts.config) {
            let templates = disk_templates_of(&config.spec.fields);
            pool_warnings::of_nested_prefixes(&self.object, pools, &templates, &mut verdict);
        }
        if let Some(Ok(vms)) = &facts.vms {
            pool_warnings::of_taken_names(self.spec(), self.uid, vms, &mut verdict);
        }
        verdict
    }

    fn check_names(&self) -> Vec<Cause> {
        let mut causes = Vec::new();
        let mut check = |field: Path, result: Result<(), NameRefusal>| {
            causes.extend(
                result
                    .err()
                    .map(|refusal| Cause::invalid(field, refusal.to_string())),
            );
        };
        let name = Path::metadata().child("name");
        check(name, check_pool_name(self.name));
        let config = Path::spec().children(&["config", "name"]);
        check(config.clone(), check_config_name(self.config()));
        if !is_dns_subdomain(self.config()) {
            causes.push(not_a_name(config, self.config()));
        }
        causes.extend(self.check_prefix());
        causes.extend(check_replicas(
            self.spec().replicas.map_or(1, i64::from),
            Some(self.spec()),
        ));
        if let Some(revision) = &self.spec().config.revision
            && !(is_dns_subdomain(revision) && revision.len() <= LABEL_BUDGET)
        {
            let field = Path::spec().children(&["config", "revision"]);
            causes.push(not_a_name(field, revision));
        }
        causes
    }

    fn check_prefix(&self) -> Option<Cause> {
        let refusal = check_prefix(self.prefix()).err()?;
        let given = self.spec().name_generation.as_ref();
        let message = if given.is_some_and(|names| names.vm_prefix.is_some()) {
            refusal.to_string()
        } else {
            format!("has to be set, since the pool's name can't be used: {refusal}")
        };
        Some(Cause::invalid(prefix_field(), message))
    }

    fn check_metadata(&self) -> Vec<Cause> {
        let mut causes = Vec::new();
        if let Some(metadata) = &self.spec().virtual_machine_metadata {
            let field = Path::spec().child("virtualMachineMetadata");
            let labels = metadata.labels.iter();
            causes.extend(check_labels(
                &field.child("labels"),
                labels.map(|(key, value)| (key.as_str(), value.as_str())),
            ));
            let annotations = metadata.annotations.iter();
            causes.extend(check_annotations(
                &field.child("annotations"),
                annotations.map(|(key, value)| (key.as_str(), value.as_str())),
            ));
        }
        causes.extend(self.check_mark());
        if let Some(names) = &self.spec().name_generation {
            let field = Path::spec().child("nameGeneration");
            for (list, shared) in [
                ("sharedSecrets", &names.shared_secrets),
                ("sharedConfigMaps", &names.shared_config_maps),
                ("sharedVolumeClaims", &names.shared_volume_claims),
            ] {
                causes.extend(check_names(&field.child(list), shared));
            }
        }
        causes
    }

    /// The mark on each VM holds what the pool says of its VMs, annotations included: they count twice.
    fn check_mark(&self) -> Option<Cause> {
        let inputs = PoolInputs::of(&self.object);
        let own: usize = inputs
            .virtual_machine_metadata
            .annotations
            .iter()
            .map(|(key, value)| key.len() + value.len())
            .sum();
        let size = own + StampMark::new("", &inputs).to_annotation().len();
        (size > ANNOTATION_BUDGET).then(|| {
            let message = format!(
                "virtualMachineMetadata and nameGeneration make {size} bytes of annotations on each VM, which has \
                 its own and, in {STAMP}, a copy of both; at most {ANNOTATION_BUDGET}"
            );
            Cause::invalid(Path::spec(), message)
        })
    }

    /// Two pools of one prefix would hold each other's numbers.
    fn check_neighbours(&self, pools: &[Arc<VirtualMachinePool>]) -> Option<Cause> {
        let mut others: Vec<&str> = pools
            .iter()
            .filter(|pool| pool.metadata.deletion_timestamp.is_none())
            .filter_map(|pool| Some((pool.metadata.name.as_deref()?, &pool.spec)))
            .filter(|(name, spec)| *name != self.name && spec.vm_prefix(name) == self.prefix())
            .map(|(name, _)| name)
            .collect();
        if others.is_empty() {
            return None;
        }
        others.sort_unstable();
        let message = format!(
            "{:?} is taken by pool {}: VMs of both would have the same names",
            self.prefix(),
            some_of(&others)
        );
        Some(Cause::invalid(prefix_field(), message))
    }

    /// Whether the config has room for this pool's names, and bears as many VMs.
    fn judge_config(&self, config: &VirtualMachineConfig, verdict: &mut Verdict) {
        let name = self.config();
        for template in disk_templates_of(&config.spec.fields) {
            if let Err(refusal) = check_disk_names(self.prefix(), &template) {
                let message = format!("VirtualMachineConfig {name:?}: {refusal}");
                verdict.causes.push(Cause::invalid(prefix_field(), message));
            }
        }
        if let Some(warning) = pool_warnings::of_readiness(self.spec(), &config.spec.fields) {
            verdict.warn(warning);
        }
        if self.spec().replicas() >= 2 {
            judge_several(&self.object, config, verdict);
        }
    }

    /// What the change from `stored` to this can't be, though both could stand by themselves.
    fn compared_with(&self, stored: &Self) -> Vec<Cause> {
        let replicas = |pool: &Self| pool.spec().replicas.map_or(1, i64::from);
        let mut causes: Vec<Cause> = check_growth(
            self.name,
            self.spec(),
            Some(replicas(stored)),
            replicas(self),
        )
        .into_iter()
        .collect();
        // The schema says the same of a prefix that is written down; this is for one that is the pool's name.
        if stored.members > 0 && stored.prefix() != self.prefix() {
            let message = format!(
                "can't be changed from {:?} while the pool has VMs: scale to 0 first, or make another pool",
                stored.prefix()
            );
            causes.push(Cause::invalid(prefix_field(), message));
        }
        causes
    }
}

fn prefix_field() -> Path {
    Path::spec().children(&["nameGeneration", "vmPrefix"])
}
