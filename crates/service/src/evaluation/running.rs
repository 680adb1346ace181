//! A running query of any language: its place in the list of active queries while it runs, and in the list of
//! costly ones when it has ended.

use std::sync::Arc;

use chronolith_model::{ReadContext, TenantId};
use chronolith_promql::engine::trace::Trace;

use crate::activity::active_queries::{ActiveEntry, StartedQuery};
use crate::activity::top_queries::{FinishedQuery, QueryLanguage};
use crate::service::Service;

/// A query that begins.
pub struct Begun<'a> {
    /// Tenant that asks.
    pub tenant: &'a TenantId,
    /// Language of the text.
    pub language: QueryLanguage,
    /// Text as sent; secrets are left out.
    pub text: &'a str,
    /// First time, last time, step (0 = one time).
    pub times_ms: (i64, i64, i64),
    /// Deadline, memory budget and cancellation of the query.
    pub ctx: &'a ReadContext,
    /// Trace of the plan, updated while the query runs.
    pub trace: Arc<Trace>,
}

/// A query that runs: listed, and killable, until it is dropped.
pub struct RunningQuery<'a> {
    service: &'a Service,
    tenant: &'a TenantId,
    language: QueryLanguage,
    text: &'a str,
    started_ns: u64,
    entry: ActiveEntry<'a>,
}

impl<'a> RunningQuery<'a> {
    /// Lists a query as running.
    pub fn begin(service: &'a Service, begun: Begun<'a>) -> RunningQuery<'a> {
        let Begun { tenant, language, text, times_ms, ctx, trace } = begun;
        let started_ns = service.env.clock.mono_ns();
        let started = StartedQuery { tenant, language, text, times_ms, mono_ns: started_ns, ctx, trace };
        let entry = service.queries.active.enter(started);
        RunningQuery { service, tenant, language, text, started_ns, entry }
    }

    /// Monotonic clock at its start, ns.
    pub fn started_ns(&self) -> u64 {
        self.started_ns
    }

    /// Time since its start, ns.
    pub fn duration_ns(&self) -> u64 {
        self.service.env.clock.mono_ns().saturating_sub(self.started_ns)
    }

    /// Returns its id if it was killed.
    pub fn killed_id(&self) -> Option<u64> {
        self.entry.killed_id()
    }

    /// Records the query among the costly ones of the last hour, with the samples that it has read.
    pub fn record(&self, sample_count: u64, is_error: bool) {
        self.service.queries.top.record(&FinishedQuery {
            tenant: self.tenant,
            language: self.language,
            text: self.text,
            duration_ns: self.duration_ns(),
            sample_count,
            is_error,
            ended_ms: self.service.env.clock.now_ms(),
        });
    }
}
