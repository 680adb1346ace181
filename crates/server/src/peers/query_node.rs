//! Query node: owners of recent samples for the sources of queries, looked up again and again.
//!
//! Invariant: queries never wait for a lookup; they use what the last one has found.
//! Not here: blocks of the bucket, how both become one source (`tsdb`).

use std::sync::Arc;
use std::time::Duration;

use chronolith_base::Env;
use chronolith_cluster::PartitionId;
use chronolith_cluster::partition_maps::{PartitionMaps, PartitionsSnapshot};
use chronolith_cluster::peers::{
    ConnectOwners, OwnerDirectory, OwnersAddress, OwnersOfPartition, QueryPeers, UnknownOffsets,
};
use chronolith_model::min_offsets::MinOffsets;
use chronolith_service::metrics::definition::Metric;
use chronolith_tsdb::{BucketSources, PeerSources, PeerTransport, SelectLimits};
use tokio::runtime::Handle;

use super::client::NodeClient;
use super::counters::PeerCounters;
use super::lookup::HttpLookup;
use super::transport::{Calls, PartitionTransport};

/// Owners as a query node uses them.
pub(crate) struct QueryNode {
    directory: Arc<OwnerDirectory>,
    maps: Arc<PartitionMaps>,
    peers: Arc<QueryPeers>,
    lookup: HttpLookup,
    counters: Arc<PeerCounters>,
}

/// Connections over HTTP.
struct HttpOwners(Calls);

impl ConnectOwners for HttpOwners {
    fn connect(&self, owners: OwnersOfPartition) -> Arc<dyn PeerTransport> {
        Arc::new(PartitionTransport::new(self.0.clone(), owners))
    }
}

impl QueryNode {
    /// Pause between two lookups.
    const REFRESH_PAUSE: Duration = Duration::from_secs(5);
    /// The same while queries fail for a partition without an owner that can be asked.
    const UNAVAILABLE_PAUSE: Duration = Duration::from_secs(1);

    /// A query node whose calls run on the runtime of `handle`. Sends no request.
    pub(crate) fn new(
        owners: &OwnersAddress,
        client: Arc<NodeClient>,
        sources: &BucketSources,
        env: &Env,
        handle: &Handle,
    ) -> QueryNode {
        let counters = Arc::new(PeerCounters::default());
        let directory = Arc::new(OwnerDirectory::new(env.clock.clone()));
        let maps = PartitionMaps::new(sources.bucket().store().clone(), env, handle.clone());
        let maps = Arc::new(maps.with_on_removal(sources.outdate_lists()));
        let calls = Calls {
            client: client.clone(),
            counters: counters.clone(),
            clock: env.clock.clone(),
            runtime: handle.clone(),
        };
        let connect = Arc::new(HttpOwners(calls));
        let peers = QueryPeers::new(directory.clone(), maps.clone(), connect, env.clock.clone());
        let lookup =
            HttpLookup { owners: owners.clone(), client, disk: env.disk.clone(), runtime: handle.clone() };
        QueryNode { directory, maps, peers: Arc::new(peers), lookup, counters }
    }

    /// Sources of all tenants over the owners.
    pub(crate) fn sources(&self) -> PeerSources {
        PeerSources::new(self.peers.clone(), SelectLimits::default())
    }

    /// Looks owners up and reads the partition map. Blocks the thread.
    pub(crate) fn refresh(&self) {
        if let Err(error) = self.maps.refresh(None) {
            tracing::warn!(%error, "the partition map was not read, the last one stays in use");
        }
        self.directory.refresh(&self.lookup);
    }

    /// Reason for a load balancer to send nothing here; see [`QueryPeers::unready_reason`].
    pub(crate) fn unready_reason(&self) -> Option<String> {
        self.peers.unready_reason()
    }

    /// Time until the next lookup.
    pub(crate) fn refresh_pause(&self) -> Duration {
        if self.peers.unavailable().is_empty() {
            QueryNode::REFRESH_PAUSE
        } else {
            QueryNode::UNAVAILABLE_PAUSE
        }
    }

    /// Returns the owners as the last lookup has found them.
    pub(crate) fn directory(&self) -> &OwnerDirectory {
        &self.directory
    }

    /// Returns the partition map in use.
    pub(crate) fn partition_map(&self) -> Option<Arc<PartitionsSnapshot>> {
        self.maps.current()
    }

    /// Returns the partitions that queries ask, and the partitions without a ready owner.
    pub(crate) fn partitions(&self) -> (Vec<PartitionId>, Vec<PartitionId>) {
        (self.peers.partitions(), self.peers.unavailable())
    }

    /// Refuses offsets that no owner can reach; see [`QueryPeers::check_offsets`].
    ///
    /// # Errors
    /// [`UnknownOffsets`].
    pub(crate) fn check_offsets(&self, offsets: &MinOffsets) -> Result<(), UnknownOffsets> {
        self.peers.check_offsets(offsets)
    }

    /// Counters of calls.
    pub(crate) fn calls(&self) -> &PeerCounters {
        &self.counters
    }
}

pub(crate) static OWNERS: &[Metric<QueryNode>] = &[
    Metric::gauges(
        "chronolith_owners",
        &["state"],
        "Owners of the last lookup by state.",
        |node, samples| {
            let nodes = node.directory.nodes();
            let failing = nodes.iter().filter(|one| one.fault.is_some()).count();
            samples.push(&["reporting"], (nodes.len() - failing) as f64);
            samples.push(&["failing"], failing as f64);
        },
    ),
    Metric::gauge(
        "chronolith_owner_partitions",
        "Partitions of the log that queries ask for recent samples.",
        |node| node.peers.partitions().len() as f64,
    ),
    Metric::gauge(
        "chronolith_owner_partitions_unavailable",
        "Partitions without a ready owner: queries of recent samples fail.",
        |node| node.peers.unavailable().len() as f64,
    ),
    Metric::optional_gauge(
        "chronolith_owner_lookup_age_seconds",
        "Age of the last lookup of owners that succeeded.",
        |node| Some(node.directory.lookup_age_ms()? as f64 / 1000.0),
    ),
    Metric::counter(
        "chronolith_partition_map_failures_total",
        "Reads of the partition map that failed; the last map stays in use.",
        |node| node.maps.failure_count() as f64,
    ),
];
