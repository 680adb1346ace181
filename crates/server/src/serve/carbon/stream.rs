//! Points of one connection: its bytes are decoded by the protocol of the listener.
//!
//! Invariants: after [`PointStream::append`] without more to do, the buffer has only the start of an
//! unfinished line, or nothing; a frame that is too long and damaged gzip end the connection, as no point
//! can be found after them.
//! Not here: reading of the socket (`serve::carbon`), gzip (`gzip`).

use std::sync::Arc;

use chronolith_ingest::carbon::{
    FrameBuffer, InputEnd, LINE_BYTES_MAX, LineDecoder, PickleDecoder, PointWriter, RefusedReason,
};
use chronolith_service::activity::rejects::WriteSender;
use chronolith_service::carbon::append::{self, NotStored, PointTarget, append_points};
use chronolith_service::options::CarbonProtocol;
use chronolith_service::write::destination::{Applied, Destination};

use super::gzip::{self, GzipStream};
use super::listener::Listener;

/// Decompressed bytes that are decoded together, at most.
const TEXT_BYTES_MAX: usize = (512 << 10) + LINE_BYTES_MAX;
const _: () = assert!(TEXT_BYTES_MAX <= chronolith_ingest::carbon::INPUT_BYTES_MAX);

pub(super) struct PointStream {
    listener: Arc<Listener>,
    sender: Arc<WriteSender>,
    decoder: Decoder,
    /// Set once the bytes are not of the protocol: no point can be found after them.
    failure: Option<String>,
}

enum Decoder {
    /// State of a plaintext listener before the bytes that tell lines from gzip.
    Start,
    Lines(LineDecoder),
    GzippedLines(Box<GzippedLines>),
    Pickle(Box<PickleStream>),
}

/// Outcome of [`PointStream::append`].
#[derive(Default)]
pub(super) struct Appended {
    /// `None` if no point was appended.
    pub(super) applied: Option<Applied>,
    pub(super) point_count: u64,
    /// Bytes of lines or frames that were read, decompressed ones if the stream is gzip.
    pub(super) bytes: usize,
    /// Set if the next call has points without further bytes of the connection.
    pub(super) has_more: bool,
}

impl Appended {
    /// All points of `bytes` bytes.
    fn new(appended: append::Appended, bytes: usize) -> Appended {
        let append::Appended { applied, point_count, .. } = appended;
        Appended { applied, point_count, bytes, has_more: false }
    }
}

struct GzippedLines {
    gzip: GzipStream,
    lines: LineDecoder,
    /// Decompressed bytes that are not decoded yet.
    text: Vec<u8>,
}

#[derive(Default)]
struct PickleStream {
    frames: FrameBuffer,
    decoder: PickleDecoder,
}

impl PointStream {
    pub(super) fn new(listener: Arc<Listener>, sender: Arc<WriteSender>) -> PointStream {
        let decoder = match listener.options.protocol {
            CarbonProtocol::Plaintext => Decoder::Start,
            CarbonProtocol::Pickle => Decoder::Pickle(Box::default()),
        };
        PointStream { listener, sender, decoder, failure: None }
    }

    /// Appends the points of `buffer`, to its end if `is_end`, and removes the bytes that were read. The
    /// points are visible and not durable yet. Blocks the thread.
    ///
    /// # Errors
    /// [`NotStored`]: the store refuses points.
    pub(super) fn append(
        &mut self,
        store: &Destination,
        buffer: &mut Vec<u8>,
        is_end: bool,
    ) -> Result<Appended, NotStored> {
        if self.failure.is_some() {
            buffer.clear();
            return Ok(Appended::default());
        }
        self.choose_decoder(buffer, is_end);
        let Listener { web, options, input, identity } = &*self.listener;
        let to = PointTarget { input, identity, prefix: &options.prefix, sender: &self.sender };
        let end = if is_end { InputEnd::Closed } else { InputEnd::Open };
        let bytes_before = buffer.len();
        match &mut self.decoder {
            Decoder::Start => Ok(Appended::default()),
            Decoder::Lines(lines) => {
                let mut read_bytes = 0;
                let appended = append_points(&web.service.writes, &web.service.carbon, store, to, |points| {
                    read_bytes = lines.decode(buffer, end, points);
                });
                buffer.drain(..read_bytes);
                Ok(Appended::new(appended?, read_bytes))
            }
            Decoder::GzippedLines(lines) => {
                let step = lines.decompress(buffer, end);
                buffer.drain(..step.read_bytes);
                let appended = append_points(&web.service.writes, &web.service.carbon, store, to, |points| {
                    lines.decode(&step, points)
                });
                self.failure = step.damage;
                Ok(Appended { has_more: step.has_more, ..Appended::new(appended?, step.bytes) })
            }
            Decoder::Pickle(pickle) => {
                pickle.frames.push(buffer);
                buffer.clear();
                let appended = append_points(&web.service.writes, &web.service.carbon, store, to, |points| {
                    self.failure = pickle.decode(points, end);
                });
                Ok(Appended::new(appended?, bytes_before))
            }
        }
    }

    /// Tells lines from gzip by the first bytes of a plaintext connection, once they are there.
    fn choose_decoder(&mut self, buffer: &[u8], is_end: bool) {
        let is_undecided = gzip::MAGIC.starts_with(buffer) && buffer.len() < gzip::MAGIC.len() && !is_end;
        if is_undecided || !matches!(self.decoder, Decoder::Start) {
            return;
        }
        self.decoder = if buffer.starts_with(&gzip::MAGIC) {
            self.listener.input.gzip_connections.add(1);
            Decoder::GzippedLines(Box::new(GzippedLines::new()))
        } else {
            Decoder::Lines(LineDecoder::new())
        };
    }

    /// Returns the reason why the connection cannot go on, if there is one.
    pub(super) fn take_failure(&mut self) -> Option<String> {
        self.failure.take()
    }
}

/// Outcome of one step of decompression, whose lines are not decoded yet.
struct TextStep {
    read_bytes: usize,
    /// Number of decompressed bytes.
    bytes: usize,
    has_more: bool,
    /// Set to [`InputEnd::Closed`] if the last line needs no newline.
    text_end: InputEnd,
    /// The text for the log.
    damage: Option<String>,
}

impl GzippedLines {
    fn new() -> GzippedLines {
        GzippedLines { gzip: GzipStream::new(), lines: LineDecoder::new(), text: Vec::new() }
    }

    fn decompress(&mut self, input: &[u8], end: InputEnd) -> TextStep {
        let bytes_before = self.text.len();
        self.text.reserve_exact(TEXT_BYTES_MAX - bytes_before);
        let step = self.gzip.decompress(input, &mut self.text);
        let is_end = end == InputEnd::Closed && !step.has_more;
        let damage = step.damage.or_else(|| self.gzip.end().filter(|_| is_end));
        TextStep {
            read_bytes: step.read_bytes,
            bytes: self.text.len() - bytes_before,
            has_more: step.has_more,
            // A line before damage may be cut.
            text_end: if is_end && damage.is_none() { InputEnd::Closed } else { InputEnd::Open },
            damage: damage.map(|damage| damage.to_string()),
        }
    }

    fn decode(&mut self, step: &TextStep, points: &mut PointWriter<'_>) {
        let read_bytes = self.lines.decode(&self.text, step.text_end, points);
        self.text.drain(..read_bytes);
        if !step.has_more {
            // Idle connections keep no large buffer.
            self.text.shrink_to_fit();
        }
        if let Some(damage) = &step.damage {
            points.refuse(RefusedReason::BadGzip, damage.as_bytes());
        }
    }
}

impl PickleStream {
    /// Decodes the complete frames. Returns the text for the log if the stream cannot go on, or ends within
    /// a frame.
    fn decode(&mut self, points: &mut PointWriter<'_>, end: InputEnd) -> Option<String> {
        loop {
            match self.frames.next_frame() {
                // A frame that is no pickle is counted; the next one may be.
                Ok(Some(frame)) => drop(self.decoder.decode(frame, points)),
                Ok(None) => break,
                Err(error) => return Some(error.to_string()),
            }
        }
        let is_cut = end == InputEnd::Closed && !self.frames.is_at_frame_start();
        is_cut.then(|| "the connection ends within a pickle frame".to_owned())
    }
}
