//! Postings lists: refs of the series that have a label pair.

use chronolith_base::{ByteReader, DecodeError};

use super::frame::framed;
use crate::block::file_offset::in_file;

const LENGTH_BYTES: u64 = 4;
const CHECKSUM_BYTES: u64 = 4;

/// A verified postings list: series refs, ascending.
pub struct Postings<'a> {
    refs: &'a [u8],
}

impl Postings<'_> {
    /// The list of a label pair that no series has.
    pub const EMPTY: Postings<'static> = Postings { refs: &[] };

    /// Number of series.
    #[must_use]
    pub fn len(&self) -> usize {
        self.refs.len() / 4
    }

    /// Returns true if no series is listed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.refs.is_empty()
    }

    /// The refs, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        self.refs.as_chunks::<4>().0.iter().map(|b| u32::from_be_bytes(*b))
    }
}

/// Decodes the list that `bytes` begin with; they start at `file_offset` and may go on after the list.
/// Cost: two passes over the list.
///
/// # Errors
/// [`DecodeError`] with an offset of the file if the list is damaged or its refs do not ascend.
pub fn decode_postings(bytes: &[u8], file_offset: u64) -> Result<Postings<'_>, DecodeError> {
    decode(bytes).map_err(|error| in_file(error, file_offset))
}

fn decode(bytes: &[u8]) -> Result<Postings<'_>, DecodeError> {
    let mut r = framed(bytes, 0, "postings list")?;
    let at = r.offset();
    let count = r.be_u32("postings count")? as usize;
    let refs = r.bytes("postings", count.saturating_mul(4))?;
    if !r.is_empty() {
        let (what, expected) = ("postings count", "as many as the list has room for");
        return Err(DecodeError::Invalid { what, offset: at, expected, found: count as u64 });
    }
    let postings = Postings { refs };
    if !postings.iter().is_sorted_by(|a, b| a < b) {
        let (what, expected) = ("postings", "ascending series refs");
        return Err(DecodeError::Invalid { what, offset: at, expected, found: count as u64 });
    }
    Ok(postings)
}

/// Returns the number of bytes of the list that `bytes` begin with; `None` if there are too few bytes to
/// tell.
#[must_use]
pub fn postings_len(bytes: &[u8]) -> Option<u64> {
    let len = ByteReader::new(bytes).be_u32("postings list").ok()?;
    Some(LENGTH_BYTES + u64::from(len) + CHECKSUM_BYTES)
}
