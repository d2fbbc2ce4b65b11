//! What `vmpool run` serves with: a TLS port, certificates for it, and a plain port with health and metrics.
//! Decides nothing about objects, and spawns nothing: `run` does.

pub mod certificates;
pub mod client_certificates;
pub mod health;
pub mod listen;

pub use certificates::{Certificates, rules};
pub use health::{Check, Health, TaskGuard};
pub use listen::{plain, tls};

#[cfg(test)]
mod tests;
