//! Answers of the InfluxDB API to hand-written requests: scripts in `influx/*.txt`, each sent over a socket
//! to a server of its own, to a gateway with its owner, and to these with a query node for all but writes.
//!
//! Expected answers come from the documentation and the release notes of InfluxDB 1.8; InfluxDB 1.8.10 (with
//! unsigned integers) gives all of them, but for those that are marked with a reason ([`INFLUXD_ENV`]). Form
//! of a script (blank lines and lines with `#` are skipped):
//!
//! ```text
//! write LINE            a point of the database `db`, times in seconds; consecutive lines are one request
//! ask STATEMENT         a statement on the database `db`; times of the answer are seconds
//!   m{host=a} time,v: 10,1.5 20,null      one line per series: name, tags, columns, rows
//!   error: TEXT                           or the error of the statement
//!   nothing                               or no series
//! POST /path?q=`text`   any request; text in backticks is percent-encoded
//! + Name: value         one of its headers
//! > text                a line of its body; `\r` is a carriage return
//! < 400                 status of its answer
//! < Name: value         a header of its answer
//! < text                a line of the body of its answer
//! ! reason              InfluxDB 1.8.10 answers in another way, and why that is not followed
//! ~ reason              a cluster answers in another way, and why; an equal answer is an error
//! ```
//!
//! Not here: random statements against a running InfluxDB (`fuzz`), limits and pages of other origins (tests
//! of the crate itself).

mod influxd;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use chronolith_server::ServerOptions;
use serde_json::Value;

use self::influxd::Influxd;
use crate::topology::{STRONG, TestServers, Topology};

/// Longer than any answer takes, so that a hang fails instead of hanging the run.
const ANSWER_WAIT: Duration = Duration::from_secs(30);

/// Environment variable with a program `influxd`: the scripts are sent to it instead. `cargo xtask peers`
/// builds 1.8.10.
const INFLUXD_ENV: &str = "CHRONOLITH_TEST_INFLUXD";

/// Looks at the databases of two processes until they are equal, each some milliseconds long.
const LOOKS_MAX: usize = 2000;

/// In front of a number in [`numbers_as_texts`].
const NUMBER_MARK: &str = "number ";

#[derive(Debug, Default)]
struct Request {
    method: String,
    target: String,
    headers: Vec<String>,
    body: Vec<String>,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Reply {
    status: String,
    headers: Vec<String>,
    body: Vec<u8>,
}

/// A request of a script with its line and the expected answer.
struct Case {
    line: usize,
    title: String,
    request: Request,
    want: Vec<String>,
    /// The answer is compared in the short form of `ask`.
    is_statement: bool,
    /// InfluxDB 1.8.10 answers in another way.
    differs: bool,
    /// A cluster answers in another way.
    differs_in_cluster: bool,
}

/// Returns `text` with the parts in backticks percent-encoded and without the backticks.
fn encode(text: &str) -> String {
    let mut out = String::new();
    let mut is_inside = false;
    for byte in text.bytes() {
        match byte {
            b'`' => is_inside = !is_inside,
            _ if is_inside && !byte.is_ascii_alphanumeric() => out.push_str(&format!("%{byte:02X}")),
            _ => out.push(byte as char),
        }
    }
    out
}

fn post(target: String) -> Request {
    Request { method: "POST".to_owned(), target, ..Request::default() }
}

fn parse(script: &str) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for (idx, text) in script.lines().enumerate() {
        let line = idx + 1;
        let title = text.to_owned();
        let case = |request, want, is_statement| Case {
            line,
            title,
            request,
            want,
            is_statement,
            differs: false,
            differs_in_cluster: false,
        };
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        if let Some(point) = text.strip_prefix("write ") {
            let previous =
                cases.last_mut().filter(|case| case.request.target.starts_with("/write?db=db&pre"));
            if let Some(case) = previous {
                case.request.body.push(point.to_owned());
                continue;
            }
            let mut request = post("/write?db=db&precision=s".to_owned());
            request.body.push(point.to_owned());
            cases.push(case(request, vec!["204".to_owned()], false));
        } else if let Some(statement) = text.strip_prefix("ask ") {
            let mut request = post("/query?db=db&epoch=s".to_owned());
            request.headers.push("Content-Type: application/x-www-form-urlencoded".to_owned());
            let text = statement.bytes().map(|byte| format!("%{byte:02X}")).collect::<String>();
            request.body.push(format!("q={text}"));
            cases.push(case(request, Vec::new(), true));
        } else if text.starts_with("GET ") || text.starts_with("POST ") || text.starts_with("HEAD ") {
            let (method, target) = text.split_once(' ').expect("a method");
            let request = Request { method: method.to_owned(), target: encode(target), ..Request::default() };
            cases.push(case(request, Vec::new(), false));
        } else {
            let last = cases.last_mut().expect("a request comes first");
            let (mark, rest) = text.split_at(2.min(text.len()));
            match mark.trim_end() {
                "+" => last.request.headers.push(rest.to_owned()),
                "!" => last.differs = true,
                "~" => last.differs_in_cluster = true,
                ">" => last.request.body.push(rest.replace("\\r", "\r")),
                "<" | "" => last.want.push(rest.to_owned()),
                _ => panic!("line {line} has no mark: {text}"),
            }
        }
    }
    cases
}

/// Joins the parts of a body that was sent in chunks.
fn dechunk(mut bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    while let Some(end) = bytes.windows(2).position(|pair| pair == b"\r\n") {
        let size = std::str::from_utf8(&bytes[..end]).expect("a size");
        let size = usize::from_str_radix(size, 16).expect("a size");
        out.extend_from_slice(&bytes[end + 2..end + 2 + size]);
        bytes = &bytes[end + 4 + size..];
    }
    out
}

fn send(address: SocketAddr, request: &Request) -> Reply {
    let mut stream = TcpStream::connect(address).expect("connects");
    stream.set_read_timeout(Some(ANSWER_WAIT)).expect("timeout");
    let body = request.body.join("\n");
    let mut head = format!("{} {} HTTP/1.1\r\n", request.method, request.target);
    request.headers.iter().for_each(|header| head.push_str(&format!("{header}\r\n")));
    head.push_str(&format!("{STRONG}\r\nHost: x\r\nConnection: close\r\n"));
    head.push_str(&format!("Content-Length: {}\r\n\r\n", body.len()));
    stream.write_all(head.as_bytes()).expect("head");
    stream.write_all(body.as_bytes()).expect("body");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("answer");
    let head_end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("a head");
    let head = String::from_utf8_lossy(&answer[..head_end]).into_owned();
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).expect("status").to_owned();
    let headers: Vec<String> = lines.map(|line| line.to_ascii_lowercase()).collect();
    let body = answer.split_off(head_end + 4);
    let is_chunked = headers.iter().any(|header| header == "transfer-encoding: chunked");
    Reply { status, headers, body: if is_chunked { dechunk(&body) } else { body } }
}

/// The result of one statement in the short form of `ask`.
fn short_form(body: &[u8]) -> Vec<String> {
    let json: Value = serde_json::from_str(&numbers_as_texts(body)).expect("JSON");
    if let Some(error) = json["error"].as_str() {
        return vec![format!("request error: {error}")];
    }
    let result = &json["results"][0];
    if let Some(error) = result["error"].as_str() {
        return vec![format!("error: {error}")];
    }
    let Some(all) = result["series"].as_array() else { return vec!["nothing".to_owned()] };
    all.iter().map(short_series).collect()
}

/// A cell of a row: a number as it was sent, other values as JSON.
fn cell(value: &Value) -> String {
    let number = value.as_str().and_then(|text| text.strip_prefix(NUMBER_MARK));
    number.map_or_else(|| value.to_string(), str::to_owned)
}

/// Makes each number a text that begins with [`NUMBER_MARK`]: `serde_json` does not keep all of its digits.
fn numbers_as_texts(body: &[u8]) -> String {
    let body = std::str::from_utf8(body).expect("UTF-8");
    let mut out = String::new();
    let mut is_text = false;
    let mut is_number = false;
    let mut is_escaped = false;
    for letter in body.chars() {
        if is_number && !matches!(letter, '0'..='9' | '.' | '-' | '+' | 'e' | 'E') {
            out.push('"');
            is_number = false;
        }
        if !is_text && !is_number && (letter.is_ascii_digit() || letter == '-') {
            out.push('"');
            out.push_str(NUMBER_MARK);
            is_number = true;
        }
        is_text ^= letter == '"' && !is_escaped;
        is_escaped = letter == '\\' && !is_escaped;
        out.push(letter);
    }
    out
}

fn short_series(series: &Value) -> String {
    let list = |values: &Value| values.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
    let mut out = text(&series["name"]);
    if let Some(tags) = series["tags"].as_object() {
        let tags: Vec<String> = tags.iter().map(|(name, value)| format!("{name}={}", text(value))).collect();
        out.push_str(&format!("{{{}}}", tags.join(",")));
    }
    let columns: Vec<String> = list(&series["columns"]).iter().map(text).collect();
    out.push_str(&format!(" {}:", columns.join(",")));
    for row in list(&series["values"]) {
        let cells: Vec<String> = list(&row).iter().map(cell).collect();
        out.push_str(&format!(" {}", cells.join(",")));
    }
    out.trim_start().to_owned()
}

/// Returns the lines of a reply that a case of requests expects, for comparison with them.
fn long_form(reply: &Reply, want: &[String]) -> Vec<String> {
    let mut lines = vec![reply.status.clone()];
    let expected = want.iter().skip(1).take_while(|line| is_header(line));
    for header in expected {
        let name = header.split(':').next().unwrap_or("").to_ascii_lowercase();
        let found = reply.headers.iter().find(|found| found.split(':').next() == Some(&name));
        let found = found.filter(|found| **found == header.to_ascii_lowercase());
        lines.push(found.map_or_else(|| format!("{name}: {:?}", reply.headers), |_| header.clone()));
    }
    let body: String = match std::str::from_utf8(&reply.body) {
        Ok(text) => text.to_owned(),
        Err(_) => reply.body.iter().map(|byte| format!("{byte:02x}")).collect(),
    };
    lines.extend(body.trim_end_matches('\n').split('\n').filter(|_| !body.is_empty()).map(str::to_owned));
    lines
}

/// Returns true if an expected line names a header: its name has capitals and no blank.
fn is_header(line: &str) -> bool {
    let name = line.split_once(": ").map_or("", |(name, _)| name);
    name.starts_with(|first: char| first.is_ascii_uppercase())
        && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '-')
}

/// Server that a script is sent to.
enum Target {
    Own(Box<TestServers>),
    Influxd(Influxd),
}

impl Target {
    /// Starts this server, or the program that [`INFLUXD_ENV`] names.
    fn start(topology: Topology, dir: &Path, change: impl FnOnce(&mut ServerOptions)) -> Target {
        if let Some(program) = std::env::var_os(INFLUXD_ENV) {
            let mut options = ServerOptions::new(dir.to_owned());
            change(&mut options);
            let has_auth = options.service.influx.auth_enabled;
            return Target::Influxd(Influxd::start(Path::new(&program), dir, has_auth));
        }
        let servers = topology.start(dir, |options| {
            options.service.influx.runs_continuous_queries = false;
            change(options);
        });
        Target::Own(Box::new(servers))
    }

    /// Sends the request of a case: points and deletions to the process for writes, everything else to the
    /// one for reads.
    fn send(&self, case: &Case) -> Reply {
        let request = &case.request;
        let (writer, reader) = match self {
            Target::Own(servers) => (servers.writer(), servers.reader()),
            Target::Influxd(influxd) => (influxd.address, influxd.address),
        };
        let path = request.target.split('?').next().unwrap_or("");
        let is_deletion =
            ["DELETE", "DROP SERIES", "DROP MEASUREMENT"].iter().any(|word| case.title.contains(word));
        if path.ends_with("/write") || is_deletion {
            return send(writer, request);
        }
        let reply = send(reader, request);
        let is_change = ["CREATE", "ALTER", "DROP"].iter().any(|word| case.title.contains(word));
        if writer != reader && is_change {
            await_databases(writer, reader);
        }
        reply
    }

    fn stop(self) {
        match self {
            Target::Own(servers) => servers.stop(),
            Target::Influxd(influxd) => drop(influxd),
        }
    }
}

/// Waits until two processes of a cluster have the same databases. Each look makes a process read the
/// databases of the bucket again.
fn await_databases(writer: SocketAddr, reader: SocketAddr) {
    let show = post(encode("/query?q=`SHOW DATABASES; SHOW RETENTION POLICIES ON db`"));
    let shown = |address| send(address, &show).body;
    for _ in 0..LOOKS_MAX {
        if shown(writer) == shown(reader) {
            return;
        }
    }
    panic!("the databases of two processes differ after {LOOKS_MAX} looks");
}

/// Sends the script to all servers: to InfluxDB, or to each topology.
#[track_caller]
fn run(script: &str) {
    run_on(Topology::Single, script, |_| {});
    if std::env::var_os(INFLUXD_ENV).is_none() {
        run_on(Topology::DirLog, script, |_| {});
        run_on(Topology::QueryNode, script, |_| {});
    }
}

#[track_caller]
fn run_on(topology: Topology, script: &str, change: impl FnOnce(&mut ServerOptions)) {
    let dir = tempfile::tempdir().expect("directory");
    let server = Target::start(topology, dir.path(), change);
    let is_influxd = matches!(server, Target::Influxd(_));
    let mut different = Vec::new();
    let cases = parse(script);
    assert!(!cases.is_empty());
    for case in &cases {
        let reply = server.send(case);
        let got = match case.is_statement {
            true => short_form(&reply.body),
            false => long_form(&reply, &case.want),
        };
        let has_to_differ = case.differs_in_cluster && topology != Topology::Single;
        if (got != case.want) != has_to_differ && !(case.differs && is_influxd) {
            let text = format!("line {}: {}", case.line, case.title);
            let (want, got) = (case.want.join("\n    "), got.join("\n    "));
            different.push(format!("{text}\n  want\n    {want}\n  got\n    {got}"));
        }
    }
    server.stop();
    let count = different.len();
    assert!(different.is_empty(), "{topology:?}: {count} of {}\n{}", cases.len(), different.join("\n"));
}

#[test]
fn functions() {
    run(include_str!("influx/functions.txt"));
}

#[test]
fn clauses() {
    run(include_str!("influx/clauses.txt"));
}

#[test]
fn examples_of_the_documentation() {
    run(include_str!("influx/documentation.txt"));
}

#[test]
fn schema() {
    run(include_str!("influx/schema.txt"));
}

#[test]
fn errors() {
    run(include_str!("influx/errors.txt"));
}

#[test]
fn formats() {
    run(include_str!("influx/formats.txt"));
}

#[test]
fn values_of_fill() {
    run(include_str!("influx/fill.txt"));
}

#[test]
fn fill_for_calls_without_values() {
    run(include_str!("influx/fill_without_values.txt"));
}

#[test]
fn types_that_functions_refuse() {
    run(include_str!("influx/type_errors.txt"));
}

#[test]
fn nan_is_a_value_below_the_answer() {
    run(include_str!("influx/nan.txt"));
}

#[test]
fn ranges_that_end_before_they_begin() {
    run(include_str!("influx/empty_ranges.txt"));
}

#[test]
fn floats_beyond_integers() {
    run(include_str!("influx/large_floats.txt"));
}

#[test]
fn rounding_of_numbers() {
    run(include_str!("influx/rounding.txt"));
}

#[test]
fn several_calls_over_a_subquery() {
    run(include_str!("influx/joined_calls.txt"));
}

#[test]
fn limits_of_a_subquery() {
    run(include_str!("influx/subquery_limits.txt"));
}

#[test]
fn names_of_a_subquery() {
    run(include_str!("influx/subquery_names.txt"));
}

#[test]
fn columns_of_a_subquery_without_a_type() {
    run(include_str!("influx/untyped_columns.txt"));
}

#[test]
fn types_in_windows_before_the_range() {
    run(include_str!("influx/types_before_range.txt"));
}

#[test]
fn wildcards_in_conditions() {
    run(include_str!("influx/wildcard_conditions.txt"));
}

#[test]
fn conditions_without_a_comparison() {
    run(include_str!("influx/constant_conditions.txt"));
}

#[test]
fn transformations_of_windows() {
    run(include_str!("influx/transformed_windows.txt"));
}

#[test]
fn last_digits_of_numbers() {
    run(include_str!("influx/last_digits.txt"));
}

#[test]
fn names_that_a_subquery_lacks() {
    run(include_str!("influx/absent_names.txt"));
}

#[test]
fn tabs_in_lines() {
    run(include_str!("influx/tabs.txt"));
}

#[test]
fn lists_after_a_deletion() {
    run(include_str!("influx/deleted.txt"));
}

#[test]
fn types_of_fields() {
    run(include_str!("influx/types.txt"));
}

#[test]
fn changes_of_version_1_8() {
    run(include_str!("influx/version_1_8.txt"));
}

#[test]
fn access() {
    // A cluster has no users of InfluxDB.
    let change = |options: &mut ServerOptions| options.service.influx.auth_enabled = true;
    run_on(Topology::Single, include_str!("influx/access.txt"), change);
}
