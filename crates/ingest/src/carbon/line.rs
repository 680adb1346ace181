//! Plaintext: lines of path, value and time. Lines of the usual form are read from structural byte to
//! structural byte, all others field by field.
//!
//! Invariants: the usual form is accepted only if the field-by-field reader gives the same point; a bad line
//! refuses itself alone. Tags of a known series are neither parsed nor checked: a line takes the slow path
//! only for tags out of order, so that a sender with a random order of tags makes one wire key per series.
//! Not here: sockets and the unfinished line at the end of a read, which the caller keeps.

use crate::number;
use crate::structural::{ByteClass, StructuralBytes};

use super::limits::{LINE_BYTES_MAX, NODE_BYTES_MAX};
use super::points::{PointWriter, check_path};
use super::refused::RefusedReason;
use super::{float, time};

/// End of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputEnd {
    /// More bytes follow: a line without a newline is unfinished.
    Open,
    /// A connection, datagram or body ends: the last line needs no newline.
    Closed,
}

/// Reader of the lines of one connection, datagram or body.
#[derive(Debug, Default)]
pub struct LineDecoder {
    /// Set inside of a line that was refused for its length.
    is_in_long_line: bool,
}

impl LineDecoder {
    /// A reader at the start of a line.
    #[must_use]
    pub fn new() -> LineDecoder {
        LineDecoder::default()
    }

    /// Appends the points of all lines of `input` to `points`. Returns the number of bytes that were read:
    /// the caller puts those after them, fewer than [`LINE_BYTES_MAX`], in front of the next input. All are
    /// read if the input is [`InputEnd::Closed`].
    ///
    /// Cost: one pass. The columns grow by 32 bytes per line, and by the input for its paths.
    ///
    /// # Panics
    /// If the input is larger than [`super::INPUT_BYTES_MAX`], or the batch has more than
    /// [`super::BATCH_BYTES_MAX`] bytes of wire keys.
    pub fn decode(&mut self, input: &[u8], end: InputEnd, points: &mut PointWriter<'_>) -> usize {
        let Some(start) = self.skip_long_line(input, end) else { return input.len() };
        let walked = walk(input, start, points);
        let rest = input.get(walked..).unwrap_or(&[]);
        if rest.is_empty() {
            return input.len();
        }
        match end {
            InputEnd::Closed => any_line(rest, points),
            InputEnd::Open if rest.len() <= LINE_BYTES_MAX => return walked,
            InputEnd::Open => {
                points.refuse(RefusedReason::LineTooLong, rest);
                self.is_in_long_line = true;
            }
        }
        input.len()
    }

    /// Returns the start of the first line to read; `None` if the refused line does not end.
    fn skip_long_line(&mut self, input: &[u8], end: InputEnd) -> Option<usize> {
        if !self.is_in_long_line {
            return Some(0);
        }
        let newline = input.iter().position(|byte| *byte == b'\n');
        self.is_in_long_line = newline.is_none() && end == InputEnd::Open;
        newline.map(|at| at + 1)
    }
}

/// Bytes that end a field, start a tag, or need a closer look: blanks and control characters, semicolon,
/// brace, tilde, and bytes outside of ASCII.
struct Delimiters;

impl ByteClass for Delimiters {
    fn flag(byte: u8) -> u8 {
        u8::from(byte <= b' ') | u8::from(byte == b';') | u8::from(byte >= b'{')
    }
}

/// A line of the usual form; offsets are offsets of the input.
struct UsualLine {
    path_end: usize,
    value: f64,
    time_ms: i64,
    next: usize,
}

/// Reads all lines that end with a newline from `start` on. Returns the offset after them.
fn walk(input: &[u8], start: usize, points: &mut PointWriter<'_>) -> usize {
    let base = points.begin(input);
    let keeps_paths = points.keeps_paths();
    let mut structural = StructuralBytes::<Delimiters>::new(input);
    let mut start = start;
    if start > 0 {
        structural.seek(start);
    }
    while start < input.len() {
        if let Some(line) = usual_line(input, start, &mut structural) {
            if keeps_paths {
                points.push_kept(base + start..base + line.path_end, line.value, line.time_ms);
            } else {
                points.push_path(slice(input, start, line.path_end), line.value, line.time_ms);
            }
            start = line.next;
            continue;
        }
        let rest = input.get(start..).unwrap_or(&[]);
        let Some(len) = rest.iter().position(|byte| *byte == b'\n') else { return start };
        any_line(slice(rest, 0, len), points);
        start += len + 1;
        structural.seek(start);
    }
    start
}

/// Reads the line at `start` if it has one blank between path, value and seconds or milliseconds, and tags in
/// order.
// PERF: inlined into the loop over the lines; the other lines are out of line.
//   cargo bench -p chronolith-ingest --bench carbon_speed
#[inline]
fn usual_line(
    input: &[u8],
    start: usize,
    structural: &mut StructuralBytes<'_, Delimiters>,
) -> Option<UsualLine> {
    let mut path_end = structural.next();
    if byte(input, path_end) != b' ' {
        path_end = tagged_path_end(input, path_end, structural)?;
    }
    // Paths of dots only, and nodes that are too long, are found by the slow reader.
    if path_end - start > NODE_BYTES_MAX || path_end == start || byte(input, start) == b'.' {
        return None;
    }
    let value_end = structural.next();
    let mut line_end = structural.next();
    let time_end = line_end;
    if byte(input, line_end) == b'\r' {
        line_end = structural.next();
    }
    let ends_line = byte(input, line_end) == b'\n' && line_end - time_end <= 1;
    if byte(input, value_end) != b' ' || !ends_line || line_end - start > LINE_BYTES_MAX {
        return None;
    }
    let value = number::float(slice(input, path_end + 1, value_end))?;
    let digits = number::unsigned(slice(input, value_end + 1, time_end))?;
    Some(UsualLine { path_end, value, time_ms: time::from_digits(digits)?, next: line_end + 1 })
}

/// Returns the end of a path whose first tag starts at `semicolon`, if the tags ascend.
fn tagged_path_end(
    input: &[u8],
    semicolon: usize,
    structural: &mut StructuralBytes<'_, Delimiters>,
) -> Option<usize> {
    let mut before: &[u8] = &[];
    let mut start = semicolon;
    while byte(input, start) == b';' {
        let end = structural.next();
        let tag = slice(input, start + 1, end);
        if tag <= before {
            return None;
        }
        before = tag;
        start = end;
    }
    (byte(input, start) == b' ').then_some(start)
}

/// Reads a line of any form, without its newline.
#[cold]
#[inline(never)]
fn any_line(line: &[u8], points: &mut PointWriter<'_>) {
    if let Err(reason) = fields_of_line(line, points) {
        points.refuse(reason, line);
    }
}

fn fields_of_line(line: &[u8], points: &mut PointWriter<'_>) -> Result<(), RefusedReason> {
    if line.len() > LINE_BYTES_MAX {
        return Err(RefusedReason::LineTooLong);
    }
    let mut fields = line.split(is_blank).filter(|field| !field.is_empty());
    let Some(path) = fields.next() else { return Ok(()) };
    let value = fields.next().ok_or(RefusedReason::MissingValue)?;
    let time = fields.next();
    if fields.next().is_some() {
        return Err(RefusedReason::TooManyFields);
    }
    let path = check_path(path)?;
    let value = float::parse(value).ok_or(RefusedReason::BadValue)?;
    let time_ms = match time {
        Some(text) => time::parse(text, points.now_ms())?,
        None => points.now_ms(),
    };
    if value.is_nan() {
        return Err(RefusedReason::Nan);
    }
    points.push_checked(&path, value, time_ms);
    Ok(())
}

/// Returns true if Python's `str.split` separates fields at this byte.
fn is_blank(byte: &u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\x0b' | b'\x0c' | b'\x1c'..=b'\x1f')
}

/// Byte at an offset; a zero after the end.
fn byte(bytes: &[u8], at: usize) -> u8 {
    bytes.get(at).copied().unwrap_or(0)
}

fn slice(bytes: &[u8], start: usize, end: usize) -> &[u8] {
    bytes.get(start..end).unwrap_or(&[])
}

#[cfg(test)]
mod tests;
