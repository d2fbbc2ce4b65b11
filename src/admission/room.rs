//! How much of what is asked is worked on at once: bodies by their bytes, which is what takes memory. Others wait
//! unread for their turn, and those for whom none comes are told to come again, which the API server does by
//! itself as long as its time-out allows.

use std::time::Duration;

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use tokio::sync::{Semaphore, SemaphorePermit};

/// Longest body: the API server stores at most 1.5 MiB (etcd's request limit), an update brings the object
/// twice, and escapes make text longer on the way.
pub(super) const MAX_BODY: usize = 8 * 1024 * 1024;

/// Bytes of bodies at once. Decoded, JSON takes three times the room of its text as a rule, and twelve times at
/// worst (a list of empty lists): some 200 MiB.
const ROOM: usize = 2 * MAX_BODY;
/// A body is counted as so many bytes at least, which bounds how many are worked on at once (to 256).
const LEAST: usize = ROOM / 256;
/// What the room is counted in, so that it fits into a semaphore.
const UNIT: usize = 1024;

/// How long a turn is waited for. The API server gives up after five seconds
/// ([`super::hooks::TIMEOUT_SECONDS`]), and looking things up may take three.
const PATIENCE: Duration = Duration::from_millis(1500);
/// Seconds after which somebody who was sent away may come again.
const RETRY_AFTER: &str = "1";

/// The room for bodies.
#[derive(Debug)]
pub(super) struct Room(Semaphore);

impl Default for Room {
    fn default() -> Self {
        Self(Semaphore::new(ROOM / UNIT))
    }
}

impl Room {
    /// Waits for room for a body of so many bytes; `None`: it doesn't say how many. The error is the answer to
    /// somebody for whom there is none.
    pub(super) async fn enter(&self, bytes: Option<u64>) -> Result<SemaphorePermit<'_>, Full> {
        let bytes = bytes.and_then(|bytes| usize::try_from(bytes).ok());
        let bytes = bytes.unwrap_or(MAX_BODY).clamp(LEAST, MAX_BODY);
        let units = u32::try_from(bytes.div_ceil(UNIT)).expect("8 MiB in KiB");
        match tokio::time::timeout(PATIENCE, self.0.acquire_many(units)).await {
            Ok(permit) => Ok(permit.expect("nothing closes the semaphore")),
            Err(_) => Err(Full),
        }
    }
}

/// There is no room.
#[derive(Debug)]
pub(super) struct Full;

impl IntoResponse for Full {
    fn into_response(self) -> Response {
        (
            StatusCode::TOO_MANY_REQUESTS,
            [(header::RETRY_AFTER, RETRY_AFTER)],
            "vmpool has too many requests at once, try again",
        )
            .into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn as_many_as_there_is_room_for_and_the_next_are_sent_away_until_one_leaves() {
        let room = Room::default();
        let mut inside = Vec::new();
        for _ in 0..2 {
            inside.push(room.enter(None).await.unwrap());
        }
        let began = tokio::time::Instant::now();
        let response = room.enter(Some(1)).await.unwrap_err().into_response();
        assert_eq!(began.elapsed(), PATIENCE, "it has waited");
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(response.headers()[header::RETRY_AFTER], RETRY_AFTER);
        inside.pop();
        let small: Vec<_> = futures::future::join_all((0..128).map(|_| room.enter(Some(1)))).await;
        assert!(small.iter().all(Result::is_ok));
        assert!(room.enter(Some(u64::MAX)).await.is_err());
        // In the order of asking: a large one is not overtaken for ever.
        let large = room.enter(Some(MAX_BODY as u64));
        let leave = async {
            tokio::time::sleep(PATIENCE / 2).await;
            inside.pop();
        };
        let (large, ()) = futures::join!(large, leave);
        assert!(large.is_ok());
    }
}
