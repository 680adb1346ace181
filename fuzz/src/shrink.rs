//! Makes a difference small: parts of the query, series and samples go as long as the answers still differ.

use std::fmt::Write as _;
use std::io::Result;

use chronolith_model::sample::is_stale;

use crate::Bench;
use crate::case::{Answer, Case, Times};
use crate::compare::{Difference, difference};
use crate::generate::Node;
use crate::series::{Dataset, Series};
use crate::testing::MemSample;

/// Questions asked for one difference.
const TRIES_MAX: usize = 3000;

struct Shrinker<'b> {
    bench: &'b mut Bench,
    kind: String,
    delayed: bool,
    typed: bool,
    tries: usize,
}

impl Shrinker<'_> {
    /// Returns true if the answers still differ in the same way.
    fn differs(&mut self, dataset: &Dataset, node: &Node, times: Times) -> Result<bool> {
        self.tries += 1;
        if self.tries > TRIES_MAX {
            return Ok(false);
        }
        let case = Case { dataset, query: node.to_string(), times, delayed: self.delayed, typed: self.typed };
        let (ours, theirs) = self.bench.ask(&case)?;
        Ok(!ours.is_unsupported()
            && difference(&case.query, &ours, &theirs).is_some_and(|d| d.kind() == self.kind))
    }

    fn shrink_query(&mut self, dataset: &Dataset, mut node: Node, times: Times) -> Result<Node> {
        'again: loop {
            for smaller in node.smaller() {
                if self.differs(dataset, &smaller, times)? {
                    node = smaller;
                    continue 'again;
                }
            }
            return Ok(node);
        }
    }

    fn shrink_times(&mut self, dataset: &Dataset, node: &Node, mut times: Times) -> Result<Times> {
        let instant = Times { end_ms: times.start_ms, step_ms: 0, ..times };
        let at_end = Times { start_ms: times.end_ms, ..instant };
        let candidates = [
            Times { lookback_ms: 0, ..times },
            instant,
            Times { end_ms: times.end_ms, start_ms: times.end_ms, ..at_end },
            Times { end_ms: times.start_ms + times.step_ms, ..times },
        ];
        for candidate in candidates {
            if candidate != times && self.differs(dataset, node, candidate)? {
                times = candidate;
            }
        }
        Ok(times)
    }

    fn shrink_series(&mut self, mut dataset: Dataset, node: &Node, times: Times) -> Result<Dataset> {
        let mut size = dataset.series.len();
        while size > 0 {
            let mut at = 0;
            while at < dataset.series.len() {
                let mut series = dataset.series.clone();
                series.drain(at..(at + size).min(series.len()));
                let smaller = Dataset::new(dataset.start_ms, series);
                if self.differs(&smaller, node, times)? { dataset = smaller } else { at += size }
            }
            size /= 2;
        }
        for idx in 0..dataset.series.len() {
            dataset = self.shrink_samples(dataset, idx, node, times)?;
        }
        Ok(dataset)
    }

    fn shrink_samples(
        &mut self,
        mut dataset: Dataset,
        idx: usize,
        node: &Node,
        times: Times,
    ) -> Result<Dataset> {
        let mut size = dataset.series[idx].samples.len();
        while size > 0 {
            let mut at = 0;
            while at < dataset.series[idx].samples.len() {
                let mut series = dataset.series.clone();
                let samples = &mut series[idx].samples;
                samples.drain(at..(at + size).min(samples.len()));
                let smaller = Dataset::new(dataset.start_ms, series);
                if self.differs(&smaller, node, times)? { dataset = smaller } else { at += size }
            }
            size /= 2;
        }
        Ok(dataset)
    }
}

/// A script that shows the difference of `case`, whose query is `node`.
pub(crate) fn shrink(bench: &mut Bench, node: &Node, case: &Case<'_>) -> Result<String> {
    let (ours, theirs) = bench.ask(case)?;
    let Some(first) = difference(&case.query, &ours, &theirs) else { return Ok(String::new()) };
    let mut shrinker =
        Shrinker { bench, kind: first.kind(), delayed: case.delayed, typed: case.typed, tries: 0 };
    let node = shrinker.shrink_query(case.dataset, node.clone(), case.times)?;
    let times = shrinker.shrink_times(case.dataset, &node, case.times)?;
    let dataset = shrinker.shrink_series(case.dataset.clone(), &node, times)?;
    let node = shrinker.shrink_query(&dataset, node, times)?;
    let small =
        Case { dataset: &dataset, query: node.to_string(), times, delayed: case.delayed, typed: case.typed };
    let (ours, theirs) = bench.ask(&small)?;
    Ok(script(&small, &ours, &theirs, difference(&small.query, &ours, &theirs).unwrap_or(first)))
}

fn script(case: &Case<'_>, ours: &Answer, theirs: &Answer, difference: Difference) -> String {
    let mut text = format!("# {difference}\n");
    let first_ms =
        case.dataset.series.iter().filter_map(|s| Some(s.samples.first()?.time_ms)).min().unwrap_or(0);
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "# times in ms; delayed name removal: {}; types: {}; lookback {}",
        case.delayed, case.typed, case.times.lookback_ms
    );
    for series in case.dataset.series.iter().take(12) {
        let _ = writeln!(text, "  {} {}", series.labels, samples(series, first_ms));
    }
    let Times { start_ms, end_ms, step_ms, .. } = case.times;
    let _ = writeln!(text, "# first sample at {first_ms}");
    let _ = match step_ms {
        0 => writeln!(text, "eval instant at {start_ms}ms {}", case.query),
        _ => writeln!(text, "eval range from {start_ms}ms to {end_ms}ms step {step_ms}ms {}", case.query),
    };
    for (who, answer) in [("ours", ours), ("Prometheus", theirs)] {
        let _ = writeln!(
            text,
            "  # {who}: {:?} {} {:?} {:?}",
            answer.error, answer.text, answer.warnings, answer.infos
        );
        for series in answer.series.iter().take(12) {
            let _ = writeln!(text, "  #   {:?} {:?} {:?}", series.labels, series.times, series.values);
            for (at, histogram) in &series.histograms {
                let _ = writeln!(text, "  #     @{at} {}", histogram.test_expression());
            }
        }
    }
    text
}

fn samples(series: &Series, first_ms: i64) -> String {
    let sample = |sample: &MemSample| {
        let at = sample.time_ms - first_ms;
        let start =
            if sample.start_ms == 0 { String::new() } else { format!("({})", sample.start_ms - first_ms) };
        match &sample.histogram {
            Some(histogram) => format!("+{at}{start}:{}", histogram.test_expression()),
            None if is_stale(sample.value) => format!("+{at}{start}:stale"),
            None => format!("+{at}{start}:{}", sample.value),
        }
    };
    series.samples.iter().map(sample).collect::<Vec<_>>().join(" ")
}
