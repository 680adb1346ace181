//! Points of one connection: its bytes are decoded by the protocol of the listener.
//!
//! Invariants: after [`PointStream::append`] the buffer has only the start of an unfinished line, or nothing;
//! a frame that is too long ends the connection, as its end cannot be found.
//! Not here: reading of the socket (`serve::carbon`).

use std::sync::Arc;

use chronolith_ingest::carbon::{FrameBuffer, InputEnd, LineDecoder, PickleDecoder, PointWriter};
use chronolith_tsdb::{Applied, Tsdb};

use super::listener::Listener;
use crate::activity::rejects::WriteSender;
use crate::carbon::append::{PointTarget, append_points};
use crate::options::CarbonProtocol;

pub(super) struct PointStream {
    listener: Arc<Listener>,
    sender: Arc<WriteSender>,
    decoder: Decoder,
    /// Set once the bytes are not of the protocol: no point can be found after them.
    failure: Option<String>,
}

enum Decoder {
    Lines(LineDecoder),
    Pickle(Box<PickleStream>),
}

#[derive(Default)]
struct PickleStream {
    frames: FrameBuffer,
    decoder: PickleDecoder,
}

impl PointStream {
    pub(super) fn new(listener: Arc<Listener>, sender: Arc<WriteSender>) -> PointStream {
        let decoder = match listener.options.protocol {
            CarbonProtocol::Plaintext => Decoder::Lines(LineDecoder::new()),
            CarbonProtocol::Pickle => Decoder::Pickle(Box::default()),
        };
        PointStream { listener, sender, decoder, failure: None }
    }

    /// Appends the points of `buffer`, to its end if `is_end`, and removes what was read. They are visible
    /// and not durable yet. Blocks the thread.
    ///
    /// # Errors
    /// The text for the log: the store refuses points.
    pub(super) fn append(
        &mut self,
        store: &Tsdb,
        buffer: &mut Vec<u8>,
        is_end: bool,
    ) -> Result<Option<Applied>, String> {
        let Listener { app, options, input } = &*self.listener;
        let to = PointTarget { tenant: &options.tenant, prefix: &options.prefix, sender: &self.sender };
        match &mut self.decoder {
            Decoder::Lines(lines) => {
                let end = if is_end { InputEnd::Closed } else { InputEnd::Open };
                let mut read_bytes = 0;
                let appended = append_points(app, input, store, to, |points| {
                    read_bytes = lines.decode(buffer, end, points);
                });
                buffer.drain(..read_bytes);
                Ok(appended?.applied)
            }
            Decoder::Pickle(pickle) => {
                pickle.frames.push(buffer);
                buffer.clear();
                let appended =
                    append_points(app, input, store, to, |points| self.failure = pickle.decode(points))?;
                Ok(appended.applied)
            }
        }
    }

    /// Returns the reason why the connection cannot go on, if there is one.
    pub(super) fn take_failure(&mut self) -> Option<String> {
        self.failure.take()
    }
}

impl PickleStream {
    /// Decodes the complete frames. Returns the text for the log if the stream cannot go on.
    fn decode(&mut self, points: &mut PointWriter<'_>) -> Option<String> {
        loop {
            match self.frames.next_frame() {
                // A frame that is no pickle is counted; the next one may be.
                Ok(Some(frame)) => drop(self.decoder.decode(frame, points)),
                Ok(None) => return None,
                Err(error) => return Some(error.to_string()),
            }
        }
    }
}
