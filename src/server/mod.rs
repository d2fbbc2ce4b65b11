//! What `vmpool run` serves with: a TLS port, certificates for it, and a plain port with health and metrics.
//! Decides nothing about objects, and spawns nothing: `run` does.

pub mod certificates;
pub mod client_certificates;
pub mod health;
pub mod listen;
pub mod tls;

pub use certificates::{namespaced_rules, rules};
pub use health::{Check, Health, TaskGuard};
pub use listen::plain;

#[cfg(test)]
mod tests;
