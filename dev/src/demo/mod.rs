//! `cargo dev demo`: the main job from a user's side, with the real kubectl and nothing else, each
//! step asserted.
//!
//! On the embedded control plane or, with `--kubeconfig`, on a cluster that has KubeVirt, CDI and
//! vmpool, where it works in a namespace of its own and removes it. It must not look at anything
//! that a user could not; what it does besides (metrics, killing the leader) is [`backstage`]'s.

mod autoscale;
mod backstage;
mod curl;
mod detach;
mod film;
mod look;
mod manifests;
mod rollout;
mod screen;
mod stage;
mod steps;
mod trace;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use self::backstage::Backstage;
use self::film::Film;
use self::manifests::Manifests;
use self::screen::Screen;
use self::stage::Stage;
use crate::harness::{Harness, Options};
use crate::kubectl::Kubectl;
use crate::standin;

/// Of the stand-in's VMs, which start in a moment.
const EMBEDDED_TIMEOUT: Duration = Duration::from_secs(120);
/// What a guest takes to boot there: long enough to be seen.
const BOOT: Duration = Duration::from_millis(500);
/// Of real VMs: images are pulled, volumes are made, guests boot.
const CLUSTER_TIMEOUT: Duration = Duration::from_secs(900);

/// Shows the main job as it happens.
#[derive(clap::Args, Clone, Debug)]
pub struct DemoArgs {
    /// Assert each step and exit; fails with what was wrong.
    #[arg(long)]
    pub once: bool,
    /// Run on this cluster, which has KubeVirt, CDI and vmpool, instead of an embedded one; in a
    /// namespace of its own that is removed afterwards.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Container disk that the VMs boot from.
    #[arg(long, value_name = "IMAGE")]
    pub image: Option<String>,
    /// kubectl to use with `--kubeconfig`.
    #[arg(long, default_value = "kubectl", requires = "kubeconfig")]
    pub kubectl: PathBuf,
}

/// Runs it until it has been shown, and without `--once` until Ctrl-C.
pub async fn run(args: DemoArgs) -> Result<()> {
    let manifests = Manifests::read(args.image.as_deref())?;
    match &args.kubeconfig {
        Some(kubeconfig) => {
            let kubectl = Kubectl::new(&args.kubectl, kubeconfig);
            on_cluster(kubectl, manifests).await
        }
        None => embedded(manifests, args.once).await,
    }
}

async fn embedded(manifests: Manifests, once: bool) -> Result<()> {
    let screen = Screen::start();
    let tell = |line: &str| screen.note(line);
    let options = Options {
        two_replicas: true,
        standin: standin::Options {
            boot: BOOT,
            ..standin::Options::default()
        },
        ..Options::default()
    };
    let backstage = tokio::select! {
        backstage = Backstage::start(options, &tell) => Arc::new(backstage?),
        _ = tokio::signal::ctrl_c() => bail!("interrupted"),
    };
    let harness = &backstage.harness;
    let stage = Stage {
        screen: screen.clone(),
        kubectl: harness.kubectl(),
        namespace: harness.namespace("demo").await?,
        timeout: EMBEDDED_TIMEOUT,
    };
    if let Err(error) = play(&stage, &manifests, Some(Arc::clone(&backstage))).await {
        // The folder goes with the harness.
        let copy = std::env::temp_dir().join("vmpool-demo.log");
        if std::fs::copy(harness.vmpool().log_path(), &copy).is_ok() {
            screen.line(&format!("\nvmpool's log is kept in {}", copy.display()));
        }
        return Err(error);
    }
    if once {
        return Ok(());
    }
    leave_running(harness, &stage, &manifests).await
}

/// Something to play with, until Ctrl-C.
async fn leave_running(harness: &Harness, stage: &Stage, manifests: &Manifests) -> Result<()> {
    let screen = &stage.screen;
    screen.title("Yours to play with");
    for manifest in [&manifests.config, &manifests.pool] {
        let args = ["apply", "-n", &stage.namespace, "-f", "-"];
        stage.kubectl.run_ok_with_input(&args, manifest)?;
    }
    let namespace = format!("--namespace={}", stage.namespace);
    let config = ["config", "set-context", "--current", &namespace];
    stage.kubectl.run_ok(&config)?;
    let kubeconfig = stage.kubectl.kubeconfig().display();
    let kubectl = harness.plane().binaries().kubectl.display();
    screen.line(&format!("export KUBECONFIG={kubeconfig}"));
    screen.line(&format!("alias kubectl={kubectl}"));
    screen.line("kubectl get vpool,vconf,vm");
    screen.line("kubectl scale vpool desktop --replicas=3");
    screen.line(&format!(
        "tail -f {}",
        harness.vmpool().log_path().display()
    ));
    screen.line("");
    screen.line("Ctrl-C ends everything.");
    tokio::signal::ctrl_c()
        .await
        .context("failed to wait for Ctrl-C")
}

async fn on_cluster(kubectl: Kubectl, manifests: Manifests) -> Result<()> {
    let screen = Screen::start();
    let namespace = format!("vmpool-demo-{}", std::process::id());
    kubectl.run_ok(&["create", "namespace", &namespace])?;
    let stage = Stage {
        screen,
        kubectl: kubectl.clone(),
        namespace: namespace.clone(),
        timeout: CLUSTER_TIMEOUT,
    };
    let played = match has_kinds(&stage) {
        Ok(()) => play(&stage, &manifests, None).await,
        Err(error) => Err(error),
    };
    stage
        .screen
        .note(&format!("Removing the namespace {namespace}"));
    let removed = kubectl.run_ok(&["delete", "namespace", &namespace, "--wait=false"]);
    played?;
    removed.map(drop)
}

/// That the cluster has what the demo needs.
fn has_kinds(stage: &Stage) -> Result<()> {
    for kind in [look::VM, look::DATA_VOLUME, look::POOL] {
        stage.list(kind, "").with_context(|| {
            format!("the cluster has no {kind}, or this user may not list them")
        })?;
    }
    Ok(())
}

/// kubectl blocks, so that the steps run on a thread of their own. No thread of the runtime, which
/// would wait for the end of a step that was interrupted.
async fn play(
    stage: &Stage,
    manifests: &Manifests,
    backstage: Option<Arc<Backstage>>,
) -> Result<()> {
    let _film = Film::start(&stage.kubectl, &stage.namespace, &stage.screen)?;
    let (actor, manifests) = (stage.clone(), manifests.clone());
    let (sender, played) = tokio::sync::oneshot::channel();
    std::thread::Builder::new()
        .name("demo".to_owned())
        // Nobody listens after an interruption.
        .spawn(move || {
            let played = steps::play(&actor, &manifests, backstage.as_deref());
            // Before anything is told: what is behind the stage ends on the main thread.
            drop(backstage);
            drop(sender.send(played));
        })
        .context("failed to start the demo's thread")?;
    tokio::select! {
        played = played => played.context("the demo panicked")?,
        _ = tokio::signal::ctrl_c() => bail!("interrupted"),
    }
}
