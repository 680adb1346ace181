//! `chronolith import whisper --to`: sends the points of the files to a running server as carbon's lines.
//!
//! Invariants: memory is bounded by one file and one body per worker; a part of the files is recorded as done
//! when the server has confirmed all of its points, so that a run that was killed continues there. Points
//! that are sent again replace themselves.
//! Not here: reading files (`chronolith-import`), the comparison (`sample`).

mod sample;

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use chronolith_base::Env;
use chronolith_import::whisper::{
    Comparison, FilePoints, Part, PathReject, SourceReader, WhisperReport, divide,
};
use clap::ArgMatches;
use serde::{Deserialize, Serialize};

use super::server::TargetServer;
use super::whisper_args::WhisperArgs;
use crate::args::value;
use crate::influx::state::StateFile;
use crate::progress::{Bar, WithoutTerminal, cells};

/// Files of a part.
const PART_FILES: usize = 500;
/// Bytes of a body at which it is sent.
const BODY_BYTES: usize = 4 << 20;
/// Requests at a time unless the flags say otherwise.
const CONCURRENCY_DEFAULT: u64 = 4;
/// Time between two looks at the progress, and between two records of it.
const DRAW_EVERY: Duration = Duration::from_millis(100);

/// Record of a run: parts that are done.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Done {
    parts: Vec<DonePart>,
}

#[derive(Debug, Serialize, Deserialize)]
struct DonePart {
    source: String,
    fingerprint: String,
}

/// An import under way.
struct Import<'a> {
    args: &'a WhisperArgs,
    target: TargetServer,
    state: StateFile,
    parts: Vec<Part>,
    next_part: AtomicUsize,
    done_bytes: AtomicU64,
    results: Mutex<Results>,
}

#[derive(Default)]
struct Results {
    done: Done,
    report: WhisperReport,
    failure: Option<anyhow::Error>,
    workers_left: usize,
}

/// Imports into the server that the flags name.
pub(super) fn import(
    env: &Env,
    mut args: WhisperArgs,
    matches: &ArgMatches,
) -> anyhow::Result<WhisperReport> {
    args.source.files.retain(|file| {
        let has_blank = file.path.contains(char::is_whitespace);
        if has_blank {
            args.listed.reject(&file.relative, PathReject::Blank);
        }
        !has_blank
    });
    let url = value(matches, "to").unwrap_or_default().to_owned();
    let tenant = value(matches, "tenant").map(str::to_owned);
    let identity = format!("{} {:?}", args.source.dir.display(), args.selection);
    let target_name = format!("{url} {}", tenant.as_deref().unwrap_or_default());
    let state = StateFile::new(env, value(matches, "state"), identity, target_name);
    let done: Done = state.load()?.unwrap_or_default();
    let sources = done.parts.iter().map(|part| part.source.as_str());
    let all = divide(&args.source, args.selection, sources, PART_FILES);
    let is_done = |part: &Part| {
        done.parts.iter().any(|one| one.source == part.source && one.fingerprint == part.fingerprint)
    };
    let (present, parts): (Vec<Part>, Vec<Part>) = all.into_iter().partition(is_done);
    let bytes_of = |part: &Part| args.source.files_of(part).iter().map(|file| file.len).sum::<u64>();
    let done_bytes = present.iter().map(bytes_of).sum();
    let mut results = Results { done, ..Results::default() };
    results.report.files_present = present.iter().map(|part| part.files.len() as u64).sum();
    let import = Import {
        args: &args,
        target: TargetServer::new(env, url, tenant)?,
        state,
        parts,
        next_part: AtomicUsize::new(0),
        done_bytes: AtomicU64::new(done_bytes),
        results: Mutex::new(results),
    };
    let mut report = import.run(env)?;
    report.add(args.listed);
    Ok(report)
}

impl Import<'_> {
    fn results(&self) -> std::sync::MutexGuard<'_, Results> {
        self.results.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(self, env: &Env) -> anyhow::Result<WhisperReport> {
        let concurrency = self.args.concurrency.unwrap_or(CONCURRENCY_DEFAULT);
        let worker_count = usize::try_from(concurrency).unwrap_or(1).min(self.parts.len());
        self.results().workers_left = worker_count;
        let total = self.args.source.byte_count();
        let mut bar = Bar::new(env, WithoutTerminal::Log);
        std::thread::scope(|scope| {
            for _ in 0..worker_count {
                scope.spawn(|| {
                    let worked = self.work();
                    let mut results = self.results();
                    results.workers_left -= 1;
                    if let Err(error) = worked {
                        results.failure.get_or_insert(error);
                    }
                });
            }
            while self.results().workers_left > 0 {
                std::thread::sleep(DRAW_EVERY);
                let done = self.done_bytes.load(Ordering::Relaxed);
                bar.draw(|seconds| {
                    format!("{}  {} of {} MB, {seconds} s", cells(done, total), done >> 20, total >> 20)
                });
            }
        });
        bar.clear();
        let results = self.results.into_inner().unwrap_or_else(PoisonError::into_inner);
        self.state.save(&results.done)?;
        match results.failure {
            Some(error) => Err(error),
            None => Ok(results.report),
        }
    }

    /// Sends one part after the other until none is left or a request has failed.
    fn work(&self) -> anyhow::Result<()> {
        while self.results().failure.is_none() {
            let next = self.next_part.fetch_add(1, Ordering::Relaxed);
            let Some(part) = self.parts.get(next) else { break };
            let report = self.send_part(part)?;
            let is_whole = report.files_unreadable == 0;
            let mut results = self.results();
            results.report.add(report);
            if is_whole {
                let Part { source, fingerprint, .. } = part.clone();
                results.done.parts.retain(|one| one.source != source);
                results.done.parts.push(DonePart { source, fingerprint });
                self.state.save(&results.done)?;
            }
        }
        Ok(())
    }

    fn send_part(&self, part: &Part) -> anyhow::Result<WhisperReport> {
        let WhisperArgs { source, selection, rules, comparison, .. } = self.args;
        let mut report = WhisperReport::default();
        let mut reader = SourceReader::new(&self.target.env, &source.dir, *selection, rules);
        let mut body = String::new();
        let mut sampled = None;
        for file in source.files_of(part) {
            if let Some((_, points)) = reader.read(file, &mut report) {
                if sampled.is_none() && *comparison == Comparison::All && !points.times.is_empty() {
                    sampled = Some((file, points.clone()));
                }
                self.put_lines(&file.path, points, &mut body, &mut report)?;
            }
            self.done_bytes.fetch_add(file.len, Ordering::Relaxed);
        }
        self.send(&mut body, &mut report)?;
        if let Some((file, points)) = sampled {
            sample::compare(&self.target, file, &points, &mut report)?;
        }
        Ok(report)
    }

    /// Appends the points of a file, and sends what there is whenever it is enough.
    fn put_lines(
        &self,
        path: &str,
        points: &FilePoints,
        body: &mut String,
        report: &mut WhisperReport,
    ) -> anyhow::Result<()> {
        for (time_ms, value) in points.times.iter().zip(&points.values) {
            // Writing to a string does not fail.
            let _ = writeln!(body, "{path} {value} {}", time_ms / 1000);
            if body.len() >= BODY_BYTES {
                self.send(body, report)?;
            }
        }
        Ok(())
    }

    /// Sends the lines and empties the body.
    fn send(&self, body: &mut String, report: &mut WhisperReport) -> anyhow::Result<()> {
        if !body.is_empty()
            && let Some(refused) = self.target.send_lines(body)?
        {
            report.differ(format!("the server refused points: {refused}"));
        }
        body.clear();
        Ok(())
    }
}
