//! Replicated log in a directory: for tests and for a single machine.
//!
//! Invariants: one process has the log open; a record is acknowledged after fdatasync of its segment, and
//! read only then; after a failed write or sync nothing more is appended until the log is opened again.
//! Not here: bytes (`format::replicated_log::directory`).

mod open_segment;
mod options;
mod partition;
mod scan;
mod segment_file;
mod shared;
mod writer;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use bytes::Bytes;
use chronolith_base::disk::{LockGuard, make_dir};
use chronolith_base::{Env, thread};
use chronolith_format::replicated_log::directory::{TOPIC_FILE, TopicFile};

use crate::error::LogError;
use crate::log::ReplicatedLog;
use crate::position::{Bounds, PartitionId, ReadLimits, Record, TopicId};
use crate::stats::LogStats;
use crate::ticket::{Outcome, SharedOutcome, Ticket};
pub use options::DirOptions;
use partition::Partition;
use shared::Shared;
use writer::{Queued, Writer};

/// Name of the lock file.
const LOCK_FILE: &str = "lock";
/// Appends that wait for the writer, whatever their bytes.
const QUEUED_APPENDS_MAX: usize = 16_384;

/// Replicated log in a directory.
pub struct DirLog {
    shared: Arc<Shared>,
    /// Taken when the log is dropped, which ends the writer.
    queue: Option<SyncSender<Queued>>,
    writer: Option<JoinHandle<()>>,
    _lock: Box<dyn LockGuard>,
}

impl DirLog {
    /// Opens the log, and makes it if the directory has none. Cuts off an append that a crash interrupted.
    ///
    /// Cost: reads the last segment of each partition.
    ///
    /// # Errors
    /// [`LogError::InUse`] while another process has it open, [`LogError::Setting`] for another number of
    /// partitions, [`LogError::File`] for files that cannot be read.
    pub fn open(env: &Env, options: DirOptions) -> Result<DirLog, LogError> {
        options.check()?;
        make_dir(&*env.disk, &options.dir).map_err(LogError::at(&options.dir))?;
        let lock_path = options.dir.join(LOCK_FILE);
        let lock = env.disk.lock(&lock_path).map_err(|error| match error.kind() {
            std::io::ErrorKind::WouldBlock => LogError::InUse { path: lock_path.clone() },
            _ => LogError::at(&lock_path)(error),
        })?;
        let topic = read_or_make_topic(env, &options)?;
        let numbers = 0..options.partition_count;
        let opened: Result<Vec<_>, LogError> =
            numbers.map(|number| Partition::open(env, &options.dir, topic, PartitionId(number))).collect();
        let mut partitions = Vec::new();
        let mut files = Vec::new();
        for (partition, file) in opened? {
            partitions.push(partition);
            files.push(file);
        }
        let shared = Arc::new(Shared::new(env, topic, partitions, options));
        let (queue, queued) = sync_channel(QUEUED_APPENDS_MAX);
        let writer = Writer::new(shared.clone(), files);
        let spawned = thread::spawn("log writer", move || writer.run(&queued));
        let writer = spawned.map_err(LogError::at(&shared.options.dir))?;
        Ok(DirLog { shared, queue: Some(queue), writer: Some(writer), _lock: lock })
    }

    /// Returns the number of partitions of the log in `dir`; `None` if there is no log.
    ///
    /// # Errors
    /// [`LogError::File`] for a file that cannot be read.
    pub fn partition_count_of(env: &Env, dir: &Path) -> Result<Option<u32>, LogError> {
        let path = dir.join(TOPIC_FILE);
        if !env.disk.exists(&path) {
            return Ok(None);
        }
        Ok(Some(read_topic(env, &path)?.partition_count))
    }

    /// Removes segments whose records are all before `offset`; returns their bytes.
    ///
    /// # Errors
    /// [`LogError::File`]; segments that remain are removed by the next call.
    pub fn trim(&self, partition: PartitionId, offset: u64) -> Result<u64, LogError> {
        let freed = self.shared.partition(partition)?.trim(&*self.shared.env.disk, offset)?;
        self.shared.disk_bytes.fetch_sub(freed, Ordering::Relaxed);
        Ok(freed)
    }

    fn queue(&self, partition: PartitionId, value: Bytes) -> Result<Ticket, LogError> {
        let options = &self.shared.options;
        self.shared.partition(partition)?;
        if value.len() > options.record_bytes_max {
            let record_bytes_max = options.record_bytes_max;
            return Err(LogError::TooLarge { record_bytes: value.len(), record_bytes_max });
        }
        if let Some(why) = self.shared.poison.lock().clone() {
            return Err(LogError::NotWritten { partition, why });
        }
        let permit = self.shared.in_flight.take(partition, value.len() as u64, options.ack_timeout)?;
        let outcome = Arc::new(Outcome::default());
        let queued = Queued { partition, value, outcome: outcome.clone(), permit };
        let queue = self.queue.as_ref().ok_or(LogError::Closed)?;
        queue.try_send(queued).map_err(|error| match error {
            TrySendError::Full(_) => {
                let why = format!("{QUEUED_APPENDS_MAX} appends wait for the disk");
                LogError::NotWritten { partition, why }
            }
            TrySendError::Disconnected(_) => LogError::Closed,
        })?;
        let within = options.ack_timeout;
        let why = "the disk did not answer".to_owned();
        let timed_out = LogError::PossiblyWritten { partition, within, why };
        Ok(Ticket::new(SharedOutcome::new(outcome, within, timed_out)))
    }
}

impl ReplicatedLog for DirLog {
    fn identity(&self) -> TopicId {
        self.shared.topic
    }

    fn partition_count(&self) -> Result<u32, LogError> {
        Ok(self.shared.options.partition_count)
    }

    fn append(&self, partition: PartitionId, value: Bytes) -> Result<Ticket, LogError> {
        let bytes = value.len();
        let queued = self.queue(partition, value);
        if queued.is_err() {
            self.shared.counters.note_append(bytes, &queued);
        }
        queued
    }

    fn read(&self, partition: PartitionId, from: u64, limits: ReadLimits) -> Result<Vec<Record>, LogError> {
        let of = self.shared.partition(partition);
        let read = of.and_then(|partition| partition.read(&*self.shared.env.disk, from, limits));
        self.shared.counters.note_read(&read);
        read
    }

    fn bounds(&self, partition: PartitionId) -> Result<Bounds, LogError> {
        Ok(self.shared.partition(partition)?.bounds())
    }

    fn stats(&self) -> LogStats {
        LogStats {
            in_flight_bytes: self.shared.in_flight.used_bytes(),
            in_flight_bytes_max: self.shared.options.in_flight_bytes_max,
            disk_bytes: self.shared.disk_bytes.load(Ordering::Relaxed),
            ..self.shared.counters.stats()
        }
    }
}

impl Drop for DirLog {
    /// Waits until everything queued is written.
    fn drop(&mut self) {
        self.queue = None;
        if let Some(writer) = self.writer.take()
            && writer.join().is_err()
        {
            tracing::error!(dir = %self.shared.options.dir.display(), "writer thread of a replicated log panicked");
        }
    }
}

/// Reads the identity of the log, or draws one for a new directory.
fn read_or_make_topic(env: &Env, options: &DirOptions) -> Result<TopicId, LogError> {
    let path = options.dir.join(TOPIC_FILE);
    if env.disk.exists(&path) {
        let file = read_topic(env, &path)?;
        if file.partition_count != options.partition_count {
            let expected = format!("{}, as {} has", file.partition_count, options.dir.display());
            let found = options.partition_count.to_string();
            return Err(LogError::Setting { setting: "partition_count", expected, found });
        }
        return Ok(TopicId(file.topic));
    }
    if Partition::has_segments(env, &options.dir)? {
        let why = "is missing, and there are records of its topic".to_owned();
        return Err(LogError::File { path, why });
    }
    let mut topic = [0u8; 16];
    env.rng.fill(&mut topic);
    let file = TopicFile { topic, partition_count: options.partition_count };
    env.disk.write_atomic(&path, &file.encode()).map_err(LogError::at(&path))?;
    Ok(TopicId(topic))
}

fn read_topic(env: &Env, path: &Path) -> Result<TopicFile, LogError> {
    let bytes = env.disk.read(path).map_err(LogError::at(path))?;
    TopicFile::decode(&bytes)
        .map_err(|error| LogError::File { path: path.to_owned(), why: error.to_string() })
}

#[cfg(test)]
mod tests;
