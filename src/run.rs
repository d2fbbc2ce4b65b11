//! `vmpool run`: puts the parts together. The only place that spawns top-level tasks; each of them is to go
//! on until the program is told to stop, and one that ends before ends the program, so that it is never
//! "Ready but deaf".

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use axum::Router;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use prometheus_client::registry::Registry;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::admission::{
    self, AdmissionMetrics, AdmissionState, CachedObjects, LiveAccess, LiveObjects,
};
use crate::aggregated::{self, AggregatedConfig, AggregatedMetrics, TrustStore};
use crate::cache::{CacheMetrics, Caches};
use crate::cli::{CertificateArgs, RunArgs};
use crate::controller::{self, ControllerConfig};
use crate::lease::{self, KeepLease, Leadership, LeaseConfig};
use crate::plan;
use crate::server::certificates::{Files, Keeper, KeeperConfig, Lifetimes, Names, Served, Source};
use crate::server::health::{self, Health};
use crate::server::listen;

/// How long tasks may take to stop: requests under way, and one call of the controller's.
const GRACE: Duration = Duration::from_secs(10);

/// Runs until a signal, or until a part fails.
pub async fn run(args: RunArgs) -> Result<()> {
    let (source, lifetimes) = certificate_source(&args.certificates)?;
    let config = client_config(&args).await?;
    let tls_listener = bind(args.admission_address, "--admission-address")?;
    let plain_listener = bind(args.health_address, "--health-address")?;

    let health = Health::new();
    let mut registry = Registry::default();
    let caches = Arc::new(Caches::default());
    registry.register_collector(Box::new(CacheMetrics::new(Arc::clone(&caches))));
    let served = Served::default();
    served.register(&mut registry);
    let client = Client::try_from(config.clone()).context("failed to make a client")?;
    let trust = TrustStore::default();
    let router = webhooks(&args, &config, &caches, &mut registry)?;
    let api = api(&client, &caches, &trust, &mut registry);
    let router = router.merge(api);

    let shutdown = CancellationToken::new();
    let mut tasks = Tasks::new(health.clone());
    tasks.spawn(
        "webhooks",
        serve_tls(tls_listener, served.clone(), router, shutdown.clone()),
    );
    let trusting = follow_trust(client.clone(), trust, &health, shutdown.clone());
    tasks.spawn_endless("trust", trusting);
    let keeper = Keeper::new(KeeperConfig {
        client: client.clone(),
        source,
        names: Names {
            service: args.service.clone(),
            namespace: args.namespace.clone(),
        },
        lifetimes,
        served,
        check: health.check("certificates"),
    });
    tasks.spawn_endless("certificates", keeper.run(shutdown.clone()));
    spawn_caches(&mut tasks, &caches, client.clone(), &shutdown);
    let addresses = (args.admission_address, args.health_address);
    let controller = controller(
        args,
        config,
        client,
        caches,
        &mut registry,
        shutdown.clone(),
    );
    tasks.spawn("controller", controller);
    let plain = health::router(health.clone(), Arc::new(registry));
    tasks.spawn(
        "health",
        listen::plain(plain_listener, plain, shutdown.clone()),
    );
    tracing::info!(
        webhooks = %addresses.0,
        health = %addresses.1,
        "Started"
    );
    tasks.supervise(shutdown).await
}

/// The webhooks, which answer from the caches.
fn webhooks(
    args: &RunArgs,
    config: &Config,
    caches: &Arc<Caches>,
    registry: &mut Registry,
) -> Result<Router> {
    let objects = CachedObjects::new(
        Arc::clone(caches),
        LiveObjects::new(config.clone()).context("failed to make a client")?,
    );
    let access = LiveAccess::new(config.clone()).context("failed to make a client")?;
    Ok(admission::router(AdmissionState {
        objects: Arc::new(objects),
        access: Arc::new(access),
        own_username: admission::service_account_username(&args.namespace, &args.service_account),
        metrics: AdmissionMetrics::register(registry),
    }))
}

/// The aggregated API, on all other paths of the same port.
fn api(
    client: &Client,
    caches: &Arc<Caches>,
    trust: &TrustStore,
    registry: &mut Registry,
) -> Router {
    aggregated::router(AggregatedConfig {
        client: client.clone(),
        caches: Arc::clone(caches),
        trust: trust.clone(),
        metrics: AggregatedMetrics::register(registry),
    })
}

/// The controller, for as long as the Lease is ours.
fn controller(
    args: RunArgs,
    config: Config,
    client: Client,
    caches: Arc<Caches>,
    registry: &mut Registry,
    shutdown: CancellationToken,
) -> impl Future<Output = Result<(), KeepLease>> + Send + 'static {
    let metrics = controller::Metrics::default();
    metrics.register(registry);
    let leads = lease::Metrics::default();
    leads.register(registry);
    let election = LeaseConfig {
        client,
        holder: holder(&args),
        namespace: args.namespace.clone(),
        metrics: leads,
    };
    let stop = shutdown.clone();
    lease::lead(election, shutdown, async move |leadership: Leadership| {
        let client = match lease::fenced_client(&config, leadership.clone()) {
            Ok(client) => client,
            // That the controller ends ends the program.
            Err(error) => return tracing::error!(%error, "Could not make the controller's client"),
        };
        let config = ControllerConfig {
            client,
            caches,
            own_namespace: args.namespace,
            limits: plan::Limits { burst: args.burst },
            max_in_flight: args.max_in_flight,
            metrics,
            plan: plan::plan,
            instance: args.pod_name,
            leadership,
            shutdown: stop,
        };
        controller::run(config).await;
    })
}

async fn client_config(args: &RunArgs) -> Result<Config> {
    let mut config = match &args.kubeconfig {
        None => Config::infer()
            .await
            .context("failed to find the API server: neither in a pod nor given a kubeconfig")?,
        Some(path) => {
            let file = Kubeconfig::read_from(path)
                .with_context(|| format!("failed to read the kubeconfig {}", path.display()))?;
            Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
                .await
                .with_context(|| format!("failed to use the kubeconfig {}", path.display()))?
        }
    };
    // kube's default repeats POSTs too, for minutes. What is to be repeated, and when, is decided by those
    // who know what the call was for.
    config.default_retry = false;
    Ok(config)
}

/// Listens on `address`. The default `[::]` takes IPv4 too; where the kernel has no IPv6 at all, that alone.
fn bind(address: SocketAddr, flag: &str) -> Result<TcpListener> {
    let listener = TcpListener::bind(address).or_else(|error| {
        if address.ip() == Ipv6Addr::UNSPECIFIED {
            return TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).map_err(|_| error);
        }
        Err(error)
    });
    let listener = listener
        .with_context(|| format!("failed to listen on {address}: choose another with {flag}"))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Who we are in the Lease: the pod, or else somebody whom nobody else is.
fn holder(args: &RunArgs) -> String {
    let unique = args.pod_uid.clone().unwrap_or_else(|| {
        // The standard library seeds this at random for each process.
        let random = RandomState::new().build_hasher().finish();
        format!("{random:016x}")
    });
    format!("{}_{unique}", args.pod_name)
}

/// Where certificates come from, with what is wrong about that said at once.
fn certificate_source(args: &CertificateArgs) -> Result<(Source, Lifetimes)> {
    let lifetimes = Lifetimes {
        serving: args.certificate_lifetime,
        authority: args.ca_lifetime,
    };
    if lifetimes.serving < Lifetimes::SHORTEST
        || lifetimes.authority < lifetimes.serving * Lifetimes::AUTHORITY_AT_LEAST
    {
        bail!(
            "--certificate-lifetime must be at least {:?}, and --ca-lifetime {} times as long as it",
            Lifetimes::SHORTEST,
            Lifetimes::AUTHORITY_AT_LEAST
        );
    }
    let (Some(certificate), Some(key)) = (&args.tls_cert_file, &args.tls_key_file) else {
        return Ok((Source::Secret, lifetimes));
    };
    let files = Files {
        certificate: certificate.clone(),
        key: key.clone(),
        authority: args.ca_file.clone(),
    };
    files
        .check()
        .context("failed to use --tls-cert-file, --tls-key-file and --ca-file")?;
    Ok((Source::Files(files), lifetimes))
}

/// Serves with TLS as soon as there is a certificate.
async fn serve_tls(
    listener: TcpListener,
    served: Served,
    router: Router,
    shutdown: CancellationToken,
) -> std::io::Result<()> {
    match served.config(&shutdown).await {
        Some(config) => listen::tls(listener, config, router, shutdown).await,
        None => Ok(()),
    }
}

/// What feeds the caches, and what says that they can't be fed.
fn spawn_caches(
    tasks: &mut Tasks,
    caches: &Arc<Caches>,
    client: Client,
    shutdown: &CancellationToken,
) {
    let watches = Arc::clone(caches).run(client);
    tasks.spawn_endless("caches", until(shutdown.clone(), watches));
    let health = tasks.health.clone();
    let watchdog = Arc::clone(caches).watch_over(move |stuck| health.notice("caches", stuck));
    tasks.spawn_endless("cache-watchdog", until(shutdown.clone(), watchdog));
}

/// Keeps up with whose certificates count. Ready without it: the webhooks on the same port need none of it, and
/// the aggregated API says for itself that it can't tell yet who is calling.
fn follow_trust(
    client: Client,
    trust: TrustStore,
    health: &Health,
    shutdown: CancellationToken,
) -> impl Future<Output = ()> + Send + 'static {
    let health = health.clone();
    let report = move |outcome: Result<(), String>| {
        health.notice("client authorities", outcome.err());
    };
    report(Err("not read yet".to_owned()));
    async move {
        until(shutdown, trust.run(client, report)).await;
    }
}

async fn until(shutdown: CancellationToken, work: impl Future<Output = ()>) {
    shutdown.run_until_cancelled(work).await;
}

/// The top-level tasks.
struct Tasks {
    health: Health,
    set: JoinSet<(&'static str, Result<()>)>,
}

impl Tasks {
    fn new(health: Health) -> Self {
        Self {
            health,
            set: JoinSet::new(),
        }
    }

    fn spawn<E: Into<anyhow::Error>>(
        &mut self,
        name: &'static str,
        work: impl Future<Output = Result<(), E>> + Send + 'static,
    ) {
        let guard = self.health.task(name, None);
        self.set.spawn(async move {
            let result = work.await.map_err(Into::into);
            // Not reached by a panic, after which the guard says that the task is gone.
            guard.finish();
            (name, result)
        });
    }

    fn spawn_endless(
        &mut self,
        name: &'static str,
        work: impl Future<Output = ()> + Send + 'static,
    ) {
        self.spawn(name, async move {
            work.await;
            Ok::<(), anyhow::Error>(())
        });
    }

    /// Waits for a signal or for the end of a task, then stops the others.
    async fn supervise(mut self, shutdown: CancellationToken) -> Result<()> {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let outcome = tokio::select! {
            _ = terminate.recv() => Ok(()),
            _ = interrupt.recv() => Ok(()),
            ended = self.set.join_next() => match ended {
                Some(Ok((name, Ok(())))) => Err(anyhow::anyhow!("the task {name} ended")),
                Some(Ok((name, Err(error)))) => Err(error.context(format!("the task {name} failed"))),
                Some(Err(panic)) => Err(panic.into()),
                None => bail!("there is no task"),
            },
        };
        tracing::info!("Stopping");
        shutdown.cancel();
        let rest = async { while self.set.join_next().await.is_some() {} };
        if tokio::time::timeout(GRACE, rest).await.is_err() {
            tracing::warn!("Stopped without waiting for all tasks");
        }
        outcome
    }
}
