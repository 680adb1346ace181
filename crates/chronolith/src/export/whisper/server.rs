//! Export from a running server: series and rules by `/api/v1/graphite/series`, samples by
//! `/api/v1/query`.
//!
//! `/render` rounds times to the step of an archive that it chooses; a range selector returns the samples
//! themselves, which an export of the data directory reads, too.
//! Invariants: a worker holds one series, and one response of at most [`RESPONSE_POINTS`] samples; samples
//! older than the archives of a file are counted and not read.
//! Not here: files (`files`), requests (`source`).

mod source;

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use anyhow::Context as _;
use chronolith_base::Env;
use chronolith_base::hash::HashMap;
use chronolith_import::whisper::FileLayout;
use chronolith_model::Columns;
use clap::ArgMatches;

use self::source::{ListedSeries, SourceServer};
use super::files::Files;
use super::rules::{Rules, layout_of_texts};
use crate::args::value;
use crate::progress::{Bar, WithoutTerminal};

/// Samples of one response; more are read in parts.
const RESPONSE_POINTS: u64 = 200_000;
/// Points of the archives of one file.
const FILE_POINTS_MAX: u64 = 32 << 20;
/// Requests at a time unless the flags say otherwise.
const CONCURRENCY_DEFAULT: u64 = 4;

/// Layouts by the rules of series, most of which have the same.
type Layouts = HashMap<String, FileLayout>;

/// Writes the files of all series of a server.
pub(super) fn export(
    env: &Env,
    url: &str,
    given: &Rules,
    files: &Files,
    matches: &ArgMatches,
) -> anyhow::Result<()> {
    let source = SourceServer::new(url, value(matches, "tenant"))?;
    let export = Export { env, source, given, files, layouts: Mutex::default() };
    let concurrency = matches.get_one::<u64>("concurrency").copied().unwrap_or(CONCURRENCY_DEFAULT);
    let mut bar = Bar::new(env, WithoutTerminal::Log);
    let mut after = String::new();
    let mut done = 0;
    loop {
        let page = export.source.series_after(&after)?;
        let Some(last) = page.last() else { break };
        after.clone_from(&last.path);
        // A part at a time, so that the progress moves.
        for part in page.chunks(PART_SERIES) {
            export.write_all(part, usize::try_from(concurrency)?)?;
            done += part.len();
            bar.draw(|seconds| format!("{done} series, {seconds} s"));
        }
    }
    bar.clear();
    Ok(())
}

/// Series between two looks at the progress.
const PART_SERIES: usize = 200;

struct Export<'a> {
    env: &'a Env,
    source: SourceServer,
    /// Rules of the flags, which come before the rules of the server.
    given: &'a Rules,
    files: &'a Files,
    layouts: Mutex<Layouts>,
}

impl Export<'_> {
    fn write_all(&self, part: &[ListedSeries], worker_count: usize) -> anyhow::Result<()> {
        let next = AtomicUsize::new(0);
        let work = || -> anyhow::Result<()> {
            let mut columns = Columns::default();
            while let Some(series) = part.get(next.fetch_add(1, Ordering::Relaxed)) {
                let written = self.write(series, &mut columns);
                if written.is_err() {
                    next.store(part.len(), Ordering::Relaxed);
                }
                written.with_context(|| series.path.clone())?;
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..worker_count.min(part.len())).map(|_| scope.spawn(work)).collect();
            let mut ended = workers.into_iter().map(|worker| worker.join());
            ended.try_for_each(|result| result.unwrap_or_else(|_| anyhow::bail!("a worker panicked")))
        })
    }

    fn write(&self, series: &ListedSeries, columns: &mut Columns) -> anyhow::Result<()> {
        let Some(file_path) = self.files.file_of(&series.path) else { return Ok(()) };
        let layout = self.layout(series)?;
        let points: u64 = layout.archives.iter().map(|archive| u64::from(archive.point_count)).sum();
        if points > FILE_POINTS_MAX {
            self.files.leave_out(&series.path, &format!("a file of more than {FILE_POINTS_MAX} points"));
            return Ok(());
        }
        let now_ms = self.env.clock.now_ms();
        let retention_s = layout.archives.iter().map(|archive| archive.retention_s()).max().unwrap_or(0);
        let oldest_ms = now_ms.saturating_sub(i64::try_from(retention_s)?.saturating_mul(1000)).max(0);
        columns.clear();
        let selector = self.source.selector_of(series)?;
        if oldest_ms > 0 {
            self.files.count_older(&series.path, self.source.count(&selector, &(0..=oldest_ms - 1)));
        }
        self.read(&selector, series, oldest_ms..=now_ms, columns)?;
        self.files.write(&file_path, &series.path, &layout, columns)
    }

    fn layout(&self, series: &ListedSeries) -> anyhow::Result<FileLayout> {
        let rule = series.rule();
        let mut layouts = self.layouts.lock().unwrap_or_else(PoisonError::into_inner);
        let of_server = match layouts.get(&rule) {
            Some(known) => known.clone(),
            None => {
                let made = layout_of_texts(&series.retentions(), series.method()?, series.x_files_factor)?;
                layouts.insert(rule, made.clone());
                made
            }
        };
        drop(layouts);
        Ok(self.given.layout(&series.path, of_server))
    }

    /// Appends the samples of a range; one with too many of them is halved.
    fn read(
        &self,
        selector: &str,
        series: &ListedSeries,
        range: RangeInclusive<i64>,
        columns: &mut Columns,
    ) -> anyhow::Result<()> {
        match self.source.count(selector, &range)? {
            0 => Ok(()),
            1..=RESPONSE_POINTS => self.source.read(selector, series, &range, columns),
            _ => {
                // A range of one millisecond has one sample: the halves end.
                let middle_ms = range.start() + (range.end() - range.start()) / 2;
                self.read(selector, series, *range.start()..=middle_ms, columns)?;
                self.read(selector, series, middle_ms + 1..=*range.end(), columns)
            }
        }
    }
}
