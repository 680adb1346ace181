//! Grammar of series, values and exemplars in the text formats, read in one pass over whole lines.
//!
//! Invariants: accepts what Prometheus's parsers accept, but for raw newlines in quotes; names and label
//! values are UTF-8; no token reaches beyond the newline of its line, and every line has one. Offsets are
//! offsets of the bytes that the parser was called with.
//! Not here: comments (`metadata`), unescaping (`labels`).

use std::ops::Range;

use super::fault::{Fault, What};
use super::value;

/// Bytes that may start or continue a name, as bits of [`CLASSES`].
const LABEL_START: u8 = 1;
const LABEL_REST: u8 = 2;
const METRIC_START: u8 = 4;
const METRIC_REST: u8 = 8;
/// Class of each byte.
const CLASSES: [u8; 256] = classes();

const fn classes() -> [u8; 256] {
    let mut out = [0; 256];
    let mut byte = 0;
    while byte < 128 {
        out[byte] = match byte as u8 {
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => LABEL_START | LABEL_REST | METRIC_START | METRIC_REST,
            b'0'..=b'9' => LABEL_REST | METRIC_REST,
            b':' => METRIC_START | METRIC_REST,
            _ => 0,
        };
        byte += 1;
    }
    out
}

/// Differences between the text formats.
pub(super) trait Dialect {
    /// Set for OpenMetrics: single spaces, no blanks within braces, commas between labels.
    const IS_OPEN_METRICS: bool;
}

/// Text format 0.0.4.
pub(super) struct Text;

impl Dialect for Text {
    const IS_OPEN_METRICS: bool = false;
}

/// OpenMetrics 1.0: no blanks but single spaces, commas between labels.
pub(super) struct OpenMetrics;

impl Dialect for OpenMetrics {
    const IS_OPEN_METRICS: bool = true;
}

/// Name and labels of a series.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Series {
    /// Metric name, without quotes.
    pub(super) name: Range<usize>,
    /// End of the name or of the closing brace.
    pub(super) end: usize,
}

/// Sample of one line.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Sample {
    pub(super) series: Series,
    pub(super) value: f64,
    pub(super) time_ms: Option<i64>,
    /// Start of the exemplar's labels, at the brace.
    pub(super) exemplar: Option<usize>,
    /// Start of the next line.
    pub(super) next: usize,
}

/// Labels of a series, in the order of the line.
pub(super) trait LabelVisitor {
    /// Takes one label of `bytes`, without quotes and not unescaped.
    fn label(&mut self, bytes: &[u8], name: Range<usize>, value: Range<usize>) -> Result<(), Fault>;
}

/// Byte at an offset; a newline after the end.
fn byte(bytes: &[u8], at: usize) -> u8 {
    bytes.get(at).copied().unwrap_or(b'\n')
}

/// Returns the bytes of a range that the parser has found.
pub(super) fn slice(bytes: &[u8], range: Range<usize>) -> &[u8] {
    bytes.get(range).unwrap_or(&[])
}

fn fault<T>(at: usize, what: What) -> Result<T, Fault> {
    Err(Fault { at, what })
}

/// Returns the end of a run of bytes of a class.
fn run_end(bytes: &[u8], start: usize, class: u8) -> usize {
    let rest = bytes.get(start..).unwrap_or(&[]);
    let len = rest.iter().position(|&byte| CLASSES[usize::from(byte)] & class == 0);
    len.map_or(bytes.len(), |len| start + len)
}

fn is_class(byte: u8, class: u8) -> bool {
    CLASSES[usize::from(byte)] & class != 0
}

/// Returns the end of the metric name at `start`, `start` if there is none.
pub(super) fn metric_name_end(bytes: &[u8], start: usize) -> usize {
    if is_class(byte(bytes, start), METRIC_START) { run_end(bytes, start, METRIC_REST) } else { start }
}

/// Returns the offset after blanks; OpenMetrics has none there.
// PERF: nothing in OpenMetrics, one compare elsewhere; called between all tokens.
#[inline]
fn skip_blanks<D: Dialect>(bytes: &[u8], start: usize) -> usize {
    let mut at = start;
    while !D::IS_OPEN_METRICS && matches!(byte(bytes, at), b' ' | b'\t') {
        at += 1;
    }
    at
}

/// Returns the offset of the closing quote; `at` is the opening one.
// PERF: eight bytes at once: label values are the longest part of a line.
//   cargo bench -p chronolith-ingest --bench exposition_speed
pub(super) fn quote_end(bytes: &[u8], at: usize, missing: What) -> Result<usize, Fault> {
    debug_assert_eq!(byte(bytes, at), b'"', "quotes open a text");
    let start = at + 1;
    let mut end = start;
    let mut is_ascii = true;
    loop {
        let rest = bytes.get(end..).unwrap_or(&[]);
        if let Some(eight) = rest.first_chunk::<8>() {
            let stops = quote_stops(u64::from_le_bytes(*eight));
            if stops == 0 {
                end += 8;
                continue;
            }
            end += stops.trailing_zeros() as usize / 8;
        }
        match byte(bytes, end) {
            b'"' => break,
            b'\n' => return fault(at, missing),
            b'\\' if byte(bytes, end + 1) == b'\n' => return fault(at, missing),
            b'\\' => {
                is_ascii &= byte(bytes, end + 1) < 0x80;
                end += 2;
            }
            other => {
                is_ascii &= other < 0x80;
                end += 1;
            }
        }
    }
    if !is_ascii && std::str::from_utf8(slice(bytes, start..end)).is_err() {
        return fault(at, What::Utf8);
    }
    Ok(end)
}

/// Returns the high bit of each byte that ends plain text: quote, backslash, newline, not ASCII. Bits
/// above the lowest one may be wrong.
fn quote_stops(word: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGHS: u64 = 0x8080_8080_8080_8080;
    let zeros = |word: u64| word.wrapping_sub(ONES) & !word;
    let equal = |byte: u8| zeros(word ^ (ONES * u64::from(byte)));
    (equal(b'"') | equal(b'\\') | equal(b'\n') | word) & HIGHS
}

/// Reads name and labels at `start`.
pub(super) fn series<D: Dialect>(
    bytes: &[u8],
    start: usize,
    visitor: &mut impl LabelVisitor,
) -> Result<Series, Fault> {
    let name_end = metric_name_end(bytes, start);
    let mut name = None;
    let mut brace = start;
    if name_end > start {
        name = Some(start..name_end);
        brace = skip_blanks::<D>(bytes, name_end);
        if byte(bytes, brace) != b'{' {
            return Ok(Series { name: start..name_end, end: name_end });
        }
    } else if byte(bytes, start) != b'{' {
        return fault(start, What::Start);
    }
    let end = label_set::<D, false>(bytes, brace, &mut name, visitor)?;
    match name {
        Some(name) => Ok(Series { name, end }),
        None => fault(start, What::NameNotSet),
    }
}

/// Reads labels in braces at `brace`; a name in quotes among them that no value follows becomes `metric`.
/// Returns the offset after the closing brace.
fn label_set<D: Dialect, const IS_EXEMPLAR: bool>(
    bytes: &[u8],
    brace: usize,
    metric: &mut Option<Range<usize>>,
    visitor: &mut impl LabelVisitor,
) -> Result<usize, Fault> {
    debug_assert_eq!(byte(bytes, brace), b'{', "a brace opens labels");
    let mut at = skip_blanks::<D>(bytes, brace + 1);
    loop {
        let start = at;
        let first = byte(bytes, at);
        let name = match first {
            b'}' => return Ok(at + 1),
            b'"' => start + 1..quote_end(bytes, start, What::LabelName)?,
            _ if is_class(first, LABEL_START) => start..run_end(bytes, start, LABEL_REST),
            _ => return fault(start, What::LabelName),
        };
        let name_end = name.end + usize::from(first == b'"');
        at = skip_blanks::<D>(bytes, name_end);
        let after = byte(bytes, at);
        if first == b'"' && !IS_EXEMPLAR && matches!(after, b',' | b'}') {
            if metric.is_some() {
                return fault(start, What::NameSetTwice);
            }
            if name.is_empty() {
                return fault(start, What::NameEmpty);
            }
            *metric = Some(name);
            at += 1;
            if after == b'}' {
                return Ok(at);
            }
            at = skip_blanks::<D>(bytes, at);
            continue;
        }
        if after != b'=' {
            return fault(at, if IS_EXEMPLAR && first == b'"' { What::LabelName } else { What::Equal });
        }
        let quote = skip_blanks::<D>(bytes, at + 1);
        if byte(bytes, quote) != b'"' {
            return fault(quote, What::LabelValue);
        }
        if name.is_empty() {
            return fault(start, What::NameEmpty);
        }
        let value_end = quote_end(bytes, quote, What::LabelValue)?;
        visitor.label(bytes, name, quote + 1..value_end)?;
        at = skip_blanks::<D>(bytes, value_end + 1);
        match byte(bytes, at) {
            b',' => at = skip_blanks::<D>(bytes, at + 1),
            b'}' => {}
            _ if D::IS_OPEN_METRICS => return fault(at, What::CommaOrBrace),
            _ => {}
        }
    }
}

/// Reads labels in braces at the start of `bytes`, without a metric name. Returns the offset after them.
pub(super) fn labels_in_braces(bytes: &[u8], visitor: &mut impl LabelVisitor) -> Result<usize, Fault> {
    if byte(bytes, 0) != b'{' {
        return fault(0, What::Start);
    }
    label_set::<Text, true>(bytes, 0, &mut None, visitor)
}

/// Reads the sample line at `start`.
pub(super) fn sample<D: Dialect>(
    bytes: &[u8],
    start: usize,
    visitor: &mut impl LabelVisitor,
) -> Result<Sample, Fault> {
    let series = series::<D>(bytes, start, visitor)?;
    if D::IS_OPEN_METRICS { open_metrics_rest(bytes, series) } else { text_rest(bytes, series) }
}

/// Returns the end of a token that ends before a blank or newline.
fn token_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start;
    while !matches!(byte(bytes, at), b' ' | b'\t' | b'\n') {
        at += 1;
    }
    at
}

/// Returns the end of a token of OpenMetrics, in which a tab is a byte as others.
fn spaced_token_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start;
    while !matches!(byte(bytes, at), b' ' | b'\n') {
        at += 1;
    }
    at
}

/// Reads value and timestamp of text format 0.0.4.
fn text_rest(bytes: &[u8], series: Series) -> Result<Sample, Fault> {
    let start = skip_blanks::<Text>(bytes, series.end);
    let end = token_end(bytes, start);
    let text = slice(bytes, start..end);
    if text.is_empty() || text.first() == Some(&b'{') {
        return fault(start, What::ValueAfterMetric);
    }
    let value = value::float(text).or_else(|what| fault(start, what))?;
    let mut at = skip_blanks::<Text>(bytes, end);
    let mut time_ms = None;
    if byte(bytes, at).is_ascii_digit() {
        let rest = bytes.get(at..).unwrap_or(&[]);
        let len = rest.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(rest.len());
        time_ms = Some(value::milliseconds(slice(bytes, at..at + len)).or_else(|what| fault(at, what))?);
        at = skip_blanks::<Text>(bytes, at + len);
        if byte(bytes, at) != b'\n' {
            return fault(at, What::EntryAfterTimestamp);
        }
    } else if byte(bytes, at) != b'\n' {
        return fault(at, What::TimestampOrRecord);
    }
    Ok(Sample { series, value, time_ms, exemplar: None, next: at + 1 })
}

/// Reads value, timestamp and the start of the exemplar of OpenMetrics.
fn open_metrics_rest(bytes: &[u8], series: Series) -> Result<Sample, Fault> {
    let start = series.end;
    let end = spaced_token_end(bytes, start + 1);
    if byte(bytes, start) != b' ' || end == start + 1 {
        return fault(start, What::ValueAfterMetric);
    }
    let value = value::float(slice(bytes, start + 1..end)).or_else(|what| fault(start + 1, what))?;
    let mut at = end;
    let mut time_ms = None;
    if byte(bytes, at) == b' ' && !is_exemplar_start(bytes, at) {
        let end = spaced_token_end(bytes, at + 1);
        if end == at + 1 {
            return fault(at, What::TimestampOrRecord);
        }
        let text = slice(bytes, at + 1..end);
        time_ms = Some(value::seconds(text).or_else(|what| fault(at + 1, what))?);
        at = end;
    }
    if byte(bytes, at) == b'\n' {
        return Ok(Sample { series, value, time_ms, exemplar: None, next: at + 1 });
    }
    if !is_exemplar_start(bytes, at) {
        return fault(at, What::EntryAfterTimestamp);
    }
    // The caller reads the exemplar, and finds the next line after it.
    Ok(Sample { series, value, time_ms, exemplar: Some(at + 3), next: at })
}

fn is_exemplar_start(bytes: &[u8], at: usize) -> bool {
    bytes.get(at..).is_some_and(|rest| rest.starts_with(b" # {"))
}

/// Value and time of an exemplar, and the start of the next line.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct ExemplarRest {
    pub(super) value: f64,
    pub(super) time_ms: Option<i64>,
    pub(super) next: usize,
}

/// Reads the exemplar whose labels start at `brace`, up to the end of the line.
pub(super) fn exemplar(
    bytes: &[u8],
    brace: usize,
    visitor: &mut impl LabelVisitor,
) -> Result<ExemplarRest, Fault> {
    let start = label_set::<OpenMetrics, true>(bytes, brace, &mut None, visitor)?;
    let end = spaced_token_end(bytes, start + 1);
    if byte(bytes, start) != b' ' || end == start + 1 {
        return fault(start, What::ValueAfterExemplar);
    }
    let value = value::float(slice(bytes, start + 1..end)).or_else(|what| fault(start + 1, what))?;
    let mut at = end;
    let mut time_ms = None;
    if byte(bytes, at) == b' ' {
        let end = spaced_token_end(bytes, at + 1);
        let text = slice(bytes, at + 1..end);
        let time = value::seconds(text).map_err(|_| Fault { at: at + 1, what: What::ExemplarTimestamp });
        time_ms = Some(time?);
        at = end;
    }
    if byte(bytes, at) != b'\n' {
        return fault(at, What::EntryAfterExemplar);
    }
    Ok(ExemplarRest { value, time_ms, next: at + 1 })
}
