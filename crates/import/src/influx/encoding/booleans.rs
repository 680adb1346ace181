//! Booleans of a block: a count and one bit per value, the most significant bit of a byte first.

use chronolith_base::{ByteReader, DecodeError};

use crate::influx::fault::invalid;

/// Upper half of the first byte.
const PACKED: u8 = 1;

/// Appends the words of booleans to `out`.
pub(super) fn decode(bytes: &[u8], count: usize, out: &mut Vec<f64>) -> Result<(), DecodeError> {
    let mut r = ByteReader::new(bytes);
    let header = r.u8("encoding of booleans")?;
    if header >> 4 != PACKED {
        return Err(invalid("encoding of booleans", 0, "1", u64::from(header >> 4)));
    }
    let offset = r.offset();
    let stored = r.uvarint("count of booleans")?;
    if stored != count as u64 {
        return Err(invalid("count of booleans", offset, "as many as times", stored));
    }
    let packed = r.bytes("booleans", count.div_ceil(8))?;
    let bits = packed.iter().flat_map(|byte| (0..8).map(move |at| byte >> (7 - at) & 1));
    out.extend(bits.take(count).map(f64::from));
    Ok(())
}
