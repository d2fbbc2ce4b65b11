//! `cargo dev up`: a control plane with the CRDs of KubeVirt and CDI, until Ctrl-C.

use anyhow::{Context, Result};

use crate::controlplane::{ControlPlane, Options};
use crate::crds;

/// Starts it, says how to reach it, and waits.
pub async fn run() -> Result<()> {
    let plane = ControlPlane::start(Options::default()).await?;
    crds::install(&plane.admin()).await?;
    // The garbage collector would see the new kinds only after 30 s.
    plane.restart_controller_manager().await?;
    println!("export KUBECONFIG={}", plane.kubeconfig().display());
    println!("alias kubectl={}", plane.binaries().kubectl.display());
    println!("logs and certificates are in {}", plane.dir().display());
    println!("Ctrl-C ends it");
    tokio::signal::ctrl_c()
        .await
        .context("failed to wait for Ctrl-C")?;
    println!("ending");
    plane.stop();
    Ok(())
}
