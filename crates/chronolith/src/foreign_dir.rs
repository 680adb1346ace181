//! Recognizes directories that are not data directories of Chronolith, by the names in their listings.
//!
//! Invariants: a directory with any file that only Chronolith writes is its own, whatever else is in it;
//! nothing is written. Not here: the lock (`locked_dir`), damage (`chronolith-tsdb`).

use std::path::{Path, PathBuf};

use chronolith_base::Disk;
use chronolith_base::disk::DirEntry;

/// Entries of a data directory that no other program has.
const OWN_NAMES: [&str; 10] = [
    "blocks.catalogue",
    "bucket-maintenance",
    "databases",
    "databases.mirror",
    "graphite.log",
    "graphite.mirror",
    "metadata.log",
    "metadata.mirror",
    "retention-clock",
    "tenants",
];
/// Ends of names of WAL files: segments, slices of the checkpoint, series files.
const OWN_WAL_ENDS: [&str; 4] = [".seg", ".slice0", ".slice1", ".definitions"];
/// Entries that any directory may have: the lock of a start that failed, the root of a file system.
const IGNORED_NAMES: [&str; 2] = ["lock", "lost+found"];
/// Limits of the search for whisper files.
const WHISPER_DEPTH_MAX: u32 = 8;
const WHISPER_LISTINGS_MAX: u32 = 256;
/// Names that a message lists.
const LISTED_NAMES_MAX: usize = 3;

/// Other databases whose directories are recognized.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Program {
    Prometheus,
    InfluxDb1,
    InfluxDb2,
    VictoriaMetrics,
    Whisper,
}

/// Content of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Content {
    /// A data directory.
    Own,
    /// Nothing, or no such directory.
    Empty,
    /// Data of another program, with the entry that proves it.
    Foreign(Program, String),
    /// Files of unknown origin: the first names.
    Unknown(Vec<String>),
}

/// Returns what `dir` contains. A directory that cannot be listed counts as empty: opening it reports why.
pub(crate) fn content_of(disk: &dyn Disk, dir: &Path) -> Content {
    let mut entries = disk.list(dir).unwrap_or_default();
    entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    let wal = disk.list(&dir.join("wal")).unwrap_or_default();
    if entries.iter().any(|entry| OWN_NAMES.contains(&entry.name.as_str())) || wal.iter().any(is_own_wal) {
        return Content::Own;
    }
    if let Some((program, proof)) = foreign(disk, dir, &entries, &wal) {
        return Content::Foreign(program, proof);
    }
    let names = entries.into_iter().map(|entry| entry.name);
    let names: Vec<String> = names.filter(|name| !is_ignored(name)).take(LISTED_NAMES_MAX).collect();
    if names.is_empty() { Content::Empty } else { Content::Unknown(names) }
}

/// Refuses a directory that has data of another program, before anything is written to it. Returns a warning
/// about one with files of unknown origin.
pub(crate) fn refuse_foreign(disk: &dyn Disk, dir: &Path) -> anyhow::Result<Option<String>> {
    match content_of(disk, dir) {
        Content::Unknown(names) => Ok(Some(unknown_files_warning(dir, &names))),
        Content::Foreign(program, proof) => {
            let advice = "choose another directory with --data-dir (from the checkout: make run DATA=DIR)";
            anyhow::bail!("{}\n  {advice}{}", holds(dir, program, &proof), import_advice(program, dir))
        }
        Content::Own | Content::Empty => Ok(None),
    }
}

/// Refuses a directory that cannot be read as a data directory because nothing in it is Chronolith's.
pub(crate) fn require_own(disk: &dyn Disk, dir: &Path) -> anyhow::Result<()> {
    let why = match content_of(disk, dir) {
        Content::Own => return Ok(()),
        Content::Foreign(program, proof) => format!(
            "{}\n  name a data directory of Chronolith; `chronolith block verify` checks blocks of Prometheus, \
             Thanos and Mimir",
            holds(dir, program, &proof)
        ),
        Content::Empty => format!("{} is empty, expected a data directory of Chronolith", dir.display()),
        Content::Unknown(names) => {
            let names = names.join(", ");
            format!("{} has no data of Chronolith, found {names}", dir.display())
        }
    };
    Err(anyhow::anyhow!(why))
}

fn unknown_files_warning(dir: &Path, names: &[String]) -> String {
    let names = names.join(", ");
    let dir = dir.display();
    format!(
        "data directory {dir} has files of another program and none of Chronolith, found {names}: use a directory \
         of its own"
    )
}

fn holds(dir: &Path, program: Program, proof: &str) -> String {
    let name = match program {
        Program::Prometheus => "Prometheus",
        Program::InfluxDb1 => "InfluxDB 1.x",
        Program::InfluxDb2 => "InfluxDB 2.x",
        Program::VictoriaMetrics => "VictoriaMetrics",
        Program::Whisper => "carbon (whisper files)",
    };
    format!("{} is a directory of {name}, found {proof}", dir.display())
}

fn import_advice(program: Program, dir: &Path) -> String {
    let dir = dir.display();
    let command = match program {
        Program::Prometheus => format!("prometheus {dir}"),
        Program::InfluxDb1 => format!("influx --data {dir}"),
        Program::Whisper => format!("whisper {dir}"),
        Program::InfluxDb2 | Program::VictoriaMetrics => return String::new(),
    };
    format!("\n  to import its content: chronolith import {command} --data-dir DIR")
}

fn is_own_wal(entry: &DirEntry) -> bool {
    entry.name == "control" || OWN_WAL_ENDS.iter().any(|end| entry.name.ends_with(end))
}

fn is_ignored(name: &str) -> bool {
    name.starts_with('.') || IGNORED_NAMES.contains(&name)
}

fn foreign(disk: &dyn Disk, dir: &Path, entries: &[DirEntry], wal: &[DirEntry]) -> Option<(Program, String)> {
    let has = |name: &str| entries.iter().any(|entry| entry.name == name);
    let first_of = |names: &[&str]| names.iter().find(|name| has(name)).map(|&name| name.to_owned());
    if let Some(proof) = first_of(&["chunks_head", "wbl", "queries.active"]) {
        return Some((Program::Prometheus, proof));
    }
    if wal.iter().any(is_prometheus_wal) {
        return Some((Program::Prometheus, "wal".to_owned()));
    }
    if let Some(proof) = first_of(&["influxd.bolt", "influxd.sqlite"]) {
        return Some((Program::InfluxDb2, proof));
    }
    if disk.exists(&dir.join("meta").join("meta.db")) {
        return Some((Program::InfluxDb1, "meta/meta.db".to_owned()));
    }
    if has("flock.lock") || (has("indexdb") && has("data")) {
        let proof = first_of(&["flock.lock", "indexdb"]).unwrap_or_default();
        return Some((Program::VictoriaMetrics, proof));
    }
    if let Some(name) = entries.iter().find(|entry| is_block(disk, dir, entry)) {
        return Some((Program::Prometheus, format!("block {}", name.name)));
    }
    let mut listings_left = WHISPER_LISTINGS_MAX;
    let file = whisper_file(disk, dir, WHISPER_DEPTH_MAX, &mut listings_left)?;
    Some((Program::Whisper, file.strip_prefix(dir).unwrap_or(&file).display().to_string()))
}

/// Returns true for a segment (`00000012`) and a checkpoint (`checkpoint.00000012`) of Prometheus.
fn is_prometheus_wal(entry: &DirEntry) -> bool {
    let number = entry.name.strip_prefix("checkpoint.").unwrap_or(&entry.name);
    number.len() >= 8 && number.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns true if `entry` is the directory of a block; Chronolith has its blocks below `tenants`.
fn is_block(disk: &dyn Disk, dir: &Path, entry: &DirEntry) -> bool {
    let is_named_as_block = entry.name.len() == 26 && entry.name.bytes().all(|b| b.is_ascii_alphanumeric());
    entry.is_dir && is_named_as_block && disk.exists(&dir.join(&entry.name).join("meta.json"))
}

/// Returns a whisper file below `dir`.
fn whisper_file(disk: &dyn Disk, dir: &Path, depth_left: u32, listings_left: &mut u32) -> Option<PathBuf> {
    *listings_left = listings_left.checked_sub(1)?;
    let entries = disk.list(dir).unwrap_or_default();
    if let Some(file) = entries.iter().find(|entry| !entry.is_dir && entry.name.ends_with(".wsp")) {
        return Some(dir.join(&file.name));
    }
    let depth_left = depth_left.checked_sub(1)?;
    let mut below = entries.iter().filter(|entry| entry.is_dir);
    below.find_map(|entry| whisper_file(disk, &dir.join(&entry.name), depth_left, listings_left))
}

#[cfg(test)]
mod tests;
