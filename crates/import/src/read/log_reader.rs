//! Thread that reads WAL and WBL: pages, checksums and decompression. It sends batches of unpacked records.
//!
//! Invariants: records arrive in the order of the log; the queue of batches is bounded, so memory is bounded
//! by the largest record; damage arrives in the batch whose records surround it.
//! Not here: the content of records (`collect`).

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use chronolith_base::Env;
use chronolith_format::prometheus::segment::{self, Item, Unpacker};

use super::data_dir::SourceFile;
use super::segment_file::SegmentFile;
use crate::write::report::Damage;

/// A batch with this many unpacked bytes is sent.
const BATCH_BYTES: usize = 512 << 10;
/// Batches in the queue.
const BATCH_COUNT_MAX: usize = 3;

/// The two logs of a Prometheus head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Log {
    /// Checkpoint and write-ahead log: samples mostly in order.
    Wal,
    /// Write-behind log: out-of-order samples.
    Wbl,
}

/// Unpacked records of one log, back to back.
pub(crate) struct RecordBatch {
    pub(crate) log: Log,
    bytes: Vec<u8>,
    /// End of each record in `bytes`.
    ends: Vec<usize>,
    pub(crate) damages: Vec<Damage>,
    /// Bytes of the files, before decompression.
    pub(crate) read_bytes: u64,
    /// File of the last record.
    pub(crate) file_idx: usize,
}

impl RecordBatch {
    fn new() -> RecordBatch {
        let (bytes, ends, damages) = (Vec::new(), Vec::new(), Vec::new());
        RecordBatch { log: Log::Wal, bytes, ends, damages, read_bytes: 0, file_idx: 0 }
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.damages.clear();
        self.read_bytes = 0;
    }

    fn is_empty(&self) -> bool {
        self.ends.is_empty() && self.damages.is_empty() && self.read_bytes == 0
    }

    pub(crate) fn records(&self) -> impl Iterator<Item = &[u8]> {
        let mut start = 0;
        self.ends.iter().map(move |&end| {
            let record = self.bytes.get(start..end).unwrap_or_default();
            start = end;
            record
        })
    }
}

/// The running thread, from the side that receives.
pub(crate) struct LogReader {
    pub(crate) batches: Receiver<RecordBatch>,
    spare: SyncSender<RecordBatch>,
    thread: JoinHandle<()>,
}

impl LogReader {
    /// Starts reading `files`.
    ///
    /// # Errors
    /// If the operating system refuses a thread.
    pub(crate) fn start(env: &Env, files: Vec<(Log, SourceFile)>) -> std::io::Result<LogReader> {
        let (full, batches) = sync_channel(BATCH_COUNT_MAX);
        let (spare, spare_receiver) = sync_channel(BATCH_COUNT_MAX + 2);
        let env = env.clone();
        let thread = chronolith_base::thread::spawn("import-read", move || {
            let batch = RecordBatch::new();
            let mut sender = BatchSender { full, spare: spare_receiver, batch, is_disconnected: false };
            let mut unpacker = Unpacker::default();
            for (file_idx, (log, file)) in files.iter().enumerate() {
                sender.begin_file(*log, file_idx);
                sender.read_file(&env, file, &mut unpacker);
            }
            sender.send();
        })?;
        Ok(LogReader { batches, spare, thread })
    }

    /// Returns the memory of a batch to the thread.
    pub(crate) fn reuse(&self, batch: RecordBatch) {
        // A full queue has enough spare batches, so this one is dropped.
        let _ = self.spare.try_send(batch);
    }

    /// Waits for the thread. Returns true if it ended without a panic.
    pub(crate) fn join(self) -> bool {
        drop(self.batches);
        self.thread.join().is_ok()
    }
}

/// State of the thread.
struct BatchSender {
    full: SyncSender<RecordBatch>,
    spare: Receiver<RecordBatch>,
    batch: RecordBatch,
    /// The receiver was dropped.
    is_disconnected: bool,
}

impl BatchSender {
    fn begin_file(&mut self, log: Log, file_idx: usize) {
        if self.batch.log != log {
            self.send();
        }
        (self.batch.log, self.batch.file_idx) = (log, file_idx);
    }

    fn read_file(&mut self, env: &Env, file: &SourceFile, unpacker: &mut Unpacker) {
        let mut segment = match SegmentFile::open(env, file) {
            Ok(segment) => segment,
            Err(error) => return self.add_damage(file, 0, error.to_string()),
        };
        while !self.is_disconnected {
            match segment.read_window(&mut |item| self.add_item(file, item, unpacker)) {
                Ok(0) => return,
                Ok(len) => self.batch.read_bytes += len,
                Err(error) => return self.add_damage(file, segment.offset(), error.to_string()),
            }
            if self.batch.bytes.len() >= BATCH_BYTES {
                self.send();
            }
        }
    }

    fn add_item(&mut self, file: &SourceFile, item: Item<'_>, unpacker: &mut Unpacker) {
        match item {
            Item::Record(record) => match unpacker.unpack(&record, &mut self.batch.bytes) {
                Ok(()) => self.batch.ends.push(self.batch.bytes.len()),
                Err(what) => self.add_damage(file, record.offset, what),
            },
            Item::Damage(segment::Damage { offset, what }) => self.add_damage(file, offset, what),
        }
    }

    fn add_damage(&mut self, file: &SourceFile, offset: u64, what: String) {
        self.batch.damages.push(Damage { path: file.path.clone(), offset, what });
    }

    /// Sends the batch and continues with an empty one of the same log and file.
    fn send(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        let mut next = self.spare.try_recv().unwrap_or_else(|_| RecordBatch::new());
        next.clear();
        (next.log, next.file_idx) = (self.batch.log, self.batch.file_idx);
        let full = std::mem::replace(&mut self.batch, next);
        self.is_disconnected |= self.full.send(full).is_err();
    }
}
