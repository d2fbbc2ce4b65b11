//! Keeps one kind's cache equal to the server: list in pages, then watch from there, for ever.
//!
//! A kind that is not served (its CRD is absent) counts as an empty list and is asked for again
//! every [`ABSENT`], so CRDs may come and go while the stand-in runs. Whatever breaks a watch, it
//! resumes from the last version seen, and lists again only when the server has forgotten that.

use std::time::Duration;

use futures::StreamExt;
use http::{Request, header};
use kube::Client;
use kube::core::WatchEvent;
use serde_json::Value;

use super::api::code;
use super::kinds::Kind;
use super::object::{resource_version, text};
use super::shared::Shared;

/// How often a kind that is not served is asked for again.
const ABSENT: Duration = Duration::from_millis(300);

/// How long to wait after any other error, such as an API server that restarts.
const BROKEN: Duration = Duration::from_millis(200);

/// The API server ends a watch after this time; shorter than the client's read timeout (295 s).
const WATCH_SECONDS: u32 = 240;

const PAGE: u32 = 500;

/// Runs until the task is aborted.
pub(super) async fn run(shared: &Shared, kind: Kind) {
    let mut version = None;
    loop {
        let from = match version.take() {
            Some(version) => version,
            None => match list(shared, kind).await {
                Ok(version) => version,
                Err(error) => {
                    pause_after(shared, kind, &error).await;
                    continue;
                }
            },
        };
        version = watch(shared, kind, from).await;
    }
}

async fn pause_after(shared: &Shared, kind: Kind, error: &kube::Error) {
    if code(error) == 404 {
        shared.take_list(kind, Vec::new());
        tokio::time::sleep(ABSENT).await;
    } else {
        tracing::debug!(kind = kind.kind(), %error, "Failed to list");
        tokio::time::sleep(BROKEN).await;
    }
}

async fn list(shared: &Shared, kind: Kind) -> Result<String, kube::Error> {
    let mut objects = Vec::new();
    let mut next = String::new();
    loop {
        let query = format!("limit={PAGE}{}{next}", kind.selector());
        let request = request(kind, &query, "PartialObjectMetadataList")?;
        let mut page: Value = shared.api.client().request(request).await?;
        if let Some(items) = page.get_mut("items").and_then(Value::as_array_mut) {
            objects.append(items);
        }
        let metadata = &page["metadata"];
        let more = text(&metadata["continue"]);
        if more.is_empty() {
            let version = text(&metadata["resourceVersion"]).to_owned();
            shared.take_list(kind, objects);
            return Ok(version);
        }
        next = format!("&continue={more}");
    }
}

/// Watches until something ends it; returns the version to resume from, or nothing when a new
/// list is needed.
async fn watch(shared: &Shared, kind: Kind, from: String) -> Option<String> {
    let mut last = from;
    match open(shared.api.client(), kind, &last).await {
        Ok(mut events) => {
            while let Some(event) = events.next().await {
                match event {
                    Ok(WatchEvent::Added(object) | WatchEvent::Modified(object)) => {
                        resource_version(&object).clone_into(&mut last);
                        shared.take_object(kind, object, None);
                    }
                    Ok(WatchEvent::Deleted(object)) => {
                        resource_version(&object).clone_into(&mut last);
                        shared.take_deletion(kind, &object);
                    }
                    Ok(WatchEvent::Bookmark(bookmark)) => {
                        last = bookmark.metadata.resource_version;
                    }
                    Ok(WatchEvent::Error(status)) if status.code == 410 => return None,
                    Ok(WatchEvent::Error(_)) | Err(_) => break,
                }
            }
        }
        Err(error) if matches!(code(&error), 404 | 410) => return None,
        Err(_) => {}
    }
    tokio::time::sleep(BROKEN).await;
    Some(last)
}

async fn open(
    client: &Client,
    kind: Kind,
    version: &str,
) -> Result<
    std::pin::Pin<Box<dyn futures::Stream<Item = Result<WatchEvent<Value>, kube::Error>> + Send>>,
    kube::Error,
> {
    let query = format!(
        "watch=true&allowWatchBookmarks=true&timeoutSeconds={WATCH_SECONDS}\
         &resourceVersion={version}{}",
        kind.selector()
    );
    let request = request(kind, &query, "PartialObjectMetadata")?;
    let events = client.request_events::<Value>(request).await?;
    Ok(events.boxed())
}

fn request(kind: Kind, query: &str, partial: &str) -> Result<Request<Vec<u8>>, kube::Error> {
    let accept = if kind.is_metadata_only() {
        format!("application/json;as={partial};g=meta.k8s.io;v=v1")
    } else {
        "application/json".to_owned()
    };
    Request::get(format!("{}?{query}", kind.collection("")))
        .header(header::ACCEPT, accept)
        .body(Vec::new())
        .map_err(kube::Error::HttpError)
}
