//! Loads the series file, then determines which of its series are live.
//!
//! Invariant: a series is live if its slice has it, or if it is younger than that slice; of two live series
//! with the same labels the older had left the head before the younger was created, so the younger one is
//! kept.

use chronolith_base::hash::HashMap;
use chronolith_base::{AppendFile, Env};
use chronolith_format::head::series_file::{
    FILE_HEADER_BYTES, KIND_MARK, KIND_RAW_KEYS, KIND_SERIES, Mark, SeriesReader, raw_keys,
};
use chronolith_format::head::wal::FRAME_HEADER_BYTES;
use chronolith_format::parse_store_name;
use chronolith_wal::{BlockBuffers, FrameStream};
use parking_lot::Mutex;

use super::copies::{self, ChosenCopy, Counts};
use super::files::CheckpointFiles;
use super::restore::discard;
use super::slices::LoadedSlices;
use super::threads::replay_thread_count;
use crate::checkpoint::{DefinitionsFile, definitions_path, definitions_paths, slice_of};
use crate::index::ids::IdMark;
use crate::index::series_keys::{LoadedKeys, SeriesKeyCache};
use crate::index::tables::{LoadScratch, TenantIndex};
use crate::index::tenant::{TenantHead, Tenants};
use crate::options::HeadError;
use crate::recovery::progress::ReplayReport;
use crate::series::SeriesStore;
use crate::series::page_runs;
use crate::series::stripe::stripe_of;
use crate::series::windows::WindowTally;

/// Result of loading the series file.
pub(super) struct LoadedDefinitions {
    /// Without files until [`LoadedDefinitions::open_copies`].
    pub(super) file: DefinitionsFile,
    generation: u64,
    /// Set if the next checkpoint must rewrite the file.
    is_broken: bool,
    round: RoundEnd,
    /// Series read so far.
    series_count: u64,
    /// The last mark.
    pub(super) mark: Mark,
    /// Above all ids of the file.
    pub(super) next_id: u32,
    /// Set if there is a file and all of it could be read.
    pub(super) is_whole: bool,
    pub(super) series_keys: LoadedKeys,
    pub(super) bytes: u64,
    pub(super) notes: Vec<String>,
    /// Damaged copies of which the other one is whole.
    pub(super) repaired: Vec<String>,
}

impl LoadedDefinitions {
    fn none() -> LoadedDefinitions {
        LoadedDefinitions {
            file: DefinitionsFile::none(),
            generation: 0,
            is_broken: false,
            round: RoundEnd::default(),
            series_count: 0,
            mark: Mark::default(),
            next_id: 0,
            is_whole: false,
            series_keys: LoadedKeys::default(),
            bytes: 0,
            notes: Vec::new(),
            repaired: Vec::new(),
        }
    }

    /// Opens both copies for appending after the last mark, unless the next checkpoint rewrites them.
    fn open_copies(&mut self, env: &Env, files: &CheckpointFiles) -> Result<(), HeadError> {
        let RoundEnd { end, sequence, series_count, .. } = self.round;
        let paths = definitions_paths(&files.dir, self.generation);
        let mut file = AppendFile::new(env.disk.clone(), paths);
        if !self.is_broken {
            let opened = file.open_unsynced(end);
            opened.map_err(HeadError::io(&definitions_path(&files.dir, self.generation, 0)))?;
        }
        let ids = IdMark::fresh(self.mark.next_id);
        self.file = DefinitionsFile::new(file, self.generation, sequence, ids, series_count);
        Ok(())
    }

    /// Records that something could not be read: the WAL may still have it.
    fn note_loss(&mut self) {
        (self.is_whole, self.is_broken) = (false, true);
        self.mark.sequence = 0;
    }
}

/// Loads the newest series file that is whole, or else the newest one.
pub(super) fn load(
    env: &Env,
    files: &CheckpointFiles,
    tenants: &Mutex<Tenants>,
) -> Result<LoadedDefinitions, HeadError> {
    if let Some(copy) = copies::usual(env, files)? {
        let mut loaded = load_copy(env, files, tenants, &copy, LoadedDefinitions::none())?;
        let is_usual = loaded.is_whole && loaded.round.end == copy.len && loaded.notes.is_empty();
        if is_usual && copies::are_equal(env, files, copy.generation)? {
            loaded.open_copies(env, files)?;
            return Ok(loaded);
        }
        // Another copy may be better.
        for tenant in tenants.lock().all() {
            *tenant.tables.write() = TenantIndex::new(env.rng.next_u64());
        }
    }
    let mut loaded = LoadedDefinitions::none();
    let Some(copy) = copies::choose(env, files, &mut loaded.repaired)? else { return Ok(loaded) };
    let mut loaded = load_copy(env, files, tenants, &copy, loaded)?;
    loaded.open_copies(env, files)?;
    Ok(loaded)
}

/// Loads one copy; `loaded` is empty but for notes.
fn load_copy(
    env: &Env,
    files: &CheckpointFiles,
    tenants: &Mutex<Tenants>,
    copy: &ChosenCopy,
    mut loaded: LoadedDefinitions,
) -> Result<LoadedDefinitions, HeadError> {
    let newest = files.definitions.last_key_value().map_or(copy.generation, |(&newest, _)| newest);
    (loaded.generation, loaded.is_whole) = (newest, true);
    loaded.is_broken = !copy.is_mirrored;
    let (path, disk) = (&copy.path, &*env.disk);
    if let Some(damage) = &copy.header_damage {
        loaded.notes.push(format!("{}: {damage}", path.display()));
    }
    reserve(env, &copy.counts, tenants, &mut loaded);
    let buffers = BlockBuffers::default();
    let mut stream = FrameStream::open(disk, path, files.key, FILE_HEADER_BYTES, &buffers)?;
    load_frames(env, &mut stream, &buffers, tenants, &mut loaded)?;
    for damage in stream.damage.iter().filter(|d| d.followed) {
        let (offset, len) = (damage.offset, damage.len);
        loaded
            .notes
            .push(format!("{}: damaged at offset {offset}: {len} bytes are left out", path.display()));
        loaded.note_loss();
    }
    loaded.bytes = stream.end;
    loaded.next_id = loaded.next_id.max(loaded.mark.next_id);
    if loaded.is_whole {
        // Appended by an unfinished checkpoint; the WAL has the same records, and the next checkpoint writes
        // them again.
        loaded.series_keys.truncate(loaded.round.raw_key_count);
    }
    Ok(loaded)
}

/// State of the file at its last mark: the end of the last finished checkpoint.
#[derive(Default)]
struct RoundEnd {
    end: u64,
    sequence: u64,
    series_count: u64,
    raw_key_count: usize,
}

fn load_frames(
    env: &Env,
    stream: &mut FrameStream<'_>,
    buffers: &BlockBuffers,
    tenants: &Mutex<Tenants>,
    loaded: &mut LoadedDefinitions,
) -> Result<(), HeadError> {
    let mut scratch = LoadScratch::default();
    while let Some(block) = stream.next_block()? {
        for frame in &block.frames {
            let payload = block.payload(frame);
            match frame.header.kind {
                KIND_SERIES => load_series(env, payload, tenants, loaded, &mut scratch),
                KIND_RAW_KEYS => {
                    raw_keys(payload).for_each(|(hash, id)| loaded.series_keys.push(hash, id));
                }
                KIND_MARK => {
                    loaded.mark = Mark::decode(payload).unwrap_or(loaded.mark);
                    let start = block.offset + (frame.payload.start - FRAME_HEADER_BYTES) as u64;
                    loaded.round = RoundEnd {
                        end: start + frame.header.frame_len() as u64,
                        sequence: frame.header.sequence,
                        series_count: loaded.series_count,
                        raw_key_count: loaded.series_keys.len(),
                    };
                }
                _ => {}
            }
        }
        buffers.put(block);
    }
    // A file gets its name after its first mark is written.
    if loaded.round.end == 0 {
        loaded.note_loss();
    }
    Ok(())
}

/// Reserves memory for the wire keys, and for the label pairs and series of each tenant.
// PERF: at 1M series with a distinct value each, growing the table of pairs step by step cost 350 ms of 1.3 s
// of CPU time.
//   cargo bench -p chronolith-head --bench restart_speed -- 1000000 10 1 1
fn reserve(env: &Env, counts: &Counts, tenants: &Mutex<Tenants>, loaded: &mut LoadedDefinitions) {
    loaded.series_keys.reserve(counts.key_count);
    for (name, &(pair_count, series_count)) in &counts.tenants {
        let Ok(id) = parse_store_name(name) else { continue };
        let seed = env.rng.next_u64();
        if let Some(tenant) = tenants.lock().get_or_create(&id, seed) {
            tenant.tables.write().reserve_load(pair_count, series_count);
        }
    }
}

fn load_series(
    env: &Env,
    payload: &[u8],
    tenants: &Mutex<Tenants>,
    loaded: &mut LoadedDefinitions,
    scratch: &mut LoadScratch,
) {
    let mut load = || -> Result<(), String> {
        let mut series = SeriesReader::decode(payload).map_err(|e| e.to_string())?;
        let id = parse_store_name(series.tenant).map_err(|e| format!("tenant {:?}: {e}", series.tenant))?;
        let tenant = tenants.lock().get_or_create(&id, env.rng.next_u64()).ok_or("too many tenants")?;
        let mut tables = tenant.tables.write();
        let skipped_count = tables.load(&mut series, scratch).map_err(|e| e.to_string())?;
        loaded.series_count += series.series_count as u64;
        loaded.next_id = loaded.next_id.max(tables.id_end());
        if skipped_count > 0 {
            return Err(format!("{skipped_count} series are duplicates or exceed the index size"));
        }
        Ok(())
    };
    if let Err(what) = load() {
        loaded.notes.push(format!("series file: {what}"));
        loaded.note_loss();
    }
}

/// Live series of the checkpoint, besides the tenants' indexes.
pub(super) struct LiveSeries {
    /// Ids that are replaced by younger ones.
    pub(super) aliases: HashMap<u32, u32>,
    /// Wire keys of live series.
    pub(super) series_keys: SeriesKeyCache,
}

/// Determines the live series, creates series states for those that no slice has, and builds the indexes.
pub(super) fn finish(
    files: &CheckpointFiles,
    series: &SeriesStore,
    tenants: &Tenants,
    keys: LoadedKeys,
    slices: &mut LoadedSlices,
    report: &mut ReplayReport,
) -> LiveSeries {
    let mut aliases = HashMap::default();
    let mut stray_count = 0;
    let all: Vec<_> = tenants.all().cloned().collect();
    let dead: Vec<Vec<u64>> = all.iter().map(|t| dead_bits(series, t, slices, &mut stray_count)).collect();
    let (keys, mut replaced) = (Mutex::new(Some(keys)), Vec::new());
    let loaded_keys = Mutex::new(SeriesKeyCache::default());
    let load_keys = || {
        let keys = keys.lock().take();
        if let Some(keys) = keys {
            *loaded_keys.lock() = live_wire_keys(series, keys);
        }
    };
    std::thread::scope(|scope| {
        if replay_thread_count() > 1 {
            // If no thread can be started, this one does both.
            let thread = std::thread::Builder::new().name("replay-keys".to_owned());
            let _ = thread.spawn_scoped(scope, load_keys);
        }
        replaced.extend(all.iter().zip(dead).map(|(tenant, dead)| tenant.tables.write().finish_load(dead)));
        load_keys();
    });
    for (tenant, replaced) in all.iter().zip(replaced) {
        for (older, younger) in replaced {
            let mut tally = WindowTally::new(series.window_width(tenant.unit));
            discard(&mut series.lock(older), series, older, &mut tally);
            slices.tallies.of(tenant.idx, tally.width()).merge(&mut tally);
            aliases.insert(older, younger);
        }
    }
    let undefined_count = discard_undefined(series, tenants, slices);
    if undefined_count + stray_count > 0 {
        let count = undefined_count + stray_count;
        let generation = files.definitions.last_key_value().map_or(1, |(&newest, _)| newest);
        let path = definitions_path(&files.dir, generation, 0);
        report.notes.push(format!(
            "{}: has no records of {count} series of the checkpoint, their chunks are left out",
            path.display()
        ));
    }
    LiveSeries { aliases, series_keys: loaded_keys.into_inner() }
}

/// Returns a bitmap of the dead series of the index.
fn dead_bits(
    series: &SeriesStore,
    tenant: &TenantHead,
    slices: &LoadedSlices,
    stray_count: &mut u64,
) -> Vec<u64> {
    let tables = tenant.tables.read();
    let ids = tables.ids();
    let mut dead = vec![0u64; ids.len().div_ceil(64)];
    let mut idx = 0;
    for run in page_runs(ids) {
        let mut stripe = series.lock(run[0]);
        let id_end = slices.id_ends.get(&slice_of(run[0])).copied().unwrap_or(0);
        for &id in run {
            let owner = stripe.series(id).map(|record| record.tenant);
            let is_alive = match owner {
                Some(owner) if owner == tenant.idx => true,
                Some(_) => {
                    *stray_count += 1;
                    false
                }
                None if id >= id_end => {
                    stripe.create(id, tenant.idx);
                    true
                }
                None => false,
            };
            dead[idx / 64] |= u64::from(!is_alive) << (idx % 64);
            idx += 1;
        }
    }
    dead
}

/// Removes series without a series record; returns their number.
fn discard_undefined(series: &SeriesStore, tenants: &Tenants, slices: &mut LoadedSlices) -> u64 {
    let defined: u64 = tenants.all().map(|t| t.tables.read().live_count() as u64).sum();
    let present: u64 = series.stripes().iter().map(|s| s.lock().series_count()).sum();
    if present == defined {
        return 0;
    }
    let mut count = 0;
    for (stripe_idx, stripe) in series.stripes().iter().enumerate() {
        let mut stripe = stripe.lock();
        let mut ids = Vec::new();
        for page in 0.. {
            let Some(()) = stripe.page_ids(stripe_idx, page, &mut ids) else { break };
        }
        for id in ids {
            let Some(tenant) = stripe.series(id).and_then(|record| tenants.by_idx(record.tenant)) else {
                continue;
            };
            if tenant.tables.read().is_live(id) {
                continue;
            }
            let mut tally = WindowTally::new(series.window_width(tenant.unit));
            discard(&mut stripe, series, id, &mut tally);
            slices.tallies.of(tenant.idx, tally.width()).merge(&mut tally);
            count += 1;
        }
    }
    count
}

/// Returns the wire keys of live series.
fn live_wire_keys(series: &SeriesStore, mut keys: LoadedKeys) -> SeriesKeyCache {
    let mut locked = None;
    keys.retain(|id| {
        let stripe_idx = stripe_of(id);
        if !matches!(locked, Some((idx, _)) if idx == stripe_idx) {
            locked = None;
            locked = Some((stripe_idx, series.lock(id)));
        }
        locked.as_ref().is_some_and(|(_, stripe)| stripe.series(id).is_some())
    });
    drop(locked);
    SeriesKeyCache::load(keys)
}
