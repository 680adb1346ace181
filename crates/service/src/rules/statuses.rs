//! Status of the groups of all tenants.
//!
//! Invariant: lists of groups are ordered by file, name and origin.
//! Not here: rounds (`evaluation::rules`).

use std::collections::BTreeMap;
use std::sync::Arc;

use chronolith_model::TenantId;
use chronolith_rules::group::{GroupKey, Origin};
use chronolith_rules::status::GroupStatus;
use parking_lot::RwLock;

use super::group_id::GroupId;

/// Groups of a tenant.
type TenantGroups = BTreeMap<(GroupKey, Origin), Arc<GroupStatus>>;

/// Status of all groups. Readers never wait for a round.
#[derive(Default)]
pub(super) struct GroupStatuses {
    groups: RwLock<BTreeMap<TenantId, TenantGroups>>,
}

impl GroupStatuses {
    /// Groups of a tenant in order of file, name and origin.
    pub(super) fn groups(&self, tenant: &TenantId) -> Vec<Arc<GroupStatus>> {
        let groups = self.groups.read();
        groups.get(tenant).map(|groups| groups.values().cloned().collect()).unwrap_or_default()
    }

    /// Groups of all tenants in order of tenant, file, name and origin.
    pub(super) fn all(&self) -> Vec<(TenantId, Arc<GroupStatus>)> {
        let groups = self.groups.read();
        let of_tenant = |(tenant, groups): (&TenantId, &TenantGroups)| {
            groups.values().map(|status| (tenant.clone(), status.clone())).collect::<Vec<_>>()
        };
        groups.iter().flat_map(of_tenant).collect()
    }

    /// Adds a group, or replaces its status.
    pub(super) fn put(&self, tenant: &TenantId, status: Arc<GroupStatus>) {
        let key = (status.group.key.clone(), status.origin);
        self.groups.write().entry(tenant.clone()).or_default().insert(key, status);
    }

    /// Removes a group.
    pub(super) fn remove(&self, id: &GroupId) {
        let mut groups = self.groups.write();
        let Some(own) = groups.get_mut(&id.tenant) else { return };
        own.remove(&(id.key.clone(), id.origin));
        if own.is_empty() {
            groups.remove(&id.tenant);
        }
    }
}

#[cfg(test)]
mod tests;
