//! Query node of a simulated cluster: blocks of the bucket as its catalogue has them, and one owner of each
//! partition.
//!
//! Invariant: everything but the transport is as in a server; calls and answers are bytes.
//! Not here: the expected answers (`answer`).

use std::sync::Arc;
use std::time::Duration;

use chronolith_base::Env;
use chronolith_cluster::owner::{Owner, PartitionOwner as _};
use chronolith_cluster::partition_maps::PartitionMaps;
use chronolith_cluster::peers::{
    ConnectOwners, NodeLookup, NodeReport, OwnerDirectory, OwnersOfPartition, QueryPeers,
};
use chronolith_format::select::{SelectCall, decode_call};
use chronolith_model::query::TenantSources;
use chronolith_model::{QueryError, ReadContext, TenantId};
use chronolith_tsdb::{
    AnswerEnd, BucketSources, PeerSources, PeerStream, PeerTransport, SelectLimits, Tsdb, send_answer,
};
use parking_lot::Mutex;

use super::answer::{Answer, read_all};
use super::machine::{Machine, Site};

/// Owner that queries may ask.
#[derive(Clone)]
struct Asked {
    address: String,
    owner: Arc<Owner>,
    tsdb: Arc<Tsdb>,
}

/// Owners that queries may ask, while one runs.
#[derive(Default)]
struct AskedOwners(Mutex<Vec<Asked>>);

impl NodeLookup for AskedOwners {
    fn addresses(&self) -> Result<Vec<String>, String> {
        Ok(self.0.lock().iter().map(|asked| asked.address.clone()).collect())
    }

    fn reports(&self, addresses: &[String]) -> Vec<Result<NodeReport, String>> {
        let asked = self.0.lock();
        let report = |address: &String| {
            let one = asked.iter().find(|one| one.address == *address).ok_or("it does not run")?;
            let mut report = one.owner.report();
            // An owner that lags answers as of its position, which the comparison knows.
            report.partitions.iter_mut().for_each(|own| own.not_ready = None);
            Ok(report)
        };
        addresses.iter().map(report).collect()
    }
}

/// Connections within the process.
struct InProcess(Arc<AskedOwners>);

impl ConnectOwners for InProcess {
    fn connect(&self, owners: OwnersOfPartition) -> Arc<dyn PeerTransport> {
        let first = owners.asked().first().map(|node| node.address().to_owned());
        let owner = first.and_then(|address| {
            let asked = self.0.0.lock();
            asked.iter().find(|one| one.address == address).cloned()
        });
        Arc::new(OwnerTransport { name: owners.name(), why_none: owners.why_none(), owner })
    }
}

/// Transport to an owner of a partition.
struct OwnerTransport {
    name: String,
    why_none: String,
    owner: Option<Asked>,
}

/// Answer of an owner.
enum OwnerAnswer {
    Frames(Option<Vec<u8>>),
    Stale,
    None(String),
}

impl PeerStream for OwnerAnswer {
    fn next_bytes(&mut self, _: &ReadContext) -> Result<Option<Vec<u8>>, QueryError> {
        let unavailable = |what: &str| Err(QueryError::Unavailable { what: what.to_owned() });
        match self {
            OwnerAnswer::Frames(frames) => Ok(frames.take()),
            OwnerAnswer::Stale => unavailable("the catalogue is too old"),
            OwnerAnswer::None(why) => unavailable(why),
        }
    }

    fn is_stale(&self) -> bool {
        matches!(self, OwnerAnswer::Stale)
    }
}

impl Asked {
    fn is_stale(&self, call: &SelectCall) -> bool {
        call.catalogue < self.owner.catalogue_needed(&call.tenant, call.store)
    }

    fn answer(&self, call: &[u8], ctx: &ReadContext) -> OwnerAnswer {
        let call = match decode_call(call) {
            Ok(call) => call,
            Err(error) => return OwnerAnswer::None(error.to_string()),
        };
        if self.owner.is_start_catalogue_due(&call.tenant, call.store) {
            // A failure leaves recent queries as they are.
            let _ = self.owner.read_start_catalogue(&call.tenant, call.store);
        }
        if self.is_stale(&call) {
            return OwnerAnswer::Stale;
        }
        let source = self.tsdb.reader().source_of(&call);
        let mut bytes = Vec::new();
        let mut send = |mut frames: Vec<u8>| {
            bytes.append(&mut frames);
            Ok(())
        };
        match send_answer(&*source, &call, 0, ctx, &|| Ok(()), &mut send) {
            Ok(AnswerEnd::Complete | AnswerEnd::Failed(_)) => {}
            Err(error) => return OwnerAnswer::None(error.to_string()),
        }
        if self.is_stale(&call) { OwnerAnswer::Stale } else { OwnerAnswer::Frames(Some(bytes)) }
    }
}

impl PeerTransport for OwnerTransport {
    fn node(&self) -> &str {
        &self.name
    }

    fn send(&self, call: Vec<u8>, ctx: &ReadContext) -> Box<dyn PeerStream> {
        Box::new(match &self.owner {
            Some(asked) => asked.answer(&call, ctx),
            None => OwnerAnswer::None(self.why_none.clone()),
        })
    }
}

/// A query node.
pub(super) struct QueryNode {
    env: Env,
    sources: BucketSources,
    maps: Arc<PartitionMaps>,
    directory: Arc<OwnerDirectory>,
    asked: Arc<AskedOwners>,
    made_ns: u64,
}

impl QueryNode {
    /// A node that has read nothing. Catalogues that it reads stay in use until an owner refuses them.
    pub(super) fn new(site: &Site, seed: u64) -> QueryNode {
        let (env, _) = site.env(seed, 0);
        let (store, _) = site.connect(&env, seed);
        let sources = BucketSources::over(store.clone(), &site.bucket_options, &env, &site.handle);
        let maps = PartitionMaps::new(store, &env, site.handle.clone());
        let maps = Arc::new(maps.with_on_removal(sources.outdate_lists()));
        let directory = Arc::new(OwnerDirectory::new(env.clock.clone()));
        let asked = Arc::new(AskedOwners::default());
        let connect = Arc::new(InProcess(asked.clone()));
        let peers = QueryPeers::new(directory.clone(), maps.clone(), connect, env.clock.clone());
        let recent = PeerSources::new(Arc::new(peers), SelectLimits::default());
        let sources = sources.with_recent(Arc::new(recent));
        let made_ns = env.clock.mono_ns();
        QueryNode { env, sources, maps, directory, asked, made_ns }
    }

    /// Time since it was made, which its catalogues have at most.
    pub(super) fn age(&self) -> Duration {
        Duration::from_nanos(self.env.clock.mono_ns().saturating_sub(self.made_ns))
    }

    /// Reads everything of a tenant, with the samples that `machines` have.
    ///
    /// # Errors
    /// As the query.
    pub(super) fn read(&self, tenant: &TenantId, machines: &[&Machine]) -> Result<Answer, QueryError> {
        let unavailable = |why: String| QueryError::Unavailable { what: why };
        self.maps.refresh(None).map_err(|error| unavailable(error.to_string()))?;
        let asked = |machine: &&Machine| Asked {
            address: machine.name.clone(),
            owner: machine.owner().clone(),
            tsdb: machine.running().tsdb.clone(),
        };
        *self.asked.0.lock() = machines.iter().map(asked).collect();
        self.directory.refresh(&*self.asked);
        let answer = read_all(&*self.sources.queryable(tenant), self.env.clock.clone());
        self.asked.0.lock().clear();
        answer
    }
}
