//! Upstream's engine as a process that is asked line by line.

use std::io::{BufRead, BufReader, Error, Result, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use crate::case::{Answer, AnswerSeries, Case};
use crate::series::Dataset;

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

    /// Its answer.
    pub(crate) fn ask(&mut self, case: &Case<'_>) -> Result<Answer> {
        let mut line = json!({
            "query": case.query,
            "start": case.times.start_ms,
            "end": case.times.end_ms,
            "step": case.times.step_ms,
            "lookback": case.times.lookback_ms,
            "delayed": case.delayed,
        });
        if self.loaded != Some(case.dataset.id) {
            line["series"] = encode(case.dataset);
            self.loaded = Some(case.dataset.id);
        }
        writeln!(self.input, "{line}")?;
        self.input.flush()?;
        let mut text = String::new();
        if self.output.read_line(&mut text)? == 0 {
            return Err(Error::other(format!("the process ended at {}", case.query)));
        }
        decode(&serde_json::from_str(&text)?).ok_or_else(|| Error::other(format!("strange answer {text}")))
    }
}

impl Drop for Oracle {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn encode(dataset: &Dataset) -> Value {
    let series = |series: &crate::series::Series| {
        let labels: Vec<[&str; 2]> = series.labels.iter().map(|(name, value)| [name, value]).collect();
        let times: Vec<i64> = series.samples.iter().map(|sample| sample.0).collect();
        let values: Vec<String> =
            series.samples.iter().map(|sample| format!("{:016x}", sample.1.to_bits())).collect();
        json!({"labels": labels, "times": times, "values": values})
    };
    Value::Array(dataset.series.iter().map(series).collect())
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
    let bits = |value: &Value| Some(f64::from_bits(u64::from_str_radix(value.as_str()?, 16).ok()?));
    Some(AnswerSeries {
        labels: match value["labels"].as_array() {
            Some(labels) => labels.iter().map(pair).collect::<Option<_>>()?,
            None => Vec::new(),
        },
        times: value["times"].as_array()?.iter().map(Value::as_i64).collect::<Option<_>>()?,
        values: value["values"].as_array()?.iter().map(bits).collect::<Option<_>>()?,
    })
}
