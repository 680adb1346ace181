//! Scenarios around the publication of cuts, each of which has failed once: samples that have just become
//! blocks, readers that do not know it yet, and owners that start.
//!
//! Not here: random ends (the parent).

use std::time::Duration;

use chronolith_bucket::store::faults::FaultPlan;
use chronolith_replicated_log::sim::SimFaults;

use super::machine::End;
use super::setup::{ClusterSetup, MINUTE_MS, NEVER};
use super::{ClusterEnv, Ends, SETTLING_ROUND};
use crate::failure::{Failure, Mode, catch_panic};
use crate::tally::Tally;

/// Scenario, and the name of it in failures.
type Scenario = (&'static str, fn(u64) -> Result<Tally, String>);

const SCENARIOS: [Scenario; 3] = [
    ("calls without the bucket", answer_without_the_bucket),
    ("a lost disk after a publication", lose_disks_after_a_publication),
    ("an idle query node", ask_an_idle_node),
];

/// Runs the scenarios with the setup of a seed.
///
/// # Errors
/// The first failure.
pub fn run_cut_scenarios(seed: u64) -> Result<Tally, Failure> {
    let mut all = Tally::default();
    for (name, run) in SCENARIOS {
        let fail = |(op_idx, text)| Failure { seed, op_idx, text, mode: Mode::CutScenarios };
        let run = || run(seed).map_err(|text| (0, format!("{name}: {text}")));
        all.add(&catch_panic(run).map_err(fail)?);
    }
    Ok(all)
}

/// A cluster without faults, with a cut of everything that was written. Owners keep the samples of published
/// cuts for a minute.
fn cluster_with_a_cut(seed: u64, catalogue_poll: Duration) -> Result<ClusterEnv, String> {
    let setup = ClusterSetup {
        changes_partitions: false,
        faults: SimFaults::default(),
        delay_ms: MINUTE_MS,
        seam: Duration::from_secs(60),
        run_count_max: 20,
        catalogue_poll,
        ..ClusterSetup::from_seed(seed)
    };
    let mut env = ClusterEnv::new(setup, Ends::None)?;
    for _ in 0..20 {
        env.gateways.write(&env.site, &env.rng, &mut env.ledger)?;
    }
    env.site.clock.advance(SETTLING_ROUND);
    for _ in 0..2 {
        env.gateways.tick();
        (0..env.machines.len()).try_for_each(|idx| env.catch_up(idx))?;
    }
    // The query node reads catalogues without a block.
    env.query_all()?;
    match env.ledger.cut_count {
        0 => Err("no window was cut".to_owned()),
        _ => Ok(env),
    }
}

impl ClusterEnv {
    fn publish_all(&mut self) -> Result<(), String> {
        for machine in &mut self.machines {
            while machine.publish()? {}
        }
        Ok(())
    }

    fn end_all(&mut self, end: End) -> Result<(), String> {
        for idx in 0..self.machines.len() {
            self.machines[idx].end(end, &self.rng);
            self.machines[idx].restart()?;
            self.catch_up(idx)?;
        }
        Ok(())
    }
}

/// Each owner read the blocks of the store from the bucket for each call: history was read once per
/// partition, and recent samples could not be read while the bucket was away.
fn answer_without_the_bucket(seed: u64) -> Result<Tally, String> {
    let mut env = cluster_with_a_cut(seed, NEVER)?;
    let away = FaultPlan { unavailable: 1000, ..FaultPlan::default() };
    env.machines.iter_mut().for_each(|machine| machine.set_plan(away));
    env.query_all()?;
    Ok(env.tally())
}

/// The offset to resume from passed the samples of a cut as soon as the cut was published. An owner that lost
/// its disk then did not have them, and a query node whose catalogue was seconds old missed them.
fn lose_disks_after_a_publication(seed: u64) -> Result<Tally, String> {
    let mut env = cluster_with_a_cut(seed, NEVER)?;
    env.publish_all()?;
    env.site.clock.advance(Duration::from_secs(5));
    env.publish_all()?;
    env.end_all(End::LostDisk)?;
    env.query_all()?;
    env.settle()?;
    Ok(env.tally())
}

/// A query node used a list of blocks for up to an hour. An owner that had started since the list was read
/// did not know of samples that had left before, and answered without them.
fn ask_an_idle_node(seed: u64) -> Result<Tally, String> {
    let mut env = cluster_with_a_cut(seed, Duration::from_secs(30))?;
    env.publish_all()?;
    env.site.clock.advance(Duration::from_secs(300));
    env.publish_all()?;
    env.end_all(End::Kill)?;
    env.query_all()?;
    Ok(env.tally())
}
