//! Decoding of chunks of histograms without start times.

use std::ops::ControlFlow;
use std::sync::Arc;

use chronolith_base::DecodeError;
use chronolith_model::{Columns, Histogram, TimeRange};

use super::counts::ChunkCount;
use super::header::{ENCODING_FLOAT_HISTOGRAM, ENCODING_HISTOGRAM, unknown_encoding};
use super::state::Walk;

/// As [`super::decode`] for chunks without start times.
pub(super) fn decode_plain(
    encoding: u8,
    bytes: &[u8],
    range: TimeRange,
    out: &mut Columns,
) -> Result<(), DecodeError> {
    let mut visit = |time: i64, histogram: &mut dyn FnMut() -> Result<Histogram, DecodeError>| {
        if time >= range.end {
            return Ok(ControlFlow::Break(()));
        }
        if time >= range.start {
            out.push_histogram(time, Arc::new(histogram()?));
        }
        Ok(ControlFlow::Continue(()))
    };
    match encoding {
        ENCODING_HISTOGRAM => {
            walk_all::<u64>(bytes, |walk| visit(walk.time(), &mut || walk.histogram().map(Histogram::Int)))
        }
        ENCODING_FLOAT_HISTOGRAM => {
            walk_all::<f64>(bytes, |walk| visit(walk.time(), &mut || walk.histogram().map(Histogram::Float)))
        }
        other => Err(unknown_encoding(other)),
    }
}

fn walk_all<C: ChunkCount>(
    bytes: &[u8],
    mut visit: impl FnMut(&Walk<'_, C>) -> Result<ControlFlow<()>, DecodeError>,
) -> Result<(), DecodeError> {
    let mut walk = Walk::<C>::new(bytes)?;
    while walk.advance()? {
        if visit(&walk)?.is_break() {
            break;
        }
    }
    Ok(())
}

/// Time of the first sample.
///
/// # Errors
/// [`DecodeError`], also for a chunk without samples.
pub fn first_time(encoding: u8, bytes: &[u8]) -> Result<i64, DecodeError> {
    let time = match encoding {
        ENCODING_HISTOGRAM => first_of::<u64>(bytes)?,
        ENCODING_FLOAT_HISTOGRAM => first_of::<f64>(bytes)?,
        other => return Err(unknown_encoding(other)),
    };
    let (what, expected) = ("histogram chunk", "a sample");
    time.ok_or(DecodeError::Invalid { what, offset: 0, expected, found: 0 })
}

fn first_of<C: ChunkCount>(bytes: &[u8]) -> Result<Option<i64>, DecodeError> {
    let mut walk = Walk::<C>::new(bytes)?;
    Ok(walk.advance()?.then(|| walk.time()))
}
