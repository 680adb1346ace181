//! Nodes of a cluster as the source of all tenants.
//!
//! Invariants: the nodes are those that are known when a query begins; all of them are asked before one is
//! waited for. A query fails with a node, unless it allows a partial result, which names the node.
//! Not here: lookup of the nodes (`cluster`), one node (`peer`).

use std::sync::Arc;

use chronolith_format::select::{AnswerItem, SelectLimits, SelectQuestion};
use chronolith_model::change::{ChangeWatch, Changed, Generation};
use chronolith_model::query::TenantSources;
use chronolith_model::{QueryError, Queryable, ReadContext, TenantId};

use super::stale::StaleCalls;
use super::transport::PeerTransport;
use super::{PeerSource, PeerStore};
use crate::query::deferred::DeferredSource;
use crate::query::fanout::parts_as_one;

/// Nodes that have the newest samples.
pub trait PeerList: Send + Sync {
    /// Returns the nodes.
    ///
    /// # Errors
    /// [`QueryError::Unavailable`] if none is known.
    fn peers(&self) -> Result<Vec<Arc<dyn PeerTransport>>, QueryError>;
}

/// Nodes as they were known at one time; none if the list failed, which is asked again then.
#[derive(Default)]
pub(crate) struct KnownPeers {
    peers: Option<Vec<Arc<dyn PeerTransport>>>,
}

/// Sources of all tenants over several nodes.
pub struct PeerSources {
    list: Arc<dyn PeerList>,
    /// Limits of the answer of each node.
    limits: SelectLimits,
}

impl PeerSources {
    /// Sources over the nodes of `list`.
    #[must_use]
    pub fn new(list: Arc<dyn PeerList>, limits: SelectLimits) -> PeerSources {
        PeerSources { list, limits }
    }
}

impl PeerSources {
    /// Returns the nodes as they are known now, for [`PeerSources::source_at`].
    pub(crate) fn known(&self) -> KnownPeers {
        KnownPeers { peers: self.list.peers().ok() }
    }

    /// Returns the series that the nodes have of a store of `tenant`, for a caller that reads the blocks of
    /// the catalogue with this number; refusals of the number are noted in `stale`.
    pub(crate) fn source_at(
        &self,
        known: KnownPeers,
        tenant: &TenantId,
        store: PeerStore,
        catalogue: u64,
        stale: &Arc<StaleCalls>,
    ) -> Arc<dyn Queryable> {
        let stale = stale.clone();
        self.source(known, tenant, move |source| {
            source.with_store(store).with_catalogue(catalogue).with_stale_calls(stale.clone())
        })
    }

    /// Returns the series of all nodes, with the settings of `set` for each call.
    fn source(
        &self,
        known: KnownPeers,
        tenant: &TenantId,
        set: impl Fn(PeerSource) -> PeerSource + Send + Sync + 'static,
    ) -> Arc<dyn Queryable> {
        let list = self.list.clone();
        let limits = self.limits;
        let tenant = tenant.clone();
        Arc::new(DeferredSource::new(move |read, _| {
            let peers = match &known.peers {
                Some(peers) => peers.clone(),
                None => list.peers()?,
            };
            let part = |peer: Arc<dyn PeerTransport>| {
                let name = format!("node {}", peer.node());
                let source = set(PeerSource::new(peer, &tenant).with_limits(limits));
                let source: Arc<dyn Queryable> = Arc::new(source);
                (name, source)
            };
            Ok(parts_as_one(peers.into_iter().map(part).collect(), !read.request.allows_partial))
        }))
    }
}

impl PeerSources {
    /// Asks all nodes for records, and passes the parts of their answers to `take`, node after node. Waits.
    ///
    /// # Errors
    /// As a query that no node may be missing from.
    pub(crate) fn ask_records(
        &self,
        tenant: &TenantId,
        store: PeerStore,
        question: &SelectQuestion,
        ctx: &ReadContext,
        mut take: impl FnMut(AnswerItem),
    ) -> Result<(), QueryError> {
        let mut answers = Vec::new();
        for peer in self.list.peers()? {
            let source = PeerSource::new(peer, tenant).with_store(store).with_limits(self.limits);
            answers.push(source.send(question.clone(), ctx)?);
        }
        for mut answer in answers {
            while let Some(item) = answer.next_item()? {
                take(item);
            }
        }
        Ok(())
    }
}

/// Other nodes do not report their changes, so that no result over them is cached.
impl ChangeWatch for PeerSources {
    fn generation(&self, _: &TenantId) -> Generation {
        Generation::UNKNOWN
    }

    fn changed_since(&self, _: &TenantId, _: &Generation) -> Changed {
        Changed::EVERYTHING
    }
}

impl TenantSources for PeerSources {
    fn queryable(&self, tenant: &TenantId) -> Arc<dyn Queryable> {
        self.source(KnownPeers::default(), tenant, |source| source)
    }
}
