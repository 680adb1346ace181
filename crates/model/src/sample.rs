//! Float values of samples: bit-exact, with one NaN as the staleness marker.

/// Bits of Prometheus's staleness marker, a NaN that senders write when a series disappears.
pub const STALE_NAN_BITS: u64 = 0x7ff0_0000_0000_0002;
/// Bits of the NaN that queries return.
pub const NORMAL_NAN_BITS: u64 = 0x7ff8_0000_0000_0001;
/// The staleness marker.
pub const STALE_NAN: f64 = f64::from_bits(STALE_NAN_BITS);

/// Returns true if `value` is the staleness marker (other NaNs are ordinary values).
#[must_use]
pub fn is_stale(value: f64) -> bool {
    value.to_bits() == STALE_NAN_BITS
}
