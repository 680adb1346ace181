//! Decoder of one body, whatever its format.
//!
//! Not here: the formats (`text`, `protobuf`).

use chronolith_model::{LabelSource, WriteBatch};

use crate::key_tail::ADDED;
use crate::remote_write;

use super::content_type::Format;
use super::fault::ExpositionError;
use super::labels::text_keys;
use super::options::DecodeOptions;
use super::protobuf::ProtobufDecoder;
use super::refused::Refused;
use super::text::TextDecoder;

/// Decoder of one body.
#[derive(Debug)]
pub struct Decoder {
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Text(Box<TextDecoder>),
    Protobuf(Box<ProtobufDecoder>),
}

impl Decoder {
    /// A decoder at the start of a body.
    #[must_use]
    pub fn new(format: Format, options: DecodeOptions) -> Decoder {
        let is_open_metrics = format == Format::OpenMetrics;
        let kind = match format {
            Format::Protobuf => Kind::Protobuf(Box::new(ProtobufDecoder::new(options))),
            Format::Text | Format::OpenMetrics => {
                Kind::Text(Box::new(TextDecoder::new(is_open_metrics, options)))
            }
        };
        Decoder { kind }
    }

    /// Returns the source of the keys that the decoder makes. Batches for it have this one, with
    /// [`DecodeOptions::added`] the one of [`crate::added_labels::tailed_keys`].
    #[must_use]
    pub fn source(&self) -> LabelSource {
        match self.kind {
            Kind::Text(_) => text_keys(),
            Kind::Protobuf(_) => remote_write::new_batch().source,
        }
    }

    /// Reads the next bytes of the body into `batch`, and returns how many were read: fewer than all if the
    /// batch is full. The caller then stores and clears the batch, and calls again with the bytes after them.
    ///
    /// Series have one sample each, in the order of the body. A batch grows to some 130,000 series and 70 MB
    /// of keys; samples, exemplars (32 MB) and native histograms come on top. An unfinished line or message
    /// is kept within its limit. Cost: one pass.
    ///
    /// # Errors
    /// In [`super::Mode::Strict`], the first error: the body is refused, with the batches that were read from
    /// it.
    ///
    /// # Panics
    /// If the batch is for another protocol than [`Decoder::source`].
    pub fn feed(&mut self, chunk: &[u8], batch: &mut WriteBatch) -> Result<usize, ExpositionError> {
        let is_same = batch.source.protocol & !ADDED == self.source().protocol;
        assert!(is_same, "the batch is for another protocol");
        match &mut self.kind {
            Kind::Text(decoder) => decoder.feed(chunk, batch),
            Kind::Protobuf(decoder) => decoder.feed(chunk, batch),
        }
    }

    /// Ends the body: its last line is read, and the refused lines or messages are returned.
    ///
    /// # Errors
    /// As [`Decoder::feed`].
    pub fn finish(self, batch: &mut WriteBatch) -> Result<Refused, ExpositionError> {
        match self.kind {
            Kind::Text(mut decoder) => {
                decoder.finish(batch)?;
                Ok(decoder.take_refused())
            }
            Kind::Protobuf(mut decoder) => {
                decoder.finish(batch)?;
                Ok(decoder.take_refused())
            }
        }
    }
}
