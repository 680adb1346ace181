//! Writing a checkpoint: end the segment, copy the state page by page, make it durable, delete what is behind.
//!
//! Holds: what the removed segments held is in the checkpoint, because a frame is queued only after its samples
//! are in memory. Samples that come while the state is copied are in both; replaying them again changes nothing.
//! Not here: bytes (`format::checkpoint`), loading (`replay`).

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use chronolith_base::DiskFile;
use chronolith_format::checkpoint::{
    self, CheckpointHeader, CheckpointTotals, ChunkEntry, SealedEntry, WindowEntry, encode_chunks,
    encode_frame,
};
use chronolith_format::wal::{SeriesRecord, encode_series};
use chronolith_format::xor;

use crate::head::Head;
use crate::options::HeadError;
use crate::stripe::{NONE, Stripe};
use crate::tenant::TenantHead;
use crate::wal::wal_dir;

/// Bytes of a frame's payload after which the next frame starts.
const FRAME_BYTES: usize = 1 << 20;

/// What a checkpoint cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CheckpointStats {
    /// First WAL segment that a start replays after it.
    pub segment: u64,
    /// Bytes of the checkpoint.
    pub bytes: u64,
    /// Series in it.
    pub series_count: u64,
    /// Bytes of WAL segments that were deleted.
    pub removed_bytes: u64,
    /// How long it took.
    pub duration_ns: u64,
}

/// The file being written.
struct Output {
    file: Box<dyn DiskFile>,
    path: PathBuf,
    offset: u64,
    buffer: Vec<u8>,
    totals: CheckpointTotals,
}

impl Output {
    fn put(&mut self, kind: u8, payload: &[u8]) -> Result<(), HeadError> {
        encode_frame(kind, payload, &mut self.buffer);
        self.totals.frame_count += 1;
        if self.buffer.len() >= FRAME_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), HeadError> {
        self.file.write_at(&self.buffer, self.offset).map_err(HeadError::io(&self.path))?;
        self.offset += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}

impl Head {
    /// Writes the state of the head, so that a start replays only what comes after this call, and deletes the
    /// log before it.
    ///
    /// # Errors
    /// [`HeadError`]; the previous checkpoint and the log stay then.
    pub fn checkpoint(&self) -> Result<CheckpointStats, HeadError> {
        let _alone = self.maintenance.lock();
        let start_ns = self.env.clock.mono_ns();
        let dead_files = self.series.store.dead_files();
        let (segment, sequence) = self.wal.rotate()?;
        let dir = wal_dir(&self.options.dir);
        let path = checkpoint_path(&dir, segment);
        let tmp = path.with_extension(format!("{segment:08}.tmp"));
        let written = self.write_checkpoint(&tmp, segment, sequence);
        let output = match written {
            Ok(output) => output,
            Err(error) => {
                // A start deletes it as well; this only frees the space sooner.
                let _ = self.env.disk.remove_file(&tmp);
                return Err(error);
            }
        };
        let disk = &*self.env.disk;
        disk.rename(&tmp, &path).map_err(HeadError::io(&path))?;
        disk.sync_dir(&dir).map_err(HeadError::io(&dir))?;
        self.remove_older_checkpoints(&dir, segment)?;
        let removed_bytes = self.wal.remove_before(segment).map_err(HeadError::io(&dir))?;
        self.series.store.delete(&dead_files)?;
        self.counters.checkpoint_count.fetch_add(1, Ordering::Relaxed);
        self.counters.checkpoint_bytes.store(output.offset, Ordering::Relaxed);
        Ok(CheckpointStats {
            segment,
            bytes: output.offset,
            series_count: output.totals.series_count,
            removed_bytes,
            duration_ns: self.env.clock.mono_ns().saturating_sub(start_ns),
        })
    }

    fn write_checkpoint(&self, tmp: &Path, segment: u64, sequence: u64) -> Result<Output, HeadError> {
        let file = self.env.disk.create(tmp).map_err(HeadError::io(tmp))?;
        let header = CheckpointHeader {
            segment,
            next_id: self.next_id.load(Ordering::Relaxed),
            sequence,
            key: self.wal.key,
        };
        let mut output = Output {
            file,
            path: tmp.to_owned(),
            offset: 0,
            buffer: header.encode().to_vec(),
            totals: CheckpointTotals::default(),
        };
        for tenant in self.all_tenants() {
            write_series(&tenant, &mut output)?;
            write_windows(&tenant, &mut output)?;
        }
        self.write_raw_keys(header.next_id, &mut output)?;
        for stripe in 0..self.series.stripes.len() {
            self.write_chunks(stripe, header.next_id, &mut output)?;
        }
        // The sealed chunks that were copied by place become durable before the checkpoint does.
        self.write_sealed()?;
        self.series.store.sync_all().inspect_err(|error| self.wal.poison(error.to_string()))?;
        let mut payload = Vec::new();
        output.totals.encode(&mut payload);
        encode_frame(checkpoint::KIND_END, &payload, &mut output.buffer);
        output.flush()?;
        output.file.sync_data().map_err(HeadError::io(tmp))?;
        Ok(output)
    }

    fn write_raw_keys(&self, next_id: u32, output: &mut Output) -> Result<(), HeadError> {
        let mut payload = Vec::new();
        let mut from = Some(0);
        while let Some(start) = from {
            // The lock is held for a frame at a time. A rebuild in between may hide some keys; they are only a
            // cache, and their series are parsed once after the next start.
            from = self.raw_keys.read().visit(start, FRAME_BYTES / checkpoint::RAW_KEY_BYTES, |hash, id| {
                if id < next_id {
                    checkpoint::encode_raw_key(hash, id, &mut payload);
                }
            });
            output.put(checkpoint::KIND_RAW_KEYS, &payload)?;
            payload.clear();
        }
        Ok(())
    }

    fn write_chunks(&self, stripe_idx: usize, next_id: u32, output: &mut Output) -> Result<(), HeadError> {
        let (mut ids, mut open, mut payload) = (Vec::new(), Vec::new(), Vec::new());
        for page in 0.. {
            ids.clear();
            // The lock is held for a page at a time, so that appends wait for microseconds only.
            let stripe = self.series.stripes[stripe_idx].lock();
            let Some(()) = stripe.page_ids(stripe_idx, page, &mut ids) else { break };
            for &id in ids.iter().filter(|&&id| id < next_id) {
                output.totals.sample_count += put_series_chunks(&stripe, id, &mut open, &mut payload);
            }
            drop(stripe);
            if payload.len() >= FRAME_BYTES {
                output.put(checkpoint::KIND_CHUNKS, &payload)?;
                payload.clear();
            }
        }
        if payload.is_empty() { Ok(()) } else { output.put(checkpoint::KIND_CHUNKS, &payload) }
    }

    fn remove_older_checkpoints(&self, dir: &Path, segment: u64) -> Result<(), HeadError> {
        let disk = &*self.env.disk;
        for entry in disk.list(dir).map_err(HeadError::io(dir))? {
            if checkpoint_number(&entry.name).is_some_and(|n| n < segment) {
                let path = dir.join(&entry.name);
                disk.remove_file(&path).map_err(HeadError::io(&path))?;
            }
        }
        Ok(())
    }
}

fn write_series(tenant: &TenantHead, output: &mut Output) -> Result<(), HeadError> {
    let mut payload = Vec::new();
    let mut from = Some(0);
    while let Some(start) = from.take() {
        encode_series(tenant.id.as_str(), 0, &mut payload);
        let empty_len = payload.len();
        // The lock is held for a frame at a time; series made meanwhile are in the log.
        let tables = tenant.tables.read();
        for (id, pairs) in tables.live_series_from(start) {
            if payload.len() >= FRAME_BYTES {
                from = Some(id);
                break;
            }
            SeriesRecord { id, raw_hash: 0 }.encode(pairs, &mut payload);
            output.totals.series_count += 1;
        }
        drop(tables);
        if payload.len() > empty_len {
            output.put(checkpoint::KIND_SERIES, &payload)?;
        }
    }
    Ok(())
}

fn write_windows(tenant: &TenantHead, output: &mut Output) -> Result<(), HeadError> {
    let windows: Vec<WindowEntry> = {
        let windows = tenant.windows.lock();
        let entry = |(&start, count): (&i64, &crate::windows::WindowCount)| WindowEntry {
            start,
            first_arrival_ms: count.first_arrival_ms,
        };
        windows.by_start.iter().map(entry).collect()
    };
    if windows.is_empty() {
        return Ok(());
    }
    let mut payload = Vec::new();
    WindowEntry::encode_all(tenant.id.as_str(), &windows, &mut payload);
    output.put(checkpoint::KIND_WINDOWS, &payload)
}

/// Appends the chunks of one series to `payload`; gives how many samples they have. `open` is overwritten.
fn put_series_chunks(stripe: &Stripe, id: u32, open: &mut Vec<u8>, payload: &mut Vec<u8>) -> u64 {
    let Some(hot) = stripe.hot(id).filter(|hot| !hot.has_no_chunk()) else { return 0 };
    let mut late = Vec::new();
    let mut sample_count = 0;
    if hot.late != NONE {
        let samples = stripe.late.samples(hot.late);
        late = xor::encode_whole(&samples.times, &samples.values);
        sample_count += samples.len() as u64;
    }
    let mut sealed: Vec<SealedEntry> = stripe
        .nodes
        .list(hot.sealed)
        .map(|node| SealedEntry {
            file: node.place.file,
            offset: node.place.offset,
            len: node.len,
            count: node.count,
            min_time: node.min_time,
            span_ms: node.span_ms,
        })
        .collect();
    sealed.reverse();
    sample_count += sealed.iter().map(|s| u64::from(s.count)).sum::<u64>();
    let last = if hot.open.is_none() {
        (hot.xor.count() > 0).then(|| (hot.xor.time(), hot.xor.value_bits()))
    } else {
        sample_count += u64::from(hot.xor.count());
        None
    };
    open.clear();
    stripe.copy_open(hot, open);
    encode_chunks(&ChunkEntry { id, open, late: &late, last, sealed }, payload);
    sample_count
}

/// Path of the checkpoint that stands before `segment`.
pub(crate) fn checkpoint_path(dir: &Path, segment: u64) -> PathBuf {
    dir.join(format!("checkpoint.{segment:08}"))
}

/// The segment number in the name of a checkpoint.
pub(crate) fn checkpoint_number(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("checkpoint.")?;
    digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok())?
}
