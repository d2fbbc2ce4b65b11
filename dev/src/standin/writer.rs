//! Writes of one piece of work, whose answers go into the cache at once.
//!
//! So the next decision of that work sees its own writes. No retries: a conflict ends the work,
//! and the queue brings it back with fresh objects.

use serde_json::Value;

use super::api::{Answer, Patch, PatchType, code};
use super::kinds::Kind;
use super::object::{Key, is_deleting, uid};
use super::queue::Work;
use super::shared::Shared;

/// Writes on behalf of a piece of work.
#[derive(Clone, Copy)]
pub(super) struct Writer<'a> {
    pub(super) shared: &'a Shared,
    pub(super) work: &'a Work,
}

impl Writer<'_> {
    pub(super) async fn create(
        &self,
        kind: Kind,
        namespace: &str,
        object: &Value,
    ) -> Result<(), kube::Error> {
        let answer = self.shared.api.create(kind, namespace, object).await;
        self.take(kind, answer)
    }

    pub(super) async fn patch(
        &self,
        kind: Kind,
        key: &Key,
        sub: &str,
        patch: &Patch,
    ) -> Result<(), kube::Error> {
        let answer = self.shared.api.patch(kind, key, sub, patch).await;
        self.take(kind, answer)
    }

    pub(super) async fn patch_as(
        &self,
        kind: Kind,
        key: &Key,
        sub: &str,
        patch_type: PatchType,
        body: &Value,
    ) -> Result<(), kube::Error> {
        let api = &self.shared.api;
        let answer = api.patch_as(kind, key, sub, patch_type, body).await;
        self.take(kind, answer)
    }

    /// Deletes exactly this object; that it is gone already is fine.
    pub(super) async fn delete(
        &self,
        kind: Kind,
        object: &Value,
        grace_seconds: Option<u64>,
    ) -> Result<(), kube::Error> {
        let api = &self.shared.api;
        let answer = api
            .delete(kind, &Key::of(object), uid(object), grace_seconds)
            .await;
        match answer {
            Ok(answer) if stays(&answer) => self.shared.take_object(kind, answer, Some(self.work)),
            Ok(_) => self.shared.take_deletion(kind, object),
            Err(error) if code(&error) == 404 => self.shared.take_deletion(kind, object),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn take(&self, kind: Kind, answer: Answer) -> Result<(), kube::Error> {
        self.shared.take_object(kind, answer?, Some(self.work));
        Ok(())
    }
}

/// Whether the answer to a DELETE is the object on its way out, not yet out.
fn stays(answer: &Value) -> bool {
    is_deleting(answer) && answer["metadata"]["deletionGracePeriodSeconds"] != 0
        || !answer["metadata"]["finalizers"].is_null()
}
