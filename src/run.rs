//! `vmpool run`: puts the parts together. The only place that spawns top-level tasks; each of them is to go
//! on until the program is told to stop, and one that ends before ends the program, so that it is never
//! "Ready but deaf".

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use prometheus_client::registry::Registry;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::admission::{self, AdmissionMetrics, AdmissionState, CachedObjects, LiveObjects};
use crate::cache::{CacheMetrics, Caches};
use crate::cli::RunArgs;
use crate::controller::{self, ControllerConfig};
use crate::server::certificates::{self, Certificates};
use crate::server::health::{self, Health};
use crate::server::listen;
use crate::{clock, plan};

/// How long tasks may take to stop: requests under way, and one call of the controller's.
const GRACE: Duration = Duration::from_secs(10);
/// How often it is looked at whether the certificate is still fresh.
const CERTIFICATE_CHECK: Duration = Duration::from_hours(1);

/// Runs until a signal, or until a part fails.
pub async fn run(args: RunArgs) -> Result<()> {
    let config = client_config(&args).await?;
    let tls_listener = bind(args.admission_address, "--admission-address")?;
    let plain_listener = bind(args.health_address, "--health-address")?;
    let certificates = Certificates::make(&args.service, &args.namespace, clock::now())
        .context("failed to make the serving certificate")?;

    let health = Health::new();
    let mut registry = Registry::default();
    let caches = Arc::new(Caches::default());
    let admission_metrics = AdmissionMetrics::register(&mut registry);
    let controller_metrics = controller::Metrics::default();
    controller_metrics.register(&mut registry);
    registry.register_collector(Box::new(CacheMetrics::new(Arc::clone(&caches))));
    registry.register_collector(certificates.collector());

    let client = Client::try_from(config.clone()).context("failed to make a client")?;
    let objects = CachedObjects::new(
        Arc::clone(&caches),
        LiveObjects::new(config).context("failed to make a client")?,
    );
    let webhooks = admission::router(AdmissionState {
        objects: Arc::new(objects),
        own_username: admission::service_account_username(&args.namespace, &args.service_account),
        metrics: admission_metrics,
    });

    let shutdown = CancellationToken::new();
    let mut tasks = Tasks::new(health.clone());
    let server_config = Arc::clone(&certificates.server_config);
    tasks.spawn(
        "webhooks",
        listen::tls(tls_listener, server_config, webhooks, shutdown.clone()),
    );
    let plain = health::router(health.clone(), Arc::new(registry));
    tasks.spawn(
        "health",
        listen::plain(plain_listener, plain, shutdown.clone()),
    );
    tasks.spawn_endless(
        "ca-bundle",
        publish(client.clone(), certificates, &health, shutdown.clone()),
    );
    spawn_caches(&mut tasks, &caches, client.clone(), &shutdown);
    let controller = controller::run(ControllerConfig {
        client,
        caches,
        own_namespace: args.namespace,
        limits: plan::Limits { burst: args.burst },
        max_in_flight: args.max_in_flight,
        metrics: controller_metrics,
        plan: plan::plan,
        instance: args.pod_name,
        shutdown: shutdown.clone(),
    });
    tasks.spawn_endless("controller", controller);
    tracing::info!(
        webhooks = %args.admission_address,
        health = %args.health_address,
        "Started"
    );
    tasks.supervise(shutdown).await
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

/// Keeps our CA in the webhook configurations, and ends when the certificate is about to expire, which ends
/// the program: the next start makes a new one.
fn publish(
    client: Client,
    certificates: Certificates,
    health: &Health,
    shutdown: CancellationToken,
) -> impl Future<Output = ()> + Send + 'static {
    let check = health.check("webhook configurations");
    async move {
        let expiry = async {
            while certificates.is_fresh(clock::now()) {
                tokio::time::sleep(CERTIFICATE_CHECK).await;
            }
            tracing::warn!("The serving certificate is about to expire: restarting");
        };
        let publishing = certificates::publish(client, &certificates.ca_pem, check, shutdown);
        tokio::select! {
            () = publishing => {}
            () = expiry => {}
        }
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
