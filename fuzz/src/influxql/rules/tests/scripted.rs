//! Servers that answer from a script, and the parser of the scripts.

use std::cell::RefCell;
use std::io::{Error, Result};
use std::rc::Rc;

use crate::http::{Reply, Request};
use crate::script::{self, DATABASE};
use crate::server::Peer;
use crate::steps::{Output, Step};

/// Rule and the answers that it gets.
#[derive(Default)]
pub(super) struct Case {
    /// Line of the script.
    pub(super) line: usize,
    pub(super) rule: String,
    pub(super) is_explained: bool,
    pub(super) has_tsi: bool,
    pub(super) steps: Vec<Step>,
    pub(super) exchanges: Rc<Vec<Exchange>>,
}

/// Request with its answers.
#[derive(Clone, Default)]
pub(super) struct Exchange {
    request: Vec<u8>,
    /// Request before which the answers hold.
    unless: Option<Vec<u8>>,
    /// Answers of this server, and of InfluxDB: the first one, and the later ones.
    answers: [Vec<Answer>; 2],
}

#[derive(Clone)]
enum Answer {
    /// Series as JSON.
    Series(Vec<String>),
    Text {
        status: u16,
        body: String,
    },
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Here,
    InfluxDb,
}

/// Server with the answers of one side.
pub(super) struct Scripted {
    side: Side,
    exchanges: Rc<Vec<Exchange>>,
    /// Requests since the database of scripts was dropped.
    sent: Vec<Vec<u8>>,
    /// Answers per exchange.
    counts: Vec<usize>,
    unknown: Rc<RefCell<Vec<String>>>,
    reply: Option<Reply>,
}

impl Scripted {
    pub(super) fn new(
        side: Side,
        exchanges: Rc<Vec<Exchange>>,
        unknown: Rc<RefCell<Vec<String>>>,
    ) -> Scripted {
        let counts = vec![0; exchanges.len()];
        Scripted { side, exchanges, sent: Vec::new(), counts, unknown, reply: None }
    }

    fn reply_to(&mut self, request: &[u8], is_csv: bool) -> Reply {
        let is_cleanup = |step: &Step| name_of(&step.request()) == request;
        if script::cleanup().iter().any(is_cleanup) {
            self.sent.clear();
            return reply(&Answer::Series(Vec::new()), is_csv);
        }
        let holds = |exchange: &Exchange| {
            exchange.request == request
                && exchange.unless.as_ref().is_none_or(|unless| !self.sent.contains(unless))
        };
        let found = self.exchanges.iter().position(holds);
        self.sent.push(request.to_vec());
        let Some(idx) = found else {
            self.unknown.borrow_mut().push(String::from_utf8_lossy(request).into_owned());
            let name = if self.side == Side::Here { "here" } else { "there" };
            return reply(&Answer::Text { status: 200, body: format!("no answer {name}") }, is_csv);
        };
        let answers = &self.exchanges[idx].answers[self.side as usize];
        let answer = &answers[self.counts[idx].min(answers.len() - 1)];
        self.counts[idx] += 1;
        reply(answer, is_csv)
    }
}

impl Peer for Scripted {
    fn send(&mut self, request: &Request) -> Result<()> {
        let is_csv = request.headers.contains(&("Accept", "application/csv"));
        self.reply = Some(self.reply_to(&name_of(request), is_csv));
        Ok(())
    }

    fn receive(&mut self) -> Result<Reply> {
        self.reply.take().ok_or_else(|| Error::other("no request"))
    }
}

fn reply(answer: &Answer, is_csv: bool) -> Reply {
    let (status, body) = match answer {
        Answer::Text { status, body } => (*status, body.clone()),
        Answer::Series(series) if series.is_empty() => (200, result("")),
        Answer::Series(series) => (200, result(&format!(",\"series\":[{}]", series.join(",")))),
    };
    let content_type = if is_csv { "text/csv" } else { "application/json" };
    Reply { status, content_type: content_type.to_owned(), body: body.into_bytes() }
}

fn result(members: &str) -> String {
    format!("{{\"results\":[{{\"statement_id\":0{members}}}]}}\n")
}

/// A request as scripts write it.
fn name_of(request: &Request) -> Vec<u8> {
    if request.target.starts_with("/write") {
        let policy = request.target.split_once("&rp=").map(|(_, rest)| rest.split('&').next().unwrap_or(""));
        let word = policy.map_or("write ".to_owned(), |policy| format!("write@{policy} "));
        return [word.as_bytes(), &request.body].concat();
    }
    let form = String::from_utf8_lossy(&request.body).into_owned();
    let text = form.strip_prefix("q=").and_then(|rest| rest.split('&').next()).unwrap_or_default();
    let is_csv = request.headers.contains(&("Accept", "application/csv"));
    let is_chunked = form.contains("&chunked=true");
    let form = if is_csv {
        "csv "
    } else if is_chunked {
        "chunked "
    } else {
        ""
    };
    [form.as_bytes(), &percent_decoded(text)].concat()
}

fn percent_decoded(text: &str) -> Vec<u8> {
    let mut parts = text.split('%');
    let mut out = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (code, rest) = part.split_at(2);
        out.push(u8::from_str_radix(code, 16).expect("two digits"));
        out.extend_from_slice(rest.as_bytes());
    }
    out
}

/// Bytes of a text in which `\n`, `\t`, `\0` and `\x` are a newline, a tab, a NUL byte and a byte that no
/// UTF-8 has.
fn unescaped(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut bytes = text.bytes().peekable();
    while let Some(byte) = bytes.next() {
        let code = match (byte, bytes.peek()) {
            (b'\\', Some(b'n')) => b'\n',
            (b'\\', Some(b't')) => b'\t',
            (b'\\', Some(b'0')) => 0,
            (b'\\', Some(b'x')) => 0xff,
            _ => {
                out.push(byte);
                continue;
            }
        };
        out.push(code);
        bytes.next();
    }
    out
}

/// Parses a script.
pub(super) fn cases(script: &str) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    let mut exchanges: Vec<Exchange> = Vec::new();
    let mut database = "d0";
    let is_content = |line: &&str| !line.trim().is_empty() && !line.starts_with('#');
    for (idx, line) in script.lines().enumerate().filter(|(_, line)| is_content(line)) {
        let (word, rest) = line.trim().split_once(' ').expect("a word and its text");
        match word {
            "explains" | "refuses" => {
                finish(&mut cases, &mut exchanges);
                database = "d0";
                let (rule, is_explained) = (rest.to_owned(), word == "explains");
                cases.push(Case { line: idx + 1, rule, is_explained, ..Case::default() });
            }
            "index" => cases.last_mut().expect("a case").has_tsi = rest == "tsi1",
            "database" => database = DATABASE,
            "step" | "also" => {
                exchanges.push(Exchange { request: unescaped(rest), ..Exchange::default() });
                if word == "step" {
                    cases.last_mut().expect("a case").steps.push(step(rest, database));
                }
            }
            "unless" => exchanges.last_mut().expect("a request").unless = Some(unescaped(rest)),
            "both" => {
                add(exchanges.last_mut(), Side::Here, rest, false);
                add(exchanges.last_mut(), Side::InfluxDb, rest, false);
            }
            "here" => add(exchanges.last_mut(), Side::Here, rest, false),
            "InfluxDB" => add(exchanges.last_mut(), Side::InfluxDb, rest, false),
            "InfluxDB," => {
                let answer = rest.strip_prefix("later ").expect("a later answer");
                add(exchanges.last_mut(), Side::InfluxDb, answer, true);
            }
            _ => panic!("line {}: {line}", idx + 1),
        }
    }
    finish(&mut cases, &mut exchanges);
    cases
}

/// Gives the case its exchanges; those that hold for a time come first.
fn finish(cases: &mut [Case], exchanges: &mut Vec<Exchange>) {
    let Some(case) = cases.last_mut() else { return };
    let mut all = std::mem::take(exchanges);
    all.sort_by_key(|exchange| exchange.unless.is_none());
    for exchange in &all {
        let request = String::from_utf8_lossy(&exchange.request);
        assert!(exchange.answers.iter().all(|answers| !answers.is_empty()), "no answer to {request}");
    }
    case.exchanges = Rc::new(all);
}

fn step(request: &str, database: &'static str) -> Step {
    let output = Output { epoch: "ns", ..Output::default() };
    let query = |text: &str, output| Step::query(crate::piece::Piece::text(text), database, output);
    if let Some(body) = request.strip_prefix("write ") {
        return Step::write(DATABASE, "", "", unescaped(body));
    }
    if let Some(body) = request.strip_prefix("write@p ") {
        return Step::write(DATABASE, "p", "", unescaped(body));
    }
    if let Some(text) = request.strip_prefix("csv ") {
        return query(text, Output { accept: "application/csv", ..output });
    }
    if let Some(text) = request.strip_prefix("chunked ") {
        return query(text, Output { chunk_size: 1, ..output });
    }
    query(request, output)
}

fn add(exchange: Option<&mut Exchange>, side: Side, text: &str, is_later: bool) {
    let answers = &mut exchange.expect("a request comes first").answers[side as usize];
    let new = match text.split_once(' ').unwrap_or((text, "")) {
        ("nothing", _) => Answer::Series(Vec::new()),
        ("accepted", _) => Answer::Text { status: 204, body: String::new() },
        ("error:", error) => {
            let error = serde_json::to_string(error).expect("JSON");
            Answer::Text { status: 200, body: result(&format!(",\"error\":{error}")) }
        }
        ("text", body) => Answer::Text { status: 200, body: text_of(body) },
        ("status", rest) => {
            let (status, body) = rest.split_once(' ').expect("a status and a body");
            Answer::Text { status: status.parse().expect("a status"), body: text_of(body) }
        }
        _ => Answer::Series(vec![series(text)]),
    };
    match (answers.last_mut(), new) {
        (Some(Answer::Series(known)), Answer::Series(new)) if !is_later && !known.is_empty() => {
            known.extend(new);
        }
        (_, new) => answers.push(new),
    }
}

fn text_of(body: &str) -> String {
    String::from_utf8(unescaped(body)).expect("UTF-8")
}

/// Parts of `text` between `separator`s outside of quotes.
fn split(text: &str, separator: char) -> Vec<&str> {
    let mut is_quoted = false;
    text.split(move |letter: char| {
        is_quoted ^= letter == '"';
        letter == separator && !is_quoted
    })
    .collect()
}

/// A series as JSON.
fn series(text: &str) -> String {
    let (head, rows) = text.split_once(':').expect("a colon after the columns");
    let (name, columns) = head.rsplit_once(' ').unwrap_or(("", head));
    let (name, tags) = name.split_once('{').unwrap_or((name, ""));
    let quoted =
        |texts: Vec<&str>| texts.iter().map(|text| format!("{text:?}")).collect::<Vec<_>>().join(",");
    let mut members = Vec::new();
    if !name.is_empty() {
        members.push(format!("\"name\":{name:?}"));
    }
    if !tags.is_empty() {
        let tags = split(tags.trim_end_matches('}'), ',');
        let pairs = tags.iter().map(|tag| tag.split_once('=').expect("a tag with a value"));
        let pairs: Vec<String> = pairs.map(|(name, value)| format!("{name:?}:{value:?}")).collect();
        members.push(format!("\"tags\":{{{}}}", pairs.join(",")));
    }
    members.push(format!("\"columns\":[{}]", quoted(split(columns, ','))));
    let rows = split(rows.trim(), ' ').into_iter().filter(|row| !row.is_empty());
    let rows: Vec<String> = rows
        .map(|row| format!("[{}]", split(row, ',').into_iter().map(cell).collect::<Vec<_>>().join(",")))
        .collect();
    members.push(format!("\"values\":[{}]", rows.join(",")));
    format!("{{{}}}", members.join(","))
}

fn cell(text: &str) -> String {
    let is_value = matches!(text, "null" | "true" | "false") || text.parse::<f64>().is_ok();
    if is_value || text.starts_with('"') { text.to_owned() } else { format!("{text:?}") }
}
