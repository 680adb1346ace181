//! Gateways of a simulated cluster, and senders, which repeat requests without an acknowledgement.
//!
//! Not here: the records (`ledger`).

use chronolith_base::{Clock, Env, MemoryBudget, Rng};
use chronolith_cluster::gateway::{
    Gateway, GatewayError, GatewayFault, GatewayParts, GatewayWrite, PendingRecords, RecordStore,
};
use chronolith_cluster::options::GatewayOptions;
use chronolith_cluster::partition_maps::RefreshError;
use chronolith_tsdb::LimitsTable;

use super::ledger::{Ledger, Request, Run};
use super::machine::Site;
use super::setup::{HOUR_MS, SERIES_PER_STORE};

/// Memory of the records of a gateway.
const MEMORY_BYTES: u64 = 64 << 20;
/// Time of a sample after the clock, at most.
const AHEAD_MS_MAX: i64 = 300_000;
/// Attempts of a sender that gets no acknowledgement.
const ATTEMPTS_MAX: usize = 6;
/// One acknowledged request of this many is sent again, by a sender that lost the answer.
const REPEATED_OF: u64 = 40;
/// Partitions that each tenant has at least.
const TENANT_PARTITIONS: usize = 2;

/// Counts of writes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct WriteTally {
    /// Samples that gateways were asked to write, repeats included.
    pub(super) samples: u64,
    pub(super) acknowledged_requests: u64,
    /// Attempts without an acknowledgement.
    pub(super) failed_attempts: u64,
    pub(super) repeats: u64,
}

struct Node {
    env: Env,
    gateway: Gateway,
}

/// Gateways of a cluster, and the requests of their senders.
pub(super) struct Gateways {
    nodes: Vec<Node>,
    /// Time after the newest sample of each series.
    next_ms: Vec<i64>,
    last: Option<Request>,
    pub(super) tally: WriteTally,
}

impl Gateways {
    /// Starts the gateways of the setup, and creates the partition map and the Graphite store.
    pub(super) fn start(site: &Site) -> Result<Gateways, String> {
        let mut nodes = Vec::new();
        for (idx, skew_ms) in site.setup.gateway_skews_ms.iter().enumerate() {
            nodes.push(start_node(site, site.setup.seed ^ (idx as u64 + 77), *skew_ms)?);
        }
        for store in &site.setup.stores {
            if let RecordStore::Graphite(_) = store.store {
                nodes[0].gateway.graphite_store(&store.tenant).map_err(|error| error.to_string())?;
            }
        }
        let next_ms = vec![0; site.setup.stores.len() * SERIES_PER_STORE];
        Ok(Gateways { nodes, next_ms, last: None, tally: WriteTally::default() })
    }

    /// Returns one of the gateways.
    pub(super) fn any(&self, rng: &Rng) -> &Gateway {
        &self.nodes[rng.below(self.nodes.len() as u64) as usize].gateway
    }

    /// Ends a gateway with everything it had in memory, and starts it again.
    pub(super) fn restart(&mut self, site: &Site, rng: &Rng) -> Result<(), String> {
        let idx = rng.below(self.nodes.len() as u64) as usize;
        self.nodes[idx] = start_node(site, rng.next_u64(), site.setup.gateway_skews_ms[idx])?;
        Ok(())
    }

    /// Lets one gateway read the partition map, or all of them.
    pub(super) fn refresh(&self, only: Option<usize>) {
        for (idx, node) in self.nodes.iter().enumerate() {
            if only.is_none_or(|only| only % self.nodes.len() == idx) {
                // The map before it stays in use.
                let _ = node.gateway.refresh();
            }
        }
    }

    /// Lets each gateway append its ticks.
    pub(super) fn tick(&self) {
        for node in &self.nodes {
            // Ticks that are lost come again.
            let _ = node.gateway.tick();
        }
    }

    /// Sends a request until it is acknowledged, or the sender gives up.
    pub(super) fn write(&mut self, site: &Site, rng: &Rng, ledger: &mut Ledger) -> Result<(), String> {
        let request = match &self.last {
            Some(last) if rng.below(REPEATED_OF) == 0 => {
                self.tally.repeats += 1;
                last.clone()
            }
            _ => self.draw(site, rng),
        };
        let store = site.setup.stores[request.store_idx].clone();
        let batch = request.batch(store.store);
        for _ in 0..ATTEMPTS_MAX {
            let node = &self.nodes[rng.below(self.nodes.len() as u64) as usize];
            let arrival_ms = node.env.clock.now_ms();
            let write = GatewayWrite {
                tenant: &store.tenant,
                store: store.store,
                request_id: &"r",
                arrival_ms,
                duplicates: None,
            };
            self.tally.samples += request.sample_count();
            match node.gateway.append(write, &batch).and_then(PendingRecords::wait) {
                Ok(_) => {
                    self.tally.acknowledged_requests += 1;
                    ledger.acknowledge(&request, arrival_ms);
                    self.last = Some(request);
                    return Ok(());
                }
                Err(error) => check_retriable(&error)?,
            }
            self.tally.failed_attempts += 1;
        }
        Ok(())
    }

    /// A request with runs of new samples: most follow the newest one, some are hours old.
    fn draw(&mut self, site: &Site, rng: &Rng) -> Request {
        let store_idx = rng.below(site.setup.stores.len() as u64) as usize;
        let now_ms = site.clock.now_ms();
        let first = rng.below(SERIES_PER_STORE as u64) as usize;
        let count = 1 + rng.below(SERIES_PER_STORE as u64) as usize;
        let run = |idx: usize| {
            let series = store_idx * SERIES_PER_STORE + (first + idx) % SERIES_PER_STORE;
            let count = 1 + rng.below(site.setup.run_count_max).cast_signed();
            let kind = rng.below(site.setup.old_run_of);
            // Old runs take an hour at most, so that they overlap samples that were cut before.
            let step_ms_max = if kind == 0 { HOUR_MS / count } else { 1000 };
            let step_ms = 1 + rng.below(step_ms_max.unsigned_abs()).cast_signed();
            let length_ms = count * step_ms;
            let next_ms = &mut self.next_ms[series];
            let start_ms = match kind {
                0 => now_ms - rng.below(4 * HOUR_MS.unsigned_abs()).cast_signed() - length_ms,
                1 => now_ms - rng.below(60_000).cast_signed() - length_ms,
                _ => (*next_ms).clamp(now_ms - length_ms - 60_000, now_ms - length_ms + AHEAD_MS_MAX),
            };
            *next_ms = (*next_ms).max(start_ms + length_ms);
            Run { series, start_ms, step_ms, count }
        };
        Request { store_idx, runs: (0..count).map(run).collect() }
    }
}

fn start_node(site: &Site, seed: u64, skew_ms: i64) -> Result<Node, String> {
    let (env, _) = site.env(seed, skew_ms);
    let (bucket, _) = site.connect(&env, seed);
    let parts = GatewayParts {
        log: std::sync::Arc::new(site.topic.connect().map_err(|error| error.to_string())?),
        bucket,
        handle: site.handle.clone(),
        memory: MemoryBudget::new("records of the log", MEMORY_BYTES),
        limits: LimitsTable::default(),
    };
    let options = GatewayOptions { tenant_partitions_min: TENANT_PARTITIONS, ..GatewayOptions::default() };
    let gateway = Gateway::new(&env, parts, options);
    match gateway.refresh() {
        // Ready with a later refresh; senders repeat until then.
        Ok(()) | Err(RefreshError::JustAdded) => {}
        Err(error) => return Err(format!("a gateway does not start: {error}")),
    }
    Ok(Node { env, gateway })
}

/// Returns an error unless a sender may repeat the request.
fn check_retriable(error: &GatewayError) -> Result<(), String> {
    match error.fault() {
        GatewayFault::Retry => Ok(()),
        _ => Err(format!("a gateway refuses a request: {error}")),
    }
}
