//! How full the caches are and whether they are complete, worked out when the metrics are read.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::{Caches, Index, Kind};

/// Reads the caches at each scrape.
#[derive(Debug)]
pub struct CacheMetrics {
    caches: Arc<Caches>,
}

impl CacheMetrics {
    /// Of these caches.
    pub fn new(caches: Arc<Caches>) -> Self {
        Self { caches }
    }

    /// Objects, and whether the cache is complete.
    fn rows(&self) -> [(Kind, usize, bool); 7] {
        let caches = &*self.caches;
        macro_rules! row {
            ($kind:ident, $store:ident) => {
                (Kind::$kind, caches.$store.len(), caches.$store.is_synced())
            };
        }
        [
            row!(Claims, claims),
            row!(Configs, configs),
            row!(DataVolumes, data_volumes),
            row!(Pools, pools),
            row!(Revisions, revisions),
            row!(Vms, vms),
            row!(Vmis, vmis),
        ]
    }

    fn members(&self) -> usize {
        let pools = self.caches.pools.all();
        pools
            .iter()
            .map(|pool| self.caches.vms.count(&Index::Owner(pool.id.uid.clone())))
            .sum()
    }
}

impl Collector for CacheMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let rows = self.rows();
        let help = "Objects in a cache";
        let mut family =
            encoder.encode_descriptor("vmpool_cache_objects", help, None, MetricType::Gauge)?;
        for (kind, objects, _) in rows {
            gauge(objects).encode(family.encode_family(&[("kind", kind.as_str())])?)?;
        }
        let help = "Whether a cache is complete (1) or being listed, or its kind not installed (0)";
        let mut family =
            encoder.encode_descriptor("vmpool_cache_synced", help, None, MetricType::Gauge)?;
        for (kind, _, synced) in rows {
            gauge(usize::from(synced)).encode(family.encode_family(&[("kind", kind.as_str())])?)?;
        }
        let help = "How often a kind could not be listed or watched";
        let mut family =
            encoder.encode_descriptor("vmpool_cache_failures", help, None, MetricType::Counter)?;
        for (kind, _, _) in rows {
            let times = ConstCounter::new(self.caches.troubles.times(kind));
            times.encode(family.encode_family(&[("kind", kind.as_str())])?)?;
        }
        let help = "VMs that are members of a pool";
        let family = encoder.encode_descriptor("vmpool_members", help, None, MetricType::Gauge)?;
        gauge(self.members()).encode(family)
    }
}

fn gauge(value: usize) -> ConstGauge<i64> {
    ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX))
}
