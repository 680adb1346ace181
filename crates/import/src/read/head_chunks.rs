//! Index of the m-mapped chunks in `chunks_head`, by series ref.
//!
//! Invariants: a chunk is decoded at most once; damage ends its file and is reported. The WAL holds the
//! samples of these chunks too until Prometheus cuts a block, so that samples of damaged chunks come from
//! there.
//! Not here: the series of a ref (`collect`), the layout of the files (`format::prometheus::head_chunks`).

use std::ops::Range;
use std::path::Path;

use chronolith_base::{Env, Mapped};
use chronolith_format::chunk::kinds;
use chronolith_format::chunk::xor::ENCODING_XOR;
use chronolith_format::chunk::xor2::ENCODING_XOR2;
use chronolith_format::prometheus::head_chunks::HeadChunks;
use chronolith_model::{Columns, TimeRange};

use super::data_dir::SourceFile;
use super::log_reader::Log;
use crate::write::report::ImportReport;

/// Chunk of a file.
struct IndexEntry {
    series_ref: u64,
    file_idx: u32,
    start: u32,
    len: u32,
    encoding: u8,
    is_taken: bool,
    span: ChunkSpan,
}

/// Origin and times of a decoded chunk.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChunkSpan {
    /// WBL for chunks of out-of-order samples.
    pub(crate) log: Log,
    pub(crate) min_time: i64,
    pub(crate) max_time: i64,
}

/// All chunks of `chunks_head`.
#[derive(Default)]
pub(crate) struct HeadChunkIndex {
    files: Vec<Mapped>,
    /// By ref; the chunks of a ref in file order.
    entries: Vec<IndexEntry>,
    undecodable_count: u64,
    is_damaged: bool,
}

impl HeadChunkIndex {
    /// Maps `files` and lists their chunks.
    pub(crate) fn open(env: &Env, files: &[SourceFile], report: &mut ImportReport) -> HeadChunkIndex {
        let mut index = HeadChunkIndex::default();
        let damage_count = report.damage_count();
        for SourceFile { path, .. } in files {
            match env.disk.map(path) {
                Ok(bytes) => {
                    index.add_file(path, &bytes, report);
                    index.files.push(bytes);
                }
                Err(error) => report.damage(path, 0, error),
            }
        }
        index.is_damaged = report.damage_count() > damage_count;
        index.entries.sort_by_key(|entry| entry.series_ref);
        index
    }

    fn add_file(&mut self, path: &Path, bytes: &[u8], report: &mut ImportReport) {
        // A file that was created and never written is empty or zero.
        if bytes.iter().all(|&b| b == 0) {
            return;
        }
        let mut chunks = match HeadChunks::open(bytes) {
            Ok(chunks) => chunks,
            Err(error) => return report.damage(path, error.offset() as u64, error),
        };
        loop {
            match chunks.next_chunk() {
                Ok(Some(chunk)) => {
                    let start = chunk.bytes.as_ptr() as usize - bytes.as_ptr() as usize;
                    let log = if chunk.out_of_order { Log::Wbl } else { Log::Wal };
                    self.entries.push(IndexEntry {
                        series_ref: chunk.series_ref,
                        file_idx: self.files.len() as u32,
                        start: start as u32,
                        len: chunk.bytes.len() as u32,
                        encoding: chunk.encoding,
                        is_taken: false,
                        span: ChunkSpan { log, min_time: chunk.min_time, max_time: chunk.max_time },
                    });
                }
                Ok(None) => return,
                Err(error) => return report.damage(path, error.offset() as u64, error),
            }
        }
    }

    /// Returns true if some chunks cannot be read.
    pub(crate) fn is_damaged(&self) -> bool {
        self.is_damaged
    }

    /// Chunks of an unknown encoding or with damaged content.
    pub(crate) fn undecodable_count(&self) -> u64 {
        self.undecodable_count
    }

    /// Chunks whose series is in no record of the WAL.
    pub(crate) fn unknown_series_count(&self) -> u64 {
        self.entries.iter().filter(|entry| !entry.is_taken).count() as u64
    }

    /// Returns the indices of the chunks of `series_ref`, in file order.
    pub(crate) fn indices_of(&self, series_ref: u64) -> Range<usize> {
        let start = self.entries.partition_point(|entry| entry.series_ref < series_ref);
        let rest = &self.entries[start..];
        start..start + rest.partition_point(|entry| entry.series_ref == series_ref)
    }

    /// Replaces `columns` by the samples of chunk `idx`; `None` if it was taken before or cannot be decoded.
    pub(crate) fn take(&mut self, idx: usize, columns: &mut Columns) -> Option<ChunkSpan> {
        let entry = self.entries.get_mut(idx)?;
        if std::mem::replace(&mut entry.is_taken, true) {
            return None;
        }
        let file = self.files.get(entry.file_idx as usize).map_or(&[][..], |file| file);
        let start = entry.start as usize;
        let bytes = file.get(start..start + entry.len as usize).unwrap_or_default();
        let is_known =
            matches!(entry.encoding, ENCODING_XOR | ENCODING_XOR2) || kinds::is_histogram(entry.encoding);
        columns.clear();
        if is_known && kinds::decode(entry.encoding, bytes, TimeRange::ALL, columns).is_ok() {
            return Some(entry.span);
        }
        self.undecodable_count += 1;
        self.is_damaged = true;
        None
    }
}
