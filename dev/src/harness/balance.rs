//! Plays kube-proxy for a `vmpool` of two replicas: each connection goes to one that is ready, in turn. A connection
//! stays where it is, whatever becomes of its replica.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

use crate::supervisor::State;

/// A replica: its port, and what its supervisor knows of it.
pub(super) type Backend = (u16, watch::Receiver<State>);

/// Serves until it is dropped.
pub(super) struct Balancer {
    backends: Arc<Mutex<Vec<Backend>>>,
    runtime: Option<Runtime>,
}

impl Balancer {
    /// Listens there; nobody is behind it yet.
    pub(super) async fn start(address: SocketAddr) -> Result<Self> {
        // Its own: a test's runtime may be busy.
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("balancer")
            .enable_all()
            .build()
            .context("failed to make the balancer's runtime")?;
        let mut balancer = Self {
            backends: Arc::default(),
            runtime: None,
        };
        let backends = Arc::clone(&balancer.backends);
        let bound = runtime.spawn(async move {
            let listener = TcpListener::bind(address).await;
            let listener = listener.with_context(|| format!("failed to listen on {address}"))?;
            tokio::spawn(accept(listener, backends));
            anyhow::Ok(())
        });
        // Before anything can fail: a runtime must not be dropped where it may not block.
        balancer.runtime = Some(runtime);
        bound.await.context("the balancer panicked")??;
        Ok(balancer)
    }

    /// Puts these behind it.
    pub(super) fn set(&self, backends: Vec<Backend>) {
        *self.backends.lock().unwrap_or_else(PoisonError::into_inner) = backends;
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn accept(listener: TcpListener, backends: Arc<Mutex<Vec<Backend>>>) {
    let turn = AtomicUsize::new(0);
    while let Ok((mut client, _)) = listener.accept().await {
        let ready: Vec<u16> = {
            let backends = backends.lock().unwrap_or_else(PoisonError::into_inner);
            let ready = backends.iter().filter(|(_, state)| state.borrow().ready);
            ready.map(|(port, _)| *port).collect()
        };
        let Some(port) = ready
            .get(turn.fetch_add(1, Ordering::Relaxed) % ready.len().max(1))
            .copied()
        else {
            continue;
        };
        tokio::spawn(async move {
            if let Ok(mut server) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await {
                // An error is one of the two's, which the other notices.
                let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            }
        });
    }
}
