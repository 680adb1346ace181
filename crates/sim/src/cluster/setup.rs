//! Shape of a simulated cluster, drawn from a seed.

use std::time::Duration;

use chronolith_base::Rng;
use chronolith_cluster::gateway::RecordStore;
use chronolith_model::TenantId;
use chronolith_model::databases::BucketStoreId;
use chronolith_replicated_log::sim::SimFaults;

/// Time at which each simulation begins.
pub(super) const START_MS: i64 = 1_795_132_800_000;
pub(super) const MINUTE_MS: i64 = 60_000;
pub(super) const HOUR_MS: i64 = 60 * MINUTE_MS;
/// Time for which a catalogue stays in use until an owner refuses it.
pub(super) const NEVER: Duration = Duration::from_secs(u64::MAX >> 32);
/// Partitions that the log has in the end, at most.
pub(super) const PARTITIONS_MAX: u32 = 4;
/// Owners of each partition.
pub(super) const OWNERS_PER_PARTITION: usize = 2;
/// Series of each store.
pub(super) const SERIES_PER_STORE: usize = 4;

/// Store of a tenant.
#[derive(Debug, Clone)]
pub(super) struct StoreSetup {
    pub(super) tenant: TenantId,
    pub(super) store: RecordStore,
}

/// Shape of a cluster.
#[derive(Debug, Clone)]
pub(super) struct ClusterSetup {
    pub(super) seed: u64,
    pub(super) partition_count: u32,
    /// Clocks of gateways, milliseconds ahead; the first one is right.
    pub(super) gateway_skews_ms: Vec<i64>,
    pub(super) stores: Vec<StoreSetup>,
    /// Flush delay of all owners.
    pub(super) delay_ms: i64,
    /// Time for which owners keep the samples of published cuts.
    pub(super) seam: Duration,
    pub(super) faults: SimFaults,
    /// Age at which a query node reads a catalogue again by itself.
    pub(super) catalogue_poll: Duration,
    /// True if partitions are added and drained.
    pub(super) changes_partitions: bool,
    /// True if gateways delete samples.
    pub(super) deletes: bool,
    /// Longest run of samples of a series in a request.
    pub(super) run_count_max: u64,
    /// One run of this many is hours old.
    pub(super) old_run_of: u64,
}

impl ClusterSetup {
    pub(super) fn from_seed(seed: u64) -> ClusterSetup {
        let rng = Rng::from_seed(seed ^ 0xc105);
        let skew_ms = || [0, 20 * MINUTE_MS, 3 * HOUR_MS, -HOUR_MS, -5 * HOUR_MS][rng.below(5) as usize];
        let gateway_skews_ms = vec![0, skew_ms(), skew_ms()];
        let some = SimFaults::some();
        let faults = match rng.below(3) {
            0 => SimFaults { delay_us_max: some.delay_us_max, ..SimFaults::default() },
            1 => some,
            _ => SimFaults { lost_acks: 60, late_arrivals: 40, stored_twice: 20, refused: 40, ..some },
        };
        let (run_count_max, old_run_of) = [(60, 5), (5000, 40), (5000, 40)][rng.below(3) as usize];
        ClusterSetup {
            seed,
            partition_count: 1 + rng.below(2) as u32,
            gateway_skews_ms,
            stores: draw_stores(&rng),
            delay_ms: [MINUTE_MS, 10 * MINUTE_MS, HOUR_MS][rng.below(3) as usize],
            seam: Duration::from_secs([60, 600, 3600][rng.below(3) as usize]),
            faults,
            catalogue_poll: NEVER,
            changes_partitions: rng.below(2) == 0,
            deletes: !seed.is_multiple_of(3),
            run_count_max,
            old_run_of,
        }
    }

    /// Tenants, each once.
    pub(super) fn tenants(&self) -> Vec<TenantId> {
        let mut tenants: Vec<TenantId> = self.stores.iter().map(|store| store.tenant.clone()).collect();
        tenants.dedup();
        tenants
    }
}

/// Two tenants: one with all kinds of stores, one with a default store alone.
fn draw_stores(rng: &Rng) -> Vec<StoreSetup> {
    let tenant = |name: &str| TenantId::new(name).expect("an id");
    let mut id = [0; 16];
    rng.fill(&mut id);
    let stores = [
        ("team", RecordStore::Default),
        ("team", RecordStore::Graphite(BucketStoreId::GRAPHITE)),
        ("team", RecordStore::Database(BucketStoreId::from_bytes(id))),
        ("other", RecordStore::Default),
    ];
    let setup = |(name, store): (&str, RecordStore)| StoreSetup { tenant: tenant(name), store };
    stores.map(setup).into()
}
