//! Reads the frames of a file in blocks of bounded size, so that a log may be larger than memory.
//!
//! Invariant: a block has whole frames with valid checksums. After the first bytes that are no frame, the
//! rest of the file is mapped and scanned by `format::head::wal`.

use std::ops::Deref;
use std::path::{Path, PathBuf};

use chronolith_base::crc::crc32c;
use chronolith_base::sync::Mutex;
use chronolith_base::{Disk, DiskFile, Mapped};
use chronolith_format::head::wal::{Damage, FRAME_HEADER_BYTES, FrameHeader, FrameRef, scan_recycled};

use crate::options::FileError;

/// Bytes per read; a longer frame is read alone.
const BLOCK_BYTES: usize = 1 << 20;

/// Bytes of a block: read, or mapped for the rest of a damaged file.
enum BlockBytes {
    Read(Vec<u8>),
    Mapped(Mapped),
}

impl Deref for BlockBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            BlockBytes::Read(bytes) => bytes,
            BlockBytes::Mapped(bytes) => bytes,
        }
    }
}

/// Consecutive frames of a file.
pub struct FrameBlock {
    bytes: BlockBytes,
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
#[derive(Default)]
pub struct BlockBuffers(Mutex<Vec<(Vec<u8>, Vec<FrameRef>)>>);

impl BlockBuffers {
    /// Keeps the memory of a block.
    pub fn put(&self, block: FrameBlock) {
        if let BlockBytes::Read(bytes) = block.bytes {
            self.0.lock().push((bytes, block.frames));
        }
    }

    fn take(&self) -> (Vec<u8>, Vec<FrameRef>) {
        self.0.lock().pop().unwrap_or_default()
    }
}

/// Reads the frames of one file.
pub struct FrameStream<'a> {
    disk: &'a dyn Disk,
    buffers: &'a BlockBuffers,
    path: PathBuf,
    file: Box<dyn DiskFile>,
    len: u64,
    key: u128,
    at: u64,
    /// Length of the frame at `at`, as far as it is known.
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
            disk,
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
        loop {
            let left = usize::try_from(self.len.saturating_sub(self.at)).unwrap_or(usize::MAX);
            if left == 0 {
                return Ok(None);
            }
            // The header of the frame after the last whole one is read as well: it has its length.
            let want = BLOCK_BYTES.max(self.next_frame_len) + FRAME_HEADER_BYTES;
            bytes.resize(want.min(left), 0);
            self.file.read_at(&mut bytes, self.at).map_err(FileError::at(&self.path))?;
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
                return Ok(Some(FrameBlock { bytes: BlockBytes::Read(bytes), frames, offset }));
            }
            // A frame at the very end of a file may lack its padding.
            if bytes.len() == left || self.next_frame_len <= bytes.len() {
                return self.rest();
            }
        }
    }

    /// Handles bytes that are no frame: the unused end of the file, or damage.
    #[cold]
    fn rest(&mut self) -> Result<Option<FrameBlock>, FileError> {
        let (at, sequence) = (self.at, self.sequence);
        self.at = self.len;
        if zeros_to_end(&*self.file, at, self.len).map_err(FileError::at(&self.path))? {
            return Ok(None);
        }
        let bytes = self.disk.map(&self.path).map_err(FileError::at(&self.path))?;
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        let scan = scan_recycled(&bytes, self.key, at, sequence, self.stale_sequence);
        self.damage = scan.damage;
        if let (Some(first), Some(last)) = (scan.frames.first(), scan.frames.last()) {
            if self.first_sequence == 0 {
                self.first_sequence = first.header.sequence;
            }
            self.sequence = last.header.sequence;
            self.end = scan.end as u64;
        }
        Ok(Some(FrameBlock { bytes: BlockBytes::Mapped(bytes), frames: scan.frames, offset: 0 }))
    }
}

/// Replaces `frames` by the valid frames at the start of `bytes` with sequences above `sequence`; returns their
/// end.
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
