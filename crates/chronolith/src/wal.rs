//! `chronolith wal stat|verify|dump`: content of a WAL, ours or (with `--prometheus`) one of Prometheus.
//!
//! Invariants: no file is changed; damage is reported with file and offset and makes the exit code 1; an end
//! that was torn by a kill is a note.
//! Not here: layouts (`format`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use chronolith_base::Env;
use chronolith_format::head::wal::{
    self, KIND_DELETES, KIND_OLD_HISTOGRAMS, KIND_OLD_STARTS, KIND_OVERFLOW, KIND_OVERFLOW_HISTOGRAMS,
    KIND_POSITION, KIND_SERIES, KIND_TEXTS, PositionFrame, Samples, SegmentHeader, SeriesRef,
};
use chronolith_format::prometheus::record::{self, Kind, SeriesRecords};
use chronolith_format::prometheus::segment::PAGE_BYTES;
use chronolith_import::{LogEntry, walk_logs};
use chronolith_model::Labels;
use chronolith_model::log_position::Position;
use clap::{Arg, ArgAction, ArgMatches, Command};

use crate::args::value;
use crate::query::print;

pub(crate) fn command() -> Command {
    let tool = |name: &'static str, about: &'static str| {
        let dir = "Data directory of a stopped or copied server";
        Command::new(name).about(about).arg(Arg::new("dir").required(true).value_name("DIR").help(dir)).arg(
            Arg::new("prometheus")
                .long("prometheus")
                .action(ArgAction::SetTrue)
                .help("The directory is Prometheus's: checkpoint, log and out-of-order log"),
        )
    };
    Command::new("wal")
        .about("Inspect a WAL")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(tool("stat", "Count records, series and samples"))
        .subcommand(tool("verify", "Verify every checksum; exit code 1 if something is damaged"))
        .subcommand(tool("dump", "Print every record"))
}

pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let Some((tool, matches)) = matches.subcommand() else { return Ok(ExitCode::from(2)) };
    let dir = Path::new(value(matches, "dir").unwrap_or_default());
    let mut view = View { dumps: tool == "dump", ..View::default() };
    let env = Env::real();
    if matches.get_flag("prometheus") {
        walk_logs(&env, dir, &mut |path, offset, entry| view.prometheus(path, offset, entry))
            .map_err(|(path, error)| anyhow::anyhow!("{}: {error}", path.display()))?;
        view.settle_torn(|_, last, offset, _| offset >= last.saturating_sub(PAGE_BYTES as u64));
    } else {
        own(&env, dir, &mut view)?;
    }
    print(&view.summary(tool != "verify"));
    Ok(if view.damages.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Counts of the records read so far.
#[derive(Default)]
struct View {
    dumps: bool,
    files: BTreeMap<PathBuf, u64>,
    records: BTreeMap<&'static str, u64>,
    series: u64,
    samples: u64,
    times: Option<(i64, i64)>,
    /// The last position in a replicated log.
    position: Option<Position>,
    damages: Vec<(PathBuf, u64, String)>,
    notes: Vec<String>,
}

impl View {
    fn line(&self, text: impl FnOnce() -> String) {
        if self.dumps {
            print(&(text() + "\n"));
        }
    }

    fn sample(&mut self, name: impl FnOnce() -> String, time: i64, value: f64) {
        self.samples += 1;
        let (first, last) = self.times.unwrap_or((time, time));
        self.times = Some((first.min(time), last.max(time)));
        self.line(|| format!("  {} {value} @{time}", name()));
    }

    fn damage(&mut self, path: &Path, offset: u64, what: String) {
        self.damages.push((path.to_owned(), offset, what));
    }

    fn prometheus(&mut self, path: &Path, offset: u64, entry: LogEntry<'_>) {
        let end = self.files.entry(path.to_owned()).or_default();
        *end = offset.max(*end);
        let bytes = match entry {
            LogEntry::Record(bytes) => bytes,
            LogEntry::Damage(what) => return self.damage(path, offset, what),
        };
        let Some(kind) = Kind::of(bytes) else { return };
        *self.records.entry(kind.name()).or_default() += 1;
        self.line(|| format!("{} {offset}: {}, {} bytes", path.display(), kind.name(), bytes.len()));
        let done = match kind {
            Kind::Series => self.prometheus_series(bytes),
            Kind::SamplesWithStart => {
                record::for_each_with_start(bytes, &mut |series, time, bits, start_ms| {
                    self.sample(|| format!("ref {series} began {start_ms}"), time, f64::from_bits(bits));
                })
            }
            Kind::Samples => record::for_each_sample(bytes, &mut |series, time, bits| {
                self.sample(|| format!("ref {series}"), time, f64::from_bits(bits));
            }),
            Kind::Tombstones => record::tombstones(bytes).map(|all| {
                for one in all {
                    self.line(|| format!("  ref {} {}..{}", one.series_ref, one.first, one.last));
                }
            }),
            _ => Ok(()),
        };
        if let Err(error) = done {
            self.damage(path, offset, error.to_string());
        }
    }

    fn prometheus_series(&mut self, bytes: &[u8]) -> Result<(), chronolith_base::DecodeError> {
        let mut records = SeriesRecords::new(bytes);
        let mut pairs = Vec::new();
        while let Some(series_ref) = records.next(&mut pairs)? {
            self.series += 1;
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            self.line(|| {
                let pairs: Vec<_> = pairs.iter().map(|(name, value)| (text(name), text(value))).collect();
                let labels = Labels::from_pairs(pairs.iter().map(|(n, v)| (n.as_str(), v.as_str())));
                format!("  ref {series_ref} {labels}")
            });
        }
        Ok(())
    }

    /// Turns damage at the end of the last file into a note: it was never acknowledged.
    fn settle_torn(&mut self, is_torn: impl Fn(&Path, u64, u64, &str) -> bool) {
        let Some((path, &last)) = self.files.last_key_value() else { return };
        let path = path.clone();
        let (torn, rest) = std::mem::take(&mut self.damages)
            .into_iter()
            .partition(|(of, offset, what)| *of == path && is_torn(of, last, *offset, what));
        self.damages = rest;
        let torn: Vec<(PathBuf, u64, String)> = torn;
        for (path, offset, what) in torn {
            self.notes.push(format!("{}: offset {offset}: torn end: {what}", path.display()));
        }
    }

    fn summary(&self, counts: bool) -> String {
        let mut out = String::new();
        for note in &self.notes {
            out.push_str(&format!("note: {note}\n"));
        }
        for (path, offset, what) in &self.damages {
            out.push_str(&format!("damaged: {}: offset {offset}: {what}\n", path.display()));
        }
        let records: u64 = self.records.values().sum();
        out.push_str(&format!(
            "{} files, {records} records, {} series, {} samples; {} damages\n",
            self.files.len(),
            self.series,
            self.samples,
            self.damages.len()
        ));
        if counts {
            if let Some((first, last)) = self.times {
                out.push_str(&format!("times {first} to {last}\n"));
            }
            if let Some(next) = self.position {
                out.push_str(&format!("next offset {} of {}\n", next.offset, next.log_partition()));
            }
            for (kind, count) in &self.records {
                out.push_str(&format!("{kind}: {count} records\n"));
            }
        }
        out
    }
}

/// Reads our own log: every frame of every segment.
fn own(env: &Env, dir: &Path, view: &mut View) -> anyhow::Result<()> {
    let wal_dir = dir.join("wal");
    let entries = env.disk.list(&wal_dir).with_context(|| format!("reading {}", wal_dir.display()))?;
    let segments: Vec<_> = entries.iter().filter(|entry| entry.name.ends_with(".seg")).collect();
    let mut samples = Samples::default();
    for (at, entry) in segments.iter().enumerate() {
        let path = wal_dir.join(&entry.name);
        let bytes = env.disk.map(&path).with_context(|| format!("reading {}", path.display()))?;
        view.files.insert(path.clone(), bytes.len() as u64);
        let is_last = at + 1 == segments.len();
        let header = match SegmentHeader::decode(&bytes) {
            Ok(header) => header,
            Err(_) if is_last && bytes.iter().all(|&b| b == 0) => continue,
            Err(error) => {
                view.damage(&path, error.offset() as u64, error.to_string());
                continue;
            }
        };
        let scan = wal::scan_segment(&bytes, &header);
        for frame in &scan.frames {
            let payload = bytes.get(frame.payload.clone()).unwrap_or_default();
            let offset = frame.payload.start as u64;
            if let Err(error) = own_frame(&path, offset, frame.header.kind, payload, &mut samples, view) {
                view.damage(&path, offset, error.to_string());
            }
        }
        for damage in scan.damage {
            let what = format!("{} bytes belong to no valid frame", damage.len);
            if is_last && !damage.followed {
                view.notes.push(format!("{}: offset {}: torn end: {what}", path.display(), damage.offset));
            } else {
                view.damage(&path, damage.offset as u64, what);
            }
        }
    }
    Ok(())
}

fn own_frame(
    path: &Path,
    offset: u64,
    kind: u8,
    payload: &[u8],
    samples: &mut Samples,
    view: &mut View,
) -> Result<(), chronolith_base::DecodeError> {
    let name = match kind {
        KIND_SERIES => "series",
        KIND_OLD_HISTOGRAMS => "histograms",
        KIND_OLD_STARTS => "start times",
        KIND_TEXTS => "texts",
        KIND_DELETES => "deletions",
        KIND_OVERFLOW | KIND_OVERFLOW_HISTOGRAMS => "overflow",
        KIND_POSITION => "positions",
        kind if wal::is_samples(kind) => "samples",
        _ => "other",
    };
    *view.records.entry(name).or_default() += 1;
    view.line(|| format!("{} {offset}: {name}, {} bytes", path.display(), payload.len()));
    match kind {
        KIND_SERIES => {
            let mut series = SeriesRef::decode(payload)?;
            let tenant = series.tenant;
            let mut pairs = Vec::new();
            while let Some(record) = series.next(&mut pairs)? {
                view.series += 1;
                view.line(|| {
                    format!("  id {} of {tenant} {}", record.id, Labels::from_pairs(pairs.iter().copied()))
                });
            }
        }
        KIND_TEXTS => {
            let mut texts = wal::TextsRef::decode(payload)?;
            while let Some((id, text)) = texts.next_text()? {
                view.line(|| format!("  text {id:016x} of {} bytes of {}", text.len(), texts.tenant));
            }
        }
        KIND_POSITION => {
            let PositionFrame { next, resumes_after } = PositionFrame::decode(payload)?;
            let resumed = resumes_after.map(|sequence| format!(", resumes after sequence {sequence}"));
            let resumed = resumed.unwrap_or_default();
            view.line(|| format!("  next offset {} of {}{resumed}", next.offset, next.log_partition()));
            view.position = Some(next);
        }
        kind if wal::is_samples(kind) => {
            wal::decode_samples(kind, payload, samples)?;
            print_samples(samples, view);
        }
        _ => {}
    }
    Ok(())
}

fn print_samples(samples: &Samples, view: &mut View) {
    let mut histograms = samples.histograms.iter().peekable();
    for (at, (id, &time)) in samples.ids.iter().zip(&samples.times).enumerate() {
        let start_ms = samples.start_times.get(at);
        let Some(&bits) = samples.values.get(at) else {
            view.line(|| format!("  id {id} @{time} began {}", start_ms.unwrap_or(&0)));
            continue;
        };
        let began = start_ms.filter(|&&start_ms| start_ms != 0).map(|start_ms| format!(" began {start_ms}"));
        let began = began.unwrap_or_default();
        match histograms.next_if(|(idx, _)| *idx as usize == at) {
            Some((_, one)) => {
                let text = || format!("id {id}{began} {}", one.to_float().test_expression());
                view.sample(text, time, one.sum());
            }
            None => view.sample(|| format!("id {id}{began}"), time, f64::from_bits(bits)),
        }
    }
}
