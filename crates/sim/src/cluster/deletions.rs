//! Deletions in a simulated cluster: a gateway begins one, takes its steps, or dies in between, so that
//! owners end it.
//!
//! Not here: samples that a deletion takes (`ledger`).

use std::collections::BTreeMap;

use chronolith_base::{Clock as _, Rng};
use chronolith_cluster::gateway::{Deleted, DeletionError, GatewayDeletion, GatewayFault, RunningDeletion};
use chronolith_model::{Matcher, TimeRange};

use super::gateways::Gateways;
use super::machine::Site;
use super::setup::{HOUR_MS, SERIES_PER_STORE};

/// Counts of deletions.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct DeletionTally {
    pub(super) begun: u64,
    /// Deletions that the gateway has ended.
    pub(super) done: u64,
}

/// Deletions of all gateways, one of which is begun at a time.
#[derive(Default)]
pub(super) struct Deletions {
    running: Option<RunningDeletion>,
    /// Offsets that a read has to see to have no sample of the deletion: by number, then by partition.
    seen_from: BTreeMap<u64, BTreeMap<u32, u64>>,
    pub(super) tally: DeletionTally,
}

impl Deletions {
    /// Lets a gateway begin a deletion, or take a step of the running one.
    pub(super) fn act(&mut self, gateways: &Gateways, site: &Site, rng: &Rng) -> Result<(), String> {
        match &mut self.running {
            None if rng.below(4) == 0 => self.begin(gateways, site, rng),
            None => Ok(()),
            // The gateway dies.
            Some(_) if rng.below(12) == 0 => {
                self.running = None;
                Ok(())
            }
            Some(running) => {
                let number = running.number();
                if let Ok(deleted) = gateways.any(rng).deletions().try_advance(running) {
                    self.running = None;
                    self.tally.done += 1;
                    self.note_done(number, &deleted)?;
                }
                Ok(())
            }
        }
    }

    /// Lets the gateways die.
    pub(super) fn abandon(&mut self) {
        self.running = None;
    }

    /// Returns true if owners whose next records have these offsets let no reader see a sample of the
    /// deletion.
    pub(super) fn is_hidden(&self, number: u64, next: &[u64]) -> bool {
        let passed = |(partition, offset): (&u32, &u64)| next.get(*partition as usize) > Some(offset);
        self.seen_from.get(&number).is_some_and(|offsets| offsets.iter().all(passed))
    }

    fn begin(&mut self, gateways: &Gateways, site: &Site, rng: &Rng) -> Result<(), String> {
        let stores = &site.setup.stores;
        let store_idx = rng.below(stores.len() as u64) as usize;
        let store = &stores[store_idx];
        let series = |_| {
            let series = store_idx * SERIES_PER_STORE + rng.below(SERIES_PER_STORE as u64) as usize;
            vec![Matcher::equal("id", &series.to_string())]
        };
        let selectors: Vec<Vec<Matcher>> = (0..=rng.below(2)).map(series).collect();
        let range = match rng.below(3) {
            0 => TimeRange::ALL,
            _ => {
                let end_ms = site.clock.now_ms() - rng.below(3).cast_signed() * HOUR_MS;
                let unit = store.store.time_unit();
                TimeRange { start: unit.from_ms(end_ms - 3 * HOUR_MS), end: unit.from_ms(end_ms) }
            }
        };
        let request = GatewayDeletion {
            tenant: &store.tenant,
            store: store.store,
            selectors: &selectors,
            range,
            request_id: &"r",
        };
        match gateways.any(rng).deletions().begin(request) {
            Ok(running) => {
                self.tally.begun += 1;
                self.running = Some(running);
                Ok(())
            }
            Err(DeletionError::Busy { .. } | DeletionError::Bucket(_)) => Ok(()),
            Err(DeletionError::Gateway(error)) if error.fault() == GatewayFault::Retry => Ok(()),
            Err(error) => Err(format!("a gateway refuses a deletion: {error}")),
        }
    }

    fn note_done(&mut self, number: u64, deleted: &Deleted) -> Result<(), String> {
        // Without the records after its end, no reader knows when it is hidden.
        let Some(header) = deleted.offsets.to_header() else { return Ok(()) };
        let mut offsets = BTreeMap::new();
        for one in header.split(',') {
            let mut parts = one.rsplit(':').map(str::parse::<u64>);
            match (parts.next(), parts.next()) {
                (Some(Ok(offset)), Some(Ok(partition))) => {
                    offsets.insert(u32::try_from(partition).map_err(|error| error.to_string())?, offset);
                }
                _ => return Err(format!("offsets of a deletion: {header:?}")),
            }
        }
        self.seen_from.insert(number, offsets);
        Ok(())
    }
}
