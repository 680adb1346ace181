//! Series file: appends the records of new series, and rewrites the file when most of its series are dead.
//!
//! Invariants: a mark is written after everything it covers, and was covered durably by the WAL before.
//! Nothing is appended after a failed write or sync: the file is rewritten then.

use std::io;

use chronolith_base::AppendFile;
use chronolith_format::head::frame_log::FrameWriter;
use chronolith_format::head::series_file::{
    FileHeader, KIND_MARK, KIND_RAW_KEYS, KIND_SERIES, Mark, RAW_KEY_BYTES, SeriesWriter, encode_raw_key,
};

use super::definitions_file::{DefinitionsFile, MIRROR_SUFFIX, definitions_path, definitions_paths};
use super::mark::CheckpointMark;
use super::slice_state::{SliceState, pages_of};
use super::state::{CheckpointState, CheckpointStats, Checkpointer};
use crate::index::ids::GivenIds;
use crate::index::tenant::TenantHead;
use crate::options::HeadError;
use crate::options::wal_dir;
use crate::series::stripe::STRIPE_COUNT;
use chronolith_wal::WalError;

/// Payload bytes at which the next frame starts.
const FRAME_BYTES: usize = 1 << 20;
/// Buffered bytes per write.
const WRITE_BYTES: usize = 1 << 20;

/// Buffered writer of frames to both copies.
struct Output<'a> {
    file: &'a mut AppendFile,
    frames: FrameWriter,
}

impl Output<'_> {
    fn put(&mut self, kind: u8, payload: &[u8]) -> Result<(), HeadError> {
        self.frames.put(kind, payload);
        if self.frames.len() >= WRITE_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), HeadError> {
        let bytes = self.frames.take();
        self.file.append(&bytes).map_err(|error| io_error(self.file, error))
    }
}

fn io_error(file: &AppendFile, error: io::Error) -> HeadError {
    HeadError::Io { path: file.path().to_owned(), error }
}

impl Checkpointer {
    /// Appends the series records and wire keys that the file lacks, and syncs it. Afterwards it has all
    /// series whose ids were assigned at `mark`.
    pub(crate) fn extend_definitions(
        &self,
        rolling: &mut CheckpointState,
        mark: CheckpointMark,
        stats: &mut CheckpointStats,
    ) -> Result<(), HeadError> {
        if rolling.definitions.is_broken() {
            return self.rewrite_definitions(rolling, mark, stats);
        }
        let has_new =
            mark.ids != rolling.definitions.ids || self.state.index.series_keys.read().has_unstored();
        if !has_new {
            return self.sync_definitions(rolling);
        }
        if rolling.definitions.file.is_none() {
            return self.rewrite_definitions(rolling, mark, stats);
        }
        self.settle_definitions()?;
        let end = rolling.marked(mark);
        let known = &mut rolling.definitions;
        let Some(file) = known.file.as_mut() else { return Ok(()) };
        let (from, len_before) = (self.state.index.ids.given_at(known.ids), file.len());
        let frames = FrameWriter::new(self.state.wal.key(), known.frame_sequence);
        let mut output = Output { file: &mut *file, frames };
        let series_count = self.put_definitions(&mut output, Some(&from), known.series_count, end)?;
        let frame_sequence = output.frames.sequence();
        file.sync().map_err(|error| io_error(file, error))?;
        stats.bytes += file.len() - len_before;
        (known.frame_sequence, known.series_count, known.ids) = (frame_sequence, series_count, mark.ids);
        Ok(())
    }

    /// Makes the file durable, also a file of an earlier process.
    pub(super) fn sync_definitions(&self, rolling: &mut CheckpointState) -> Result<(), HeadError> {
        let Some(file) = rolling.definitions.file.as_mut().filter(|file| file.is_open()) else {
            return Ok(());
        };
        file.sync().map_err(|error| io_error(file, error))
    }

    /// Returns once the frames of all series with an id are durable, or cannot become so because the disk is
    /// full: a checkpoint that may free space must not wait for space.
    fn settle_definitions(&self) -> Result<(), HeadError> {
        for tenant in self.state.index.tenants() {
            // A thread that has taken an id holds this lock until the series is in the index and its frame is
            // queued.
            drop(tenant.tables.read());
        }
        match self.state.wal.sync() {
            Err(WalError::DiskFull) => Ok(()),
            other => Ok(other?),
        }
    }

    /// Returns true if most series of the file are dead.
    pub(super) fn has_dead_definitions(&self, rolling: &CheckpointState) -> bool {
        let live_count: u64 =
            self.state.index.tenants().iter().map(|t| t.tables.read().live_count() as u64).sum();
        let dead_count = rolling.definitions.series_count.saturating_sub(live_count);
        dead_count > live_count.max(self.state.options.dead_count_min)
    }

    /// Rewrites the file without dead series, and removes slices without series: both copies of all slices
    /// were written just before, so neither the WAL nor the series file references those series.
    pub(super) fn compact_definitions(
        &self,
        rolling: &mut CheckpointState,
        mark: CheckpointMark,
        stats: &mut CheckpointStats,
    ) -> Result<(), HeadError> {
        self.rewrite_definitions(rolling, mark, stats)?;
        let dir = wal_dir(&self.state.options.dir);
        // A slice without assignable ids stays empty.
        let given = self.state.index.ids.given_at(mark.ids);
        let has_open = |slice: u32| given.end_in(pages_of(slice)) < mark.ids.id_end();
        let open_first = super::slice_of(mark.ids.id_end()) / STRIPE_COUNT as u32 * STRIPE_COUNT as u32;
        let is_gone = |slice: u32, slice_state: &SliceState| {
            slice < open_first
                && !has_open(slice)
                && slice_state.is_mirrored(mark)
                && slice_state.series_count == 0
        };
        let all = rolling.slices.iter();
        let gone: Vec<u32> = all
            .filter(|(slice, slice_state)| is_gone(**slice, slice_state))
            .map(|(&slice, _)| slice)
            .collect();
        for slice in gone {
            let Some(slice_state) = rolling.slices.remove(&slice) else { continue };
            for copy_idx in (0..2).filter(|&copy_idx| slice_state.exists[copy_idx]) {
                let path = super::slice_path(&dir, slice, copy_idx);
                self.state.env.disk.remove_file(&path).map_err(HeadError::io(&path))?;
            }
        }
        Ok(())
    }

    /// Writes all live series to a file of the next generation.
    fn rewrite_definitions(
        &self,
        rolling: &mut CheckpointState,
        mark: CheckpointMark,
        stats: &mut CheckpointStats,
    ) -> Result<(), HeadError> {
        self.settle_definitions()?;
        // If this fails, the file in use may lack wire keys that are noted as stored.
        rolling.definitions.set_broken();
        let (dir, disk) = (wal_dir(&self.state.options.dir), &*self.state.env.disk);
        let (key, generation) = (self.state.wal.key(), rolling.definitions.generation + 1);
        self.state.index.series_keys.write().forget_stored();
        let paths = definitions_paths(&dir, generation);
        let created = AppendFile::create(self.state.env.disk.clone(), paths);
        let mut file = created.map_err(HeadError::io(&definitions_path(&dir, generation, 0)))?;
        let header = FileHeader { generation, key, is_mirrored: true };
        let frames = FrameWriter::with_header(key, &header.encode());
        let mut output = Output { file: &mut file, frames };
        let series_count = self.put_definitions(&mut output, None, 0, rolling.marked(mark))?;
        let frame_sequence = output.frames.sequence();
        // From here on a restart may read the new file, also if publishing it fails.
        let published = file.publish().map_err(|error| io_error(&file, error));
        stats.bytes += file.len();
        rolling.definitions = DefinitionsFile::new(file, generation, frame_sequence, mark.ids, series_count);
        published?;
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

    /// Writes series whose ids were assigned since `from`, wire keys that no file has, and the mark; returns
    /// the number of series in the file, of which `count` were there before.
    fn put_definitions(
        &self,
        output: &mut Output<'_>,
        from: Option<&GivenIds>,
        mut count: u64,
        mark: CheckpointMark,
    ) -> Result<u64, HeadError> {
        let mut payload = Vec::new();
        let given = self.state.index.ids.given_at(mark.ids);
        for tenant in self.state.index.tenants() {
            count += put_series(&tenant, output, from, &given, &mut payload)?;
        }
        loop {
            payload.clear();
            let visit = |hash, id| encode_raw_key(hash, id, &mut payload);
            let is_given = |id| given.has(id);
            let visited =
                self.state.index.series_keys.write().store(FRAME_BYTES / RAW_KEY_BYTES, is_given, visit);
            if visited == 0 {
                break;
            }
            output.put(KIND_RAW_KEYS, &payload)?;
        }
        let mark = Mark { sequence: mark.sequence, next_id: mark.ids.id_end(), series_count: count };
        mark.encode(&mut payload);
        output.put(KIND_MARK, &payload)?;
        output.flush()?;
        Ok(count)
    }
}

/// Writes the series of one tenant that are in `given` but not in `from`. Rows do not move: only maintenance
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
        // The lock is held for one frame at a time.
        let tables = tenant.tables.read();
        for (row, id, members) in tables.live_members_from(start).take_while(|&(_, id, _)| given.has(id)) {
            // Ids ascend within a frame.
            if writer.len() >= FRAME_BYTES || last_id.is_some_and(|last| id <= last) {
                next = Some(row);
                break;
            }
            last_id = Some(id);
            writer.push(id, members.iter(), |pair| tables.pair_text(pair));
        }
        drop(tables);
        if !writer.is_empty() {
            count += u64::from(writer.series_count());
            writer.finish(tenant.name(), payload);
            output.put(KIND_SERIES, payload)?;
        }
    }
    Ok(count)
}
