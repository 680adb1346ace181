//! The store over clients that fail: retries, deadlines, hedges, races of creators, uploads.

mod block_uploads;
mod catalogued;
mod cuts;
mod damaged_answers;
mod deletions;
mod disk_cache;
mod foreign;
mod http;
mod leases;
mod limits;
mod local_sidecars;
mod maintenance;
mod races;
mod reading;
mod requests;
mod s3_server;
mod sidecars;
mod single_flight;
mod snapshots;
mod thanos;
mod twins;
mod uploads;
mod versitygw;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use chronolith_base::{Clock, Env};
use chronolith_model::tenant::TenantId;
use object_store::memory::InMemory;
use tokio::runtime::Handle;

use crate::layout::BucketLayout;
use crate::store::Store;
use crate::store::backend::Backend;
use crate::store::config::StoreConfig;
use crate::store::faults;
use crate::store::faults::{FaultPlan, FaultStore};
use crate::store::local::LocalDir;
use crate::store::request::{Purpose, RequestContext};

/// Timeout of what a test waits for, long enough for a busy machine.
const WAIT_TIMEOUT_NS: u64 = 60_000_000_000;

/// A store over a faulty client, with the real clock but for [`Rig::in_tokio_time`].
struct Rig {
    env: Env,
    faults: Arc<FaultStore>,
    store: Arc<Store>,
}

impl Rig {
    fn over(backend: Arc<dyn Backend>, plan: FaultPlan, seed: u64) -> Rig {
        Rig::in_layout(backend, plan, seed, BucketLayout::Mimir)
    }

    fn in_layout(backend: Arc<dyn Backend>, plan: FaultPlan, seed: u64, layout: BucketLayout) -> Rig {
        Rig::in_env(backend, plan, seed, StoreConfig { layout, ..StoreConfig::new("memory://") }, Env::real())
    }

    fn in_env(
        backend: Arc<dyn Backend>,
        plan: FaultPlan,
        seed: u64,
        mut config: StoreConfig,
        env: Env,
    ) -> Rig {
        config.request_timeout = Duration::from_secs(5);
        let env = Env { rng: Arc::new(chronolith_base::Rng::from_seed(seed)), ..env };
        let faults = Arc::new(FaultStore::new(backend, plan, seed));
        let store =
            Store::with_backend(Arc::clone(&faults) as Arc<dyn Backend>, &config, &env, Handle::current());
        Rig { env, faults, store: Arc::new(store) }
    }

    fn memory(plan: FaultPlan) -> Rig {
        Rig::over(Arc::new(InMemory::new()), plan, 1)
    }

    /// A rig with the clock of tokio, which a test may pause: it then goes on when all tasks wait for it.
    fn in_tokio_time(plan: FaultPlan) -> Rig {
        let clock = Arc::new(TokioClock(tokio::time::Instant::now()));
        let config = StoreConfig::new("memory://");
        Rig::in_env(Arc::new(InMemory::new()), plan, 1, config, Env { clock, ..Env::real() })
    }

    /// A query with this many milliseconds left.
    fn query(&self, timeout_ms: u64) -> RequestContext {
        let timeout = Duration::from_millis(timeout_ms);
        RequestContext::with_timeout(&*self.env.clock, TenantId::anonymous(), timeout, Purpose::Query)
    }
}

/// The time that has passed for tokio's timers since the start.
struct TokioClock(tokio::time::Instant);

impl Clock for TokioClock {
    fn now_ms(&self) -> i64 {
        i64::try_from(self.0.elapsed().as_millis()).unwrap()
    }

    fn mono_ns(&self) -> u64 {
        u64::try_from(self.0.elapsed().as_nanos()).unwrap()
    }

    fn sleep(&self, _: Duration) {
        unreachable!("a store does not block its thread");
    }
}

fn local_backend(dir: &std::path::Path) -> Arc<dyn Backend> {
    Arc::new(LocalDir::open(&Env::real(), dir.to_owned(), Handle::current()).unwrap())
}

/// Bytes that differ at each offset and for each seed.
fn pattern(seed: u64, len: usize) -> Bytes {
    let mut bytes = vec![0; len];
    chronolith_base::Rng::from_seed(seed).fill(&mut bytes);
    bytes.into()
}
