//! Answers of an owner to requests.
//!
//! Invariant: the number of the catalogue that a reader needs grows before samples leave the head.
//! Not here: the contract (`partition_owner`), application of records, the age at which samples leave
//! (`publish`).

use std::cmp::Reverse;

use chronolith_bucket::BucketError;
use chronolith_format::record::RecordStore;
use chronolith_model::TenantId;
use chronolith_model::log_position::LogPartition;
use chronolith_replicated_log::LogError;

use super::Owner;
use super::partition_owner::PartitionOwner;
use super::status::{NotReady, OwnerStatus};
use crate::peers::{TENANTS_REPORTED_MAX, TenantSeries};

impl PartitionOwner for Owner {
    fn partition(&self) -> LogPartition {
        self.partition
    }

    fn status(&self) -> OwnerStatus {
        self.status.snapshot()
    }

    fn check_ready(&self) -> Result<(), NotReady> {
        self.status.check_ready(self.options.ready_lag)
    }

    fn log_end(&self) -> Result<u64, LogError> {
        Ok(self.log.bounds(self.partition.number)?.end)
    }

    fn catalogue_needed(&self, tenant: &TenantId, store: RecordStore) -> u64 {
        let at_start = self.start_catalogues.known(tenant, store).unwrap_or(0);
        let store = self.tsdb.cuts().store_of(tenant, store);
        let left = store.map_or(0, |store| self.windows.catalogue_needed(&store));
        left.max(at_start)
    }

    fn is_start_catalogue_due(&self, tenant: &TenantId, store: RecordStore) -> bool {
        self.start_catalogues.is_due(tenant, store)
    }

    fn read_start_catalogue(&self, tenant: &TenantId, store: RecordStore) -> Result<(), BucketError> {
        self.start_catalogues.read(tenant, store)
    }

    fn tenant_series(&self) -> Vec<TenantSeries> {
        let mut found: Vec<(u64, TenantSeries)> = Vec::new();
        for (store, count) in self.tsdb.statistics().head_series_by_store() {
            let Some(tenant) = store.tenant() else { continue };
            let limit = self.tsdb.settings().limits_of(&store).series_max as u64;
            let use_permille = count.saturating_mul(1000) / limit.max(1);
            found.push((use_permille, TenantSeries { tenant: tenant.clone(), count }));
        }
        if found.len() > TENANTS_REPORTED_MAX {
            found.sort_unstable_by_key(|(use_permille, _)| Reverse(*use_permille));
            found.truncate(TENANTS_REPORTED_MAX);
        }
        found.into_iter().map(|(_, series)| series).collect()
    }
}
