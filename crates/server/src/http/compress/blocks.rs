//! A body that is compressed in blocks while it is sent, several blocks ahead of its client.
//!
//! Invariants: blocks are sent in order; at most [`COMPRESSION_BLOCKS_AHEAD_MAX`] of a body are compressed or
//! wait for the client; an error ends the response without the end of its gzip member or zstd frame, so that
//! no client takes a part for the whole. A body that pauses is flushed: its client sees what there is.
//! Not here: threads (`encoder`), answers that are compressed while they are printed (`answer`).

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::Frame;
use tokio::time::Instant;

use super::encoder::{Encoder, Receiver};
use crate::limits::{COMPRESSION_BLOCK_BYTES, COMPRESSION_BLOCKS_AHEAD_MAX};

/// Progress of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// Nothing is sent: the header goes with the first bytes.
    Start,
    Blocks,
    /// The response is complete, or the body has failed.
    End,
}

/// The body of a compressed response.
pub(super) struct PackedBody {
    encoder: Encoder,
    input: Body,
    is_input_ended: bool,
    /// Content of the next block.
    parts: Vec<Bytes>,
    parts_bytes: usize,
    /// Compressed blocks that are sent first.
    done: VecDeque<Bytes>,
    /// Dropped receivers cancel the blocks that no thread has begun.
    in_flight: VecDeque<Receiver>,
    progress: Progress,
    /// Time after which the client reads its response too slowly.
    deadline: Option<Instant>,
}

impl PackedBody {
    /// A response that reads `input` as fast as its client reads the response.
    pub(super) fn new(encoder: Encoder, input: Body) -> PackedBody {
        PackedBody {
            encoder,
            input,
            is_input_ended: false,
            parts: Vec::new(),
            parts_bytes: 0,
            done: VecDeque::new(),
            in_flight: VecDeque::new(),
            progress: Progress::Start,
            deadline: None,
        }
    }

    /// A response of which all blocks have been started.
    pub(super) fn from_blocks(
        encoder: Encoder,
        done: VecDeque<Bytes>,
        in_flight: VecDeque<Receiver>,
        deadline: Instant,
    ) -> PackedBody {
        let body = PackedBody::new(encoder, Body::empty());
        PackedBody { is_input_ended: true, done, in_flight, deadline: Some(deadline), ..body }
    }

    /// Reads the input until enough blocks are in flight, or until it pauses or ends.
    fn fill(&mut self, cx: &mut Context<'_>) -> Result<(), axum::Error> {
        while self.in_flight.len() < COMPRESSION_BLOCKS_AHEAD_MAX {
            if self.parts_bytes >= COMPRESSION_BLOCK_BYTES {
                self.start_block();
                continue;
            }
            if self.is_input_ended {
                if self.parts_bytes > 0 {
                    self.start_block();
                }
                return Ok(());
            }
            match Pin::new(&mut self.input).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    if let Ok(part) = frame.into_data() {
                        self.parts_bytes += part.len();
                        self.parts.push(part);
                    }
                }
                Poll::Ready(Some(Err(error))) => return Err(error),
                Poll::Ready(None) => self.is_input_ended = true,
                Poll::Pending => {
                    if self.in_flight.is_empty() && self.parts_bytes > 0 {
                        self.start_block();
                    }
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn start_block(&mut self) {
        let parts = self.take_block();
        let receiver = self.encoder.start(parts, self.in_flight.len(), None);
        self.in_flight.push_back(receiver);
    }

    /// The parts of the next block, the last of them cut at its end.
    fn take_block(&mut self) -> Vec<Bytes> {
        let mut parts = mem::take(&mut self.parts);
        let surplus = self.parts_bytes.saturating_sub(COMPRESSION_BLOCK_BYTES);
        self.parts_bytes = surplus;
        if surplus > 0
            && let Some(last) = parts.last_mut()
        {
            self.parts.push(last.split_off(last.len() - surplus));
        }
        parts
    }

    fn frame(&mut self, bytes: Bytes, next: Progress) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let is_first = mem::replace(&mut self.progress, next) == Progress::Start;
        let header = if is_first { self.encoder.header() } else { &[] };
        let bytes = if header.is_empty() { bytes } else { [header, &bytes].concat().into() };
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }

    fn fail(&mut self, error: impl Into<axum::BoxError>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        self.progress = Progress::End;
        self.done.clear();
        self.in_flight.clear();
        self.parts.clear();
        Poll::Ready(Some(Err(io::Error::other(error))))
    }
}

impl HttpBody for PackedBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if self.progress == Progress::End {
            return Poll::Ready(None);
        }
        if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return self.fail("the client reads its response too slowly");
        }
        if let Some(bytes) = self.done.pop_front() {
            return self.frame(bytes, Progress::Blocks);
        }
        if let Err(error) = self.fill(cx) {
            return self.fail(error);
        }
        if let Some(first) = self.in_flight.front_mut() {
            return match ready!(Pin::new(first).poll(cx)) {
                Ok(Ok(packed)) => {
                    self.in_flight.pop_front();
                    let bytes = self.encoder.take(packed);
                    self.frame(bytes, Progress::Blocks)
                }
                Ok(Err(error)) => self.fail(error),
                Err(_) => self.fail("a block of the response was not compressed, see the server's log"),
            };
        }
        if !self.is_input_ended {
            return Poll::Pending;
        }
        match self.encoder.end() {
            Ok(end) => self.frame(end.into(), Progress::End),
            Err(error) => self.fail(error),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.progress == Progress::End
    }
}
