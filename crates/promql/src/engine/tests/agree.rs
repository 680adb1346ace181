//! A range query has at each step what an instant query has at that time, bit for bit: whatever slides,
//! repeats, folds or merges over steps must not show.

use std::collections::BTreeMap;

use super::{EngineOptions, GONE, NameRemoval, Value, run};
use crate::testing::MemQueryable;
use chronolith_model::{Labels, METRIC_NAME};

const RANGE_MS: (i64, i64, i64) = (-20_000, 700_000, 13_000);

const QUERIES: &[&str] = &[
    "a",
    "a offset 37s",
    "a offset -37s",
    "a @ 100",
    "timestamp(a)",
    "timestamp(-a)",
    "rate(a[1m])",
    "increase(a[50s] offset 20s)",
    "delta(a[2m])",
    "irate(a[2m])",
    "idelta(a[2m])",
    "deriv(a[2m])",
    "predict_linear(a[2m] @ 300, 60)",
    "predict_linear(a[90s], 60)",
    "double_exponential_smoothing(a[2m], 0.3, 0.6)",
    "resets(a[2m])",
    "changes(a[2m])",
    "sum_over_time(a[2m])",
    "avg_over_time(a[2m])",
    "min_over_time(a[2m])",
    "max_over_time(a[2m])",
    "count_over_time(a[30s])",
    "first_over_time(a[1m])",
    "last_over_time(a[1m])",
    "present_over_time(a[30s])",
    "absent_over_time(a{i=\"3\"}[20s])",
    "absent(a{i=\"3\"})",
    "quantile_over_time(0.3, a[2m])",
    "quantile_over_time(scalar(a{i=\"1\"}) / 1000, a[2m])",
    "mad_over_time(a[2m])",
    "stddev_over_time(a[2m])",
    "ts_of_max_over_time(a[2m])",
    "ts_of_min_over_time(a[2m])",
    "rate(a[1m:7s])",
    "max_over_time(rate(a[1m])[3m:11s])",
    "sum_over_time(a[1m:10s] @ 200 offset 5s)",
    "avg_over_time(vector(time())[1m:1s])",
    "sum(a)",
    "sum by (g) (a)",
    "avg without (i) (a)",
    "min by (g) (a)",
    "max(a)",
    "count by (g) (a > 20)",
    "group(a)",
    "stddev(a)",
    "stdvar by (g) (a)",
    "quantile(0.7, a)",
    "topk(2, a)",
    "bottomk by (g) (1, a)",
    "limitk(2, a)",
    "limit_ratio(0.5, a)",
    "count_values(\"v\", floor(a / 50))",
    "a + 1",
    "2 ^ a % 7",
    "a > 50",
    "a > bool 50",
    "50 < a",
    "a + a",
    "a / on(g) group_left sum by (g) (a)",
    "sum by (g) (a) * on(g) group_right a",
    "a > on(i) b",
    "a and b",
    "a or b",
    "a > 60 or a < 10",
    "a unless on(g) (a > 100)",
    "a + fill(0) b",
    "-a",
    "clamp(a, 10, 60)",
    "round(a, 7)",
    "label_replace(a, \"g\", \"$1\", \"i\", \"(.)\")",
    "label_join(a, \"j\", \"-\", \"g\", \"i\")",
    "vector(time())",
    "minute(a) + on() group_left hour()",
    "scalar(a{i=\"1\"}) + time()",
    "sort(a)",
    "histogram_quantile(0.5, h)",
    "histogram_quantile(0.9, sum by (le) (rate(h[1m])))",
    "histogram_fraction(0.3, 1.5, h)",
    "sum({__name__=~\"a|b\"}) by (__name__)",
    "min_over_time(sum(topk(2, a))[1m:10s])",
];

fn data() -> MemQueryable {
    let mut source = MemQueryable::new();
    for i in 0..6_i64 {
        let (index, group) = (i.to_string(), (i % 2).to_string());
        for (name, bias) in [("a", 0), ("b", 3)] {
            let labels = Labels::from_pairs([(METRIC_NAME, name), ("i", &*index), ("g", &*group)]);
            let present = |k: &i64| (k * (i + 2) + bias) % 11 != 0 && !(i == 3 && (15..40).contains(k));
            let value = |k: i64| match (k * 7 + i + bias) % 23 {
                0 => GONE,
                1 => f64::NAN,
                rest => (rest * (i + 1)) as f64 + 0.1 * k as f64,
            };
            source.add(&labels, (0..60).filter(present).map(|k| (k * 10_000 + i * 117, value(k))));
        }
        let bound = ["0.5", "1", "2", "5", "10", "+Inf"][i as usize];
        let labels = Labels::from_pairs([(METRIC_NAME, "h"), ("le", bound)]);
        source.add(&labels, (0..60).map(|k| (k * 10_000, (k * (i + 1)) as f64)));
    }
    source
}

/// Bits of each element by time and labels.
fn elements(value: &Value) -> BTreeMap<(i64, String), u64> {
    match value {
        Value::Scalar { time_ms, value } => BTreeMap::from([((*time_ms, "{}".to_owned()), value.to_bits())]),
        Value::String { .. } => BTreeMap::new(),
        Value::Vector(all) => {
            all.iter().map(|e| ((e.time_ms, e.labels.to_string()), e.value.to_bits())).collect()
        }
        Value::Matrix(all) => {
            let points = |s: &super::MatrixSeries| {
                let text = s.labels.to_string();
                s.times
                    .iter()
                    .zip(&s.values)
                    .map(move |(t, v)| ((*t, text.clone()), v.to_bits()))
                    .collect::<Vec<_>>()
            };
            all.iter().flat_map(points).collect()
        }
    }
}

#[test]
fn steps_agree_with_instants() {
    let source = data();
    let (start_ms, end_ms, step_ms) = RANGE_MS;
    for name_removal in [NameRemoval::Immediate, NameRemoval::Delayed] {
        let options = EngineOptions { name_removal, ..EngineOptions::default() };
        for text in QUERIES {
            let range = elements(&run(options.clone(), &source, text, RANGE_MS).expect(text));
            let mut instants = BTreeMap::new();
            for time_ms in (start_ms..=end_ms).step_by(step_ms as usize) {
                let value = run(options.clone(), &source, text, (time_ms, time_ms, 0)).expect(text);
                instants.extend(elements(&value));
            }
            assert!(!range.is_empty(), "{text} has no result at all");
            let differing =
                range.iter().chain(&instants).find(|(key, _)| range.get(*key) != instants.get(*key));
            assert_eq!(differing, None, "{text}, {name_removal:?}");
        }
    }
}
