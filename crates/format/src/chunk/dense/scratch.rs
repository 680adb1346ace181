//! Buffers of the encoder of dense chunks.

use chronolith_model::TimeUnit;

/// Buffers of the encoder, kept from chunk to chunk.
#[derive(Debug, Default)]
pub struct DenseScratch {
    /// Times are written in the largest power of ten that divides all of a chunk.
    pub(super) scales_times: bool,
    pub(super) scaled_times: Vec<i64>,
    /// Steps of the time grid that are missing before a sample: sample index, number of steps.
    pub(super) gaps: Vec<(u16, i64)>,
    /// Samples whose value is no decimal: sample index, bits.
    pub(super) exceptions: Vec<(u16, u64)>,
    pub(super) series: Vec<i64>,
    pub(super) deltas: Vec<i64>,
    pub(super) deltas_of_deltas: Vec<i64>,
    /// A column without its head, entropy-coded.
    pub(super) entropy: Vec<u8>,
}

impl DenseScratch {
    /// Empty buffers; the first chunk allocates them.
    #[must_use]
    pub fn new() -> DenseScratch {
        DenseScratch::default()
    }

    /// Sets the unit of the times of the next chunks; without a call they are milliseconds. Times of a store
    /// in nanoseconds are mostly whole seconds, milliseconds or microseconds, and take no more bytes than
    /// these.
    pub fn set_time_unit(&mut self, unit: TimeUnit) {
        self.scales_times = unit == TimeUnit::Nano;
    }
}
