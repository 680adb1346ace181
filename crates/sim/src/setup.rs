//! Setup of a simulation: tenants with their limits, options of the store, number of series.
//!
//! Invariants: depends on the seed only. Not here: the operations (`op`).

use std::path::PathBuf;

use chronolith_base::Rng;
use chronolith_model::{BlockEncoding, DuplicatePolicy, StoreId, TenantId, TenantLimits};
use chronolith_tsdb::{LimitsTable, SyncMode, TsdbOptions};

/// 2026-11-20 00:00 UTC, aligned to two hours.
pub(crate) const START_MS: i64 = 1_795_132_800_000;
pub(crate) const MINUTE_MS: i64 = 60_000;
pub(crate) const HOUR_MS: i64 = 60 * MINUTE_MS;
pub(crate) const DAY_MS: i64 = 24 * HOUR_MS;

/// Number of the first store of a catalogue.
const FIRST_STORE: u64 = 0;
/// Active series of one tenant.
const SERIES_COUNT_MAX: u64 = 1000;

/// Number of threads, which restricts the setup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Threads {
    /// Every setup is possible.
    One,
    /// No retention, because other threads move the clock.
    Many,
}

/// One tenant.
#[derive(Debug, Clone)]
pub struct TenantSetup {
    /// Identifier.
    pub id: StoreId,
    /// Limits and policies.
    pub limits: TenantLimits,
}

/// Tenants and options.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Seed of the setup and of the operations.
    pub seed: u64,
    /// At least one.
    pub tenants: Vec<TenantSetup>,
    /// Options of the store.
    pub options: TsdbOptions,
    /// Series of a tenant that are active at a time.
    pub series_count: u32,
    /// Interval at which a new series replaces an active one.
    pub churn_ms: i64,
    /// Index of the tenant that is a Graphite store with roll-ups: the last one.
    pub graphite: Option<usize>,
    /// A bucket to which blocks are uploaded.
    pub bucket: Option<BucketSetup>,
}

/// Settings of the bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BucketSetup {
    /// Age from which local copies are removed.
    pub local_retention_ms: i64,
}

impl Setup {
    /// Returns the setup of `seed`.
    #[must_use]
    pub fn from_seed(seed: u64) -> Setup {
        Setup::draw(seed, Threads::One)
    }

    /// Returns the setup of `seed` with a bucket.
    #[must_use]
    pub fn with_bucket(seed: u64) -> Setup {
        let rng = Rng::from_seed(seed ^ 0xb0c_0000);
        let mut setup = Setup::draw(seed, Threads::One);
        setup.series_count = setup.series_count.min(40);
        setup.tenants.truncate(3);
        let local_retention_ms = pick(&rng, &[0, HOUR_MS, 6 * HOUR_MS, 7 * DAY_MS]);
        setup.bucket = Some(BucketSetup { local_retention_ms });
        for tenant in &mut setup.tenants {
            tenant.limits.bucket_retention_ms = pick(&rng, &[0, 0, 0, DAY_MS, 3 * DAY_MS]);
        }
        setup.options.limits = limits_of(&setup.tenants);
        setup
    }

    /// Returns the setup of `seed` with a Graphite store.
    #[must_use]
    pub fn with_graphite(seed: u64) -> Setup {
        let mut setup = Setup::draw(seed, Threads::One);
        setup.series_count = setup.series_count.min(40);
        // Stores come from the catalogue.
        setup.tenants.retain(|tenant| tenant.id.is_default());
        setup.tenants.truncate(2);
        setup.graphite = Some(setup.tenants.len());
        setup.tenants.push(graphite_tenant());
        setup.options.limits = limits_of(&setup.tenants);
        setup
    }

    pub(crate) fn draw(seed: u64, threads: Threads) -> Setup {
        let rng = Rng::from_seed(seed ^ 0x5e70_0000);
        let tenants: Vec<TenantSetup> = (0..2 + rng.below(4)).map(|idx| tenant(&rng, idx, threads)).collect();
        let mut options = TsdbOptions::new(PathBuf::from("/data"));
        options.free_bytes_min = 0;
        options.wal.segment_bytes = pick(&rng, &[16 << 10, 64 << 10, 256 << 10, 1 << 20]);
        options.wal.checkpoint_bytes = pick(&rng, &[64 << 10, 1 << 20, 4 << 30]);
        options.flush.delay_ms = pick(&rng, &[0, MINUTE_MS, HOUR_MS]);
        options.retention.clock_guard_ms = pick(&rng, &[0, HOUR_MS, DAY_MS]);
        options.flush.small_window_bytes = pick(&rng, &[0, 4 << 10, 1 << 20]);
        options.flush.waiting_bytes_max = pick(&rng, &[0, 10_000, 1 << 30]);
        options.compaction.block_bytes_max = pick(&rng, &[0, 1 << 20, 2 << 30, 2 << 30]);
        options.compaction.bytes_per_second = pick(&rng, &[0, 64 << 20]);
        // The other modes guarantee to survive a kill, not a power cut; `op` draws crashes accordingly.
        options.sync = match rng.below(12) {
            0 => SyncMode::Os,
            1 => SyncMode::Interval(100),
            _ => SyncMode::Fsync,
        };
        options.limits = limits_of(&tenants);
        let series_count = 2 + rng.below(if rng.below(3) == 0 { SERIES_COUNT_MAX } else { 60 });
        options.histogram_bytes_max = pick(&rng, &[0, 100_000, 1 << 30]);
        let churn_ms = pick(&rng, &[MINUTE_MS, 10 * MINUTE_MS, HOUR_MS, DAY_MS]);
        let series_count = series_count as u32;
        Setup { seed, tenants, options, series_count, churn_ms, graphite: None, bucket: None }
    }

    /// Returns true if acknowledged samples survive a power cut.
    pub(crate) fn survives_power_cut(&self) -> bool {
        self.options.sync == SyncMode::Fsync
    }
}

/// Limits of the tenants. The store of a database has the defaults: it is in no catalogue, so it has no owner
/// with limits.
fn limits_of(tenants: &[TenantSetup]) -> LimitsTable {
    let of_database = tenants.iter().find(|tenant| matches!(tenant.id, StoreId::Database { .. }));
    let by_tenant = tenants.iter().filter_map(|t| Some((t.id.tenant()?.clone(), t.limits.clone())));
    LimitsTable {
        default: of_database.map_or_else(TenantLimits::default, |tenant| tenant.limits.clone()),
        by_tenant: by_tenant.collect(),
    }
}

fn tenant(rng: &Rng, idx: u64, threads: Threads) -> TenantSetup {
    let retention_ms = if rng.below(4) == 0 { pick(rng, &[6 * HOUR_MS, DAY_MS, 3 * DAY_MS]) } else { 0 };
    let limits = TenantLimits {
        duplicates: pick(rng, &[DuplicatePolicy::KeepFirst, DuplicatePolicy::LastWins]),
        block_encoding: pick(rng, &[BlockEncoding::Dense, BlockEncoding::Prometheus]),
        out_of_order_ms: if rng.below(4) == 0 { pick(rng, &[MINUTE_MS, HOUR_MS, DAY_MS]) } else { 0 },
        future_ms_max: pick(rng, &[0, 10 * MINUTE_MS, 10 * MINUTE_MS, DAY_MS]),
        retention_ms: if threads == Threads::One { retention_ms } else { 0 },
        ..TenantLimits::default()
    };
    // The second of them has times in nanoseconds.
    let id = match idx {
        1 => StoreId::Database { number: idx },
        _ => StoreId::from(TenantId::new(&format!("t{idx}")).expect("a valid tenant id")),
    };
    TenantSetup { id, limits }
}

/// A Graphite store, with the limits that these have.
pub(crate) fn graphite_tenant() -> TenantSetup {
    let limits = TenantLimits {
        duplicates: DuplicatePolicy::LastWins,
        out_of_order_ms: 0,
        future_ms_max: 0,
        retention_ms: 0,
        ..TenantLimits::default()
    };
    TenantSetup { id: StoreId::Graphite { number: FIRST_STORE }, limits }
}

pub(crate) fn pick<T: Copy>(rng: &Rng, from: &[T]) -> T {
    from[rng.below(from.len() as u64) as usize]
}
