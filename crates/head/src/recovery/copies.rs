//! Chooses which of the two identical copies of a series file startup reads.
//!
//! Invariants: usually one copy is read, and only the length of the other is compared. Once anything is
//! unusual, all copies of all generations are verified, and the whole one with the newest mark is chosen.
//! Damage to one copy loses nothing.
//! Not here: loading the copy (`definitions`).

use std::path::PathBuf;

use chronolith_base::Env;
use chronolith_base::hash::HashMap;
use chronolith_format::head::series_file::{
    FILE_HEADER_BYTES, FileHeader, KIND_MARK, KIND_SERIES, SeriesReader,
};
use chronolith_format::head::wal::FRAME_HEADER_BYTES;
use chronolith_wal::FrameStream;

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
    /// Label pairs and series by tenant.
    pub(super) counts: HashMap<String, (usize, usize)>,
}

/// Result of verifying one copy.
struct Inspection {
    generation: u64,
    path: PathBuf,
    len: u64,
    /// End of the last mark; 0 if there is none.
    mark_end: u64,
    header_damage: Option<String>,
    /// First damage that is followed by valid frames.
    damage: Option<String>,
    /// False for a file of a version that wrote one copy only.
    has_mirror: bool,
    counts: HashMap<String, (usize, usize)>,
}

impl Inspection {
    fn is_whole(&self) -> bool {
        self.header_damage.is_none() && self.damage.is_none() && self.mark_end > 0
    }
}

/// Chooses a copy; `None` if there is no series file.
pub(super) fn choose(
    env: &Env,
    files: &CheckpointFiles,
    notes: &mut Vec<String>,
) -> Result<Option<ChosenCopy>, HeadError> {
    let Some((&newest, exists)) = files.definitions.last_key_value() else { return Ok(None) };
    if files.definitions.len() == 1 && exists[0] {
        let primary = inspect(env, files, newest, 0)?;
        let is_usual = primary.is_whole() && primary.mark_end == primary.len;
        if is_usual && !primary.has_mirror {
            return Ok(Some(chosen(primary, false)));
        }
        if is_usual && exists[1] && are_equal(env, files, newest)? {
            return Ok(Some(chosen(primary, true)));
        }
    }
    let mut copies = Vec::new();
    for (&generation, exists) in files.definitions.iter().rev() {
        for copy_idx in (0..2).filter(|&copy_idx| exists[copy_idx]) {
            copies.push(inspect(env, files, generation, copy_idx)?);
        }
    }
    note_damage(files, newest, &copies, notes);
    copies.sort_by_key(|copy| std::cmp::Reverse((copy.is_whole(), copy.generation, copy.mark_end)));
    let is_twin = |a: &Inspection, b: &Inspection| {
        a.is_whole() && b.is_whole() && (a.generation, a.mark_end) == (b.generation, b.mark_end)
    };
    let is_mirrored = copies.len() == 2 && is_twin(&copies[0], &copies[1]);
    Ok(copies.into_iter().next().map(|copy| chosen(copy, is_mirrored)))
}

fn chosen(copy: Inspection, is_mirrored: bool) -> ChosenCopy {
    let Inspection { generation, path, header_damage, counts, .. } = copy;
    ChosenCopy { generation, path, is_mirrored, header_damage, counts }
}

/// Notes damaged copies that another one replaces; damage of all copies is noted when one is loaded.
fn note_damage(files: &CheckpointFiles, newest: u64, copies: &[Inspection], notes: &mut Vec<String>) {
    let has_whole = copies.iter().any(|copy| copy.generation == newest && copy.is_whole());
    for copy in copies.iter().filter(|_| has_whole) {
        if let Some(what) = copy.header_damage.as_ref().or(copy.damage.as_ref()) {
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
fn are_equal(env: &Env, files: &CheckpointFiles, generation: u64) -> Result<bool, HeadError> {
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
    let mut stream = FrameStream::open(disk, &path, files.key, FILE_HEADER_BYTES)?;
    let (mut mark_end, mut counts) = (0, HashMap::<String, (usize, usize)>::default());
    while let Some(block) = stream.next_block()? {
        for frame in &block.frames {
            if frame.header.kind == KIND_MARK {
                let start = block.offset + (frame.payload.start - FRAME_HEADER_BYTES) as u64;
                mark_end = start + frame.header.frame_len() as u64;
            } else if frame.header.kind == KIND_SERIES {
                // Unreadable frames are reported when the copy is loaded.
                let Ok(series) = SeriesReader::decode(block.payload(frame)) else { continue };
                let known = counts.entry(series.tenant.to_owned()).or_default();
                *known = (known.0 + series.pairs.len(), known.1 + series.series_count);
            }
        }
    }
    let damage = stream.damage.iter().find(|damage| damage.followed);
    let damage = damage.map(|d| format!("{} bytes at offset {} are damaged", d.len, d.offset));
    let mark_end = mark_end.min(len);
    Ok(Inspection { generation, path, len, mark_end, header_damage, damage, has_mirror, counts })
}
