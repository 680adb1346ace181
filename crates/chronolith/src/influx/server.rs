//! HTTP API of an InfluxDB 1.x, or of what answers like one: statements and writes.
//!
//! Invariants: a request that may be repeated without harm is repeated while the server is away or
//! overloaded, for [`RETRY_FOR_NS`] at most; every failure names the address.
//! Not here: the form of responses (`msgpack`), the statements.

use std::io::{ErrorKind, Read};
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chronolith_base::Env;

use super::msgpack::{Cell, ResponseError, Row, RowSink, SeriesHead, read_response};
use crate::client::{self, HttpClient};

/// Longest time for the rows of one statement.
const ROWS_TIMEOUT: Duration = Duration::from_secs(6 * 3600);
/// Time after which a server that is away ends the migration.
const RETRY_FOR_NS: u64 = 60_000_000_000;
/// First pause before a request is repeated; each further one is twice as long.
const PAUSE_FIRST: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Bytes of an error response that are read at most.
const ERROR_BYTES_MAX: u64 = 1 << 20;
/// Media type in which responses are read.
const MSGPACK: &str = "application/x-msgpack";
/// Rows per chunk of a response.
const CHUNK_ROWS: &str = "10000";

/// Address and credentials of a server.
#[derive(Debug, Clone, Default)]
pub(crate) struct ServerOptions {
    pub(crate) url: String,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) tenant: Option<String>,
}

/// A server, with its connections.
pub(crate) struct InfluxServer {
    env: Env,
    url: String,
    headers: Vec<(&'static str, String)>,
    client: HttpClient,
}

/// Database and retention policy that a write names.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct PolicyName {
    pub(crate) database: String,
    /// Empty for the default one.
    pub(crate) policy: String,
}

/// Points of a write that the server did not store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RefusedPoints {
    pub(super) count: u64,
    /// Set if they are older than the retention policy keeps points.
    pub(super) is_expired: bool,
    /// Error of the response; empty if there is none.
    pub(super) message: String,
}

impl RefusedPoints {
    /// Returns true if nothing of the request is stored because a new field has two types in it.
    pub(crate) fn is_of_all_by_conflict(&self) -> bool {
        self.message.starts_with("field type conflict")
    }
}

/// Rows of a small result, all texts.
#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: Vec<TableRow>,
}

/// A row of a [`Table`], with the series that it is of.
#[derive(Debug, Clone)]
pub(crate) struct TableRow {
    pub(super) series: String,
    columns: Vec<String>,
    values: Vec<String>,
}

impl TableRow {
    /// Returns the value of a column; empty if there is none.
    pub(crate) fn get(&self, column: &str) -> &str {
        let idx = self.columns.iter().position(|name| name == column);
        idx.and_then(|idx| self.values.get(idx)).map_or("", String::as_str)
    }
}

impl RowSink for Table {
    fn series(&mut self, head: &SeriesHead) -> anyhow::Result<()> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let columns = head.columns.iter().map(|column| text(column)).collect();
        // The head of the series, whose values the next rows are.
        self.rows.push(TableRow { series: text(&head.name), columns, values: Vec::new() });
        Ok(())
    }

    fn row(&mut self, row: &Row) -> anyhow::Result<()> {
        let head = self.rows.last().cloned().context("a row without a series")?;
        let value = |cell: &Cell| match *cell {
            Cell::Null => String::new(),
            Cell::Boolean(value) => value.to_string(),
            Cell::Integer(value) => value.to_string(),
            Cell::Unsigned(value) => value.to_string(),
            Cell::Float(value) => value.to_string(),
            text => String::from_utf8_lossy(row.text(text)).into_owned(),
        };
        let values = row.cells.iter().map(value).collect();
        if let Some(last) = self.rows.last_mut().filter(|last| last.values.is_empty()) {
            last.values = values;
        } else {
            self.rows.push(TableRow { values, ..head });
        }
        Ok(())
    }
}

impl InfluxServer {
    pub(crate) fn new(env: &Env, options: &ServerOptions) -> anyhow::Result<InfluxServer> {
        let mut headers = Vec::new();
        if let Some(user) = &options.user {
            let password = options.password.as_deref().unwrap_or("");
            let encoded = STANDARD.encode(format!("{user}:{password}"));
            headers.push(("Authorization", format!("Basic {encoded}")));
        }
        headers.extend(options.tenant.clone().map(|tenant| ("X-Scope-OrgID", tenant)));
        let client = HttpClient::new(ROWS_TIMEOUT)?;
        Ok(InfluxServer { env: env.clone(), url: options.url.clone(), headers, client })
    }

    /// Address, for messages.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Checks once that the server answers and knows the credentials.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        let answer = self.rows("SHOW DATABASES", &mut Table::default());
        answer.with_context(|| format!("query at {}", self.url))
    }

    /// Runs a statement and returns its rows.
    pub(crate) fn table(&self, statement: &str) -> anyhow::Result<Vec<TableRow>> {
        let read = || {
            let mut table = Table::default();
            self.rows(statement, &mut table).map(|()| table)
        };
        let mut table = self.repeated(read)?;
        table.rows.retain(|row| !row.values.is_empty());
        Ok(table.rows)
    }

    /// Runs a statement without rows.
    pub(crate) fn run(&self, statement: &str) -> anyhow::Result<()> {
        self.table(statement).map(drop)
    }

    /// Runs a statement once and hands its rows to `sink`.
    pub(crate) fn rows(&self, statement: &str, sink: &mut dyn RowSink) -> Result<(), ResponseError> {
        let mut request = self.client.post(&client::join(&self.url, "/query"));
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        let form = [("q", statement), ("epoch", "ns"), ("chunked", "true"), ("chunk_size", CHUNK_ROWS)];
        let response = self.client.send(request.header("Accept", MSGPACK).form(&form))?;
        let status = response.status();
        let is_msgpack = response.header("content-type") == Some(MSGPACK);
        if status == 200 {
            return read_response(response, sink);
        }
        let body = response.take(ERROR_BYTES_MAX);
        let text = match is_msgpack {
            true => match read_response(body, sink) {
                Err(ResponseError::Statement(text)) => text,
                Err(error) => error.to_string(),
                Ok(()) => String::new(),
            },
            false => error_text(body),
        };
        if status >= 500 {
            return Err(ResponseError::Transport(std::io::Error::other(format!("status {status}: {text}"))));
        }
        Err(ResponseError::Statement(text))
    }

    /// Repeats a statement whose connection fails.
    pub(crate) fn repeated<T>(
        &self,
        mut read: impl FnMut() -> Result<T, ResponseError>,
    ) -> anyhow::Result<T> {
        let mut retry = Retry::new(&self.env);
        loop {
            match read() {
                Ok(done) => return Ok(done),
                // A read that failed is not tried again: it would fail the same way.
                Err(ResponseError::Transport(error))
                    if error.kind() != ErrorKind::InvalidData && retry.pause() => {}
                Err(ResponseError::Sink(error)) => return Err(error),
                Err(error) => return Err(anyhow!(error).context(format!("query at {}", self.url))),
            }
        }
    }

    /// Writes lines with times in nanoseconds; returns the refused points.
    pub(crate) fn write(&self, target: &PolicyName, lines: &[u8]) -> anyhow::Result<RefusedPoints> {
        let url = client::join(&self.url, "/write");
        let mut retry = Retry::new(&self.env);
        loop {
            let mut request = self.client.post(&url).query(&[("db", &*target.database), ("precision", "ns")]);
            if !target.policy.is_empty() {
                request = request.query(&[("rp", &target.policy)]);
            }
            for (name, value) in &self.headers {
                request = request.header(*name, value);
            }
            let request = request.header("Content-Type", "text/plain; charset=utf-8").body(lines.to_vec());
            let failure = match self.client.send(request) {
                Ok(response) => {
                    let status = response.status();
                    let text = error_text(response.take(ERROR_BYTES_MAX));
                    match status {
                        204 => return Ok(RefusedPoints::default()),
                        400 => return Ok(refused(&text, lines)),
                        // A missing policy is answered with 500.
                        500.. if !text.contains("retention policy not found") => {
                            format!("status {status}: {text}")
                        }
                        _ => bail!("writing to {url}: status {status}: {text}"),
                    }
                }
                Err(error) => error.to_string(),
            };
            if !retry.pause() {
                bail!("writing to {url}: {failure}");
            }
        }
    }
}

/// Returns the message of an error response.
fn error_text(mut body: impl Read) -> String {
    let mut bytes = Vec::new();
    if let Err(error) = body.read_to_end(&mut bytes) {
        return error.to_string();
    }
    let parsed: Option<serde_json::Value> = serde_json::from_slice(&bytes).ok();
    let message = parsed.as_ref().and_then(|value| value.get("error")).and_then(|text| text.as_str());
    message.map_or_else(|| String::from_utf8_lossy(&bytes).trim().to_owned(), str::to_owned)
}

/// Reads a response about points that are not stored. InfluxDB counts those that it dropped after parsing,
/// and quotes the others line by line; all of them if it says neither.
fn refused(message: &str, lines: &[u8]) -> RefusedPoints {
    let unparsable = message.matches("unable to parse '").count() as u64;
    let dropped = message.rsplit_once("dropped=").and_then(|(_, count)| count.trim().parse::<u64>().ok());
    let count = match unparsable + dropped.unwrap_or(0) {
        0 => lines.iter().filter(|byte| **byte == b'\n').count() as u64,
        count => count,
    };
    let is_expired = message.contains("points beyond retention policy");
    RefusedPoints { count, is_expired, message: message.to_owned() }
}

/// Pauses between attempts.
struct Retry {
    env: Env,
    start_ns: u64,
    pause: Duration,
}

impl Retry {
    fn new(env: &Env) -> Retry {
        Retry { env: env.clone(), start_ns: env.clock.mono_ns(), pause: PAUSE_FIRST }
    }

    /// Waits before the next attempt; returns false if there should be none.
    fn pause(&mut self) -> bool {
        if self.env.clock.mono_ns().saturating_sub(self.start_ns) > RETRY_FOR_NS {
            return false;
        }
        std::thread::sleep(self.pause);
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_points_are_counted() {
        let check = |message: &str, count: u64, is_expired: bool| {
            let found = refused(message, b"a v=1 1\nb v=1 1\n");
            assert_eq!((found.count, found.is_expired), (count, is_expired), "{message}");
        };
        check("partial write: field type conflict: input field \"v\" ... dropped=2", 2, false);
        check("partial write: points beyond retention policy dropped=1", 1, true);
        check("partial write: unable to parse 'a': missing fields dropped=0", 1, false);
        check("unable to parse 'a': missing fields\nunable to parse 'b': missing fields", 2, false);
        check("something else", 2, false);
    }
}
