//! Peak memory, of a process that made the pool and of one that found it, whichever is more.
//!
//! Read from /proc, so on Linux only. KubeVirt is played here: its statuses, disks and claims are
//! part of what has to be held.

use anyhow::{Context, Result};

use super::cluster::{Cluster, foreign};
use super::report::Report;
use super::{Size, tell};
use crate::harness::Harness;

/// How many are created at once of what is not measured.
const AT_A_TIME: usize = 32;

/// Measures rss_mib_1000, rss_mib_foreign and rss_mib_5000.
pub(super) async fn measure(
    harness: &Harness,
    cluster: &Cluster,
    size: Size,
    report: &mut Report,
) -> Result<()> {
    harness.restart_vmpool().await?;
    report.push("rss_mib_start", peak_mib(harness)?);

    let namespace = harness.namespace("memory").await?;
    report.push(
        "rss_mib_1000",
        members(harness, cluster, &namespace, size.vms).await?,
    );
    let bodies = cluster.bodies(&namespace).await?;
    cluster.clear(&namespace).await?;

    let others = harness.namespace("others").await?;
    tell(&format!("{} VMs that are not ours", size.many));
    let vms = foreign(&bodies, size.many)?;
    cluster
        .create(&cluster.admin, &others, vms, AT_A_TIME)
        .await?;
    let namespace = harness.namespace("memory").await?;
    report.push(
        "rss_mib_foreign",
        members(harness, cluster, &namespace, size.vms).await?,
    );
    cluster.clear(&namespace).await?;
    cluster.clear(&others).await?;

    let namespace = harness.namespace("memory").await?;
    report.push(
        "rss_mib_5000",
        members(harness, cluster, &namespace, size.many).await?,
    );
    Ok(())
}

/// Peak memory with so many members.
async fn members(harness: &Harness, cluster: &Cluster, namespace: &str, vms: u32) -> Result<f64> {
    harness.restart_vmpool().await?;
    cluster.make_config(namespace).await?;
    cluster.make_pool(namespace, vms, false).await?;
    cluster.wait_settled(namespace, vms).await?;
    cluster.wait_played(namespace, vms).await?;
    let made = peak_mib(harness)?;
    harness.restart_vmpool().await?;
    cluster.wait_settled(namespace, vms).await?;
    let found = peak_mib(harness)?;
    tell(&format!(
        "{vms} members: made with {made:.1} MiB, found with {found:.1} MiB"
    ));
    Ok(made.max(found))
}

/// The most that the process has had in memory since it started.
fn peak_mib(harness: &Harness) -> Result<f64> {
    let pid = harness.vmpool().pid().context("vmpool does not run")?;
    let path = format!("/proc/{pid}/status");
    let status =
        std::fs::read_to_string(&path).with_context(|| format!("failed to read {path}"))?;
    let kib = high_water_mark(&status).with_context(|| format!("{path} has no VmHWM"))?;
    Ok(f64::from(kib) / 1024.0)
}

fn high_water_mark(status: &str) -> Option<u32> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_high_water_mark_is_in_kib() {
        let status = "Name:\tvmpool\nVmPeak:\t  900 kB\nVmHWM:\t   20480 kB\nVmRSS:\t 100 kB\n";
        assert_eq!(high_water_mark(status), Some(20480));
        assert_eq!(high_water_mark("Name:\tx\n"), None);
    }
}
