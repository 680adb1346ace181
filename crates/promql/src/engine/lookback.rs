//! Lookback of a whole expression: how far before and after a step its samples may lie. The result cache of
//! the server derives from it which cached steps a written sample invalidates.
//!
//! Not here: the cache (`server::http::query::range_cache`), the rules per operator
//! (`exec::plan::properties`).

use chronolith_exec::grid::Grid;
pub use chronolith_exec::plan::Lookback;

use super::plan::{empty_plan, lower};
use super::query::{EngineOptions, Query};
use crate::ast::ValueType;

/// Properties of a query by which its results are cached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CachePlan {
    /// Samples that decide the value of a step.
    pub lookback: Lookback,
    /// Equal for queries with the same plan over any range: texts may differ in spaces, comments, order of
    /// matchers and the like.
    pub key: String,
}

/// Returns how results of `query` are cached; `None` if its steps are not independent of each other and of
/// its range: `@` and functions of the query's own range or step (`start()`, `end()`, `range()`, `step()`,
/// computed durations) are not. Cost: planning the query.
#[must_use]
pub fn cache_plan(query: &Query<'_>, options: &EngineOptions) -> Option<CachePlan> {
    // The plan of a string equals the plan of NaN, but only a scalar has NaN as its result.
    if !matches!(query.expr.value_type(), ValueType::Vector | ValueType::Scalar) {
        return None;
    }
    let grid = Grid::between(query.start_ms, query.end_ms, query.step_ms)?;
    let mut plan = empty_plan(options);
    lower(&mut plan, query, options, grid).ok()?;
    Some(CachePlan { lookback: plan.lookback()?, key: plan.cache_key() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::NameRemoval;
    use crate::parser::{ParserOptions, parse_expr};

    fn lookback_of(text: &str) -> Option<Lookback> {
        plan_of(text, 7_200_000, 10_800_000).map(|plan| plan.lookback)
    }

    fn plan_of(text: &str, start_ms: i64, end_ms: i64) -> Option<CachePlan> {
        let all = ParserOptions {
            experimental_functions: true,
            binop_fill_modifiers: true,
            unquoted_utf8_names: false,
        };
        let expr = parse_expr(text, all).unwrap_or_else(|error| panic!("{text}: {error}"));
        let (step_ms, lookback_ms) = (60_000, Some(300_000));
        let query = Query { text, expr: &expr, start_ms, end_ms, step_ms, lookback_ms };
        cache_plan(&query, &EngineOptions::default())
    }

    /// Checks the lookback in seconds for a default lookback of 5 m.
    #[track_caller]
    fn check(text: &str, want: Option<(i64, i64)>) {
        let got = lookback_of(text);
        assert_eq!(got.map(|lookback| (lookback.past_ms / 1000, lookback.future_ms / 1000)), want, "{text}");
    }

    #[test]
    fn ranges_and_offsets_add_up() {
        check("1", Some((0, 0)));
        check("time()", Some((0, 0)));
        check("m", Some((300, 0)));
        check("timestamp(m)", Some((300, 0)));
        check("rate(m[1h]) + m", Some((3600, 0)));
        check("m offset 1h", Some((3900, 0)));
        check("m offset -1h", Some((0, 3600)));
        check("m offset -1m", Some((240, 60)));
        check("max_over_time(rate(m[5m])[1h:1m])", Some((3900, 0)));
        check("max_over_time(rate(m[5m] offset 1m)[1h:] offset -2h) / m", Some((300, 7140)));
        check("sum by (a) (topk(3, -(m)))", Some((300, 0)));
    }

    #[test]
    fn what_depends_on_the_whole_query_has_no_reach() {
        for text in ["m @ 5", "m @ start()", "rate(m[5m] @ end())", "max_over_time(m[5m:1m] @ 5)"] {
            check(text, None);
        }
        for text in
            ["m[5m + step()]", "m offset (1m + 1m)", "end() - m", "m * step()", "rate(m[5m] smoothed)"]
        {
            check(text, None);
        }
    }

    /// Cached results of a longer range were answered under the name that their earliest step had.
    #[test]
    fn names_of_a_union_that_are_removed_late_depend_on_the_range() {
        for (name_removal, want) in [(NameRemoval::Immediate, true), (NameRemoval::Delayed, false)] {
            let options = EngineOptions { name_removal, ..EngineOptions::default() };
            let text = "sum by (a) (minute(m) or on (a) n)";
            let expr = parse_expr(text, ParserOptions::default()).expect("parses");
            let (start_ms, end_ms, step_ms) = (7_200_000, 10_800_000, 60_000);
            let query = Query { text, expr: &expr, start_ms, end_ms, step_ms, lookback_ms: None };
            assert_eq!(cache_plan(&query, &options).is_some(), want, "{name_removal:?}");
        }
    }

    /// Checks whether two different series may get the same labels.
    #[track_caller]
    fn check_collision(text: &str, want: bool) {
        assert_eq!(lookback_of(text).map(|lookback| !lookback.joins), Some(want), "{text}");
    }

    #[test]
    fn named_metrics_do_not_collide() {
        for text in [
            "1 + time()",
            "m",
            "{__name__=~\"a|b\"}",
            "rate(m[5m])",
            "sum by (a) (rate(m[5m])) / on (a) sum by (a) (n)",
            "-m > 1",
            "max_over_time(rate(m[1m])[1h:1m])",
            "topk(3, -m)",
            "sum({__name__=~\"a|b\"}) * 2",
            "label_replace(sum by (a) (m), \"b\", \"$1\", \"a\", \"(.*)\")",
            "histogram_quantile(0.9, sum by (le) (rate(m_bucket[5m])))",
            "a or b",
            "{__name__=~\"a|b\"} > 5",
            "last_over_time({__name__=~\"a|b\"}[5m])",
            "absent({job=\"x\"}) * scalar({job=\"x\"})",
        ] {
            check_collision(text, false);
        }
    }

    #[test]
    fn series_that_differ_in_what_is_removed_collide() {
        for text in [
            "rate({__name__=~\"a|b\"}[1m])",
            "sum(rate({__name__=~\"a|b\"}[1m]))",
            "count_over_time({job=\"x\"}[1m]) > 1",
            "-{job=\"x\"}",
            "max_over_time((a or b)[5m:1m])",
            "label_replace(m, \"b\", \"$1\", \"a\", \"(.*)\")",
            "label_join(sum by (a) (m), \"a\", \"-\", \"b\")",
            "abs(a or b)",
        ] {
            check_collision(text, true);
        }
    }

    /// Queries in one line have the same key, queries in different lines do not.
    #[test]
    fn keys_are_those_of_plans() {
        let same: [&[&str]; 12] = [
            &["m", " m # comment", "(m)", "+m"],
            &["n"],
            &["m{a=\"1\",b=\"2\"}", "m{b=\"2\", a=\"1\"}", "{__name__=\"m\", b=\"2\", a=\"1\"}"],
            &["m offset 5m", "m offset 300s"],
            &["m offset -5m"],
            &["rate(m[5m])", "rate(m[300s])"],
            &["increase(m[5m])"],
            &["sum by (a, b) (m)", "sum(m) by (b, a)"],
            &["sum without (a, b) (m)"],
            &["max_over_time(m[1h:5m])", "max_over_time((m)[60m:5m])"],
            &["max_over_time(m[1h:1m])"],
            &["label_replace(m, \"a\", \"1\", \"b\", \"c\")"],
        ];
        let mut keys = std::collections::HashMap::new();
        for (at, texts) in same.iter().enumerate() {
            for text in *texts {
                for (start_ms, end_ms) in [(7_200_000, 10_800_000), (7_260_000, 7_260_000), (0, 3_600_000)] {
                    let key = plan_of(text, start_ms, end_ms).expect("cached").key;
                    assert_eq!(*keys.entry(key).or_insert(at), at, "{text}");
                }
            }
        }
        assert_eq!(keys.len(), same.len(), "one key per line, whatever the range");
    }

    /// A string would be answered with the cached result of NaN.
    #[test]
    fn only_results_of_range_queries_are_cached() {
        assert!(plan_of("NaN", 0, 60_000).is_some());
        assert_eq!(plan_of("\"text\"", 0, 60_000), None);
        assert_eq!(plan_of("m[5m]", 0, 60_000), None);
    }

    #[test]
    fn deep_expressions_do_not_overflow_the_stack() {
        check_collision(&format!("m{}", " + m".repeat(5000)), false);
    }
}
