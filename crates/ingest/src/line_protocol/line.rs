//! Walk over a request: lines of the usual form are read from structural byte to structural byte, all others
//! are handed to the complete grammar.
//!
//! Invariants: the fast walk accepts a line only if the grammar gives the same values; otherwise it leaves
//! nothing in the batch. Tags are not unescaped, copied or sorted. Every byte is read at most twice more.
//! Not here: the grammar and its errors (`grammar`), labels (`labels`).

use std::ops::Range;

use chronolith_base::{BudgetExceeded, Reservation};
use chronolith_model::kind::{word_of_integer, word_of_unsigned};
use chronolith_model::{BatchSeries, WordKind, WriteBatch};

use crate::number;
use crate::structural::{ByteClass, StructuralBytes};

use super::fault::{Fault, KEY_BYTES_MAX};
use super::grammar::{self, FieldValue, KEY_SEPARATOR_BYTES, ParsedLine, TagPairs, has_duplicate_tags};
use super::labels::{field_of, measurement_of, split_key, tag_of, unescape, unescape_into};
use super::memory::{RESERVED_LINE_BYTES, line_memory_bytes};
use super::name_filter::NameFilter;
use super::options::DecodeOptions;
use super::refused::{DropReason, Refused, field_name_text, tag_key_text, text_too_long_text};

/// Field and tag that name the time of a point.
const TIME_NAME: &[u8] = b"time";
/// Tag keys that labels of the series use.
const RESERVED_TAGS: [&[u8]; 4] = [TIME_NAME, b"__name__", b"__field__", b"__kind__"];
/// Bytes that a backslash escapes in texts.
const TEXT_ESCAPES: &[u8] = b"\"\\";

/// Fields of a line of the usual form at most.
const FIELD_COUNT_MAX: usize = 512;

/// Bytes that can end a token, and bytes outside of ASCII.
struct Delimiters;

impl ByteClass for Delimiters {
    fn flag(byte: u8) -> u8 {
        u8::from(byte == b'\n')
            | u8::from(byte == b' ')
            | u8::from(byte == b'"')
            | u8::from(byte == b',')
            | u8::from(byte == b'=')
            | u8::from(byte == b'\\')
            | (byte >> 7)
    }
}

/// State of the walk over one request.
pub(super) struct LineWalk<'a, 'b> {
    body: &'a [u8],
    options: &'a DecodeOptions,
    now_ns: i64,
    structural: StructuralBytes<'a, Delimiters>,
    batch: &'b mut WriteBatch,
    /// Texts without their escapes; they follow the body.
    copies: Vec<u8>,
    names: NameBytes,
    refused: Refused,
    /// Memory of long lines; `None` if the caller bounds them.
    held: Option<&'b mut Reservation>,
    /// Part of it that a line has taken.
    line_held_bytes: u64,
}

/// Lines of a walk that are in the batch.
pub(super) struct WalkedLines {
    /// Copies of texts, which the caller appends to the body.
    pub(super) copies: Vec<u8>,
    pub(super) refused: Refused,
    /// Start of the first line after them.
    pub(super) next: usize,
}

/// Bytes in the names of the line at hand that need a closer look.
#[derive(Default)]
struct NameBytes {
    has_escape: bool,
    /// Set if a name has bytes outside of ASCII.
    has_wide: bool,
}

/// Ends of the columns before a line, to which a refused line is rolled back.
struct Marks {
    series: usize,
    texts: usize,
    copies: usize,
}

impl<'a, 'b> LineWalk<'a, 'b> {
    /// A walk whose refused lines are added to `refused`.
    pub(super) fn new(
        body: &'a [u8],
        options: &'a DecodeOptions,
        batch: &'b mut WriteBatch,
        refused: Refused,
    ) -> Self {
        LineWalk {
            body,
            options,
            now_ns: options.precision.truncate(options.now_ns),
            structural: StructuralBytes::new(body),
            batch,
            copies: Vec::new(),
            names: NameBytes::default(),
            refused,
            held: None,
            line_held_bytes: 0,
        }
    }

    /// Reserves the memory of long lines before they are parsed.
    pub(super) fn with_memory(mut self, held: &'b mut Reservation) -> Self {
        self.held = Some(held);
        self
    }

    /// Fills the columns with the lines from `start` on, until they have `field_count_max` fields.
    pub(super) fn run(
        mut self,
        mut start: usize,
        field_count_max: usize,
    ) -> Result<WalkedLines, BudgetExceeded> {
        if start > 0 {
            self.structural.seek(start);
        }
        while start < self.body.len() && self.batch.series.len() < field_count_max {
            let marks = self.marks();
            start = match self.usual_line(start, &marks) {
                Some(next) => next,
                None => {
                    self.truncate(&marks);
                    let end = grammar::line_end(self.body, start);
                    self.any_line(start, end)?;
                    self.structural.seek(end + 1);
                    end + 1
                }
            };
        }
        Ok(WalkedLines { copies: self.copies, refused: self.refused, next: start })
    }

    fn byte(&self, at: usize) -> u8 {
        self.body.get(at).copied().unwrap_or(b'\n')
    }

    fn slice(&self, range: Range<usize>) -> &'a [u8] {
        self.body.get(range).unwrap_or(&[])
    }

    /// Reads a line of the usual form: one space between its parts, no backslash after another in names.
    /// Returns the start of the next line.
    fn usual_line(&mut self, start: usize, marks: &Marks) -> Option<usize> {
        self.names = NameBytes::default();
        let key_end = self.usual_key(start)?;
        let mut at = key_end;
        let mut seen = NameFilter::default();
        loop {
            let equals = self.next_in_name();
            let field = self.slice(at + 1..equals);
            if self.byte(equals) != b'=' || equals >= self.body.len() || field == TIME_NAME {
                return None;
            }
            let is_long = key_end - start + KEY_SEPARATOR_BYTES + field.len() > KEY_BYTES_MAX;
            let is_blank = *field.first()? <= b' ';
            if is_long || is_blank || (seen.may_have(field) && self.has_field(marks, field)) {
                return None;
            }
            let value_end = self.usual_value(equals + 1, start..key_end, at + 1..equals)?;
            at = value_end;
            match self.byte(value_end) {
                b',' => {}
                b' ' => break,
                b'\n' => {
                    self.check_names(start..key_end, marks)?;
                    self.finish_line(marks, self.now_ns);
                    return (value_end - start <= self.options.line_bytes_max).then_some(value_end + 1);
                }
                _ => return None,
            }
        }
        let end = self.structural.next();
        if self.byte(end) != b'\n' || end - start > self.options.line_bytes_max {
            return None;
        }
        let time = number::integer(self.slice(at + 1..end))?;
        self.check_names(start..key_end, marks)?;
        self.finish_line(marks, self.options.precision.to_ns(time)?);
        Some(end + 1)
    }

    /// Returns the end of measurement and tags.
    fn usual_key(&mut self, start: usize) -> Option<usize> {
        if matches!(self.byte(start), b'#' | b'\t' | 0 | b' ' | b',' | b'\n') {
            return None;
        }
        let mut at = self.next_in_name();
        while self.byte(at) == b'=' {
            at = self.next_in_name();
        }
        let tags_start = at + 1;
        let mut seen = NameFilter::default();
        let mut may_repeat = false;
        while self.byte(at) == b',' {
            let equals = self.next_in_name();
            let key = self.slice(at + 1..equals);
            if self.byte(equals) != b'=' || key.is_empty() || key == TIME_NAME || key.starts_with(b"__") {
                return None;
            }
            at = self.next_in_name();
            if at == equals + 1 {
                return None;
            }
            may_repeat |= seen.may_have(key);
        }
        let is_key = self.byte(at) == b' ' && !(may_repeat && has_duplicate_tags(self.slice(tags_start..at)));
        is_key.then_some(at)
    }

    /// Returns the offset of the next delimiter of names that is not escaped.
    // PERF: inlined as the walk over structural bytes is; names with other bytes are out of line.
    //   cargo bench -p chronolith-ingest --bench line_speed
    #[inline]
    fn next_in_name(&mut self) -> usize {
        let at = self.structural.next();
        if matches!(self.byte(at), b'\\' | b'"' | 0x80..) { self.skip_in_name(at) } else { at }
    }

    /// Returns the first delimiter after the backslash, quote or wide byte at `at`; the length of the body if
    /// a backslash escapes a backslash or a newline, for which the grammar has more than one rule.
    #[inline(never)]
    fn skip_in_name(&mut self, mut at: usize) -> usize {
        loop {
            match self.byte(at) {
                b'\\' => {
                    self.names.has_escape = true;
                    if matches!(self.byte(at + 1), b'\\' | b'\n') {
                        return self.body.len();
                    }
                    let escaped = at + 1;
                    at = self.structural.next();
                    if at == escaped {
                        self.names.has_wide |= self.byte(at) >= 0x80;
                        at = self.structural.next();
                    }
                }
                b'"' => at = self.structural.next(),
                0x80.. => {
                    self.names.has_wide = true;
                    at = self.structural.next();
                }
                _ => return at,
            }
        }
    }

    /// Returns `None` if names are not UTF-8, or may be equal although their bytes differ.
    fn check_names(&self, key: Range<usize>, marks: &Marks) -> Option<()> {
        let fields = self.batch.fields.get(marks.series..).unwrap_or(&[]);
        if self.names.has_escape && fields.len() > 1 {
            let field_bytes = fields.iter().map(|range| self.slice(range.start as usize..range.end as usize));
            if field_bytes.into_iter().any(|field| field.contains(&b'\\')) {
                return None;
            }
        }
        if self.names.has_wide {
            std::str::from_utf8(self.slice(key)).ok()?;
            for range in fields {
                std::str::from_utf8(self.slice(range.start as usize..range.end as usize)).ok()?;
            }
        }
        Some(())
    }

    /// Reads the value at `start` and pushes its series. Returns the end of the value.
    fn usual_value(&mut self, start: usize, key: Range<usize>, field: Range<usize>) -> Option<usize> {
        let mut end = self.structural.next();
        let (kind, word) = if self.byte(start) == b'"' {
            let text = self.usual_text(start)?;
            end = self.structural.next();
            if end != text.end + 1 || text.len() > self.options.text_bytes_max {
                return None;
            }
            (WordKind::Text, self.push_text(text))
        } else {
            usual_word(self.slice(start..end))?
        };
        self.push_series(key, field, kind, word);
        Some(end)
    }

    /// Returns the text whose opening quote is at `start` and was visited.
    fn usual_text(&mut self, start: usize) -> Option<Range<usize>> {
        let mut escaped = None;
        loop {
            let at = self.structural.next();
            if at >= self.body.len() {
                return None;
            }
            if escaped == Some(at) {
                continue;
            }
            match self.byte(at) {
                b'"' => return Some(start + 1..at),
                b'\\' => escaped = Some(at + 1),
                _ => {}
            }
        }
    }

    /// Adds a text, without its escapes, and returns its word.
    fn push_text(&mut self, text: Range<usize>) -> u64 {
        let bytes = self.slice(text.clone());
        let has_escape = |pair: &[u8]| {
            pair.first() == Some(&b'\\') && pair.last().is_some_and(|b| TEXT_ESCAPES.contains(b))
        };
        let range = if bytes.contains(&b'\\') && bytes.windows(2).any(has_escape) {
            let copy_start = self.body.len() + self.copies.len();
            unescape_into(bytes, TEXT_ESCAPES, &mut self.copies);
            copy_start..self.body.len() + self.copies.len()
        } else {
            text
        };
        self.batch.texts.push(index(range.start)..index(range.end));
        self.batch.texts.len() as u64 - 1
    }

    fn push_series(&mut self, key: Range<usize>, field: Range<usize>, kind: WordKind, word: u64) {
        let batch = &mut *self.batch;
        let at = index(batch.series.len());
        let raw = index(key.start)..index(key.end);
        batch.series.push(BatchSeries { raw, samples: at..at + 1 });
        batch.kinds.push(kind);
        batch.fields.push(index(field.start)..index(field.end));
        batch.values.push(f64::from_bits(word));
    }

    /// Adds time and row of the series of a line.
    fn finish_line(&mut self, marks: &Marks, time_ns: i64) {
        let batch = &mut *self.batch;
        let count = batch.series.len();
        if count == marks.series + 1 && batch.rows.is_empty() {
            batch.times.push(time_ns);
            return;
        }
        batch.times.resize(count, time_ns);
        if batch.rows.is_empty() {
            batch.rows.extend(0..index(marks.series));
        }
        let row = batch.rows.last().map_or(0, |last| last + 1);
        batch.rows.resize(count, row);
    }

    /// Returns true if the line has the field, or too many fields to look at each.
    fn has_field(&self, marks: &Marks, field: &[u8]) -> bool {
        let fields = self.batch.fields.get(marks.series..).unwrap_or(&[]);
        fields.len() > FIELD_COUNT_MAX
            || fields.iter().any(|range| self.slice(range.start as usize..range.end as usize) == field)
    }

    fn marks(&self) -> Marks {
        Marks { series: self.batch.series.len(), texts: self.batch.texts.len(), copies: self.copies.len() }
    }

    /// Takes back what a line has added.
    fn truncate(&mut self, marks: &Marks) {
        let batch = &mut *self.batch;
        batch.series.truncate(marks.series);
        batch.kinds.truncate(marks.series);
        batch.fields.truncate(marks.series);
        batch.values.truncate(marks.series);
        batch.times.truncate(marks.series);
        batch.rows.truncate(marks.series);
        batch.texts.truncate(marks.texts);
        self.copies.truncate(marks.copies);
    }

    /// Reads any line; `end` is the offset of its newline.
    #[cold]
    #[inline(never)]
    fn any_line(&mut self, start: usize, end: usize) -> Result<(), BudgetExceeded> {
        let start = grammar::skip_whitespace(self.slice(0..end), start);
        let line = self.slice(start..end);
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        if matches!(line.first(), None | Some(b'#')) {
            return Ok(());
        }
        let limit = self.options.line_bytes_max;
        if line.len() > RESERVED_LINE_BYTES && line.len() <= limit {
            self.reserve_line(line)?;
        }
        let parsed = if line.len() > limit {
            Err(Fault::LineTooLong { found: line.len(), limit })
        } else {
            grammar::parse(line, self.options.precision)
        };
        match parsed {
            Ok(parsed) => self.push_parsed(start, &parsed),
            Err(fault) => self.refused.note_unparsable(line, fault),
        }
        Ok(())
    }

    /// Reserves what a long line needs beyond the longest before it.
    fn reserve_line(&mut self, line: &[u8]) -> Result<(), BudgetExceeded> {
        let Some(held) = &mut self.held else { return Ok(()) };
        let more = line_memory_bytes(line).saturating_sub(self.line_held_bytes);
        held.grow(more)?;
        self.line_held_bytes += more;
        Ok(())
    }

    /// Adds a line that starts at `start`, unless it is dropped.
    fn push_parsed(&mut self, start: usize, line: &ParsedLine<'a>) {
        let key = start..start + line.key.len();
        let (_, tags) = split_key(line.key);
        let is_reserved = |tag: &[u8]| RESERVED_TAGS.contains(&&*tag_of(tag));
        if let Some((tag, _)) = TagPairs::new(tags).find(|(tag, _)| is_reserved(tag)) {
            let message = || tag_key_text(&tag_of(tag), &measurement_of(line.key));
            return self.refused.note_dropped(DropReason::InvalidTagKey, message);
        }
        let fields = stored_fields(&line.fields);
        if fields.is_empty() {
            let message = || field_name_text(TIME_NAME, &measurement_of(line.key));
            return self.refused.note_dropped(DropReason::InvalidFieldName, message);
        }
        let limit = self.options.text_bytes_max;
        for (field, value) in &fields {
            let FieldValue::Text(text) = value else { continue };
            let found = if text.len() > limit { unescape(text, TEXT_ESCAPES).len() } else { 0 };
            if found > limit {
                let message =
                    || text_too_long_text(&field_of(field), &measurement_of(line.key), found, limit);
                return self.refused.note_dropped(DropReason::TextTooLong, message);
            }
        }
        let marks = self.marks();
        for (field, value) in fields {
            let field = self.range_of(field);
            let (kind, word) = match value {
                FieldValue::Word(kind, word) => (kind, word),
                FieldValue::Text(text) => (WordKind::Text, self.push_text(self.range_of(text))),
            };
            self.push_series(key.clone(), field, kind, word);
        }
        self.finish_line(&marks, line.time_ns.unwrap_or(self.now_ns));
    }

    /// Returns where `part`, a slice of the body, lies in it.
    fn range_of(&self, part: &[u8]) -> Range<usize> {
        let start = part.as_ptr().addr().wrapping_sub(self.body.as_ptr().addr());
        start..start + part.len()
    }
}

/// Returns the fields that are stored, in the order of the line: of several with one name and type the last,
/// and none named `time`. A name with two types stays in both: the store refuses the point.
fn stored_fields<'a>(fields: &[(&'a [u8], FieldValue<'a>)]) -> Vec<(&'a [u8], FieldValue<'a>)> {
    let named = fields.iter().enumerate();
    let mut by_name: Vec<_> =
        named.map(|(idx, (field, value))| (field_of(field), idx, *field, *value)).collect();
    by_name.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
    let kind_of = |value: &FieldValue<'_>| match value {
        FieldValue::Word(kind, _) => *kind,
        FieldValue::Text(_) => WordKind::Text,
    };
    let mut first = 0;
    let mut kept: Vec<_> = Vec::with_capacity(by_name.len());
    for field in by_name {
        if kept.get(first).is_some_and(|known: &(_, _, _, _)| known.0 != field.0) {
            first = kept.len();
        }
        // Kinds are few, and so are the kept fields of one name.
        let of_name = kept.get(first..).unwrap_or_default();
        if !of_name.iter().any(|known| kind_of(&known.3) == kind_of(&field.3)) {
            kept.push(field);
        }
    }
    let mut by_name = kept;
    by_name.retain(|(name, ..)| **name != *TIME_NAME);
    by_name.sort_unstable_by_key(|field| field.1);
    by_name.into_iter().map(|(_, _, field, value)| (field, value)).collect()
}

/// Returns kind and word of a value without quotes.
fn usual_word(text: &[u8]) -> Option<(WordKind, u64)> {
    let first = *text.first()?;
    let last = *text.last()?;
    match last {
        b'0'..=b'9' | b'.' => Some((WordKind::Float, number::float(text)?.to_bits())),
        b'i' => {
            let value = number::integer(text.strip_suffix(b"i")?)?;
            Some((WordKind::Integer, word_of_integer(value)))
        }
        b'u' => {
            let value = number::unsigned(text.strip_suffix(b"u")?)?;
            Some((WordKind::Unsigned, word_of_unsigned(value)))
        }
        _ => {
            let is_boolean = matches!(first, b't' | b'f' | b'T' | b'F');
            let value = grammar::boolean(text).filter(|_| is_boolean)?;
            Some((WordKind::Boolean, f64::from(u8::from(value)).to_bits()))
        }
    }
}

/// Bodies and the copies after them stay below [`super::BODY_BYTES_MAX`] each.
fn index(at: usize) -> u32 {
    u32::try_from(at).expect("offsets into a request fit u32")
}
