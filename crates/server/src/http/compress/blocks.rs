//! A body that is compressed to one gzip member in blocks while it is sent, several blocks at once.
//!
//! Invariants: blocks are sent in order; at most [`GZIP_BLOCKS_AHEAD_MAX`] are compressed or wait for the
//! client; an error of the body ends the response without the end of the member, so that no client takes a
//! part for the whole. A body that pauses is flushed: its client sees what there is.

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes, HttpBody};
use flate2::Crc;
use hyper::body::Frame;
use tokio::sync::oneshot;

use super::gzip::{self, Block};
use crate::app::App;
use crate::limits::{GZIP_BLOCK_BYTES, GZIP_BLOCKS_AHEAD_MAX, GZIP_INLINE_BYTES_MAX};

/// Progress of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// Nothing is sent: the header of the member goes with what is sent first.
    Start,
    Blocks,
    /// The member is complete, or the body has failed.
    End,
}

/// The body of a compressed response.
pub(super) struct GzipBody {
    app: Arc<App>,
    input: Body,
    is_input_ended: bool,
    /// Content of the next block.
    parts: Vec<Bytes>,
    parts_bytes: usize,
    /// Content of the last block that was given to a thread: the dictionary of the next one.
    before: Vec<Bytes>,
    /// Dropped receivers cancel the blocks that no thread has begun.
    in_flight: VecDeque<oneshot::Receiver<Block>>,
    progress: Progress,
    crc: Crc,
}

impl GzipBody {
    pub(super) fn new(app: Arc<App>, input: Body) -> GzipBody {
        GzipBody {
            app,
            input,
            is_input_ended: false,
            parts: Vec::new(),
            parts_bytes: 0,
            before: Vec::new(),
            in_flight: VecDeque::new(),
            progress: Progress::Start,
            crc: Crc::new(),
        }
    }

    /// Reads the input until enough blocks are in flight, or until it pauses or ends.
    fn fill(&mut self, cx: &mut Context<'_>) -> Result<(), axum::Error> {
        while self.in_flight.len() < GZIP_BLOCKS_AHEAD_MAX {
            if self.parts_bytes >= GZIP_BLOCK_BYTES {
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

    /// Compresses the next block: here if it is short and the only one, else on a thread.
    fn start_block(&mut self) {
        let parts = self.take_block();
        let bytes = parts.iter().map(Bytes::len).sum::<usize>();
        let before = mem::replace(&mut self.before, parts.clone());
        let (send, block) = oneshot::channel();
        if bytes <= GZIP_INLINE_BYTES_MAX && self.in_flight.is_empty() {
            let _ = send.send(compress(&self.app, &before, &parts, bytes));
        } else {
            let app = self.app.clone();
            let job = move || {
                // The client has disconnected.
                if !send.is_closed() {
                    let _ = send.send(compress(&app, &before, &parts, bytes));
                }
            };
            // Without a thread the receiver reports that its sender is gone.
            drop(self.app.admission.compressors.start(Box::new(job)));
        }
        self.in_flight.push_back(block);
    }

    /// The parts of the next block, the last of them cut at its end.
    fn take_block(&mut self) -> Vec<Bytes> {
        let mut parts = mem::take(&mut self.parts);
        let surplus = self.parts_bytes.saturating_sub(GZIP_BLOCK_BYTES);
        self.parts_bytes = surplus;
        if surplus > 0
            && let Some(last) = parts.last_mut()
        {
            self.parts.push(last.split_off(last.len() - surplus));
        }
        parts
    }

    fn frame(&mut self, bytes: Vec<u8>, next: Progress) -> Frame<Bytes> {
        let is_first = mem::replace(&mut self.progress, next) == Progress::Start;
        Frame::data(if is_first {
            Bytes::from([&gzip::HEADER, bytes.as_slice()].concat())
        } else {
            bytes.into()
        })
    }

    fn fail(&mut self, error: impl Into<axum::BoxError>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        self.progress = Progress::End;
        self.in_flight.clear();
        self.parts.clear();
        self.before.clear();
        Poll::Ready(Some(Err(io::Error::other(error))))
    }
}

impl HttpBody for GzipBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if self.progress == Progress::End {
            return Poll::Ready(None);
        }
        if let Err(error) = self.fill(cx) {
            return self.fail(error);
        }
        if let Some(first) = self.in_flight.front_mut() {
            return match ready!(Pin::new(first).poll(cx)) {
                Ok(block) => {
                    self.in_flight.pop_front();
                    self.crc.combine(&block.crc);
                    Poll::Ready(Some(Ok(self.frame(block.bytes, Progress::Blocks))))
                }
                Err(_) => self.fail("a block of the response was not compressed, see the server's log"),
            };
        }
        if !self.is_input_ended {
            return Poll::Pending;
        }
        self.before.clear();
        let end = gzip::end(&self.crc);
        Poll::Ready(Some(Ok(self.frame(end, Progress::End))))
    }

    fn is_end_stream(&self) -> bool {
        self.progress == Progress::End
    }
}

fn compress(app: &App, before: &[Bytes], parts: &[Bytes], bytes: usize) -> Block {
    app.metrics.compression.measure(bytes, || gzip::block(before, parts), |block| block.bytes.len())
}
