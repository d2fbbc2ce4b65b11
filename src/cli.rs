//! The command line of `vmpool`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Pools of stateful virtual machines for KubeVirt.
#[derive(Debug, Parser)]
#[command(version, about)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Write the manifests that install this version, generated from its own types.
    Manifests {
        /// Folder to write to.
        #[arg(long, default_value = "manifests")]
        dir: PathBuf,
    },
    /// Serve the admission webhooks and run the controller.
    Run(Box<RunArgs>),
}

/// Settings of `vmpool run`.
#[derive(Args, Clone, Debug)]
pub struct RunArgs {
    /// Kubeconfig file. Without it the service account of the pod is used, or what kubectl would use.
    #[arg(long, env = "KUBECONFIG")]
    pub kubeconfig: Option<PathBuf>,
    /// Address of the TLS port with the webhooks.
    #[arg(long, default_value = "[::]:8443")]
    pub admission_address: SocketAddr,
    /// Address of the plain port with /livez, /readyz and /metrics.
    #[arg(long, default_value = "[::]:8080")]
    pub health_address: SocketAddr,
    /// Namespace that this program runs in.
    #[arg(long, env = "POD_NAMESPACE", default_value = "vmpool-system")]
    pub namespace: String,
    /// Name of this process in the events that it writes.
    #[arg(long, env = "POD_NAME", default_value = "vmpool")]
    pub pod_name: String,
    /// UID of the pod, by which a restarted container has its Lease again at once. Never that of another process
    /// that may still run.
    #[arg(long, env = "POD_UID", hide = true)]
    pub pod_uid: Option<String>,
    /// Service account that this program runs as. VMs that another account creates are no members: with a wrong
    /// name here, pools get none.
    #[arg(long, default_value = "vmpool")]
    pub service_account: String,
    /// Service that the API server reaches the TLS port by; a name in the serving certificate.
    #[arg(long, default_value = "vmpool")]
    pub service: String,
    /// Where certificates come from.
    #[command(flatten)]
    pub certificates: CertificateArgs,
    /// Most VMs that one pass creates or deletes in one pool.
    #[arg(long, default_value_t = 250, value_parser = clap::value_parser!(u32).range(1..))]
    pub burst: u32,
    /// Most creates, updates, restarts and deletes of VMs under way at once over all pools.
    #[arg(long, default_value_t = 32, value_parser = parse_at_least_one)]
    pub max_in_flight: usize,
    /// How log lines look.
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
}

/// Where certificates come from. Without any of these the program makes them, in a Secret of its namespace.
#[derive(Args, Clone, Debug)]
pub struct CertificateArgs {
    /// PEM file with the serving certificate, from somewhere else; read again when its content changes.
    #[arg(long, requires = "tls_key_file")]
    pub tls_cert_file: Option<PathBuf>,
    /// PEM file with its key.
    #[arg(long, requires = "tls_cert_file")]
    pub tls_key_file: Option<PathBuf>,
    /// PEM file with its CA, which the program then writes into the caBundles. Without it, somebody else has to.
    #[arg(long, requires = "tls_cert_file")]
    pub ca_file: Option<PathBuf>,
    /// Seconds that a serving certificate lives. Default 90 days.
    #[arg(long, hide = true, default_value = "7776000", value_parser = parse_seconds)]
    pub certificate_lifetime: Duration,
    /// Seconds that a CA lives. Default 2 years.
    #[arg(long, hide = true, default_value = "63072000", value_parser = parse_seconds)]
    pub ca_lifetime: Duration,
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err(format!(
            "{text:?} is no whole number of seconds of at least 1"
        )),
        Ok(seconds) => Ok(Duration::from_secs(seconds)),
    }
}

fn parse_at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err(format!("{text:?} is no whole number of at least 1")),
        Ok(number) => Ok(number),
    }
}

/// How log lines look.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum LogFormat {
    /// One JSON object a line.
    Json,
    /// For people.
    Text,
}
