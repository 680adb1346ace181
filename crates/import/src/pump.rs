//! Reads the segments of a log in a thread of its own: pages, checksums, unpacking. Batches of records come out.
//!
//! Holds: records come in the order of the log; batches wait in a short queue, so memory is bounded by the largest
//! record. Damage is told in place of what is lost. Not here: what records say (`gather`).

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use chronolith_base::Env;
use chronolith_format::prometheus::segment::{self, Item, PAGE_BYTES, SegmentReader, Unpacker};

use crate::gather::Log;
use crate::report::Damage;
use crate::source::LogFile;

/// Unpacked bytes of a batch, from which on it is handed over.
const BATCH_BYTES: usize = 512 << 10;
/// Batches that wait.
const BATCHES_MAX: usize = 3;
/// Bytes read at once.
const READ_BYTES: usize = 8 * PAGE_BYTES;

/// Records of a log, one behind the other.
pub(crate) struct Batch {
    pub(crate) log: Log,
    bytes: Vec<u8>,
    ends: Vec<usize>,
    /// Damage among these records.
    pub(crate) damages: Vec<Damage>,
    /// Packed bytes that went into the batch.
    pub(crate) read_bytes: u64,
    /// File that the batch ends in.
    pub(crate) file: usize,
}

impl Batch {
    fn new() -> Batch {
        let (bytes, ends, damages) = (Vec::new(), Vec::new(), Vec::new());
        Batch { log: Log::Wal, bytes, ends, damages, read_bytes: 0, file: 0 }
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.damages.clear();
        self.read_bytes = 0;
    }

    /// The unpacked records.
    pub(crate) fn records(&self) -> impl Iterator<Item = &[u8]> {
        let mut start = 0;
        self.ends.iter().map(move |&end| {
            let record = self.bytes.get(start..end).unwrap_or_default();
            start = end;
            record
        })
    }
}

/// The running thread.
pub(crate) struct Pump {
    pub(crate) batches: Receiver<Batch>,
    spare: SyncSender<Batch>,
    thread: JoinHandle<()>,
}

impl Pump {
    /// Starts reading `files`.
    ///
    /// # Errors
    /// If the operating system refuses a thread.
    pub(crate) fn start(env: &Env, files: Vec<(Log, LogFile)>) -> std::io::Result<Pump> {
        let (full_sender, batches) = sync_channel(BATCHES_MAX);
        let (spare, spare_receiver) = sync_channel(BATCHES_MAX + 2);
        let env = env.clone();
        let thread = chronolith_base::thread::spawn("import-read", move || {
            let mut reader =
                Reader { full: full_sender, spare: spare_receiver, batch: Batch::new(), gone: false };
            let mut unpacker = Unpacker::default();
            for (at, (log, file)) in files.iter().enumerate() {
                reader.file(&env, at, *log, file, &mut unpacker);
            }
            reader.hand_over();
        })?;
        Ok(Pump { batches, spare, thread })
    }

    /// Gives the memory of a batch back.
    pub(crate) fn reuse(&self, batch: Batch) {
        // A full queue means that there are enough.
        let _ = self.spare.try_send(batch);
    }

    /// Waits for the thread; true if it ended without a panic.
    pub(crate) fn finish(self) -> bool {
        drop(self.batches);
        self.thread.join().is_ok()
    }
}

struct Reader {
    full: SyncSender<Batch>,
    spare: Receiver<Batch>,
    batch: Batch,
    /// Nobody receives any more.
    gone: bool,
}

impl Reader {
    fn file(&mut self, env: &Env, at: usize, log: Log, file: &LogFile, unpacker: &mut Unpacker) {
        if self.batch.log != log {
            self.hand_over();
        }
        (self.batch.log, self.batch.file) = (log, at);
        let opened = match env.disk.open_read(&file.path) {
            Ok(opened) => opened,
            Err(error) => return self.damage(file, 0, error.to_string()),
        };
        let mut segment = SegmentReader::new();
        let mut window = Vec::new();
        let mut offset = 0;
        while offset < file.len && !self.gone {
            let len = (file.len - offset).min(READ_BYTES as u64) as usize;
            window.resize(len, 0);
            if let Err(error) = opened.read_at(&mut window, offset) {
                return self.damage(file, offset, error.to_string());
            }
            for page in window.chunks(PAGE_BYTES) {
                segment.page(page, &mut |item| self.item(file, item, unpacker));
            }
            offset += len as u64;
            self.batch.read_bytes += len as u64;
            if self.batch.bytes.len() >= BATCH_BYTES {
                self.hand_over();
                (self.batch.log, self.batch.file) = (log, at);
            }
        }
        segment.finish(&mut |item| self.item(file, item, unpacker));
    }

    fn item(&mut self, file: &LogFile, item: Item<'_>, unpacker: &mut Unpacker) {
        match item {
            Item::Record(record) => match unpacker.unpack(&record, &mut self.batch.bytes) {
                Ok(()) => self.batch.ends.push(self.batch.bytes.len()),
                Err(what) => self.damage(file, record.offset, what),
            },
            Item::Damage(segment::Damage { offset, what }) => self.damage(file, offset, what),
        }
    }

    fn damage(&mut self, file: &LogFile, offset: u64, what: String) {
        self.batch.damages.push(Damage { path: file.path.clone(), offset, what });
    }

    fn hand_over(&mut self) {
        let mut next = self.spare.try_recv().unwrap_or_else(|_| Batch::new());
        next.clear();
        (next.log, next.file) = (self.batch.log, self.batch.file);
        let full = std::mem::replace(&mut self.batch, next);
        let empty = full.ends.is_empty() && full.damages.is_empty() && full.read_bytes == 0;
        self.gone |= !empty && self.full.send(full).is_err();
    }
}
