//! Prometheus's engine as a process that is asked line by line.

use std::io::{BufRead, BufReader, Error, Result, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use chronolith_model::histogram::Buckets;
use chronolith_model::{FloatHistogram, ResetHint, Span};
use serde_json::{Value, json};

use crate::case::{Answer, AnswerSeries, Case};
use crate::series::Dataset;

/// Verdict of a parser: the printed form, or its error.
pub(crate) type Verdict = std::result::Result<String, String>;

/// The process and what it knows.
pub(crate) struct Oracle {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    /// The series it has.
    loaded: Option<u64>,
}

impl Oracle {
    /// Starts the program at `path`.
    pub(crate) fn start(path: &str) -> Result<Oracle> {
        let mut process = Command::new(path).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let missing = || Error::other("no pipe");
        let input = process.stdin.take().ok_or_else(missing)?;
        let output = BufReader::new(process.stdout.take().ok_or_else(missing)?);
        Ok(Oracle { process, input, output, loaded: None })
    }

    /// Returns the oracle's answer.
    pub(crate) fn ask(&mut self, case: &Case<'_>) -> Result<Answer> {
        let mut line = json!({
            "query": case.query,
            "start": case.times.start_ms,
            "end": case.times.end_ms,
            "step": case.times.step_ms,
            "lookback": case.times.lookback_ms,
            "delayed": case.delayed,
            "typed": case.typed,
        });
        if self.loaded != Some(case.dataset.id) {
            line["series"] = encode(case.dataset);
            self.loaded = Some(case.dataset.id);
        }
        self.exchange(&line)
    }

    /// Returns the verdict of the oracle's parser.
    pub(crate) fn parse(&mut self, query: &str) -> Result<Verdict> {
        let answer = self.exchange(&json!({ "query": query, "parse": true }))?;
        Ok(match answer.error {
            Some(error) => Err(error),
            None => Ok(answer.text),
        })
    }

    fn exchange(&mut self, line: &Value) -> Result<Answer> {
        writeln!(self.input, "{line}")?;
        self.input.flush()?;
        let mut text = String::new();
        if self.output.read_line(&mut text)? == 0 {
            return Err(Error::other(format!("the process ended at {}", line["query"])));
        }
        decode(&serde_json::from_str(&text)?).ok_or_else(|| Error::other(format!("strange answer {text}")))
    }
}

impl Drop for Oracle {
    fn drop(&mut self) {
        // The process may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn encode(dataset: &Dataset) -> Value {
    let series = |(labels, columns): (&chronolith_model::Labels, &chronolith_model::Columns)| {
        let labels: Vec<[&str; 2]> = labels.iter().map(|(name, value)| [name, value]).collect();
        let starts: Vec<i64> = (0..columns.len()).map(|at| columns.start_time_at(at)).collect();
        let starts = if columns.start_times.is_empty() { Vec::new() } else { starts };
        let histograms: Vec<Value> = columns
            .histograms
            .iter()
            .map(|(at, h)| encode_histogram(i64::from(*at), &h.to_float()))
            .collect();
        json!({
            "labels": labels,
            "times": columns.times,
            "values": bits(&columns.values),
            "starts": starts,
            "histograms": histograms,
        })
    };
    // Series as our engine reads them, with hints.
    Value::Array(dataset.source().iter().map(series).collect())
}

fn bits(values: &[f64]) -> Vec<String> {
    values.iter().map(|value| format!("{:016x}", value.to_bits())).collect()
}

fn encode_histogram(at: i64, histogram: &FloatHistogram) -> Value {
    let spans = |spans: &[Span]| -> Vec<[i64; 2]> {
        spans.iter().map(|span| [i64::from(span.offset), i64::from(span.length)]).collect()
    };
    let one = |value: f64| format!("{:016x}", value.to_bits());
    json!({
        "at": at,
        "hint": histogram.reset_hint as u8,
        "schema": histogram.schema,
        "zero_threshold": one(histogram.zero_threshold),
        "zero_count": one(histogram.zero_count),
        "count": one(histogram.count),
        "sum": one(histogram.sum),
        "positive_spans": spans(&histogram.positive.spans),
        "positive": bits(&histogram.positive.counts),
        "negative_spans": spans(&histogram.negative.spans),
        "negative": bits(&histogram.negative.counts),
        "bounds": bits(&histogram.custom_values),
    })
}

fn decode_bits(value: &Value) -> Option<f64> {
    Some(f64::from_bits(u64::from_str_radix(value.as_str()?, 16).ok()?))
}

fn decode_all(value: &Value) -> Option<Vec<f64>> {
    value.as_array()?.iter().map(decode_bits).collect()
}

fn decode_histogram(value: &Value) -> Option<(i64, FloatHistogram)> {
    let side = |spans: &str, counts: &str| -> Option<Buckets<f64>> {
        let span = |pair: &Value| {
            let (offset, length) = (pair[0].as_i64()?, pair[1].as_i64()?);
            Some(Span { offset: i32::try_from(offset).ok()?, length: u32::try_from(length).ok()? })
        };
        let spans = value[spans].as_array()?.iter().map(span).collect::<Option<_>>()?;
        Some(Buckets { spans, counts: decode_all(&value[counts])? })
    };
    let histogram = FloatHistogram {
        reset_hint: ResetHint::from_number(value["hint"].as_u64()?)?,
        schema: i32::try_from(value["schema"].as_i64()?).ok()?,
        zero_threshold: decode_bits(&value["zero_threshold"])?,
        zero_count: decode_bits(&value["zero_count"])?,
        count: decode_bits(&value["count"])?,
        sum: decode_bits(&value["sum"])?,
        positive: side("positive_spans", "positive")?,
        negative: side("negative_spans", "negative")?,
        custom_values: decode_all(&value["bounds"])?.into(),
    };
    Some((value["at"].as_i64()?, histogram))
}

fn decode(value: &Value) -> Option<Answer> {
    let text = |key: &str| value[key].as_str().unwrap_or("").to_owned();
    let texts = |key: &str| match value[key].as_array() {
        Some(list) => list.iter().filter_map(|text| Some(text.as_str()?.to_owned())).collect(),
        None => Vec::new(),
    };
    let series = match value["series"].as_array() {
        Some(list) => list.iter().map(decode_series).collect::<Option<Vec<_>>>()?,
        None => Vec::new(),
    };
    Some(Answer {
        kind: text("type"),
        series,
        text: text("text"),
        warnings: texts("warnings"),
        infos: texts("infos"),
        error: Some(text("error")).filter(|error| !error.is_empty()),
    })
}

fn decode_series(value: &Value) -> Option<AnswerSeries> {
    let pair = |pair: &Value| Some((pair[0].as_str()?.to_owned(), pair[1].as_str()?.to_owned()));
    Some(AnswerSeries {
        labels: match value["labels"].as_array() {
            Some(labels) => labels.iter().map(pair).collect::<Option<_>>()?,
            None => Vec::new(),
        },
        times: value["times"].as_array()?.iter().map(Value::as_i64).collect::<Option<_>>()?,
        values: decode_all(&value["values"])?,
        histograms: match value["histograms"].as_array() {
            Some(list) => list.iter().map(decode_histogram).collect::<Option<_>>()?,
            None => Vec::new(),
        },
    })
}
