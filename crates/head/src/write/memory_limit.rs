//! Memory limit of the whole head, and the share of a tenant over all its stores: the estimate of a batch is
//! reserved before any of it is applied.
//!
//! Invariants: a batch is refused whole or not at all. `used_bytes` is the last measurement plus all
//! reservations since, an upper estimate: between two measurements the head exceeds the limit by the running
//! batches at most.
//! Not here: accounts of tenants (`memory_account`), measuring (`statistics`) and its schedule (`tsdb`).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use chronolith_format::store_name;
use chronolith_model::{StoreId, WriteBatch};

use crate::index::tenant::TenantHead;
use crate::memory_account::{MemoryAccount, MemoryAccounts, StoreMemory};
use crate::options::WriteError;
use crate::store_owners::StoreOwners;

/// Memory of a series in addition to its label bytes: record, index, keys, an open chunk.
const SERIES_BYTES: u64 = 320;
/// Memory of a float until the next measurement: its share of an open chunk.
const SAMPLE_BYTES: u64 = 4;
/// Memory of a native histogram until the next measurement.
const HISTOGRAM_BYTES: u64 = 256;

/// Part of the limit, in percent, above which no tenant may use more than an equal part of it.
const CROWDED_PERCENT: u64 = 75;

/// Byte counter with a limit, from which appends reserve.
#[derive(Default)]
pub(crate) struct MemoryLimit {
    /// 0 = no limit.
    limit_bytes: u64,
    used_bytes: AtomicU64,
    /// Part of the limit that one tenant may use; 100 = all of it.
    tenant_percent: u8,
    accounts: MemoryAccounts,
    /// Owners of stores; before they are known, each store counts for itself.
    owners: OnceLock<Box<dyn StoreOwners>>,
    /// Tenants with series at the last measurement, and those that reserved first since.
    tenant_count: AtomicU64,
    refused_by_share: AtomicU64,
}

impl MemoryLimit {
    pub(crate) fn new(limit_bytes: u64, tenant_percent: u8) -> MemoryLimit {
        MemoryLimit { limit_bytes, tenant_percent, ..MemoryLimit::default() }
    }

    /// Sets where the owners of stores are looked up, once, before anything is appended.
    pub(crate) fn set_owners(&self, owners: Box<dyn StoreOwners>) {
        // Later owners would come from the same catalogue.
        let _ = self.owners.set(owners);
    }

    /// Returns the account of the tenant that owns a store.
    pub(crate) fn account_of<'t>(&self, store: &'t TenantHead) -> &'t Arc<MemoryAccount> {
        store.account.get_or_init(|| {
            let owner = self.owners.get().filter(|_| !store.id.is_default());
            let owner = owner.and_then(|owners| owners.owner_of(&store.id));
            self.accounts.of(owner.map_or_else(|| store.id.clone(), StoreId::from))
        })
    }

    fn has_shares(&self) -> bool {
        self.tenant_percent < 100
    }

    /// Bytes that one tenant may use however little the others use.
    fn share_max(&self) -> u64 {
        self.limit_bytes / 100 * u64::from(self.tenant_percent)
    }

    /// Bytes that one tenant may use now: an equal part once the head is crowded, so that tenants at their
    /// largest share leave room to the others.
    fn share_now(&self) -> u64 {
        let used_bytes = self.used_bytes.load(Ordering::Relaxed);
        if used_bytes <= self.limit_bytes / 100 * CROWDED_PERCENT {
            return self.share_max();
        }
        let tenant_count = self.tenant_count.load(Ordering::Relaxed).max(1);
        self.share_max().min(self.limit_bytes / tenant_count)
    }

    fn reserve_share(&self, account: &MemoryAccount, bytes: u64) -> Result<(), WriteError> {
        let name = || store_name(&account.owner).into_owned();
        if bytes > self.share_max() {
            let share_bytes = self.share_max();
            return Err(WriteError::NeverFitsShare { tenant: name(), needed_bytes: bytes, share_bytes });
        }
        let share_bytes = self.share_now();
        let fits = |used: u64| used.checked_add(bytes).filter(|&sum| sum <= share_bytes);
        let reserved = account.used_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits);
        match reserved {
            Ok(before) => {
                // The tenant is new; the next measurement counts exactly.
                if before == 0 {
                    self.tenant_count.fetch_add(1, Ordering::Relaxed);
                }
                Ok(())
            }
            Err(used_bytes) => {
                self.refused_by_share.fetch_add(1, Ordering::Relaxed);
                Err(WriteError::TenantFull { tenant: name(), used_bytes, share_bytes })
            }
        }
    }

    fn reserve(&self, bytes: u64) -> Result<(), WriteError> {
        let limit_bytes = self.limit_bytes;
        if bytes > limit_bytes {
            return Err(WriteError::NeverFits { needed_bytes: bytes, limit_bytes });
        }
        let fits = |used: u64| used.checked_add(bytes).filter(|&sum| sum <= limit_bytes);
        let reserved = self.used_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits);
        reserved.map(drop).map_err(|used_bytes| WriteError::HeadFull { used_bytes, limit_bytes })
    }

    /// Reserves memory for a batch of the store `tenant` that is not applied yet; `misses` are its new
    /// series.
    ///
    /// # Errors
    /// [`WriteError`]: the limit or the share of the tenant does not allow it.
    pub(crate) fn reserve_batch(
        &self,
        tenant: &TenantHead,
        batch: &WriteBatch,
        misses: &[u32],
    ) -> Result<(), WriteError> {
        if self.limit_bytes == 0 {
            return Ok(());
        }
        let label_bytes = |&idx: &u32| {
            let key = batch.key_of(idx as usize);
            (key.raw.len() + key.field.len()) as u64
        };
        let created_bytes = misses.iter().map(|idx| SERIES_BYTES + label_bytes(idx)).sum::<u64>();
        let float_bytes = batch.times.len() as u64 * SAMPLE_BYTES;
        let histogram_bytes = batch.histograms.len() as u64 * HISTOGRAM_BYTES;
        let bytes = created_bytes + float_bytes + histogram_bytes;
        if !self.has_shares() {
            return self.reserve(bytes);
        }
        let account = self.account_of(tenant);
        self.reserve_share(account, bytes)?;
        self.reserve(bytes).inspect_err(|_| {
            let less = |used: u64| Some(used.saturating_sub(bytes));
            // The update cannot fail: it always has a value.
            let _ = account.used_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        })
    }

    /// Records the memory of all stores; `measure` returns it and is called only if there are shares.
    pub(crate) fn update_tenants(&self, measure: impl FnOnce() -> Vec<StoreMemory>) {
        if self.limit_bytes > 0 && self.has_shares() {
            self.tenant_count.store(self.accounts.record(measure()), Ordering::Relaxed);
        }
    }

    /// Returns the largest share of a tenant in bytes, 0 = no shares, and the requests refused by shares.
    pub(crate) fn share_and_refused(&self) -> (u64, u64) {
        let share_bytes = if self.has_shares() { self.share_max() } else { 0 };
        (share_bytes, self.refused_by_share.load(Ordering::Relaxed))
    }

    /// Records a measurement; `measure` is called only if there is a limit.
    pub(crate) fn update(&self, measure: impl FnOnce() -> u64) {
        if self.limit_bytes > 0 {
            self.used_bytes.store(measure(), Ordering::Relaxed);
        }
    }

    /// Returns the last measurement plus reservations since, in bytes, and the limit; 0 = no limit.
    pub(crate) fn used_and_limit(&self) -> (u64, u64) {
        (self.used_bytes.load(Ordering::Relaxed), self.limit_bytes)
    }
}
