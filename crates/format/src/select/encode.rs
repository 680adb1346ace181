//! Encoder of an answer.
//!
//! Invariants: texts are in a frame before the first series that names them; a frame ends at about
//! [`FRAME_BYTES_FULL`], also within a series, so that memory does not grow with its samples.
//! Not here: choice of the series and limits (`tsdb`).

use std::sync::Arc;

use chronolith_base::bytes::put_uvarint;
use chronolith_model::query::{ColumnType, ReadEstimate, StoredChunk};
use chronolith_model::{Columns, Labels};

use super::content::{
    AnswerCounts, AnswerForm, AnswerHeader, AnswerWarnings, SELECT_VERSION, SelectEncodeError, SelectFailure,
};
use super::dictionary::DictionaryWriter;
use super::failure::{put_failure, put_warnings};
use super::frame::{
    FRAME_BYTES_FULL, KIND_END, KIND_ESTIMATE, KIND_FAILURE, KIND_HEADER, KIND_LIST, KIND_SERIES, KIND_TEXTS,
    KIND_WARNINGS, check_len, put_frame,
};
use super::parts::{PartWriter, columns_len, texts_len};
use super::records::RecordFrames;
use crate::lists::put_text;
use crate::read::{COLUMN_TYPES, place_of};

/// Magic of the header.
pub(super) const MAGIC: [u8; 4] = *b"CLSA";
/// Flag of an entry: the series of the entry before, which has further samples.
pub(super) const FLAG_CONTINUES: u8 = 1;
/// Flag of an entry: the next frame of series begins with further samples of the series.
pub(super) const FLAG_GOES_ON: u8 = 1 << 1;

/// Encoder of an answer, whose finished frames are taken by [`AnswerEncoder::take`].
#[derive(Debug)]
pub struct AnswerEncoder {
    out: Vec<u8>,
    dictionary: DictionaryWriter,
    /// Payload of the open frame of series, or of a list.
    payload: Vec<u8>,
    /// Labels and type of the open series; empty after its first entry.
    head: Vec<u8>,
    parts: PartWriter,
    counts: AnswerCounts,
}

impl AnswerEncoder {
    /// Starts an answer.
    #[must_use]
    pub fn new(header: AnswerHeader) -> AnswerEncoder {
        let mut payload = MAGIC.to_vec();
        payload.extend_from_slice(&[SELECT_VERSION, place_of(&AnswerForm::ALL, header.form)]);
        put_uvarint(&mut payload, header.catalogue);
        let mut out = Vec::new();
        put_frame(KIND_HEADER, &payload, &mut out);
        payload.clear();
        AnswerEncoder {
            out,
            dictionary: DictionaryWriter::default(),
            payload,
            head: Vec::new(),
            parts: PartWriter::default(),
            counts: AnswerCounts::default(),
        }
    }

    /// Series and samples of the entries so far.
    #[must_use]
    pub fn counts(&self) -> AnswerCounts {
        AnswerCounts { samples: self.counts.samples + self.parts.sample_count(), ..self.counts }
    }

    /// Bytes of frames, of the dictionary and of the open series.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        let buffers = [&self.out, &self.payload, &self.head].map(Vec::capacity);
        let buffers: usize = buffers.iter().sum();
        buffers + self.dictionary.heap_bytes() + self.parts.heap_bytes()
    }

    /// Bytes of finished frames.
    #[must_use]
    pub fn finished_bytes(&self) -> usize {
        self.out.len()
    }

    /// Returns the finished frames.
    #[must_use]
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }

    /// Starts a series.
    ///
    /// # Errors
    /// [`SelectEncodeError::TooLong`]; the answer can go on with other series.
    pub fn start_series(
        &mut self,
        labels: &Labels,
        column_type: ColumnType,
    ) -> Result<(), SelectEncodeError> {
        debug_assert!(self.head.is_empty(), "the series before has ended");
        check_len("labels", labels.heap_bytes())?;
        if self.dictionary.is_full() {
            self.end_frame();
            self.dictionary.reset();
        }
        put_uvarint(&mut self.head, labels.len() as u64);
        let texts = labels.iter().flat_map(|(name, value)| [name, value]);
        self.dictionary.put_numbers(texts, &mut self.head);
        self.head.push(place_of(&COLUMN_TYPES, column_type));
        self.parts.start_series();
        self.counts.series += 1;
        Ok(())
    }

    /// Appends a chunk of the open series; see [`super::is_sent_as_stored`].
    ///
    /// # Errors
    /// [`SelectEncodeError`].
    pub fn put_chunk(&mut self, chunk: &StoredChunk<'_>) -> Result<(), SelectEncodeError> {
        check_len("a chunk", chunk.bytes.len())?;
        self.parts.put_chunk(chunk)?;
        self.end_full_frame();
        Ok(())
    }

    /// Appends samples of the open series.
    ///
    /// # Errors
    /// [`SelectEncodeError`].
    pub fn put_columns(&mut self, columns: &Columns) -> Result<(), SelectEncodeError> {
        let mut start = 0;
        while start < columns.len() {
            let len = columns_len(columns, start);
            self.parts.put_columns(columns, start..start + len)?;
            self.end_full_frame();
            start += len;
        }
        Ok(())
    }

    /// Appends texts of the open series, one per time.
    ///
    /// # Errors
    /// [`SelectEncodeError`].
    ///
    /// # Panics
    /// If there is not one text per time.
    pub fn put_texts(&mut self, times: &[i64], texts: &[Arc<[u8]>]) -> Result<(), SelectEncodeError> {
        let longest = texts.iter().map(|text| text.len()).max().unwrap_or_default();
        check_len("a text", longest)?;
        assert_eq!(times.len(), texts.len(), "one text per time");
        let mut rest_times = times;
        let mut rest = texts;
        while !rest.is_empty() {
            let len = texts_len(rest);
            let (of_part, later) = rest.split_at(len);
            let (times_of_part, later_times) = rest_times.split_at(len);
            self.parts.put_texts(times_of_part, of_part)?;
            self.end_full_frame();
            rest = later;
            rest_times = later_times;
        }
        Ok(())
    }

    /// Ends the open series, which may have no samples.
    pub fn end_series(&mut self) {
        self.end_entry(false);
        self.counts.samples += self.parts.sample_count();
        self.parts.start_series();
        if self.payload.len() + self.dictionary.pending_bytes() >= FRAME_BYTES_FULL {
            self.end_frame();
        }
    }

    /// Ends the frame within a series if it is full.
    fn end_full_frame(&mut self) {
        if self.payload.len() + self.head.len() + self.parts.bytes().len() >= FRAME_BYTES_FULL {
            self.end_entry(true);
            self.end_frame();
        }
    }

    fn end_entry(&mut self, goes_on: bool) {
        let continues = self.head.is_empty();
        let flags = if continues { FLAG_CONTINUES } else { 0 } | if goes_on { FLAG_GOES_ON } else { 0 };
        self.payload.push(flags);
        self.payload.append(&mut self.head);
        put_uvarint(&mut self.payload, self.parts.bytes().len() as u64);
        self.payload.extend_from_slice(self.parts.bytes());
        self.parts.clear_entry();
    }

    /// Ends the open frame of series, so that all complete series are in finished frames.
    pub fn end_frame(&mut self) {
        if let Some(texts) = self.dictionary.take_pending() {
            put_frame(KIND_TEXTS, &texts, &mut self.out);
        }
        if !self.payload.is_empty() {
            put_frame(KIND_SERIES, &self.payload, &mut self.out);
            self.payload.clear();
        }
    }

    /// Appends entries of a list, which ascend.
    ///
    /// # Errors
    /// [`SelectEncodeError::TooLong`].
    pub fn put_list(&mut self, list: &[String]) -> Result<(), SelectEncodeError> {
        debug_assert!(list.is_sorted_by(|a, b| a < b), "lists ascend");
        for entry in list {
            check_len("an entry of a list", entry.len())?;
            put_text(&mut self.payload, entry);
            if self.payload.len() >= FRAME_BYTES_FULL {
                self.flush_list();
            }
        }
        self.flush_list();
        Ok(())
    }

    fn flush_list(&mut self) {
        if !self.payload.is_empty() {
            put_frame(KIND_LIST, &self.payload, &mut self.out);
            self.payload.clear();
        }
    }

    /// Appends the finished frames of records besides samples.
    pub fn put_frames(&mut self, frames: &mut RecordFrames) {
        self.out.append(&mut frames.take());
    }

    /// Appends an estimate; `None` if the source has none.
    pub fn put_estimate(&mut self, estimate: Option<ReadEstimate>) {
        let mut payload = vec![u8::from(estimate.is_some())];
        if let Some(ReadEstimate { series, samples }) = estimate {
            put_uvarint(&mut payload, series);
            put_uvarint(&mut payload, samples);
        }
        put_frame(KIND_ESTIMATE, &payload, &mut self.out);
    }

    /// Appends warnings, after all series that are complete.
    pub fn put_warnings(&mut self, warnings: &AnswerWarnings) {
        self.end_frame();
        let mut payload = Vec::new();
        put_warnings(warnings, &mut payload);
        put_frame(KIND_WARNINGS, &payload, &mut self.out);
    }

    /// Ends the answer after its last series or list, and returns the frames that were not taken.
    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        assert!(self.head.is_empty(), "the last series has ended");
        self.end_frame();
        let mut payload = Vec::new();
        put_uvarint(&mut payload, self.counts.series);
        put_uvarint(&mut payload, self.counts.samples);
        put_frame(KIND_END, &payload, &mut self.out);
        self.out
    }

    /// Ends the answer by a failure, and returns the frames that were not taken. Series of the open frame are
    /// dropped.
    #[must_use]
    pub fn fail(mut self, failure: &SelectFailure) -> Vec<u8> {
        let mut payload = Vec::new();
        put_failure(failure, &mut payload);
        put_frame(KIND_FAILURE, &payload, &mut self.out);
        self.out
    }
}
