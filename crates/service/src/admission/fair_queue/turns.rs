//! Weighted round robin: order in which tenants with waiting requests get permits (self-clocked fair
//! queueing).
//!
//! Each turn has a virtual finish time: virtual time of its creation plus a cost that is inversely
//! proportional to the weight. The turn with the smallest one is next, and virtual time moves to it.
//! Invariants: virtual time never exceeds a finish time; tenants that always have a turn get permits in
//! proportion to their weights, and equal weights are plain round robin. A tenant without a turn saves
//! nothing up.
//! Not here: requests of one tenant (`principals`).

use std::collections::BTreeMap;

use chronolith_model::TenantId;

/// Virtual time between two turns of a tenant of weight 1. Its quotients with weights are exact to 1 in
/// 10,000.
const COST_OF_WEIGHT_1: u64 = 1 << 20;

/// Position of a turn: virtual finish time, then order of creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Turn {
    finish: u64,
    sequence: u64,
}

/// Turns of tenants, at most one each.
#[derive(Default)]
pub(super) struct Turns {
    now: u64,
    next_sequence: u64,
    tenants: BTreeMap<Turn, TenantId>,
}

impl Turns {
    /// Adds a turn of `tenant`, which has none.
    pub(super) fn add(&mut self, tenant: &TenantId, weight: u32) -> Turn {
        if self.tenants.is_empty() {
            self.now = 0;
        }
        let finish = self.now + COST_OF_WEIGHT_1 / u64::from(weight.max(1));
        let turn = Turn { finish, sequence: self.next_sequence };
        self.next_sequence += 1;
        self.tenants.insert(turn, tenant.clone());
        turn
    }

    /// Takes the next turn. It does not count unless [`Turns::advance`] is called.
    pub(super) fn pop(&mut self) -> Option<(Turn, TenantId)> {
        self.tenants.pop_first()
    }

    /// Moves virtual time to the end of `turn`, which gave a permit.
    pub(super) fn advance(&mut self, turn: Turn) {
        debug_assert!(self.now <= turn.finish, "turns come in order of their end");
        self.now = turn.finish;
    }

    /// Turns with their tenants, the next one first.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Turn, &TenantId)> {
        self.tenants.iter().map(|(turn, tenant)| (*turn, tenant))
    }

    /// Takes `turn`, which gives a permit. Virtual time moves only if no other turn is before it.
    pub(super) fn take(&mut self, turn: Turn) {
        let is_first = self.tenants.first_key_value().is_some_and(|(first, _)| *first == turn);
        self.tenants.remove(&turn);
        if is_first {
            self.advance(turn);
        }
    }

    pub(super) fn remove(&mut self, turn: Turn) {
        self.tenants.remove(&turn);
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.tenants.len()
    }
}
