//! Questions to the API server on which an answer waits: with an end, and not repeated behind our back (the
//! client is built without retries).

use std::future::Future;
use std::time::Duration;

use super::refusal::Refusal;

/// How long one may take. The API server gives up on us after 60 seconds, and kubectl's user before that.
const PATIENCE: Duration = Duration::from_secs(5);

/// The answer to `call`; `what` names it in the refusal.
pub(super) async fn ask<T>(
    what: &str,
    call: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, Refusal> {
    match tokio::time::timeout(PATIENCE, call).await {
        Ok(Ok(answer)) => Ok(answer),
        // What the API server refuses *us* is no refusal of the caller.
        Ok(Err(error)) => Err(Refusal::internal(format!("failed to {what}: {error}"))),
        Err(_) => Err(Refusal::timeout(format!(
            "failed to {what}: no answer within {} s",
            PATIENCE.as_secs()
        ))),
    }
}
