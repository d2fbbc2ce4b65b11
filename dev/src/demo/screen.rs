//! What is shown: plain lines, in the order in which things happen, so that a log of it reads as
//! well as the terminal.

use std::time::{Duration, Instant};

/// Where the lines go.
#[derive(Clone, Debug)]
pub(super) struct Screen {
    started: Instant,
}

impl Screen {
    pub(super) fn start() -> Self {
        Self {
            started: Instant::now(),
        }
    }

    /// A new step.
    pub(super) fn title(&self, text: &str) {
        println!("\n== {text}");
    }

    /// A command that a user would type.
    pub(super) fn command(&self, text: &str) {
        println!("$ {text}");
    }

    /// What a command said, or one line as it is.
    pub(super) fn line(&self, text: &str) {
        for line in text.trim_end().split('\n') {
            println!("{}", line.trim_end());
        }
    }

    /// What is being done, or seen to change, with the time since the start.
    pub(super) fn note(&self, text: &str) {
        println!("[{:5.1} s] {text}", self.started.elapsed().as_secs_f64());
    }

    /// Something that was asserted.
    pub(super) fn check(&self, text: &str, took: Duration) {
        println!("  ok  {text} ({:.1} s)", took.as_secs_f64());
    }
}
