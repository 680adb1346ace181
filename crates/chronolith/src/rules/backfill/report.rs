//! Progress and end of a backfill: on standard error, in the progress file, and totals on standard output.

use std::path::PathBuf;
use std::process::ExitCode;

use chronolith_base::Env;
use chronolith_base::utc::rfc3339_seconds;

use super::progress_file::{Counts, ProgressFile};
use crate::log;
use crate::progress::{Bar, WithoutTerminal, cells};
use crate::query::print;

/// Shortest time between two writes of the progress file.
const SAVE_EVERY_NS: u64 = 1_000_000_000;

/// State after a chunk.
pub(super) struct Chunk<'a> {
    pub(super) group: &'a str,
    /// Rounds that are done, and all.
    pub(super) done: u64,
    pub(super) rounds: u64,
    /// Time of the last round that is done.
    pub(super) until_ms: i64,
    pub(super) counts: Counts,
    pub(super) resume: &'a str,
}

/// End of a backfill.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) counts: Counts,
    pub(super) first_failure: Option<String>,
    pub(super) first_reject: Option<String>,
    /// Reason of an end before the last round, and the position from which it goes on.
    pub(super) error: Option<(String, Option<String>)>,
}

pub(super) struct Reporter {
    env: Env,
    bar: Bar,
    path: PathBuf,
    /// As it was before this run, and as it is to be.
    before: ProgressFile,
    is_dry_run: bool,
    is_saved: bool,
    saved_ns: u64,
    started_ns: u64,
    /// Rounds that were done at the first report.
    first_done: Option<u64>,
}

impl Reporter {
    pub(super) fn new(env: &Env, path: PathBuf, before: ProgressFile, is_dry_run: bool) -> Reporter {
        let now_ns = env.clock.mono_ns();
        let is_saved = before.resume.is_some();
        let bar = Bar::new(env, WithoutTerminal::Log);
        let env = env.clone();
        Reporter {
            env,
            bar,
            path,
            before,
            is_dry_run,
            is_saved,
            saved_ns: 0,
            started_ns: now_ns,
            first_done: None,
        }
    }

    /// Position from which this run goes on.
    pub(super) fn resume(&self) -> Option<&str> {
        self.before.resume.as_deref()
    }

    /// Reports what begins.
    pub(super) fn begin(&self, rules: u64, rounds: u64, skipped: &[String], skipped_count: usize) {
        if skipped_count > 0 {
            let names = skipped.join(", ");
            log::print(&format!("alerting rules have no history, {skipped_count} skipped: {names}"));
        }
        let verb = if self.before.resume.is_some() { "going on with" } else { "evaluating" };
        log::print(&format!("{verb} {rules} recording rules, {rounds} rounds"));
    }

    /// Shows a chunk that is done and keeps its position.
    ///
    /// # Errors
    /// The progress file cannot be written.
    pub(super) fn chunk(&mut self, chunk: &Chunk<'_>) -> anyhow::Result<()> {
        let first_done = *self.first_done.get_or_insert(chunk.done);
        let now_ns = self.env.clock.mono_ns();
        if !self.is_saved || now_ns.saturating_sub(self.saved_ns) >= SAVE_EVERY_NS {
            self.save(chunk.resume, chunk.counts)?;
            self.saved_ns = now_ns;
        }
        let elapsed_ns = now_ns.saturating_sub(self.started_ns).max(1);
        let rate = (chunk.done - first_done.min(chunk.done)) as f64 * 1e9 / elapsed_ns as f64;
        self.bar.draw(|seconds| {
            let left = match rate > 0.0 {
                true => format!("{:.0} s left", (chunk.rounds.saturating_sub(chunk.done)) as f64 / rate),
                false => "-".to_owned(),
            };
            let Chunk { group, done, rounds, until_ms, .. } = chunk;
            let cells = cells(*done, *rounds);
            let until = rfc3339_seconds(*until_ms);
            format!(
                "{cells}  {done} of {rounds} rounds, {rate:.0}/s, {seconds} s, {left}; {group} until {until}"
            )
        });
        Ok(())
    }

    fn save(&mut self, resume: &str, counts: Counts) -> anyhow::Result<()> {
        let state = ProgressFile {
            resume: Some(resume.to_owned()),
            counts: self.before.counts.plus(counts),
            ..self.before.clone()
        };
        self.is_saved = true;
        state.write(&self.env, &self.path)
    }

    /// Prints the totals; the exit code of the tool.
    ///
    /// # Errors
    /// The reason for an end before the last round.
    pub(super) fn end(mut self, outcome: anyhow::Result<Outcome>) -> anyhow::Result<ExitCode> {
        self.bar.clear();
        let Outcome { counts, first_failure, first_reject, error } =
            outcome.map_err(|error| match self.is_saved {
                true => error.context(format!("the same command goes on ({})", self.path.display())),
                false => error,
            })?;
        if let Some((why, resume)) = error {
            if let Some(resume) = resume {
                self.save(&resume, counts)?;
            }
            anyhow::bail!("{why}\n  the same command goes on from there ({})", self.path.display());
        }
        ProgressFile::remove(&self.env, &self.path)?;
        let all = self.before.counts.plus(counts);
        if let Some(failure) = &first_failure {
            log::print(&format!(
                "{} rounds of rules failed and changed nothing; first: {failure}",
                all.failed_rounds
            ));
        }
        let Counts { rounds, series, added, replaced, removed, equal, .. } = all;
        let would = if self.is_dry_run { "would be " } else { "" };
        print(&format!(
            "{rounds} rounds of rules, {series} series: {added} samples {would}added, {replaced} replaced, \
             {removed} removed, {equal} equal\n"
        ));
        match all.rejected {
            0 => Ok(ExitCode::SUCCESS),
            rejected => {
                let first = first_reject.unwrap_or_default();
                log::print(&format!("chronolith: {rejected} samples were refused; first: {first}"));
                Ok(ExitCode::FAILURE)
            }
        }
    }
}
