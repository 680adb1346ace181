//! Loaded rules that read the series of a backfill: their rounds within the repair window are evaluated again
//! once what they read has changed.
//!
//! Not here: repairs (`rules::repair`).

use std::sync::Arc;

use chronolith_model::TenantId;
use chronolith_rules::backfill::BackfillPlan;
use chronolith_rules::group::Group;
use chronolith_rules::group::repair_order::RepairOrder;

use crate::evaluation::rules::repair::times;
use crate::rules::group_id::GroupId;
use crate::service::Service;

/// Loaded groups with the rules that read each unit.
pub(super) struct Readers {
    groups: Vec<(GroupId, Arc<Group>)>,
    /// By unit of the plan: index of the group, and of the rule in it.
    by_unit: Vec<Vec<(usize, usize)>>,
}

impl Readers {
    pub(super) fn of(service: &Service, tenant: &TenantId, plan: &BackfillPlan) -> Readers {
        let loaded = service.rules.groups(tenant).into_iter().map(|status| {
            let id = GroupId { tenant: tenant.clone(), origin: status.origin, key: status.group.key.clone() };
            (id, status.group.clone())
        });
        let groups: Vec<(GroupId, Arc<Group>)> = loaded.collect();
        let own_count = plan.groups().len();
        let all: Vec<Arc<Group>> =
            plan.groups().iter().cloned().chain(groups.iter().map(|(_, group)| group.clone())).collect();
        let order = if groups.is_empty() { RepairOrder::default() } else { RepairOrder::of(&all) };
        let reading_rules = |unit: &usize| {
            let unit = &order.units[*unit];
            let group_idx = unit.group_idx.checked_sub(own_count);
            let rules = group_idx.map(|group_idx| unit.rules.iter().map(move |&rule| (group_idx, rule)));
            rules.into_iter().flatten().collect::<Vec<_>>()
        };
        // Units of the plan come first, as its groups do.
        let by_unit = (0..plan.order().units.len()).map(|idx| {
            let readers = order.units.get(idx).map(|unit| unit.readers.iter().flat_map(reading_rules));
            readers.into_iter().flatten().collect()
        });
        Readers { by_unit: by_unit.collect(), groups }
    }

    /// Marks the rounds that see a change of these units in `range`.
    pub(super) fn note_change(&self, service: &Service, units: &[usize], range: (i64, i64)) {
        if service.options.rules.repair_window_ms == 0 {
            return;
        }
        for &(group_idx, rule) in units.iter().flat_map(|unit| &self.by_unit[*unit]) {
            let (id, group) = &self.groups[group_idx];
            service.rules.repairs.note_change_of_input(id, group, rule, range, times(service));
        }
    }
}
