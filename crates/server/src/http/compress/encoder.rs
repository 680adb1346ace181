//! Compresses the blocks of one response on threads: gzip in parallel, zstd in order.
//!
//! Invariants: results are in the order of the blocks; a dropped receiver cancels a block that no thread has
//! begun; the content of a block is dropped before the memory of its result is reserved.
//! Not here: how many blocks are in flight (`blocks`, `answer`).

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::sync::Arc;

use axum::body::Bytes;
use chronolith_base::{BudgetExceeded, MemoryBudget};
use flate2::Crc;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::accept::Coding;
use super::{gzip, zstd};
use crate::http::body;
use crate::limits::COMPRESSION_INLINE_BYTES_MAX;
use crate::web::Web;

/// A compressed block.
#[derive(Debug)]
pub(super) struct Packed {
    pub(super) bytes: Bytes,
    /// Checksum of its content, for gzip.
    crc: Option<Crc>,
}

/// Reason why a block has no result.
#[derive(Debug, thiserror::Error)]
pub(super) enum PackError {
    /// The memory of the query is used up.
    #[error(transparent)]
    Memory(#[from] BudgetExceeded),
    /// The library has no memory for its state.
    #[error("compressing a block of the response: {0}")]
    Library(#[from] io::Error),
}

/// The result of a block. An error of the receiver means that its thread panicked or could not be started.
pub(super) type Receiver = oneshot::Receiver<Result<Packed, PackError>>;

/// Content of a block, and where its result goes.
struct Block {
    parts: Vec<Bytes>,
    bytes: usize,
    /// Budget of the result; `None` if its client takes it at once.
    budget: Option<MemoryBudget>,
    result: oneshot::Sender<Result<Packed, PackError>>,
}

/// State of a response that is compressed.
pub(super) struct Encoder {
    web: Arc<Web>,
    codec: Codec,
}

enum Codec {
    Gzip {
        /// End of the last block, with which the next one begins.
        dictionary: Vec<u8>,
        crc: Crc,
    },
    Zstd(Arc<Chain>),
}

impl Encoder {
    /// # Errors
    /// The library has no memory for its state.
    pub(super) fn new(web: Arc<Web>, coding: Coding) -> io::Result<Encoder> {
        let codec = match coding {
            Coding::Zstd => Codec::Zstd(Arc::new(Chain::new()?)),
            _ => Codec::Gzip { dictionary: Vec::new(), crc: Crc::new() },
        };
        Ok(Encoder { web, codec })
    }

    /// Header of the format, before the first block.
    pub(super) fn header(&self) -> &'static [u8] {
        match self.codec {
            Codec::Gzip { .. } => &gzip::HEADER,
            Codec::Zstd(_) => &[],
        }
    }

    /// Compresses the next block: here if it is short and no other one is in flight, else on a thread.
    pub(super) fn start(
        &mut self,
        parts: Vec<Bytes>,
        in_flight_count: usize,
        budget: Option<MemoryBudget>,
    ) -> Receiver {
        let bytes = parts.iter().map(Bytes::len).sum();
        let is_inline = bytes <= COMPRESSION_INLINE_BYTES_MAX && in_flight_count == 0;
        let (result, receiver) = oneshot::channel();
        let web = self.web.clone();
        let job: Box<dyn FnOnce() + Send> = match &mut self.codec {
            Codec::Gzip { dictionary, .. } => {
                let before = mem::replace(dictionary, gzip::dictionary(&parts));
                let block = Block { parts, bytes, budget, result };
                Box::new(move || block.compress(&web, |parts| Ok(gzip::block(&before, parts))))
            }
            Codec::Zstd(chain) => {
                let chain = chain.clone();
                if !chain.push(Block { parts, bytes, budget, result }) {
                    return receiver;
                }
                Box::new(move || chain.drain(&web))
            }
        };
        if is_inline {
            job();
        } else if self.web.service.admission.compressors.start(job).is_err()
            && let Codec::Zstd(chain) = &self.codec
        {
            chain.abandon();
        }
        receiver
    }

    /// Takes note of a block, in order.
    pub(super) fn take(&mut self, packed: Packed) -> Bytes {
        if let (Codec::Gzip { crc, .. }, Some(of_block)) = (&mut self.codec, &packed.crc) {
            crc.combine(of_block);
        }
        packed.bytes
    }

    /// Trailer of the format, after the last block has been taken.
    pub(super) fn end(&mut self) -> io::Result<Vec<u8>> {
        match &mut self.codec {
            Codec::Gzip { dictionary, crc } => {
                dictionary.clear();
                Ok(gzip::end(crc))
            }
            Codec::Zstd(chain) => chain.end(),
        }
    }
}

impl Block {
    /// Compresses the block, unless its client has disconnected.
    fn compress(self, web: &Web, compress: impl FnOnce(&[Bytes]) -> io::Result<(Vec<u8>, Option<Crc>)>) {
        let Block { parts, bytes, budget, result } = self;
        if result.is_closed() {
            return;
        }
        let length =
            |packed: &io::Result<(Vec<u8>, Option<Crc>)>| packed.as_ref().map_or(0, |(bytes, _)| bytes.len());
        let packed = web.metrics.compression.measure(bytes, || compress(&parts), length);
        drop(parts);
        let packed = packed.map_err(PackError::from).and_then(|(bytes, crc)| {
            let bytes = match budget {
                None => Bytes::from(bytes),
                Some(budget) => {
                    let held = budget.reserve(bytes.capacity() as u64)?;
                    body::held(bytes, held)
                }
            };
            Ok(Packed { bytes, crc })
        });
        drop(result.send(packed));
    }
}

/// Blocks of a zstd frame that wait, and the thread that compresses them one after the other.
struct Chain {
    queue: Mutex<Queue>,
    /// `None` after the end of the frame.
    frame: Mutex<Option<zstd::Frame>>,
}

#[derive(Default)]
struct Queue {
    blocks: VecDeque<Block>,
    is_drained: bool,
}

impl Chain {
    fn new() -> io::Result<Chain> {
        Ok(Chain { queue: Mutex::default(), frame: Mutex::new(Some(zstd::Frame::new()?)) })
    }

    /// Adds a block. Returns true if the caller has to start [`Chain::drain`].
    fn push(&self, block: Block) -> bool {
        let mut queue = self.queue.lock();
        queue.blocks.push_back(block);
        !mem::replace(&mut queue.is_drained, true)
    }

    /// Compresses blocks until none waits.
    fn drain(&self, web: &Web) {
        let guard = Draining(self);
        while let Some(block) = guard.next() {
            let mut frame = self.frame.lock();
            let Some(frame) = frame.as_mut() else { return };
            block.compress(web, |parts| frame.block(parts).map(|bytes| (bytes, None)));
        }
    }

    /// Drops the blocks that wait, so that their receivers do not wait forever.
    fn abandon(&self) {
        *self.queue.lock() = Queue::default();
    }

    fn end(&self) -> io::Result<Vec<u8>> {
        self.frame.lock().take().map_or(Ok(Vec::new()), zstd::Frame::end)
    }
}

/// A thread within [`Chain::drain`], which may panic.
struct Draining<'a>(&'a Chain);

impl Draining<'_> {
    fn next(&self) -> Option<Block> {
        let mut queue = self.0.queue.lock();
        let block = queue.blocks.pop_front();
        queue.is_drained = block.is_some();
        block
    }
}

impl Drop for Draining<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.abandon();
        }
    }
}
