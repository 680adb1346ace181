//! Walks a data directory and verifies every checksum (`chronolith check`).
//!
//! Holds: changes nothing, and one damaged file does not hide the others. The end of the log that a kill cut
//! off is no damage: nobody was told that it is stored; it is named as a note.
//! Not here: repair.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use chronolith_base::{ByteReader, DecodeError, Env};
use chronolith_format::{checkpoint, sealed, wal};
use chronolith_model::TenantId;

use crate::tenant::TENANTS_DIR;

/// Something that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// File.
    pub path: PathBuf,
    /// Where in the file, in bytes.
    pub offset: u64,
    /// What is wrong there.
    pub what: String,
}

/// What was verified and what was found.
#[derive(Debug, Clone, Default)]
pub struct CheckReport {
    /// WAL segments read.
    pub segments: u64,
    /// Good frames in them.
    pub frames: u64,
    /// Checkpoints read.
    pub checkpoints: u64,
    /// Sealed chunks that a checkpoint refers to.
    pub sealed_chunks: u64,
    /// Blocks read.
    pub blocks: u64,
    /// Samples in the blocks.
    pub block_samples: u64,
    /// Bytes read.
    pub bytes: u64,
    /// What is worth saying but no damage.
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

/// Verifies everything below `dir`: WAL, checkpoint, the sealed chunks it refers to, and all blocks.
/// Cost: one pass over all bytes.
///
/// # Errors
/// If `dir` cannot be listed. Files that cannot be read are damages.
pub fn check_dir(env: &Env, dir: &Path) -> std::io::Result<CheckReport> {
    let mut report = CheckReport::default();
    env.disk.list(dir)?;
    check_wal(env, dir, &mut report);
    check_tenants(env, dir, &mut report);
    Ok(report)
}

/// Names of the files in `dir`; none when it does not exist.
fn names(env: &Env, dir: &Path) -> Vec<String> {
    env.disk.list(dir).map(|entries| entries.into_iter().map(|e| e.name).collect()).unwrap_or_default()
}

fn check_wal(env: &Env, dir: &Path, report: &mut CheckReport) {
    let wal_dir = dir.join("wal");
    let all = names(env, &wal_dir);
    let segments: Vec<_> = all.iter().filter(|n| n.ends_with(".seg")).collect();
    for (idx, name) in segments.iter().enumerate() {
        check_segment(env, &wal_dir.join(name), idx + 1 == segments.len(), report);
    }
    for name in all.iter().filter(|n| n.starts_with("checkpoint.") && !n.ends_with(".tmp")) {
        check_checkpoint(env, dir, &wal_dir.join(name), report);
    }
}

fn check_segment(env: &Env, path: &Path, is_last: bool, report: &mut CheckReport) {
    let bytes = match env.disk.map(path) {
        Ok(bytes) => bytes,
        Err(error) => return report.damage(path, 0, error),
    };
    report.segments += 1;
    report.bytes += bytes.len() as u64;
    let header = match wal::SegmentHeader::decode(&bytes) {
        Ok(header) => header,
        Err(_) if is_last && bytes.iter().all(|&b| b == 0) => {
            return report.notes.push(format!("{}: reserved, nothing written yet", path.display()));
        }
        Err(error) => return report.decode_damage(path, &error),
    };
    let scan = wal::scan_segment(&bytes, header.key);
    report.frames += scan.frames.len() as u64;
    for damage in scan.damage {
        let text = format!("{} bytes belong to no good frame", damage.len);
        if is_last && !damage.followed {
            let place = format!("{}: offset {}", path.display(), damage.offset);
            report.notes.push(format!("{place}: torn end of the log, {text} (never acknowledged)"));
        } else {
            report.damage(path, damage.offset as u64, text);
        }
    }
}

fn check_checkpoint(env: &Env, dir: &Path, path: &Path, report: &mut CheckReport) {
    let bytes = match env.disk.map(path) {
        Ok(bytes) => bytes,
        Err(error) => return report.damage(path, 0, error),
    };
    report.checkpoints += 1;
    report.bytes += bytes.len() as u64;
    if let Err(error) = checkpoint::verify(&bytes) {
        report.decode_damage(path, &error);
    }
    let mut wanted: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    let mut offset = checkpoint::FILE_HEADER_BYTES;
    while let Ok((kind, payload, end)) = checkpoint::decode_frame(&bytes, offset) {
        if kind == checkpoint::KIND_CHUNKS {
            let mut reader = ByteReader::new(payload);
            loop {
                match checkpoint::decode_chunks(&mut reader) {
                    Ok(None) => break,
                    Ok(Some(entry)) => {
                        for chunk in &entry.sealed {
                            wanted.entry(chunk.file).or_default().push(chunk.offset);
                        }
                    }
                    Err(error) => {
                        report.damage(path, offset as u64, error);
                        break;
                    }
                }
            }
        }
        offset = end;
    }
    for (file, offsets) in wanted {
        check_sealed(env, &dir.join("chunks").join(format!("{file:08}.sealed")), &offsets, report);
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
        if let Err(error) = TenantId::new(&name) {
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

fn check_block(env: &Env, dir: &Path, report: &mut CheckReport) {
    report.blocks += 1;
    match chronolith_block::Block::open(env, dir) {
        Ok(block) => {
            report.bytes += block.size_bytes();
            report.block_samples += block.meta().stats.num_samples;
            for found in block.verify() {
                report.damages.push(Damage { path: found.path, offset: found.offset, what: found.what });
            }
        }
        Err(error) => report.damage(dir, 0, error),
    }
}
