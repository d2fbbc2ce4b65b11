//! Log output. Filtered by the environment variable `RUST_LOG`, `info` without it; but kube's client would log
//! whole answers that it can't decode, users' specs included.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

use crate::cli::LogFormat;

/// Sends log lines of this process to standard error. To be called once, at the start.
pub fn init(format: LogFormat) {
    let filter = EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| EnvFilter::new("info,kube_client=error"));
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        // Colours are for people: in a file they hide words from grep.
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    match format {
        LogFormat::Json => subscriber.json().init(),
        LogFormat::Text => subscriber.init(),
    }
}
