//! Reading the frames of a file block by block, so that a log may be larger than memory.
//!
//! Holds: a block has whole frames whose checksums fit. Behind the first place that is no frame the rest of the
//! file is mapped and searched as `format::wal` does.

use std::ops::Deref;
use std::path::{Path, PathBuf};

use chronolith_base::crc::crc32c;
use chronolith_base::{Disk, DiskFile, Mapped};
use chronolith_format::wal::{Damage, FRAME_HEADER_BYTES, FrameHeader, FrameRef, scan_recycled};

use super::files::zeros_to_end;
use crate::options::HeadError;

/// Bytes that are read at once; a longer frame is read alone.
const BLOCK_BYTES: usize = 1 << 20;

/// Bytes of a block: read, or mapped for the rest of a damaged file.
pub(super) enum BlockBytes {
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

/// Some frames of a file.
pub(super) struct Block {
    pub(super) bytes: BlockBytes,
    /// Their payloads are ranges of `bytes`.
    pub(super) frames: Vec<FrameRef>,
    /// Where `bytes` start in the file.
    pub(super) offset: u64,
}

impl Block {
    pub(super) fn payload(&self, frame: &FrameRef) -> &[u8] {
        self.bytes.get(frame.payload.clone()).unwrap_or(&[])
    }
}

/// See the module.
pub(super) struct FrameStream<'a> {
    disk: &'a dyn Disk,
    path: PathBuf,
    file: Box<dyn DiskFile>,
    len: u64,
    key: u128,
    at: u64,
    /// Behind the last good frame.
    pub(super) end: u64,
    pub(super) first_sequence: u64,
    /// Frames up to this one are not taken: those before, and those of an earlier use of the file.
    sequence: u64,
    stale_sequence: u64,
    pub(super) damage: Vec<Damage>,
}

impl<'a> FrameStream<'a> {
    /// The frames of `path` behind `header_len` bytes.
    pub(super) fn open(
        disk: &'a dyn Disk,
        path: &Path,
        key: u128,
        header_len: usize,
    ) -> Result<FrameStream<'a>, HeadError> {
        FrameStream::open_recycled(disk, path, key, header_len, 0)
    }

    /// As [`FrameStream::open`], of a file in which frames up to `stale_sequence` are of an earlier use.
    pub(super) fn open_recycled(
        disk: &'a dyn Disk,
        path: &Path,
        key: u128,
        header_len: usize,
        stale_sequence: u64,
    ) -> Result<FrameStream<'a>, HeadError> {
        let file = disk.open(path).map_err(HeadError::io(path))?;
        let len = file.len().map_err(HeadError::io(path))?;
        let at = header_len as u64;
        Ok(FrameStream {
            disk,
            path: path.to_owned(),
            file,
            len,
            key,
            at,
            end: at,
            first_sequence: 0,
            sequence: stale_sequence,
            stale_sequence,
            damage: Vec::new(),
        })
    }

    /// Sequence of the last frame so far; 0 if there was none.
    pub(super) fn last_sequence(&self) -> u64 {
        if self.first_sequence == 0 { 0 } else { self.sequence }
    }

    /// The next frames; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Block>, HeadError> {
        let mut want = BLOCK_BYTES;
        loop {
            let left = usize::try_from(self.len.saturating_sub(self.at)).unwrap_or(usize::MAX);
            if left == 0 {
                return Ok(None);
            }
            let mut bytes = vec![0; want.min(left)];
            self.file.read_at(&mut bytes, self.at).map_err(HeadError::io(&self.path))?;
            let (frames, end) = frames_of(&bytes, self.key, self.sequence);
            if let (Some(first), Some(last)) = (frames.first(), frames.last()) {
                if self.first_sequence == 0 {
                    self.first_sequence = first.header.sequence;
                }
                self.sequence = last.header.sequence;
                let offset = self.at;
                self.at += end as u64;
                self.end = self.at.min(self.len);
                return Ok(Some(Block { bytes: BlockBytes::Read(bytes), frames, offset }));
            }
            match FrameHeader::decode(&bytes, self.key).map(|h| h.frame_len()) {
                // A frame at the very end of a file may lack its padding.
                Some(frame_len) if bytes.len() < left && bytes.len() < frame_len => want = frame_len,
                _ => return self.rest(),
            }
        }
    }

    /// What stands here is no frame: the unused end of the file, or damage.
    #[cold]
    fn rest(&mut self) -> Result<Option<Block>, HeadError> {
        let (at, sequence) = (self.at, self.sequence);
        self.at = self.len;
        if zeros_to_end(&*self.file, at, self.len).map_err(HeadError::io(&self.path))? {
            return Ok(None);
        }
        let bytes = self.disk.map(&self.path).map_err(HeadError::io(&self.path))?;
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
        Ok(Some(Block { bytes: BlockBytes::Mapped(bytes), frames: scan.frames, offset: 0 }))
    }
}

/// The good frames at the start of `bytes` behind `sequence`, and where they end.
fn frames_of(bytes: &[u8], key: u128, mut sequence: u64) -> (Vec<FrameRef>, usize) {
    let (mut frames, mut at) = (Vec::new(), 0);
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
    (frames, at)
}
