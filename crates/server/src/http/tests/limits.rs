//! Limits of tenants: each one below, at and above, before and after a reload, with a second tenant that has
//! the default.
//! Invariant: each setting of tenants has a row in [`WRITE_LIMITS`], or is in [`TESTED_ELSEWHERE`].
//! Not here: limits of what a query selects or fetches (`query_limits`).

use std::collections::BTreeSet;
use std::time::Duration;

use chronolith_base::ManualClock;
use chronolith_model::{OverflowPolicy, QueryLimits, TenantLimits};
use chronolith_service::access::Identity;
use chronolith_tsdb::LimitsTable;

use super::*;

/// Made from the declared settings; a test of theirs compares them.
const SETTINGS_PAGE: &str = include_str!("../../../../../docs/reference/settings.md");

/// Settings of tenants without a row, each with the tests that cover it.
const TESTED_ELSEWHERE: &[(&str, &str)] = &[
    ("series-overflow", "head overflow: counters_are_summed_by_increase_and_gauges_by_value"),
    (
        "overflow-histogram-memory",
        "head overflow_histograms: histograms_of_further_series_are_rejected_at_the_limit_of_their_memory",
    ),
    ("weight", "service fair_queue: shares follow the weights"),
    ("duplicates", "tsdb policy: the_last_written_block_wins_where_the_tenant_wants_it"),
    ("block-encoding", "tsdb thanos"),
    ("bucket.retention", "tsdb bucket_maintenance"),
    ("influx.max-series-per-database", "influx limits: series_beyond_the_limit_of_the_database_are_dropped"),
    ("influx.max-values-per-tag", "influx limits: values_of_a_tag_beyond_the_limit_are_dropped"),
    ("query.tenant-concurrency", "a_tenant_runs_no_more_queries_than_its_limit"),
    ("query.tenant-memory", "queries_of_a_tenant_use_no_more_memory_than_its_limit"),
    ("query.max-lookback", "samples_older_than_the_lookback_of_a_tenant_are_not_seen"),
    ("query.max-selected-series", "query_limits: a_query_that_selects_more_than_a_limit_is_refused"),
    ("query.max-selected-samples", "query_limits: a_query_that_selects_more_than_a_limit_is_refused"),
    ("query.max-range", "query_limits: a_query_that_selects_more_than_a_limit_is_refused"),
    ("rules.groups-max", "service reloads: groups_and_rules_beyond_a_limit_are_refused_with_its_setting"),
    ("rules.per-group-max", "service reloads: groups_and_rules_beyond_a_limit_are_refused_with_its_setting"),
    (
        "rules.series-per-rule-max",
        "service rounds: a_rule_with_more_series_than_its_limit_fails_with_the_setting",
    ),
    ("query.max-fetched-bytes", "query_limits: a_query_above_a_limit_is_refused_and_counted"),
    ("query.max-fetched-series", "query_limits: a_query_above_a_limit_is_refused_and_counted"),
    ("query.max-fetched-chunks", "query_limits: a_query_above_a_limit_is_refused_and_counted"),
    ("graphite.max-series", "graphite meta: a_plan_is_refused_as_the_request"),
    ("graphite.max-points", "graphite meta: a_plan_is_refused_as_the_request"),
    ("graphite.max-points-soft", "graphite limits: coarser_archives_are_read_above_the_soft_limit_of_points"),
    ("graphite.max-targets", "graphite meta: a_plan_is_refused_as_the_request"),
    ("graphite.max-nodes", "graphite limits: a_search_of_more_nodes_than_the_limit_is_refused"),
    ("graphite.max-tag-results", "graphite limits: tags_beyond_the_limit_of_results_are_refused"),
    ("graphite.max-event-size", "tsdb graphite: what_exceeds_a_limit_is_refused_and_changes_nothing"),
    ("graphite.max-events", "tsdb graphite: lowered_limits_of_events_remove_the_earliest"),
    ("graphite.max-events-size", "tsdb graphite: the_earliest_events_leave_at_the_limit"),
    ("graphite.max-meta-tags", "tsdb graphite: what_exceeds_a_limit_is_refused_and_changes_nothing"),
    ("graphite.max-meta-tags-size", "tsdb graphite: what_exceeds_a_limit_is_refused_and_changes_nothing"),
];

/// Request of a row, in the order in which a server gets them; each has series of its own.
#[derive(Debug, Clone, Copy)]
enum Step {
    Below,
    At,
    /// Repeated after each reload.
    Above(u64),
}

impl Step {
    /// A number that no other step has.
    fn number(self) -> u64 {
        match self {
            Step::Below => 0,
            Step::At => 1,
            Step::Above(round) => 2 + round,
        }
    }

    /// The value of the kind of step.
    fn choose<T>(self, below: T, at: T, above: T) -> T {
        match self {
            Step::Below => below,
            Step::At => at,
            Step::Above(_) => above,
        }
    }
}

/// A limit of writes.
struct WriteLimit {
    setting: &'static str,
    /// Sets the limit; the default refuses no step.
    set: fn(&mut TenantLimits),
    request: fn(Step) -> RequestEncoder,
    /// Time between two steps.
    pause: Duration,
    status: StatusCode,
    /// Use and limit as the answer to the first step above the limit writes them.
    figures: fn() -> [String; 2],
}

const NO_PAUSE: Duration = Duration::ZERO;

const WRITE_LIMITS: &[WriteLimit] = &[
    WriteLimit {
        setting: "series-limit",
        set: |limits| limits.series_max = 2,
        request: one_series,
        pause: NO_PAUSE,
        status: StatusCode::BAD_REQUEST,
        figures: || figures("2", "2"),
    },
    WriteLimit {
        setting: "overflow-series-limit",
        set: |limits| {
            limits.series_max = 0;
            limits.ingestion.overflow = OverflowPolicy::Fold;
            limits.ingestion.overflow_series_max = 2;
        },
        request: one_series,
        pause: NO_PAUSE,
        status: StatusCode::BAD_REQUEST,
        figures: || figures("2", "2"),
    },
    WriteLimit {
        setting: "series-per-metric-limit",
        set: |limits| limits.ingestion.metric_series_max = 2,
        request: one_series,
        pause: NO_PAUSE,
        status: StatusCode::BAD_REQUEST,
        figures: || figures("2", "2"),
    },
    WriteLimit {
        setting: "values-per-label-limit",
        set: |limits| limits.ingestion.label_values_max = 2,
        request: one_series,
        pause: NO_PAUSE,
        status: StatusCode::BAD_REQUEST,
        figures: || figures("2", "2"),
    },
    WriteLimit {
        setting: "label-count-limit",
        set: |limits| limits.label_count_max = 4,
        request: |step| {
            let further = ["a", "b", "c"].map(|name| (name, "x"));
            labelled(step, &further[..step.choose(1, 2, 3)])
        },
        pause: NO_PAUSE,
        status: StatusCode::BAD_REQUEST,
        figures: || figures("5", "4"),
    },
    WriteLimit {
        setting: "label-name-length-limit",
        set: |limits| limits.label_name_bytes_max = 10,
        request: |step| labelled(step, &[(&"n".repeat(step.choose(9, 10, 11)), "x")]),
        pause: NO_PAUSE,
        status: StatusCode::BAD_REQUEST,
        figures: || figures("11", "10"),
    },
    WriteLimit {
        setting: "label-value-length-limit",
        set: |limits| limits.label_value_bytes_max = 10,
        request: |step| labelled(step, &[("l", &"v".repeat(step.choose(9, 10, 11)))]),
        pause: NO_PAUSE,
        status: StatusCode::BAD_REQUEST,
        figures: || figures("11", "10"),
    },
    WriteLimit {
        setting: "future-limit",
        set: |limits| limits.future_ms_max = 60_000,
        request: |step| timed(step, step.choose(59_999, 60_000, 60_001)),
        pause: NO_PAUSE,
        status: StatusCode::BAD_REQUEST,
        figures: || figures("1m1ms", "1m"),
    },
    WriteLimit {
        setting: "retention",
        set: |limits| limits.retention_ms = 3_600_000,
        request: |step| timed(step, step.choose(-3_599_999, -3_600_000, -3_600_001)),
        pause: NO_PAUSE,
        status: StatusCode::BAD_REQUEST,
        figures: || figures("1h1ms", "1h"),
    },
    WriteLimit {
        setting: "out-of-order-window",
        set: |limits| limits.out_of_order_ms = 60_000,
        request: |step| {
            let mut request = timed(step, step.choose(-59_999, -60_000, -60_001));
            if matches!(step, Step::Below) {
                request.push_series([("__name__", "newest")], &[(NOW_MS, 1.0)]);
            }
            request
        },
        pause: NO_PAUSE,
        status: StatusCode::BAD_REQUEST,
        figures: || figures("1m1ms", "1m"),
    },
    WriteLimit {
        setting: "ingestion-rate",
        set: |limits| (limits.ingestion.rate, limits.ingestion.burst) = (7, 10),
        // Below and at the limit together have the samples of the burst.
        request: |step| samples(step, step.choose(4, 6, 1)),
        pause: NO_PAUSE,
        status: StatusCode::TOO_MANY_REQUESTS,
        figures: || figures("10", "7"),
    },
    WriteLimit {
        setting: "ingestion-burst",
        set: |limits| (limits.ingestion.rate, limits.ingestion.burst) = (1, 10),
        request: |step| samples(step, step.choose(9, 10, 11)),
        pause: Duration::from_secs(10),
        status: StatusCode::BAD_REQUEST,
        figures: || figures("11", "10"),
    },
    WriteLimit {
        setting: "ingestion-bytes-rate",
        set: |limits| {
            (limits.ingestion.bytes_rate, limits.ingestion.bytes_burst) = (7, 2 * bytes_of_a_request());
        },
        request: one_series,
        pause: NO_PAUSE,
        status: StatusCode::TOO_MANY_REQUESTS,
        // The requests before have taken the burst.
        figures: || figures(2 * bytes_of_a_request(), 7),
    },
    WriteLimit {
        setting: "ingestion-bytes-burst",
        set: |limits| {
            let burst = samples(Step::At, 10).body().len() as u64;
            (limits.ingestion.bytes_rate, limits.ingestion.bytes_burst) = (burst, burst);
        },
        request: |step| samples(step, step.choose(9, 10, 11)),
        pause: Duration::from_secs(10),
        status: StatusCode::BAD_REQUEST,
        figures: || figures(samples(Step::Above(0), 11).body().len(), samples(Step::At, 10).body().len()),
    },
];

fn figures(used: impl ToString, limit: impl ToString) -> [String; 2] {
    [used.to_string(), limit.to_string()]
}

/// One series of the step with two labels and further ones.
fn labelled(step: Step, further: &[(&str, &str)]) -> RequestEncoder {
    let number = step.number().to_string();
    let mut request = RequestEncoder::new();
    let labels = [("__name__", "m"), ("i", number.as_str())];
    request.push_series(labels.into_iter().chain(further.iter().copied()), &[(NOW_MS, 1.0)]);
    request
}

fn one_series(step: Step) -> RequestEncoder {
    labelled(step, &[])
}

/// Bytes of [`one_series`], which are the same for each step.
fn bytes_of_a_request() -> u64 {
    one_series(Step::Below).body().len() as u64
}

/// One sample at [`NOW_MS`] plus `offset_ms`.
fn timed(step: Step, offset_ms: i64) -> RequestEncoder {
    let number = step.number().to_string();
    let mut request = RequestEncoder::new();
    request.push_series([("__name__", "m"), ("i", number.as_str())], &[(NOW_MS + offset_ms, 1.0)]);
    request
}

/// `count` samples of one series, a second apart.
fn samples(step: Step, count: i64) -> RequestEncoder {
    let number = step.number().to_string();
    let samples: Vec<(i64, f64)> = (0..count).map(|i| (NOW_MS + i * 1000, 1.0)).collect();
    let mut request = RequestEncoder::new();
    request.push_series([("__name__", "m"), ("i", number.as_str())], &samples);
    request
}

/// A server with tenants, and its clock.
fn server() -> (Fixture, Arc<ManualClock>) {
    let (env, clock, _disk) = Env::fake(NOW_MS, 1);
    let mut options = ServerOptions::new("/data".into());
    options.service.multitenancy = true;
    let fixture = Fixture::new(Arc::new(Web::new(env, options, None)));
    (fixture.open(), clock)
}

/// Gives tenant `a` limits of its own, as a reload does; `b` keeps the defaults.
fn reload(server: &Fixture, set: impl FnOnce(&mut TenantLimits)) {
    let mut limits = TenantLimits::default();
    set(&mut limits);
    let mut table = LimitsTable::default();
    table.by_tenant.insert(tenant("a"), limits);
    server.web.service.set_limits(table);
}

fn tenant(id: &str) -> TenantId {
    TenantId::new(id).expect("valid")
}

async fn write_as(server: &Fixture, tenant: &str, request: &RequestEncoder) -> Answer {
    let request = Request::post("/api/v1/write")
        .header(header::CONTENT_ENCODING, "snappy")
        .header("X-Scope-OrgID", tenant)
        .body(Body::from(request.compressed()));
    server.send(request.expect("a request")).await
}

impl WriteLimit {
    async fn check(&self) {
        let (server, clock) = server();
        reload(&server, self.set);
        for step in [Step::Below, Step::At] {
            self.check_stored(&server, "a", step).await;
            clock.advance(self.pause);
        }
        let answer = self.check_refused(&server, 0).await;
        self.check_text(&answer.text);
        for step in [Step::Below, Step::At, Step::Above(0)] {
            self.check_stored(&server, "b", step).await;
        }
        reload(&server, |_| {});
        self.check_stored(&server, "a", Step::Above(1)).await;
        reload(&server, self.set);
        self.check_refused(&server, 2).await;
    }

    /// Checks that a refusal has the setting, its limit and its use as words before the example.
    #[track_caller]
    fn check_text(&self, text: &str) {
        let (reason, _example) = text.rsplit_once(": series ").unwrap_or((text, ""));
        let is_of_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        let words: Vec<&str> = reason.split(|c: char| !is_of_word(c)).collect();
        let [used, limit] = (self.figures)();
        for part in [self.setting, used.as_str(), limit.as_str()] {
            let count = words.iter().filter(|word| **word == part).count();
            let wanted = if used == limit && part == used { 2 } else { 1 };
            assert!(count >= wanted, "{}: no {part:?} in {text}", self.setting);
        }
    }

    async fn check_stored(&self, server: &Fixture, tenant: &str, step: Step) {
        let answer = write_as(server, tenant, &(self.request)(step)).await;
        let setting = self.setting;
        assert_eq!(answer.status, StatusCode::NO_CONTENT, "{setting} {tenant} {step:?}: {}", answer.text);
    }

    async fn check_refused(&self, server: &Fixture, round: u64) -> Answer {
        let answer = write_as(server, "a", &(self.request)(Step::Above(round))).await;
        assert_eq!(answer.status, self.status, "{}, round {round}: {}", self.setting, answer.text);
        let has_retry_after = answer.headers.contains_key(header::RETRY_AFTER);
        assert_eq!(has_retry_after, self.status == StatusCode::TOO_MANY_REQUESTS, "{}", self.setting);
        answer
    }
}

#[tokio::test]
async fn writes_above_a_limit_of_their_tenant_are_refused() {
    for limit in WRITE_LIMITS {
        limit.check().await;
    }
}

/// A setting of tenants without a test would be one that no request is checked against.
#[test]
fn every_setting_of_tenants_has_a_test() {
    let (_, rows) = SETTINGS_PAGE.split_once("## Limits of tenants").expect("a section of the page");
    let declared: BTreeSet<&str> =
        rows.lines().filter_map(|row| row.strip_prefix("| `")?.split('`').next()).collect();
    let names = WRITE_LIMITS.iter().map(|limit| limit.setting);
    let tested: BTreeSet<&str> = names.chain(TESTED_ELSEWHERE.iter().map(|(setting, _)| *setting)).collect();
    assert_eq!(tested, declared);
}

async fn post_as(server: &Fixture, tenant: &str, path: &str, form: &str) -> Answer {
    let request = Request::post(path)
        .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
        .header("X-Scope-OrgID", tenant)
        .body(Body::from(form.to_owned()));
    server.send(request.expect("a request")).await
}

const SUM: &str = "/api/v1/query?query=sum(sum_over_time(m[5m]))";

/// A server of which both tenants have ten samples, a second apart until now.
async fn server_with_samples() -> Fixture {
    let (server, _clock) = server();
    let values: Vec<(i64, f64)> = (0..10).map(|i| (NOW_MS - 9000 + i * 1000, 1.0)).collect();
    let mut request = RequestEncoder::new();
    request.push_series([("__name__", "m")], &values);
    for tenant in ["a", "b"] {
        assert_eq!(write_as(&server, tenant, &request).await.status, StatusCode::NO_CONTENT);
    }
    server
}

/// Checks the sum that a tenant sees.
async fn check_sum(server: &Fixture, tenant: &str, want: &str) {
    let answer = server.get_as(tenant, SUM).await;
    assert_eq!(answer.json()["data"]["result"][0]["value"][1], want, "{tenant}: {}", answer.text);
}

/// Changes the limits of queries of `a`.
fn reload_queries(server: &Fixture, change: impl FnOnce(&mut QueryLimits)) {
    reload(server, |limits| change(&mut limits.queries));
}

#[tokio::test]
async fn samples_older_than_the_lookback_of_a_tenant_are_not_seen() {
    let server = server_with_samples().await;
    for (lookback_ms, want) in [(0, "10"), (5_001, "6"), (5_000, "6"), (4_999, "5"), (1_000_000, "10")] {
        reload_queries(&server, |queries| queries.lookback_ms = lookback_ms);
        check_sum(&server, "a", want).await;
        check_sum(&server, "b", "10").await;
    }
}

#[tokio::test]
async fn a_tenant_runs_no_more_queries_than_its_limit() {
    let server = server_with_samples().await;
    let service = &server.web.service;
    let identity = Identity::internal(&tenant("a"));
    reload_queries(&server, |queries| queries.concurrency_max = 3);
    let admit = || service.try_admit(&service.admission.query, &identity, 1000);
    let _held = [admit().expect("below"), admit().expect("below")];
    check_sum(&server, "a", "10").await;
    reload_queries(&server, |queries| queries.concurrency_max = 2);
    let answer = server.get_as("a", &format!("{SUM}&timeout=10ms")).await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{}", answer.text);
    check_sum(&server, "b", "10").await;
    reload_queries(&server, |queries| queries.concurrency_max = 3);
    check_sum(&server, "a", "10").await;
}

#[tokio::test]
async fn queries_of_a_tenant_use_no_more_memory_than_its_limit() {
    let server = server_with_samples().await;
    // The parameters of the request fit 100 bytes, the query does not; 10 bytes fit neither.
    for (memory_bytes_max, is_refused) in [(1 << 20, false), (100, true), (10, true), (0, false)] {
        reload_queries(&server, |queries| queries.memory_bytes_max = memory_bytes_max);
        if is_refused {
            let text = format!("queries of the tenant memory limit of {memory_bytes_max} bytes");
            for answer in [
                server.get_as("a", SUM).await,
                post_as(&server, "a", "/api/v1/query", "query=sum(sum_over_time(m[5m]))").await,
                post_as(&server, "a", "/query", &format!("q={}", "SHOW+DATABASES;".repeat(20))).await,
            ] {
                assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY, "{}", answer.text);
                assert!(answer.text.contains(&text), "{}", answer.text);
            }
        } else {
            check_sum(&server, "a", "10").await;
        }
        check_sum(&server, "b", "10").await;
    }
}
