//! Chooses which of the two identical copies of a series file startup reads.
//!
//! Invariants: usually one copy is loaded, and the other one is compared with it. Once anything is unusual,
//! all copies of all generations are verified, and the whole one with the newest mark is chosen. Damage to
//! one copy loses nothing.
//! Not here: loading the copy (`definitions`).

use std::path::PathBuf;

use chronolith_base::Env;
use chronolith_base::hash::HashMap;
use chronolith_format::head::frame_log::CopyState;
use chronolith_format::head::series_file::{
    FILE_HEADER_BYTES, FileHeader, KIND_MARK, KIND_RAW_KEYS, KIND_SERIES, RAW_KEY_BYTES, SeriesReader,
};
use chronolith_format::head::wal::{FRAME_HEADER_BYTES, FrameHeader};
use chronolith_wal::{BlockBuffers, FrameStream};

use super::files::{CheckpointFiles, read_head};
use crate::checkpoint::definitions_path;
use crate::options::HeadError;

/// The copy to load.
pub(super) struct ChosenCopy {
    pub(super) generation: u64,
    pub(super) path: PathBuf,
    /// Set if both copies are valid up to the last mark, so that appending may continue after it.
    pub(super) is_mirrored: bool,
    /// Damage of the header, if any.
    pub(super) header_damage: Option<String>,
    /// Length in bytes.
    pub(super) len: u64,
    pub(super) counts: Counts,
}

/// Amounts in a copy, for which memory is reserved.
#[derive(Default)]
pub(super) struct Counts {
    /// Label pairs and series by tenant.
    pub(super) tenants: HashMap<String, (usize, usize)>,
    /// Number of wire keys.
    pub(super) key_count: usize,
}

impl Counts {
    /// Adds a frame; one that cannot be read is reported when the copy is loaded.
    fn add(&mut self, kind: u8, payload: &[u8]) {
        if kind == KIND_RAW_KEYS {
            self.key_count += payload.len() / RAW_KEY_BYTES;
        } else if kind == KIND_SERIES
            && let Ok(series) = SeriesReader::decode(payload)
        {
            let known = self.tenants.entry(series.tenant.to_owned()).or_default();
            *known = (known.0 + series.pairs.len(), known.1 + series.series_count);
        }
    }
}

/// Result of verifying one copy.
struct Inspection {
    generation: u64,
    path: PathBuf,
    copy: CopyState,
    /// End of the last mark; 0 if there is none.
    mark_end: u64,
    /// False for a file of a version that wrote one copy only.
    has_mirror: bool,
    counts: Counts,
}

impl Inspection {
    fn is_whole(&self) -> bool {
        self.copy.damage().is_none() && self.mark_end > 0
    }
}

/// Returns the first copy if there is nothing unusual about names and headers. Its frames, and that the
/// second copy has the same bytes, are verified after it is loaded.
pub(super) fn usual(env: &Env, files: &CheckpointFiles) -> Result<Option<ChosenCopy>, HeadError> {
    let Some((&generation, [true, true])) = files.definitions.last_key_value() else { return Ok(None) };
    let path = definitions_path(&files.dir, generation, 0);
    let bytes = env.disk.map(&path).map_err(HeadError::io(&path))?;
    let expected = FileHeader { generation, key: files.key, is_mirrored: true };
    if files.definitions.len() > 1 || FileHeader::decode(&bytes) != Ok(expected) {
        return Ok(None);
    }
    let (mut counts, mut offset) = (Counts::default(), FILE_HEADER_BYTES);
    while let Some(header) = bytes.get(offset..).and_then(|rest| FrameHeader::decode(rest, files.key)) {
        let payload = offset + FRAME_HEADER_BYTES..offset + FRAME_HEADER_BYTES + header.payload_len as usize;
        counts.add(header.kind, bytes.get(payload).unwrap_or(&[]));
        offset += header.frame_len();
    }
    let len = bytes.len() as u64;
    Ok(Some(ChosenCopy { generation, path, is_mirrored: true, header_damage: None, len, counts }))
}

/// Chooses a copy; `None` if there is no series file.
pub(super) fn choose(
    env: &Env,
    files: &CheckpointFiles,
    notes: &mut Vec<String>,
) -> Result<Option<ChosenCopy>, HeadError> {
    let Some((&newest, _)) = files.definitions.last_key_value() else { return Ok(None) };
    let mut copies = Vec::new();
    for (&generation, exists) in files.definitions.iter().rev() {
        for copy_idx in (0..2).filter(|&copy_idx| exists[copy_idx]) {
            copies.push(inspect(env, files, generation, copy_idx)?);
        }
    }
    note_damage(files, newest, &copies, notes);
    // Among copies that lost the same marks, one may have series that the other one lost with them.
    copies.sort_by_key(|copy| {
        std::cmp::Reverse((copy.is_whole(), copy.generation, copy.mark_end, copy.copy.frames_end))
    });
    let is_twin = |a: &Inspection, b: &Inspection| {
        a.is_whole() && b.is_whole() && (a.generation, a.mark_end) == (b.generation, b.mark_end)
    };
    let is_mirrored = copies.len() == 2 && is_twin(&copies[0], &copies[1]);
    Ok(copies.into_iter().next().map(|copy| chosen(copy, is_mirrored)))
}

fn chosen(copy: Inspection, is_mirrored: bool) -> ChosenCopy {
    let Inspection { generation, path, copy: CopyState { header_damage, len, .. }, counts, .. } = copy;
    ChosenCopy { generation, path, is_mirrored, header_damage, len, counts }
}

/// Notes damaged copies that another one replaces; damage of all copies is noted when one is loaded.
fn note_damage(files: &CheckpointFiles, newest: u64, copies: &[Inspection], notes: &mut Vec<String>) {
    let has_whole = copies.iter().any(|copy| copy.generation == newest && copy.is_whole());
    for copy in copies.iter().filter(|_| has_whole) {
        if let Some(what) = copy.copy.damage() {
            notes.push(format!("{}: {what}; its copy is whole and nothing is lost", copy.path.display()));
        }
    }
    // A crash between the renames of a new generation leaves one file of it next to the previous generation.
    let Some(exists) = files.definitions.get(&newest).filter(|_| files.definitions.len() == 1) else {
        return;
    };
    if has_whole && copies.iter().all(|copy| copy.has_mirror) {
        for copy_idx in (0..2).filter(|&copy_idx| !exists[copy_idx]) {
            let path = definitions_path(&files.dir, newest, copy_idx);
            notes.push(format!("{}: is missing; its copy is whole and nothing is lost", path.display()));
        }
    }
}

/// Returns true if both copies have the same bytes. A power failure may leave one of them with half of an
/// unsynced append at its full length, so lengths alone prove nothing.
pub(super) fn are_equal(env: &Env, files: &CheckpointFiles, generation: u64) -> Result<bool, HeadError> {
    let map = |copy_idx| {
        let path = definitions_path(&files.dir, generation, copy_idx);
        env.disk.map(&path).map_err(HeadError::io(&path))
    };
    Ok(map(0)?[..] == map(1)?[..])
}

fn copy_len(env: &Env, files: &CheckpointFiles, generation: u64, copy_idx: usize) -> Result<u64, HeadError> {
    let path = definitions_path(&files.dir, generation, copy_idx);
    env.disk.open(&path).and_then(|file| file.len()).map_err(HeadError::io(&path))
}

fn inspect(
    env: &Env,
    files: &CheckpointFiles,
    generation: u64,
    copy_idx: usize,
) -> Result<Inspection, HeadError> {
    let path = definitions_path(&files.dir, generation, copy_idx);
    let disk = &*env.disk;
    let header = FileHeader::decode(&read_head(disk, &path, FILE_HEADER_BYTES)?);
    let header_damage = match &header {
        Ok(header) if header.generation == generation && header.key == files.key => None,
        Ok(_) => Some("belongs to another WAL or generation".to_owned()),
        Err(error) => Some(error.to_string()),
    };
    let has_mirror = header.is_ok_and(|header| header.is_mirrored);
    let len = copy_len(env, files, generation, copy_idx)?;
    // The frames carry the key, so they are recognised without the header.
    let buffers = BlockBuffers::default();
    let mut stream = FrameStream::open(disk, &path, files.key, FILE_HEADER_BYTES, &buffers)?;
    let (mut mark_end, mut counts) = (0, Counts::default());
    while let Some(block) = stream.next_block()? {
        for frame in &block.frames {
            if frame.header.kind == KIND_MARK {
                let start = block.offset + (frame.payload.start - FRAME_HEADER_BYTES) as u64;
                mark_end = start + frame.header.frame_len() as u64;
            }
            counts.add(frame.header.kind, block.payload(frame));
        }
        buffers.put(block);
    }
    let copy = CopyState::new(header_damage, &stream.damage, stream.end, len);
    Ok(Inspection { generation, path, copy, mark_end: mark_end.min(len), has_mirror, counts })
}
