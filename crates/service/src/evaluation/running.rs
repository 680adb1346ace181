//! A running query of any language: its place in the list of active queries while it runs, and in the list of
//! costly ones when it has ended.

use chronolith_model::TenantId;

use crate::activity::active_queries::{ActiveEntry, StartedQuery};
use crate::activity::top_queries::{FinishedQuery, QueryLanguage};
use crate::service::Service;

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
    pub fn begin(service: &'a Service, started: StartedQuery<'a>) -> RunningQuery<'a> {
        let StartedQuery { tenant, language, text, .. } = started;
        let started_ns = service.env.clock.mono_ns();
        let entry = service.queries.active.enter(started, started_ns);
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
