//! Verification of a data directory: every checksum of every file (`chronolith check`).
//!
//! Invariants: changes no file, and one damaged file does not hide the others. An incomplete end of the WAL
//! after a kill is a note, not damage: it was never acknowledged.
//! Not here: repair.

use chronolith_format::parse_store_name;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use chronolith_base::hash::{HashSet, hash_bytes};
use chronolith_base::{DecodeError, Env, Mapped};
use chronolith_block::{Block, FileSizes};
use chronolith_format::block::catalogue;
use chronolith_format::block::catalogue::{BlockRecord, Change};
use chronolith_format::block::meta::Ulid;
use chronolith_format::head::{sealed, series_file, slice, wal};

use crate::blocks::catalogue::FILE_NAME as CATALOGUE_FILE;
use crate::blocks::tenant::TENANTS_DIR;
use crate::frame_log::copies::LogFormat;
use crate::{graphite, metadata};

/// Damage of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// File.
    pub path: PathBuf,
    /// Offset in the file.
    pub offset: u64,
    /// Description for operators.
    pub what: String,
}

/// Verified files and their damage.
#[derive(Debug, Clone, Default)]
pub struct CheckReport {
    /// WAL segments read.
    pub segments: u64,
    /// Good frames in the segments.
    pub frames: u64,
    /// Slices of the checkpoint, one copy of each.
    pub slices: u64,
    /// Series in the series files.
    pub definitions: u64,
    /// Entries in the metadata file, replaced ones included.
    pub metadata_entries: u64,
    /// Sealed chunks that a slice refers to.
    pub sealed_chunks: u64,
    /// Blocks read.
    pub blocks: u64,
    /// Samples in the blocks.
    pub block_samples: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Findings that are no damage.
    pub notes: Vec<String>,
    /// Damage, in order of finding.
    pub damages: Vec<Damage>,
}

impl CheckReport {
    fn damage(&mut self, path: &Path, offset: u64, what: impl ToString) {
        self.damages.push(Damage { path: path.to_owned(), offset, what: what.to_string() });
    }

    fn decode_damage(&mut self, path: &Path, error: &DecodeError) {
        self.damage(path, error.offset() as u64, error);
    }
}

/// Verifies everything below `dir`: WAL, block catalogue, definitions, metadata, slices, the sealed chunks
/// that they refer to, and all blocks. Cost: one pass over all bytes.
///
/// # Errors
/// If `dir` cannot be listed. Files that cannot be read are damages.
pub fn check_dir(env: &Env, dir: &Path) -> std::io::Result<CheckReport> {
    let mut report = CheckReport::default();
    env.disk.list(dir)?;
    check_wal(env, dir, &mut report);
    report.metadata_entries = check_frame_log(env, dir, &metadata::FORMAT, &mut report);
    check_frame_log(env, dir, &graphite::FORMAT, &mut report);
    check_tenants(env, dir, &mut report);
    check_catalogue(env, dir, &mut report);
    Ok(report)
}

/// Returns the names of the files in `dir`; none if it does not exist.
fn names(env: &Env, dir: &Path) -> Vec<String> {
    env.disk.list(dir).map(|entries| entries.into_iter().map(|e| e.name).collect()).unwrap_or_default()
}

fn check_wal(env: &Env, dir: &Path, report: &mut CheckReport) {
    let wal_dir = dir.join("wal");
    let all = names(env, &wal_dir);
    let segments: Vec<_> = all.iter().filter(|n| n.ends_with(".seg")).collect();
    let mut found = Vec::new();
    for (idx, name) in segments.iter().enumerate() {
        found.extend(check_segment(env, &wal_dir.join(name), idx + 1 == segments.len(), report));
    }
    check_log_end(env, &wal_dir, &all, &found, report);
    let mut generations: Vec<&str> = all
        .iter()
        .filter_map(|n| n.strip_suffix(".definitions").or(n.strip_suffix(".definitions-mirror")))
        .collect();
    generations.dedup();
    let mut defined = Vec::new();
    for generation in &generations {
        let copies =
            ["definitions", "definitions-mirror"].map(|kind| wal_dir.join(format!("{generation}.{kind}")));
        let is_mirrored: Vec<bool> =
            copies.iter().map(|path| check_definitions(env, path, &mut defined, report)).collect();
        // A crash between the renames of a new generation leaves one file of it next to the generation
        // before.
        check_missing_copy(env, &copies, generations.len() == 1 && is_mirrored.contains(&true), report);
    }
    let stored = check_slices(env, dir, &all, report);
    // A start reads one of the copies.
    let undefined_counts = defined.iter().map(|of_copy| stored.difference(of_copy).count());
    let undefined_count = undefined_counts.min().unwrap_or(stored.len());
    if undefined_count > 0 {
        let generation = generations.last().copied().unwrap_or("00000001");
        let path = wal_dir.join(format!("{generation}.definitions"));
        report.damage(&path, 0, format!("does not define {undefined_count} series of the checkpoint"));
    }
}

/// Reports a missing copy if the header of the other one records two.
fn check_missing_copy(env: &Env, copies: &[PathBuf; 2], is_mirrored: bool, report: &mut CheckReport) {
    for path in copies.iter().filter(|path| is_mirrored && !env.disk.exists(path)) {
        report.damage(path, 0, "is missing; the other copy is there");
    }
}

/// Verifies a segment and returns the sequences of its first and last frame.
fn check_segment(env: &Env, path: &Path, is_last: bool, report: &mut CheckReport) -> Option<(u64, u64)> {
    let bytes = match env.disk.map(path) {
        Ok(bytes) => bytes,
        Err(error) => {
            report.damage(path, 0, error);
            return None;
        }
    };
    report.segments += 1;
    report.bytes += bytes.len() as u64;
    let header = match wal::SegmentHeader::decode(&bytes) {
        Ok(header) => header,
        Err(_) if is_last && bytes.iter().all(|&b| b == 0) => {
            report.notes.push(format!("{}: reserved, nothing written yet", path.display()));
            return None;
        }
        Err(error) => {
            report.decode_damage(path, &error);
            return None;
        }
    };
    let scan = wal::scan_segment(&bytes, &header);
    report.frames += scan.frames.len() as u64;
    for damage in scan.damage {
        let text = format!("{} bytes belong to no valid frame", damage.len);
        if is_last && !damage.followed {
            let place = format!("{}: offset {}", path.display(), damage.offset);
            report.notes.push(format!("{place}: torn end of the log, {text} (never acknowledged)"));
        } else {
            report.damage(path, damage.offset as u64, text);
        }
    }
    let first = scan.frames.first()?;
    let payload = bytes.get(first.payload.clone()).unwrap_or_default();
    let first = first_after_removed(first.header.kind, payload).unwrap_or(first.header.sequence);
    Some((first, scan.frames.last()?.header.sequence))
}

/// Returns the sequence from which on an owner of a partition has removed the frames before a position, which
/// are not missing.
fn first_after_removed(kind: u8, payload: &[u8]) -> Option<u64> {
    let position =
        (kind == wal::KIND_POSITION).then(|| wal::PositionFrame::decode(payload).ok()).flatten()?;
    Some(position.resumes_after?.saturating_add(1))
}

/// Verifies that all frames and segments of the control file exist; `found` has the first and last frame of
/// each segment with frames.
fn check_log_end(env: &Env, dir: &Path, names: &[String], found: &[(u64, u64)], report: &mut CheckReport) {
    for pair in found.windows(2) {
        let (before, after) = (pair[0].1, pair[1].0);
        if after > before + 1 {
            report.damage(dir, 0, format!("frames {} to {} are missing", before + 1, after - 1));
        }
    }
    let path = dir.join(wal::CONTROL_FILE);
    if !names.iter().any(|name| name == wal::CONTROL_FILE) {
        if names.iter().any(|name| name.ends_with(".spare")) {
            report.damage(&path, 0, "is missing");
        }
        return;
    }
    let bytes = match env.disk.read(&path) {
        Ok(bytes) => bytes,
        Err(error) => return report.damage(&path, 0, error),
    };
    report.bytes += bytes.len() as u64;
    let Some(record) = wal::ControlRecord::newest(&bytes) else {
        return report.damage(&path, 0, "has no valid record of the end of the WAL");
    };
    let first = found.first().map_or(0, |(first, _)| *first);
    let last = found.iter().map(|(_, last)| *last).max().unwrap_or(0);
    for lost in [record.lost_before(first), record.lost_behind(last)].into_iter().flatten() {
        report.damage(dir, 0, format!("frames {} to {} of the log are missing", lost.first, lost.last));
    }
    let newest = format!("{:08}.seg", record.last_segment);
    if record.last_segment > 0 && !names.contains(&newest) {
        report.damage(&dir.join(newest), 0, "the newest segment of the log is missing");
    }
}

/// Adds the series of the copy to `defined`. Returns true if the header records a second copy.
fn check_definitions(
    env: &Env,
    path: &Path,
    defined: &mut Vec<HashSet<SeriesKey>>,
    report: &mut CheckReport,
) -> bool {
    let Some(bytes) = map_if_there(env, path, report) else { return false };
    report.bytes += bytes.len() as u64;
    let header = match series_file::FileHeader::decode(&bytes) {
        Ok(header) => header,
        Err(error) => {
            report.decode_damage(path, &error);
            return false;
        }
    };
    let is_primary = path.extension().is_some_and(|extension| extension == "definitions");
    let mut keys = HashSet::default();
    let scan = wal::scan_segment_from(&bytes, header.key, series_file::FILE_HEADER_BYTES, 0);
    for frame in scan.frames.iter().filter(|f| f.header.kind == series_file::KIND_SERIES) {
        let payload = bytes.get(frame.payload.clone()).unwrap_or(&[]);
        match series_keys(payload, &mut keys) {
            Ok(count) => report.definitions += if is_primary { count } else { 0 },
            Err(error) => report.damage(path, frame.payload.start as u64, error),
        }
    }
    for damage in scan.damage {
        let text = format!("{} bytes belong to no valid frame", damage.len);
        if damage.followed {
            report.damage(path, damage.offset as u64, text);
        } else {
            let place = format!("{}: offset {}", path.display(), damage.offset);
            report.notes.push(format!("{place}: unfinished checkpoint, {text} (the WAL has their content)"));
        }
    }
    defined.push(keys);
    header.is_mirrored
}

/// Hash of the tenant and id of a series: an id may have belonged to a series of another tenant before.
type SeriesKey = (u64, u32);

fn tenant_hash(tenant: &str) -> u64 {
    hash_bytes(tenant.as_bytes())
}

/// Adds the series in a payload to `keys` and returns their number.
fn series_keys(payload: &[u8], keys: &mut HashSet<SeriesKey>) -> Result<u64, DecodeError> {
    let mut series = series_file::SeriesReader::decode(payload)?;
    let tenant = tenant_hash(series.tenant);
    let mut members = Vec::new();
    while let Some(id) = series.next(&mut members)? {
        keys.insert((tenant, id));
    }
    Ok(series.series_count as u64)
}

/// Returns the bytes of `path`; `None` if it is missing, or cannot be read, which is reported as damage.
fn map_if_there(env: &Env, path: &Path, report: &mut CheckReport) -> Option<Mapped> {
    if !env.disk.exists(path) {
        return None;
    }
    env.disk.map(path).map_err(|error| report.damage(path, 0, error)).ok()
}

/// Verifies both copies of a frame log; returns the number of entries in the first one, replaced ones
/// included.
fn check_frame_log(env: &Env, dir: &Path, format: &LogFormat, report: &mut CheckReport) -> u64 {
    let paths = format.names.map(|name| dir.join(name));
    let found = [0, 1].map(|idx: usize| check_frame_log_copy(env, &paths[idx], format, report));
    check_missing_copy(env, &paths, found.iter().any(|copy| copy.is_mirrored), report);
    // A kill leaves at most one copy with an incomplete end.
    if found.iter().all(|copy| copy.has_cut_end) {
        let content = format.content;
        let what = format!("both copies have an incomplete end: {content} written last may be lost");
        report.damage(&paths[0], 0, what);
    }
    found[0].entry_count
}

/// One copy of a frame log.
#[derive(Default)]
struct FrameLogCopy {
    /// The header records a second copy.
    is_mirrored: bool,
    /// The last good frame is followed by bytes of no frame.
    has_cut_end: bool,
    entry_count: u64,
}

fn check_frame_log_copy(
    env: &Env,
    path: &Path,
    format: &LogFormat,
    report: &mut CheckReport,
) -> FrameLogCopy {
    let mut copy = FrameLogCopy::default();
    let Some(bytes) = map_if_there(env, path, report) else { return copy };
    report.bytes += bytes.len() as u64;
    let header = match (format.decode_header)(&bytes) {
        Ok(header) => header,
        Err(error) => {
            report.decode_damage(path, &error);
            return copy;
        }
    };
    copy.is_mirrored = header.is_mirrored;
    let scan = wal::scan_segment_from(&bytes, header.key, format.header_bytes, 0);
    for frame in &scan.frames {
        let payload = bytes.get(frame.payload.clone()).unwrap_or(&[]);
        match (format.entry_count)(frame.header.kind, payload) {
            Ok(count) => copy.entry_count += count,
            Err(error) => report.damage(path, frame.payload.start as u64, error),
        }
    }
    for damage in scan.damage {
        let text = format!("{} bytes belong to no valid frame", damage.len);
        if damage.followed {
            report.damage(path, damage.offset as u64, text);
        } else {
            copy.has_cut_end = true;
            let place = format!("{}: offset {}", path.display(), damage.offset);
            let content = format.content;
            report.notes.push(format!("{place}: torn end of the {content}, {text} (never acknowledged)"));
        }
    }
    copy
}

/// Verifies both copies of each slice, and that the WAL continues where the newest complete copy ends. A copy
/// gets its name when it is complete, so a bad copy is damaged, and a single copy after the second write has
/// lost the other. Returns the ids of all series.
fn check_slices(env: &Env, dir: &Path, names: &[String], report: &mut CheckReport) -> HashSet<SeriesKey> {
    let wal_dir = dir.join("wal");
    let mut wanted: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    let mut stored = HashSet::default();
    let mut slices: BTreeMap<&str, Vec<PathBuf>> = BTreeMap::new();
    let log_start = log_start(env, &wal_dir, names);
    for name in names {
        if let Some(slice) = name.strip_suffix(".slice0").or(name.strip_suffix(".slice1")) {
            slices.entry(slice).or_default().push(wal_dir.join(name));
        }
    }
    for paths in slices.values() {
        let mut newest: Option<(u64, &Path, Mapped)> = None;
        let mut damages = Vec::new();
        for path in paths {
            let bytes = match env.disk.map(path) {
                Ok(bytes) => bytes,
                Err(error) => {
                    report.damage(path, 0, error);
                    continue;
                }
            };
            report.bytes += bytes.len() as u64;
            match slice::decode_slice(&bytes) {
                Ok((header, _)) if newest.as_ref().is_some_and(|(g, ..)| *g >= header.generation) => {}
                Ok((header, _)) => newest = Some((header.generation, path, bytes)),
                Err(error) => damages.push((path, error)),
            }
        }
        report.slices += 1;
        for (path, error) in &damages {
            report.decode_damage(path, error);
        }
        if let Some((generation, path, bytes)) = newest {
            if paths.len() == 1 && generation > 1 {
                report.damage(path, 0, "is alone: the other copy of the slice is missing");
            }
            let sequence = slice::SliceHeader::decode(&bytes).map_or(0, |header| header.sequence);
            if let Some(start) = log_start.filter(|&start| sequence.saturating_add(1) < start) {
                report.damage(
                    path,
                    0,
                    format!("the WAL after it begins at frame {start} instead of {}", sequence + 1),
                );
            }
            collect_series(path, &bytes, &mut wanted, &mut stored, report);
        }
    }
    for (file, offsets) in wanted {
        check_sealed(env, &dir.join("chunks").join(format!("{file:08}.sealed")), &offsets, report);
    }
    stored
}

/// Returns the sequence of the first good frame of the WAL.
fn log_start(env: &Env, wal_dir: &Path, names: &[String]) -> Option<u64> {
    names.iter().filter(|name| name.ends_with(".seg")).find_map(|name| {
        let bytes = env.disk.map(&wal_dir.join(name)).ok()?;
        let header = wal::SegmentHeader::decode(&bytes).ok()?;
        wal::scan_segment(&bytes, &header).frames.first().map(|frame| frame.header.sequence)
    })
}

/// Adds the positions of the sealed chunks that a good copy refers to, and its series.
fn collect_series(
    path: &Path,
    bytes: &[u8],
    wanted: &mut BTreeMap<u32, Vec<u32>>,
    stored: &mut HashSet<SeriesKey>,
    report: &mut CheckReport,
) {
    let Ok((_, frames)) = slice::decode_slice(bytes) else { return };
    let tenants = frames.iter().filter(|(kind, _)| *kind == slice::KIND_TENANTS);
    let tenants = tenants.flat_map(|(_, payload)| slice::decode_tenants(payload).unwrap_or_default());
    let tenants: Vec<u64> = tenants.map(|(name, _)| tenant_hash(name)).collect();
    for &(kind, payload) in frames.iter().filter(|(kind, _)| slice::is_series(*kind)) {
        let (mut reader, mut entry) = (slice::EntryReader::new(kind, payload), slice::SeriesEntry::default());
        loop {
            match reader.next(&mut entry) {
                Ok(false) => break,
                Ok(true) => {
                    // A slice without its list of tenants is reported when it is decoded.
                    let tenant = tenants.get(entry.tenant as usize);
                    stored.extend(tenant.map(|&tenant| (tenant, entry.id)));
                    for chunk in &entry.sealed {
                        wanted.entry(chunk.file).or_default().push(chunk.offset);
                    }
                }
                Err(error) => {
                    report.damage(path, 0, error);
                    break;
                }
            }
        }
    }
}

fn check_sealed(env: &Env, path: &Path, offsets: &[u32], report: &mut CheckReport) {
    let bytes = match env.disk.map(path) {
        Ok(bytes) => bytes,
        Err(error) => return report.damage(path, 0, error),
    };
    report.bytes += bytes.len() as u64;
    if let Err(error) = sealed::decode_file_header(&bytes) {
        report.decode_damage(path, &error);
    }
    for &offset in offsets {
        report.sealed_chunks += 1;
        if let Err(error) = sealed::decode_record(&bytes, offset as usize) {
            report.damage(path, u64::from(offset), error);
        }
    }
}

fn check_tenants(env: &Env, dir: &Path, report: &mut CheckReport) {
    let root = dir.join(TENANTS_DIR);
    for name in names(env, &root) {
        if let Err(error) = parse_store_name(&name) {
            report.notes.push(format!("{}: not a tenant directory: {error}", root.join(&name).display()));
            continue;
        }
        for block in names(env, &root.join(&name)) {
            if !block.contains(".tmp-") {
                check_block(env, &root.join(&name).join(&block), report);
            }
        }
    }
}

/// Reports blocks of the catalogue without a directory. A damaged catalogue loses nothing: a start rebuilds
/// it.
fn check_catalogue(env: &Env, dir: &Path, report: &mut CheckReport) {
    let path = dir.join(CATALOGUE_FILE);
    if !env.disk.exists(&path) {
        return;
    }
    let bytes = match env.disk.read(&path) {
        Ok(bytes) => bytes,
        Err(error) => return report.damage(&path, 0, error),
    };
    report.bytes += bytes.len() as u64;
    let mut blocks: BTreeMap<(String, Ulid), BlockRecord> = BTreeMap::new();
    let mut parents: BTreeSet<Ulid> = BTreeSet::new();
    let contents = catalogue::read(&bytes, &mut |tenant, change| match change {
        Change::Add(record) => {
            parents.extend(&record.parents);
            blocks.insert((tenant.to_owned(), record.ulid), record);
        }
        Change::Remove(ulid) => drop(blocks.remove(&(tenant.to_owned(), ulid))),
    });
    match contents {
        Err(error) => return report.decode_damage(&path, &error),
        Ok(contents) => {
            for damage in contents.damages {
                let text = format!(
                    "{} bytes belong to no valid frame; a start reads the blocks instead",
                    damage.len
                );
                if damage.followed {
                    report.damage(&path, damage.offset as u64, text);
                } else {
                    let place = format!("{}: offset {}", path.display(), damage.offset);
                    report.notes.push(format!("{place}: torn end of the catalogue, {text}"));
                }
            }
        }
    }
    for ((tenant, ulid), record) in blocks {
        let block_dir = dir.join(TENANTS_DIR).join(tenant).join(ulid.to_string());
        if env.disk.exists(&block_dir) {
            check_record(env, &block_dir, &record, report);
        } else if !parents.contains(&ulid) {
            report.damage(&block_dir, 0, "block is missing, the catalogue names it");
        }
    }
}

/// Compares the files, the name and the time range of a block with its record. After a kill the record may be
/// older than `meta.json` and tombstones, but not than the other files.
fn check_record(env: &Env, block_dir: &Path, record: &BlockRecord, report: &mut CheckReport) {
    let found = FileSizes::of(env, block_dir).and_then(|sizes| sizes.compare(block_dir, record));
    let named = Block::open(env, block_dir).ok().map_or(Ok(()), |block| block.compare_meta(record));
    for error in [found, named].into_iter().filter_map(Result::err) {
        report.damage(error.path().unwrap_or(block_dir), 0, &error);
    }
}

fn check_block(env: &Env, dir: &Path, report: &mut CheckReport) {
    report.blocks += 1;
    match Block::open(env, dir) {
        Ok(block) => {
            report.bytes += block.size_bytes();
            report.block_samples += block.meta().stats.num_samples;
            for found in block.verify().into_iter().chain(block.verify_rollups()) {
                report.damages.push(Damage { path: found.path, offset: found.offset, what: found.what });
            }
        }
        Err(error) => report.damage(error.path().unwrap_or(dir), 0, &error),
    }
}
