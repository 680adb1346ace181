//! The shapes of query that are known to be slow, each over the corpus that makes it so.
//! Invariants: all times lie within the corpus or a few seconds after it.
//! Not here: the series (`corpus`).

use super::corpus::Corpus;

/// After the last sample.
const BETWEEN_MS: i64 = 7_000;
const HOUR_MS: i64 = 3_600_000;
/// Span of range queries over the head: their first window lies within the corpus, too.
const HEAD_SPAN_MS: i64 = 20 * 60_000 - 20_000;
const HEAD_STEP_S: i64 = 15;
/// Small queries of the shape that asks many.
const RULE_COUNT: usize = 1000;
/// Patterns of a kind.
const VARIANTS: [char; 5] = ['1', '2', '4', '8', '9'];

/// Kind of a query.
#[derive(Debug, Clone)]
pub(super) enum Ask {
    /// An instant query.
    Instant { query: String, time_ms: i64 },
    /// A range query.
    Range { query: String, start_ms: i64, end_ms: i64, step_s: i64 },
    /// Values of a label.
    LabelValues { label: &'static str, start_ms: i64, end_ms: i64 },
    /// Instant queries one after another, a connection each.
    Many(Vec<Ask>),
    /// The same over one connection, as rulers ask.
    ManyKept(Vec<Ask>),
    /// Similar queries, each asked once and never before: the figures are the median query's.
    Fresh(Vec<Ask>),
}

/// Agreement of VictoriaMetrics with Prometheus about a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    /// Both mean the same: answers are compared.
    Shared,
    /// VictoriaMetrics does not extrapolate rates, or looks back further: only times are compared.
    OwnInVictoriaMetrics,
}

#[derive(Debug, Clone)]
pub(super) struct Shape {
    pub(super) name: &'static str,
    pub(super) what: &'static str,
    pub(super) ask: Ask,
    pub(super) meaning: Meaning,
}

/// Shapes over many series.
pub(super) fn wide(corpus: &Corpus) -> Vec<Shape> {
    use Meaning::{OwnInVictoriaMetrics as Own, Shared};
    let end_ms = corpus.end_ms() + BETWEEN_MS;
    let instant = |query: &str| Ask::Instant { query: query.to_owned(), time_ms: end_ms };
    let range = |query: &str, span_ms: i64, step_s: i64| Ask::Range {
        query: query.to_owned(),
        start_ms: end_ms - span_ms,
        end_ms,
        step_s,
    };
    let rules = rules(corpus, end_ms);
    vec![
        shape(
            "count_by_name",
            "count by name over everything",
            instant("count by (__name__) ({__name__=~\".+\"})"),
            Shared,
        ),
        shape(
            "regex_values",
            "regex over all values of a label",
            instant("count(unique_requests{path=~\".*7.*3\"})"),
            Shared,
        ),
        shape(
            "info_join",
            "join with an info metric, 1 h at 1 m",
            range(
                "sum by (version) (rate(http_requests_total[5m]) * on (instance) group_left (version) node_info)",
                HOUR_MS,
                60,
            ),
            Own,
        ),
        shape(
            "churned_sum",
            "sum over a churned metric, 3 h at 15 s",
            range("sum(pod_memory_bytes)", 3 * HOUR_MS, 15),
            Own,
        ),
        shape(
            "label_values",
            "values of a label",
            Ask::LabelValues { label: "path", start_ms: corpus.start_ms, end_ms },
            Shared,
        ),
        shape(
            "instant_rules",
            "1000 small instant queries, a connection each",
            Ask::Many(rules.clone()),
            Own,
        ),
        shape(
            "instant_rules_kept",
            "1000 small instant queries over one connection",
            Ask::ManyKept(rules),
            Own,
        ),
        shape(
            "topk_range",
            "topk of rates, 1 h at 1 m",
            range("topk(5, rate(http_requests_total[5m]))", HOUR_MS, 60),
            Own,
        ),
        shape(
            "quantile_range",
            "quantile of rates by all series, 1 h at 1 m",
            range("quantile by (job) (0.9, rate(http_requests_total[5m]))", HOUR_MS, 60),
            Own,
        ),
    ]
}

fn shape(name: &'static str, what: &'static str, ask: Ask, meaning: Meaning) -> Shape {
    Shape { name, what, ask, meaning }
}

/// Join of the twelve queries over fresh data.
const HEAD_JOIN: &str = "sum by (version) (rate(http_requests_total{code=\"200\"}[5m]) \
    * on (instance) group_left (version) node_info)";

/// Twelve queries of dashboards and rules over fresh data.
pub(super) fn head(corpus: &Corpus) -> Vec<Shape> {
    use Meaning::{OwnInVictoriaMetrics as Own, Shared};
    let end_ms = corpus.end_ms() + BETWEEN_MS;
    let instant = |query: &str| Ask::Instant { query: query.to_owned(), time_ms: end_ms };
    let range = |query: &str| Ask::Range {
        query: query.to_owned(),
        start_ms: end_ms - HEAD_SPAN_MS,
        end_ms,
        step_s: HEAD_STEP_S,
    };
    vec![
        shape("sum_by", "sum by, range", range("sum by (job) (http_requests_total)"), Own),
        shape(
            "rate_by",
            "sum by of rates, range",
            range("sum by (job, code) (rate(http_requests_total[5m]))"),
            Own,
        ),
        shape(
            "rate_now",
            "sum by of rates, instant",
            instant("sum by (job) (rate(http_requests_total[5m]))"),
            Own,
        ),
        shape(
            "quantile",
            "histogram_quantile over classic buckets, range",
            range(
                "histogram_quantile(0.99, sum by (le, job) (rate(http_request_duration_seconds_bucket[5m])))",
            ),
            Own,
        ),
        shape("topk", "topk of rates, instant", instant("topk(10, rate(http_requests_total[5m]))"), Own),
        shape(
            "one_instance",
            "rates of one instance, range",
            range("rate(http_requests_total{instance=\"10.0.1.7:9100\"}[5m])"),
            Own,
        ),
        shape(
            "regex",
            "sum by of rates of a regex selection, range",
            range(
                "sum by (handler) (rate(http_requests_total{code=~\"5..\",handler!~\"/static|/health\"}[5m]))",
            ),
            Own,
        ),
        shape("count_by", "count by, instant", instant("count by (job) (http_requests_total)"), Shared),
        shape(
            "max_over_time",
            "max_over_time, range",
            range("max by (job) (max_over_time(unique_requests[5m]))"),
            Own,
        ),
        shape("avg_by", "avg by, range", range("avg by (job) (unique_requests)"), Own),
        shape("info_join", "join with an info metric, range", range(HEAD_JOIN), Own),
        shape(
            "unless",
            "series without another of the same instance, instant",
            instant(
                "count(http_requests_total{code=\"500\"} unless on (instance) (http_requests_total{code=\"200\",handler=\"/login\"} > 1e6)) or vector(0)",
            ),
            Shared,
        ),
    ]
}

/// Rules of one instance each.
fn rules(corpus: &Corpus, time_ms: i64) -> Vec<Ask> {
    let rule = |idx: usize| {
        let instance = idx % corpus.instance_count().max(1);
        let query = format!(
            "sum by (code) (rate(http_requests_total{{instance=\"10.0.{}.{}:9100\"}}[5m]))",
            instance / 250,
            instance % 250
        );
        Ask::Instant { query, time_ms }
    };
    (0..RULE_COUNT).map(rule).collect()
}

/// Kinds of patterns over all values of a label: name, the same asked again, what it is, operator and pattern
/// with `%` in place of a digit.
const PATTERNS: [(&str, &str, &str, &str, &str); 6] = [
    ("regex_infix", "regex_infix_again", "two infixes", "=~", ".*%7.*3"),
    ("regex_prefix", "regex_prefix_again", "a prefix and a class", "=~", "/v1/objects/[ab]%.*"),
    ("regex_suffix", "regex_suffix_again", "a suffix", "=~", ".*%77"),
    ("regex_either", "regex_either_again", "an alternation", "=~", ".*/(a%|b%|c0|de).*"),
    ("regex_case", "regex_case_again", "letters of either case", "=~", "(?i).*OBJECTS/C%.*"),
    ("regex_not", "regex_not_again", "what does not fit", "!~", "/v1/objects/.*[a-f%].*"),
];

/// Shapes over many values of a label: each pattern for the first time, then again.
pub(super) fn values(corpus: &Corpus) -> Vec<Shape> {
    let time_ms = corpus.end_ms() + BETWEEN_MS;
    let shapes = PATTERNS.into_iter().flat_map(|(name, again, what, op, pattern)| {
        let ask = |digit: char| {
            let pattern = pattern.replace('%', &digit.to_string());
            let query = format!("count by (job) (object_reads{{path{op}\"{pattern}\"}})");
            Ask::Instant { query, time_ms }
        };
        let asks: Vec<Ask> = VARIANTS.into_iter().map(ask).collect();
        let last = asks.last().cloned().expect("there are variants");
        let shape = |name, ask| Shape { name, what, ask, meaning: Meaning::Shared };
        [shape(name, Ask::Fresh(asks)), shape(again, last)]
    });
    shapes.collect()
}

/// Shapes over many days.
pub(super) fn long(corpus: &Corpus) -> Vec<Shape> {
    let end_ms = corpus.end_ms() + BETWEEN_MS;
    // The first window lies within the corpus, too.
    let start_ms = corpus.start_ms + 3_600_000 + BETWEEN_MS;
    let range = |query: &str, start_ms: i64, step_s: i64| Ask::Range {
        query: query.to_owned(),
        start_ms,
        end_ms,
        step_s,
    };
    let shape = |name, what, ask| Shape { name, what, ask, meaning: Meaning::OwnInVictoriaMetrics };
    vec![
        shape(
            "quantile_of_rates",
            "histogram_quantile of rates, all days at 1 h",
            range(
                "histogram_quantile(0.99, sum by (le) (rate(http_request_duration_seconds_bucket[5m])))",
                start_ms,
                3600,
            ),
        ),
        shape(
            "rate_days",
            "rate, all days at 10 m",
            range("sum by (job) (rate(http_requests_total[5m]))", start_ms, 600),
        ),
        shape(
            "rate_subquery",
            "max of a rate subquery over a day at 1 m",
            Ask::Instant {
                query: "max by (job) (max_over_time(rate(http_requests_total[5m])[1d:1m]))".to_owned(),
                time_ms: end_ms,
            },
        ),
    ]
}
