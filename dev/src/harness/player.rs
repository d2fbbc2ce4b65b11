//! Gives the stand-in a runtime of its own: a harness that serves several tests outlives the runtime
//! of the test that started it, and a stand-in should play in time however busy a test is.

use anyhow::{Context, Result};
use kube::{Client, Config};
use tokio::runtime::{Builder, Runtime};

use crate::standin::{Options, Standin};
use crate::virt_api::VirtApi;

/// Enough for a program that mostly waits.
const THREADS: usize = 2;

/// A stand-in that plays until this is dropped.
pub(super) struct Player {
    standin: Option<Standin>,
    virt_api: Option<VirtApi>,
    runtime: Option<Runtime>,
}

impl Player {
    /// Starts it; KubeVirt's CRDs may come later.
    pub(super) async fn start(mut config: Config, options: Options) -> Result<Self> {
        // A client that retries by itself notices late that the API server is back.
        config.default_retry = false;
        let runtime = Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("stand-in")
            .enable_all()
            .build()
            .context("failed to make the stand-in's runtime")?;
        let mut player = Self {
            standin: None,
            virt_api: None,
            runtime: None,
        };
        let started = runtime.spawn(async move {
            let client = Client::try_from(config).context("failed to make a client")?;
            let virt_api = VirtApi::start(&client).await?;
            let standin = Standin::start(client, options).await?;
            standin.served().await?;
            anyhow::Ok((standin, virt_api))
        });
        // Before anything can fail: a runtime must not be dropped where it may not block.
        player.runtime = Some(runtime);
        let (standin, virt_api) = started.await.context("the stand-in panicked")??;
        player.standin = Some(standin);
        player.virt_api = Some(virt_api);
        Ok(player)
    }

    pub(super) fn standin(&self) -> &Standin {
        let standin = self.standin.as_ref();
        standin.expect("a player is only handed out with a stand-in")
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        self.standin = None;
        self.virt_api = None;
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
