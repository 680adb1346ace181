//! A gzip member (RFC 1952), whole or in blocks that are compressed independently of each other.
//!
//! Invariants: a block ends on a byte boundary (sync flush), so blocks follow one another in one deflate
//! stream; a block but for the first is compressed with the last [`WINDOW_BYTES`] in front of it as the
//! dictionary, so a matrix keeps its matches between rows. The checksum of the member is combined from the
//! checksums of the blocks.

use std::cell::RefCell;

use axum::body::Bytes;
use flate2::{Compress, Compression, Crc, FlushCompress, Status};

/// Window of deflate: how far back a match reaches.
const WINDOW_BYTES: usize = 32 << 10;
/// No name, no time, unknown system.
pub(super) const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
/// An empty last block of fixed codes.
const LAST_BLOCK: [u8; 2] = [3, 0];
/// Room that is made for output at once.
const OUTPUT_STEP_BYTES: usize = 32 << 10;
// PERF: ns per byte and size of a matrix of 2.4 MB: level 2 2.8, 434 kB; 3 4.3, 408 kB; 4 6.0, 382 kB;
// 6 13.3, 360 kB; level 6 of miniz_oxide 34.4, 342 kB. Prometheus sends 382 kB at 4.5. Level 3 is the lowest
// whose answers are at most 1.1 times as large as Prometheus's (libdeflate, in C: 3.4 at 409 kB).
//   cargo xtask bench graph-answers
const LEVEL: u32 = 3;

/// State of a compressor, about 300 kB, used again on its thread.
struct Deflater {
    compress: Compress,
    /// Output of a block until its size is known.
    out: Vec<u8>,
}

thread_local! {
    static DEFLATER: RefCell<Deflater> = RefCell::new(Deflater {
        compress: Compress::new(Compression::new(LEVEL), false),
        out: Vec::new(),
    });
}

/// Compresses all of `parts` to one member.
pub(super) fn member(parts: &[Bytes]) -> Vec<u8> {
    DEFLATER.with_borrow_mut(|deflater| {
        deflater.compress.reset();
        deflater.out.clear();
        deflater.out.extend_from_slice(&HEADER);
        let crc = deflater.put(parts, FlushCompress::Finish);
        deflater.out.extend_from_slice(&trailer(&crc));
        deflater.out.as_slice().to_vec()
    })
}

/// Compresses a block with `dictionary`, the end of the block in front of it, and returns it with the
/// checksum of its content.
pub(super) fn block(dictionary: &[u8], parts: &[Bytes]) -> (Vec<u8>, Option<Crc>) {
    DEFLATER.with_borrow_mut(|deflater| {
        deflater.compress.reset();
        deflater.out.clear();
        if !dictionary.is_empty() {
            let set = deflater.compress.set_dictionary(dictionary);
            assert!(set.is_ok(), "a compressor without input takes a dictionary");
        }
        let crc = deflater.put(parts, FlushCompress::Sync);
        (deflater.out.as_slice().to_vec(), Some(crc))
    })
}

/// The end of a block, which the next one may refer to.
pub(super) fn dictionary(parts: &[Bytes]) -> Vec<u8> {
    let bytes: usize = parts.iter().map(Bytes::len).sum();
    let mut skipped = bytes.saturating_sub(WINDOW_BYTES);
    let mut dictionary = Vec::with_capacity(bytes - skipped);
    for part in parts {
        let from = skipped.min(part.len());
        dictionary.extend_from_slice(&part[from..]);
        skipped -= from;
    }
    dictionary
}

/// End of a member in blocks; `crc` is the checksum of its whole content.
pub(super) fn end(crc: &Crc) -> Vec<u8> {
    [LAST_BLOCK.as_slice(), &trailer(crc)].concat()
}

/// Checksum and length modulo 2^32.
fn trailer(crc: &Crc) -> [u8; 8] {
    let mut out = [0; 8];
    out[..4].copy_from_slice(&crc.sum().to_le_bytes());
    out[4..].copy_from_slice(&crc.amount().to_le_bytes());
    out
}

impl Deflater {
    /// Compresses `parts`, the last of them with `flush`.
    fn put(&mut self, parts: &[Bytes], flush: FlushCompress) -> Crc {
        let mut crc = Crc::new();
        let no_part = [Bytes::new()];
        let parts = if parts.is_empty() { &no_part } else { parts };
        for (idx, part) in parts.iter().enumerate() {
            crc.update(part);
            let is_last = idx + 1 == parts.len();
            self.put_part(part, if is_last { flush } else { FlushCompress::None });
        }
        crc
    }

    fn put_part(&mut self, mut part: &[u8], flush: FlushCompress) {
        loop {
            self.out.reserve(OUTPUT_STEP_BYTES);
            let room = self.out.capacity();
            let read = self.compress.total_in();
            let status = self.compress.compress_vec(part, &mut self.out, flush);
            // The only error is one of the order of calls.
            let status = status.unwrap_or_else(|error| unreachable!("deflate: {error}"));
            part = &part[(self.compress.total_in() - read) as usize..];
            // Output that fills its room may go on.
            if status == Status::StreamEnd || (part.is_empty() && self.out.len() < room) {
                return;
            }
        }
    }
}
