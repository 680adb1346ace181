//! Import of one shard: TSM files, tombstones and WAL, merged series by series, become blocks of a store.
//!
//! Invariants: at equal series and time, the point of the later file wins, and a point of the WAL wins over
//! all files. Damage costs the smallest part with a length of its own, a block of up to 1000 points or a WAL
//! entry, and is named in the report. Memory: the series (`series_table`), the open blocks, overlapping
//! blocks of one series, and a part of the WAL.
//! Not here: the order of shards, and the state of earlier imports (`influx`).

use std::path::{Path, PathBuf};

use chronolith_base::{DecodeError, Env, Mapped};
use chronolith_format::block::meta::Ulid;
use chronolith_format::block::tombstones::Interval;
use chronolith_model::{LabelsBuilder, TimeRange, TimeUnit, WordKind};

use super::encoding::BlockPoints;
use super::error::InfluxError;
use super::key::KeyReject;
use super::report::{FieldCounts, InfluxReport, count};
use super::series_merge::{SeriesMerge, Value};
use super::series_table::{KeySource, SeriesTable, TableEvents};
use super::source::{ShardFiles, SourceFile};
use super::tombstone::KeyTombstones;
use super::tsm::{IndexEntry, IndexKey, TsmFile};
use super::wal_points::WalPoints;
use super::windows::ShardWindows;
use crate::write::head_blocks::Announce;
use crate::write::window_blocks::{WindowBlocks, WrittenBlocks};

/// Points that are merged before they are written.
const MERGE_POINTS: usize = 4096;
/// Points and bytes of texts of a series in memory before they are written.
const WRITE_POINTS: usize = 1 << 16;
const WRITE_TEXT_BYTES: usize = 8 << 20;
/// Points of the WAL that are merged like a block.
const WAL_PART_POINTS: usize = 1000;
/// Estimate of the memory of a series in an open block.
const SERIES_BYTES: u64 = 128;

/// Limits of memory of an import.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ShardLimits {
    /// Memory of open blocks; above it the windows of a shard are written one group after the other.
    pub(super) open_bytes_max: u64,
    /// Memory of points of the WAL; above it the WAL is read several times.
    pub(super) wal_bytes_max: u64,
}

impl Default for ShardLimits {
    fn default() -> ShardLimits {
        ShardLimits { open_bytes_max: 512 << 20, wal_bytes_max: 256 << 20 }
    }
}

/// Target of one shard.
pub(crate) struct ShardTarget<'a> {
    pub(super) env: &'a Env,
    /// Directory of the blocks of the store.
    pub(super) blocks_dir: &'a Path,
    /// Newest block in it.
    pub(super) newest: Option<Ulid>,
    /// Called before blocks appear.
    pub(super) announce: Announce,
    pub(super) limits: ShardLimits,
}

/// Open files of a shard. A file that cannot be read at all is `None`.
struct OpenFiles<'a> {
    paths: Vec<PathBuf>,
    tsm: Vec<Option<TsmFile<'a>>>,
    tombstones: Vec<KeyTombstones>,
}

/// Points of a series in a block of a file, or in the WAL.
#[derive(Clone, Copy)]
struct Part {
    min_time: i64,
    /// Files ascend, the WAL comes last.
    rank: u32,
    source: PartSource,
}

#[derive(Clone, Copy)]
enum PartSource {
    Block { entry: IndexEntry, key_offset: u64 },
    Wal { key: u32, start: usize, end: usize },
}

/// A running import of a shard.
struct ShardImport<'a, 'r> {
    files: OpenFiles<'a>,
    table: SeriesTable,
    wal: WalPoints,
    report: &'r mut InfluxReport,
    counts: FieldCounts,
    progress: &'r mut dyn FnMut(u64),
    points: BlockPoints,
}

/// Maps the TSM files; an empty or unreadable one is damage.
pub(crate) fn map_files(env: &Env, files: &[SourceFile], report: &mut InfluxReport) -> Vec<Option<Mapped>> {
    let mut mapped = Vec::with_capacity(files.len());
    for file in files {
        mapped.push(match env.disk.map(&file.path) {
            Ok(bytes) => Some(bytes),
            Err(error) => {
                report.damage(&file.path, 0, format!("{error}: all points of the file are lost"));
                None
            }
        });
    }
    mapped
}

/// Imports the shard of `files`, whose TSM files are `mapped`. `progress` is called with bytes that were
/// read.
///
/// # Errors
/// [`InfluxError`] if blocks cannot be written or the WAL cannot be opened.
pub(crate) fn import(
    target: ShardTarget<'_>,
    files: &ShardFiles,
    mapped: &[Option<Mapped>],
    report: &mut InfluxReport,
    progress: &mut dyn FnMut(u64),
) -> Result<(WrittenBlocks, FieldCounts), InfluxError> {
    let ShardTarget { env, blocks_dir, newest, announce, limits } = target;
    let open = open_files(env, files, mapped, report);
    let mut wal_damages = Vec::new();
    let mut on_damage = |segment, damage| wal_damages.push((segment, damage));
    let wal = WalPoints::open(env, &files.wal, limits.wal_bytes_max, &mut on_damage)?;
    report_wal_damages(files, wal_damages, report);
    let mut events = Events { files: &open, rejected: Vec::new(), damages: Vec::new() };
    let table = SeriesTable::build(&open.tsm, wal.keys(), &mut events);
    let Events { rejected, damages, .. } = events;
    for (path, offset, what) in damages {
        report.damage(path, offset, what);
    }
    let mut import = ShardImport {
        files: open,
        table,
        wal,
        report,
        counts: FieldCounts::new(),
        progress,
        points: BlockPoints::default(),
    };
    for (key, reject, sources) in rejected {
        import.count_rejected(&key, reject, &sources);
    }
    let Some(span) = import.time_span() else {
        return Ok((WrittenBlocks::default(), FieldCounts::new()));
    };
    let windows = ShardWindows::new(env.clock.now_ms(), span.start, span.end - 1);
    let mut blocks = WindowBlocks::new(env, blocks_dir.to_owned(), windows, newest, announce);
    for part in import.window_groups(&windows, span, limits.open_bytes_max) {
        import.write(part, &mut blocks)?;
        blocks.finish()?;
    }
    Ok((blocks.into_written(), import.counts))
}

fn open_files<'a>(
    env: &Env,
    files: &ShardFiles,
    mapped: &'a [Option<Mapped>],
    report: &mut InfluxReport,
) -> OpenFiles<'a> {
    let mut open = OpenFiles { paths: Vec::new(), tsm: Vec::new(), tombstones: Vec::new() };
    for (file, bytes) in files.tsm.iter().zip(mapped) {
        let tsm = bytes.as_ref().and_then(|bytes| match TsmFile::open(bytes) {
            Ok(tsm) => Some(tsm),
            Err(error) => {
                let what = format!("{error}: all points of the file are lost");
                report.damage(&file.path, error.offset() as u64, what);
                None
            }
        });
        open.tsm.push(tsm);
        let path = file.path.with_extension("tombstone");
        open.tombstones.push(if files.tombstones.iter().any(|file| file.path == path) {
            read_tombstones(env, &path, report)
        } else {
            KeyTombstones::default()
        });
        open.paths.push(file.path.clone());
    }
    for name in &files.set_aside {
        report.notes.push(format!("{name}: InfluxDB has set this damaged file aside, it is left out"));
    }
    open
}

fn read_tombstones(env: &Env, path: &Path, report: &mut InfluxReport) -> KeyTombstones {
    let (tombstones, error) = match env.disk.read(path) {
        Ok(bytes) => KeyTombstones::read(&bytes),
        Err(error) => (KeyTombstones::default(), Some(error)),
    };
    if let Some(error) = error {
        report.damage(path, 0, format!("{error}: deletions after this are not applied"));
    }
    tombstones
}

fn report_wal_damages(
    files: &ShardFiles,
    damages: Vec<(usize, super::wal::WalDamage)>,
    report: &mut InfluxReport,
) {
    for (segment, damage) in damages {
        let Some(file) = files.wal.get(segment) else { continue };
        let offset = damage.error.offset() as u64;
        let is_torn_end = matches!(damage.error, DecodeError::Short { .. })
            && damage.is_end
            && segment + 1 == files.wal.len();
        if is_torn_end {
            // InfluxDB had not acknowledged it.
            let path = file.path.display();
            report.notes.push(format!("{path}: offset {offset}: torn end: {}", damage.error));
        } else if damage.is_end {
            let what = format!("{}: points of the segment from here on are lost", damage.error);
            report.damage(&file.path, offset, what);
        } else {
            report.damage(&file.path, offset, format!("{}: points of the entry are lost", damage.error));
        }
    }
}

/// A key with the reason why it is no series.
type Rejected = (Vec<u8>, KeyReject, Vec<KeySource>);

struct Events<'a, 'b> {
    files: &'b OpenFiles<'a>,
    rejected: Vec<Rejected>,
    damages: Vec<(PathBuf, u64, String)>,
}

impl TableEvents for Events<'_, '_> {
    fn index_damage(&mut self, file: usize, error: &DecodeError) {
        let path = self.files.paths.get(file).cloned().unwrap_or_default();
        let what = format!("{error}: keys of the index from here on are lost");
        self.damages.push((path, error.offset() as u64, what));
    }

    fn rejected(&mut self, key: &[u8], reject: KeyReject, sources: &[KeySource]) {
        self.rejected.push((key.to_vec(), reject, sources.to_vec()));
    }
}

impl ShardImport<'_, '_> {
    /// Counts the points of a key that is left out.
    fn count_rejected(&mut self, key: &[u8], reject: KeyReject, sources: &[KeySource]) {
        let mut points = 0;
        for &source in sources {
            match source {
                KeySource::Wal { key } => {
                    points += self.wal.keys().get(key as usize).map_or(0, |key| key.totals.count);
                }
                KeySource::File { .. } => {
                    let mut parts = Vec::new();
                    let kind = self.add_parts(std::iter::once(source), &[], TimeRange::ALL, &mut parts);
                    for part in &parts {
                        if let PartSource::Block { entry, .. } = part.source {
                            points += self.decode(part, &entry, kind) as u64;
                        }
                    }
                }
            }
        }
        self.report.reject(key, reject, points);
    }

    /// Range from the first to the last time of the shard that a store can have.
    fn time_span(&self) -> Option<TimeRange> {
        let valid = TimeUnit::Nano.sample_times();
        let mut first = *valid.end();
        let mut last = *valid.start();
        let mut widen = |min_time: i64, max_time: i64| {
            first = first.min(min_time.max(*valid.start()));
            last = last.max(max_time.min(*valid.end()));
        };
        for source in (0..self.table.len()).flat_map(|series| self.table.sources(series)) {
            match source {
                KeySource::File { file, offset } => {
                    let tsm = self.files.tsm.get(file as usize).and_then(Option::as_ref);
                    let key = tsm.and_then(|tsm| tsm.key_at(offset as usize).ok());
                    for entry in key.iter().flat_map(IndexKey::entries) {
                        widen(entry.min_time, entry.max_time);
                    }
                }
                KeySource::Wal { key } => {
                    let totals = self.wal.keys().get(key as usize).map(|key| key.totals);
                    totals.into_iter().for_each(|totals| widen(totals.min_time, totals.max_time));
                }
            }
        }
        (first <= last).then(|| TimeRange::inclusive(first, last))
    }

    /// Groups of consecutive windows that are written at once.
    fn window_groups(&self, windows: &ShardWindows, span: TimeRange, bytes_max: u64) -> Vec<TimeRange> {
        let at_once = bytes_max / (SERIES_BYTES * self.table.len() as u64).max(1);
        let at_once = usize::try_from(at_once).unwrap_or(usize::MAX).max(1);
        let all = windows.all(span.start, span.end - 1);
        let groups = all.chunks(at_once).filter_map(|group| {
            let first = group.first()?;
            let last = group.last()?;
            Some(TimeRange::new(first.start.max(span.start), last.end.min(span.end)))
        });
        groups.collect()
    }

    /// Writes the points of all series in `range`.
    fn write(
        &mut self,
        range: TimeRange,
        blocks: &mut WindowBlocks<'_, ShardWindows>,
    ) -> Result<(), InfluxError> {
        let wal_order = self.wal_order();
        let mut wal_rest = wal_order.as_slice();
        let mut parts = Vec::new();
        let mut builder = LabelsBuilder::new();
        for series in 0..self.table.len() {
            let sources: Vec<KeySource> = self.table.sources(series).collect();
            let own_count = sources.iter().filter(|source| matches!(source, KeySource::Wal { .. })).count();
            parts.clear();
            let kind = self.add_parts(sources.into_iter(), wal_rest, range, &mut parts);
            wal_rest = wal_rest.get(own_count..).unwrap_or_default();
            if parts.is_empty() {
                continue;
            }
            parts.sort_by_key(|part| (part.min_time, part.rank));
            let labels = self.table.labels(series, &mut builder);
            let points = match kind {
                WordKind::Text => self.merge::<std::sync::Arc<[u8]>>(&parts, kind, range, blocks)?,
                _ => self.merge::<f64>(&parts, kind, range, blocks)?,
            };
            blocks.end_series(&labels)?;
            if points > 0 {
                count(&mut self.counts, &labels, kind, points);
            }
        }
        Ok(())
    }

    /// Keys of the WAL in the order in which series need them.
    fn wal_order(&self) -> Vec<u32> {
        let sources = (0..self.table.len()).flat_map(|series| self.table.sources(series));
        let of_wal = sources.filter_map(|source| match source {
            KeySource::Wal { key } => Some(key),
            KeySource::File { .. } => None,
        });
        of_wal.collect()
    }

    /// Appends the parts of a key in `range`; returns the kind of its values. `wal_next` are the keys of the
    /// WAL that are needed next.
    fn add_parts(
        &mut self,
        sources: impl Iterator<Item = KeySource>,
        wal_next: &[u32],
        range: TimeRange,
        parts: &mut Vec<Part>,
    ) -> WordKind {
        let mut kind = WordKind::Float;
        for source in sources {
            match source {
                KeySource::File { file, offset } => {
                    let Some(Some(tsm)) = self.files.tsm.get(file as usize) else { continue };
                    // The table was made of the same key.
                    let Ok(key) = tsm.key_at(offset as usize) else { continue };
                    kind = key.kind;
                    let is_inside = |entry: &IndexEntry| {
                        entry.min_time < range.end && range.start <= entry.max_time.max(entry.min_time)
                    };
                    parts.extend(key.entries().filter(is_inside).map(|entry| Part {
                        min_time: entry.min_time,
                        rank: file,
                        source: PartSource::Block { entry, key_offset: offset },
                    }));
                }
                KeySource::Wal { key } => {
                    kind = self.wal.keys().get(key as usize).map_or(kind, |key| key.kind);
                    self.add_wal_parts(key, wal_next, range, parts);
                }
            }
        }
        kind
    }

    fn add_wal_parts(&mut self, key: u32, wal_next: &[u32], range: TimeRange, parts: &mut Vec<Part>) {
        let rank = self.files.tsm.len() as u32;
        let Some(points) = self.wal.of(key, wal_next.iter().copied()) else { return };
        for (idx, times) in points.times.chunks(WAL_PART_POINTS).enumerate() {
            let (Some(&min_time), Some(&max_time)) = (times.first(), times.last()) else { continue };
            if range.overlaps_inclusive(min_time, max_time) {
                let start = idx * WAL_PART_POINTS;
                let source = PartSource::Wal { key, start, end: start + times.len() };
                parts.push(Part { min_time, rank, source });
            }
        }
    }

    /// Merges the parts of a series into `blocks`; returns how many points they have.
    fn merge<V: Value>(
        &mut self,
        parts: &[Part],
        kind: WordKind,
        range: TimeRange,
        blocks: &mut WindowBlocks<'_, ShardWindows>,
    ) -> Result<u64, InfluxError> {
        let mut merge = SeriesMerge::<V>::new();
        let mut times = Vec::new();
        let mut values = Vec::new();
        let mut total = 0;
        let mut text_bytes = 0;
        for (idx, part) in parts.iter().enumerate() {
            self.add_part(part, kind, range, &mut merge);
            let next = parts.get(idx + 1).map(|next| next.min_time);
            if next.is_some() && merge.len() < MERGE_POINTS {
                continue;
            }
            let before = values.len();
            merge.take_before(next, &mut times, &mut values);
            text_bytes += values.iter().skip(before).map(V::heap_bytes).sum::<usize>();
            if times.len() >= WRITE_POINTS || text_bytes >= WRITE_TEXT_BYTES || next.is_none() {
                blocks.push(kind, &times, &values)?;
                total += times.len() as u64;
                times.clear();
                values.clear();
                text_bytes = 0;
            }
        }
        self.report.leave_out(merge.left_out);
        Ok(total)
    }

    fn add_part<V: Value>(
        &mut self,
        part: &Part,
        kind: WordKind,
        range: TimeRange,
        merge: &mut SeriesMerge<V>,
    ) {
        match part.source {
            PartSource::Block { entry, key_offset } => {
                if self.decode(part, &entry, kind) == 0 {
                    return;
                }
                if range.contains(part.min_time) {
                    (self.progress)(u64::from(entry.size));
                }
                let tsm = self.files.tsm.get(part.rank as usize).and_then(Option::as_ref);
                let key = tsm.and_then(|tsm| tsm.key_at(key_offset as usize).ok());
                let tombstones = self.files.tombstones.get(part.rank as usize);
                let deleted = key.zip(tombstones).map_or(&[][..], |(key, all)| all.of(key.key));
                merge.add(&self.points, part.rank, range, deleted);
            }
            PartSource::Wal { key, start, end } => {
                let Some(points) = self.wal.of(key, std::iter::empty()) else { return };
                self.points.clear();
                self.points.times.extend(points.times.get(start..end).unwrap_or_default());
                self.points.words.extend(points.words.get(start..end).unwrap_or_default());
                self.points.texts.extend_from_slice(points.texts.get(start..end).unwrap_or_default());
                merge.add(&self.points, part.rank, range, &[] as &[Interval]);
            }
        }
    }

    /// Decodes a block to `self.points` and returns the number of its points; 0 with a damage in the report
    /// if it cannot be read.
    fn decode(&mut self, part: &Part, entry: &IndexEntry, kind: WordKind) -> usize {
        let Some(Some(tsm)) = self.files.tsm.get(part.rank as usize) else { return 0 };
        let decoded = tsm.block(entry).and_then(|block| self.points.decode(block, kind));
        let range = entry.min_time..=entry.max_time;
        let error = match decoded {
            Ok(()) if self.points.times.iter().all(|time| range.contains(time)) => {
                return self.points.times.len();
            }
            Ok(()) => "times outside of those in the index".to_owned(),
            Err(error) => error.to_string(),
        };
        self.points.clear();
        let path = self.files.paths.get(part.rank as usize).cloned().unwrap_or_default();
        let what = format!(
            "block of {} bytes: {error}: points of one field from {} to {} ns are lost",
            entry.size, entry.min_time, entry.max_time
        );
        self.report.damage(path, entry.offset, what);
        0
    }
}

#[cfg(test)]
mod tests;
