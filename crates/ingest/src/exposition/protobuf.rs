//! Delimited protobuf: messages `io.prometheus.client.MetricFamily`, each after its length.
//!
//! Invariants: the result does not depend on where the body is cut into chunks; a metric is in the batch as a
//! whole or not at all; a known series of floats costs no allocation. Keys have the form of remote write
//! 1.0: the labels as sent between the name and the bound of a bucket or quantile. Memory: one message within
//! its limit, and one batch within the limits of `room`.
//! Not here: fields of a metric (`metric`), native histograms (`native`).

mod family;
mod fault;
mod metric;
mod native;
mod timestamp;

#[cfg(test)]
mod tests;

use chronolith_model::WriteBatch;

use crate::remote_write::wire::{Cursor, LEN};

use super::fault::{ExpositionError, Reason};
use super::options::DecodeOptions;
use super::refused::Refused;
use super::room::{MetadataBytes, has_soft_limit};

use family::Family;
use fault::Fault;
use metric::MetricWriter;

/// Bytes of the length of a message at most, as in Prometheus.
const LENGTH_BYTES_MAX: usize = 5;

/// Decoder of a body.
#[derive(Debug)]
pub(super) struct ProtobufDecoder {
    options: DecodeOptions,
    /// Start of a message whose end has not arrived, with its length.
    unfinished: Vec<u8>,
    /// Bytes of a refused message that have not arrived.
    skipped_bytes: usize,
    /// Set after a length that cannot be read: nothing after it can be found.
    is_lost: bool,
    message_count: u64,
    /// Offset of the first metric of the message at hand that is not in a batch.
    next_metric: usize,
    writer: MetricWriter,
    metadata: MetadataBytes,
    refused: Refused,
}

/// A message, or the reason for its absence.
enum Framed {
    /// Length of the prefix and of the message.
    Whole(usize, usize),
    /// More bytes are needed.
    Unfinished,
    /// A prefix of this many bytes, and a message that is too large.
    TooLarge(usize, usize),
    /// The length cannot be read.
    Lost,
}

impl ProtobufDecoder {
    pub(super) fn new(options: DecodeOptions) -> ProtobufDecoder {
        ProtobufDecoder {
            options,
            unfinished: Vec::new(),
            skipped_bytes: 0,
            is_lost: false,
            message_count: 0,
            next_metric: 0,
            writer: MetricWriter::default(),
            metadata: MetadataBytes::default(),
            refused: Refused::default(),
        }
    }

    /// Reads the next bytes of the body, as [`super::Decoder::feed`].
    pub(super) fn feed(&mut self, chunk: &[u8], batch: &mut WriteBatch) -> Result<usize, ExpositionError> {
        let fed = self.feed_messages(chunk, batch);
        batch.pad_start_times();
        fed
    }

    fn feed_messages(&mut self, chunk: &[u8], batch: &mut WriteBatch) -> Result<usize, ExpositionError> {
        let mut at = 0;
        while at < chunk.len() && !self.is_full(batch) {
            let rest = chunk.get(at..).unwrap_or(&[]);
            if self.is_lost {
                return Ok(chunk.len());
            }
            let read = if self.skipped_bytes > 0 {
                let skipped = rest.len().min(self.skipped_bytes);
                self.skipped_bytes -= skipped;
                skipped
            } else if self.unfinished.is_empty() {
                self.feed_whole(rest, batch)?
            } else {
                self.feed_unfinished(rest, batch)?
            };
            if read == 0 {
                break;
            }
            at += read;
        }
        Ok(at)
    }

    fn is_full(&self, batch: &WriteBatch) -> bool {
        has_soft_limit(batch)
            || self.writer.has_histogram_limit(batch)
            || self.metadata.has_limit(&batch.metadata)
    }

    /// Reads the message at the start of `bytes`, or keeps them. Returns the number of bytes read: none if
    /// the batch became full.
    fn feed_whole(&mut self, bytes: &[u8], batch: &mut WriteBatch) -> Result<usize, ExpositionError> {
        match self.frame(bytes) {
            Framed::Whole(prefix, len) => {
                let message = bytes.get(prefix..prefix + len).unwrap_or(&[]);
                Ok(if self.message(message, batch)? { prefix + len } else { 0 })
            }
            Framed::Unfinished => {
                self.unfinished.extend_from_slice(bytes);
                Ok(bytes.len())
            }
            other => {
                self.refuse_framing(&other)?;
                let arrived = if self.is_lost { bytes.len() } else { bytes.len().min(self.skipped_bytes) };
                self.skipped_bytes = self.skipped_bytes.saturating_sub(arrived);
                Ok(arrived)
            }
        }
    }

    /// Completes the unfinished message by `bytes`. Returns the number of bytes read. If the batch became
    /// full, the last byte of the message is not read, so that the next call comes here again.
    fn feed_unfinished(&mut self, bytes: &[u8], batch: &mut WriteBatch) -> Result<usize, ExpositionError> {
        let mut read = 0;
        loop {
            let missing = match self.frame(&self.unfinished) {
                Framed::Whole(prefix, len) => {
                    let mut whole = std::mem::take(&mut self.unfinished);
                    let message = whole.get(prefix..prefix + len).unwrap_or(&[]);
                    let is_read = self.message(message, batch);
                    let is_stopped = matches!(is_read, Ok(false));
                    whole.truncate(if is_stopped { whole.len() - 1 } else { 0 });
                    self.unfinished = whole;
                    is_read?;
                    return Ok(read - usize::from(is_stopped));
                }
                Framed::Unfinished => self.missing_bytes(),
                other => {
                    let kept = self.unfinished.len();
                    self.unfinished.clear();
                    self.refuse_framing(&other)?;
                    self.skipped_bytes = self.skipped_bytes.saturating_sub(kept);
                    return Ok(read);
                }
            };
            let more = bytes.get(read..bytes.len().min(read + missing)).unwrap_or(&[]);
            if more.is_empty() {
                return Ok(read);
            }
            self.unfinished.extend_from_slice(more);
            read += more.len();
        }
    }

    /// Bytes that the unfinished message lacks; one at a time within its length.
    fn missing_bytes(&self) -> usize {
        let mut cursor = Cursor::new(&self.unfinished);
        match cursor.varint() {
            Ok(len) => {
                let total = usize::try_from(len).unwrap_or(usize::MAX).saturating_add(cursor.offset());
                total.saturating_sub(self.unfinished.len())
            }
            Err(_) => 1,
        }
    }

    fn frame(&self, bytes: &[u8]) -> Framed {
        let mut cursor = Cursor::new(bytes);
        match cursor.varint() {
            Ok(len) if cursor.offset() <= LENGTH_BYTES_MAX => {
                let prefix = cursor.offset();
                let len = usize::try_from(len).unwrap_or(usize::MAX);
                if len > self.options.limits.message_bytes_max {
                    Framed::TooLarge(prefix, len)
                } else if bytes.len() - prefix < len {
                    Framed::Unfinished
                } else {
                    Framed::Whole(prefix, len)
                }
            }
            Err(_) if bytes.len() < LENGTH_BYTES_MAX => Framed::Unfinished,
            _ => Framed::Lost,
        }
    }

    #[cold]
    fn refuse_framing(&mut self, framed: &Framed) -> Result<(), ExpositionError> {
        self.message_count += 1;
        let fault = match framed {
            Framed::TooLarge(prefix, len) => {
                self.skipped_bytes = prefix.saturating_add(*len);
                let limit = self.options.limits.message_bytes_max;
                let text = format!("message of {len} bytes is larger than the limit of {limit} bytes");
                Fault { reason: Reason::Limit, offset: 0, text }
            }
            _ => {
                self.is_lost = true;
                let text = "invalid varint encountered as length of a message".to_owned();
                Fault { reason: Reason::Protobuf, offset: 0, text }
            }
        };
        self.refuse(fault)
    }

    fn refuse(&mut self, fault: Fault) -> Result<(), ExpositionError> {
        self.refused.note(self.options.mode, fault.error(self.message_count))
    }

    /// Reads a message from its next metric on. Returns false if the batch became full before its end.
    fn message(&mut self, message: &[u8], batch: &mut WriteBatch) -> Result<bool, ExpositionError> {
        let is_first = self.next_metric == 0;
        if is_first {
            self.message_count += 1;
        }
        let is_beyond = self.message_count > self.options.limits.line_count_max;
        let family = if is_beyond { Err(Fault::too_many_messages()) } else { Family::read(message) };
        let family = match family {
            Ok(Some(family)) => family,
            Ok(None) => return Ok(true),
            Err(fault) => return self.refuse(fault).map(|()| true),
        };
        if is_first {
            let entry = family.metadata();
            self.metadata.add(&entry, &batch.metadata);
            batch.metadata.push(entry);
            self.writer.begin(&family);
        }
        let mut at = Cursor::new(message);
        while !at.is_empty() {
            let offset = at.offset();
            // The walk over the family has read these fields.
            let Ok((number, wire)) = at.tag() else { break };
            if (number, wire) != (family::METRIC, LEN) {
                if at.skip(wire).is_err() {
                    break;
                }
                continue;
            }
            let Ok(metric) = at.message() else { break };
            if offset < self.next_metric {
                continue;
            }
            if self.is_full(batch) && offset > 0 {
                self.next_metric = offset;
                return Ok(false);
            }
            if let Err(fault) = self.writer.write(&family, metric, &self.options, batch, &mut self.refused) {
                self.refuse(fault)?;
            }
        }
        self.next_metric = 0;
        Ok(true)
    }

    /// Ends the body.
    pub(super) fn finish(&mut self, batch: &mut WriteBatch) -> Result<(), ExpositionError> {
        batch.pad_start_times();
        let kept = self.unfinished.len();
        if kept == 0 && self.skipped_bytes == 0 {
            return Ok(());
        }
        self.message_count += 1;
        let text = format!("body ends within a message, {kept} bytes after its start");
        self.refuse(Fault { reason: Reason::Protobuf, offset: kept, text })
    }

    /// Moves the refused messages and metrics out.
    pub(super) fn take_refused(&mut self) -> Refused {
        std::mem::take(&mut self.refused)
    }
}
