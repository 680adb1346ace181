//! Queries of one round, in batches and in templates: one admitted call per batch.
//!
//! Invariants: a thread has at most one call at a time, so that the permits of the class suffice for all
//! rounds that the scheduler starts; each expression is listed, can be killed and is logged as a query.
//! Not here: the order of batches (`chronolith_rules::round`), expressions that are evaluated together
//! (`batch`).

use chronolith_base::Reservation;
use chronolith_promql::{Value, VectorSample};
use chronolith_rules::backfill::series_limit_exceeded;
use chronolith_rules::group::GroupKey;
use chronolith_rules::template_engine::TemplateQueries;

use crate::access::Identity;
use crate::evaluation::promql::{
    self, Caller, CallerText, Detail, EvalTimes, PromqlAnswer, PromqlError, PromqlQuery,
};
use crate::evaluation::run::{Admitted, CallError, End, further_query};
use crate::refusal::Refusal;
use crate::rules::interrupts::Interrupts;
use crate::service::Service;

/// Queries of one round.
pub(super) struct BatchEvaluation<'a> {
    pub(super) service: &'a Service,
    pub(super) identity: &'a Identity,
    pub(super) group: &'a GroupKey,
    pub(super) interrupts: &'a Interrupts,
    /// Time limit of the round in milliseconds, and its end on the monotonic clock.
    pub(super) time_max_ms: i64,
    pub(super) deadline_ns: u64,
    /// Wall clock in nanoseconds and duration of each expression, in order of batches and expressions.
    pub(super) timings: Vec<Timing>,
    /// Memory of the values of the batch, in the budget of its call.
    pub(super) values_memory: Vec<Reservation>,
}

/// Start and duration of the evaluation of one expression.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timing {
    pub(super) started_ns: i64,
    pub(super) duration_ns: u64,
}

/// Reason that an expression has no value.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) end: End,
    pub(super) text: String,
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Failure {
        Failure { end: End::Failed, text: refusal.to_string() }
    }
}

impl From<PromqlError> for Failure {
    fn from(error: PromqlError) -> Failure {
        let text = match &error {
            PromqlError::Refused(refusal) => refusal.to_string(),
            PromqlError::Syntax(why) => why.clone(),
            PromqlError::Evaluation(error) => error.to_string(),
            PromqlError::Killed(id) => {
                format!("query {id} was killed by a request to status/active_queries/kill")
            }
        };
        Failure { end: error.end(), text }
    }
}

impl CallError for Failure {
    fn end(&self) -> End {
        self.end
    }

    fn text(&self) -> &str {
        &self.text
    }
}

/// A group as logs of queries name it.
pub(super) struct GroupCaller<'a>(pub(super) &'a GroupKey);

impl Caller for GroupCaller<'_> {
    fn describe(&self) -> CallerText {
        let path = format!("rule group {};{}", self.0.file, self.0.name);
        CallerText { path, ..CallerText::default() }
    }
}

impl BatchEvaluation<'_> {
    /// Time that the round has left, at most the timeout of queries.
    ///
    /// # Errors
    /// The text for the rule once the time is over.
    pub(super) fn timeout_ms(&self) -> Result<u64, String> {
        let left_ns = self.deadline_ns.saturating_sub(self.service.env.clock.mono_ns());
        match left_ns / 1_000_000 {
            0 => Err(format!("the round has taken {} ms, the interval of its group", self.time_max_ms)),
            left_ms => Ok(left_ms.min(self.service.options.query.timeout_ms)),
        }
    }

    /// Text of a failure for the rule; a query that the end of the round has cut off names the round.
    pub(super) fn text_of(&self, failure: Failure) -> String {
        match failure.end {
            End::Timeout => self.timeout_ms().err().unwrap_or(failure.text),
            _ => failure.text,
        }
    }

    pub(super) fn admit(&self) -> Result<Admitted, String> {
        let timeout_ms = self.timeout_ms()?;
        let class = &self.service.admission.rules;
        let admitted = self.service.try_admit(class, self.identity, timeout_ms);
        admitted.ok_or_else(|| "no permit for a batch of rules is free".to_owned())
    }

    /// A query of the round, within the time that is left.
    ///
    /// # Errors
    /// The time is over.
    pub(super) fn promql_query<'q>(
        &'q self,
        text: &'q str,
        time_ms: i64,
        caller: &'q GroupCaller<'q>,
    ) -> Result<PromqlQuery<'q>, Failure> {
        Ok(PromqlQuery {
            identity: self.identity,
            text,
            times: EvalTimes::At(time_ms),
            lookback_ms: None,
            engine: &self.service.queries.engine,
            timeout_ms: self.timeout_ms().map_err(|text| Failure { end: End::Timeout, text })?,
            received_ns: self.service.env.clock.mono_ns(),
            detail: Detail::default(),
            is_cacheable: false,
            caller,
        })
    }

    fn value(&self, admitted: &Admitted, text: &str, time_ms: i64) -> Result<Value, Failure> {
        let service = self.service;
        let caller = GroupCaller(self.group);
        let query = self.promql_query(text, time_ms, &caller)?;
        let ctx = further_query(service, admitted);
        let _listed = self.interrupts.enter(ctx.cancel_flag());
        let value = |answer: &PromqlAnswer<'_>| Ok(answer.result.value.clone());
        let result = promql::evaluate(service, &query, &ctx, value);
        service.count_end(&ctx, result.as_ref().err().map(CallError::end));
        result
    }

    pub(super) fn within_series_limit(&self, value: Value) -> Result<Value, String> {
        let limit = self.service.limits_of(self.identity.tenant()).queries.rules.series_max;
        match &value {
            Value::Vector(samples) if limit > 0 && samples.len() > limit => {
                Err(series_limit_exceeded(samples.len(), limit))
            }
            _ => Ok(value),
        }
    }
}

impl TemplateQueries for BatchEvaluation<'_> {
    fn query(&mut self, query: &str, time_ms: i64) -> Result<Vec<VectorSample>, String> {
        let admitted = self.admit()?;
        let value = self.value(&admitted, query, time_ms).map_err(|failure| self.text_of(failure))?;
        match self.within_series_limit(value)? {
            Value::Vector(samples) => Ok(samples),
            Value::Scalar { time_ms, value } => {
                let labels = chronolith_model::Labels::empty();
                Ok(vec![VectorSample { labels, time_ms, value, histogram: None }])
            }
            _ => Err("query result is not a vector or scalar".to_owned()),
        }
    }
}
