//! Files of an export: one per series, and the counts of points written and left out.
//!
//! Invariants: a file has its name once it is complete; files that exist are not replaced, so that an export
//! that was ended continues.
//! Not here: names of files (`path`), archives of a file (`chronolith-import`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::Context as _;
use chronolith_base::Env;
use chronolith_import::whisper::FileLayout;
use chronolith_model::Columns;

use super::path;

#[derive(Default)]
struct Counts {
    files: u64,
    points: u64,
    too_old: u64,
    /// Series whose older points could not be counted, and the reason of one of them.
    uncounted: Option<(u64, String)>,
    /// Series by the reason why they have no file, with one of them.
    left_out: BTreeMap<String, (u64, String)>,
}

/// The files of an export.
pub(super) struct Files {
    env: Env,
    dir: PathBuf,
    next_file: AtomicU64,
    counts: Mutex<Counts>,
}

impl Files {
    pub(super) fn new(env: &Env, dir: PathBuf) -> Files {
        Files { env: env.clone(), dir, next_file: AtomicU64::new(0), counts: Mutex::default() }
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the file of a series that is to be written; `None`, and the series is counted, if there can be
    /// none or it exists.
    pub(super) fn file_of(&self, series_path: &str) -> Option<PathBuf> {
        let relative = match path::file_of(series_path) {
            Ok(relative) => relative,
            Err(reason) => {
                self.leave_out(series_path, reason);
                return None;
            }
        };
        // `relative` has no empty, absolute or `..` part.
        let file_path = self.dir.join(relative);
        if self.env.disk.exists(&file_path) {
            self.leave_out(series_path, "the file exists");
            return None;
        }
        Some(file_path)
    }

    /// Writes the file of a series.
    pub(super) fn write(
        &self,
        file_path: &Path,
        series_path: &str,
        layout: &FileLayout,
        columns: &Columns,
    ) -> anyhow::Result<()> {
        let now_s = self.env.clock.now_ms().div_euclid(1000);
        let Some((bytes, too_old)) = layout.build(&columns.times, &columns.values, now_s) else {
            self.leave_out(series_path, &format!("whisper has no method {}", layout.method));
            return Ok(());
        };
        self.put(file_path, &bytes).with_context(|| format!("writing {}", file_path.display()))?;
        let mut counts = self.counts();
        counts.files += 1;
        counts.points += columns.times.len() as u64 - too_old;
        counts.too_old += too_old;
        Ok(())
    }

    /// Writes under another name first: a file that an ended export has cut would count as one that exists.
    fn put(&self, file_path: &Path, bytes: &[u8]) -> std::io::Result<()> {
        let disk = &self.env.disk;
        if let Some(dir) = file_path.parent() {
            disk.create_dir_all(dir)?;
        }
        let file_idx = self.next_file.fetch_add(1, Ordering::Relaxed);
        let unfinished = self.dir.join(format!(".unfinished-{file_idx}"));
        disk.create(&unfinished)?.write_at(bytes, 0)?;
        disk.rename(&unfinished, file_path)
    }

    /// Adds the number of points of a series that are older than its archives keep and were not read, or the
    /// reason why it is not known.
    pub(super) fn count_older(&self, series_path: &str, older: anyhow::Result<u64>) {
        let mut counts = self.counts();
        match older {
            Ok(count) => counts.too_old += count,
            Err(error) => {
                let example = || (0, format!("{series_path}: {error:#}"));
                counts.uncounted.get_or_insert_with(example).0 += 1;
            }
        }
    }

    /// Counts a series that has no file.
    pub(super) fn leave_out(&self, series_path: &str, reason: &str) {
        let mut counts = self.counts();
        let entry = counts.left_out.entry(reason.to_owned()).or_insert_with(|| (0, series_path.to_owned()));
        entry.0 += 1;
    }

    /// Returns true if every series has a file that this export has written.
    pub(super) fn is_complete(&self) -> bool {
        self.counts().left_out.is_empty()
    }

    pub(super) fn show(&self) -> String {
        let Counts { files, points, too_old, uncounted, left_out } = &*self.counts();
        let mut out = format!("exported {points} points to {files} files below {}\n", self.dir.display());
        if *too_old > 0 {
            out.push_str(&format!("left out: {too_old} points that are older than the archives keep\n"));
        }
        if let Some((count, example)) = uncounted {
            out.push_str(&format!(
                "left out: points of {count} series that are older than the archives keep; the server did not \
                 count them: {example}\n"
            ));
        }
        for (reason, (count, example)) in left_out {
            out.push_str(&format!("left out: {count} series: {reason}: {example:?}\n"));
        }
        out
    }
}
