//! Extending the definitions file by series made since, and writing it anew when most of it is dead.
//!
//! Holds: a mark is written behind all that it speaks of, and what a mark speaks of was durable in the log before.
//! Nothing is appended behind a failed write or sync: the file is written anew then.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use chronolith_base::DiskFile;
use chronolith_format::definitions::{
    FileHeader, KIND_MARK, KIND_RAW_KEYS, KIND_SERIES, Mark, RAW_KEY_BYTES, SeriesWriter, encode_raw_key,
};
use chronolith_format::wal::{FrameHeader, STRIPE_NONE};

use super::{CheckpointStats, Moment, Rolling, Spot};
use crate::head::Head;
use crate::ids::{GivenIds, IdMark};
use crate::options::{HeadError, WriteError};
use crate::stripe::STRIPE_COUNT;
use crate::tenant::TenantHead;
use crate::wal::wal_dir;

/// Bytes of a payload after which the next frame starts.
const FRAME_BYTES: usize = 1 << 20;
/// End of the name of the second copy.
pub(crate) const MIRROR_SUFFIX: &str = ".definitions-mirror";
/// Buffered bytes that are written at once.
const WRITE_BYTES: usize = 1 << 20;

/// The current file.
pub(crate) struct DefinitionsFile {
    /// Both copies; none before the first round, or if the next round writes them anew.
    pub(crate) files: Option<[Arc<dyn DiskFile>; 2]>,
    pub(crate) generation: u64,
    /// Where the next frame goes.
    pub(crate) offset: u64,
    /// Sequence of the last frame.
    pub(crate) frame_sequence: u64,
    /// Series with ids that were given by then are in the file.
    pub(crate) ids: IdMark,
    /// Series in the file, dead ones included.
    pub(crate) series_count: u64,
    /// Whether the file has to be written anew: it is damaged, or a write to it has failed.
    pub(crate) is_broken: bool,
    /// Whether bytes of an earlier process may not be durable.
    pub(crate) is_dirty: bool,
}

impl DefinitionsFile {
    /// No file yet.
    pub(crate) fn none() -> DefinitionsFile {
        DefinitionsFile {
            files: None,
            generation: 0,
            offset: 0,
            frame_sequence: 0,
            ids: IdMark::fresh(0),
            series_count: 0,
            is_broken: false,
            is_dirty: false,
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.offset
    }
}

/// Frames on their way to both copies.
struct Output<'a> {
    files: [&'a dyn DiskFile; 2],
    paths: [&'a Path; 2],
    key: u128,
    offset: u64,
    frame_sequence: u64,
    buffer: Vec<u8>,
}

impl Output<'_> {
    fn put(&mut self, kind: u8, payload: &[u8]) -> Result<(), HeadError> {
        self.frame_sequence += 1;
        let mut header = FrameHeader::for_payload(kind, STRIPE_NONE, payload);
        header.sequence = self.frame_sequence;
        header.put_frame(self.key, payload, &mut self.buffer);
        if self.buffer.len() >= WRITE_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), HeadError> {
        for (file, path) in self.files.iter().zip(self.paths) {
            file.write_at(&self.buffer, self.offset).map_err(HeadError::io(path))?;
        }
        self.offset += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    fn sync(&self) -> Result<(), HeadError> {
        let mut copies = self.files.iter().zip(self.paths);
        copies.try_for_each(|(file, path)| file.sync_data().map_err(HeadError::io(path)))
    }
}

impl Head {
    /// Appends the series and raw keys that the file lacks, and syncs it. Afterwards it has all series whose
    /// ids were given at `moment`.
    pub(crate) fn extend_definitions(
        &self,
        rolling: &mut Rolling,
        moment: Moment,
        stats: &mut CheckpointStats,
    ) -> Result<(), HeadError> {
        if rolling.definitions.is_broken {
            return self.rewrite_definitions(rolling, moment, stats);
        }
        let has_new = moment.ids != rolling.definitions.ids || self.raw_keys.read().has_unstored();
        if !has_new {
            return self.sync_definitions(rolling);
        }
        self.settle_definitions()?;
        let dir = wal_dir(&self.options.dir);
        let known = &rolling.definitions;
        let paths = [0, 1].map(|place| definitions_path(&dir, known.generation, place));
        let Some(files) = known.files.clone() else {
            return self.rewrite_definitions(rolling, moment, stats);
        };
        let mut output = Output {
            files: files.each_ref().map(|file| &**file),
            paths: paths.each_ref().map(PathBuf::as_path),
            key: self.wal.key,
            offset: known.offset,
            frame_sequence: known.frame_sequence,
            buffer: Vec::new(),
        };
        let (from, before) = (self.ids.given_at(known.ids), (known.offset, known.series_count));
        let written = self
            .put_definitions(&mut output, Some(&from), before.1, rolling.marked(moment))
            .and_then(|count| {
                output.sync()?;
                Ok(count)
            });
        let (offset, frame_sequence) = (output.offset, output.frame_sequence);
        let known = &mut rolling.definitions;
        // Until the opposite is shown: after an error nothing is known of what was appended.
        known.is_broken = true;
        known.series_count = written?;
        (known.offset, known.frame_sequence, known.ids) = (offset, frame_sequence, moment.ids);
        (known.is_broken, known.is_dirty) = (false, false);
        stats.bytes += offset - before.0;
        Ok(())
    }

    pub(super) fn sync_definitions(&self, rolling: &mut Rolling) -> Result<(), HeadError> {
        let known = &mut rolling.definitions;
        let Some(files) = known.files.clone().filter(|_| known.is_dirty) else { return Ok(()) };
        let dir = wal_dir(&self.options.dir);
        known.is_broken = true;
        for (place, file) in files.iter().enumerate() {
            file.sync_data().map_err(HeadError::io(&definitions_path(&dir, known.generation, place)))?;
        }
        self.env.disk.sync_dir(&dir).map_err(HeadError::io(&dir))?;
        (known.is_broken, known.is_dirty) = (false, false);
        Ok(())
    }

    /// Returns once the frames of all series that have an id are durable, or cannot become so for want of space: a
    /// checkpoint that may free some must not wait for it.
    fn settle_definitions(&self) -> Result<(), HeadError> {
        for tenant in self.all_tenants() {
            // Whoever has taken an id holds this lock until the series is in the tables and its frame is queued.
            drop(tenant.tables.read());
        }
        match self.wal.sync() {
            Err(WriteError::DiskFull) => Ok(()),
            other => Ok(other?),
        }
    }

    /// Returns true if most series of the file are gone.
    pub(super) fn has_dead_definitions(&self, rolling: &Rolling) -> bool {
        let live_count: u64 = self.all_tenants().iter().map(|t| t.tables.read().live_count() as u64).sum();
        let dead_count = rolling.definitions.series_count.saturating_sub(live_count);
        dead_count > live_count.max(self.options.dead_count_min)
    }

    /// Writes the file anew without series that are gone. Slices without series go with the definitions of
    /// those that they had: both copies of all slices were written just before, so neither log nor definitions speak
    /// of them.
    pub(super) fn compact_definitions(
        &self,
        rolling: &mut Rolling,
        moment: Moment,
        stats: &mut CheckpointStats,
    ) -> Result<(), HeadError> {
        self.rewrite_definitions(rolling, moment, stats)?;
        let dir = wal_dir(&self.options.dir);
        // A slice of which no id is still to be given stays empty.
        let given = self.ids.given_at(moment.ids);
        let has_open = |slice: u32| given.end_in(super::slices::pages_of(slice)) < moment.ids.id_end;
        let open_first = super::slice_of(moment.ids.id_end) / STRIPE_COUNT as u32 * STRIPE_COUNT as u32;
        let is_gone = |slice: u32, spot: &Spot| {
            slice < open_first && !has_open(slice) && spot.is_mirrored(moment) && spot.series_count == 0
        };
        let all = rolling.slices.iter();
        let gone: Vec<u32> =
            all.filter(|(slice, spot)| is_gone(**slice, spot)).map(|(&slice, _)| slice).collect();
        for slice in gone {
            let Some(spot) = rolling.slices.remove(&slice) else { continue };
            for place in (0..2).filter(|&place| spot.exists[place]) {
                let path = super::slice_path(&dir, slice, place);
                self.env.disk.remove_file(&path).map_err(HeadError::io(&path))?;
            }
        }
        Ok(())
    }

    /// Writes all live series to a file of the next generation.
    fn rewrite_definitions(
        &self,
        rolling: &mut Rolling,
        moment: Moment,
        stats: &mut CheckpointStats,
    ) -> Result<(), HeadError> {
        self.settle_definitions()?;
        let (dir, disk) = (wal_dir(&self.options.dir), &*self.env.disk);
        let generation = rolling.definitions.generation + 1;
        let paths = [0, 1].map(|place| definitions_path(&dir, generation, place));
        let tmps = [paths[0].with_extension("tmp"), paths[1].with_extension("mirror.tmp")];
        self.raw_keys.write().forget_stored();
        let create = |tmp: &Path| -> Result<Arc<dyn DiskFile>, HeadError> {
            Ok(disk.create(tmp).map_err(HeadError::io(tmp))?.into())
        };
        let files = [create(&tmps[0])?, create(&tmps[1])?];
        let header = FileHeader { generation, key: self.wal.key, is_mirrored: true };
        let mut output = Output {
            files: files.each_ref().map(|file| &**file),
            paths: tmps.each_ref().map(PathBuf::as_path),
            key: self.wal.key,
            offset: 0,
            frame_sequence: 0,
            buffer: header.encode().to_vec(),
        };
        let series_count = self.put_definitions(&mut output, None, 0, rolling.marked(moment))?;
        output.sync()?;
        let (offset, frame_sequence) = (output.offset, output.frame_sequence);
        for (tmp, path) in tmps.iter().zip(&paths).rev() {
            disk.rename(tmp, path).map_err(HeadError::io(path))?;
        }
        rolling.definitions = DefinitionsFile {
            files: Some(files),
            generation,
            offset,
            frame_sequence,
            ids: moment.ids,
            series_count,
            // Until its name is durable a further round must not count on it.
            is_broken: true,
            is_dirty: false,
        };
        disk.sync_dir(&dir).map_err(HeadError::io(&dir))?;
        rolling.definitions.is_broken = false;
        stats.bytes += offset;
        for entry in disk.list(&dir).map_err(HeadError::io(&dir))? {
            let generation_of = |suffix| entry.name.strip_suffix(suffix).and_then(|g| g.parse::<u64>().ok());
            let older = generation_of(".definitions").or(generation_of(MIRROR_SUFFIX));
            if older.is_some_and(|g| g < generation) {
                let path = dir.join(&entry.name);
                disk.remove_file(&path).map_err(HeadError::io(&path))?;
            }
        }
        Ok(())
    }

    /// Puts series whose ids were given since `from`, raw keys that no file holds, and the mark; gives the
    /// count of series in the file, of which `count` were there before.
    fn put_definitions(
        &self,
        output: &mut Output<'_>,
        from: Option<&GivenIds>,
        mut count: u64,
        moment: Moment,
    ) -> Result<u64, HeadError> {
        let mut payload = Vec::new();
        let given = self.ids.given_at(moment.ids);
        for tenant in self.all_tenants() {
            count += put_series(&tenant, output, from, &given, &mut payload)?;
        }
        loop {
            payload.clear();
            let visit = |hash, id| encode_raw_key(hash, id, &mut payload);
            let is_given = |id| given.has(id);
            let visited = self.raw_keys.write().store(FRAME_BYTES / RAW_KEY_BYTES, is_given, visit);
            if visited == 0 {
                break;
            }
            output.put(KIND_RAW_KEYS, &payload)?;
        }
        let mark = Mark { sequence: moment.sequence, next_id: moment.ids.id_end, series_count: count };
        mark.encode(&mut payload);
        output.put(KIND_MARK, &payload)?;
        output.flush()?;
        Ok(count)
    }
}

/// Puts the series of one tenant that `given` has and `from` has not. Rows stay where they are: upkeep alone
/// moves them.
fn put_series(
    tenant: &TenantHead,
    output: &mut Output<'_>,
    from: Option<&GivenIds>,
    given: &GivenIds,
    payload: &mut Vec<u8>,
) -> Result<u64, HeadError> {
    let mut writer = SeriesWriter::default();
    let first = from.map_or(0, |from| tenant.tables.read().row_after(|id| from.has(id)));
    let (mut count, mut next) = (0, Some(first));
    while let Some(start) = next.take() {
        let mut last_id = None;
        // The lock is held for a frame at a time.
        let tables = tenant.tables.read();
        for (row, id, members) in tables.live_members_from(start).take_while(|&(_, id, _)| given.has(id)) {
            // Ids ascend within a frame.
            if writer.len() >= FRAME_BYTES || last_id.is_some_and(|last| id <= last) {
                next = Some(row);
                break;
            }
            last_id = Some(id);
            writer.push(id, members, |pair| tables.pair_text(pair));
        }
        drop(tables);
        if !writer.is_empty() {
            count += u64::from(writer.series_count());
            writer.finish(tenant.id.as_str(), payload);
            output.put(KIND_SERIES, payload)?;
        }
    }
    Ok(count)
}

/// Path of one of the two copies of a generation.
pub(crate) fn definitions_path(dir: &Path, generation: u64, place: usize) -> PathBuf {
    let suffix = if place == 0 { ".definitions" } else { MIRROR_SUFFIX };
    dir.join(format!("{generation:08}{suffix}"))
}
