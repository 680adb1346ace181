//! The store over clients that fail: retries, deadlines, hedges, races of creators, uploads.

mod block_uploads;
mod catalogued;
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
mod uploads;
mod versitygw;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use chronolith_base::Env;
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

/// A store over a faulty client, with the real clock.
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
        let mut config = StoreConfig { layout, ..StoreConfig::new("memory://") };
        config.request_timeout = Duration::from_secs(5);
        let env = Env { rng: Arc::new(chronolith_base::Rng::from_seed(seed)), ..Env::real() };
        let faults = Arc::new(FaultStore::new(backend, plan, seed));
        let store =
            Store::with_backend(Arc::clone(&faults) as Arc<dyn Backend>, &config, &env, Handle::current());
        Rig { env, faults, store: Arc::new(store) }
    }

    fn memory(plan: FaultPlan) -> Rig {
        Rig::over(Arc::new(InMemory::new()), plan, 1)
    }

    /// A query with this many milliseconds left.
    fn query(&self, timeout_ms: u64) -> RequestContext {
        let timeout = Duration::from_millis(timeout_ms);
        RequestContext::with_timeout(&*self.env.clock, TenantId::anonymous(), timeout, Purpose::Query)
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
