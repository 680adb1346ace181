//! Payloads of warnings and failures.
//!
//! Invariant: texts are cut at [`TEXT_BYTES_MAX`], so that they fit a frame.

use std::time::Duration;

use chronolith_base::bytes::put_uvarint;
use chronolith_base::{ByteReader, DecodeError};
use chronolith_model::query::SelectionExceeded;

use super::content::{AnswerWarnings, SelectFailure};
use crate::lists::{put_list, put_text, read_list, read_text};
use crate::record::{expect_end, invalid};

/// Bytes of the longest text of a warning or failure.
const TEXT_BYTES_MAX: usize = 16 << 10;

const WHAT: &str = "failure of a select answer";

/// Returns the longest prefix of at most [`TEXT_BYTES_MAX`] bytes.
fn cut(text: &str) -> &str {
    text.get(..text.floor_char_boundary(TEXT_BYTES_MAX)).unwrap_or_default()
}

/// Appends the warnings of an answer.
pub(super) fn put_warnings(warnings: &AnswerWarnings, out: &mut Vec<u8>) {
    out.push(warnings.is_partial.into());
    put_list(out, &warnings.texts, |out, text| put_text(out, cut(text)));
}

/// Reads the warnings of an answer.
///
/// # Errors
/// [`DecodeError`].
pub(super) fn read_warnings(payload: &[u8]) -> Result<AnswerWarnings, DecodeError> {
    let what = "warnings of a select answer";
    let mut reader = ByteReader::new(payload);
    let flag = reader.u8(what)?;
    if flag > 1 {
        return Err(invalid(what, 0, "0 or 1", flag.into()));
    }
    let texts = read_list(&mut reader, what, |reader| read_text(reader, what))?;
    expect_end(&reader, what)?;
    Ok(AnswerWarnings { is_partial: flag == 1, texts })
}

fn put_text_of(code: u8, text: &str, out: &mut Vec<u8>) {
    out.push(code);
    put_text(out, cut(text));
}

fn put_file(code: u8, path: &str, what: &str, out: &mut Vec<u8>) {
    put_text_of(code, path, out);
    put_text(out, cut(what));
}

fn put_numbers(code: u8, numbers: [u64; 2], out: &mut Vec<u8>) {
    out.push(code);
    numbers.into_iter().for_each(|number| put_uvarint(out, number));
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Appends the failure of an answer.
pub(super) fn put_failure(failure: &SelectFailure, out: &mut Vec<u8>) {
    match failure {
        SelectFailure::Canceled => out.push(0),
        SelectFailure::Timeout => out.push(1),
        SelectFailure::Memory { what } => put_text_of(2, what, out),
        SelectFailure::Limit { what, limit } => {
            put_text_of(3, what, out);
            put_uvarint(out, *limit);
        }
        SelectFailure::Selection(SelectionExceeded::Series { used, limit }) => {
            put_numbers(4, [*used, *limit], out);
        }
        SelectFailure::Selection(SelectionExceeded::Samples { used, limit }) => {
            put_numbers(5, [*used, *limit], out);
        }
        SelectFailure::Selection(SelectionExceeded::Range { used, limit }) => {
            put_numbers(6, [nanos(*used), nanos(*limit)], out);
        }
        SelectFailure::Corrupt { path, what } => put_file(7, path, what, out),
        SelectFailure::Io { path, what } => put_file(8, path, what, out),
        SelectFailure::Unavailable { what } => put_text_of(9, what, out),
    }
}

/// Reads the failure of an answer.
///
/// # Errors
/// [`DecodeError`].
pub(super) fn read_failure(payload: &[u8]) -> Result<SelectFailure, DecodeError> {
    let mut reader = ByteReader::new(payload);
    let code = reader.u8(WHAT)?;
    let failure = match code {
        0 => SelectFailure::Canceled,
        1 => SelectFailure::Timeout,
        2 => SelectFailure::Memory { what: read_text(&mut reader, WHAT)? },
        3 => SelectFailure::Limit { what: read_text(&mut reader, WHAT)?, limit: reader.uvarint(WHAT)? },
        4..=6 => SelectFailure::Selection(read_exceeded(code, &mut reader)?),
        7 => SelectFailure::Corrupt {
            path: read_text(&mut reader, WHAT)?,
            what: read_text(&mut reader, WHAT)?,
        },
        8 => SelectFailure::Io { path: read_text(&mut reader, WHAT)?, what: read_text(&mut reader, WHAT)? },
        9 => SelectFailure::Unavailable { what: read_text(&mut reader, WHAT)? },
        other => return Err(invalid(WHAT, 0, "0 to 9", other.into())),
    };
    expect_end(&reader, WHAT)?;
    Ok(failure)
}

fn read_exceeded(code: u8, reader: &mut ByteReader<'_>) -> Result<SelectionExceeded, DecodeError> {
    let used = reader.uvarint(WHAT)?;
    let limit = reader.uvarint(WHAT)?;
    Ok(match code {
        4 => SelectionExceeded::Series { used, limit },
        5 => SelectionExceeded::Samples { used, limit },
        _ => {
            SelectionExceeded::Range { used: Duration::from_nanos(used), limit: Duration::from_nanos(limit) }
        }
    })
}
