//! Rule groups of all tenants: their status, their schedule and their states between rounds.
//!
//! Invariants: a group is known by tenant, file and name; lists of groups are ordered by file and name.
//! Not here: the format of rule files, a round and alerts (`chronolith-rules`), evaluation and rule files of
//! the server (`evaluation::rules`), pages and threads (`server`).

pub mod configured;
pub mod counters;
pub mod engine;
pub mod group_id;
pub mod interrupts;
pub mod scheduled;
pub mod state_files;
mod statuses;

use std::sync::Arc;

use chronolith_model::TenantId;
use chronolith_rules::status::GroupStatus;

/// Groups with their status. Readers never wait for a round.
#[derive(Default)]
pub struct RuleStatuses {
    /// Schedule of the groups.
    pub engine: engine::RuleEngine,
}

impl RuleStatuses {
    /// Groups of a tenant in order of file and name.
    #[must_use]
    pub fn groups(&self, tenant: &TenantId) -> Vec<Arc<GroupStatus>> {
        self.engine.statuses.groups(tenant)
    }

    /// Groups of all tenants in order of tenant, file and name.
    #[must_use]
    pub fn all(&self) -> Vec<(TenantId, Arc<GroupStatus>)> {
        self.engine.statuses.all()
    }

    /// Adds a group, or replaces its status.
    pub fn put(&self, tenant: &TenantId, status: Arc<GroupStatus>) {
        self.engine.statuses.put(tenant, status);
    }
}
