//! The one place that reads the wall clock. Everything that decides takes the time as an argument.

use k8s_openapi::jiff::Timestamp;

/// The current time. Only the outermost shell (`run`, `controller`, `server`) may call this.
#[allow(
    clippy::disallowed_methods,
    reason = "the one clock that the rest of the program is handed"
)]
pub fn now() -> Timestamp {
    Timestamp::now()
}
