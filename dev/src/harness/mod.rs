//! Everything at once: control plane, KubeVirt's CRDs and its stand-in, our manifests, and the real
//! `vmpool` program under a supervisor. What demo, benchmark and `tests/it` have in common.
//!
//! `vmpool` runs as its service account under the *generated* ClusterRole, never as an
//! administrator: a rule that is missing there must fail here. Nothing is asserted here.

mod balance;
mod binary;
mod install;
mod player;
mod process;
mod wait;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, ObjectMeta, PostParams};
use kube::{Client, Config};

pub use self::binary::{BINARY_ENV, Binary, Profile};
pub use self::wait::eventually;
use crate::audit::AuditLog;
use crate::controlplane::{self, ControlPlane, ports};
use crate::crds;
use crate::kubectl::Kubectl;
use crate::proxy::FaultProxy;
use crate::standin::{self, Standin};
use crate::supervisor::{ProcessSpec, Signal, Supervisor};

use self::balance::Balancer;
use self::player::Player;

/// Where `vmpool` would run.
pub const NAMESPACE: &str = vmpool::manifests::NAMESPACE;
/// As whom.
pub const SERVICE_ACCOUNT: &str = vmpool::manifests::NAME;

/// A start takes a second or two; machines that build at the same time are slow.
const READY_TIMEOUT: Duration = Duration::from_secs(60);

/// What can be different from one harness to another.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Nobody plays KubeVirt: VMs are objects and nothing else.
    pub without_standin: bool,
    /// KubeVirt's CRDs are absent until [`Harness::install_kubevirt`].
    pub without_kubevirt_crds: bool,
    /// CDI's CRD is absent until [`Harness::install_cdi`].
    pub without_cdi_crds: bool,
    /// `vmpool` is not started until [`Harness::start_vmpool`].
    pub without_vmpool: bool,
    /// There are two of `vmpool`, as in a cluster, instead of one.
    pub two_replicas: bool,
    /// `vmpool` reaches the API server through the fault proxy only.
    pub behind_proxy: bool,
    /// Which build of `vmpool` runs.
    pub binary: Binary,
    /// Appended to `vmpool run`.
    pub args: Vec<String>,
    /// `RUST_LOG` of `vmpool`; its own default if empty.
    pub log: String,
    /// Options of the stand-in.
    pub standin: standin::Options,
    /// Options of the control plane.
    pub control_plane: controlplane::Options,
}

/// All of it, running. Dropping it ends all of it.
pub struct Harness {
    // Dropped in this order: clients before the servers that they talk to.
    balancer: Option<Balancer>,
    /// First and, if there are two, second.
    replicas: Vec<Supervisor>,
    player: Option<Player>,
    proxy: Option<FaultProxy>,
    plane: ControlPlane,
    standin: standin::Options,
    places: Vec<Replica>,
    /// Where the API server finds the webhooks and the aggregated API.
    admission: SocketAddr,
    kubeconfig: PathBuf,
    account: Config,
    namespaces: AtomicU32,
}

/// How a replica is started, and where it is.
struct Replica {
    spec: ProcessSpec,
    admission: u16,
    health: SocketAddr,
}

impl Harness {
    /// Starts it and waits until `vmpool` is ready and the API server calls its webhooks.
    pub async fn start(options: Options) -> Result<Self> {
        Self::start_with(options, &|line| eprintln!("{line}")).await
    }

    /// The same, telling what it is doing.
    pub async fn start_with(options: Options, tell: &(dyn Fn(&str) + Sync)) -> Result<Self> {
        let program = options.binary.locate(tell).await?;
        tell("Starting etcd, kube-apiserver and kube-controller-manager");
        let plane = ControlPlane::start(controlplane::Options {
            // Started below: its garbage collector looks for new kinds only every 30 s.
            without_controller_manager: true,
            ..options.control_plane.clone()
        })
        .await?;
        let admission = SocketAddr::from(([127, 0, 0, 1], ports::free()?));

        tell("Installing the CRDs, roles and webhooks");
        install_crds(&plane.admin(), &options).await?;
        install::vmpool(&plane.admin(), admission).await?;
        if !options.control_plane.without_controller_manager {
            plane.start_controller_manager().await?;
        }

        let proxy = match options.behind_proxy {
            true => Some(FaultProxy::start(&plane)?),
            false => None,
        };
        let server = proxy.as_ref().map(FaultProxy::url);
        let kubeconfig = plane
            .service_account_kubeconfig(NAMESPACE, SERVICE_ACCOUNT, server)
            .await?;
        let (account, _) = controlplane::client(&kubeconfig).await?;
        let balancer = match options.two_replicas {
            true => Some(Balancer::start(admission).await?),
            false => None,
        };
        let place = process::Place {
            pod: String::new(),
            program,
            kubeconfig: kubeconfig.clone(),
            log: plane.dir().join("vmpool.log"),
            admission,
            health: admission,
        };
        let mut harness = Self {
            balancer,
            replicas: Vec::new(),
            player: None,
            proxy,
            places: replicas(place, &options)?,
            admission,
            kubeconfig,
            plane,
            standin: options.standin.clone(),
            account,
            namespaces: AtomicU32::new(0),
        };
        if !options.without_standin {
            harness.start_standin().await?;
        }
        if !options.without_vmpool {
            tell("Starting vmpool");
            harness.start_vmpool().await?;
        }
        Ok(harness)
    }

    /// Starts who plays KubeVirt where [`Options::without_standin`] held it back.
    pub async fn start_standin(&mut self) -> Result<()> {
        let player = Player::start(self.plane.admin_config(), self.standin.clone()).await?;
        self.player = Some(player);
        Ok(())
    }

    /// Starts `vmpool` where [`Options::without_vmpool`] held it back.
    pub async fn start_vmpool(&mut self) -> Result<()> {
        // Not before: while it is registered and nobody serves it, no namespace can be deleted.
        install::aggregated(&self.client()?, self.admission.port()).await?;
        let mut replicas = Vec::new();
        for place in &self.places {
            replicas.push(Supervisor::start(place.spec.clone())?);
        }
        if let Some(balancer) = &self.balancer {
            let ports = self.places.iter().map(|place| place.admission);
            let states = replicas.iter().map(Supervisor::watch);
            balancer.set(ports.zip(states).collect());
        }
        let ready = async {
            for replica in &replicas {
                replica.wait_ready(READY_TIMEOUT).await?;
            }
            wait::served(&self.client()?).await
        };
        let ready = ready.await;
        ready.with_context(|| format!("vmpool's log:\n{}", wait::tail(&replicas[0].log())))?;
        self.replicas = replicas;
        Ok(())
    }

    /// Starts `vmpool` anew, and waits until it is ready: its memory and caches are fresh.
    pub async fn restart_vmpool(&self) -> Result<()> {
        let vmpool = self.vmpool();
        let restarts = vmpool.restarts();
        vmpool.kill(Signal::TERM);
        vmpool.wait_restarts(restarts + 1, READY_TIMEOUT).await?;
        vmpool.wait_ready(READY_TIMEOUT).await?;
        wait::served(&self.client()?).await
    }

    /// Ends `vmpool` and leaves it ended until [`start_vmpool`](Self::start_vmpool).
    pub fn stop_vmpool(&mut self) {
        self.replicas.clear();
    }

    /// Installs what `vmpool` needs in a cluster, over what is there; with a token for its service account, which
    /// may be a new one.
    pub async fn install_vmpool(&mut self) -> Result<()> {
        install::vmpool(&self.plane.admin(), self.admission).await?;
        let server = self.proxy.as_ref().map(FaultProxy::url);
        let kubeconfig = self
            .plane
            .service_account_kubeconfig(NAMESPACE, SERVICE_ACCOUNT, server)
            .await?;
        std::fs::copy(&kubeconfig, &self.kubeconfig).context("failed to renew the kubeconfig")?;
        (self.account, _) = controlplane::client(&kubeconfig).await?;
        Ok(())
    }

    /// KubeVirt comes late.
    pub async fn install_kubevirt(&self) -> Result<()> {
        crds::install_kubevirt(&self.client()?).await?;
        self.plane.restart_controller_manager().await
    }

    /// CDI comes late.
    pub async fn install_cdi(&self) -> Result<()> {
        crds::install_cdi(&self.client()?).await?;
        self.plane.restart_controller_manager().await
    }

    /// `vmpool`'s supervisor.
    ///
    /// # Panics
    /// If it has not been started.
    pub fn vmpool(&self) -> &Supervisor {
        self.replica(0)
    }

    /// One of `vmpool`'s replicas: 0 or, with [`Options::two_replicas`], 1.
    ///
    /// # Panics
    /// If it has not been started.
    pub fn replica(&self, index: usize) -> &Supervisor {
        let replica = self.replicas.get(index);
        replica.expect("vmpool has been started")
    }

    /// Who plays KubeVirt.
    ///
    /// # Panics
    /// If it has not been started.
    pub fn standin(&self) -> &Standin {
        let player = self.player.as_ref();
        player.expect("the stand-in has been started").standin()
    }

    /// What stands between `vmpool` and the API server.
    ///
    /// # Panics
    /// Without [`Options::behind_proxy`].
    pub fn proxy(&self) -> &FaultProxy {
        let proxy = self.proxy.as_ref();
        proxy.expect("the harness was started behind a proxy")
    }

    /// The control plane.
    pub fn plane(&self) -> &ControlPlane {
        &self.plane
    }

    /// The plain port with `/livez`, `/readyz` and `/metrics`, of the first replica.
    pub fn health(&self) -> SocketAddr {
        self.places[0].health
    }

    /// The TLS port of a replica.
    pub fn admission_port(&self, index: usize) -> u16 {
        self.places[index].admission
    }

    /// kubectl as an administrator.
    pub fn kubectl(&self) -> Kubectl {
        self.plane.kubectl()
    }

    /// An administrator's client. A new one, since a client lives no longer than the runtime that
    /// it was made in, and a harness may serve tests with a runtime each.
    pub fn client(&self) -> Result<Client> {
        Client::try_from(self.plane.admin_config()).context("failed to make a client")
    }

    /// What [`Self::sa_client`] is made of.
    pub fn sa_config(&self) -> Config {
        self.account.clone()
    }

    /// A client with the rights of `vmpool`'s service account, behind the proxy if `vmpool` is.
    pub fn sa_client(&self) -> Result<Client> {
        Client::try_from(self.account.clone()).context("failed to make a client")
    }

    /// What has been written, by whom.
    pub fn audit(&self) -> AuditLog {
        self.plane.audit()
    }

    /// Makes a namespace that nobody else has, with its default service account.
    pub async fn namespace(&self, prefix: &str) -> Result<String> {
        let number = self.namespaces.fetch_add(1, Ordering::Relaxed);
        let name = format!("{prefix}-{number}");
        let namespace = Namespace {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                ..ObjectMeta::default()
            },
            ..Namespace::default()
        };
        let client = self.client()?;
        Api::all(client.clone())
            .create(&PostParams::default(), &namespace)
            .await
            .with_context(|| format!("failed to make the namespace {name}"))?;
        wait::default_service_account(&client, &name).await?;
        Ok(name)
    }
}

/// The replicas that there are to be. One has the address that the API server knows; two are behind the balancer.
fn replicas(place: process::Place, options: &Options) -> Result<Vec<Replica>> {
    let count = if options.two_replicas { 2 } else { 1 };
    let mut replicas = Vec::new();
    for number in 0..count {
        let mut place = place.clone();
        place.pod = format!("vmpool-{number}");
        place.health.set_port(ports::free()?);
        if count > 1 {
            place.admission.set_port(ports::free()?);
        }
        if number > 0 {
            place.log.set_file_name(format!("vmpool-{number}.log"));
        }
        replicas.push(Replica {
            spec: process::spec(&place, options)?,
            admission: place.admission.port(),
            health: place.health,
        });
    }
    Ok(replicas)
}

async fn install_crds(client: &Client, options: &Options) -> Result<()> {
    if !options.without_kubevirt_crds {
        crds::install_kubevirt(client).await?;
    }
    if !options.without_cdi_crds {
        crds::install_cdi(client).await?;
    }
    Ok(())
}
