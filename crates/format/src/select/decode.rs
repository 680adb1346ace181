//! Decoder of an answer.
//!
//! Invariants: the header is first, nothing follows the end; an entry that continues a series follows an
//! entry that goes on; the counts at the end are the sums of the entries.
//! Not here: samples of an entry (`parts`, `samples`), errors of the query (`tsdb`).

use std::ops::{Range, RangeInclusive};

use chronolith_base::{ByteReader, DecodeError};
use chronolith_model::labels::LabelsBuilder;
use chronolith_model::query::{ColumnType, ReadEstimate};
use chronolith_model::{Labels, MetadataEntry, SeriesExemplars, TimeRange};

use super::content::{
    AnswerCounts, AnswerForm, AnswerHeader, AnswerWarnings, SELECT_VERSION, SelectError, SelectFailure,
};
use super::dictionary::DictionaryReader;
use super::encode::{FLAG_CONTINUES, FLAG_GOES_ON, MAGIC};
use super::failure::{read_failure, read_warnings};
use super::frame::{
    Frame, FrameReader, ITEM_BYTES_MAX, KIND_END, KIND_ESTIMATE, KIND_EXEMPLARS, KIND_FAILURE, KIND_HEADER,
    KIND_LIST, KIND_METADATA, KIND_RANGES, KIND_SERIES, KIND_TEXTS, KIND_WARNINGS,
};
use super::parts::Parts;
use super::records::{read_exemplars, read_metadata, read_ranges};
use crate::lists::read_text;
use crate::read::{COLUMN_TYPES, one_of};
use crate::record::{expect_end, invalid};

const WHAT: &str = "frame of a select answer";
const ENTRY: &str = "entry of a select answer";

/// Content of a frame.
#[derive(Debug, Clone, PartialEq)]
pub enum AnswerItem {
    /// The header.
    Header(AnswerHeader),
    /// Payload of a frame of series, for [`AnswerDecoder::next_entry`].
    Series(Vec<u8>),
    /// A part of a list.
    List(Vec<String>),
    /// An estimate; `None` if the source has none.
    Estimate(Option<ReadEstimate>),
    /// A part of the metadata.
    Metadata(Vec<MetadataEntry>),
    /// A part of the exemplars.
    Exemplars(Vec<SeriesExemplars>),
    /// A part of the ranges.
    Ranges(Vec<TimeRange>),
    /// Warnings.
    Warnings(AnswerWarnings),
    /// The failure that ends the answer.
    Failed(SelectFailure),
    /// The end of a complete answer.
    End(AnswerCounts),
}

/// Labels and type of a series.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeriesStart {
    /// Labels.
    pub labels: Labels,
    /// Type of the samples.
    pub column_type: ColumnType,
}

/// An entry of a frame: a series, or further samples of the one before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeriesEntry {
    /// `None` for further samples of the series before.
    pub start: Option<SeriesStart>,
    /// The next frame of series has further samples of the series.
    pub goes_on: bool,
    /// Parts in the payload, for [`Parts::new`].
    pub parts: Range<usize>,
    /// Number of the parts.
    pub part_count: u64,
    /// Samples of the parts.
    pub sample_count: u64,
    /// First and last time of the parts; `None` without parts.
    pub times: Option<RangeInclusive<i64>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Start,
    Content,
    Ended,
}

/// Decoder of an answer, which is pushed as it arrives.
#[derive(Debug)]
pub struct AnswerDecoder {
    frames: FrameReader,
    state: State,
    dictionary: DictionaryReader,
    labels: LabelsBuilder,
    /// The last entry goes on in the next frame.
    goes_on: bool,
    /// Last time of the series of that entry.
    last_time: Option<i64>,
    counts: AnswerCounts,
}

impl Default for AnswerDecoder {
    fn default() -> AnswerDecoder {
        AnswerDecoder {
            frames: FrameReader::default(),
            state: State::Start,
            dictionary: DictionaryReader::default(),
            labels: LabelsBuilder::new(),
            goes_on: false,
            last_time: None,
            counts: AnswerCounts::default(),
        }
    }
}

impl AnswerDecoder {
    /// Appends bytes of the answer. All items of the bytes before have been read.
    pub fn push(&mut self, bytes: &[u8]) {
        self.frames.push(bytes);
    }

    /// Bytes of unread frames and of the dictionary.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.frames.heap_bytes().saturating_add(self.dictionary.heap_bytes())
    }

    /// Returns true after the end of the answer or its failure.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.state == State::Ended
    }

    /// Returns the next item; `None` if its frame is not complete. All entries of a frame of series have been
    /// read before the next item.
    ///
    /// # Errors
    /// [`SelectError`]; the answer cannot be read further.
    pub fn next_item(&mut self) -> Result<Option<AnswerItem>, SelectError> {
        loop {
            if self.is_ended() {
                let left = self.frames.pending_bytes() as u64;
                let end = self.frames.offset();
                return if left == 0 {
                    Ok(None)
                } else {
                    Err(invalid(WHAT, end, "no further bytes", left).into())
                };
            }
            let Some(frame) = self.frames.next()? else { return Ok(None) };
            if self.state == State::Start {
                let header = read_header(&frame)?;
                self.state = State::Content;
                return Ok(Some(AnswerItem::Header(header)));
            }
            if let Some(item) = self.item_of(frame)? {
                return Ok(Some(item));
            }
        }
    }

    /// Item of a frame; `None` for texts.
    fn item_of(&mut self, frame: Frame) -> Result<Option<AnswerItem>, SelectError> {
        let Frame { kind, offset, payload } = frame;
        let may_follow = [KIND_SERIES, KIND_TEXTS, KIND_FAILURE].contains(&kind);
        if self.goes_on && !may_follow {
            return Err(invalid(WHAT, offset, "further samples of a series", kind.into()).into());
        }
        let moved = |error: DecodeError| error.after(offset);
        Ok(Some(match kind {
            KIND_TEXTS => {
                self.dictionary.add(&payload).map_err(moved)?;
                return Ok(None);
            }
            KIND_SERIES => AnswerItem::Series(payload),
            KIND_LIST => AnswerItem::List(read_entries(&payload).map_err(moved)?),
            KIND_ESTIMATE => AnswerItem::Estimate(read_estimate(&payload).map_err(moved)?),
            KIND_METADATA => AnswerItem::Metadata(read_metadata(&payload).map_err(moved)?),
            KIND_EXEMPLARS => AnswerItem::Exemplars(read_exemplars(&payload).map_err(moved)?),
            KIND_RANGES => AnswerItem::Ranges(read_ranges(&payload).map_err(moved)?),
            KIND_WARNINGS => AnswerItem::Warnings(read_warnings(&payload).map_err(moved)?),
            KIND_FAILURE => {
                self.state = State::Ended;
                AnswerItem::Failed(read_failure(&payload).map_err(moved)?)
            }
            KIND_END => {
                self.state = State::Ended;
                AnswerItem::End(self.read_end(&payload).map_err(moved)?)
            }
            other => return Err(invalid(WHAT, offset, "a kind of version 1", other.into()).into()),
        }))
    }

    fn read_end(&self, payload: &[u8]) -> Result<AnswerCounts, DecodeError> {
        let what = "counts of a select answer";
        let mut reader = ByteReader::new(payload);
        let series = reader.uvarint(what)?;
        let samples = reader.uvarint(what)?;
        expect_end(&reader, what)?;
        let counts = AnswerCounts { series, samples };
        if counts != self.counts {
            return Err(invalid(what, 0, "counts of the entries", series));
        }
        Ok(counts)
    }

    /// Returns the entry at `offset` of a frame of series, which becomes the offset of the next one; `None`
    /// at the end of the frame. Cost: the heads of its parts, whose samples are not decoded.
    ///
    /// # Errors
    /// [`SelectError`].
    pub fn next_entry(
        &mut self,
        payload: &[u8],
        offset: &mut usize,
    ) -> Result<Option<SeriesEntry>, SelectError> {
        let mut reader = ByteReader::at(payload, *offset);
        if reader.is_empty() {
            return Ok(None);
        }
        let flags = reader.u8(ENTRY)?;
        let continues = flags & FLAG_CONTINUES != 0;
        if flags & !(FLAG_CONTINUES | FLAG_GOES_ON) != 0 || continues != self.goes_on {
            let expected = "known flags, and further samples after an entry that goes on";
            return Err(invalid(ENTRY, *offset, expected, flags.into()).into());
        }
        let start = if continues { None } else { Some(self.read_start(&mut reader)?) };
        let len = reader.length(ENTRY)?;
        let first = reader.offset();
        let bytes = reader.bytes(ENTRY, len)?;
        let mut entry = SeriesEntry {
            start,
            goes_on: flags & FLAG_GOES_ON != 0,
            parts: first..reader.offset(),
            part_count: 0,
            sample_count: 0,
            times: None,
        };
        if !continues {
            self.last_time = None;
            self.counts.series = self.counts.series.saturating_add(1);
        }
        read_summary(bytes, &mut entry, &mut self.last_time).map_err(|error| error.after(first))?;
        self.counts.samples = self.counts.samples.saturating_add(entry.sample_count);
        self.goes_on = entry.goes_on;
        if entry.goes_on && !reader.is_empty() {
            let left = reader.remaining() as u64;
            return Err(invalid(ENTRY, reader.offset(), "the end of the frame", left).into());
        }
        *offset = reader.offset();
        Ok(Some(entry))
    }

    fn read_start(&mut self, reader: &mut ByteReader<'_>) -> Result<SeriesStart, DecodeError> {
        let what = "labels of a series";
        let count = reader.length(what)?;
        self.labels.clear();
        let mut bytes = 0usize;
        let mut before: Option<&str> = None;
        for _ in 0..count {
            let offset = reader.offset();
            let name_number = reader.uvarint(what)?;
            let value_number = reader.uvarint(what)?;
            let name = self.dictionary.get(name_number);
            let Some((name, value)) = name.zip(self.dictionary.get(value_number)) else {
                return Err(invalid(what, offset, "a text of the dictionary", name_number.max(value_number)));
            };
            bytes = bytes.saturating_add(name.len()).saturating_add(value.len());
            let ascends = before.is_none_or(|before| before < name);
            if !ascends || value.is_empty() || bytes > ITEM_BYTES_MAX {
                let expected = "ascending names with values, at most 16 MiB";
                return Err(invalid(what, offset, expected, bytes as u64));
            }
            before = Some(name);
            self.labels.push(name, value);
        }
        let column_type = one_of(reader, "type of a series", "0 to 5", &COLUMN_TYPES, 0)?;
        Ok(SeriesStart { labels: self.labels.finish(), column_type })
    }
}

/// Counts the parts of an entry; `last_time` is the last time of the series.
fn read_summary(
    bytes: &[u8],
    entry: &mut SeriesEntry,
    last_time: &mut Option<i64>,
) -> Result<(), DecodeError> {
    for part in Parts::new(bytes) {
        let part = part?;
        if last_time.is_some_and(|last_time| last_time >= part.first_time) {
            let found = part.first_time.cast_unsigned();
            return Err(invalid(ENTRY, 0, "parts in order of time", found));
        }
        *last_time = Some(part.last_time);
        entry.part_count = entry.part_count.saturating_add(1);
        entry.sample_count = entry.sample_count.saturating_add(part.sample_count.into());
        let first = entry.times.as_ref().map_or(part.first_time, |times| *times.start());
        entry.times = Some(first..=part.last_time);
    }
    Ok(())
}

fn read_header(frame: &Frame) -> Result<AnswerHeader, SelectError> {
    let what = "header of a select answer";
    if frame.kind != KIND_HEADER {
        return Err(invalid(WHAT, frame.offset, "a header", frame.kind.into()).into());
    }
    let mut reader = ByteReader::new(&frame.payload);
    let magic = reader.be_u32(what)?;
    if magic != u32::from_be_bytes(MAGIC) {
        return Err(invalid(what, 0, "CLSA", magic.into()).into());
    }
    let version = reader.u8(what)?;
    if version != SELECT_VERSION {
        return Err(SelectError::Version { found: version });
    }
    let form = one_of(&mut reader, "form of a select answer", "0 to 5", &AnswerForm::ALL, 0)?;
    let catalogue = reader.uvarint(what)?;
    expect_end(&reader, what)?;
    Ok(AnswerHeader { form, catalogue })
}

fn read_entries(payload: &[u8]) -> Result<Vec<String>, DecodeError> {
    let what = "list of a select answer";
    let mut reader = ByteReader::new(payload);
    let mut list = Vec::new();
    while !reader.is_empty() {
        list.push(read_text(&mut reader, what)?);
    }
    Ok(list)
}

fn read_estimate(payload: &[u8]) -> Result<Option<ReadEstimate>, DecodeError> {
    let what = "estimate of a select answer";
    let mut reader = ByteReader::new(payload);
    let estimate = match reader.u8(what)? {
        0 => None,
        1 => Some(ReadEstimate { series: reader.uvarint(what)?, samples: reader.uvarint(what)? }),
        other => return Err(invalid(what, 0, "0 or 1", other.into())),
    };
    expect_end(&reader, what)?;
    Ok(estimate)
}
