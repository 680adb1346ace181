//! A scheduled query, made as the server makes its own: an expression is evaluated at a time, and its result
//! is stored as a series. Permit, deadline, memory, the list of running queries, kills and counters come from
//! the service.

use std::sync::Arc;

use chronolith_base::Env;
use chronolith_model::{Labels, METRIC_NAME, TenantId, WriteBatch};
use chronolith_promql::engine::Value;
use chronolith_service::access::Identity;
use chronolith_service::evaluation::promql::{
    self, Caller, CallerText, Detail, EvalTimes, PromqlAnswer, PromqlError, PromqlQuery,
};
use chronolith_service::evaluation::run::{CallError, End};
use chronolith_service::write::{TargetStore, WriteTarget};
use chronolith_service::{Refusal, Service, ServiceOptions};
use chronolith_tsdb::{ReplayProgress, Tsdb, Writer};

const NOW_MS: i64 = 1_700_000_000_000;
const TIMEOUT_MS: u64 = 10_000;

/// An error of the schedule, as its log would show it.
#[derive(Debug, PartialEq, Eq)]
struct Failed {
    end: End,
    text: String,
}

impl From<Refusal> for Failed {
    fn from(refusal: Refusal) -> Failed {
        Failed { end: End::Failed, text: refusal.to_string() }
    }
}

impl From<PromqlError> for Failed {
    fn from(error: PromqlError) -> Failed {
        let text = match &error {
            PromqlError::Refused(refusal) => refusal.to_string(),
            PromqlError::Syntax(why) => why.clone(),
            PromqlError::Evaluation(error) => error.to_string(),
            PromqlError::Killed(id) => format!("query {id} was killed"),
        };
        Failed { end: error.end(), text }
    }
}

impl CallError for Failed {
    fn end(&self) -> End {
        self.end
    }

    fn text(&self) -> &str {
        &self.text
    }
}

/// A rule: its expression, and the metric of its result.
struct Rule {
    metric: &'static str,
    text: &'static str,
}

impl Caller for Rule {
    fn describe(&self) -> CallerText {
        CallerText { path: format!("rule {}", self.metric), ..CallerText::default() }
    }
}

fn service(change: impl FnOnce(&mut ServiceOptions)) -> Service {
    let (env, _, _) = Env::fake(NOW_MS, 1);
    let mut options = ServiceOptions::new("/data".into());
    change(&mut options);
    let store = Tsdb::open(env.clone(), options.tsdb_options(), Arc::new(ReplayProgress::default()));
    let service = Service::new(env, options);
    service.set_store(store.expect("opens"), Vec::new());
    service
}

/// Stores samples of `tenant` as the server's own writes are stored; returns the number of accepted ones.
fn store(service: &Service, tenant: &TenantId, samples: &[(Labels, f64)]) -> u64 {
    let mut batch = WriteBatch::from_labels();
    for (labels, value) in samples {
        batch.push_labels(labels, &[(NOW_MS, *value)]);
    }
    let target = WriteTarget {
        identity: &Identity::internal(tenant),
        store: TargetStore::Default,
        writer: Writer::ContinuousQuery,
    };
    let destination = service.lifecycle.destination().expect("open");
    let mut writing = service.writes.begin(&destination, target);
    writing.apply_batch(&mut batch).expect("applied");
    writing.wait(|_| {}).expect("durable").outcome.accepted_count
}

/// Runs a rule if there is a permit; `look` sees the service while the query runs.
fn run(
    service: &Service,
    tenant: &TenantId,
    rule: &Rule,
    look: impl FnOnce(),
) -> Option<Result<u64, Failed>> {
    let identity = Identity::internal(tenant);
    let admitted = service.try_admit(&service.admission.continuous, &identity, TIMEOUT_MS)?;
    let query = PromqlQuery {
        identity: &identity,
        text: rule.text,
        times: EvalTimes::At(NOW_MS),
        lookback_ms: None,
        engine: &service.queries.engine,
        timeout_ms: TIMEOUT_MS,
        received_ns: service.env.clock.mono_ns(),
        detail: Detail::default(),
        is_cacheable: false,
        caller: rule,
    };
    let ctx = admitted.ctx();
    let rename = |answer: &PromqlAnswer<'_>| {
        look();
        ctx.check().map_err(PromqlError::from)?;
        let Value::Vector(samples) = &answer.result.value else { return Ok(Vec::new()) };
        let renamed = |labels: &Labels| {
            let others = labels.iter().filter(|(name, _)| *name != METRIC_NAME);
            Labels::from_pairs(others.chain([(METRIC_NAME, rule.metric)]))
        };
        Ok(samples.iter().map(|one| (renamed(&one.labels), one.value)).collect())
    };
    let result: Result<Vec<(Labels, f64)>, Failed> = promql::evaluate(service, &query, ctx, rename);
    service.count_end(ctx, result.as_ref().err().map(CallError::end));
    Some(result.map(|samples| store(service, tenant, &samples)))
}

fn up(instance: &str) -> Labels {
    Labels::from_pairs([(METRIC_NAME, "up"), ("instance", instance)])
}

const SUM: Rule = Rule { metric: "up:sum", text: "sum(up)" };

#[test]
fn a_result_is_stored_and_read_by_the_next_rule() {
    let service = service(|_| {});
    let tenant = TenantId::anonymous();
    assert_eq!(store(&service, &tenant, &[(up("a"), 1.0), (up("b"), 4.0)]), 2);
    assert_eq!(run(&service, &tenant, &SUM, || {}), Some(Ok(1)));
    let next = Rule { metric: "up:twice", text: "up:sum * 2 == 10" };
    assert_eq!(run(&service, &tenant, &next, || {}), Some(Ok(1)), "5 * 2 is stored");
    let none = Rule { metric: "never", text: "up:sum > 5" };
    assert_eq!(run(&service, &tenant, &none, || {}), Some(Ok(0)));
    assert_eq!(service.queries.metrics.instant.cumulative().0.last().map(|bucket| bucket.1), Some(3));
    let usage = service.queries.top.list(None, service.env.clock.now_ms());
    assert_eq!(usage.queries.len(), 3, "each stands among the costly queries");
}

#[test]
fn a_running_rule_is_listed_and_can_be_killed() {
    let service = service(|_| {});
    let tenant = TenantId::anonymous();
    store(&service, &tenant, &[(up("a"), 1.0)]);
    let kill = || {
        let active = service.queries.active.list(Some(&tenant));
        assert_eq!((active.len(), active[0].text.as_str()), (1, "sum(up)"));
        assert!(service.queries.active.kill(active[0].id, Some(&tenant)));
    };
    let failed = run(&service, &tenant, &SUM, kill).expect("a permit").expect_err("killed");
    assert_eq!(failed, Failed { end: End::Failed, text: "query 1 was killed".to_owned() });
    assert!(service.queries.active.list(None).is_empty());
    assert_eq!(run(&service, &tenant, &SUM, || {}), Some(Ok(1)), "the next round is not concerned");
}

#[test]
fn one_rule_runs_at_a_time_and_within_the_limits_of_queries() {
    let service = service(|options| options.query.samples_max = 1);
    let tenant = TenantId::anonymous();
    store(&service, &tenant, &[(up("a"), 1.0), (up("b"), 4.0)]);
    let held = service
        .try_admit(&service.admission.continuous, &Identity::internal(&tenant), TIMEOUT_MS)
        .expect("free");
    assert_eq!(run(&service, &tenant, &SUM, || {}), None, "no permit");
    drop(held);
    let copy = Rule { metric: "copy", text: "up" };
    let failed = run(&service, &tenant, &copy, || {}).expect("a permit").expect_err("too many samples");
    assert!(failed.text.contains("samples"), "{}", failed.text);
    let wrong = Rule { metric: "x", text: "sum(" };
    let failed = run(&service, &tenant, &wrong, || {}).expect("a permit").expect_err("no expression");
    assert_eq!(failed.end, End::Invalid);
    assert_eq!(service.queries.metrics.failed.get(), 2);
}
