//! A real control plane on loopback: etcd, kube-apiserver with aggregation, audit log and
//! OwnerReferencesPermissionEnforcement, and kube-controller-manager.
//!
//! It has no scheduler, no kubelet and no KubeVirt: those are played by whoever needs them. It
//! must leave nothing behind: [`ControlPlane`] ends its processes when dropped, and the
//! [reaper] when there was no time to drop it.

mod access;
mod daemon;
mod flags;
mod kubeconfig;
pub mod pki;
pub mod ports;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use kube::{Client, Config};
use tempfile::TempDir;

pub use self::access::client;
use self::daemon::Daemon;
use self::flags::Layout;
use self::pki::Authority;
use crate::audit::AuditLog;
use crate::binaries::{Binaries, find_or_build};
use crate::kubectl::Kubectl;
use crate::probe::Probe;
use crate::reaper;

/// Set to leave a control plane running when its process ends, to look at it with kubectl.
pub const KEEP_ENV: &str = "VMPOOL_KEEP";

/// The first start takes some 5 s; CI machines are shared and slow.
const READY_TIMEOUT: Duration = Duration::from_mins(2);
/// Short, since waiting is what a start is made of.
const READY_POLL: Duration = Duration::from_millis(100);
/// What a controller-manager needs to end by itself.
const GRACE: Duration = Duration::from_secs(2);
/// A port can be taken between being picked and being bound.
const START_TRIES: usize = 3;

/// What can be different from one control plane to another.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Do not start the controller-manager; see [`ControlPlane::start_controller_manager`].
    pub without_controller_manager: bool,
    /// Appended to kube-apiserver's flags; of a flag given twice the last counts.
    pub apiserver_flags: Vec<String>,
    /// Appended to kube-controller-manager's flags.
    pub controller_manager_flags: Vec<String>,
}

/// A running control plane.
pub struct ControlPlane {
    // The order of the fields is the order in which they are dropped: an API server that loses
    // its store first, or is asked to end while a controller-manager watches it, takes a minute.
    controller_manager: Daemon,
    apiserver: Daemon,
    etcd: Daemon,
    binaries: Binaries,
    url: String,
    controller_manager_url: String,
    authority: Authority,
    front_proxy: Authority,
    kubeconfig: PathBuf,
    config: Config,
    dir: Option<TempDir>,
    path: PathBuf,
    kept: bool,
}

impl ControlPlane {
    /// Starts one and waits until it answers and its controllers work.
    pub async fn start(options: Options) -> Result<Self> {
        // Building takes minutes, and blocks.
        let binaries = tokio::task::spawn_blocking(|| find_or_build(&|line| eprintln!("{line}")))
            .await
            .context("the build of the control plane panicked")??;
        let mut tried = 1;
        loop {
            match Self::start_once(&binaries, &options).await {
                Err(error) if tried < START_TRIES && is_port_taken(&error) => tried += 1,
                result => return result,
            }
        }
    }

    async fn start_once(binaries: &Binaries, options: &Options) -> Result<Self> {
        let dir = tempfile::Builder::new()
            .prefix("vmpool-")
            .tempdir()
            .context("failed to make a temporary folder")?;
        let kept = std::env::var_os(KEEP_ENV).is_some_and(|value| value != "0");
        if !kept {
            reaper::remove_at_exit(dir.path());
        }
        let layout = Layout {
            dir: dir.path(),
            etcd_port: ports::free()?,
            apiserver_port: ports::free()?,
            controller_manager_port: ports::free()?,
        };
        let etcd_health = format!("http://127.0.0.1:{}/health", layout.etcd_port);
        let url = format!("https://127.0.0.1:{}", layout.apiserver_port);
        let (authority, front_proxy, kubeconfig) = write_files(&layout, &url)?;
        let (config, _) = client(&kubeconfig).await?;
        let mut apiserver_flags = flags::apiserver(&layout);
        apiserver_flags.extend(options.apiserver_flags.iter().cloned());
        let mut manager_flags = flags::controller_manager(&layout);
        manager_flags.extend(options.controller_manager_flags.iter().cloned());
        let daemon =
            |name, program: &Path, flags| Daemon::new(name, program, flags, layout.dir, kept);
        let manager = &binaries.kube_controller_manager;
        let plane = Self {
            controller_manager: daemon("kube-controller-manager", manager, manager_flags),
            apiserver: daemon("kube-apiserver", &binaries.kube_apiserver, apiserver_flags),
            etcd: daemon("etcd", &binaries.etcd, flags::etcd(&layout)),
            binaries: binaries.clone(),
            controller_manager_url: format!("https://127.0.0.1:{}", layout.controller_manager_port),
            url,
            authority,
            front_proxy,
            kubeconfig,
            config,
            path: dir.path().to_path_buf(),
            dir: Some(dir),
            kept,
        };
        plane.etcd.spawn()?;
        wait_ready(&plane.etcd, &etcd_health).await?;
        plane.start_apiserver().await?;
        if !options.without_controller_manager {
            plane.start_controller_manager().await?;
        }
        if kept {
            plane.announce()?;
        }
        Ok(plane)
    }

    /// Starts the API server after [`stop_apiserver`](Self::stop_apiserver), on the same port.
    pub async fn start_apiserver(&self) -> Result<()> {
        self.apiserver.spawn()?;
        wait_ready(&self.apiserver, &format!("{}/readyz", self.url)).await
    }

    /// Ends the API server at once, as a crash would; everything else stays.
    pub fn stop_apiserver(&self) {
        self.apiserver.kill();
    }

    /// A crash of the API server and its restart.
    pub async fn restart_apiserver(&self) -> Result<()> {
        self.stop_apiserver();
        self.start_apiserver().await
    }

    /// Starts the controller-manager, and waits until it has made its first ServiceAccount.
    pub async fn start_controller_manager(&self) -> Result<()> {
        self.controller_manager.spawn()?;
        let health = format!("{}/healthz", self.controller_manager_url);
        wait_ready(&self.controller_manager, &health).await?;
        access::wait_service_account(&self.admin(), "default", "default", READY_TIMEOUT)
            .await
            .with_context(|| self.controller_manager.log_tail())
    }

    /// Ends the controller-manager: nothing is collected, no namespace ends, no autoscaler runs.
    pub fn stop_controller_manager(&self) {
        self.controller_manager.terminate(GRACE);
    }

    /// Ends and starts the controller-manager. The garbage collector looks for new kinds only
    /// every 30 s; after a restart it knows those of CRDs just installed.
    pub async fn restart_controller_manager(&self) -> Result<()> {
        self.stop_controller_manager();
        self.start_controller_manager().await
    }

    /// Where the API server is: `https://127.0.0.1:<port>`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Signs the API server's certificate and the users'; for servers that its clients reach.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// Signs the certificate that the API server shows to aggregated API servers.
    pub fn front_proxy(&self) -> &Authority {
        &self.front_proxy
    }

    /// How an administrator connects; change the copy at will.
    pub fn admin_config(&self) -> Config {
        self.config.clone()
    }

    /// A client of an administrator (system:masters, not subject to priority and fairness).
    ///
    /// A new one each time, since a client lives on the runtime that made it: tests that share a
    /// control plane have a runtime each.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub fn admin(&self) -> Client {
        Client::try_from(self.config.clone())
            .expect("the same configuration made a client when the control plane was started")
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// The folder with logs, certificates and kubeconfigs; removed with the control plane.
    pub fn dir(&self) -> &Path {
        &self.path
    }

    /// The programs that run here.
    pub fn binaries(&self) -> &Binaries {
        &self.binaries
    }

    /// kubectl as the administrator.
    pub fn kubectl(&self) -> Kubectl {
        Kubectl::new(&self.binaries.kubectl, &self.kubeconfig)
            .with_cache(self.path.join("kubectl-cache"))
    }

    /// What has been written, by whom and with which outcome.
    pub fn audit(&self) -> AuditLog {
        AuditLog::new(self.path.join("audit.log"))
    }

    /// The process ids of etcd, kube-apiserver and kube-controller-manager, of those that run.
    pub fn pids(&self) -> Vec<u32> {
        self.daemons().into_iter().filter_map(Daemon::pid).collect()
    }

    /// Ends it; dropping it does the same.
    pub fn stop(self) {
        drop(self);
    }

    fn daemons(&self) -> [&Daemon; 3] {
        [&self.controller_manager, &self.apiserver, &self.etcd]
    }

    /// Says how to use and end what outlives this process, however it ends: the control plane
    /// that tests share is a static, which is never dropped.
    fn announce(&self) -> Result<()> {
        let (script, dir) = (self.path.join("stop"), self.path.display());
        fs::write(
            &script,
            format!("cd '{dir}' && kill -9 $(cat *.pid)\nrm -rf '{dir}'\n"),
        )
        .context("failed to write the script that ends the control plane")?;
        eprintln!("{KEEP_ENV} is set, the control plane will stay:");
        eprintln!("  export KUBECONFIG={}", self.kubeconfig.display());
        eprintln!("  sh {}   # ends it", script.display());
        Ok(())
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        if self.kept {
            if let Some(dir) = self.dir.take() {
                let _ = dir.keep();
            }
            return;
        }
        self.controller_manager.terminate(GRACE);
        self.apiserver.kill();
        self.etcd.kill();
    }
}

/// Makes what the flags refer to.
fn write_files(layout: &Layout<'_>, url: &str) -> Result<(Authority, Authority, PathBuf)> {
    let dir = layout.dir;
    let (ca, front_proxy) = (
        Authority::new("vmpool-dev-ca")?,
        Authority::new("vmpool-dev-front-proxy-ca")?,
    );
    let file = |name: &str, content: &str| {
        fs::write(dir.join(name), content).with_context(|| format!("failed to write {name}"))
    };
    file("ca.crt", ca.cert())?;
    file("front-proxy-ca.crt", front_proxy.cert())?;
    file("audit-policy.yaml", flags::AUDIT_POLICY)?;
    ca.serving(&[
        "127.0.0.1",
        "localhost",
        "kubernetes.default.svc",
        "kubernetes.default",
        "10.96.0.1",
    ])?
    .write(dir, "apiserver")?;
    front_proxy
        .client("front-proxy-client", None)?
        .write(dir, "front-proxy-client")?;
    let accounts = rcgen::KeyPair::generate().context("failed to make a key")?;
    pki::write_secret(&dir.join("sa.key"), &accounts.serialize_pem())?;
    file("sa.pub", &accounts.public_key_pem())?;
    let user = |name: &str, user: &str, group| {
        let pair = ca.client(user, group)?;
        let credential = kubeconfig::Credential::Certificate(&pair);
        kubeconfig::write(dir, name, url, "default", &credential)
    };
    user("controller-manager", "system:kube-controller-manager", None)?;
    let admin = user("admin", "admin", Some("system:masters"))?;
    Ok((ca, front_proxy, admin))
}

async fn wait_ready(daemon: &Daemon, url: &str) -> Result<()> {
    let name = daemon.name();
    let probe = Probe::new(url, Duration::from_secs(5))?;
    let deadline = Instant::now() + READY_TIMEOUT;
    loop {
        let result = probe.check().await;
        if let Some(status) = daemon.exited() {
            bail!("{name} ended by itself ({status}):\n{}", daemon.log_tail());
        }
        let Err(error) = result else { return Ok(()) };
        if Instant::now() > deadline {
            let tail = daemon.log_tail();
            bail!("{name} was not ready in {READY_TIMEOUT:?} ({error:#}):\n{tail}");
        }
        tokio::time::sleep(READY_POLL).await;
    }
}

/// Go's text for EADDRINUSE, in the log tail that the error carries.
fn is_port_taken(error: &anyhow::Error) -> bool {
    format!("{error:#}").contains("address already in use")
}
