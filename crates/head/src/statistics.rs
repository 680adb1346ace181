//! Counters and sizes of the head, for metrics and status pages.

use std::sync::Arc;

use chronolith_base::hash::HashMap;
use chronolith_model::{StoreId, TimeRange};
use chronolith_wal::WalStats;

use crate::counters::Counter;
use crate::index::tables::{Cardinality, LargestUses};
use crate::index::tenant::TenantHead;
use crate::memory_account::StoreMemory;
use crate::memory_part::MemoryPart;
use crate::series::page_runs;
use crate::series::stripe::SeriesState;
use crate::series::verify::SealedVerification;
use crate::state::HeadState;
use crate::write::Writer;

/// Counters since startup, and current sizes.
#[derive(Debug, Clone, Default)]
pub struct HeadStats {
    /// Series of all tenants.
    pub series: u64,
    /// Tenants with series.
    pub tenants: u64,
    /// Chunks: open, out-of-order, sealed.
    pub chunks: u64,
    /// Timestamp of the oldest sample of all tenants.
    pub min_time_ms: Option<i64>,
    /// Timestamp of the newest sample of all tenants.
    pub max_time_ms: Option<i64>,
    /// Ids available for new series.
    pub series_ids_left: u64,
    /// Samples written since startup.
    pub samples: SampleStats,
    /// Native histograms in memory.
    pub histograms: HistogramStats,
    /// Texts in memory.
    pub texts: TextStats,
    /// Write-ahead log.
    pub wal: WalStats,
    /// Rolling checkpoint.
    pub checkpoint: CheckpointTotals,
    /// Files of sealed chunks.
    pub sealed_files: u64,
    /// Bytes of these files.
    pub sealed_bytes: u64,
    /// Damaged files of sealed chunks found after startup, as messages.
    pub sealed_damages: Vec<String>,
}

/// Samples written since startup.
#[derive(Debug, Clone, Default)]
pub struct SampleStats {
    /// Accepted samples, duplicates included.
    pub appended: u64,
    /// Accepted samples that were out of order.
    pub out_of_order: u64,
    /// Out-of-order samples encoded as chunks.
    pub ooo_sealed: u64,
    /// Accepted samples that were duplicates.
    pub repeated: u64,
    /// Accepted samples that replaced another value.
    pub replaced: u64,
    /// Accepted samples whose start timestamp was stored.
    pub with_start: u64,
    /// Deleted samples.
    pub deleted: u64,
    /// Created series.
    pub series_created: u64,
}

/// Native histograms in memory.
#[derive(Debug, Clone, Default)]
pub struct HistogramStats {
    /// Bytes of open chunks and out-of-order samples.
    pub bytes: u64,
    /// Number of times that samples of a series were sealed early because of the memory limit.
    pub sealed_early_count: u64,
}

/// Texts in memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TextStats {
    /// Bytes of all texts.
    pub bytes: u64,
    /// Bytes above which new texts are refused.
    pub bytes_max: u64,
}

/// Texts of one tenant and window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextWindow {
    /// The tenant.
    pub tenant: StoreId,
    /// The window.
    pub range: TimeRange,
    /// Bytes of the texts.
    pub bytes: u64,
}

/// Rolling checkpoint.
#[derive(Debug, Clone, Default)]
pub struct CheckpointTotals {
    /// Whole checkpoints written since startup.
    pub count: u64,
    /// Bytes of the newest copies of all slices, and of the series file.
    pub bytes: u64,
    /// Slices written since startup.
    pub slice_count: u64,
    /// Bytes of slices and series records written since startup.
    pub slice_bytes: u64,
    /// Bytes of WAL that a restart would replay, at the last checkpoint step.
    pub tail_bytes: u64,
    /// Estimated milliseconds of that replay.
    pub tail_ms: u64,
}

/// Sizes of one tenant in the head.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TenantStats {
    /// Chunks: open, out-of-order, sealed.
    pub chunk_count: u64,
    /// Timestamp of the oldest sample; `None` without samples.
    pub min_time_ms: Option<i64>,
    /// Timestamp of the newest sample.
    pub max_time_ms: Option<i64>,
}

/// Series of one tenant beyond its limits of series.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OverflowStats {
    /// Folded series.
    pub series_count: u64,
    /// Samples folded since startup.
    pub sample_count: u64,
    /// Bytes of the native histograms of folded series and of their sums.
    pub histogram_bytes: u64,
}

/// Metric with series beyond a limit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OverflowMetric {
    /// Name of the metric.
    pub metric: String,
    /// Folded series.
    pub series_count: u64,
    /// Clock time at which its first series was folded, in milliseconds; `None` if it has no estimates, which
    /// a bounded number of metrics have.
    pub since_ms: Option<i64>,
    /// Labels with estimates of their distinct values among the series that were folded since then, the
    /// largest number first. The standard error is 9 %.
    pub values_by_label: Vec<(String, u64)>,
}

/// Memory of one tenant in the head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantMemory {
    /// The tenant.
    pub tenant: StoreId,
    /// Number of its series.
    pub series_count: u64,
    /// Bytes of its own index, plus its share, by series, of the memory that all tenants share.
    pub bytes: u64,
}

/// Counters, sizes and memory of the head.
pub struct HeadStatistics {
    state: Arc<HeadState>,
    writer: Arc<Writer>,
    sealed_verification: Arc<SealedVerification>,
}

impl HeadStatistics {
    pub(crate) fn new(
        state: Arc<HeadState>,
        writer: Arc<Writer>,
        sealed_verification: Arc<SealedVerification>,
    ) -> HeadStatistics {
        HeadStatistics { state, writer, sealed_verification }
    }

    /// Returns counters and sizes. Cost: visits each stripe and tenant.
    #[must_use]
    pub fn stats(&self) -> HeadStats {
        let counters = &self.state.counters;
        let series = &self.state.series;
        let (sealed_files, sealed_bytes) = series.store.sizes();
        let mut stats = HeadStats {
            series_ids_left: self.state.index.ids.left_count(),
            samples: SampleStats {
                appended: counters.get(Counter::SamplesAppended),
                out_of_order: counters.get(Counter::SamplesOutOfOrder),
                ooo_sealed: 0,
                repeated: counters.get(Counter::SamplesRepeated),
                replaced: counters.get(Counter::SamplesReplaced),
                with_start: counters.get(Counter::SamplesWithStart),
                deleted: counters.get(Counter::SamplesDeleted),
                series_created: counters.get(Counter::SeriesCreated),
            },
            histograms: HistogramStats {
                bytes: series.histograms().used_bytes(),
                sealed_early_count: series.histograms().sealed_early_count(),
            },
            texts: self.texts(),
            wal: self.state.wal.stats(),
            checkpoint: CheckpointTotals {
                count: counters.get(Counter::Checkpoints),
                bytes: counters.get(Counter::CheckpointBytes),
                slice_count: counters.get(Counter::Slices),
                slice_bytes: counters.get(Counter::SliceBytes),
                tail_bytes: counters.get(Counter::TailBytes),
                tail_ms: counters.get(Counter::TailNs) / 1_000_000,
            },
            sealed_files,
            sealed_bytes,
            sealed_damages: self.sealed_verification.damages(),
            ..HeadStats::default()
        };
        self.add_tenants(&mut stats);
        for stripe in self.state.series.stripes() {
            let stripe = stripe.lock();
            stats.chunks += stripe.chunk_count();
            stats.samples.ooo_sealed += stripe.ooo_sealed_count();
        }
        stats
    }

    fn add_tenants(&self, stats: &mut HeadStats) {
        for tenant in self.state.index.tenants() {
            let tables = tenant.tables.read();
            stats.series += tables.live_count() as u64;
            stats.tenants += u64::from(tables.live_count() > 0);
            drop(tables);
            let bounds = tenant.windows.lock().bounds();
            if let Some((oldest, newest)) = bounds {
                let oldest_ms = tenant.unit.to_ms(oldest);
                let newest_ms = tenant.unit.to_ms(newest);
                stats.min_time_ms = Some(stats.min_time_ms.map_or(oldest_ms, |t| t.min(oldest_ms)));
                stats.max_time_ms = Some(stats.max_time_ms.map_or(newest_ms, |t| t.max(newest_ms)));
            }
        }
    }

    /// Returns the sizes of one tenant. Cost: visits each of its series.
    #[must_use]
    pub fn tenant_stats(&self, id: &StoreId) -> TenantStats {
        let Some(tenant) = self.state.index.tenant(id) else { return TenantStats::default() };
        let bounds = tenant.windows.lock().bounds();
        let mut chunk_count = 0;
        for run in page_runs(&tenant.series_ids()) {
            let stripe = self.state.series.lock(run[0]);
            chunk_count += run.iter().map(|&id| stripe.chunk_count_of(id)).sum::<u64>();
        }
        TenantStats {
            chunk_count,
            min_time_ms: bounds.map(|(oldest, _)| tenant.unit.to_ms(oldest)),
            max_time_ms: bounds.map(|(_, newest)| tenant.unit.to_ms(newest)),
        }
    }

    /// Returns the folded series of a tenant.
    #[must_use]
    pub fn overflow_of(&self, id: &StoreId) -> OverflowStats {
        let Some(tenant) = self.state.index.tenant(id).filter(|tenant| tenant.overflow().is_used()) else {
            return OverflowStats::default();
        };
        let overflow = tenant.overflow().lock();
        OverflowStats {
            series_count: overflow.table().series_count() as u64,
            sample_count: tenant.overflow().sample_count(),
            histogram_bytes: overflow.table().histogram_bytes() as u64,
        }
    }

    /// Returns the `limit` metrics of a tenant with most folded series. Cost: visits each metric that folds.
    #[must_use]
    pub fn overflow_metrics_of(&self, id: &StoreId, limit: usize) -> Vec<OverflowMetric> {
        let Some(tenant) = self.state.index.tenant(id).filter(|tenant| tenant.overflow().is_used()) else {
            return Vec::new();
        };
        let overflow = tenant.overflow().lock();
        let mut by_metric = HashMap::<&str, u64>::default();
        for slot in overflow.table().slots().filter(|slot| slot.series_count() > 0) {
            *by_metric.entry(slot.metric()).or_default() += slot.series_count();
        }
        let mut all: Vec<(&str, u64)> = by_metric.into_iter().collect();
        all.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(b.0)));
        all.truncate(limit);
        let one = |(metric, series_count): (&str, u64)| {
            let values = overflow.label_values().of(metric);
            let labels = values.into_iter().flat_map(|values| values.labels());
            let mut values_by_label: Vec<(String, u64)> =
                labels.map(|(label, estimate)| (label.to_string(), estimate.count())).collect();
            values_by_label.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
            let since_ms = values.map(|values| values.since_ms());
            OverflowMetric { metric: metric.to_owned(), series_count, since_ms, values_by_label }
        };
        all.into_iter().map(one).collect()
    }

    /// Returns the memory of texts. Cost: two atomic reads.
    #[must_use]
    pub fn texts(&self) -> TextStats {
        let budget = &self.state.texts.budget;
        TextStats { bytes: budget.used_bytes(), bytes_max: budget.bytes_max() }
    }

    /// Returns the windows with texts, by tenant and time. Cost: visits each tenant.
    #[must_use]
    pub fn text_windows(&self) -> Vec<TextWindow> {
        let mut all = Vec::new();
        for tenant in self.state.index.tenants() {
            all.extend(tenant.texts.all().into_iter().map(|(start, dictionary)| TextWindow {
                tenant: tenant.id.clone(),
                range: TimeRange::window_of(start, self.state.series.window_width(tenant.unit)),
                bytes: dictionary.bytes(),
            }));
        }
        all.sort_by(|a, b| (&a.tenant, a.range.start).cmp(&(&b.tenant, b.range.start)));
        all
    }

    /// Returns the number of series of `store`.
    #[must_use]
    pub fn series_count_of(&self, store: &StoreId) -> u64 {
        self.state.index.tenant(store).map_or(0, |store| store.tables.read().live_count() as u64)
    }

    /// Returns the series of the metric that has most, and the values of the label that has most. Cost:
    /// visits each metric and label name of the store.
    #[must_use]
    pub fn largest_uses_of(&self, store: &StoreId) -> LargestUses {
        let index = self.state.index.tenant(store);
        index.map_or_else(LargestUses::default, |store| store.tables.read().largest_uses())
    }

    /// Returns the number of series by tenant, without tenants that have none. Cost: visits each tenant.
    #[must_use]
    pub fn series_by_tenant(&self) -> Vec<(StoreId, u64)> {
        let count = |tenant: &TenantHead| tenant.tables.read().live_count() as u64;
        let tenants = self.state.index.tenants();
        let counts = tenants.iter().map(|tenant| (tenant.id.clone(), count(tenant)));
        counts.filter(|(_, series_count)| *series_count > 0).collect()
    }

    /// Returns all parts, each once.
    #[must_use]
    pub fn memory(&self) -> Vec<MemoryPart> {
        let mut parts = self.shared_memory();
        for tenant in self.state.index.tenants() {
            MemoryPart::add(&mut parts, tenant.tables.read().memory());
            let (bytes, count) = tenant.overflow().memory();
            if bytes > 0 {
                MemoryPart::add(&mut parts, [MemoryPart::new("overflow_tables", bytes, count)]);
            }
            let (bytes, count) = tenant.overflow().histogram_memory();
            if bytes > 0 {
                MemoryPart::add(&mut parts, [MemoryPart::new("overflow_histograms", bytes, count)]);
            }
        }
        parts
    }

    /// Returns the `limit` tenants with the most memory.
    #[must_use]
    pub fn memory_by_tenant(&self, limit: usize) -> Vec<TenantMemory> {
        let shared_bytes: u64 = self.shared_memory().iter().map(|part| part.bytes).sum();
        let mut out = Vec::new();
        for tenant in self.state.index.tenants() {
            let overflow_bytes = tenant.overflow().memory().0 + tenant.overflow().histogram_memory().0;
            let tables = tenant.tables.read();
            let bytes = overflow_bytes + tables.memory().iter().map(|part| part.bytes).sum::<u64>();
            out.push(TenantMemory {
                tenant: tenant.id.clone(),
                series_count: tables.live_count() as u64,
                bytes,
            });
        }
        let all_count = out.iter().map(|one| one.series_count).sum::<u64>().max(1);
        for one in &mut out {
            let share = u128::from(shared_bytes) * u128::from(one.series_count) / u128::from(all_count);
            one.bytes += u64::try_from(share).unwrap_or(u64::MAX);
        }
        out.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.tenant.cmp(&b.tenant)));
        out.truncate(limit);
        out
    }

    /// Returns memory that belongs to no single tenant.
    fn shared_memory(&self) -> Vec<MemoryPart> {
        let mut parts = self.state.series.memory();
        MemoryPart::add(&mut parts, self.state.index.key_memory());
        parts.push(MemoryPart::new("wal_buffers", self.state.wal.stats().buffer_bytes, 1));
        parts.push(self.writer.memory());
        parts.push(self.state.texts.budget.memory());
        parts
    }

    /// Measures the memory of the head for its limit. The caller runs it every second. Cost: as
    /// [`HeadStatistics::memory`].
    pub fn measure_memory(&self) {
        let limit = self.writer.memory_limit();
        limit.update(|| self.memory().iter().map(|part| part.bytes).sum());
        limit.update_tenants(|| {
            let of_store = |one: TenantMemory| {
                let tenant = self.state.index.tenant(&one.tenant)?;
                let account = limit.account_of(&tenant).clone();
                Some(StoreMemory { account, bytes: one.bytes, has_series: one.series_count > 0 })
            };
            self.memory_by_tenant(usize::MAX).into_iter().filter_map(of_store).collect()
        });
    }

    /// Returns the largest share of one tenant in bytes, 0 = no shares, and the requests refused by shares.
    #[must_use]
    pub fn tenant_share_and_refused(&self) -> (u64, u64) {
        self.writer.memory_limit().share_and_refused()
    }

    /// Returns the memory that counts against the limit, and the limit, in bytes; both 0 if there is none.
    #[must_use]
    pub fn memory_used_and_limit(&self) -> (u64, u64) {
        self.writer.memory_limit().used_and_limit()
    }

    /// Returns the tenants with series, sorted.
    #[must_use]
    pub fn tenants(&self) -> Vec<StoreId> {
        let mut out: Vec<StoreId> = self.series_by_tenant().into_iter().map(|(tenant, _)| tenant).collect();
        out.sort();
        out
    }

    /// Returns true if the tenant has series, or a request or flush is running for it.
    #[must_use]
    pub fn has_tenant(&self, store: &StoreId) -> bool {
        self.state.index.tenant(store).is_some()
    }

    /// Returns the label names, values and pairs of `store` with the most series, at most `limit` per list.
    #[must_use]
    pub fn cardinality(&self, store: &StoreId, limit: usize) -> Cardinality {
        self.state.index.tenant(store).map(|t| t.tables.read().cardinality(limit)).unwrap_or_default()
    }
}

const _: () = assert!(size_of::<SeriesState>() == 64, "reports show memory per series");
