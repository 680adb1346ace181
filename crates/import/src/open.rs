//! Samples of a series that are not in a chunk yet, packed to about a third of their size.
//!
//! A sample is one byte, then what differs: bit 7 says that the step of time changed, the other bits which bytes of
//! the value differ from the value before. A regular counter takes three to four bytes, a gauge with decimals seven
//! to eight. Holds: any times and value bits come back.
//! Not here: where the bytes lie (`slab`), chunks (`output`).

use chronolith_base::bytes::{put_uvarint, unzigzag, zigzag};
use chronolith_model::Columns;

use crate::slab::{Slab, Stream};

const STEP_CHANGED: u8 = 0x80;
/// Bits of the head that say how many bytes of the value differ: 0 to 8. Those above say how many in front do not.
const LENGTH_BITS: u32 = 4;

/// Where a series stands.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OpenSeries {
    /// Time of the newest sample, `i64::MIN` without one.
    pub(crate) last_time: i64,
    /// Bits of its value.
    pub(crate) last_bits: u64,
    /// End of the block's range that the waiting samples lie in.
    pub(crate) range_end: i64,
    step: i64,
    stream: Stream,
    /// Waiting samples.
    pub(crate) count: u16,
}

const _: () = assert!(size_of::<OpenSeries>() <= 48, "one series, less than a cache line");

impl OpenSeries {
    pub(crate) const NEW: OpenSeries = OpenSeries {
        last_time: i64::MIN,
        last_bits: 0,
        range_end: 0,
        step: 0,
        stream: Stream::EMPTY,
        count: 0,
    };

    /// Appends a sample behind the newest one.
    #[inline]
    pub(crate) fn push(&mut self, slab: &mut Slab, time: i64, bits: u64) {
        // The first sample of a chunk stands against nothing: time 0, value 0.
        let (base_time, base_step, base_bits) =
            if self.count == 0 { (0, 0, 0) } else { (self.last_time, self.step, self.last_bits) };
        let step = time.wrapping_sub(base_time);
        let differs = bits ^ base_bits;
        // Without a difference all eight bytes in front are equal, which three bits cannot say: none differs then.
        let front = (differs.leading_zeros() / 8) & 7;
        let behind = differs.trailing_zeros() / 8;
        let len = 8u32.saturating_sub(front + behind) * u32::from(differs != 0);
        let head = front << LENGTH_BITS | len;
        let middle = differs.checked_shr(8 * behind).unwrap_or(0);
        if step == base_step {
            slab.append(&mut self.stream, u128::from(middle) << 8 | u128::from(head), 1 + len as usize);
        } else {
            self.push_step(
                slab,
                head as u8,
                step.wrapping_sub(base_step),
                &middle.to_le_bytes()[..len as usize],
            );
        }
        (self.last_time, self.last_bits, self.step) = (time, bits, step);
        self.count += 1;
    }

    #[cold]
    fn push_step(&mut self, slab: &mut Slab, head: u8, change: i64, middle: &[u8]) {
        let mut packed = vec![head | STEP_CHANGED];
        put_uvarint(&mut packed, zigzag(change));
        packed.extend_from_slice(middle);
        slab.append_slowly(&mut self.stream, &packed);
    }

    /// Replaces `columns` by the waiting samples; none wait afterwards. `scratch` is for their packed bytes.
    pub(crate) fn drain(&mut self, slab: &mut Slab, scratch: &mut Vec<u8>, columns: &mut Columns) {
        scratch.clear();
        slab.drain(&mut self.stream, scratch);
        columns.clear();
        unpack(scratch, self.count, columns);
        self.count = 0;
    }
}

/// Reads `count` samples back. `packed` is our own memory: a bug, not an error, if it does not fit.
fn unpack(packed: &mut Vec<u8>, count: u16, columns: &mut Columns) {
    // So that eight bytes can be read wherever a value starts.
    packed.extend_from_slice(&[0; 8]);
    let (mut time, mut step, mut bits) = (0i64, 0i64, 0u64);
    let mut at = 0;
    for _ in 0..count {
        let head = packed[at];
        at += 1;
        if head & STEP_CHANGED != 0 {
            let (mut value, mut shift) = (0u64, 0);
            loop {
                let byte = packed[at];
                at += 1;
                value |= u64::from(byte & 0x7f) << shift;
                shift += 7;
                if byte < 0x80 {
                    break;
                }
            }
            step = step.wrapping_add(unzigzag(value));
        }
        time = time.wrapping_add(step);
        let len = u32::from(head) & ((1 << LENGTH_BITS) - 1);
        let front = (u32::from(head) >> LENGTH_BITS) & 7;
        let mut middle = [0u8; 8];
        middle.copy_from_slice(&packed[at..at + 8]);
        // The shifts by 64 that no difference asks for give 0.
        let middle = u64::from_le_bytes(middle) & u64::MAX.checked_shr(64 - 8 * len).unwrap_or(0);
        bits ^= middle << ((8 * (8 - front - len)) & 63);
        at += len as usize;
        columns.push(time, f64::from_bits(bits));
    }
    assert_eq!(at + 8, packed.len(), "the stream ends with its last sample");
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn samples_come_back(samples in prop::collection::vec((any::<i64>(), any::<u64>(), 0..4u8), 1..300)) {
            let mut slab = Slab::new();
            let mut open = OpenSeries::NEW;
            let mut expected = Vec::new();
            let (mut last_time, mut last_bits) = (0i64, 0u64);
            for (time, bits, shape) in samples {
                let time = if shape < 3 { last_time.wrapping_add(15_000) } else { time };
                let bits = if shape < 2 { last_bits ^ (bits & 0xffff_0000) } else { bits };
                (last_time, last_bits) = (time, bits);
                open.push(&mut slab, time, bits);
                expected.push((time, bits));
            }
            let mut columns = Columns::default();
            open.drain(&mut slab, &mut Vec::new(), &mut columns);
            let got: Vec<_> = columns.times.iter().zip(&columns.values).map(|(t, v)| (*t, v.to_bits())).collect();
            prop_assert_eq!(got, expected);
        }
    }
}
