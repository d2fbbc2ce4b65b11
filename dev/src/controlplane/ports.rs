//! Picks free ports on loopback.
//!
//! Not by binding port 0: those ports come from the range of outgoing connections, and a server
//! that is restarted on its port would find that some client's connection holds it by now.

use std::net::{Ipv4Addr, TcpListener};

use anyhow::{Result, bail};

/// Below Linux's default range of outgoing connections, 32768 to 60999.
const FIRST: u16 = 20_000;
/// How many ports from [`FIRST`] on are tried.
const COUNT: u16 = 12_000;
/// More than the servers that a machine could run here; ends the search if binding fails for
/// another reason.
const TRIES: usize = 200;

/// A port of 127.0.0.1 that nothing listens on now. Chosen at random, so that control planes that
/// start at the same moment do not choose alike.
pub fn free() -> Result<u16> {
    for _ in 0..TRIES {
        let random = uuid::Uuid::new_v4().as_u128();
        let offset = u16::try_from(random % u128::from(COUNT)).expect("COUNT is a u16");
        let port = FIRST + offset;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("failed to find a free port on 127.0.0.1 in {TRIES} tries from {FIRST} on")
}
