//! One question to both engines, and an answer to it.

use chronolith_base::Rng;
use chronolith_model::FloatHistogram;
use chronolith_promql::{QueryResult, Value};

use crate::series::Dataset;

/// Evaluation times of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Times {
    /// First time.
    pub(crate) start_ms: i64,
    /// Last time.
    pub(crate) end_ms: i64,
    /// 0 for an instant query.
    pub(crate) step_ms: i64,
    /// 0 for the engine's.
    pub(crate) lookback_ms: i64,
}

impl Times {
    /// Within and around samples that begin at `data_start_ms`.
    pub(crate) fn random(rng: &Rng, data_start_ms: i64) -> Times {
        let pick = |from: &[i64]| from[rng.below(from.len() as u64) as usize];
        let jitter = pick(&[0, 0, 0, 1, -1, 137, 15_000, 7_345]);
        let start_ms = data_start_ms + rng.below(40) as i64 * 30_000 + jitter;
        let lookback_ms = pick(&[0, 0, 0, 0, 60_000, 30_000, 15_001, 1_000]);
        if rng.below(2) == 0 {
            return Times { start_ms, end_ms: start_ms, step_ms: 0, lookback_ms };
        }
        let step_ms = pick(&[15_000, 30_000, 60_000, 7_001, 61_337, 300_000, 1, 1_000]);
        let count = rng.below(12) as i64;
        let end_ms = start_ms + step_ms * count + pick(&[0, 0, step_ms / 2]);
        Times { start_ms, end_ms, step_ms, lookback_ms }
    }
}

/// A question.
#[derive(Debug, Clone)]
pub(crate) struct Case<'d> {
    /// Series that both engines read.
    pub(crate) dataset: &'d Dataset,
    /// The text of the query.
    pub(crate) query: String,
    /// Evaluation times.
    pub(crate) times: Times,
    /// Delayed name removal.
    pub(crate) delayed: bool,
    /// True if `__type__` marks counters.
    pub(crate) typed: bool,
}

/// Labels and samples.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct AnswerSeries {
    /// Pairs in order of names.
    pub(crate) labels: Vec<(String, String)>,
    /// Milliseconds.
    pub(crate) times: Vec<i64>,
    /// One a time.
    pub(crate) values: Vec<f64>,
    /// Histograms with their times.
    pub(crate) histograms: Vec<(i64, FloatHistogram)>,
}

/// Answer of an engine.
#[derive(Debug, Clone, Default)]
pub(crate) struct Answer {
    /// `scalar`, `string`, `vector` or `matrix`.
    pub(crate) kind: String,
    /// Elements in order.
    pub(crate) series: Vec<AnswerSeries>,
    /// Text of a string result.
    pub(crate) text: String,
    /// Texts.
    pub(crate) warnings: Vec<String>,
    /// Texts.
    pub(crate) infos: Vec<String>,
    /// Error; `None` if there is a value.
    pub(crate) error: Option<String>,
}

impl Answer {
    /// No value.
    pub(crate) fn failed(error: String) -> Answer {
        Answer { error: Some(error), ..Answer::default() }
    }

    /// Returns true if our engine does not support the query.
    pub(crate) fn is_unsupported(&self) -> bool {
        self.error.as_ref().is_some_and(|text| text.contains("not supported by this version"))
    }

    /// A value of our engine.
    pub(crate) fn from_result(result: QueryResult) -> Answer {
        let pairs = |labels: &chronolith_model::Labels| {
            labels.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
        };
        let mut answer = Answer { warnings: result.warnings, infos: result.infos, ..Answer::default() };
        let (kind, series) = match result.value {
            Value::Scalar { time_ms, value } => (
                "scalar",
                vec![AnswerSeries {
                    labels: Vec::new(),
                    times: vec![time_ms],
                    values: vec![value],
                    histograms: Vec::new(),
                }],
            ),
            Value::String { value, .. } => {
                answer.text = value;
                ("string", Vec::new())
            }
            Value::Vector(elements) => {
                let element = |e: &chronolith_promql::VectorSample| {
                    let mut series = AnswerSeries { labels: pairs(&e.labels), ..AnswerSeries::default() };
                    match &e.histogram {
                        Some(histogram) => {
                            series.histograms.push((e.time_ms, FloatHistogram::clone(histogram)));
                        }
                        None => (series.times, series.values) = (vec![e.time_ms], vec![e.value]),
                    }
                    series
                };
                ("vector", elements.iter().map(element).collect())
            }
            Value::Matrix(matrix) => {
                let series = |s: chronolith_promql::MatrixSeries| AnswerSeries {
                    labels: pairs(&s.labels),
                    times: s.times,
                    values: s.values,
                    histograms: s.histograms.into_iter().map(|(at, h)| (at, (*h).clone())).collect(),
                };
                ("matrix", matrix.into_iter().map(series).collect())
            }
        };
        kind.clone_into(&mut answer.kind);
        answer.series = series;
        answer
    }
}
