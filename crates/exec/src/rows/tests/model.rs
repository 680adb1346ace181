//! Windowed aggregations of random points against a naive model, whatever the morsels and threads.

use std::collections::BTreeMap;
use std::sync::Arc;

use chronolith_base::SpareThreads;
use chronolith_model::query::TimeSlice;
use chronolith_model::{QueryError, ReadContext, TimeRange};
use proptest::prelude::*;

use super::memory::{MemoryStore, environment};
use super::plans::*;
use crate::rows::execution::RowLimits;
use crate::rows::plan::{Aggregate, Fill, Literal, Order, RowPlan, Windows};

/// Points by group, series, time.
type Points = BTreeMap<(u8, u8, i64), i64>;

fn store_of(points: &Points) -> MemoryStore {
    let mut store = MemoryStore::default();
    for ((group, series, time), value) in points {
        let tags = [("g", group.to_string()), ("s", format!("{series:02}"))];
        let tags: Vec<(&str, &str)> = tags.iter().map(|(name, value)| (*name, value.as_str())).collect();
        store.add("m", &tags, "v", *time, &Literal::Integer(*value));
        store.add("m", &tags, "f", *time, &Literal::Float(*value as f64 / 4.0));
    }
    store
}

const FUNCTIONS: [&str; 10] =
    ["count", "sum", "mean", "min", "max", "first", "last", "spread", "median", "stddev"];

fn aggregate_of(name: &str) -> Aggregate {
    match name {
        "count" => Aggregate::Count,
        "sum" => Aggregate::Sum,
        "mean" => Aggregate::Mean,
        "min" => Aggregate::Min,
        "max" => Aggregate::Max,
        "first" => Aggregate::First,
        "last" => Aggregate::Last,
        "spread" => Aggregate::Spread,
        "median" => Aggregate::Median,
        _ => Aggregate::Stddev,
    }
}

/// Result of a function over all points of a window, in quarters.
fn naive(name: &str, points: &[(i64, i64)]) -> Option<f64> {
    let mut values: Vec<i64> = points.iter().map(|(_, value)| *value).collect();
    values.sort_unstable();
    let count = values.len() as f64;
    let (least, greatest) = (values[0] as f64, values[values.len() - 1] as f64);
    let sum = values.iter().sum::<i64>() as f64;
    let mean = sum / count;
    let by_time = |time: i64| {
        points.iter().filter(|point| point.0 == time).map(|point| point.1).max().map(|value| value as f64)
    };
    Some(match name {
        "count" => count,
        "sum" => sum,
        "mean" => mean,
        "min" => least,
        "max" => greatest,
        "first" => by_time(points.iter().map(|point| point.0).min()?)?,
        "last" => by_time(points.iter().map(|point| point.0).max()?)?,
        "spread" => greatest - least,
        "median" => {
            let middle = values.len() / 2;
            let low = values[(values.len() - 1) / 2] as f64;
            (low + values[middle] as f64) / 2.0
        }
        _ if values.len() < 2 => return None,
        _ => {
            let squares = values.iter().map(|value| (*value as f64 - mean).powi(2)).sum::<f64>();
            (squares / (count - 1.0)).sqrt()
        }
    })
}

struct Case {
    range: TimeRange,
    windows: Windows,
    fill: Fill,
    order: Order,
}

fn model_rows(points: &Points, name: &str, scale: f64, case: &Case) -> Vec<(String, i64, Option<f64>)> {
    let mut groups: BTreeMap<u8, BTreeMap<i64, Vec<(i64, i64)>>> = BTreeMap::new();
    let window_of = |time: i64| {
        (time - case.windows.offset).div_euclid(case.windows.width) * case.windows.width + case.windows.offset
    };
    for ((group, _, time), value) in points {
        if case.range.contains(*time) {
            groups.entry(*group).or_default().entry(window_of(*time)).or_default().push((*time, *value));
        }
    }
    let mut rows = Vec::new();
    for (group, windows) in groups {
        let mut start = window_of(case.range.start);
        while start < case.range.end {
            let scale = if name == "count" { 1.0 } else { scale };
            let value = windows.get(&start).map(|points| naive(name, points).map(|value| value / scale));
            let value = match (value, &case.fill) {
                (Some(value), _) => Some(value),
                (None, Fill::None) => None,
                (None, _) if name == "count" => Some(Some(0.0)),
                (None, _) => Some(None),
            };
            rows.extend(value.map(|value| (group.to_string(), start, value)));
            start += case.windows.width;
        }
    }
    if case.order == Order::Descending {
        rows.reverse();
    }
    rows
}

/// A time slice that is always over.
struct Over;

impl TimeSlice for Over {
    fn is_over(&self) -> bool {
        true
    }

    fn give_way(&self, ctx: &ReadContext) -> Result<(), QueryError> {
        ctx.check()
    }
}

fn check_model(points: &Points, case: &Case) {
    for (field, scale) in [("v", 1.0), ("f", 4.0)] {
        let mut plan = RowPlan {
            range: case.range,
            windows: Some(case.windows.clone()),
            fill: case.fill.clone(),
            order: case.order,
            ..from_m().by(&["g"])
        };
        for name in FUNCTIONS {
            plan = plan.call(name, aggregate(aggregate_of(name), field));
        }
        let serial = environment(store_of(points), u64::MAX, RowLimits::default());
        let mut parallel = serial.clone();
        parallel.ctx = serial.ctx.with_spare_threads(Arc::new(SpareThreads::new(3)), 4);
        let found = run(plan.clone(), serial).expect("rows");
        let mut sliced = parallel.clone();
        sliced.ctx = parallel.ctx.clone().with_time_slice(Arc::new(Over));
        assert_eq!(found, run(plan.clone(), parallel).expect("rows"), "threads change nothing");
        assert_eq!(found, run(plan, sliced).expect("rows"), "pauses change nothing");
        for (idx, name) in FUNCTIONS.iter().enumerate() {
            let want = model_rows(points, name, scale, case);
            let mut group = String::new();
            let mut rows = Vec::new();
            for line in found.lines() {
                if let Some(name) = line.strip_prefix("m{g=") {
                    group = name.trim_end_matches('}').to_owned();
                    continue;
                }
                let (time, values) = line.split_once(": ").expect("a row");
                let value = values.split(' ').nth(idx).expect("a value").trim_end_matches('i');
                rows.push((group.clone(), time.parse().expect("a time"), value.parse::<f64>().ok()));
            }
            assert_eq!(rows.len(), want.len(), "{name}\n{found}");
            for (row, want) in rows.iter().zip(&want) {
                let is_close = match (row.2, want.2) {
                    (Some(a), Some(b)) => (a - b).abs() <= 1e-9 * b.abs().max(1.0),
                    (a, b) => a.is_none() && b.is_none(),
                };
                assert!((&row.0, row.1) == (&want.0, want.1) && is_close, "{name} {row:?} {want:?}\n{found}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn windowed_aggregates_equal_the_model(
        points in prop::collection::btree_map((0_u8..3, 0_u8..40, -60_i64..140), -50_i64..50, 0..300),
        (start, length) in (-70_i64..100, 0_i64..120),
        (width, offset) in (1_i64..50, -20_i64..20),
        (fills, descends) in (any::<bool>(), any::<bool>()),
    ) {
        check_model(&points, &Case {
            range: TimeRange::new(start, start + length),
            windows: Windows { width, offset, zone: None },
            fill: if fills { Fill::Null } else { Fill::None },
            order: if descends { Order::Descending } else { Order::Ascending },
        });
    }
}
