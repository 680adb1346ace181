//! Import of a file of `influx_inspect export`, or for `influx -import`: statements, contexts and points are
//! sent to a server.
//!
//! Invariants: memory is bounded by batches in flight and the counts of series; a good line is stored
//! although a bad one is next to it; a run that was killed continues at the first batch that was not
//! confirmed. Continuous queries are created last, so that none runs over half of the points.
//! Not here: the borders of lines (`lines`), HTTP (`server`), counts (`file_counts`).

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context as _;
use chronolith_base::{DiskFile, Env, crc};
use chronolith_ingest::line_protocol::{self, DecodeOptions, Precision};
use chronolith_model::WriteBatch;
use flate2::read::MultiGzDecoder;
use serde::{Deserialize, Serialize};

use super::fault::fault_of;
use super::file_counts::FileCounts;
use super::lines::LineReader;
use super::report::Report;
use super::server::{InfluxServer, PolicyName};
use super::state::StateFile;
use super::statement::is_continuous_query;
use super::writers::{Batch, WriteResults, Writers};
use crate::progress::{Bar, cells};

/// Bytes of a batch, about.
const BATCH_BYTES: usize = 1 << 20;
/// Points of a batch.
const BATCH_POINTS: usize = 20_000;
/// Time between two records of the position.
const SAVE_EVERY_NS: u64 = 250_000_000;
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
/// Bytes at the start of a file whose checksum tells it from others.
const CHECKED_BYTES: u64 = 4096;

/// Error of a statement that creates a policy which exists with other durations.
const POLICY_CONFLICT: &str = "retention policy conflicts with an existing policy";
/// Notes about statements.
const NOTE_COUNT_MAX: usize = 20;

const DDL: &[u8] = b"# DDL";
const DML: &[u8] = b"# DML";
const CONTEXT_DATABASE: &[u8] = b"# CONTEXT-DATABASE:";
const CONTEXT_POLICY: &[u8] = b"# CONTEXT-RETENTION-POLICY:";

/// Flags of the import of a file.
pub(crate) struct FileOptions {
    pub(crate) path: PathBuf,
    /// Target of points before the first context.
    pub(crate) context: PolicyName,
    pub(crate) concurrency: u64,
    pub(crate) compares: bool,
}

/// Record of a run.
#[derive(Debug, Default, Serialize, Deserialize)]
struct FileState {
    /// Offset in the uncompressed file up to which everything is stored or refused.
    offset: u64,
    refused_points: u64,
    refused_statements: u64,
    expired_points: u64,
    is_complete: bool,
}

/// Returns the name of the file for its record: path, length and checksum of the start.
pub(crate) fn identity(env: &Env, path: &Path) -> anyhow::Result<String> {
    let context = || format!("reading {}", path.display());
    let file = env.disk.open_read(path).with_context(context)?;
    let len = file.len().with_context(context)?;
    let mut start = vec![0; usize::try_from(len.min(CHECKED_BYTES)).unwrap_or(0)];
    file.read_at(&mut start, 0).with_context(context)?;
    Ok(format!("{} ({len} bytes, {:08x})", path.display(), crc::crc32c(&start)))
}

/// Imports a file.
pub(crate) fn import(
    env: &Env,
    server: &InfluxServer,
    options: &FileOptions,
    state: &StateFile,
    bar: &mut Bar,
) -> anyhow::Result<Report> {
    server.check()?;
    let before = state.load::<FileState>()?.unwrap_or_default();
    let results = WriteResults::default();
    results.lock().done_offset = before.offset;
    let mut report = Report::default();
    report.statements.add(before.refused_statements, || "in an earlier run".to_owned());
    let sent = send(env, server, options, state, &before, &results, &mut report, bar);
    let done_state = |report: &Report, is_complete: bool| {
        let written = results.lock();
        FileState {
            offset: written.done_offset,
            refused_points: written.refused.count + before.refused_points,
            refused_statements: report.statements.count,
            expired_points: written.expired_points + before.expired_points,
            is_complete,
        }
    };
    let failed = sent.as_ref().err().is_some() || results.has_failed();
    state.save(&done_state(&report, before.is_complete && !failed))?;
    results.lock().take_failure()?;
    let Found { counts, held_queries } = sent?;
    if !before.is_complete {
        for (line, query) in held_queries {
            run_statement(server, line, &query, &mut report);
        }
    }
    let is_complete = report.damage.count == 0;
    state.save(&done_state(&report, is_complete))?;
    {
        let written = results.lock();
        report.stored_points = written.stored_points;
        report.expired_points = written.expired_points + before.expired_points;
        report.refused.add(before.refused_points, || "in an earlier run".to_owned());
        report.refused.merge(&written.refused);
    }
    if before.offset > 0 {
        let what = if before.is_complete { "all of it" } else { "the start of it" };
        let path = state.path().display();
        report.notes.push(format!("{what} was imported by an earlier run, as {path} records"));
    }
    if options.compares {
        counts.compare(server, &mut report)?;
    }
    Ok(report)
}

/// Contents of a file that are needed once its points are sent.
#[derive(Default)]
struct Found {
    counts: FileCounts,
    /// Continuous queries, with the numbers of their lines.
    held_queries: Vec<(u64, String)>,
}

/// Reads the file and sends its lines.
#[expect(clippy::too_many_arguments, reason = "parts of one run, each used once")]
fn send(
    env: &Env,
    server: &InfluxServer,
    options: &FileOptions,
    state: &StateFile,
    before: &FileState,
    results: &WriteResults,
    report: &mut Report,
    bar: &mut Bar,
) -> anyhow::Result<Found> {
    let context = || format!("reading {}", options.path.display());
    let file = env.disk.open_read(&options.path).with_context(context)?;
    let total_bytes = file.len().with_context(context)?;
    let read_bytes = Arc::new(AtomicU64::new(0));
    let input =
        open(FileReader { file, read_bytes: read_bytes.clone() }, total_bytes).with_context(context)?;
    let receiver = Mutex::new(None);
    std::thread::scope(|scope| {
        let writers = Writers::start(scope, server, results, &receiver, options.concurrency);
        let mut import = Import {
            env,
            server,
            options,
            state,
            before,
            results,
            writers,
            reader: LineReader::new(input),
            is_ddl: false,
            context: options.context.clone(),
            batch: OpenBatch::default(),
            decoded: line_protocol::new_batch(),
            found: Found::default(),
            report,
            saved_ns: 0,
        };
        let mut draw = || {
            let done = read_bytes.load(Ordering::Relaxed);
            bar.draw(|seconds| {
                let cells = cells(done, total_bytes);
                let points = results.lock().stored_points;
                format!("{cells}  {} of {} MB, {points} points, {seconds} s", done >> 20, total_bytes >> 20)
            });
        };
        import.run(&mut draw)?;
        anyhow::Ok(import.found)
    })
}

/// Runs a statement of the file. A policy that exists with other durations stays: `influx_inspect export`
/// writes none.
fn run_statement(server: &InfluxServer, line: u64, statement: &str, report: &mut Report) {
    let Err(error) = server.run(statement) else { return };
    let text = format!("line {line}: {statement}: {error:#}");
    if text.contains(POLICY_CONFLICT) && report.notes.len() < NOTE_COUNT_MAX {
        report.notes.push(text + ": it stays as it is");
    } else if !text.contains(POLICY_CONFLICT) {
        report.statements.add(1, || text);
    }
}

/// Returns the content of a file, uncompressed.
fn open(file: FileReader, len: u64) -> io::Result<Box<dyn Read>> {
    let mut start = [0; GZIP_MAGIC.len()];
    if len >= start.len() as u64 {
        file.file.read_at(&mut start, 0)?;
    }
    if start == GZIP_MAGIC {
        return Ok(Box::new(MultiGzDecoder::new(io::BufReader::with_capacity(1 << 18, file))));
    }
    Ok(Box::new(file))
}

/// A file that is read from its start to its end.
struct FileReader {
    file: Box<dyn DiskFile>,
    read_bytes: Arc<AtomicU64>,
}

impl Read for FileReader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let offset = self.read_bytes.load(Ordering::Relaxed);
        let left = self.file.len()?.saturating_sub(offset);
        let len = out.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        self.file.read_at(&mut out[..len], offset)?;
        self.read_bytes.store(offset + len as u64, Ordering::Relaxed);
        Ok(len)
    }
}

/// Points that wait to be sent.
#[derive(Default)]
struct OpenBatch {
    lines: Vec<u8>,
    /// Number of the line of each point.
    line_numbers: Vec<u64>,
}

/// A run over the file.
struct Import<'a> {
    env: &'a Env,
    server: &'a InfluxServer,
    options: &'a FileOptions,
    state: &'a StateFile,
    before: &'a FileState,
    results: &'a WriteResults,
    writers: Writers,
    reader: LineReader<Box<dyn Read>>,
    /// Set between `# DDL` and `# DML`.
    is_ddl: bool,
    context: PolicyName,
    batch: OpenBatch,
    decoded: WriteBatch,
    found: Found,
    report: &'a mut Report,
    saved_ns: u64,
}

impl Import<'_> {
    fn run(&mut self, draw: &mut dyn FnMut()) -> anyhow::Result<()> {
        loop {
            match self.step() {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    let offset = self.reader.offset();
                    let path = self.options.path.display();
                    self.report.damage.add(1, || format!("{path}: after {offset} bytes of content: {error}"));
                    break;
                }
            }
            if self.is_batch_full() {
                self.flush();
                self.save()?;
                draw();
                if self.results.has_failed() {
                    return Ok(());
                }
            }
        }
        self.flush();
        Ok(())
    }

    /// Returns true if the position belongs to a part that an earlier run has done.
    fn is_done(&self) -> bool {
        self.reader.offset() < self.before.offset
    }

    fn is_batch_full(&self) -> bool {
        self.batch.lines.len() >= BATCH_BYTES || self.batch.line_numbers.len() >= BATCH_POINTS
    }

    /// Handles a line or a point; returns false at the end of the file.
    fn step(&mut self) -> io::Result<bool> {
        // A batch ends where an earlier run ended.
        if self.reader.offset() == self.before.offset {
            self.flush();
        }
        let Some(line) = self.reader.line()? else { return Ok(false) };
        let len = line.len();
        let line = line.trim_ascii_start();
        if line.trim_ascii_end().is_empty() {
            self.reader.consume(len);
        } else if line.starts_with(b"#") {
            let line = line.to_vec();
            self.comment(&line);
            self.reader.consume(len);
        } else if self.is_ddl {
            let statement = String::from_utf8_lossy(line).trim().to_owned();
            self.statement(&statement);
            self.reader.consume(len);
        } else {
            self.point()?;
        }
        Ok(true)
    }

    fn comment(&mut self, line: &[u8]) {
        let name = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        if line.starts_with(DDL) {
            self.is_ddl = true;
        } else if line.starts_with(DML) {
            self.is_ddl = false;
        } else if let Some(database) = line.strip_prefix(CONTEXT_DATABASE) {
            self.flush();
            self.context = PolicyName { database: name(database), policy: String::new() };
        } else if let Some(policy) = line.strip_prefix(CONTEXT_POLICY) {
            self.flush();
            self.context.policy = name(policy);
        }
    }

    fn statement(&mut self, statement: &str) {
        let line = self.reader.line_number();
        if is_continuous_query(statement) {
            self.found.held_queries.push((line, statement.to_owned()));
        } else if !self.is_done() {
            run_statement(self.server, line, statement, self.report);
        }
    }

    /// Adds the next point to the batch.
    fn point(&mut self) -> io::Result<()> {
        let line_number = self.reader.line_number();
        let Some(point) = self.reader.point()? else { return Ok(()) };
        let mut point = point.to_vec();
        if point.contains(&b'\n') && fault_of(&point).is_some() {
            // A quote that is not closed in its line must not hide the good lines after it.
            point = self.reader.line()?.unwrap_or(&[]).to_vec();
        }
        self.reader.consume(point.len());
        if point.last() == Some(&b'\r') {
            point.pop();
        }
        self.batch.lines.extend_from_slice(&point);
        self.batch.lines.push(b'\n');
        self.batch.line_numbers.push(line_number);
        Ok(())
    }

    /// Sends the batch. Lines that cannot be parsed are counted and left out.
    fn flush(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        if batch.lines.is_empty() {
            return;
        }
        let lines_len = batch.lines.len();
        let refused = line_protocol::decode(batch.lines, &decode_options(self.env), &mut self.decoded);
        let mut lines = std::mem::take(&mut self.decoded.raw);
        lines.truncate(lines_len);
        if refused.is_empty() {
            self.decoded.raw = lines.clone();
        } else {
            lines = self.without_bad_lines(&lines, &batch.line_numbers);
            // The rest is parsed again for its counts.
            let _ = line_protocol::decode(lines.clone(), &decode_options(self.env), &mut self.decoded);
        }
        if self.options.compares {
            self.found.counts.add(&self.context, &self.decoded);
        }
        let point_count = line_protocol::point_count(&self.decoded);
        let first_line = batch.line_numbers.first().copied().unwrap_or(0);
        if self.context.database.is_empty() {
            let what = "no database: neither a context nor --database";
            self.report.refused.add(point_count, || format!("lines from {first_line} on: {what}"));
            return;
        }
        let end_offset = self.reader.offset();
        if end_offset > self.before.offset {
            let target = self.context.clone();
            self.writers.send(Batch { target, lines, point_count, first_line, end_offset });
        }
    }

    /// Returns the lines that can be parsed, and counts the others.
    fn without_bad_lines(&mut self, lines: &[u8], line_numbers: &[u64]) -> Vec<u8> {
        let mut good = Vec::with_capacity(lines.len());
        let mut reader = LineReader::new(lines);
        let mut line_numbers = line_numbers.iter();
        while let Ok(Some(point)) = reader.point() {
            let mut point = point.to_vec();
            let line_number = line_numbers.next().copied().unwrap_or(0);
            let mut fault = fault_of(&point);
            if fault.is_some() && point.contains(&b'\n') {
                let Ok(Some(line)) = reader.line() else { break };
                point = line.to_vec();
                fault = fault_of(&point);
            }
            reader.consume(point.len());
            match fault {
                None => {
                    good.extend_from_slice(&point);
                    good.push(b'\n');
                }
                Some(fault) => self.report.refused.add(1, || format!("line {line_number}: {fault}")),
            }
        }
        good
    }

    /// Records the position, at most once per second.
    fn save(&mut self) -> anyhow::Result<()> {
        let now_ns = self.env.clock.mono_ns();
        if now_ns.saturating_sub(self.saved_ns) < SAVE_EVERY_NS {
            return Ok(());
        }
        self.saved_ns = now_ns;
        let state = {
            let written = self.results.lock();
            FileState {
                offset: written.done_offset,
                refused_points: written.refused.count + self.before.refused_points,
                refused_statements: self.report.statements.count,
                expired_points: written.expired_points + self.before.expired_points,
                is_complete: false,
            }
        };
        if state.offset > self.before.offset { self.state.save(&state) } else { Ok(()) }
    }
}

fn decode_options(env: &Env) -> DecodeOptions {
    DecodeOptions::new(Precision::Nano, env.clock.now_ms().saturating_mul(1_000_000))
}
