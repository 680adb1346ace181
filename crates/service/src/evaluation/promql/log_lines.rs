//! Lines of the query log and of the slow query log about an evaluation.
//! Invariants: names of fields in the query log are Prometheus's; `tenant` and `requestID` are additions.

use chronolith_base::utc::rfc3339_ms;
use serde_json::{Value, json};

use super::{Evaluation, Timings};
use crate::evaluation::plan;
use crate::query::slow;

impl Timings {
    /// Seconds by the names of Prometheus's statistics.
    fn to_json(self) -> Value {
        let seconds = |ns: u64| ns as f64 / 1e9;
        let evaluation_ns = self.preparation_ns + self.evaluation_ns;
        json!({
            "evalTotalTime": seconds(evaluation_ns),
            "resultSortTime": 0,
            "queryPreparationTime": seconds(self.preparation_ns),
            "innerEvalTime": seconds(self.evaluation_ns),
            "execQueueTime": seconds(self.queue_ns),
            "execTotalTime": seconds(self.queue_ns + evaluation_ns),
        })
    }
}

impl Evaluation<'_> {
    /// The line of the query log.
    pub(super) fn query_log_line(&self, error: Option<&str>) -> Value {
        let Evaluation { service, query, trace, evaluated, .. } = self;
        let caller = query.caller.describe();
        let (start_ms, end_ms, step_ms) = query.times.bounds();
        let (timings, peak) = evaluated.get().unwrap_or_default();
        let mut line = json!({
            "time": rfc3339_ms(service.env.clock.now_ms()),
            "level": "INFO",
            "source": "query_log",
            "msg": "promql query logged",
            "params": {
                "query": query.text,
                "start": rfc3339_ms(start_ms),
                "end": rfc3339_ms(end_ms),
                "step": step_ms / 1000,
            },
            "stats": {
                "timings": timings.to_json(),
                "samples": { "totalQueryableSamples": trace.samples_read(), "peakSamples": peak },
            },
            "httpRequest": { "clientIP": caller.client_ip, "method": caller.method, "path": caller.path },
            "tenant": query.identity.tenant().as_str(),
            "requestID": caller.request_id,
        });
        if let Some(error) = error {
            line["error"] = error.into();
        }
        line
    }

    /// Writes to the slow query log if the query took long enough.
    pub(super) fn note_slow(&self, now_ns: u64, error: Option<&str>) {
        let Evaluation { service, query, ctx, trace, running, .. } = self;
        let limit_ms = service.options.query.log_slow_ms;
        let took_ns = now_ns.saturating_sub(running.started_ns());
        if limit_ms == 0 || took_ns < limit_ms.saturating_mul(1_000_000) {
            return;
        }
        let (start_ms, end_ms, step_ms) = query.times.bounds();
        let about = || {
            let caller = query.caller.describe();
            json!({
                "time": service.env.clock.now_ms(),
                "tenant": query.identity.tenant().as_str(),
                "requestID": caller.request_id,
                "remote": caller.remote,
                "query": query.text,
                "startMs": start_ms,
                "endMs": end_ms,
                "stepMs": step_ms,
                "seconds": took_ns as f64 / 1e9,
                "queueSeconds": running.started_ns().saturating_sub(query.received_ns) as f64 / 1e9,
                "series": trace.series_selected(),
                "samples": trace.samples_read(),
                "memoryPeakBytes": ctx.budget.peak_bytes(),
                "error": error,
            })
        };
        let line = || slow::line(about(), plan::report(trace, query.text));
        service.queries.slow_log.write(now_ns, line);
    }
}
