//! Walks the logs of a Prometheus data directory record by record, for tools that show or verify them.

use std::io;
use std::path::{Path, PathBuf};

use chronolith_base::Env;
use chronolith_format::prometheus::segment::{Item, PAGE_BYTES, SegmentReader, Unpacker};

use crate::source::{LogFile, Source};

/// Something at a place of a log.
#[derive(Debug)]
pub enum LogEntry<'a> {
    /// An unpacked record.
    Record(&'a [u8]),
    /// A stretch without one.
    Damage(String),
}

/// Calls `visit` with file, offset and entry of checkpoint, log and out-of-order log of `dir`, in their order.
///
/// # Errors
/// If a directory cannot be listed. Files that cannot be read are damage.
pub fn walk_logs(
    env: &Env,
    dir: &Path,
    visit: &mut dyn FnMut(&Path, u64, LogEntry<'_>),
) -> Result<(), (PathBuf, io::Error)> {
    let source = Source::look(env, dir)?;
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
    file: &LogFile,
    unpacker: &mut Unpacker,
    visit: &mut dyn FnMut(&Path, u64, LogEntry<'_>),
) -> io::Result<()> {
    let opened = env.disk.open_read(&file.path)?;
    let mut segment = SegmentReader::new();
    let mut page = Vec::new();
    let mut unpacked = Vec::new();
    let mut show = |item: Item<'_>| match item {
        Item::Record(record) => {
            unpacked.clear();
            match unpacker.unpack(&record, &mut unpacked) {
                Ok(()) => visit(&file.path, record.offset, LogEntry::Record(&unpacked)),
                Err(what) => visit(&file.path, record.offset, LogEntry::Damage(what)),
            }
        }
        Item::Damage(damage) => visit(&file.path, damage.offset, LogEntry::Damage(damage.what)),
    };
    let mut offset = 0;
    while offset < file.len {
        let len = (file.len - offset).min(PAGE_BYTES as u64);
        page.resize(len as usize, 0);
        opened.read_at(&mut page, offset)?;
        segment.page(&page, &mut show);
        offset += len;
    }
    segment.finish(&mut show);
    Ok(())
}
