//! Status of the groups of all tenants.
//!
//! Invariant: lists of groups are ordered by file and name.
//! Not here: rounds (`evaluation::rules`).

use std::collections::BTreeMap;
use std::sync::Arc;

use chronolith_model::TenantId;
use chronolith_rules::group::GroupKey;
use chronolith_rules::status::GroupStatus;
use parking_lot::RwLock;

/// Status of all groups. Readers never wait for a round.
#[derive(Default)]
pub(super) struct GroupStatuses {
    groups: RwLock<BTreeMap<TenantId, BTreeMap<GroupKey, Arc<GroupStatus>>>>,
}

impl GroupStatuses {
    /// Groups of a tenant in order of file and name.
    pub(super) fn groups(&self, tenant: &TenantId) -> Vec<Arc<GroupStatus>> {
        let groups = self.groups.read();
        groups.get(tenant).map(|groups| groups.values().cloned().collect()).unwrap_or_default()
    }

    /// Groups of all tenants in order of tenant, file and name.
    pub(super) fn all(&self) -> Vec<(TenantId, Arc<GroupStatus>)> {
        let groups = self.groups.read();
        let of_tenant = |(tenant, groups): (&TenantId, &BTreeMap<GroupKey, Arc<GroupStatus>>)| {
            groups.values().map(|status| (tenant.clone(), status.clone())).collect::<Vec<_>>()
        };
        groups.iter().flat_map(of_tenant).collect()
    }

    /// Adds a group, or replaces its status.
    pub(super) fn put(&self, tenant: &TenantId, status: Arc<GroupStatus>) {
        let key = status.group.key.clone();
        self.groups.write().entry(tenant.clone()).or_default().insert(key, status);
    }

    /// Removes a group.
    pub(super) fn remove(&self, tenant: &TenantId, key: &GroupKey) {
        let mut groups = self.groups.write();
        let Some(own) = groups.get_mut(tenant) else { return };
        own.remove(key);
        if own.is_empty() {
            groups.remove(tenant);
        }
    }
}

#[cfg(test)]
mod tests;
