//! Rule groups of all tenants: their status, their schedule, their states between rounds, and the groups that
//! clients configure.
//!
//! Invariants: a group is known by tenant, origin, file and name; lists of groups are ordered by file, name
//! and origin.
//! Not here: the format of rule files, a round and alerts (`chronolith-rules`), evaluation and rule files of
//! the server (`evaluation::rules`), pages and threads (`server`).

pub mod backfills;
pub mod configured;
pub mod counters;
pub mod engine;
pub mod group_id;
pub mod interrupts;
pub mod leased_states;
pub mod repair;
pub mod round_permit;
pub mod scheduled;
pub mod state_files;
mod statuses;

use std::sync::Arc;

use chronolith_base::Env;
use chronolith_model::TenantId;
use chronolith_rules::status::GroupStatus;

use self::backfills::Backfills;
use self::configured::{CONFIGURED_BYTES_MAX, ConfiguredOptions, ConfiguredRules};
use self::engine::RuleEngine;
use self::leased_states::LeasedStates;
use self::repair::Repairs;
use crate::options::ServiceOptions;
use crate::query::context::parser_options;

/// State of rules: schedule, status and configured groups. Readers of a status never wait for a round.
pub struct RuleContext {
    /// Schedule of the groups.
    pub engine: Arc<RuleEngine>,
    /// Groups that clients configure.
    pub configured: ConfiguredRules,
    /// Rounds that out-of-order samples may have changed.
    pub repairs: Repairs,
    /// Backfills that run.
    pub backfills: Backfills,
    /// States of groups between rounds, of a process of a cluster; `None`: they are files.
    pub leased_states: Option<LeasedStates>,
}

impl RuleContext {
    /// Creates the state of a server without groups.
    pub(crate) fn new(env: &Env, options: &ServiceOptions) -> RuleContext {
        let engine = Arc::new(RuleEngine::default());
        let configured_options = ConfiguredOptions {
            parser: parser_options(options.features),
            defaults: options.rules.defaults,
            bytes_max: CONFIGURED_BYTES_MAX,
        };
        let data_dir = &options.tsdb.data_dir;
        let configured = ConfiguredRules::new(env, data_dir, configured_options, engine.clone());
        let is_leased = !options.cluster.roles.is_all();
        RuleContext {
            engine,
            configured,
            repairs: Repairs::default(),
            backfills: Backfills::default(),
            leased_states: is_leased.then(LeasedStates::default),
        }
    }

    /// Groups of a tenant in order of file, name and origin.
    #[must_use]
    pub fn groups(&self, tenant: &TenantId) -> Vec<Arc<GroupStatus>> {
        self.engine.statuses.groups(tenant)
    }

    /// Groups of all tenants in order of tenant, file, name and origin.
    #[must_use]
    pub fn all(&self) -> Vec<(TenantId, Arc<GroupStatus>)> {
        self.engine.statuses.all()
    }

    /// Adds a group, or replaces its status.
    pub fn put(&self, tenant: &TenantId, status: Arc<GroupStatus>) {
        self.engine.statuses.put(tenant, status);
    }
}
