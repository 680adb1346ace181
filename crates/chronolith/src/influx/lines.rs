//! Lines of a file of any length: physical lines, and points, whose texts may have newlines.
//!
//! Invariants: memory is bounded by the longest point ([`POINT_BYTES_MAX`]); lines before damage of the input
//! are returned before the error, a last line that damage cut is not.
//! Not here: sections and contexts (`file`), the grammar of points (`chronolith-ingest`).

use std::io::{self, Read};

/// Bytes that are read at a time.
const READ_BYTES: usize = 256 << 10;
/// Longest point; beyond it, a quote is taken as unbalanced.
const POINT_BYTES_MAX: usize = 16 << 20;

/// Reader of lines.
pub(crate) struct LineReader<R> {
    input: R,
    buffer: Vec<u8>,
    /// Start of the next line in the buffer.
    start: usize,
    /// Offset of the next line in the input.
    offset: u64,
    /// Number of the next line, from 1.
    line_number: u64,
    is_ended: bool,
    /// Error of the input, once it has failed.
    failure: Option<io::Error>,
}

impl<R: Read> LineReader<R> {
    pub(crate) fn new(input: R) -> LineReader<R> {
        LineReader {
            input,
            buffer: Vec::new(),
            start: 0,
            offset: 0,
            line_number: 1,
            is_ended: false,
            failure: None,
        }
    }

    /// Offset of the next line.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Number of the next line, from 1.
    pub(crate) fn line_number(&self) -> u64 {
        self.line_number
    }

    /// Returns the next line without its newline, and leaves it to be consumed; `None` at the end.
    pub(crate) fn line(&mut self) -> io::Result<Option<&[u8]>> {
        self.next_by(|bytes| bytes.iter().position(|byte| *byte == b'\n'))
    }

    /// Returns the next point without its newline, and leaves it to be consumed; `None` at the end.
    pub(crate) fn point(&mut self) -> io::Result<Option<&[u8]>> {
        self.next_by(point_end)
    }

    /// Goes on after a line or point of this length.
    pub(crate) fn consume(&mut self, len: usize) {
        let end = (self.start + len + 1).min(self.buffer.len());
        let consumed = self.buffer.get(self.start..end).unwrap_or(&[]);
        self.line_number += consumed.iter().filter(|byte| **byte == b'\n').count() as u64;
        self.offset += consumed.len() as u64;
        self.start = end;
    }

    fn next_by(&mut self, end: impl Fn(&[u8]) -> Option<usize>) -> io::Result<Option<&[u8]>> {
        loop {
            let rest = self.buffer.get(self.start..).unwrap_or(&[]);
            let mut found = end(rest);
            if found.is_none() && rest.len() > POINT_BYTES_MAX {
                found = rest.iter().position(|byte| *byte == b'\n').or(Some(rest.len()));
            }
            if found.is_none() && self.is_ended {
                if let Some(error) = self.failure.take() {
                    return Err(error);
                }
                found = (!rest.is_empty()).then_some(rest.len());
                if found.is_none() {
                    return Ok(None);
                }
            }
            if let Some(len) = found {
                return Ok(self.buffer.get(self.start..self.start + len));
            }
            self.fill();
        }
    }

    fn fill(&mut self) {
        self.buffer.drain(..self.start);
        self.start = 0;
        let len = self.buffer.len();
        self.buffer.resize(len + READ_BYTES, 0);
        let read = match self.buffer.get_mut(len..) {
            Some(free) => self.input.read(free),
            None => Ok(0),
        };
        let read = read.unwrap_or_else(|error| {
            self.failure = Some(error);
            0
        });
        self.is_ended = read == 0;
        self.buffer.truncate(len + read);
    }
}

/// Returns the offset of the newline that ends the first point: one outside of quotes, which hide newlines
/// only where the value of a field can be: after a space, with more equals signs than commas.
fn point_end(bytes: &[u8]) -> Option<usize> {
    let first = bytes.iter().position(|byte| *byte == b'\n')?;
    let line = bytes.get(..first).unwrap_or(&[]);
    if !line.contains(&b'"') && line.last() != Some(&b'\\') {
        return Some(first);
    }
    let mut at = bytes.iter().take_while(|byte| matches!(byte, b' ' | b'\t' | 0)).count();
    let mut has_space = false;
    let mut is_quoted = false;
    let mut equals_count = 0usize;
    let mut comma_count = 0usize;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'\\' => at += 1,
            b' ' => has_space = true,
            b'=' if has_space && !is_quoted => equals_count += 1,
            b',' if has_space && !is_quoted => comma_count += 1,
            b'"' if has_space && equals_count > comma_count => is_quoted = !is_quoted,
            b'\n' if !is_quoted => return Some(at),
            _ => {}
        }
        at += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that come a few at a time, then the end or an error.
    struct Slow<'a> {
        bytes: &'a [u8],
        fails: bool,
    }

    impl Read for Slow<'_> {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            if self.bytes.is_empty() && self.fails {
                return Err(io::ErrorKind::InvalidData.into());
            }
            let len = self.bytes.len().min(3).min(out.len());
            out[..len].copy_from_slice(&self.bytes[..len]);
            self.bytes = &self.bytes[len..];
            Ok(len)
        }
    }

    fn points(bytes: &[u8], fails: bool) -> (Vec<String>, bool) {
        let mut reader = LineReader::new(Slow { bytes, fails });
        let mut found = Vec::new();
        loop {
            let point = match reader.point() {
                Ok(Some(point)) => point.to_vec(),
                Ok(None) => {
                    assert_eq!(reader.offset(), bytes.len() as u64);
                    return (found, true);
                }
                Err(_) => return (found, false),
            };
            reader.consume(point.len());
            found.push(String::from_utf8(point).expect("UTF-8"));
        }
    }

    #[test]
    fn newlines_in_texts_do_not_split_points() {
        let text = "m s=\"a\nb\\\"\n\" 1\nm v=1\n\"m\",t=\" v=1\nm v=2";
        let want = ["m s=\"a\nb\\\"\n\" 1", "m v=1", "\"m\",t=\" v=1", "m v=2"];
        let (found, is_whole) = points(text.as_bytes(), false);
        assert_eq!((found.as_slice(), is_whole), (want.map(str::to_owned).as_slice(), true));
    }

    #[test]
    fn lines_before_damage_are_returned_and_a_cut_one_is_not() {
        let (found, is_whole) = points(b"m v=1\nm v=2\nm v=3", true);
        assert_eq!((found, is_whole), (vec!["m v=1".to_owned(), "m v=2".to_owned()], false));
    }

    #[test]
    fn lines_are_numbered() {
        let mut reader = LineReader::new(&b"a\n\"b\nc"[..]);
        let mut numbers = Vec::new();
        while let Some(len) = reader.line().expect("no damage").map(<[u8]>::len) {
            numbers.push((reader.line_number(), reader.offset()));
            reader.consume(len);
        }
        assert_eq!(numbers, [(1, 0), (2, 2), (3, 5)]);
    }
}
