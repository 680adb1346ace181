//! Receiver of configured groups that lists them: they are not evaluated.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use chronolith_model::TenantId;
use chronolith_rules::group::{Group, GroupKey};
use chronolith_rules::status::GroupStatus;
use chronolith_service::Service;
use chronolith_service::rules::configured::GroupSink;
use parking_lot::Mutex;

/// Lists configured groups that are not evaluated.
pub(crate) struct StatusSink {
    service: Arc<Service>,
    listed: Mutex<BTreeMap<TenantId, BTreeSet<GroupKey>>>,
}

impl StatusSink {
    /// Lists groups in the statuses of `service`.
    pub(super) fn new(service: Arc<Service>) -> StatusSink {
        StatusSink { service, listed: Mutex::default() }
    }
}

impl GroupSink for StatusSink {
    fn changed(&self, tenant: &TenantId, groups: Vec<Group>) {
        let keys: BTreeSet<GroupKey> = groups.iter().map(|group| group.key.clone()).collect();
        let mut listed = self.listed.lock();
        let before = listed.insert(tenant.clone(), keys).unwrap_or_default();
        if groups.is_empty() {
            listed.remove(tenant);
        }
        before.iter().for_each(|key| self.service.rules.remove(tenant, key));
        for group in groups {
            self.service.rules.put(tenant, Arc::new(GroupStatus::new(Arc::new(group))));
        }
    }
}
