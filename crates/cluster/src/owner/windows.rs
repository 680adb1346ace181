//! Windows of an owner: open ones with their first records, and cuts whose samples are in the head, in memory
//! and in the file `owned-windows` of the data directory.
//!
//! Invariants: the file has a cut before the position of the store is after it, and knows of a later sample
//! in the windows of a cut before the sample is applied; so a start that finds a cut without later samples
//! has exactly its samples in these windows. A cut leaves the file once neither head nor checkpoint has its
//! samples.
//! Not here: the rules (`model::cut`), publication (`publish`), bytes (`format::owned_windows`).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chronolith_base::Env;
use chronolith_format::owned_windows::{HeldCut, OpenWindow, OwnedWindowsFile, StoreWindows};
use chronolith_model::cut::{CutWindows, OwnedWindows, resume_after};
use chronolith_model::log_position::Position;
use chronolith_model::{StoreId, TimeRange};
use chronolith_tsdb::{CutWindow, Cuts};
use parking_lot::Mutex;

/// Name of the file in the data directory.
const FILE: &str = "owned-windows";
/// Time after which the file is written again, so that a start knows first records of newer windows.
const WRITE_INTERVAL_NS: u64 = 300_000_000_000;

/// Cut whose samples are in the head or its checkpoint.
#[derive(Clone)]
pub(super) struct Held {
    pub(super) cut: u64,
    /// Time of the partition at the cut.
    pub(super) time_ms: i64,
    first_offset: u64,
    /// True if later records have samples in its windows.
    has_later: bool,
    /// Starts of its windows, ascending.
    pub(super) windows: Vec<i64>,
    /// Samples of the cut; empty once they have left the head.
    pub(super) taken: Vec<Arc<CutWindow>>,
    pub(super) settled: Option<Settled>,
}

/// Publication of a cut.
#[derive(Debug, Clone, Copy)]
pub(super) struct Settled {
    /// Monotonic time at which the catalogue was known to have the cut.
    pub(super) at_ns: u64,
    /// Number of that snapshot of the catalogue.
    pub(super) catalogue: u64,
}

/// Windows of an owner in figures.
#[derive(Debug, Clone, Copy)]
pub(super) struct WindowCounts {
    pub(super) open_window_count: usize,
    pub(super) held_cut_count: usize,
    pub(super) resume: u64,
}

/// Windows of a cut that the head has, for readers whose catalogue may have their block.
#[cfg(test)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HeldWindows {
    /// Offset of the cut.
    pub(super) cut: u64,
    /// Times of the windows, in the unit of the store. Later samples may lie in them as well.
    pub(super) windows: Vec<TimeRange>,
    /// Number of a snapshot of the catalogue that has the cut, as all later ones; `None` if no block of it is
    /// known to be live.
    pub(super) catalogue: Option<u64>,
}

/// State that the threads of an owner share.
#[derive(Clone)]
struct State {
    windows: OwnedWindows<StoreId>,
    /// Time of the partition when a window was opened.
    opened_ms: BTreeMap<(StoreId, i64), i64>,
    held: BTreeMap<StoreId, VecDeque<Held>>,
    /// First catalogue that has all samples which have left the head since the start, or are about to, and
    /// the tombstones of deletions that are done.
    left: BTreeMap<StoreId, u64>,
    /// Stores with samples of cuts for which a deletion waits.
    leaving_early: BTreeSet<StoreId>,
}

/// Windows of an owner.
pub(super) struct OwnerWindows {
    env: Env,
    path: PathBuf,
    state: Mutex<State>,
    written_ns: Mutex<u64>,
}

/// Removes the file.
///
/// # Errors
/// [`std::io::Error`].
pub(super) fn remove_file(env: &Env, data_dir: &Path) -> std::io::Result<()> {
    let path = data_dir.join(FILE);
    if env.disk.exists(&path) { env.disk.remove_file(&path) } else { Ok(()) }
}

/// Reads the file of a directory whose next record is `next`.
///
/// # Errors
/// The reason why the owner cannot go on with the directory.
pub(super) fn read_file(env: &Env, data_dir: &Path, next: Position) -> Result<OwnedWindowsFile, String> {
    let path = data_dir.join(FILE);
    let in_file = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let bytes = env.disk.read(&path).map_err(|error| in_file(&error))?;
    let file = OwnedWindowsFile::decode(&bytes).map_err(|error| in_file(&error))?;
    let found = file.position.log_partition();
    let expected = next.log_partition();
    if found != expected {
        return Err(in_file(&format!("windows of {found}, expected {expected}")));
    }
    let cuts = file.stores.iter().flat_map(|one| one.cuts.iter().map(move |cut| (&one.store, cut)));
    let mixed = cuts.clone().find(|(_, cut)| cut.has_later && cut.offset < next.offset);
    match mixed {
        None => Ok(file),
        Some((_, cut)) => Err(format!(
            "the windows of the cut at offset {} have later samples, which the directory does not tell apart",
            cut.offset
        )),
    }
}

impl OwnerWindows {
    /// Windows of a directory without samples whose first record is `next`; writes the file.
    ///
    /// # Errors
    /// The reason why it cannot be written.
    pub(super) fn create(env: &Env, data_dir: &Path, next: Position) -> Result<OwnerWindows, String> {
        let windows = OwnedWindows::new(next.offset);
        let owned = OwnerWindows::with(env, data_dir, windows);
        owned.write(&owned.state.lock(), next)?;
        Ok(owned)
    }

    /// Windows of a directory whose next record is `next`. The samples of cuts are taken from the head again.
    ///
    /// # Errors
    /// The reason why the owner cannot go on with the directory.
    pub(super) fn open(env: &Env, cuts: &Cuts<'_>, next: Position) -> Result<OwnerWindows, String> {
        let file = read_file(env, cuts.data_dir(), next)?;
        let mut windows = OwnedWindows::new(next.offset);
        let owned = OwnerWindows::with(env, cuts.data_dir(), windows.clone());
        let mut state = owned.state.lock();
        for StoreWindows { store, open, cuts: held } in &file.stores {
            for window in open {
                windows.note_earlier(store.clone(), window.start, window.first_offset);
                state.opened_ms.insert((store.clone(), window.start), window.opened_ms);
            }
            for cut in held {
                if cut.offset >= next.offset {
                    // The head does not have the cut: its windows are open.
                    let again = |start: &i64| windows.note_earlier(store.clone(), *start, cut.first_offset);
                    cut.windows.iter().for_each(again);
                    continue;
                }
                let of_cut = CutWindows::new(cut.offset, cut.windows.clone(), cut.first_offset);
                windows.note_earlier_cut(store.clone(), of_cut);
                let held = Held::again(cut, state.take(cuts, store, &cut.windows)?);
                state.held.entry(store.clone()).or_default().push_back(held);
            }
        }
        let known_from = file.position.offset.min(next.offset);
        for window in cuts.windows() {
            let start = window.range.start;
            let store = window.tenant;
            if !windows.is_open(&store, start) && !state.holds(&store, start) {
                windows.note_earlier(store.clone(), start, known_from);
                state.opened_ms.insert((store, start), window.first_arrival_ms);
            }
        }
        state.windows = windows;
        drop(state);
        Ok(owned)
    }

    fn with(env: &Env, data_dir: &Path, windows: OwnedWindows<StoreId>) -> OwnerWindows {
        let state = State {
            windows,
            opened_ms: BTreeMap::new(),
            held: BTreeMap::new(),
            left: BTreeMap::new(),
            leaving_early: BTreeSet::new(),
        };
        OwnerWindows {
            env: env.clone(),
            path: data_dir.join(FILE),
            state: Mutex::new(state),
            written_ns: Mutex::new(env.clock.mono_ns()),
        }
    }

    /// Notes the samples of the record at `position` before it is applied.
    ///
    /// # Errors
    /// The reason why the file cannot be written; the record must not be applied.
    pub(super) fn note_samples(
        &self,
        store: &StoreId,
        times: &[i64],
        position: Position,
        log_ms: i64,
    ) -> Result<(), String> {
        let mut state = self.state.lock();
        let mut last = TimeRange::new(0, 0);
        let mut is_later = false;
        for &time in times {
            if last.contains(time) {
                continue;
            }
            last = Cuts::window_of(store, time);
            is_later |= state.note_later(store, last.start);
            if !state.windows.is_open(store, last.start) {
                state.windows.note_samples(store.clone(), last.start);
                state.opened_ms.insert((store.clone(), last.start), log_ms);
            }
        }
        if is_later { self.write(&state, position) } else { Ok(()) }
    }

    /// Ends the record at `offset`.
    pub(super) fn end_record(&self, offset: u64) {
        self.state.lock().windows.end_record(offset);
    }

    /// Offset of the oldest cut of a store with samples in the head.
    pub(super) fn oldest_held(&self, store: &StoreId) -> Option<u64> {
        self.state.lock().held.get(store)?.front().map(|held| held.cut)
    }

    /// Lets samples of cuts of a store leave the head as soon as their cuts are settled.
    pub(super) fn leave_early(&self, store: &StoreId) {
        let mut state = self.state.lock();
        if !state.leaving_early.contains(store) {
            state.leaving_early.insert(store.clone());
        }
    }

    /// Makes readers of a store need catalogue `number` or a later one.
    pub(super) fn require_catalogue(&self, store: &StoreId, number: u64) {
        let mut state = self.state.lock();
        let left = state.left.entry(store.clone()).or_insert(0);
        *left = number.max(*left);
    }

    /// Returns true if an open window has ended, and was opened, `delay_ms` before `log_ms`.
    pub(super) fn is_cut_due(&self, log_ms: i64, delay_ms: i64) -> bool {
        let state = self.state.lock();
        state.windows.open().any(|(store, start, _)| {
            let opened_ms = state.opened_ms.get(&(store.clone(), start)).copied().unwrap_or(i64::MIN);
            end_ms(store, start).max(opened_ms).saturating_add(delay_ms) <= log_ms
        })
    }

    /// Applies the cut at `position` to the open windows that end at `before_ms` or earlier, of all stores or
    /// of `scope`: takes their samples, and writes the file.
    ///
    /// # Errors
    /// The reason why it is not applied.
    pub(super) fn cut(
        &self,
        cuts: &Cuts<'_>,
        position: Position,
        time_ms: i64,
        is_cut: impl Fn(&StoreId, i64) -> bool,
    ) -> Result<(), String> {
        let mut state = self.state.lock();
        let mut next = state.clone();
        for window in cuts.windows() {
            // Samples that no record of their window has brought, as sums of series beyond a limit.
            let start = window.range.start;
            let store = window.tenant;
            if is_cut(&store, start) && !next.windows.is_open(&store, start) && !next.holds(&store, start) {
                next.windows.note_samples(store, start);
            }
        }
        let mut new: BTreeMap<StoreId, (Vec<i64>, u64)> = BTreeMap::new();
        for (store, start, first_offset) in
            next.windows.open().filter(|(store, start, _)| is_cut(store, *start))
        {
            let (starts, first) = new.entry(store.clone()).or_insert((Vec::new(), first_offset));
            starts.push(start);
            *first = first_offset.min(*first);
        }
        if new.is_empty() {
            return Ok(());
        }
        next.windows.cut(position.offset, &is_cut);
        for (store, (windows, first_offset)) in new {
            for start in &windows {
                next.opened_ms.remove(&(store.clone(), *start));
            }
            let taken = next.take(cuts, &store, &windows)?;
            let cut = position.offset;
            let held = Held { cut, time_ms, first_offset, has_later: false, windows, taken, settled: None };
            next.held.entry(store).or_default().push_back(held);
        }
        self.write(&next, position)?;
        *state = next;
        Ok(())
    }

    /// Returns the cuts that are published next, one per store.
    pub(super) fn next_to_publish(&self) -> Vec<(StoreId, Held)> {
        let state = self.state.lock();
        let next = state.windows.next_to_publish();
        let held = next.filter_map(|(store, of_cut)| {
            let held = state.held.get(store)?.iter().find(|held| held.cut == of_cut.cut)?;
            Some((store.clone(), held.clone()))
        });
        held.collect()
    }

    /// Notes that the catalogue has the cut of a store.
    pub(super) fn settle(&self, store: &StoreId, cut: u64, catalogue: u64) {
        let mut state = self.state.lock();
        state.windows.settle(store, cut);
        let at_ns = self.env.clock.mono_ns();
        let held = state.held.get_mut(store).and_then(|held| held.iter_mut().find(|held| held.cut == cut));
        held.expect("a cut that is published is held").settled = Some(Settled { at_ns, catalogue });
    }

    /// Removes and returns the samples of cuts that were settled `age_ns` ago, or now if they leave early;
    /// their cuts stay until [`OwnerWindows::forget_dropped`]. Returns true as well if samples have left
    /// before.
    pub(super) fn take_settled(&self, age_ns: u64) -> (Vec<CutWindow>, bool) {
        let now_ns = self.env.clock.mono_ns();
        let mut state = self.state.lock();
        let mut leaving: BTreeMap<StoreId, Vec<u64>> = BTreeMap::new();
        for (store, held) in &state.held {
            let age_ns = if state.leaving_early.contains(store) { 0 } else { age_ns };
            let old = held.iter().filter(|held| state.may_leave(store, held, now_ns, age_ns));
            let old: Vec<u64> = old.map(|held| held.cut).collect();
            if !old.is_empty() {
                leaving.insert(store.clone(), old);
            }
        }
        for (store, cuts) in &leaving {
            let held = state.held.get(store).into_iter().flatten().filter(|held| cuts.contains(&held.cut));
            let newest = held.filter_map(|held| Some(held.settled?.catalogue)).max().unwrap_or(0);
            let left = state.left.entry(store.clone()).or_insert(0);
            *left = newest.max(*left);
        }
        // The latest of several cuts of a window, which drops the samples of the others.
        let mut taken = BTreeMap::new();
        for (store, cuts) in &leaving {
            let held = state.held.get_mut(store).into_iter().flatten();
            for held in held.filter(|held| cuts.contains(&held.cut)) {
                let windows = held.taken.drain(..);
                taken.extend(windows.map(|one| ((store.clone(), one.range().start), one)));
            }
        }
        let alone = |window| Arc::into_inner(window).expect("the caller alone publishes");
        (taken.into_values().map(alone).collect(), !leaving.is_empty())
    }

    /// Forgets the cuts whose samples have left head and checkpoint, and writes the file.
    ///
    /// # Errors
    /// The reason why it cannot be written; they are forgotten later.
    pub(super) fn forget_dropped(&self, next: Position) -> Result<(), String> {
        let mut state = self.state.lock();
        let mut after = state.clone();
        for held in after.held.values_mut() {
            held.retain(|held| held.settled.is_none() || !held.taken.is_empty());
        }
        after.held.retain(|_, held| !held.is_empty());
        after.leaving_early.retain(|store| after.held.contains_key(store));
        self.write(&after, next)?;
        *state = after;
        Ok(())
    }

    /// Writes the file if that was long ago. `next` is at or before the next record.
    ///
    /// # Errors
    /// The reason why it cannot be written.
    pub(super) fn write_if_old(&self, next: Position) -> Result<(), String> {
        let age_ns = self.env.clock.mono_ns().saturating_sub(*self.written_ns.lock());
        if age_ns < WRITE_INTERVAL_NS {
            return Ok(());
        }
        self.write(&self.state.lock(), next)
    }

    /// Offset from which on a new owner has to read. Samples of published cuts count while they are here:
    /// readers with an older catalogue ask a new owner for them, too.
    pub(super) fn resume(&self) -> u64 {
        self.state.lock().resume()
    }

    /// First catalogue of a store that has all samples which have left the head since the start, and all
    /// tombstones of deletions that are done; 0 = none.
    pub(super) fn catalogue_needed(&self, store: &StoreId) -> u64 {
        self.state.lock().left.get(store).copied().unwrap_or(0)
    }

    /// Counts of windows and cuts, and the offset from which on a new owner has to read.
    pub(super) fn counts(&self) -> WindowCounts {
        let state = self.state.lock();
        WindowCounts {
            open_window_count: state.windows.open().count(),
            held_cut_count: state.held.values().map(VecDeque::len).sum(),
            resume: state.resume(),
        }
    }

    /// Cuts of a store with samples in the head.
    #[cfg(test)]
    pub(super) fn held_of(&self, store: &StoreId) -> Vec<HeldWindows> {
        let state = self.state.lock();
        let held = state.held.get(store).into_iter().flatten();
        let windows = |held: &Held| held.windows.iter().map(|start| Cuts::window_of(store, *start)).collect();
        held.map(|held| HeldWindows {
            cut: held.cut,
            windows: windows(held),
            catalogue: held.settled.map(|settled| settled.catalogue),
        })
        .collect()
    }

    fn write(&self, state: &State, position: Position) -> Result<(), String> {
        let mut bytes = Vec::new();
        state.file(position).encode(&mut bytes);
        let written = self.env.disk.write_atomic(&self.path, &bytes);
        written.map_err(|error| format!("{}: {error}", self.path.display()))?;
        *self.written_ns.lock() = self.env.clock.mono_ns();
        Ok(())
    }
}

impl Held {
    /// A cut of an earlier process.
    fn again(cut: &HeldCut, taken: Vec<Arc<CutWindow>>) -> Held {
        let HeldCut { offset, first_offset, time_ms, has_later, ref windows } = *cut;
        let windows = windows.clone();
        Held { cut: offset, time_ms, first_offset, has_later, windows, taken, settled: None }
    }
}

impl State {
    fn resume(&self) -> u64 {
        let held = self.held.values().flatten().map(|held| held.first_offset);
        resume_after(self.windows.resume(), held)
    }

    /// Returns true if the samples of a window were cut and are in the head.
    fn holds(&self, store: &StoreId, start: i64) -> bool {
        self.held.get(store).into_iter().flatten().any(|held| held.windows.contains(&start))
    }

    /// Notes a sample after the cuts of a window; returns true if a cut has not known of any.
    fn note_later(&mut self, store: &StoreId, start: i64) -> bool {
        let mut is_new = false;
        for held in self.held.get_mut(store).into_iter().flatten() {
            if !held.has_later && held.windows.binary_search(&start).is_ok() {
                held.has_later = true;
                is_new = true;
            }
        }
        is_new
    }

    /// Takes the samples of windows that are not of earlier cuts.
    fn take(&self, cuts: &Cuts<'_>, store: &StoreId, windows: &[i64]) -> Result<Vec<Arc<CutWindow>>, String> {
        let taken = windows.iter().map(|start| {
            let mut held = self.held.get(store).into_iter().flatten().flat_map(|held| &held.taken);
            let earlier = held.rfind(|taken| taken.range().start == *start);
            cuts.take(store, *start, earlier.map(|one| &**one)).map(Arc::new)
        });
        taken
            .collect::<Result<_, _>>()
            .map_err(|error| format!("taking the windows of a cut failed: {error}"))
    }

    /// Returns true if the samples of a cut may leave the head: it was settled `age_ns` ago, and so were the
    /// later cuts of its windows, whose samples a drop would encode again.
    fn may_leave(&self, store: &StoreId, held: &Held, now_ns: u64, age_ns: u64) -> bool {
        let is_old =
            |one: &Held| one.settled.is_some_and(|settled| now_ns.saturating_sub(settled.at_ns) >= age_ns);
        let shares = |one: &Held| one.windows.iter().any(|start| held.windows.binary_search(start).is_ok());
        let later = self.held.get(store).into_iter().flatten().filter(|one| one.cut > held.cut);
        is_old(held) && later.filter(|one| shares(one)).all(is_old)
    }

    fn file(&self, position: Position) -> OwnedWindowsFile {
        let empty =
            |store: &StoreId| StoreWindows { store: store.clone(), open: Vec::new(), cuts: Vec::new() };
        let mut stores: BTreeMap<&StoreId, StoreWindows> = BTreeMap::new();
        for (store, start, first_offset) in self.windows.open() {
            let opened_ms = self.opened_ms.get(&(store.clone(), start)).copied().unwrap_or(i64::MIN);
            let window = OpenWindow { start, first_offset, opened_ms };
            stores.entry(store).or_insert_with(|| empty(store)).open.push(window);
        }
        for (store, held) in &self.held {
            let cuts = held.iter().map(|held| HeldCut {
                offset: held.cut,
                first_offset: held.first_offset,
                time_ms: held.time_ms,
                has_later: held.has_later,
                windows: held.windows.clone(),
            });
            stores.entry(store).or_insert_with(|| empty(store)).cuts.extend(cuts);
        }
        OwnedWindowsFile { position, stores: stores.into_values().collect() }
    }
}

/// End of a window in milliseconds.
pub(super) fn end_ms(store: &StoreId, start: i64) -> i64 {
    store.time_unit().to_ms_ceil(Cuts::window_of(store, start).end)
}
