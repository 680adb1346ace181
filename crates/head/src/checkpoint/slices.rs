//! Writes one checkpoint slice: encodes its pages one after another under the lock of their stripe, then
//! replaces the older of the two copies on disk.

use chronolith_base::hash::HashMap;
use chronolith_format::chunk::starts;
use chronolith_format::head::slice::{
    FILE_HEADER_BYTES, FRAME_COUNT_MAX, KIND_SERIES, KIND_TENANTS, LATER_FRAMES_UNKNOWN, OooPayload,
    SealedEntry, SeriesEntry, SliceHeader, WindowEntry, encode_entry, encode_tenants,
};
use chronolith_format::head::wal::{FrameHeader, STRIPE_NONE, Samples};
use chronolith_model::DuplicatePolicy;

use super::mark::CheckpointMark;
use super::slice_state::{Durability, SLICE_PAGES, SliceState, pages_of, slice_path};
use super::state::{CheckpointState, CheckpointStats, Checkpointer};
use super::texts;
use crate::options::HeadError;
use crate::options::wal_dir;
use crate::series::sealed_chunks::ChunkRef;
use crate::series::stripe::{STRIPE_COUNT, SeriesState, Stripe};

/// Payload bytes at which the next frame starts.
const FRAME_BYTES: usize = 1 << 20;
/// Sealed chunks per entry; a series with more has several entries.
const ENTRY_SEALED_MAX: usize = 1 << 14;
/// A larger buffer is freed after use.
const BUFFER_BYTES_MAX: usize = 4 << 20;

/// Encodes the series of one slice into frames.
struct SliceEncoder<'a> {
    key: u128,
    generation: u64,
    buffer: &'a mut Vec<u8>,
    payload: Vec<u8>,
    last_id: u32,
    frame_count: u32,
    series_count: u32,
    sample_count: u64,
    /// Tenants of the slice: index in the process to index in the list of the slice.
    tenants: HashMap<u32, u32>,
    order: Vec<u32>,
    sealed_end: ChunkRef,
    open: Vec<u8>,
}

impl SliceEncoder<'_> {
    fn put_frame(&mut self, kind: u8) {
        assert!(self.frame_count < FRAME_COUNT_MAX, "a slice has few frames");
        let mut header = FrameHeader::for_payload(kind, STRIPE_NONE, &self.payload);
        header.sequence = SliceHeader::frame_sequence(self.generation, self.frame_count);
        header.put_frame(self.key, &self.payload, self.buffer);
        self.frame_count += 1;
        self.payload.clear();
        self.last_id = 0;
    }

    fn put_entry(&mut self, entry: &SeriesEntry<'_>) {
        encode_entry(entry, self.last_id, &mut self.payload);
        self.last_id = entry.id;
        if self.payload.len() >= FRAME_BYTES {
            self.put_frame(KIND_SERIES);
        }
    }

    fn put_series(&mut self, stripe: &Stripe, id: u32) {
        let Some(record) = stripe.series(id) else { return };
        let next = self.order.len() as u32;
        let tenant = *self.tenants.entry(record.tenant).or_insert_with(|| {
            self.order.push(record.tenant);
            next
        });
        let mut sealed = self.sealed_chunks(stripe, record);
        while sealed.len() > ENTRY_SEALED_MAX {
            let rest = sealed.split_off(ENTRY_SEALED_MAX);
            self.put_entry(&SeriesEntry { id, tenant, sealed, ..SeriesEntry::default() });
            sealed = rest;
        }
        let mut ooo = self.ooo_payloads(stripe, id);
        let last_ooo = ooo.pop().unwrap_or_default();
        for payload in &ooo {
            let ooo = OooPayload::Samples(payload);
            self.put_entry(&SeriesEntry { id, tenant, ooo, ..SeriesEntry::default() });
        }
        let mut starts = Vec::new();
        if !stripe.open_starts(id).is_empty() {
            starts::encode(stripe.open_starts(id), &mut starts);
        }
        let mut entry = SeriesEntry { id, tenant, sealed, open_starts: &starts, ..SeriesEntry::default() };
        if !last_ooo.is_empty() {
            entry.ooo = OooPayload::Samples(&last_ooo);
        }
        let mut open = std::mem::take(&mut self.open);
        if let Some(chunk) = stripe.open_chunk(id) {
            self.sample_count += u64::from(chunk.count());
        }
        if !record.has_open_words() {
            entry.last = record.has_sample().then(|| (record.newest_time(), record.newest_bits()));
        }
        entry.open.extend(stripe.open_entry(id, &mut open));
        self.put_entry(&entry);
        self.open = open;
        self.series_count += 1;
    }

    /// Returns the sealed chunks of a series, oldest first.
    fn sealed_chunks(&mut self, stripe: &Stripe, record: &SeriesState) -> Vec<SealedEntry> {
        let mut sealed = Vec::new();
        for node in stripe.sealed_of(record) {
            self.sealed_end = self.sealed_end.max(node.chunk_ref());
            self.sample_count += u64::from(node.count());
            sealed.push(SealedEntry {
                file: node.chunk_ref().file(),
                offset: node.chunk_ref().offset(),
                len: node.byte_len().unwrap_or(0) as u32,
                count: node.stored_count(),
                encoding: node.encoding(),
                min_time: node.min_time(),
                span: node.stored_span(),
            });
        }
        sealed.reverse();
        sealed
    }

    /// Returns the out-of-order samples of a series as payloads, each of one duplicate policy.
    fn ooo_payloads(&mut self, stripe: &Stripe, id: u32) -> Vec<Vec<u8>> {
        let samples = stripe.ooo_samples(id);
        let mut payloads = Vec::new();
        if samples.is_empty() {
            return payloads;
        }
        self.sample_count += samples.len() as u64;
        for duplicates in [DuplicatePolicy::KeepFirst, DuplicatePolicy::LastWins] {
            let mut columns = Samples { duplicates, ..Samples::default() };
            for sample in samples.iter().filter(|sample| sample.duplicates() == duplicates) {
                sample.value().as_value().put_logged(id, sample.time(), sample.start_ms(), &mut columns);
            }
            columns.encode_frames(&mut Vec::new(), |payload| payloads.push(payload.to_vec()));
        }
        payloads
    }
}

impl Checkpointer {
    /// Encodes slice `slice` in its current state and writes the copy to disk; `mark` was taken before.
    pub(super) fn write_slice(
        &self,
        rolling: &mut CheckpointState,
        slice: u32,
        mark: CheckpointMark,
        stats: &mut CheckpointStats,
    ) -> Result<(), HeadError> {
        let Some(&slice_state) = rolling.slices.get(&slice) else { return Ok(()) };
        let mut buffer = std::mem::take(&mut rolling.buffer);
        let generation = slice_state.generation + 1;
        let (header, sealed_end) = self.copy_slice(slice, generation, mark, &mut buffer);
        self.state.settle_position()?;
        let written = self.store_slice(rolling, slice, slice_state, sealed_end, &buffer);
        if buffer.capacity() <= BUFFER_BYTES_MAX {
            rolling.buffer = buffer;
        }
        let copy_idx = written?;
        stats.slice_count += 1;
        stats.bytes += header.byte_len;
        stats.series_count += u64::from(header.series_count);
        let slice_state = SliceState {
            sequence: mark.sequence,
            log_bytes: mark.log_bytes,
            generation,
            copy_idx: Some(copy_idx),
            exists: [slice_state.exists[0] || copy_idx == 0, slice_state.exists[1] || copy_idx == 1],
            durability: Durability::Renamed,
            bytes: header.byte_len,
            series_count: header.series_count,
            change_count: mark.change_count,
            older_sequence: if slice_state.is_whole() {
                slice_state.sequence
            } else {
                slice_state.older_sequence
            },
            older_change_count: slice_state.is_whole().then_some(slice_state.change_count),
        };
        let is_first = rolling.slices.insert(slice, slice_state).is_none_or(|before| !before.is_whole());
        // The first write makes both copies, so a missing one is known to be lost.
        if is_first { self.write_slice(rolling, slice, mark, stats) } else { Ok(()) }
    }

    /// Encodes the slice into `buffer`; returns its header, and the reference of the newest sealed chunk in
    /// it.
    fn copy_slice(
        &self,
        slice: u32,
        generation: u64,
        mark: CheckpointMark,
        buffer: &mut Vec<u8>,
    ) -> (SliceHeader, ChunkRef) {
        buffer.clear();
        buffer.resize(FILE_HEADER_BYTES, 0);
        let mut encoder = SliceEncoder {
            key: self.state.wal.key(),
            generation,
            buffer,
            payload: Vec::new(),
            last_id: 0,
            frame_count: 0,
            series_count: 0,
            sample_count: 0,
            tenants: HashMap::default(),
            order: Vec::new(),
            sealed_end: ChunkRef::default(),
            open: Vec::new(),
        };
        let stripe_idx = slice as usize % STRIPE_COUNT;
        let first_page = slice as usize / STRIPE_COUNT * SLICE_PAGES;
        let given = self.state.index.ids.given_at(mark.ids);
        let mut ids = Vec::new();
        for page in first_page..first_page + SLICE_PAGES {
            ids.clear();
            // The lock is held for one page at a time, so that appends wait for microseconds only.
            let stripe = self.state.series.stripes()[stripe_idx].lock();
            let Some(()) = stripe.page_ids(stripe_idx, page, &mut ids) else { break };
            ids.iter().filter(|&&id| given.has(id)).for_each(|&id| encoder.put_series(&stripe, id));
        }
        if !encoder.payload.is_empty() {
            encoder.put_frame(KIND_SERIES);
        }
        let has_stores = self.put_tenants(&mut encoder);
        let header = SliceHeader {
            slice,
            generation,
            sequence: mark.sequence,
            key: encoder.key,
            id_end: given.end_in(pages_of(slice)),
            frame_count: encoder.frame_count,
            byte_len: encoder.buffer.len() as u64,
            series_count: encoder.series_count,
            sample_count: encoder.sample_count,
            later_frames: u32::try_from(self.state.wal.position().0.saturating_sub(mark.sequence))
                .unwrap_or(LATER_FRAMES_UNKNOWN),
            has_stores,
        };
        let sealed_end = encoder.sealed_end;
        buffer[..FILE_HEADER_BYTES].copy_from_slice(&header.encode());
        (header, sealed_end)
    }

    /// Adds the frame of the tenants; returns true if one of them is a store.
    fn put_tenants(&self, encoder: &mut SliceEncoder<'_>) -> bool {
        let tenants = self.state.index.tenants_by_idx(&encoder.order);
        assert_eq!(tenants.len(), encoder.order.len(), "series have tenants");
        let windows = tenants.iter().map(|tenant| {
            let windows = tenant.windows.lock();
            let entries = windows
                .iter()
                .map(|(start, count)| WindowEntry { start, first_arrival_ms: count.first_arrival_ms() });
            (tenant.name(), entries.collect())
        });
        encode_tenants(windows, &mut encoder.payload);
        encoder.put_frame(KIND_TENANTS);
        tenants.iter().any(|tenant| !tenant.id.is_default())
    }

    /// Replaces the older copy of `slice`; returns its index. The name is durable once the directory is
    /// synced.
    fn store_slice(
        &self,
        rolling: &mut CheckpointState,
        slice: u32,
        slice_state: SliceState,
        sealed_end: ChunkRef,
        bytes: &[u8],
    ) -> Result<usize, HeadError> {
        if sealed_end >= rolling.sealed_synced {
            let end = self.state.series.store.end();
            self.state.write_sealed()?;
            self.state.sync_sealed()?;
            rolling.sealed_synced = end;
        }
        // The slice may have samples of later frames than the WAL keeps: their texts must outlive it too.
        texts::save(&self.state)?;
        let disk = &*self.state.env.disk;
        let copy_idx = slice_state.copy_idx.map_or(0, |copy_idx| 1 - copy_idx);
        let path = slice_path(&wal_dir(&self.state.options.dir), slice, copy_idx);
        // Written to a temporary file: overwriting in place and a kill would leave half a copy, and the
        // newest without a second. The name is no other file's: the segment of the same number is created as
        // `NUMBER.tmp` in this directory, at any time.
        let tmp = path.with_added_extension("tmp");
        let make = || {
            let file = disk.create(&tmp)?;
            file.write_at(bytes, 0)?;
            file.sync_data()?;
            disk.rename(&tmp, &path)
        };
        make().map_err(HeadError::io(&path))?;
        Ok(copy_idx)
    }

    /// Makes the newest copies durable, also copies of an earlier process.
    pub(super) fn sync_slices(&self, rolling: &mut CheckpointState) -> Result<(), HeadError> {
        let dir = wal_dir(&self.state.options.dir);
        let disk = &*self.state.env.disk;
        let mut due_count = 0;
        for (&slice, slice_state) in &rolling.slices {
            due_count += u64::from(slice_state.durability != Durability::Durable);
            if let (Durability::Unknown, Some(copy_idx)) = (slice_state.durability, slice_state.copy_idx) {
                let path = slice_path(&dir, slice, copy_idx);
                disk.open(&path).and_then(|file| file.sync_data()).map_err(HeadError::io(&path))?;
            }
        }
        if due_count > 0 {
            disk.sync_dir(&dir).map_err(HeadError::io(&dir))?;
            rolling.slices.values_mut().for_each(|slice_state| slice_state.durability = Durability::Durable);
        }
        Ok(())
    }
}
