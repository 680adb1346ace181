//! Body of an answer: pieces as they come, checked against the length that the answer promised.
//!
//! Invariants: bytes are handed out only if their count is right, so a cut body is a failure, never a short
//! answer.

use bytes::{Bytes, BytesMut};
use chronolith_base::Clock;
use futures_util::TryStreamExt;
use object_store::path::Path;
use object_store::{GetOptions, GetRange, GetResult};

use super::attempts::Answer;
use super::backend::Backend;
use super::meter::Transfer;
use super::retry::Failure;

/// Bytes of the largest object that is read as a whole.
pub const WHOLE_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// Guess of the length of an object that is read as a whole.
const WHOLE_BYTES_HINT: u64 = 4 * 1024 * 1024;

/// Bytes of an object to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadRange {
    /// All bytes; at most [`WHOLE_BYTES_MAX`].
    Whole,
    /// Exactly these bytes, at least one.
    Exact(std::ops::Range<u64>),
    /// As [`ReadRange::Exact`], of an object of this length: an answer from another object rarely has it.
    Part {
        /// The bytes.
        range: std::ops::Range<u64>,
        /// Bytes of the whole object.
        object_bytes: u64,
    },
    /// The first bytes; the whole object if it is shorter.
    Prefix(u64),
    /// The last bytes; the whole object if it is shorter.
    Suffix(u64),
}

impl ReadRange {
    fn to_library(&self) -> Option<GetRange> {
        match self {
            ReadRange::Whole => None,
            ReadRange::Exact(range) | ReadRange::Part { range, .. } => Some(GetRange::Bounded(range.clone())),
            ReadRange::Prefix(len) => Some(GetRange::Bounded(0..*len)),
            ReadRange::Suffix(len) => Some(GetRange::Suffix(*len)),
        }
    }

    /// Bytes that are expected. A larger object may be hedged too early, within the budget of hedges.
    pub(crate) fn len_hint(&self) -> u64 {
        match self {
            ReadRange::Whole => WHOLE_BYTES_HINT,
            ReadRange::Exact(range) | ReadRange::Part { range, .. } => range.end.saturating_sub(range.start),
            ReadRange::Prefix(len) | ReadRange::Suffix(len) => *len,
        }
    }
}

/// A range of an object, and where its bytes go.
pub struct Piece<'a> {
    /// Object.
    pub key: &'a str,
    /// Bytes of the object, if they are known.
    pub object_bytes: Option<u64>,
    /// Offset of the first byte in the object.
    pub offset: u64,
    /// Filled as a whole.
    pub out: &'a mut [u8],
    /// Set to the ETag of the object; left as it is on a local directory.
    pub etag: &'a mut Option<String>,
}

/// Bytes of an object, as they came.
pub(crate) struct Fetched {
    pub(crate) pieces: Vec<Bytes>,
    pub(crate) len: usize,
    pub(crate) etag: Option<String>,
    pub(crate) object_bytes: u64,
    /// Offset of the first byte within the object.
    pub(crate) offset: u64,
}

impl Fetched {
    /// All bytes in one buffer; no copy if they came in one piece.
    pub(crate) fn joined(mut self) -> Bytes {
        if self.pieces.len() == 1 {
            return self.pieces.pop().unwrap_or_default();
        }
        let mut joined = BytesMut::with_capacity(self.len);
        self.pieces.iter().for_each(|piece| joined.extend_from_slice(piece));
        assert_eq!(joined.len(), self.len, "a body is handed out after its length was checked");
        joined.freeze()
    }

    /// Copies all bytes to `out`, which has their length.
    pub(crate) fn copy_to(&self, out: &mut [u8]) {
        assert_eq!(out.len(), self.len, "the buffer of a range has its length");
        let mut rest = out;
        for piece in &self.pieces {
            let Some((to, after)) = rest.split_at_mut_checked(piece.len()) else { return };
            to.copy_from_slice(piece);
            rest = after;
        }
    }
}

/// Sends one read and receives its body.
pub(crate) async fn fetch(
    backend: &dyn Backend,
    clock: &dyn Clock,
    location: &Path,
    range: &ReadRange,
    etag: Option<&str>,
) -> Result<Answer<Fetched>, Failure> {
    let options =
        GetOptions { range: range.to_library(), if_match: etag.map(str::to_owned), ..GetOptions::default() };
    let start_ns = clock.mono_ns();
    let answer = backend.get_opts(location, options).await?;
    let first_byte_ns = clock.mono_ns().saturating_sub(start_ns).max(1);
    let expected_bytes = check_promise(&answer, range)?;
    let etag = answer.meta.e_tag.clone();
    let object_bytes = answer.meta.size;
    let offset = answer.range.start;
    let pieces = body(answer, expected_bytes).await?;
    let transfer = Transfer { sent_bytes: 0, received_bytes: expected_bytes, first_byte_ns };
    let len = usize::try_from(expected_bytes).unwrap_or(usize::MAX);
    Ok(Answer { value: Fetched { pieces, len, etag, object_bytes, offset }, transfer })
}

/// Returns the content length of the answer if its range is the requested one.
fn check_promise(answer: &GetResult, range: &ReadRange) -> Result<u64, Failure> {
    let promised = answer.range.end.saturating_sub(answer.range.start);
    let object_bytes = answer.meta.size;
    let (is_asked, expected_bytes) = match range {
        ReadRange::Whole => (answer.range == (0..object_bytes), object_bytes),
        ReadRange::Part { object_bytes: expected_bytes, .. } if *expected_bytes != object_bytes => {
            let expected_bytes = *expected_bytes;
            return Err(Failure::Size { what: "object", expected_bytes, found_bytes: object_bytes });
        }
        ReadRange::Exact(exact) | ReadRange::Part { range: exact, .. } => {
            (answer.range == *exact, exact.end.saturating_sub(exact.start))
        }
        ReadRange::Prefix(len) => {
            let asked = (*len).min(object_bytes);
            (answer.range == (0..asked), asked)
        }
        ReadRange::Suffix(len) => {
            let asked = (*len).min(object_bytes);
            (promised == asked && answer.range.end == object_bytes, asked)
        }
    };
    if !is_asked {
        return Err(Failure::Size { what: "range", expected_bytes, found_bytes: promised });
    }
    if promised > WHOLE_BYTES_MAX {
        let expected_bytes = WHOLE_BYTES_MAX;
        return Err(Failure::Size { what: "largest read", expected_bytes, found_bytes: promised });
    }
    Ok(promised)
}

async fn body(answer: GetResult, expected_bytes: u64) -> Result<Vec<Bytes>, Failure> {
    let mut pieces = Vec::new();
    let mut found_bytes: u64 = 0;
    let mut stream = answer.into_stream();
    while let Some(piece) = stream.try_next().await? {
        found_bytes = found_bytes.saturating_add(piece.len() as u64);
        if found_bytes > expected_bytes {
            break;
        }
        if !piece.is_empty() {
            pieces.push(piece);
        }
    }
    if found_bytes == expected_bytes {
        Ok(pieces)
    } else {
        Err(Failure::CutBody { expected_bytes, found_bytes })
    }
}
