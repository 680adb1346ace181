//! Visits WAL and WBL of a Prometheus data directory record by record, for tools that print or verify them.

use std::io;
use std::path::{Path, PathBuf};

use chronolith_base::Env;
use chronolith_format::prometheus::segment::{Item, Unpacker};

use super::data_dir::{DataDir, SourceFile};
use super::segment_file::SegmentFile;

/// Content of a log at one offset.
#[derive(Debug)]
pub enum LogEntry<'a> {
    /// An unpacked record.
    Record(&'a [u8]),
    /// Bytes without a valid record.
    Damage(String),
}

/// Calls `visit` with file, offset and entry of checkpoint, WAL and WBL of `dir`, in this order.
///
/// # Errors
/// If a directory cannot be listed. Files that cannot be read are damage.
pub fn walk_logs(
    env: &Env,
    dir: &Path,
    visit: &mut dyn FnMut(&Path, u64, LogEntry<'_>),
) -> Result<(), (PathBuf, io::Error)> {
    let source = DataDir::list(env, dir)?;
    let mut unpacker = Unpacker::default();
    for file in source.wal.iter().chain(&source.wbl) {
        if let Err(error) = walk_file(env, file, &mut unpacker, visit) {
            visit(&file.path, 0, LogEntry::Damage(error.to_string()));
        }
    }
    Ok(())
}

fn walk_file(
    env: &Env,
    file: &SourceFile,
    unpacker: &mut Unpacker,
    visit: &mut dyn FnMut(&Path, u64, LogEntry<'_>),
) -> io::Result<()> {
    let mut segment = SegmentFile::open(env, file)?;
    let mut unpacked = Vec::new();
    let mut visit_item = |item: Item<'_>| match item {
        Item::Record(record) => {
            unpacked.clear();
            match unpacker.unpack(&record, &mut unpacked) {
                Ok(()) => visit(&file.path, record.offset, LogEntry::Record(&unpacked)),
                Err(what) => visit(&file.path, record.offset, LogEntry::Damage(what)),
            }
        }
        Item::Damage(damage) => visit(&file.path, damage.offset, LogEntry::Damage(damage.what)),
    };
    while segment.read_window(&mut visit_item)? > 0 {}
    Ok(())
}
