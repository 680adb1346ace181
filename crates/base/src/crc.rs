//! CRC-32C (Castagnoli), the checksum of every format here and of Prometheus, and CRC-32, the checksum of
//! InfluxDB's files.

use crc_fast::{CrcAlgorithm, Digest};

/// CRC-32C of `bytes`.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    narrow(crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes))
}

/// CRC-32 of `bytes`, with the polynomial of Ethernet and gzip.
#[must_use]
pub fn crc32(bytes: &[u8]) -> u32 {
    narrow(crc_fast::checksum(CrcAlgorithm::Crc32IsoHdlc, bytes))
}

/// CRC-32C over several slices, as if they were one.
pub struct Crc32c(Digest);

impl Crc32c {
    /// Checksum of no bytes.
    #[must_use]
    pub fn new() -> Crc32c {
        Crc32c(Digest::new(CrcAlgorithm::Crc32Iscsi))
    }

    /// Adds `bytes`.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the checksum of all bytes that were added.
    #[must_use]
    pub fn finish(&self) -> u32 {
        narrow(self.0.finalize())
    }
}

impl Default for Crc32c {
    fn default() -> Self {
        Crc32c::new()
    }
}

fn narrow(sum: u64) -> u32 {
    // A 32-bit algorithm leaves the upper half zero.
    u32::try_from(sum).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_value_of_the_algorithm_catalogue() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        let mut parts = Crc32c::new();
        parts.update(b"1234");
        parts.update(b"56789");
        assert_eq!(parts.finish(), 0xe306_9283);
    }
}
