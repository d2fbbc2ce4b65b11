//! Certificates of the real program, with lives of seconds: AG-08, AG-09, AG-10. What is decided is tested in
//! `src/server`; here it is that every consumer follows and no call fails.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use dev::harness::{Harness, NAMESPACE, Options};
use dev::supervisor::Signal;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::json;
use vmpool::api::API_SERVICE;
use vmpool::server::certificates::SECRET;

use crate::curl::pool_path;
use crate::objects::{all, config, pool};
use crate::probes::{Creator, first_of, metric, served};
use crate::{Space, with_own};

/// Certificates of 24 s by CAs of 72 s: renewed with 8 s left, replaced with 48 s left.
const LIVES: [&str; 4] = ["--certificate-lifetime", "24", "--ca-lifetime", "72"];

fn short_lived(two_replicas: bool) -> Options {
    Options {
        args: LIVES.map(str::to_owned).into(),
        two_replicas,
        without_standin: true,
        ..Options::default()
    }
}

async fn secret(client: &kube::Client) -> Result<Secret> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
    Ok(secrets.get(SECRET).await?)
}

fn part(secret: &Secret, key: &str) -> String {
    let data = secret.data.as_ref().and_then(|data| data.get(key));
    data.map(|bytes| String::from_utf8_lossy(&bytes.0).into_owned())
        .unwrap_or_default()
}

/// Every `caBundle` that there is.
async fn bundles(client: &kube::Client) -> Result<Vec<String>> {
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    let services: Api<APIService> = Api::all(client.clone());
    let mut found = Vec::new();
    let mutating = mutating.get("stamp.vmpool.dev").await?;
    let mutating = mutating.webhooks.unwrap_or_default().into_iter();
    found.extend(mutating.map(|webhook| webhook.client_config.ca_bundle));
    let validating = validating.get("validate.vmpool.dev").await?;
    let validating = validating.webhooks.unwrap_or_default().into_iter();
    found.extend(validating.map(|webhook| webhook.client_config.ca_bundle));
    let service = services.get(API_SERVICE).await?;
    found.push(service.spec.and_then(|spec| spec.ca_bundle));
    let text = |bundle: Option<ByteString>| {
        String::from_utf8_lossy(&bundle.unwrap_or_default().0).into_owned()
    };
    Ok(found.into_iter().map(text).collect())
}

/// How many certificates a bundle has.
fn count(bundle: &str) -> usize {
    bundle.matches("BEGIN CERTIFICATE").count()
}

#[test]
fn ag_08_certificates_are_renewed_before_they_end_and_made_anew_at_a_start_with_expired_ones() {
    with_own(
        short_lived(false),
        async |cluster: &mut Harness| -> Result<()> {
            let ns = Space::new(cluster, "ag08").await?;
            let first = secret(&ns.client).await?;
            let health = cluster.health();
            let left = || metric(health, "vmpool_certificate_seconds_left");
            // 1. Five lives of a certificate, two of a CA's time of signing.
            let creator = Creator::start(&ns, Duration::from_millis(200))?;
            let begun = Instant::now();
            let mut least = i64::MAX;
            while begun.elapsed() < Duration::from_mins(2) {
                least = least.min(left()?);
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
            creator.stop().await?;
            ensure!(least > 2, "it was served with {least} s left");
            let last = secret(&ns.client).await?;
            ensure!(part(&first, "tls.crt") != part(&last, "tls.crt"));
            ensure!(part(&first, "ca.crt") != part(&last, "ca.crt"));
            ensure!(cluster.vmpool().restarts() == 0, "it was restarted");

            // 2. A start with what has long expired, and one with junk.
            let client = ns.client.clone();
            drop(ns);
            for what in ["expired", "junk"] {
                cluster.stop_vmpool();
                let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
                let data = match what {
                    "expired" => json!(first.data),
                    _ => json!({"ca.crt": "anVuaw==", "tls.key": "", "tls.crt": "anVuaw=="}),
                };
                let patch = Patch::Merge(json!({"data": data}));
                secrets
                    .patch(SECRET, &PatchParams::default(), &patch)
                    .await?;
                cluster.start_vmpool().await.context(what)?;
                ensure!(left()? > 2, "{what}");
            }
            Ok(())
        },
    );
}

#[test]
fn ag_09_a_swapped_secret_and_swapped_files_are_served_to_new_connections_without_a_restart() {
    with_own(
        Options {
            // A tenth of it is what clients are given to learn of a CA.
            args: vec!["--certificate-lifetime=60".to_owned()],
            two_replicas: true,
            without_standin: true,
            ..Options::default()
        },
        async |cluster: &mut Harness| -> Result<()> {
            let ns = Space::new(cluster, "ag09").await?;
            let before = secret(&ns.client).await?;
            for index in 0..2 {
                let port = cluster.admission_port(index);
                ensure!(
                    served(port)? == first_of(&part(&before, "tls.crt"))?,
                    "they share one"
                );
            }
            let creator = Creator::start(&ns, Duration::from_millis(100))?;
            // The hardest swap: it is gone, CA and all.
            let secrets: Api<Secret> = Api::namespaced(ns.client.clone(), NAMESPACE);
            secrets.delete(SECRET, &DeleteParams::default()).await?;
            ns.eventually("both serve the new one", async || {
                let after = secret(&ns.client).await?;
                ensure!(part(&after, "ca.crt") != part(&before, "ca.crt"));
                for index in 0..2 {
                    let port = cluster.admission_port(index);
                    ensure!(
                        served(port)? == first_of(&part(&after, "tls.crt"))?,
                        "{index}: the old one"
                    );
                }
                Ok(())
            })
            .await?;
            creator.stop().await?;
            ensure!(cluster.replica(0).restarts() + cluster.replica(1).restarts() == 0);
            Ok(())
        },
    );
}

/// The serving certificate, its key and its CA, in files.
struct Files(tempfile::TempDir);

impl Files {
    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Makes a new CA and what it signs.
    fn renew(&self) -> Result<()> {
        let mut ca = rcgen::CertificateParams::default();
        ca.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let ca = rcgen::CertifiedIssuer::self_signed(ca, rcgen::KeyPair::generate()?)?;
        let names = [
            "127.0.0.1".to_owned(),
            "vmpool.vmpool-system.svc".to_owned(),
        ];
        let key = rcgen::KeyPair::generate()?;
        let serving = rcgen::CertificateParams::new(names)?.signed_by(&key, &ca)?;
        // As a kubelet swaps a mounted Secret, but one after the other: broken for a moment.
        write(&self.path("ca.crt"), &ca.pem())?;
        write(&self.path("tls.crt"), &serving.pem())?;
        write(&self.path("tls.key"), &key.serialize_pem())
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("failed to write {path:?}"))
}

#[test]
fn ag_09_certificates_in_files_are_followed_with_every_ca_bundle() -> Result<()> {
    let files = Files(tempfile::tempdir()?);
    files.renew()?;
    let options = Options {
        args: [
            "tls-cert-file=tls.crt",
            "tls-key-file=tls.key",
            "ca-file=ca.crt",
        ]
        .map(|flag| {
            let (flag, name) = flag.split_once('=').unwrap_or_default();
            format!("--{flag}={}", files.path(name).display())
        })
        .into_iter()
        // Its tenth and twentieth are how long is waited.
        .chain(["--certificate-lifetime=60".to_owned()])
        .collect(),
        without_standin: true,
        ..Options::default()
    };
    with_own(options, async |cluster: &mut Harness| -> Result<()> {
        let ns = Space::new(cluster, "files").await?;
        let port = cluster.admission_port(0);
        let creator = Creator::start(&ns, Duration::from_millis(100))?;
        let before = served(port)?;
        files.renew()?;
        let after = first_of(&std::fs::read_to_string(files.path("tls.crt"))?)?;
        ns.eventually("the new one is served", async || {
            ensure!(served(port)? == after && before != after);
            Ok(())
        })
        .await?;
        let ca = std::fs::read_to_string(files.path("ca.crt"))?;
        for bundle in bundles(&ns.client).await? {
            ensure!(
                bundle.contains(ca.lines().nth(3).unwrap_or("?")),
                "one was forgotten"
            );
        }
        creator.stop().await?;
        let secrets: Api<Secret> = Api::namespaced(ns.client.clone(), NAMESPACE);
        ensure!(
            secrets.get_opt(SECRET).await?.is_none(),
            "it made its own too"
        );
        Ok(())
    });
    Ok(())
}

#[test]
fn ag_10_a_ca_is_rotated_under_creates_with_no_failed_call_and_every_consumer_patched() {
    with_own(
        short_lived(true),
        async |cluster: &mut Harness| -> Result<()> {
            let ns = Space::new(cluster, "ag10").await?;
            ns.eventually("everybody trusts the first CA", async || {
                let found = bundles(&ns.client).await?;
                ensure!(found.iter().all(|bundle| count(bundle) > 0));
                Ok(())
            })
            .await?;
            let first = secret(&ns.client).await?;
            ns.accepts(all(&[config("cfg"), pool("web", "cfg").replicas(0)]))?;
            let path = pool_path(&ns, "web", "/scale");
            ns.eventually("the aggregated API is reached", async || {
                ns.kubectl(&format!("get --raw {path}")).map(drop)
            })
            .await?;
            let creator = Creator::start(&ns, Duration::from_millis(50))?;
            let reader = Creator::reading(&ns, &path, Duration::from_millis(200));
            let begun = Instant::now();
            // What was seen: CAs of the Secret, and how many stood in each bundle.
            let (mut authorities, mut together) = (vec![part(&first, "ca.crt")], 0);
            let patience = Duration::from_mins(3);
            while authorities.len() < 4 && begun.elapsed() < patience {
                // Before anybody serves with what a CA signed, everybody trusts that CA.
                let now_served = [
                    served(cluster.admission_port(0))?,
                    served(cluster.admission_port(1))?,
                ];
                let stored = secret(&ns.client).await?;
                let found = bundles(&ns.client).await?;
                if found.iter().all(|bundle| count(bundle) == 2) {
                    together += 1;
                }
                let is_new = now_served.contains(&first_of(&part(&stored, "tls.crt"))?);
                let authority = part(&stored, "ca.crt");
                if is_new {
                    let line = authority.lines().nth(3).unwrap_or("?");
                    ensure!(
                        found.iter().all(|bundle| bundle.contains(line)),
                        "served before it was trusted"
                    );
                }
                if !authorities.contains(&authority) {
                    authorities.push(authority);
                }
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
            ensure!(authorities.len() == 4, "{} CAs", authorities.len());
            ensure!(together > 0, "old and new never stood together");
            // The old one goes.
            ns.eventually("one CA is left everywhere", async || {
                let found = bundles(&ns.client).await?;
                ensure!(
                    found.iter().all(|bundle| count(bundle) == 1),
                    "{:?}",
                    found.iter().map(|bundle| count(bundle)).collect::<Vec<_>>()
                );
                Ok(())
            })
            .await?;
            let made = creator.stop().await?;
            ensure!(made > 500, "{made} calls are few");
            let read = reader.stop().await?;
            ensure!(read > 100, "{read} reads are few");
            ensure!(cluster.replica(0).restarts() + cluster.replica(1).restarts() == 0);
            Ok(())
        },
    );
}

#[test]
fn two_replicas_that_begin_together_make_one_ca_and_a_restart_keeps_it() {
    with_own(
        Options {
            two_replicas: true,
            without_standin: true,
            ..Options::default()
        },
        async |cluster: &mut Harness| -> Result<()> {
            let ns = Space::new(cluster, "one-ca").await?;
            let made = secret(&ns.client).await?;
            let found = bundles(&ns.client).await?;
            ensure!(found.iter().all(|bundle| *bundle == part(&made, "ca.crt")));
            for index in 0..2 {
                ensure!(
                    served(cluster.admission_port(index))? == first_of(&part(&made, "tls.crt"))?
                );
                let replica = cluster.replica(index);
                replica.kill(Signal::KILL);
                replica.wait_restarts(1, Duration::from_secs(60)).await?;
                replica.wait_ready(Duration::from_secs(60)).await?;
            }
            let kept = secret(&ns.client).await?;
            ensure!(kept.metadata.resource_version == made.metadata.resource_version);
            ensure!(bundles(&ns.client).await? == found);
            Ok(())
        },
    );
}
