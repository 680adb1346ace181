//! Texts of a block: lengths and bytes one after the other, compressed by snappy as a whole.

use std::sync::Arc;

use chronolith_base::{ByteReader, DecodeError};

use crate::influx::fault::invalid;
use crate::influx::snappy;

/// Upper half of the first byte.
const SNAPPY: u8 = 1;

/// Appends the texts in `bytes`, at most `count`, to `out`. Equal texts next to each other share memory.
pub(super) fn decode(bytes: &[u8], count: usize, out: &mut Vec<Arc<[u8]>>) -> Result<(), DecodeError> {
    let mut r = ByteReader::new(bytes);
    let header = r.u8("encoding of texts")?;
    if header >> 4 != SNAPPY {
        return Err(invalid("encoding of texts", 0, "1", u64::from(header >> 4)));
    }
    let plain = snappy::decompress(bytes.get(1..).unwrap_or_default(), "texts")?;
    let mut r = ByteReader::new(&plain);
    while !r.is_empty() {
        if out.len() == count {
            return Err(invalid("texts", 1, "as many as times", count as u64 + 1));
        }
        let len = r.length("length of a text")?;
        let text = r.bytes("text", len)?;
        match out.last().filter(|last| ***last == *text) {
            Some(last) => out.push(last.clone()),
            None => out.push(text.into()),
        }
    }
    Ok(())
}
