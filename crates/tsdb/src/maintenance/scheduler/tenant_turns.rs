//! Order of the due jobs of one kind: round robin over tenants, so that the stores or windows of one tenant
//! delay a job of another by one job, not by hundreds.
//!
//! Each due job has a round, greater than the rounds of the tenant's job before it and of the latest job that
//! ran. Jobs of one round run by due time, then in order of insertion.
//! Invariants: no job has a smaller round than the latest job that ran; jobs of one tenant are in the order
//! in which they were added.
//! Not here: jobs that are not due.

use std::collections::BTreeSet;

use chronolith_base::hash::HashMap;
use chronolith_model::StoreId;

use crate::maintenance::job::{Position, Turn};

/// Due jobs of one tenant.
struct TenantJobs {
    job_count: usize,
    last_round: u64,
}

/// Due jobs by round.
#[derive(Default)]
pub(super) struct TenantTurns {
    /// Round of the job that ran last.
    round: u64,
    jobs: BTreeSet<(u64, Position)>,
    tenants: HashMap<Option<StoreId>, TenantJobs>,
}

impl TenantTurns {
    /// Adds the job at `position` after all others of its tenant.
    pub(super) fn add(&mut self, tenant: Option<StoreId>, position: Position) -> Turn {
        let last_round = self.tenants.get(&tenant).map_or(0, |one| one.last_round);
        let turn = Turn { round: self.round.max(last_round) + 1, tenant };
        self.add_again(&turn, position);
        turn
    }

    /// Adds a job with the turn that it had before it was removed.
    pub(super) fn add_again(&mut self, turn: &Turn, position: Position) {
        self.jobs.insert((turn.round, position));
        let empty = || TenantJobs { job_count: 0, last_round: 0 };
        let one = self.tenants.entry(turn.tenant.clone()).or_insert_with(empty);
        one.job_count += 1;
        one.last_round = one.last_round.max(turn.round);
    }

    pub(super) fn remove(&mut self, turn: &Turn, position: Position) {
        let was_there = self.jobs.remove(&(turn.round, position));
        assert!(was_there, "a job with a turn is due");
        let Some(one) = self.tenants.get_mut(&turn.tenant) else { return };
        one.job_count -= 1;
        if one.job_count == 0 {
            self.tenants.remove(&turn.tenant);
        }
    }

    /// Begins the round of a job that is about to run.
    pub(super) fn advance(&mut self, turn: &Turn) {
        self.round = self.round.max(turn.round);
    }

    /// Due jobs, the next one first.
    pub(super) fn positions(&self) -> impl Iterator<Item = Position> {
        self.jobs.iter().map(|(_, position)| *position)
    }

    /// Moves the due times of all jobs.
    pub(super) fn shift(&mut self, by_ms: i64) {
        let shifted = |(round, (due_ms, sequence)): &(u64, Position)| {
            (*round, (due_ms.saturating_add(by_ms), *sequence))
        };
        self.jobs = self.jobs.iter().map(shifted).collect();
    }
}
