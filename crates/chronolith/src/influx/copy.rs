//! Copy of the databases of a running InfluxDB 1.x to another server: all slices in parallel, then passes
//! over what arrived meanwhile, until the counts are equal.
//!
//! Invariants: what the record names as copied is durable in the target; memory is bounded by the number of
//! slices and by the batches of the workers. Continuous queries are created last.
//! Not here: one slice (`slice`), statements of the catalogue (`catalog`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use chronolith_base::Env;
use chronolith_base::hash::HashSet;
use serde::{Deserialize, Serialize};

use super::catalog::{
    DatabaseSelection, SourceDatabase, create_databases, create_queries, measurements, policies,
    read_databases,
};
use super::count::{SHOW_SHARDS, SeriesCounts, count_points, field_types, shard_periods, source_of};
use super::file_counts::difference;
use super::report::Report;
use super::server::{InfluxServer, PolicyName};
use super::slice::{self, Copied, CountDigest, SliceSource};
use super::state::StateFile;
use super::time::{Period, rfc3339};
use crate::progress::{Bar, cells};

/// Width of a slice at most, in nanoseconds.
const SLICE_NS: i64 = 24 * 3_600_000_000_000;
/// Points this much older than the start of a pass may have arrived during it.
const LIVE_OVERLAP_NS: i64 = 60_000_000_000;
/// Points this close to the end of their retention are not compared: they may be gone in one of the servers.
const EXPIRY_SLACK_NS: i64 = 60_000_000_000;
/// Time between two records.
const SAVE_EVERY_NS: u64 = 2_000_000_000;
/// Slices whose counts are compared series by series for the report.
const DETAILED_SLICES_MAX: usize = 100;

/// Flags of the copy, of one run.
pub(crate) struct CopyOptions {
    pub(crate) selection: DatabaseSelection,
    pub(crate) period: Period,
    pub(crate) concurrency: u64,
    pub(crate) pass_count: u64,
    pub(crate) compares: bool,
}

/// Record of a run: copied periods by measurement, ascending and merged.
#[derive(Debug, Default, Serialize, Deserialize)]
struct CopyState {
    copied: BTreeMap<String, Vec<(i64, i64)>>,
}

impl CopyState {
    fn contains(&self, source: &str, period: Period) -> bool {
        let periods = self.copied.get(source).map_or(&[][..], Vec::as_slice);
        periods.iter().any(|(first, last)| *first <= period.first_ns && period.last_ns <= *last)
    }

    fn add(&mut self, source: &str, period: Period) {
        let periods = self.copied.entry(source.to_owned()).or_default();
        periods.push((period.first_ns, period.last_ns));
        periods.sort_unstable();
        let mut merged: Vec<(i64, i64)> = Vec::with_capacity(periods.len());
        for &(first, last) in periods.iter() {
            match merged.last_mut() {
                Some(before) if first <= before.1.saturating_add(1) => before.1 = before.1.max(last),
                _ => merged.push((first, last)),
            }
        }
        *periods = merged;
    }
}

/// A slice of a measurement.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Task {
    target: PolicyName,
    measurement: String,
    first_ns: i64,
    last_ns: i64,
    /// Duration of the policy; 0 = infinite.
    duration_ns: i64,
}

impl Task {
    fn slice(&self) -> Period {
        Period { first_ns: self.first_ns, last_ns: self.last_ns }
    }

    /// Returns the part of the slice that the policy keeps at a time, and that the caller wants.
    fn kept(&self, now_ns: i64, wanted: Period) -> Option<Period> {
        let kept = match self.duration_ns {
            0 => self.slice(),
            duration_ns => {
                let first_ns = self.first_ns.max(now_ns.saturating_sub(duration_ns));
                Period { first_ns, ..self.slice() }
            }
        };
        kept.intersection(wanted)
    }

    /// Returns the part of the slice whose counts do not change by the passing of time: not beyond a pass
    /// that started at `now_ns`, and not at the end of the retention.
    fn comparable(&self, now_ns: i64, wanted: Period) -> Option<Period> {
        let kept = self.kept(now_ns.saturating_add(EXPIRY_SLACK_NS), wanted)?;
        let is_live = self.first_ns <= now_ns && now_ns < self.last_ns;
        let last_ns = if is_live { kept.last_ns.min(now_ns) } else { kept.last_ns };
        (kept.first_ns <= last_ns).then_some(Period { last_ns, ..kept })
    }
}

/// Results of the workers.
#[derive(Default)]
struct Progress {
    stored_points: u64,
    /// Points of parts of slices that were not stored, by the start of the part. A part that is copied again
    /// counts once.
    not_stored: BTreeMap<(Task, i64), Copied>,
    state: CopyState,
    failure: Option<anyhow::Error>,
    saved_ns: u64,
    /// Tasks whose counts differ, and fields of series that were compared.
    differing: BTreeSet<Task>,
    compared_count: u64,
}

/// Copy that runs, and what it has learned of the source.
struct Migration<'a> {
    env: &'a Env,
    from: &'a InfluxServer,
    to: &'a InfluxServer,
    options: &'a CopyOptions,
    state: &'a StateFile,
    progress: Mutex<Progress>,
    /// Unsigned fields by measurement.
    unsigned_fields: BTreeMap<(String, String), HashSet<Vec<u8>>>,
    /// Slices that this run has copied.
    copied_now: BTreeSet<Task>,
    /// Measurements whose names are not UTF-8, with their databases: no server of ours stores them.
    unreadable: BTreeSet<(String, String)>,
}

/// Copies the databases of `from` to `to`.
pub(crate) fn copy(
    env: &Env,
    from: &InfluxServer,
    to: &InfluxServer,
    options: &CopyOptions,
    state: &StateFile,
    bar: &mut Bar,
) -> anyhow::Result<Report> {
    let mut report = Report::default();
    from.check()?;
    to.check()?;
    let databases = read_databases(from, &options.selection)?;
    create_databases(to, &databases, &mut report.statements);
    let mut progress = Progress::default();
    if let Some(before) = state.load::<CopyState>()? {
        let path = state.path().display();
        report.notes.push(format!("this run continues an earlier one, as {path} records"));
        progress.state = before;
    }
    let mut migration = Migration {
        env,
        from,
        to,
        options,
        state,
        progress: Mutex::new(progress),
        unsigned_fields: BTreeMap::new(),
        copied_now: BTreeSet::new(),
        unreadable: BTreeSet::new(),
    };
    let copied = migration.run(&databases, &mut report, bar);
    let unreadable = std::mem::take(&mut migration.unreadable);
    let progress = migration.progress.into_inner().unwrap_or_else(PoisonError::into_inner);
    state.save(&progress.state)?;
    copied?;
    create_queries(to, &databases, &mut report.statements);
    report.stored_points = progress.stored_points;
    for copied in progress.not_stored.values() {
        report.expired_points += copied.expired_points;
        report.refused.merge(&copied.refused);
    }
    for (database, measurement) in &unreadable {
        report.refused.add(1, || format!("{database}: measurement {measurement}: its name is not UTF-8"));
    }
    Ok(report)
}

impl Migration<'_> {
    fn run(
        &mut self,
        databases: &[SourceDatabase],
        report: &mut Report,
        bar: &mut Bar,
    ) -> anyhow::Result<()> {
        let mut pass_start_ns = self.now_ns();
        let tasks = self.tasks(databases, pass_start_ns)?;
        self.copy_new(&tasks, pass_start_ns, bar)?;
        let mut settled: BTreeSet<Task> = BTreeSet::new();
        let mut differing: BTreeSet<Task> = BTreeSet::new();
        for pass in 2..=self.options.pass_count.max(2) {
            let last_pass_ns = pass_start_ns.saturating_sub(LIVE_OVERLAP_NS);
            pass_start_ns = self.now_ns();
            let tasks = self.tasks(databases, pass_start_ns)?;
            self.copy_new(&tasks, pass_start_ns, bar)?;
            // The next pass copies the period since the start of the last one, and all of a task that
            // differed for another reason than refused points.
            let refused = self.refused_tasks();
            let again = tasks.iter().filter_map(|task| {
                let kept = task.kept(pass_start_ns, self.options.period)?;
                let live = Period { first_ns: last_pass_ns, ..Period::ALL };
                let is_whole = differing.contains(task) && !refused.contains(task);
                let part = if is_whole { Some(kept) } else { kept.intersection(live) };
                part.map(|period| (task.clone(), period))
            });
            let again: Vec<(Task, Period)> = again.collect();
            self.copy_all(&again, bar, pass)?;
            if !self.options.compares {
                break;
            }
            let compared = tasks.iter().filter(|task| !settled.contains(task));
            let compared: Vec<(Task, Period)> = compared
                .filter_map(|task| Some((task.clone(), task.comparable(pass_start_ns, self.options.period)?)))
                .collect();
            differing = self.compare_all(&compared, bar, pass)?;
            let is_settled = |task: &&Task| task.last_ns < pass_start_ns && !differing.contains(*task);
            settled.extend(compared.iter().map(|(task, _)| task).filter(is_settled).cloned());
            let refused = self.refused_tasks();
            if differing.iter().all(|task| refused.contains(task)) {
                break;
            }
        }
        if self.options.compares {
            report.compared = Some(self.lock().compared_count);
            self.report_differences(&differing, pass_start_ns, report)?;
        }
        report.notes.push(format!(
            "points up to {} are copied; run again for later ones if clients still write to the source",
            rfc3339(pass_start_ns)
        ));
        Ok(())
    }

    /// Returns the slices of which points were refused.
    fn refused_tasks(&self) -> BTreeSet<Task> {
        let progress = self.lock();
        let refused = progress.not_stored.iter().filter(|(_, copied)| copied.refused.count > 0);
        refused.map(|((task, _), _)| task.clone()).collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_ns(&self) -> i64 {
        self.env.clock.now_ms().saturating_mul(1_000_000)
    }

    /// Returns the slices of all measurements, oldest first.
    fn tasks(&mut self, databases: &[SourceDatabase], now_ns: i64) -> anyhow::Result<Vec<Task>> {
        let mut tasks = Vec::new();
        let mut names: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for database in databases {
            let all = measurements(self.from, &database.name)?;
            let is_readable = |name: &String| !name.contains(char::REPLACEMENT_CHARACTER);
            let (found, unreadable): (Vec<String>, Vec<String>) = all.into_iter().partition(is_readable);
            self.unreadable.extend(unreadable.into_iter().map(|name| (database.name.clone(), name)));
            for measurement in &found {
                self.read_types(&database.name, measurement)?;
            }
            names.insert(database.name.clone(), found);
        }
        let shards = self.from.table(SHOW_SHARDS)?;
        for (target, duration_ns) in policies(databases) {
            let shards = shard_periods(&shards, &target)?;
            let slices: Vec<Period> = shards.into_iter().flat_map(slices_of).collect();
            for measurement in names.get(&target.database).map_or(&[][..], Vec::as_slice) {
                if !self.has_points(&target, measurement)? {
                    continue;
                }
                let of_measurement = slices.iter().map(|slice| Task {
                    target: target.clone(),
                    measurement: measurement.clone(),
                    first_ns: slice.first_ns,
                    last_ns: slice.last_ns,
                    duration_ns,
                });
                tasks.extend(of_measurement.filter(|task| task.kept(now_ns, self.options.period).is_some()));
            }
        }
        tasks.sort_by_key(|task| task.first_ns);
        Ok(tasks)
    }

    /// Returns true if a policy has points of a measurement of its database.
    fn has_points(&self, target: &PolicyName, measurement: &str) -> anyhow::Result<bool> {
        let statement = format!("SELECT *::field FROM {} LIMIT 1", source_of(target, measurement));
        Ok(!self.from.table(&statement)?.is_empty())
    }

    fn read_types(&mut self, database: &str, measurement: &str) -> anyhow::Result<()> {
        let any_policy = PolicyName { database: database.to_owned(), policy: String::new() };
        let types = field_types(self.from, &any_policy, measurement)?;
        let has = |field: &str, name: &str| types.iter().any(|(one, kind)| one == field && kind == name);
        let unsigned = types.iter().filter(|(field, kind)| kind == "unsigned" && !has(field, "integer"));
        let unsigned = unsigned.map(|(field, _)| field.as_bytes().to_vec()).collect();
        self.unsigned_fields.insert((database.to_owned(), measurement.to_owned()), unsigned);
        Ok(())
    }

    /// Copies the slices that no earlier run or pass has copied.
    fn copy_new(&mut self, tasks: &[Task], now_ns: i64, bar: &mut Bar) -> anyhow::Result<()> {
        let fresh: Vec<(Task, Period)> = {
            let progress = self.lock();
            let is_copied = |task: &Task| {
                progress.state.contains(&source_of(&task.target, &task.measurement), task.slice())
            };
            let fresh = tasks.iter().filter(|task| !self.copied_now.contains(task) && !is_copied(task));
            fresh.filter_map(|task| Some((task.clone(), task.kept(now_ns, self.options.period)?))).collect()
        };
        self.copy_all(&fresh, bar, 1)?;
        self.copied_now.extend(fresh.into_iter().map(|(task, _)| task));
        Ok(())
    }

    /// Copies parts of slices in parallel.
    fn copy_all(&self, parts: &[(Task, Period)], bar: &mut Bar, pass: u64) -> anyhow::Result<()> {
        let now_ns = self.now_ns();
        self.in_parallel(parts, bar, &format!("pass {pass}: copying"), |task, period| {
            let key = (task.target.database.clone(), task.measurement.clone());
            let none = HashSet::default();
            let unsigned_fields = self.unsigned_fields.get(&key).unwrap_or(&none);
            let source =
                SliceSource { target: &task.target, measurement: &task.measurement, unsigned_fields };
            let copied = slice::copy(self.from, self.to, &source, period)?;
            let mut progress = self.lock();
            progress.stored_points += copied.stored_points;
            let part = (task.clone(), period.first_ns);
            progress.not_stored.remove(&part);
            if copied.refused.count + copied.expired_points > 0 {
                progress.not_stored.insert(part, copied);
            }
            if task.last_ns < now_ns && period.last_ns == task.last_ns {
                progress.state.add(&source_of(&task.target, &task.measurement), task.slice());
            }
            let mono_ns = self.env.clock.mono_ns();
            if mono_ns.saturating_sub(progress.saved_ns) >= SAVE_EVERY_NS {
                progress.saved_ns = mono_ns;
                self.state.save(&progress.state)?;
            }
            Ok(())
        })
    }

    /// Compares the counts of parts of slices in parallel; returns those that differ.
    fn compare_all(
        &self,
        parts: &[(Task, Period)],
        bar: &mut Bar,
        pass: u64,
    ) -> anyhow::Result<BTreeSet<Task>> {
        self.in_parallel(parts, bar, &format!("pass {pass}: comparing"), |task, period| {
            let Task { target, measurement, .. } = task;
            let source: CountDigest = slice::digest(self.from, target, measurement, period)?;
            let found = slice::digest(self.to, target, measurement, period)?;
            let mut progress = self.lock();
            progress.compared_count += source.field_count;
            if source != found {
                progress.differing.insert(task.clone());
            }
            Ok(())
        })?;
        Ok(std::mem::take(&mut self.lock().differing))
    }

    /// Runs `work` on all parts, by as many threads as requests may be sent at a time.
    fn in_parallel(
        &self,
        parts: &[(Task, Period)],
        bar: &mut Bar,
        title: &str,
        work: impl Fn(&Task, Period) -> anyhow::Result<()> + Sync,
    ) -> anyhow::Result<()> {
        let next = AtomicUsize::new(0);
        let draw = Mutex::new(bar);
        std::thread::scope(|scope| {
            for _ in 0..self.options.concurrency {
                scope.spawn(|| {
                    while let Some((task, period)) = parts.get(next.fetch_add(1, Ordering::Relaxed)) {
                        if self.lock().failure.is_some() {
                            return;
                        }
                        if let Err(error) = work(task, *period) {
                            self.lock().failure.get_or_insert(error);
                        }
                        let done = next.load(Ordering::Relaxed).min(parts.len()) as u64;
                        let points = self.lock().stored_points;
                        draw.lock().unwrap_or_else(PoisonError::into_inner).draw(|seconds| {
                            let total = parts.len() as u64;
                            let cells = cells(done, total);
                            format!("{title} {cells}  {done} of {total} slices, {points} points, {seconds} s")
                        });
                    }
                });
            }
        });
        self.lock().failure.take().map_or(Ok(()), Err)
    }

    /// Lists the fields of series whose counts differ.
    fn report_differences(
        &self,
        differing: &BTreeSet<Task>,
        pass_start_ns: i64,
        report: &mut Report,
    ) -> anyhow::Result<()> {
        for (idx, task) in differing.iter().enumerate() {
            let Some(period) = task.comparable(pass_start_ns, self.options.period) else { continue };
            let text = format!("{} - {}", rfc3339(period.first_ns), rfc3339(period.last_ns));
            if idx >= DETAILED_SLICES_MAX {
                let source = source_of(&task.target, &task.measurement);
                report.differences.add(1, || format!("{source}: {text}"));
                continue;
            }
            let source = count_points(self.from, &task.target, &task.measurement, period)?;
            let found = count_points(self.to, &task.target, &task.measurement, period)?;
            add_differences(task, &text, &source, &found, report);
        }
        Ok(())
    }
}

fn add_differences(
    task: &Task,
    period: &str,
    source: &SeriesCounts,
    found: &SeriesCounts,
    report: &mut Report,
) {
    let names = |counts: &SeriesCounts| -> BTreeSet<(Vec<u8>, Vec<u8>)> {
        let fields = counts.iter().flat_map(|(key, fields)| fields.keys().map(move |field| (key, field)));
        fields.map(|(key, field)| (key.clone(), field.clone())).collect()
    };
    for (key, field) in names(source).union(&names(found)) {
        let count =
            |counts: &SeriesCounts| counts.get(key).and_then(|one| one.get(field)).copied().unwrap_or(0);
        let expected = count(source);
        let found = count(found);
        if expected != found {
            let text = || {
                let text = difference(&task.target, key, field, &expected.to_string(), found);
                format!("{text} ({period})")
            };
            report.differences.add(1, text);
        }
    }
}

/// Splits a shard group into slices of [`SLICE_NS`].
fn slices_of(shard: Period) -> impl Iterator<Item = Period> {
    let mut next = Some(shard.first_ns);
    std::iter::from_fn(move || {
        let first_ns = next?;
        let last_ns = first_ns.saturating_add(SLICE_NS - 1).min(shard.last_ns);
        next = (last_ns < shard.last_ns).then(|| last_ns + 1);
        Some(Period { first_ns, last_ns })
    })
}

#[cfg(test)]
mod tests;
