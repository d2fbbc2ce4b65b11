//! Looks after one config: its spec's revision, its old revisions, its status. A config at rest causes no
//! call.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use kube::Resource as _;
use kube::api::ApiResource;
use tokio::time::Instant;

use super::Shared;
use super::calls::{CallFailure, Place};
use super::events::EventWriter;
use super::metrics::{Deed, Task};
use super::revisions::{self, DEFAULT_HISTORY_LIMIT, Step};
use super::status::{StatusWriter, Verdict};
use super::supervise::{Actor, Next, earliest};
use super::trial::{Accepted, Trial};
use super::window::Backoff;
use crate::api::conditions::{reasons, types};
use crate::api::{CONFIG_KIND, POOL_KIND, VirtualMachineConfig, VirtualMachineConfigStatus};
use crate::cache::{ConfigEntry, Key, RevisionEntry};
use crate::clock;
use crate::plan::Note;

/// Between two passes. Many changes at once, such as 1000 VMs that lose a label, are one pass.
const PAUSE: Duration = Duration::from_millis(100);

/// One config's task.
pub(super) struct ConfigTask {
    shared: Arc<Shared>,
    key: Key,
    uid: String,
    events: EventWriter,
    status: StatusWriter<VirtualMachineConfigStatus>,
    /// What was said of it last, whether or not the cache shows it yet.
    said: Option<VirtualMachineConfigStatus>,
    backoff: Backoff,
    /// What was numbered last, as long as the cache may not show it yet: name and number.
    numbered: Option<(String, i64)>,
    trial: Trial,
    /// Why no VM can come of it, as far as an event has told of it.
    told: Option<String>,
    fault: Option<String>,
}

impl ConfigTask {
    pub(super) fn new(shared: Arc<Shared>, key: Key, uid: String, fault: Option<String>) -> Self {
        let regarding = k8s_openapi::api::core::v1::ObjectReference {
            api_version: Some(VirtualMachineConfig::api_version(&()).into_owned()),
            kind: Some(CONFIG_KIND.to_owned()),
            namespace: Some(key.namespace.clone()),
            name: Some(key.name.clone()),
            uid: Some(uid.clone()),
            ..Default::default()
        };
        Self {
            events: EventWriter::new(regarding, &shared.instance),
            shared,
            key,
            uid,
            status: StatusWriter::default(),
            said: None,
            backoff: Backoff::default(),
            numbered: None,
            trial: Trial::default(),
            told: None,
            fault,
        }
    }

    async fn tend(&mut self, config: &ConfigEntry) -> Result<Next, CallFailure> {
        let refused = refused(config, self.shared.declines(&self.key.namespace));
        let accepted = match refused {
            Some(refused) => refused,
            None => self.trial.verdict(&self.shared, config).await,
        };
        if accepted.status == "False" {
            self.tell(&accepted).await;
            return self.write_status(config, None, accepted).await;
        }
        self.told = None;
        let revisions = self.known_revisions();
        let latest = self.ensure_revision(config, &revisions).await?;
        let wait = self
            .write_status(config, latest.as_deref(), accepted)
            .await?;
        if let Some(latest) = &latest {
            self.prune(config, &revisions, latest).await?;
        }
        Ok(wait)
    }

    /// Says once why no VM can come of the config.
    async fn tell(&mut self, accepted: &Accepted) {
        if self.told.as_ref() == Some(&accepted.message) {
            return;
        }
        self.told = Some(accepted.message.clone());
        let note = Note {
            warning: true,
            reason: accepted.reason,
            message: accepted.message.clone(),
        };
        self.events
            .send(&self.shared.calls, &note, clock::now())
            .await;
    }

    /// The cached revisions, with the number that was given last even where the cache doesn't show it yet.
    fn known_revisions(&mut self) -> Vec<Arc<RevisionEntry>> {
        let caches = &self.shared.caches;
        let mut revisions = caches.revisions_of_config(&self.key.namespace, &self.key.name);
        revisions.retain(|revision| !revision.id.deleting);
        if let Some((name, number)) = &self.numbered {
            let shown = revisions.iter_mut().find(|one| one.id.name == *name);
            match shown {
                Some(revision) if revision.number < *number => {
                    Arc::make_mut(revision).number = *number;
                }
                Some(_) | None => self.numbered = None,
            }
        }
        revisions
    }

    /// Makes the spec's revision the newest. Returns its name; `None` if there can't be one.
    async fn ensure_revision(
        &mut self,
        config: &ConfigEntry,
        revisions: &[Arc<RevisionEntry>],
    ) -> Result<Option<String>, CallFailure> {
        let shared = Arc::clone(&self.shared);
        match revisions::step(config, revisions) {
            Step::Collide { name } => {
                self.report_collision(&name).await;
                Ok(None)
            }
            Step::Create { name, number } => {
                let pools = shared
                    .caches
                    .pools_of_config(&config.id.namespace, &config.id.name);
                let mut owners = vec![revisions::owner(CONFIG_KIND, &config.id)];
                let using = pools.iter().filter(|pool| !pool.id.deleting);
                owners.extend(using.map(|pool| revisions::owner(POOL_KIND, &pool.id)));
                match revisions::create(&shared, config, &owners, &name, number).await {
                    Ok(()) => {
                        tracing::info!(
                            config.namespace = config.id.namespace,
                            config.name = config.id.name,
                            revision = name,
                            number,
                            "Made a revision"
                        );
                        Ok(Some(name))
                    }
                    Err(failure) if failure.is_already_exists() => {
                        self.take_existing(config, name, number).await
                    }
                    Err(failure) => Err(failure),
                }
            }
            Step::Keep { name } => {
                let found = revisions.iter().find(|revision| revision.id.name == name);
                if let Some(revision) = found.filter(|found| !found.is_owned_by(&self.uid)) {
                    // Left from an earlier config of that name; its pools have kept it.
                    let owner = revisions::owner(CONFIG_KIND, &config.id);
                    revisions::add_owner(&shared, &revision.id, owner).await?;
                }
                Ok(Some(name))
            }
            Step::Renumber { name, number } => {
                if let Some(revision) = revisions.iter().find(|one| one.id.name == name) {
                    revisions::renumber(&shared, &revision.id, number).await?;
                    self.numbered = Some((name.clone(), number));
                }
                Ok(Some(name))
            }
        }
    }

    /// The revision was made before, and the cache doesn't show it (yet): a repeated call, or an object of
    /// that name without our label.
    async fn take_existing(
        &mut self,
        config: &ConfigEntry,
        name: String,
        number: i64,
    ) -> Result<Option<String>, CallFailure> {
        let found = revisions::read(&self.shared, &config.id.namespace, &name).await?;
        let Some(found) = found.filter(|found| {
            found.config == config.id.name && revisions::has_content(&found.spec, config)
        }) else {
            self.report_collision(&name).await;
            return Ok(None);
        };
        if found.number < number {
            revisions::renumber(&self.shared, &found.id, number).await?;
        }
        Ok(Some(name))
    }

    async fn report_collision(&mut self, name: &str) {
        let message = format!(
            "ControllerRevision {name} holds something else than this config's spec; \
             delete it if no VM is labelled with it"
        );
        let note = Note {
            warning: true,
            reason: reasons::REVISION_PENDING,
            message,
        };
        self.events
            .send(&self.shared.calls, &note, clock::now())
            .await;
    }

    async fn prune(
        &self,
        config: &ConfigEntry,
        revisions: &[Arc<RevisionEntry>],
        latest: &str,
    ) -> Result<(), CallFailure> {
        let limit = config.history_limit.unwrap_or(DEFAULT_HISTORY_LIMIT);
        if revisions.len() <= limit {
            return Ok(());
        }
        let used = revisions::used(&self.shared.caches, &self.key, latest);
        for revision in revisions::prunable(revisions, limit, &used) {
            revisions::delete(&self.shared, &revision.id).await?;
            tracing::info!(
                config.namespace = self.key.namespace,
                config.name = self.key.name,
                revision = revision.id.name,
                "Pruned a revision"
            );
        }
        Ok(())
    }

    async fn write_status(
        &mut self,
        config: &ConfigEntry,
        latest: Option<&str>,
        accepted: Accepted,
    ) -> Result<Next, CallFailure> {
        let shared = Arc::clone(&self.shared);
        let pools = shared
            .caches
            .pools_of_config(&config.id.namespace, &config.id.name)
            .len();
        let before = self.said.as_ref().unwrap_or(&config.status);
        let wanted = status(config, before, latest, pools, accepted, clock::now());
        self.said = Some(wanted.clone());
        let now = Instant::now();
        let version = &config.id.resource_version;
        let verdict = self
            .status
            .judge(&config.status, version, &wanted, true, now);
        let patch = match verdict {
            Verdict::Stored => return Ok(Next::Idle),
            Verdict::Wait(due) => return Ok(Next::At(due)),
            Verdict::Write(patch) => patch,
        };
        let resource = ApiResource::erase::<VirtualMachineConfig>(&());
        let place = Place {
            resource: &resource,
            namespace: &config.id.namespace,
            name: &config.id.name,
        };
        match shared.calls.patch_status(place, patch).await {
            Ok(written) => {
                shared.metrics.did(Deed::Status);
                let version = written.metadata.resource_version.unwrap_or_default();
                self.status.wrote(&wanted, &version, now);
                Ok(Next::Idle)
            }
            Err(failure) if failure.is_not_found() => Ok(Next::Idle),
            Err(failure) => {
                shared.metrics.failed(Deed::Status, failure.category());
                self.status.failed(now);
                Err(failure)
            }
        }
    }
}

/// Why no VM can come of `config`, whatever KubeVirt says; `declined` is why nothing is done in its namespace.
fn refused(config: &ConfigEntry, declined: Option<String>) -> Option<Accepted> {
    let (reason, message) = match (declined, &config.unreadable) {
        (Some(message), _) => (reasons::OWN_NAMESPACE, message),
        (None, Some(message)) => (reasons::INVALID_SPEC, message.clone()),
        (None, None) => return None,
    };
    Some(Accepted {
        status: "False",
        reason,
        message,
    })
}

/// The status of a config, of which `before` was said.
fn status(
    config: &ConfigEntry,
    before: &VirtualMachineConfigStatus,
    latest: Option<&str>,
    pools: usize,
    accepted: Accepted,
    now: Timestamp,
) -> VirtualMachineConfigStatus {
    let before = before.conditions.iter().find(|condition| {
        condition.type_ == types::ACCEPTED && condition.status == accepted.status
    });
    let whole_second = Timestamp::from_second(now.as_second()).unwrap_or(now);
    VirtualMachineConfigStatus {
        observed_generation: Some(config.id.generation),
        latest_revision: latest.map(str::to_owned),
        pools: i32::try_from(pools).unwrap_or(i32::MAX),
        conditions: vec![Condition {
            type_: types::ACCEPTED.to_owned(),
            status: accepted.status.to_owned(),
            reason: accepted.reason.to_owned(),
            message: accepted.message,
            observed_generation: Some(config.id.generation),
            last_transition_time: before.map_or(Time(whole_second), |condition| {
                condition.last_transition_time.clone()
            }),
        }],
    }
}

impl Actor for ConfigTask {
    const TASK: Task = Task::Config;

    async fn pass(&mut self) -> Next {
        if let Some(message) = self.fault.take() {
            let note = Note {
                warning: true,
                reason: reasons::INTERNAL_ERROR,
                message,
            };
            self.events
                .send(&self.shared.calls, &note, clock::now())
                .await;
        }
        if !self.shared.caches.is_synced() {
            // Whoever completes a cache wakes everybody.
            return Next::Idle;
        }
        let found = self
            .shared
            .caches
            .config(&self.key.namespace, &self.key.name);
        let Some(config) = found.filter(|config| config.id.uid == self.uid) else {
            return Next::Over;
        };
        if config.id.deleting {
            return Next::Idle;
        }
        match self.tend(&config).await {
            Ok(next) => {
                self.backoff.reset();
                match self.trial.next_due() {
                    Some(due) => earliest(next, due),
                    None => next,
                }
            }
            Err(failure) => {
                let delay = self.backoff.next(failure.retry_after(), false);
                tracing::warn!(
                    config.namespace = self.key.namespace,
                    config.name = self.key.name,
                    error = %failure,
                    retry_in = ?delay,
                    "Failed to look after a config"
                );
                earliest(Next::Idle, Instant::now() + delay)
            }
        }
    }

    fn pause(&self) -> Duration {
        PAUSE
    }
}

#[cfg(test)]
mod tests;
