//! What comes with a request beside its path: options of the query, the content type, the body. Everything has
//! a bound, and a body that is too long is read to its end all the same, so that its sender gets an answer and
//! not a broken connection.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, header};
use futures::StreamExt as _;

use super::refusal::Refusal;
use crate::api::MANAGER;

/// Longest body that is read: a Scale or a list of names is a few kilobytes.
const MAX_BODY: usize = 256 * 1024;
/// So much of a longer one is taken and thrown away.
const MAX_DISCARDED: usize = 8 * 1024 * 1024;
/// How long a body may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest name of a field manager (`apimachinery/pkg/apis/meta/v1/validation`).
const MAX_MANAGER: usize = 128;

/// Options of a write.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Options {
    /// Whether nothing is to be stored.
    pub(super) dry_run: bool,
    /// Who owns the fields that are written.
    pub(super) manager: String,
}

impl Options {
    /// Reads the query, and the client's name for want of a manager, as the API server does.
    pub(super) fn read(query: Option<&str>, headers: &HeaderMap) -> Result<Self, Refusal> {
        let mut dry_run = false;
        let mut manager = String::new();
        for (key, value) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
            match (&*key, &*value) {
                ("dryRun", "All") => dry_run = true,
                ("dryRun", other) => {
                    return Err(Refusal::bad_request(format!(
                        "dryRun: unsupported value {other:?}: the only one is \"All\""
                    )));
                }
                ("fieldManager", name) => {
                    let fits = name.len() <= MAX_MANAGER && !name.contains(char::is_control);
                    if !fits {
                        return Err(Refusal::bad_request(format!(
                            "fieldManager: at most {MAX_MANAGER} printable characters"
                        )));
                    }
                    name.clone_into(&mut manager);
                }
                _ => {}
            }
        }
        if manager.is_empty() {
            let name = client_name(headers).unwrap_or(MANAGER);
            name.clone_into(&mut manager);
        }
        Ok(Self { dry_run, manager })
    }
}

/// `kubectl` of `kubectl/v1.36.3 (linux/amd64)`.
fn client_name(headers: &HeaderMap) -> Option<&str> {
    let agent = headers.get(header::USER_AGENT)?.to_str().ok()?;
    let name = agent.split('/').next()?.trim();
    (!name.is_empty() && name.len() <= MAX_MANAGER).then_some(name)
}

/// The media type of the body, in lower case; `None` if none is given.
pub(super) fn content_type(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(header::CONTENT_TYPE)?;
    let text = value.to_str().unwrap_or("unreadable");
    let media_type = text.split(';').next().unwrap_or_default().trim();
    Some(media_type.to_ascii_lowercase())
}

/// Refuses what says that it is no JSON. None at all is: kubectl's `--raw` and the autoscaler give none.
pub(super) fn check_json(headers: &HeaderMap) -> Result<(), Refusal> {
    match content_type(headers).as_deref() {
        None | Some("" | "application/json") => Ok(()),
        Some(other) => Err(Refusal::unsupported_media_type(format!(
            "the body of the request was of type {other:?}, and only application/json is read here"
        ))),
    }
}

/// The whole body.
pub(super) async fn body(body: Option<Body>) -> Result<Bytes, Refusal> {
    let read = tokio::time::timeout(PATIENCE, read(body.unwrap_or_default())).await;
    read.unwrap_or_else(|_| {
        Err(Refusal::bad_request(format!(
            "the body did not arrive within {} s",
            PATIENCE.as_secs()
        )))
    })
}

/// Takes a body that nobody wants, within the same bounds.
pub(super) async fn discard(body: Body) {
    // Whatever comes of it, the answer is known.
    let _ = tokio::time::timeout(PATIENCE, read(body)).await;
}

async fn read(body: Body) -> Result<Bytes, Refusal> {
    let mut stream = body.into_data_stream();
    let mut bytes = Vec::new();
    let mut length = 0;
    while let Some(part) = stream.next().await {
        let part = part.map_err(|error| {
            Refusal::bad_request(format!("the body could not be read: {error}"))
        })?;
        length += part.len();
        if length > MAX_DISCARDED {
            break;
        }
        if length <= MAX_BODY {
            bytes.extend_from_slice(&part);
        }
    }
    if length > MAX_BODY {
        return Err(Refusal::too_large(MAX_BODY));
    }
    Ok(bytes.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let pairs = pairs.iter();
        pairs
            .map(|(name, value)| {
                (
                    header::HeaderName::from_static(name),
                    value.parse().unwrap(),
                )
            })
            .collect()
    }

    #[test]
    fn options_are_read_as_the_api_server_reads_them() {
        let kubectl = headers(&[("user-agent", "kubectl/v1.36.3 (linux/amd64) kubernetes/abc")]);
        let read = |query: &str| Options::read(Some(query), &kubectl).map_err(|r| r.code());
        let options = read("dryRun=All&fieldManager=kubectl%20edit&pretty=true").unwrap();
        assert!(options.dry_run);
        assert_eq!(options.manager, "kubectl edit");
        let options = Options::read(None, &kubectl).unwrap();
        assert!(!options.dry_run);
        assert_eq!(options.manager, "kubectl");
        assert_eq!(
            Options::read(None, &HeaderMap::new()).unwrap().manager,
            MANAGER
        );
        let long = format!("fieldManager={}", "a".repeat(129));
        for query in ["dryRun=true", "dryRun=", &long, "fieldManager=a%0ab"] {
            assert_eq!(read(query).unwrap_err().as_u16(), 400, "{query}");
        }
    }

    #[test]
    fn no_content_type_is_json() {
        assert!(check_json(&HeaderMap::new()).is_ok());
        for (given, fits) in [
            ("application/json", true),
            ("Application/JSON; charset=utf-8", true),
            ("application/yaml", false),
            ("application/vnd.kubernetes.protobuf", false),
            ("application/x-www-form-urlencoded", false),
        ] {
            let given = headers(&[("content-type", given)]);
            assert_eq!(check_json(&given).is_ok(), fits, "{given:?}");
        }
    }

    #[tokio::test]
    async fn a_body_has_a_bound() {
        let whole = body(Some(Body::from(vec![b'a'; MAX_BODY]))).await.unwrap();
        assert_eq!(whole.len(), MAX_BODY);
        for length in [MAX_BODY + 1, MAX_DISCARDED + 1] {
            let refusal = body(Some(Body::from(vec![b'a'; length])))
                .await
                .unwrap_err();
            assert_eq!(refusal.code().as_u16(), 413);
        }
    }
}
