//! Source whose series another node has: a call is sent when it is opened, and the answer is read as it
//! arrives.
//!
//! Invariants: an answer without its end is an error, never the end of the series; errors name the node.
//! Not here: the transport, which servers and tests implement (`transport`); the answering node
//! (`query::answer`); series and samples of an answer (`batches`, `samples`).

mod batches;
mod receiver;
mod records;
mod samples;
pub(crate) mod sources;
pub(crate) mod stale;
pub(crate) mod transport;

use std::sync::Arc;

use chronolith_format::record::RecordStore;
use chronolith_format::select::{
    AnswerForm, AnswerItem, SelectCall, SelectLimits, SelectQuestion, SelectView, encode_call,
};
use chronolith_model::query::{Opened, PendingList, Read, SelectRequest, Source, Wanted, visit_listed};
use chronolith_model::{QueryError, ReadContext, TenantId};

use batches::PeerBatches;
use receiver::AnswerReceiver;
use stale::StaleCalls;
use transport::PeerTransport;

/// Store of a tenant, or view of several ones, of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerStore {
    /// Store, by an id that all nodes have.
    pub store: RecordStore,
    /// View of the store.
    pub view: SelectView,
}

/// Source of a tenant whose series a node has.
pub struct PeerSource {
    transport: Arc<dyn PeerTransport>,
    tenant: TenantId,
    store: PeerStore,
    limits: SelectLimits,
    catalogue: u64,
    stale: Arc<StaleCalls>,
}

impl PeerSource {
    /// Returns the source of all stores of `tenant` as PromQL reads them.
    #[must_use]
    pub fn new(transport: Arc<dyn PeerTransport>, tenant: &TenantId) -> PeerSource {
        PeerSource {
            transport,
            tenant: tenant.clone(),
            store: PeerStore { store: RecordStore::Default, view: SelectView::Tenant },
            limits: SelectLimits::default(),
            catalogue: 0,
            stale: Arc::default(),
        }
    }

    /// The same for one store.
    #[must_use]
    pub fn with_store(self, store: PeerStore) -> PeerSource {
        PeerSource { store, ..self }
    }

    /// The same with limits of each answer.
    #[must_use]
    pub fn with_limits(self, limits: SelectLimits) -> PeerSource {
        PeerSource { limits, ..self }
    }

    /// The same with the number of the catalogue of blocks that the caller reads.
    #[must_use]
    pub fn with_catalogue(self, catalogue: u64) -> PeerSource {
        PeerSource { catalogue, ..self }
    }

    /// The same with a place for refusals of the number.
    #[must_use]
    pub(crate) fn with_stale_calls(self, stale: Arc<StaleCalls>) -> PeerSource {
        PeerSource { stale, ..self }
    }

    /// Sends a call for series, a list or an estimate.
    fn ask(
        &self,
        request: SelectRequest,
        wanted: Wanted,
        ctx: &ReadContext,
    ) -> Result<AnswerReceiver, QueryError> {
        // Windows of roll-ups do not travel; the reader makes them of samples.
        let request = SelectRequest { rollups: Vec::new(), ..request };
        self.send(SelectQuestion::Read(Read { request, wanted }), ctx)
    }

    /// Sends a call.
    fn send(&self, question: SelectQuestion, ctx: &ReadContext) -> Result<AnswerReceiver, QueryError> {
        ctx.begin_wait()?;
        let form = AnswerForm::of(&question).expect("visits and searches are asked as lists");
        let call = SelectCall {
            tenant: self.tenant.clone(),
            store: self.store.store,
            view: self.store.view,
            deadline_ms: deadline_ms(ctx),
            limits: self.limits,
            catalogue: self.catalogue,
            consistency: ctx.consistency().map(|consistency| (**consistency).clone()).unwrap_or_default(),
            question,
        };
        let stream = self.transport.send(encode_call(&call), ctx);
        Ok(AnswerReceiver::new(self.transport.node(), stream, form, ctx)?
            .with_stale_calls(self.stale.clone()))
    }

    fn start_list(
        &self,
        request: SelectRequest,
        wanted: Wanted,
        ctx: &ReadContext,
    ) -> Result<PendingList, QueryError> {
        let mut answer = self.ask(request, wanted, ctx)?;
        Ok(Box::new(move || {
            let mut list = Vec::new();
            while let Some(item) = answer.next_item()? {
                if let AnswerItem::List(mut part) = item {
                    answer.reserve(part.iter().map(|entry| size_of::<String>() + entry.len()).sum())?;
                    list.append(&mut part);
                }
            }
            if list.is_sorted_by(|a, b| a < b) { Ok(list) } else { Err(answer.damage("a list out of order")) }
        }))
    }
}

/// Milliseconds that a node has for its answer; 0 = no deadline.
fn deadline_ms(ctx: &ReadContext) -> u64 {
    match ctx.source_remaining_ns() {
        u64::MAX => 0,
        left_ns => (left_ns / 1_000_000).max(1),
    }
}

impl Source for PeerSource {
    fn open(&self, read: Read, ctx: &ReadContext) -> Result<Opened, QueryError> {
        let Read { request, wanted } = read;
        match wanted {
            Wanted::Series => {
                let answer = self.ask(request, Wanted::Series, ctx)?;
                Ok(Opened::Series(Box::new(PeerBatches::new(answer))))
            }
            // An estimate has no time for a wait.
            Wanted::Estimate => Ok(Opened::Estimate(None)),
            Wanted::LabelNames | Wanted::LabelValues { .. } => {
                self.start_list(request, wanted, ctx).map(Opened::List)
            }
            Wanted::EachLabelValue { name, prefix } => visit_listed(self, request, name, prefix, ctx),
            Wanted::SoleLabelValues { .. } => Ok(Opened::Cursor(None)),
        }
    }
}

#[cfg(test)]
mod tests;
