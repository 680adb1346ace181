//! Series file: appends the records of new series, and rewrites the file when most of its series are dead.
//!
//! Invariants: a mark is written after everything it covers, and was covered durably by the WAL before.
//! Nothing is appended after a failed write or sync: the file is rewritten then.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use chronolith_base::DiskFile;
use chronolith_format::head::series_file::{
    FileHeader, KIND_MARK, KIND_RAW_KEYS, KIND_SERIES, Mark, RAW_KEY_BYTES, SeriesWriter, encode_raw_key,
};
use chronolith_format::head::wal::{FrameHeader, STRIPE_NONE};

use super::definitions_file::{DefinitionsFile, MIRROR_SUFFIX, definitions_path};
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

impl Checkpointer {
    /// Appends the series records and wire keys that the file lacks, and syncs it. Afterwards it has all
    /// series whose ids were assigned at `mark`.
    pub(crate) fn extend_definitions(
        &self,
        rolling: &mut CheckpointState,
        mark: CheckpointMark,
        stats: &mut CheckpointStats,
    ) -> Result<(), HeadError> {
        if rolling.definitions.is_broken {
            return self.rewrite_definitions(rolling, mark, stats);
        }
        let has_new =
            mark.ids != rolling.definitions.ids || self.state.index.series_keys.read().has_unstored();
        if !has_new {
            return self.sync_definitions(rolling);
        }
        self.settle_definitions()?;
        let dir = wal_dir(&self.state.options.dir);
        let known = &rolling.definitions;
        let paths = [0, 1].map(|copy_idx| definitions_path(&dir, known.generation, copy_idx));
        let Some(files) = known.files.clone() else {
            return self.rewrite_definitions(rolling, mark, stats);
        };
        let mut output = Output {
            files: files.each_ref().map(|file| &**file),
            paths: paths.each_ref().map(PathBuf::as_path),
            key: self.state.wal.key(),
            offset: known.offset,
            frame_sequence: known.frame_sequence,
            buffer: Vec::new(),
        };
        let (from, before) = (self.state.index.ids.given_at(known.ids), (known.offset, known.series_count));
        let written = self
            .put_definitions(&mut output, Some(&from), before.1, rolling.marked(mark))
            .and_then(|count| {
                output.sync()?;
                Ok(count)
            });
        let (offset, frame_sequence) = (output.offset, output.frame_sequence);
        let known = &mut rolling.definitions;
        // Broken until proven whole: after an error the appended bytes are unknown.
        known.is_broken = true;
        known.series_count = written?;
        (known.offset, known.frame_sequence, known.ids) = (offset, frame_sequence, mark.ids);
        (known.is_broken, known.is_dirty) = (false, false);
        stats.bytes += offset - before.0;
        Ok(())
    }

    pub(super) fn sync_definitions(&self, rolling: &mut CheckpointState) -> Result<(), HeadError> {
        let known = &mut rolling.definitions;
        let Some(files) = known.files.clone().filter(|_| known.is_dirty) else { return Ok(()) };
        let dir = wal_dir(&self.state.options.dir);
        known.is_broken = true;
        for (copy_idx, file) in files.iter().enumerate() {
            file.sync_data().map_err(HeadError::io(&definitions_path(&dir, known.generation, copy_idx)))?;
        }
        self.state.env.disk.sync_dir(&dir).map_err(HeadError::io(&dir))?;
        (known.is_broken, known.is_dirty) = (false, false);
        Ok(())
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
        let (dir, disk) = (wal_dir(&self.state.options.dir), &*self.state.env.disk);
        let generation = rolling.definitions.generation + 1;
        let paths = [0, 1].map(|copy_idx| definitions_path(&dir, generation, copy_idx));
        let tmps = [paths[0].with_extension("tmp"), paths[1].with_extension("mirror.tmp")];
        self.state.index.series_keys.write().forget_stored();
        let create = |tmp: &Path| -> Result<Arc<dyn DiskFile>, HeadError> {
            Ok(disk.create(tmp).map_err(HeadError::io(tmp))?.into())
        };
        let files = [create(&tmps[0])?, create(&tmps[1])?];
        let header = FileHeader { generation, key: self.state.wal.key(), is_mirrored: true };
        let mut output = Output {
            files: files.each_ref().map(|file| &**file),
            paths: tmps.each_ref().map(PathBuf::as_path),
            key: self.state.wal.key(),
            offset: 0,
            frame_sequence: 0,
            buffer: header.encode().to_vec(),
        };
        let series_count = self.put_definitions(&mut output, None, 0, rolling.marked(mark))?;
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
            ids: mark.ids,
            series_count,
            // No further checkpoint may rely on the file until its name is durable.
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
