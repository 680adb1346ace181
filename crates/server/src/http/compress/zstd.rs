//! A zstd frame (RFC 8878), whole or in blocks.
//!
//! Invariants: a response is one frame, since some clients stop at the end of the first; a block is flushed,
//! so that its client can decode it when it arrives. Blocks of one frame are compressed in order: a block
//! needs the offsets and tables of the one in front of it.
//! Not here: threads (`encoder`).

use std::cell::RefCell;
use std::io::{self, Write as _};

use axum::body::Bytes;
use zstd::bulk::Compressor;
use zstd::stream::write::Encoder;
use zstd::zstd_safe::CParameter;

// PERF: ns per byte and size of a matrix of rates of 11.5 MB: level 1 2.4, 3.05 MB; 2 2.7, 3.00 MB; 3 4.6,
// 3.25 MB; -1 2.1, 4.71 MB; gzip level 3 7.4, 3.39 MB (one core of a loaded machine). Brotli level 1 6.8,
// 3.39 MB; 4 29, 2.95 MB.
//   cargo xtask bench graph-answers
const LEVEL: i32 = 1;

/// A frame that is written block by block. Its state is about 1 MB.
pub(super) struct Frame(Encoder<'static, Vec<u8>>);

impl Frame {
    pub(super) fn new() -> io::Result<Frame> {
        let mut encoder = Encoder::new(Vec::new(), LEVEL)?;
        encoder.include_checksum(true)?;
        Ok(Frame(encoder))
    }

    /// Compresses the next block of the frame.
    pub(super) fn block(&mut self, parts: &[Bytes]) -> io::Result<Vec<u8>> {
        for part in parts {
            self.0.write_all(part)?;
        }
        self.0.flush()?;
        let out = self.0.get_mut();
        let bytes = out.as_slice().to_vec();
        out.clear();
        Ok(bytes)
    }

    /// The end of the frame.
    pub(super) fn end(self) -> io::Result<Vec<u8>> {
        self.0.finish()
    }
}

thread_local! {
    static WHOLE: RefCell<Option<Compressor<'static>>> = const { RefCell::new(None) };
}

/// Compresses all of `parts` to one frame.
pub(super) fn frame(parts: &[Bytes]) -> io::Result<Vec<u8>> {
    WHOLE.with_borrow_mut(|kept| {
        let compressor = match kept {
            Some(compressor) => compressor,
            None => {
                let mut compressor = Compressor::new(LEVEL)?;
                compressor.set_parameter(CParameter::ChecksumFlag(true))?;
                kept.insert(compressor)
            }
        };
        match parts {
            [part] => compressor.compress(part),
            _ => compressor.compress(&parts.concat()),
        }
    })
}
