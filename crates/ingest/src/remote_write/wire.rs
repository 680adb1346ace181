//! Protobuf's wire format over a borrowed body.
//!
//! Invariants: no read panics or leaves its message; offsets are offsets of the whole body. Groups (wire
//! types 3 and 4) are refused: proto3 has none. Not here: meaning of fields.

use super::WireError;

/// Wire type of varints.
pub(crate) const VARINT: u64 = 0;
/// Wire type of 8 little-endian bytes.
pub(crate) const FIXED64: u64 = 1;
/// Wire type of length-prefixed bytes.
pub(crate) const LEN: u64 = 2;
/// Wire type of 4 little-endian bytes.
pub(crate) const FIXED32: u64 = 5;
/// Field numbers have 29 bits, so a tag has 32.
const TAG_MAX: u64 = u32::MAX as u64;

/// Reads forward over one message.
#[derive(Clone, Copy)]
pub(crate) struct Cursor<'a> {
    /// The body up to the end of the message.
    bytes: &'a [u8],
    /// Offset of the next read, within the body.
    at: usize,
}

impl<'a> Cursor<'a> {
    /// The whole of `body` is the message.
    pub(crate) fn new(body: &'a [u8]) -> Cursor<'a> {
        Cursor { bytes: body, at: 0 }
    }

    /// Returns the offset of the next read.
    pub(crate) fn offset(&self) -> usize {
        self.at
    }

    /// Returns true if the message ends here.
    pub(crate) fn is_empty(&self) -> bool {
        self.at >= self.bytes.len()
    }

    /// The next byte, which is not consumed.
    pub(crate) fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    /// Consumes one byte that [`Cursor::peek`] has shown.
    pub(crate) fn advance(&mut self) {
        debug_assert!(self.at < self.bytes.len(), "only a byte that is there can be consumed");
        self.at += 1;
    }

    /// A base-128 varint of at most 64 bits.
    pub(crate) fn varint(&mut self) -> Result<u64, WireError> {
        match self.peek() {
            Some(byte) if byte < 0x80 => {
                self.at += 1;
                Ok(u64::from(byte))
            }
            _ => self.long_varint(),
        }
    }

    fn long_varint(&mut self) -> Result<u64, WireError> {
        let offset = self.at;
        let mut value = 0u64;
        for (i, &byte) in self.bytes.get(offset..).unwrap_or(&[]).iter().take(10).enumerate() {
            if i == 9 && byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7f) << (7 * i);
            if byte < 0x80 {
                self.at = offset + i + 1;
                return Ok(value);
            }
        }
        let short = self.bytes.len().saturating_sub(offset) < 10;
        Err(WireError {
            what: if short { "varint is cut off" } else { "varint has more than 64 bits" },
            offset,
        })
    }

    /// Field number and wire type.
    pub(crate) fn tag(&mut self) -> Result<(u64, u64), WireError> {
        let offset = self.at;
        let tag = self.varint()?;
        if !(8..=TAG_MAX).contains(&tag) {
            return Err(WireError { what: "illegal field number", offset });
        }
        Ok((tag >> 3, tag & 7))
    }

    /// Reads a length-delimited message or text.
    pub(crate) fn message(&mut self) -> Result<Cursor<'a>, WireError> {
        let offset = self.at;
        let len = usize::try_from(self.varint()?).unwrap_or(usize::MAX);
        let start = self.at;
        match start.checked_add(len).and_then(|end| Some((end, self.bytes.get(..end)?))) {
            Some((end, bytes)) => {
                self.at = end;
                Ok(Cursor { bytes, at: start })
            }
            None => Err(WireError { what: "length is past the end of its message", offset }),
        }
    }

    /// A varint of a field of 32 bits. As in every implementation of protobuf, higher bits are cut off.
    pub(crate) fn varint_u32(&mut self) -> Result<u32, WireError> {
        Ok(self.varint()? as u32)
    }

    /// Eight little-endian bytes.
    pub(crate) fn fixed64(&mut self) -> Result<u64, WireError> {
        match self.bytes.get(self.at..).and_then(|rest| rest.first_chunk::<8>()) {
            Some(bytes) => {
                self.at += 8;
                Ok(u64::from_le_bytes(*bytes))
            }
            None => Err(WireError { what: "8-byte number is cut off", offset: self.at }),
        }
    }

    /// Returns the remaining bytes of the message.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.at..).unwrap_or(&[])
    }

    /// Continues where `rest`, a suffix of the remaining message, starts.
    pub(crate) fn skip_to(&mut self, rest: &[u8]) {
        debug_assert!(self.rest().ends_with(rest), "a message is read forward");
        self.at = self.bytes.len().saturating_sub(rest.len());
    }

    /// Returns the remaining bytes of the message as text.
    pub(crate) fn text(&self) -> Result<&'a str, WireError> {
        std::str::from_utf8(self.rest()).map_err(|e| WireError {
            what: "text is not utf-8",
            offset: self.at.saturating_add(e.valid_up_to()),
        })
    }

    /// Skips the value of an unknown field.
    pub(crate) fn skip(&mut self, wire_type: u64) -> Result<(), WireError> {
        match wire_type {
            VARINT => self.varint().map(drop),
            FIXED64 => self.fixed64().map(drop),
            LEN => self.message().map(drop),
            FIXED32 if self.rest().len() >= 4 => {
                self.at += 4;
                Ok(())
            }
            FIXED32 => Err(WireError { what: "4-byte number is cut off", offset: self.at }),
            _ => Err(WireError { what: "group or unknown wire type", offset: self.at }),
        }
    }

    /// The error of a known field that has another type than the schema says.
    #[cold]
    pub(crate) fn wrong_type(&self) -> WireError {
        self.error("field has the wrong wire type")
    }

    /// An error at the current offset.
    #[cold]
    pub(crate) fn error(&self, what: &'static str) -> WireError {
        WireError { what, offset: self.at }
    }
}
