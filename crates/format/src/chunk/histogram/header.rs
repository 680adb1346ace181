//! Encoding bytes and header of chunks of histograms.

use chronolith_base::DecodeError;

/// Encoding byte of a chunk of histograms with integer counts.
pub const ENCODING_HISTOGRAM: u8 = 2;
/// Encoding byte of a chunk of histograms with float counts.
pub const ENCODING_FLOAT_HISTOGRAM: u8 = 3;
/// Bytes of the header: big-endian u16 count, then the byte of [`ResetHeader`].
pub const HEADER_BYTES: usize = 3;

/// Counter reset before the first sample of a chunk, as its header has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
pub enum ResetHeader {
    /// Unknown.
    #[default]
    Unknown = 0x00,
    /// No reset.
    NotReset = 0x40,
    /// A reset.
    Reset = 0x80,
    /// The chunk holds gauges.
    Gauge = 0xc0,
}

impl ResetHeader {
    /// Decodes the third byte of a chunk; its lower bits are reserved.
    #[must_use]
    pub fn from_byte(byte: u8) -> ResetHeader {
        match byte & 0xc0 {
            0x00 => ResetHeader::Unknown,
            0x40 => ResetHeader::NotReset,
            0x80 => ResetHeader::Reset,
            _ => ResetHeader::Gauge,
        }
    }
}

/// Returns the counter reset in the header of a chunk; `None` if it has no header.
#[must_use]
pub fn reset_header(bytes: &[u8]) -> Option<ResetHeader> {
    bytes.get(2).map(|&byte| ResetHeader::from_byte(byte))
}

pub(super) fn unknown_encoding(found: u8) -> DecodeError {
    let (what, expected) = ("encoding of a histogram chunk", "2, 3, 5 or 6");
    DecodeError::Invalid { what, offset: 0, expected, found: u64::from(found) }
}
