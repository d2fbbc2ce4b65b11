//! The one place that reads a clock. Everything that decides takes the time as an argument.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

/// The current time. Only the outermost shell (`run`, `controller`, `server`) may call this.
#[allow(
    clippy::disallowed_methods,
    reason = "the one clock that the rest of the program is handed"
)]
pub fn now() -> Timestamp {
    Timestamp::now()
}

/// Time since the machine started, sleep included: a clock that nobody sets. For what must not depend on the
/// wall clock, and must notice that the machine was suspended.
pub fn since_boot() -> Duration {
    #[cfg(target_os = "linux")]
    let clock = rustix::time::ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    let clock = rustix::time::ClockId::Monotonic;
    let now = rustix::time::clock_gettime(clock);
    let seconds = u64::try_from(now.tv_sec).expect("the clock starts at zero");
    let nanoseconds = u32::try_from(now.tv_nsec).expect("it is less than a second");
    Duration::new(seconds, nanoseconds)
}
