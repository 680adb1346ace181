//! Wall clock and state files, as rounds take them from the service.

use chronolith_rules::schedule::NS_PER_MS;

use crate::rules::state_files::StateFiles;
use crate::service::Service;

/// Files with the states of all groups.
pub(super) fn state_files(service: &Service) -> StateFiles<'_> {
    StateFiles {
        disk: &*service.env.disk,
        data_dir: &service.options.tsdb.data_dir,
        counters: &service.rules.engine.counters,
        leased: service.rules.leased_states.as_ref(),
    }
}

/// Wall clock in nanoseconds.
pub(super) fn now_ns(service: &Service) -> i64 {
    service.env.clock.now_ms().saturating_mul(NS_PER_MS)
}
