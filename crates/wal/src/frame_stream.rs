//! Reads the frames of a file in blocks of bounded size, so that a log may be larger than memory.
//!
//! Invariants: a block has whole frames with valid checksums and ascending sequences. After bytes that are no
//! frame, reading continues at the next aligned offset with a frame; the rules equal
//! `format::head::wal::scan_recycled`, which scans a file in memory.

use std::path::{Path, PathBuf};

use chronolith_base::crc::crc32c;
use chronolith_base::sync::Mutex;
use chronolith_base::{Disk, DiskFile};
use chronolith_format::head::wal::{Damage, FRAME_ALIGN_BYTES, FRAME_HEADER_BYTES, FrameHeader, FrameRef};

use crate::options::FileError;

/// Bytes per read; a longer frame is read alone.
const BLOCK_BYTES: usize = 1 << 20;

/// Bytes that are compared with zeros at a time.
static ZEROS: [u8; 4096] = [0; 4096];

/// Consecutive frames of a file.
pub struct FrameBlock {
    bytes: Vec<u8>,
    /// Frames in order; their payloads are ranges of the block.
    pub frames: Vec<FrameRef>,
    /// Offset of the block in the file.
    pub offset: u64,
}

impl FrameBlock {
    /// Returns the length up to the end of its last frame.
    #[must_use]
    pub fn frame_bytes(&self) -> usize {
        self.frames.last().map_or(0, |frame| frame.payload.end)
    }

    /// Returns the payload of one of its frames.
    #[must_use]
    pub fn payload(&self, frame: &FrameRef) -> &[u8] {
        self.bytes.get(frame.payload.clone()).unwrap_or(&[])
    }
}

/// Memory of blocks that were read, for the next ones.
pub struct BlockBuffers(Mutex<Vec<(Vec<u8>, Vec<FrameRef>)>>);

impl Default for BlockBuffers {
    fn default() -> Self {
        BlockBuffers(Mutex::new(Vec::new()))
    }
}

impl BlockBuffers {
    /// Keeps the memory of a block.
    pub fn put(&self, block: FrameBlock) {
        self.0.lock().push((block.bytes, block.frames));
    }

    fn take(&self) -> (Vec<u8>, Vec<FrameRef>) {
        self.0.lock().pop().unwrap_or_default()
    }
}

/// Reads the frames of one file.
pub struct FrameStream<'a> {
    buffers: &'a BlockBuffers,
    path: PathBuf,
    file: Box<dyn DiskFile>,
    len: u64,
    key: u128,
    at: u64,
    /// Known length of the frame at `at`.
    next_frame_len: usize,
    /// Offset after the last valid frame.
    pub end: u64,
    /// Sequence of the first frame; 0 before it.
    pub first_sequence: u64,
    /// Frames up to this one are skipped: they were read already, or belong to an earlier use of the file.
    sequence: u64,
    stale_sequence: u64,
    /// Bytes that belong to no valid frame.
    pub damage: Vec<Damage>,
}

impl<'a> FrameStream<'a> {
    /// Opens `path`, whose frames start at `header_len`.
    ///
    /// # Errors
    /// [`FileError`] if the disk reports an error.
    pub fn open(
        disk: &'a dyn Disk,
        path: &Path,
        key: u128,
        header_len: usize,
        buffers: &'a BlockBuffers,
    ) -> Result<FrameStream<'a>, FileError> {
        FrameStream::open_recycled(disk, path, key, header_len, 0, buffers)
    }

    /// As [`FrameStream::open`]; frames up to `stale_sequence` belong to an earlier use of the file.
    ///
    /// # Errors
    /// [`FileError`] if the disk reports an error.
    pub fn open_recycled(
        disk: &'a dyn Disk,
        path: &Path,
        key: u128,
        header_len: usize,
        stale_sequence: u64,
        buffers: &'a BlockBuffers,
    ) -> Result<FrameStream<'a>, FileError> {
        let file = disk.open(path).map_err(FileError::at(path))?;
        let len = file.len().map_err(FileError::at(path))?;
        let at = header_len as u64;
        Ok(FrameStream {
            buffers,
            path: path.to_owned(),
            file,
            len,
            key,
            at,
            end: at,
            next_frame_len: 0,
            first_sequence: 0,
            sequence: stale_sequence,
            stale_sequence,
            damage: Vec::new(),
        })
    }

    /// Returns the sequence of the last frame read; 0 if there was none.
    #[must_use]
    pub fn last_sequence(&self) -> u64 {
        if self.first_sequence == 0 { 0 } else { self.sequence }
    }

    /// Returns the next frames; `None` at the end of the file.
    ///
    /// # Errors
    /// [`FileError`] if the disk reports an error; damage is not an error, see `damage`.
    pub fn next_block(&mut self) -> Result<Option<FrameBlock>, FileError> {
        let (mut bytes, mut frames) = self.buffers.take();
        while self.at < self.len {
            let left = usize::try_from(self.len - self.at).unwrap_or(usize::MAX);
            // The header of the frame after the last whole one is read as well: it has its length.
            let want = BLOCK_BYTES.max(self.next_frame_len) + FRAME_HEADER_BYTES;
            self.read(self.at, want, &mut bytes)?;
            let end = read_frames(&bytes, self.key, self.sequence, &mut frames);
            let next = bytes.get(end..).and_then(|rest| FrameHeader::decode(rest, self.key));
            self.next_frame_len = next.map_or(0, |header| header.frame_len());
            if let (Some(first), Some(last)) = (frames.first(), frames.last()) {
                if self.first_sequence == 0 {
                    self.first_sequence = first.header.sequence;
                }
                self.sequence = last.header.sequence;
                let offset = self.at;
                self.at += end as u64;
                self.end = self.at.min(self.len);
                return Ok(Some(FrameBlock { bytes, frames, offset }));
            }
            // A frame at the very end of a file may lack its padding.
            let is_cut = bytes.len() < left && bytes.len() < self.next_frame_len;
            if !is_cut {
                self.skip_to_next_frame(&mut bytes)?;
            }
        }
        Ok(None)
    }

    /// Replaces `out` by the bytes from `at` on, `want` of them or all that are left.
    fn read(&self, at: u64, want: usize, out: &mut Vec<u8>) -> Result<(), FileError> {
        let left = usize::try_from(self.len.saturating_sub(at)).unwrap_or(usize::MAX);
        out.resize(want.min(left), 0);
        self.file.read_at(out, at).map_err(FileError::at(&self.path))
    }

    /// Skips bytes that are no frame, up to the next valid one or the end of the file, and records them as
    /// damage. Bytes of an earlier use of the file, and zeros at its end, are none.
    #[cold]
    fn skip_to_next_frame(&mut self, bytes: &mut Vec<u8>) -> Result<(), FileError> {
        let start = self.at;
        let (mut used_end, mut want) = (start, BLOCK_BYTES);
        self.next_frame_len = 0;
        while self.at < self.len {
            self.read(self.at, want, bytes)?;
            if let used @ 1.. = used_len(bytes) {
                used_end = used_end.max(self.at + used as u64);
            }
            let (skipped, found) = self.search(bytes);
            self.at += skipped as u64;
            want = BLOCK_BYTES;
            match found {
                Found::Frame => {
                    self.note_damage(start, self.at, true);
                    return Ok(());
                }
                Found::Header { frame_len } if self.at + frame_len as u64 <= self.len => want = frame_len,
                // The payload of the frame does not fit the file.
                Found::Header { .. } => self.at += FRAME_ALIGN_BYTES as u64,
                Found::Nothing if skipped == 0 => self.at = self.len,
                Found::Nothing => {}
            }
        }
        self.at = self.len;
        if self.stale_sequence == 0 && used_end > start {
            self.note_damage(start, used_end, false);
        }
        Ok(())
    }

    /// Searches `bytes`, which start at an aligned offset, for a frame above the last sequence. Whole frames
    /// of an earlier use are skipped: a frame that was written later within one would break its checksum.
    /// Returns the offset at which to continue.
    fn search(&self, bytes: &[u8]) -> (usize, Found) {
        let mut at = 0;
        while let Some(rest) = bytes.get(at..).filter(|rest| rest.len() >= FRAME_HEADER_BYTES) {
            if rest.starts_with(&ZEROS) {
                at += ZEROS.len();
                continue;
            }
            // No kind is 0, and most gaps are zeros.
            let header =
                rest.get(4).filter(|&&kind| kind != 0).and_then(|_| FrameHeader::decode(rest, self.key));
            let Some(header) = header else {
                at += FRAME_ALIGN_BYTES;
                continue;
            };
            let end = FRAME_HEADER_BYTES + header.payload_len as usize;
            let Some(payload) = rest.get(FRAME_HEADER_BYTES..end) else {
                return (at, Found::Header { frame_len: end });
            };
            let is_whole = crc32c(payload) == header.payload_crc;
            if is_whole && header.sequence > self.sequence {
                return (at, Found::Frame);
            }
            let is_stale = is_whole && header.sequence <= self.stale_sequence;
            at += if is_stale { header.frame_len() } else { FRAME_ALIGN_BYTES };
        }
        (at, Found::Nothing)
    }

    fn note_damage(&mut self, start: u64, end: u64, followed: bool) {
        let offset = usize::try_from(start).unwrap_or(usize::MAX);
        let len = usize::try_from(end - start).unwrap_or(usize::MAX);
        self.damage.push(Damage { offset, len, followed });
    }
}

/// Result of a search for a frame.
enum Found {
    Frame,
    /// A valid header whose payload is not in the bytes; a frame without padding has `frame_len` bytes.
    Header {
        frame_len: usize,
    },
    Nothing,
}

/// Replaces `frames` by the valid frames at the start of `bytes` with sequences above `sequence`; returns
/// their end.
fn read_frames(bytes: &[u8], key: u128, mut sequence: u64, frames: &mut Vec<FrameRef>) -> usize {
    let mut at = 0;
    frames.clear();
    while let Some(header) = bytes.get(at..).and_then(|b| FrameHeader::decode(b, key)) {
        let start = at + FRAME_HEADER_BYTES;
        let payload = start..start + header.payload_len as usize;
        let fits = bytes.get(payload.clone()).is_some_and(|b| crc32c(b) == header.payload_crc);
        if !fits || header.sequence <= sequence {
            break;
        }
        sequence = header.sequence;
        at += header.frame_len();
        frames.push(FrameRef { header, payload });
    }
    at
}

/// Returns the length of `bytes` without the zeros at their end.
fn used_len(mut bytes: &[u8]) -> usize {
    while let Some(rest) = bytes.strip_suffix(&ZEROS) {
        bytes = rest;
    }
    bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1)
}

/// Returns true if all bytes of `file` from `at` to `len` are zeros.
///
/// # Errors
/// The disk reported an error.
pub fn zeros_to_end(file: &dyn DiskFile, mut at: u64, len: u64) -> std::io::Result<bool> {
    let mut buffer = vec![0; usize::try_from(len.saturating_sub(at)).unwrap_or(usize::MAX).min(1 << 18)];
    while at < len {
        let part_len = usize::try_from(len - at).unwrap_or(usize::MAX).min(buffer.len());
        let part = &mut buffer[..part_len];
        file.read_at(part, at)?;
        if part.iter().any(|&b| b != 0) {
            return Ok(false);
        }
        at += part_len as u64;
    }
    Ok(true)
}

#[cfg(test)]
mod tests;
