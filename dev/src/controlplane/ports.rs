//! Picks free ports on loopback.
//!
//! Not by binding port 0: those ports come from the range of outgoing connections, and a server
//! that is restarted on its port would find that some client's connection holds it by now.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Result, bail};

/// Below Linux's default range of outgoing connections, 32768 to 60999.
const FIRST: u16 = 20_000;
/// How many ports from [`FIRST`] on are tried.
const COUNT: u16 = 12_000;
/// More than the servers that a machine could run here; ends the search if binding fails for
/// another reason.
const TRIES: usize = 200;

/// A port of 127.0.0.1 that nothing listens on now, and that this process has not been given before: it may be seconds
/// until a server listens on it, or while one is restarted. Begins at random, so that processes that start at the same
/// moment do not choose alike.
pub fn free() -> Result<u16> {
    static NEXT: LazyLock<AtomicU32> = LazyLock::new(|| {
        let random = uuid::Uuid::new_v4().as_u128() % u128::from(COUNT);
        AtomicU32::new(u32::try_from(random).expect("COUNT is a u16"))
    });
    for _ in 0..TRIES {
        let offset = NEXT.fetch_add(1, Ordering::Relaxed) % u32::from(COUNT);
        let port = FIRST + u16::try_from(offset).expect("COUNT is a u16");
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("failed to find a free port on 127.0.0.1 in {TRIES} tries from {FIRST} on")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_port_is_given_twice_though_nobody_listens_on_it_yet() {
        let ports: BTreeSet<u16> = (0..500).map(|_| free().unwrap()).collect();
        assert_eq!(ports.len(), 500);
    }
}
