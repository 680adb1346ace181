//! The whole world: shards, and what comes before and after the history.
//!
//! Invariants: the same specification gives the same requests per shard; requests of the epilogue are sent
//! after all shards have sent theirs.

use std::sync::Arc;

use anyhow::Result;

use crate::burst::Burst;
use crate::catalog::{self, Service};
use crate::column::Source as _;
use crate::devices::Device;
use crate::instance::Instance;
use crate::refused::Refused;
use crate::request::Request;
use crate::shard::{Emit, Shard};
use crate::tenant::Tenant;
use crate::timeline::Timeline;
use crate::topology::Topology;
use crate::warehouse::Warehouse;

/// Senders that work at the same time. A constant, since the requests depend on it.
const SHARD_COUNT: usize = 4;
/// Carts that begin per step of the burst, and devices, of a world with all services.
const CARTS_PER_STEP: usize = 25;
const DEVICE_COUNT: usize = 12;
const SERVICE_COUNT_MAX: usize = 50;

/// A world to make.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WorldSpec {
    pub(super) seed: u64,
    pub(super) end_ms: i64,
    pub(super) hours: u32,
    pub(super) service_count: usize,
}

/// A world in motion.
pub(crate) struct World {
    timeline: Timeline,
    shards: Vec<Shard>,
    refused: Vec<Refused>,
}

impl World {
    pub(crate) fn new(spec: &WorldSpec) -> World {
        let seed = spec.seed;
        let services: Vec<Arc<Service>> =
            catalog::services(seed, spec.service_count).into_iter().map(Arc::new).collect();
        let mut shards: Vec<Shard> = (0..SHARD_COUNT).map(|_| Shard::new()).collect();
        for (idx, service) in services.iter().enumerate() {
            for instance_idx in 0..service.instances.len() {
                shards[idx % SHARD_COUNT].add(Instance::new(seed, service, instance_idx));
            }
        }
        let part = |count: usize| (count * spec.service_count).div_ceil(SERVICE_COUNT_MAX);
        (0..part(DEVICE_COUNT)).for_each(|idx| shards[0].add(Device::new(seed, idx)));
        shards[1].add(Burst::new(seed, part(CARTS_PER_STEP)));
        for tenant in Tenant::ALL {
            shards[2].add(Topology::new(tenant, services.iter().map(Arc::as_ref)));
        }
        shards[3].set_warehouse(Warehouse::new(seed));
        shards.iter_mut().for_each(Shard::sort);
        let refused = Tenant::ALL.into_iter().filter_map(|tenant| refused(seed, tenant, &services)).collect();
        World { timeline: Timeline::new(spec.end_ms, spec.hours), shards, refused }
    }

    pub(crate) fn timeline(&self) -> &Timeline {
        &self.timeline
    }

    pub(crate) fn shards_mut(&mut self) -> &mut [Shard] {
        &mut self.shards
    }

    /// Windows of all shards together.
    pub(crate) fn window_count(&self) -> usize {
        self.timeline.window_count() * SHARD_COUNT
    }

    /// Requests before the history.
    pub(crate) fn prologue(&self) -> [Request; 1] {
        [Warehouse::create_database()]
    }

    /// Emits the requests after the history: samples that come late, and those that are refused.
    pub(crate) fn run_epilogue(&mut self, emit: &mut Emit<'_>) -> Result<()> {
        for shard in &mut self.shards {
            shard.run_backlog(emit)?;
        }
        self.run_refused(self.timeline.end_ms, emit)
    }

    /// Emits the step at `time_ms`, after the history.
    pub(crate) fn run_step(&mut self, time_ms: i64, emit: &mut Emit<'_>) -> Result<()> {
        let step = self.timeline.step(time_ms);
        for shard in &mut self.shards {
            shard.run(&[step], emit)?;
        }
        self.run_refused(time_ms, emit)
    }

    fn run_refused(&self, time_ms: i64, emit: &mut Emit<'_>) -> Result<()> {
        self.refused.iter().flat_map(|refused| refused.requests(time_ms)).try_for_each(emit)
    }

    /// Emits all requests of the history, shard after shard.
    pub(crate) fn replay(&mut self, emit: &mut Emit<'_>) -> Result<()> {
        self.prologue().into_iter().try_for_each(&mut *emit)?;
        let timeline = self.timeline;
        for shard in &mut self.shards {
            for steps in timeline.windows() {
                shard.run(&steps, emit)?;
            }
        }
        self.run_epilogue(emit)
    }
}

/// The refused sender of a tenant repeats the series `up` of the last instance of its last service.
fn refused(seed: u64, tenant: Tenant, services: &[Arc<Service>]) -> Option<Refused> {
    let service = services.iter().rfind(|service| service.tenant == tenant)?;
    let mut instance = Instance::new(seed, service, service.instances.len() - 1);
    let taken = instance.columns().first()?.labels.clone();
    Some(Refused::new(tenant, taken))
}

#[cfg(test)]
mod tests;
