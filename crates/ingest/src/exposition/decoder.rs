//! Decoder of one body, whatever its format.
//!
//! Not here: the formats (`text`, `protobuf`).

use chronolith_model::{LabelSource, WriteBatch};

use super::content_type::Format;
use super::fault::ExpositionError;
use super::labels::text_keys;
use super::options::DecodeOptions;
use super::refused::Refused;
use super::text::TextDecoder;

/// Decoder of one body.
pub struct Decoder {
    source: LabelSource,
    text: TextDecoder,
}

impl Decoder {
    /// A decoder at the start of a body.
    #[must_use]
    pub fn new(format: Format, options: DecodeOptions) -> Decoder {
        Decoder { source: text_keys(), text: TextDecoder::new(format == Format::OpenMetrics, options) }
    }

    /// Returns the source of the keys that the decoder makes. Batches for it have this one, with
    /// [`DecodeOptions::added`] the one of [`crate::added_labels::tailed_keys`].
    #[must_use]
    pub fn source(&self) -> LabelSource {
        self.source
    }

    /// Reads the next bytes of the body into `batch`, and returns how many were read: fewer than all if the
    /// batch is full. The caller then stores and clears the batch, and calls again with the bytes after them.
    ///
    /// Series have one sample each, in the order of the body. A batch grows to some 130,000 series and 70 MB;
    /// an unfinished line or message is kept within its limit. Cost: one pass.
    ///
    /// # Errors
    /// In [`super::Mode::Strict`], the first error: the body is refused, with the batches that were read from
    /// it.
    ///
    /// # Panics
    /// If the batch is for another protocol than [`Decoder::source`].
    pub fn feed(&mut self, chunk: &[u8], batch: &mut WriteBatch) -> Result<usize, ExpositionError> {
        let is_same = batch.source.protocol & !crate::key_tail::ADDED == self.source.protocol;
        assert!(is_same, "the batch is for another protocol");
        self.text.feed(chunk, batch)
    }

    /// Ends the body: its last line is read, and the refused lines are returned.
    ///
    /// # Errors
    /// As [`Decoder::feed`].
    pub fn finish(mut self, batch: &mut WriteBatch) -> Result<Refused, ExpositionError> {
        self.text.finish(batch)?;
        Ok(self.text.take_refused())
    }
}
