//! Definitions files come in two copies with the same bytes: which of them a start reads.
//!
//! Holds: usually one copy is read, and only the length of the other is compared. Once anything is unusual,
//! all copies of all generations are verified, and the whole one with the newest mark counts. Damage to one
//! copy loses nothing.
//! Not here: loading what the copy says (`definitions`).

use std::path::PathBuf;

use chronolith_base::Env;
use chronolith_base::hash::HashMap;
use chronolith_format::definitions::{FILE_HEADER_BYTES, FileHeader, KIND_MARK, KIND_SERIES, SeriesReader};
use chronolith_format::wal::FRAME_HEADER_BYTES;

use super::files::{LogFiles, read_head};
use super::stream::FrameStream;
use crate::checkpoint::definitions_path;
use crate::options::HeadError;

/// The copy that a start reads.
pub(super) struct ChosenCopy {
    pub(super) generation: u64,
    pub(super) path: PathBuf,
    /// Returns true if both copies are good up to the last mark, so that rounds may go on behind it.
    pub(super) is_mirrored: bool,
    /// What is wrong with the header, if anything.
    pub(super) header_damage: Option<String>,
    /// Label pairs and series by tenant.
    pub(super) counts: HashMap<String, (usize, usize)>,
}

/// What reading one copy has shown.
struct Inspection {
    generation: u64,
    path: PathBuf,
    len: u64,
    /// Where the last mark ends; 0 if there is none.
    mark_end: u64,
    header_damage: Option<String>,
    /// The first damaged place with good frames behind it.
    damage: Option<String>,
    /// Returns false for a file of a version that wrote one copy only.
    has_mirror: bool,
    counts: HashMap<String, (usize, usize)>,
}

impl Inspection {
    fn is_whole(&self) -> bool {
        self.header_damage.is_none() && self.damage.is_none() && self.mark_end > 0
    }
}

/// Chooses a copy; `None` if there are no definitions.
pub(super) fn choose(
    env: &Env,
    files: &LogFiles,
    notes: &mut Vec<String>,
) -> Result<Option<ChosenCopy>, HeadError> {
    let Some((&newest, places)) = files.definitions.last_key_value() else { return Ok(None) };
    if files.definitions.len() == 1 && places[0] {
        let primary = inspect(env, files, newest, 0)?;
        let is_usual = primary.is_whole() && primary.mark_end == primary.len;
        if is_usual && !primary.has_mirror {
            return Ok(Some(chosen(primary, false)));
        }
        if is_usual && places[1] && are_equal(env, files, newest)? {
            return Ok(Some(chosen(primary, true)));
        }
    }
    let mut copies = Vec::new();
    for (&generation, places) in files.definitions.iter().rev() {
        for place in (0..2).filter(|&place| places[place]) {
            copies.push(inspect(env, files, generation, place)?);
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

/// Notes copies that another one replaces; what no copy has is noted where it is loaded.
fn note_damage(files: &LogFiles, newest: u64, copies: &[Inspection], notes: &mut Vec<String>) {
    let has_whole = copies.iter().any(|copy| copy.generation == newest && copy.is_whole());
    for copy in copies.iter().filter(|_| has_whole) {
        if let Some(what) = copy.header_damage.as_ref().or(copy.damage.as_ref()) {
            notes.push(format!("{}: {what}; its copy is whole and nothing is lost", copy.path.display()));
        }
    }
    // A crash between the renames of a new generation leaves one file of it beside the generation before.
    let Some(places) = files.definitions.get(&newest).filter(|_| files.definitions.len() == 1) else {
        return;
    };
    if has_whole && copies.iter().all(|copy| copy.has_mirror) {
        for place in (0..2).filter(|&place| !places[place]) {
            let path = definitions_path(&files.dir, newest, place);
            notes.push(format!("{}: is missing; its copy is whole and nothing is lost", path.display()));
        }
    }
}

/// Returns true if both copies have the same bytes. A power cut may leave one of them with half of an
/// unsynced round at its full length, so lengths alone prove nothing.
fn are_equal(env: &Env, files: &LogFiles, generation: u64) -> Result<bool, HeadError> {
    let map = |place| {
        let path = definitions_path(&files.dir, generation, place);
        env.disk.map(&path).map_err(HeadError::io(&path))
    };
    Ok(map(0)?[..] == map(1)?[..])
}

fn copy_len(env: &Env, files: &LogFiles, generation: u64, place: usize) -> Result<u64, HeadError> {
    let path = definitions_path(&files.dir, generation, place);
    env.disk.open(&path).and_then(|file| file.len()).map_err(HeadError::io(&path))
}

fn inspect(env: &Env, files: &LogFiles, generation: u64, place: usize) -> Result<Inspection, HeadError> {
    let path = definitions_path(&files.dir, generation, place);
    let disk = &*env.disk;
    let header = FileHeader::decode(&read_head(disk, &path, FILE_HEADER_BYTES)?);
    let header_damage = match &header {
        Ok(header) if header.generation == generation && header.key == files.key => None,
        Ok(_) => Some("is of another log or generation".to_owned()),
        Err(error) => Some(error.to_string()),
    };
    let has_mirror = header.is_ok_and(|header| header.is_mirrored);
    let len = copy_len(env, files, generation, place)?;
    // The frames carry the key, so they are told from others without the header.
    let mut stream = FrameStream::open(disk, &path, files.key, FILE_HEADER_BYTES)?;
    let (mut mark_end, mut counts) = (0, HashMap::<String, (usize, usize)>::default());
    while let Some(block) = stream.next()? {
        for frame in &block.frames {
            if frame.header.kind == KIND_MARK {
                let start = block.offset + (frame.payload.start - FRAME_HEADER_BYTES) as u64;
                mark_end = start + frame.header.frame_len() as u64;
            } else if frame.header.kind == KIND_SERIES {
                // What cannot be read is named when it is loaded.
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
