//! Steps of a case: statements and writes, as requests.

use std::fmt;

use crate::chooser::Chooser;
use crate::http::{Request, percent_encoded};
use crate::piece::Piece;

/// Form of an answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Output {
    /// Value of `epoch`, or empty.
    pub(crate) epoch: &'static str,
    /// Value of `Accept`, or empty.
    pub(crate) accept: &'static str,
    /// Rows per chunk; 0: not chunked.
    pub(crate) chunk_size: i64,
    pub(crate) pretty: bool,
    pub(crate) by_get: bool,
    /// Value of `params`, or empty.
    pub(crate) params: String,
}

impl Output {
    /// A random form.
    pub(crate) fn random(c: Chooser<'_>) -> Output {
        Output {
            epoch: c.weighted(&[(8, "ns"), (4, ""), (1, "u"), (1, "ms"), (1, "s"), (1, "m"), (1, "h")]),
            accept: c.weighted(&[
                (40, ""),
                (3, "application/csv"),
                (3, "application/x-msgpack"),
                (1, "text/csv"),
            ]),
            chunk_size: if c.percent(8) { c.between(1, 9) } else { 0 },
            pretty: c.percent(3),
            by_get: c.percent(30),
            params: String::new(),
        }
    }
}

/// One request of a case.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    Query { text: Piece, database: &'static str, output: Output },
    Write { database: &'static str, policy: &'static str, precision: &'static str, body: Vec<u8> },
}

impl Step {
    pub(crate) fn query(text: Piece, database: &'static str, output: Output) -> Step {
        Step::Query { text, database, output }
    }

    pub(crate) fn write(
        database: &'static str,
        policy: &'static str,
        precision: &'static str,
        body: Vec<u8>,
    ) -> Step {
        Step::Write { database, policy, precision, body }
    }

    /// Returns true if the step may use the database of scripts.
    pub(crate) fn changes(&self) -> bool {
        let (Step::Query { database, .. } | Step::Write { database, .. }) = self;
        *database == crate::script::DATABASE
    }

    /// The step with its answer as one document of JSON with times in nanoseconds.
    pub(crate) fn plain(&self) -> Step {
        match self {
            Step::Query { text, database, output } => {
                let plain = Output { epoch: "ns", params: output.params.clone(), ..Output::default() };
                Step::query(text.clone(), database, plain)
            }
            Step::Write { .. } => self.clone(),
        }
    }

    /// The step with another statement.
    pub(crate) fn with_text(&self, text: &str) -> Step {
        match self {
            Step::Query { database, output, .. } => Step::query(Piece::text(text), database, output.clone()),
            Step::Write { .. } => self.clone(),
        }
    }

    /// A write as one write per line, and other steps as they are.
    pub(crate) fn by_line(&self) -> Vec<Step> {
        let Step::Write { database, policy, precision, body } = self else { return vec![self.clone()] };
        let lines = body.split_inclusive(|byte| *byte == b'\n');
        lines.map(|line| Step::write(database, policy, precision, line.to_vec())).collect()
    }

    /// The request that is sent.
    pub(crate) fn request(&self) -> Request {
        match self {
            Step::Query { text, database, output } => query_request(&text.to_string(), database, output),
            Step::Write { database, policy, precision, body } => {
                let mut target = format!("/write?db={}", percent_encoded(database));
                for (name, value) in [("rp", policy), ("precision", precision)] {
                    if !value.is_empty() {
                        target.push_str(&format!("&{name}={}", percent_encoded(value)));
                    }
                }
                Request { method: "POST", target, headers: Vec::new(), body: body.clone() }
            }
        }
    }

    /// Steps that are smaller by one reduction.
    pub(crate) fn reductions(&self) -> Vec<Step> {
        match self {
            Step::Query { text, database, output } => {
                let again = |text| Step::query(text, database, output.clone());
                let mut out: Vec<Step> = text.reductions().into_iter().map(again).collect();
                let plain = self.plain();
                if plain.request() != self.request() {
                    out.insert(0, plain);
                }
                out
            }
            Step::Write { database, policy, precision, body } => {
                let lines: Vec<&[u8]> = body.split_inclusive(|byte| *byte == b'\n').collect();
                if lines.len() < 2 {
                    return Vec::new();
                }
                let without = |removed: usize| {
                    let kept = lines.iter().enumerate().filter(|(idx, _)| *idx != removed);
                    let body = kept.flat_map(|(_, line)| line.iter().copied()).collect();
                    Step::write(database, policy, precision, body)
                };
                (0..lines.len()).map(without).collect()
            }
        }
    }
}

fn query_request(text: &str, database: &str, output: &Output) -> Request {
    let mut form = format!("q={}", percent_encoded(text));
    if !database.is_empty() {
        form.push_str(&format!("&db={}", percent_encoded(database)));
    }
    if !output.epoch.is_empty() {
        form.push_str(&format!("&epoch={}", output.epoch));
    }
    if output.chunk_size > 0 {
        form.push_str(&format!("&chunked=true&chunk_size={}", output.chunk_size));
    }
    if output.pretty && output.by_get {
        form.push_str("&pretty=true");
    }
    if !output.params.is_empty() {
        form.push_str(&format!("&params={}", percent_encoded(&output.params)));
    }
    let mut headers = Vec::new();
    if !output.accept.is_empty() {
        headers.push(("Accept", output.accept));
    }
    if output.by_get {
        return Request { method: "GET", target: format!("/query?{form}"), headers, body: Vec::new() };
    }
    headers.push(("Content-Type", "application/x-www-form-urlencoded"));
    Request { method: "POST", target: "/query".to_owned(), headers, body: form.into_bytes() }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Query { text, database, output } => {
                write!(f, "{text}    [db={database}")?;
                for (name, value) in [("epoch", output.epoch), ("accept", output.accept)] {
                    if !value.is_empty() && value != "ns" {
                        write!(f, " {name}={value}")?;
                    }
                }
                if output.chunk_size > 0 {
                    write!(f, " chunk_size={}", output.chunk_size)?;
                }
                if !output.params.is_empty() {
                    write!(f, " params={}", output.params)?;
                }
                write!(f, "]")
            }
            Step::Write { database, policy, precision, body } => {
                write!(f, "write [db={database} rp={policy} precision={precision}] ")?;
                write!(f, "{:?}", String::from_utf8_lossy(body))
            }
        }
    }
}
