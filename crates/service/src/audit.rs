//! Audit log (`audit.file`): one line of JSON per action that changes something other than samples, and per
//! refused login.
//!
//! Invariants: the line of an action is on disk before the action begins, and an action whose line cannot be
//! written does not happen. A line of a query or of a refused login that cannot be written is counted, and
//! nothing is refused for it.
//! Not here: the actions and their parameters (`server::http::audit`), the query log (`query::log`).

use std::io;
use std::path::{Path, PathBuf};

use chronolith_base::utc::rfc3339_ms;
use chronolith_base::{Disk, DiskFile, Env};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use crate::counter::Counter;

/// Lines of refused requests per [`REFUSED_WINDOW_MS`]; further ones are counted.
const REFUSED_LINES_MAX: u64 = 100;
const REFUSED_WINDOW_MS: i64 = 10_000;
/// Bytes of one text of a line; the rest is cut off.
const TEXT_BYTES_MAX: usize = 4096;
/// Texts of a list in a line; the rest is cut off.
const LIST_COUNT_MAX: usize = 100;

/// Settings of the audit log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditOptions {
    /// The file; `None`: there is no audit log.
    pub file: Option<PathBuf>,
    /// Size in bytes from which the file is renamed and a new one begun.
    pub file_bytes_max: u64,
    /// Number of renamed files that are kept, at least 1.
    pub file_count_max: usize,
    /// True if each query has a line too.
    pub has_queries: bool,
}

impl Default for AuditOptions {
    fn default() -> Self {
        AuditOptions { file: None, file_bytes_max: 64 << 20, file_count_max: 10, has_queries: false }
    }
}

/// The audit log and counts of its lines.
pub struct AuditLog {
    options: AuditOptions,
    file: Mutex<State>,
    refused: Mutex<RefusedWindow>,
    /// Lines that were written.
    pub lines: Counter,
    /// Bytes that were written.
    pub bytes: Counter,
    /// Lines that could not be written.
    pub failures: Counter,
    /// Refused requests without a line of their own.
    pub suppressed: Counter,
}

#[derive(Default)]
struct State {
    /// `None` after a failure: the next line opens the file again.
    file: Option<Box<dyn DiskFile>>,
    len: u64,
    /// Part of a line may be at the end of the file.
    is_torn: bool,
}

#[derive(Default)]
struct RefusedWindow {
    start_ms: i64,
    line_count: u64,
    suppressed_count: u64,
}

/// Sender and subject of a line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditSubject {
    /// Id of the request; the same in the lines of its begin and its end.
    pub request_id: String,
    /// Name of the principal; `None` before a login.
    pub principal: Option<String>,
    /// Address of the client; `None` for the server itself.
    pub address: Option<String>,
    /// Subject and fingerprint of the client's certificate.
    pub certificate: Option<String>,
    /// Tenants of the request.
    pub tenants: Vec<String>,
    /// Method and path, or the name of an action of the server itself.
    pub action: String,
    /// Parameters that name the object of the action.
    pub target: Map<String, Value>,
}

/// Outcome of an action or a query.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AuditOutcome {
    /// Status of the response.
    pub status: u16,
    /// Reason of a failure.
    pub error: Option<String>,
    /// Numbers of series and the like, and names of results.
    pub counts: Map<String, Value>,
}

/// Right to the line of a refused request.
pub struct RefusedLine {
    /// Refused requests without a line since the last one.
    suppressed_count: u64,
}

/// The line of an action cannot be written, so the action does not happen.
#[derive(Debug, thiserror::Error)]
#[error("refused, because its line cannot be written to the audit log (audit.file): {0}")]
pub struct AuditFailure(#[from] io::Error);

/// Durability of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Durability {
    /// On disk when the call returns.
    Synced,
    /// Written, and on disk when the operating system writes it.
    Written,
}

impl AuditLog {
    /// A log whose file is opened by [`AuditLog::open`] or the first line.
    #[must_use]
    pub fn new(options: AuditOptions) -> AuditLog {
        AuditLog {
            options,
            file: Mutex::default(),
            refused: Mutex::default(),
            lines: Counter::default(),
            bytes: Counter::default(),
            failures: Counter::default(),
            suppressed: Counter::default(),
        }
    }

    /// Returns true if there is a log.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.options.file.is_some()
    }

    /// Returns true if queries have lines.
    #[must_use]
    pub fn has_queries(&self) -> bool {
        self.is_on() && self.options.has_queries
    }

    /// Opens the file, or opens it again after another program has renamed it.
    ///
    /// # Errors
    /// Text for the operator, which names the file.
    pub fn open(&self, disk: &dyn Disk) -> Result<(), String> {
        let Some(path) = &self.options.file else { return Ok(()) };
        let opened = State::open(disk, path);
        *self.file.lock() = opened.map_err(|error| format!("audit.file {}: {error}", path.display()))?;
        Ok(())
    }

    /// Writes the line of an action that begins. Blocks the thread until it is on disk.
    ///
    /// # Errors
    /// [`AuditFailure`]: the action must not happen.
    pub fn begin(&self, env: &Env, subject: &AuditSubject) -> Result<(), AuditFailure> {
        let line = line(env, subject, "begin", Map::new());
        Ok(self.append(&*env.disk, &line, Durability::Synced)?)
    }

    /// Writes the line of an action that has ended. A failure is counted and logged: the action has happened,
    /// and its first line is on disk. Blocks the thread.
    pub fn end(&self, env: &Env, subject: &AuditSubject, outcome: AuditOutcome) {
        self.append_outcome(env, subject, outcome, Durability::Synced);
    }

    /// Writes the line of a query that has ended. Blocks the thread for a write without a sync.
    pub fn query(&self, env: &Env, subject: &AuditSubject, outcome: AuditOutcome) {
        self.append_outcome(env, subject, outcome, Durability::Written);
    }

    /// Writes the line of a request that access control has refused. `user` is the name of the known user
    /// that a login was tried for. Blocks the thread for a write without a sync.
    pub fn refused(
        &self,
        env: &Env,
        subject: &AuditSubject,
        user: Option<&str>,
        reason: &str,
        RefusedLine { suppressed_count }: RefusedLine,
    ) {
        let mut more = Map::new();
        more.insert("error".to_owned(), json!(cut(reason)));
        if let Some(user) = user {
            more.insert("user".to_owned(), json!(cut(user)));
        }
        if suppressed_count > 0 {
            more.insert("suppressed".to_owned(), json!(suppressed_count));
        }
        // A failure is counted there.
        let _ = self.append(&*env.disk, &line(env, subject, "refused", more), Durability::Written);
    }

    /// Returns the right to a line of a refused request; `None` without a log, or if there were many of these
    /// lines within a short time. Cost: a mutex.
    pub fn admit_refused(&self, now_ms: i64) -> Option<RefusedLine> {
        if !self.is_on() {
            return None;
        }
        let mut window = self.refused.lock();
        // A clock that was set back begins a window too.
        if !(window.start_ms..window.start_ms.saturating_add(REFUSED_WINDOW_MS)).contains(&now_ms) {
            window.start_ms = now_ms;
            window.line_count = 0;
        }
        if window.line_count >= REFUSED_LINES_MAX {
            window.suppressed_count += 1;
            self.suppressed.add(1);
            return None;
        }
        window.line_count += 1;
        Some(RefusedLine { suppressed_count: std::mem::take(&mut window.suppressed_count) })
    }

    fn append_outcome(
        &self,
        env: &Env,
        subject: &AuditSubject,
        outcome: AuditOutcome,
        durability: Durability,
    ) {
        let mut more = Map::new();
        more.insert("status".to_owned(), json!(outcome.status));
        if let Some(error) = &outcome.error {
            more.insert("error".to_owned(), json!(cut(error)));
        }
        if !outcome.counts.is_empty() {
            more.insert("counts".to_owned(), bounded(&Value::Object(outcome.counts)));
        }
        let result = if outcome.status < 400 && outcome.error.is_none() { "done" } else { "failed" };
        // A failure is counted there.
        let _ = self.append(&*env.disk, &line(env, subject, result, more), durability);
    }

    fn append(&self, disk: &dyn Disk, line: &Value, durability: Durability) -> io::Result<()> {
        let Some(path) = &self.options.file else { return Ok(()) };
        let text = format!("{line}\n");
        let written = self.write(disk, path, &text, durability);
        match &written {
            Ok(()) => {
                self.lines.add(1);
                self.bytes.add(text.len() as u64);
            }
            Err(error) => {
                if self.failures.get() == 0 {
                    tracing::error!(%error, "writing the audit log failed, admin actions are refused; further failures are only counted (chronolith_audit_failures_total)");
                }
                self.failures.add(1);
            }
        }
        written
    }

    fn write(&self, disk: &dyn Disk, path: &Path, line: &str, durability: Durability) -> io::Result<()> {
        let mut state = self.file.lock();
        if state.file.is_none() {
            *state = State::open(disk, path)?;
        }
        if state.len >= self.options.file_bytes_max {
            *state = State::default();
            rotate(disk, path, self.options.file_count_max.max(1))?;
            *state = State::open(disk, path)?;
        }
        let written = state.write(line, durability);
        if written.is_err() {
            // The next line opens the file again, and ends the part of this line that is there.
            *state = State::default();
        }
        written
    }
}

impl State {
    fn open(disk: &dyn Disk, path: &Path) -> io::Result<State> {
        let file = match disk.open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let file = disk.create(path)?;
                disk.sync_dir(parent_of(path))?;
                file
            }
            opened => opened?,
        };
        let len = file.len()?;
        let mut last = [b'\n'];
        if len > 0 {
            file.read_at(&mut last, len - 1)?;
        }
        Ok(State { file: Some(file), len, is_torn: last != [b'\n'] })
    }

    fn write(&mut self, line: &str, durability: Durability) -> io::Result<()> {
        let Some(file) = &self.file else { return Err(io::Error::other("the file is not open")) };
        let mut bytes = Vec::with_capacity(line.len() + 1);
        if self.is_torn {
            bytes.push(b'\n');
        }
        bytes.extend_from_slice(line.as_bytes());
        let written = file.write_at(&bytes, self.len).and_then(|()| match durability {
            Durability::Synced => file.sync_data(),
            Durability::Written => Ok(()),
        });
        if let Err(error) = written {
            // If this fails too, the beginning of a line stays, which the next one ends.
            let _ = file.set_len(self.len);
            return Err(error);
        }
        self.len += bytes.len() as u64;
        self.is_torn = false;
        Ok(())
    }
}

/// Renames `x` to `x.1`, `x.1` to `x.2` and so on; the file `x.COUNT` is replaced.
fn rotate(disk: &dyn Disk, path: &Path, file_count_max: usize) -> io::Result<()> {
    let numbered = |number: usize| {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{number}"));
        PathBuf::from(name)
    };
    for number in (1..file_count_max).rev() {
        match disk.rename(&numbered(number), &numbered(number + 1)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    disk.rename(path, &numbered(1))?;
    disk.sync_dir(parent_of(path))
}

fn parent_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn line(env: &Env, subject: &AuditSubject, result: &str, more: Map<String, Value>) -> Value {
    let mut line = json!({
        "time": rfc3339_ms(env.clock.now_ms()),
        "requestId": subject.request_id,
        "principal": subject.principal,
        "address": subject.address,
        "certificate": subject.certificate,
        "tenants": subject.tenants,
        "action": cut(&subject.action),
        "target": bounded(&Value::Object(subject.target.clone())),
        "result": result,
    });
    if let Value::Object(line) = &mut line {
        line.extend(more);
    }
    line
}

/// The same value with texts and lists of bounded length.
fn bounded(value: &Value) -> Value {
    match value {
        Value::String(text) => Value::from(cut(text)),
        Value::Array(list) => list.iter().take(LIST_COUNT_MAX).map(bounded).collect(),
        Value::Object(map) => map.iter().map(|(name, value)| (name.clone(), bounded(value))).collect(),
        other => other.clone(),
    }
}

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(TEXT_BYTES_MAX)]
}

#[cfg(test)]
mod tests;
