//! Reader of protobuf messages: fields one after the other, unknown ones skipped.

use chronolith_base::{ByteReader, DecodeError};

const WHAT: &str = "protobuf field";
const FIXED64: u8 = 1;
const FIXED32: u8 = 5;

/// Value of a field.
pub(super) enum Value<'a> {
    Varint(u64),
    /// Text, message or packed list.
    Bytes(&'a [u8]),
    /// Fixed width: no message here has one.
    Fixed,
}

/// Calls `visit` with number and value of each field of `message`.
pub(super) fn for_each_field<'a>(
    message: &'a [u8],
    visit: &mut dyn FnMut(u64, Value<'a>) -> Result<(), DecodeError>,
) -> Result<(), DecodeError> {
    let mut reader = ByteReader::new(message);
    while !reader.is_empty() {
        let offset = reader.offset();
        let key = reader.uvarint(WHAT)?;
        let value = match (key & 7) as u8 {
            0 => Value::Varint(reader.uvarint(WHAT)?),
            2 => {
                let len = reader.length(WHAT)?;
                Value::Bytes(reader.bytes(WHAT, len)?)
            }
            FIXED64 => {
                reader.bytes(WHAT, 8)?;
                Value::Fixed
            }
            FIXED32 => {
                reader.bytes(WHAT, 4)?;
                Value::Fixed
            }
            kind => {
                let expected = "wire type 0, 1, 2 or 5";
                return Err(DecodeError::Invalid { what: WHAT, offset, expected, found: u64::from(kind) });
            }
        };
        visit(key >> 3, value)?;
    }
    Ok(())
}

/// The text of a field.
pub(super) fn text(bytes: &[u8]) -> Result<&str, DecodeError> {
    std::str::from_utf8(bytes).map_err(|e| {
        let found = e.valid_up_to() as u64;
        DecodeError::Invalid { what: WHAT, offset: 0, expected: "UTF-8", found }
    })
}

/// Appends a repeated integer field, packed or not.
pub(super) fn push_integers(value: &Value<'_>, out: &mut Vec<u64>) -> Result<(), DecodeError> {
    match value {
        Value::Varint(found) => out.push(*found),
        Value::Bytes(packed) => {
            let mut reader = ByteReader::new(packed);
            while !reader.is_empty() {
                out.push(reader.uvarint(WHAT)?);
            }
        }
        Value::Fixed => {}
    }
    Ok(())
}
