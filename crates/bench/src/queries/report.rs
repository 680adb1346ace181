//! Figures as a table, as Markdown and as JSON.
//! Invariants: ratios are times of the peer divided by ours; a shape without equal answers has none.

use std::fmt::{self, Write};

use serde_json::{Value, json};

use super::corpus::Corpus;
use super::measure::Cost;
use super::shapes::Shape;
use crate::report::OwnPart;
use crate::server::Kind;

/// One shape and what it cost each server.
pub(super) struct Line {
    name: &'static str,
    what: &'static str,
    corpus: String,
    pub(super) outcomes: Vec<(Kind, Outcome)>,
}

/// Outcome of one shape in one server.
pub(super) struct Outcome {
    pub(super) cost: Option<Cost>,
    pub(super) trouble: Option<Trouble>,
}

/// Reason for not counting a figure.
pub(super) enum Trouble {
    /// No answer: the server refused, gave up or ended, or found nothing.
    NoAnswer(String),
    /// Another answer than the reference.
    NotEqual(String),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::NoAnswer(why) => write!(f, "NO ANSWER: {why}"),
            Trouble::NotEqual(why) => write!(f, "NOT EQUAL: {why}"),
        }
    }
}

impl Outcome {
    pub(super) fn failed(why: String) -> Outcome {
        Outcome { cost: None, trouble: Some(Trouble::NoAnswer(why)) }
    }

    /// Returns true if the outcome fails the run: a peer may refuse or crash, this server may not, and
    /// answers must be equal.
    pub(super) fn is_failure(&self, kind: Kind) -> bool {
        match self.trouble {
            None => false,
            Some(Trouble::NotEqual(_)) => true,
            Some(Trouble::NoAnswer(_)) => kind == Kind::Chronolith,
        }
    }

    pub(super) fn summary(&self) -> String {
        let cost = self.cost.as_ref().map_or_else(String::new, |cost| {
            format!(
                "{:.1} ms, {:.1} ms CPU, {:.1} ms plain, +{:.1} MiB to {:.0} MiB",
                cost.wall_ms, cost.cpu_ms, cost.plain_ms, cost.memory_mib, cost.resident_mib
            )
        });
        match &self.trouble {
            None => cost,
            Some(trouble) => format!("{cost} {trouble}"),
        }
    }

    fn counted(&self) -> Option<&Cost> {
        self.cost.as_ref().filter(|_| self.trouble.is_none())
    }
}

impl Line {
    pub(super) fn new(corpus: &Corpus, shape: &Shape) -> Line {
        let days = (corpus.end_ms() - corpus.start_ms) as f64 / 86_400_000.0;
        let corpus = format!("{} ({} series, {days:.2} d)", corpus.name, corpus.series_count());
        Line { name: shape.name, what: shape.what, corpus, outcomes: Vec::new() }
    }

    /// Returns the mean to which the line belongs: patterns are many, and alike, and fresh data is a case of
    /// its own.
    fn mean(&self) -> &'static str {
        match self.corpus.split_once(' ') {
            Some(("values", _)) => "geometric mean of patterns",
            Some(("head", _)) => "geometric mean of the head",
            _ => "geometric mean",
        }
    }

    fn cost_of(&self, kind: Kind) -> Option<&Cost> {
        self.outcomes.iter().find(|(found, _)| *found == kind).and_then(|(_, outcome)| outcome.counted())
    }

    /// Time of `peer` divided by ours, with gzip.
    fn ratio(&self, peer: Kind) -> Option<f64> {
        Some(self.cost_of(peer)?.wall_ms / self.cost_of(Kind::Chronolith)?.wall_ms)
    }

    /// The same without compression.
    fn plain_ratio(&self, peer: Kind) -> Option<f64> {
        let ratio = self.cost_of(peer)?.plain_ms / self.cost_of(Kind::Chronolith)?.plain_ms;
        Some(ratio).filter(|ratio| ratio.is_finite())
    }
}

/// Part of the report with all lines, and the answers that do not count.
pub(super) fn part(kinds: &[Kind], lines: &[Line]) -> OwnPart {
    let mut markdown = table(kinds, lines);
    markdown.push('\n');
    for (kind, line, trouble) in troubles(lines) {
        // Writing to a String does not fail.
        let _ = writeln!(markdown, "- {}, {}: {trouble}", kind.name(), line.name);
    }
    OwnPart { markdown, key: "lines", json: lines.iter().map(line_json).collect() }
}

/// All answers that do not count.
fn troubles(lines: &[Line]) -> impl Iterator<Item = (Kind, &Line, &Trouble)> {
    lines.iter().flat_map(|line| {
        let of_line = line.outcomes.iter();
        of_line.filter_map(move |(kind, outcome)| Some((*kind, line, outcome.trouble.as_ref()?)))
    })
}

/// Number of outcomes that fail the run.
pub(super) fn failure_count(lines: &[Line]) -> usize {
    let outcomes = lines.iter().flat_map(|line| &line.outcomes);
    outcomes.filter(|(kind, outcome)| outcome.is_failure(*kind)).count()
}

fn table(kinds: &[Kind], lines: &[Line]) -> String {
    let peers: Vec<Kind> = kinds.iter().copied().filter(|kind| *kind != Kind::Chronolith).collect();
    let mut out = String::from("| shape | corpus |");
    for kind in kinds {
        let _ = write!(out, " {} ms with gzip (CPU ms, ms plain, + MiB, resident MiB) |", kind.name());
    }
    for peer in &peers {
        let _ = write!(out, " {0} / ours | {0} / ours, plain |", peer.name());
    }
    let _ = writeln!(out, "\n|---|---|{}", "---:|".repeat(kinds.len() + 2 * peers.len()));
    for line in lines {
        let _ = write!(out, "| {}: {} | {} |", line.name, line.what, line.corpus);
        for kind in kinds {
            let _ = match line.cost_of(*kind) {
                Some(cost) => write!(
                    out,
                    " {:.1} ({:.0}, {:.1}, {:.1}, {:.0}) |",
                    cost.wall_ms, cost.cpu_ms, cost.plain_ms, cost.memory_mib, cost.resident_mib
                ),
                None => write!(out, " - |"),
            };
        }
        for peer in &peers {
            for ratio in [line.ratio(*peer), line.plain_ratio(*peer)] {
                let _ = match ratio {
                    Some(ratio) => write!(out, " {ratio:.1}x |"),
                    None => write!(out, " - |"),
                };
            }
        }
        out.push('\n');
    }
    for what in ["geometric mean", "geometric mean of patterns", "geometric mean of the head"] {
        let of_mean: Vec<&Line> = lines.iter().filter(|line| line.mean() == what).collect();
        if of_mean.is_empty() {
            continue;
        }
        let _ = write!(out, "| {what} | |{}", " |".repeat(kinds.len()));
        for peer in &peers {
            let ratios: Vec<f64> = of_mean.iter().filter_map(|line| line.ratio(*peer)).collect();
            let plain: Vec<f64> = of_mean.iter().filter_map(|line| line.plain_ratio(*peer)).collect();
            let _ = write!(out, " {:.1}x | {:.1}x |", geometric_mean(&ratios), geometric_mean(&plain));
        }
        out.push('\n');
    }
    out
}

fn geometric_mean(values: &[f64]) -> f64 {
    (values.iter().map(|value| value.ln()).sum::<f64>() / values.len() as f64).exp()
}

fn line_json(line: &Line) -> Value {
    let outcome = |(kind, outcome): &(Kind, Outcome)| {
        json!({
            "server": kind.name(),
            "wall_ms": outcome.cost.as_ref().map(|cost| cost.wall_ms),
            "cpu_ms": outcome.cost.as_ref().map(|cost| cost.cpu_ms),
            "plain_ms": outcome.cost.as_ref().map(|cost| cost.plain_ms),
            "memory_mib": outcome.cost.as_ref().map(|cost| cost.memory_mib),
            "resident_mib": outcome.cost.as_ref().map(|cost| cost.resident_mib),
            "trouble": outcome.trouble.as_ref().map(ToString::to_string),
        })
    };
    json!({
        "shape": line.name,
        "corpus": line.corpus,
        "outcomes": line.outcomes.iter().map(outcome).collect::<Value>(),
    })
}

#[cfg(test)]
mod tests {
    use super::{Outcome, Trouble, geometric_mean};
    use crate::server::Kind;

    #[test]
    fn a_peer_may_refuse_and_nobody_may_differ() {
        let refused = Outcome::failed("HTTP 422".to_owned());
        assert!(refused.is_failure(Kind::Chronolith) && !refused.is_failure(Kind::Prometheus));
        let differs = Outcome { cost: None, trouble: Some(Trouble::NotEqual("1 and 2".to_owned())) };
        assert!(differs.is_failure(Kind::Chronolith) && differs.is_failure(Kind::VictoriaMetrics));
        assert!(!Outcome { cost: None, trouble: None }.is_failure(Kind::Chronolith));
    }

    #[test]
    fn means_are_geometric() {
        assert!((geometric_mean(&[2.0, 8.0]) - 4.0).abs() < 1e-12);
        assert!(geometric_mean(&[]).is_nan());
    }
}
