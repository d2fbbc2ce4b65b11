//! Plays kube-proxy for a `vmpool` of two replicas: each connection goes to one that is ready, in turn.
//!
//! A connection to one that is not ready any more is cut after a moment. kube-proxy does not do that: there the API
//! server finds out by itself, by a ping after 45 s, for which no test waits.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

use crate::supervisor::State;

/// So long a connection to one that is not ready is left alone: requests under way may end.
const CUT_AFTER: Duration = Duration::from_secs(2);

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
        let ready: Vec<Backend> = {
            let backends = backends.lock().unwrap_or_else(PoisonError::into_inner);
            let ready = backends.iter().filter(|(_, state)| state.borrow().ready);
            ready.cloned().collect()
        };
        let turn = turn.fetch_add(1, Ordering::Relaxed) % ready.len().max(1);
        let Some((port, mut state)) = ready.get(turn).cloned() else {
            continue;
        };
        tokio::spawn(async move {
            let Ok(mut server) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await else {
                return;
            };
            let unready = async {
                // An error means that the supervisor is gone, and its process with it.
                let _ = state.wait_for(|state| !state.ready).await;
                tokio::time::sleep(CUT_AFTER).await;
            };
            tokio::select! {
                // An error is one of the two's, which the other notices.
                _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
                () = unready => {}
            }
        });
    }
}
