//! A second decoder, written from `docs/chunk/dense.md` alone: slow, over lists of bits, and for good chunks
//! only.

const STALE: u64 = 0x7ff0_0000_0000_0002;

struct Twin<'a> {
    bytes: &'a [u8],
}

impl Twin<'_> {
    fn byte(&mut self) -> u8 {
        let byte = self.bytes[0];
        self.bytes = &self.bytes[1..];
        byte
    }

    fn fixed(&mut self) -> u64 {
        (0..8).map(|i| u64::from(self.byte()) << (8 * i)).sum()
    }

    fn unsigned(&mut self) -> u64 {
        let (mut value, mut shift) = (0, 0);
        loop {
            let byte = self.byte();
            value |= u64::from(byte & 127) << shift;
            shift += 7;
            if byte < 128 {
                return value;
            }
        }
    }

    fn signed(&mut self) -> i64 {
        let value = self.unsigned();
        if value.is_multiple_of(2) { (value / 2) as i64 } else { -((value / 2) as i64) - 1 }
    }

    fn block(&mut self, count: usize) -> Vec<i64> {
        let head = self.byte();
        let base = self.signed();
        if head == 127 {
            let bitmap: Vec<u8> = (0..count.div_ceil(8)).map(|_| self.byte()).collect();
            let marked: Vec<bool> = (0..count).map(|i| bitmap[i / 8] >> (i % 8) & 1 == 1).collect();
            let mut rest = self.block(marked.iter().filter(|&&m| m).count()).into_iter();
            return marked.iter().map(|&m| if m { rest.next().unwrap() } else { base }).collect();
        }
        let width = usize::from(head & 127);
        let packed: Vec<u8> = (0..(count * width).div_ceil(8)).map(|_| self.byte()).collect();
        let bit = |i: usize| u64::from(packed[i / 8] >> (i % 8) & 1);
        let low = |i: usize| (0..width).map(|b| bit(i * width + b) << b).sum::<u64>() as i64;
        let mut items: Vec<i64> = (0..count).map(|i| base.wrapping_add(low(i))).collect();
        if head >= 128 {
            let patches = usize::from(self.byte());
            let places: Vec<u8> = (0..patches).map(|_| self.byte()).collect();
            for place in places {
                let item = &mut items[usize::from(place)];
                *item = item.wrapping_add(self.signed() << width);
            }
        }
        items
    }

    fn blocks(&mut self, mut count: usize) -> Vec<i64> {
        let mut out = Vec::new();
        while count > 0 {
            let len = count.min(128);
            out.extend(self.block(len));
            count -= len;
        }
        out
    }

    fn times(&mut self, count: usize) -> Vec<i64> {
        let flags = self.byte();
        let first = self.signed();
        if flags & 3 >= 2 {
            let span = self.unsigned();
            let times = if flags & 3 == 2 {
                undo(vec![first], self.blocks(count - 1))
            } else {
                let second = self.unsigned() as i64;
                let deltas = undo(vec![second], self.blocks(count - 2));
                undo(vec![first], deltas)
            };
            assert_eq!(times[count - 1], first.wrapping_add(span as i64));
            return times;
        }
        let unit = if flags & 8 != 0 { 1000 } else { 1 };
        let step = if count > 1 { self.unsigned() as i64 * unit } else { 0 };
        let mut places: Vec<i64> = (0..count as i64).collect();
        let gap_count = if flags & 4 != 0 { self.unsigned() } else { 0 };
        let mut at = 0;
        for _ in 0..gap_count {
            at += self.unsigned() as usize + 1;
            let missing = self.signed();
            places[at..].iter_mut().for_each(|place| *place += missing);
        }
        let mut times: Vec<i64> =
            places.iter().map(|place| first.wrapping_add(step.wrapping_mul(*place))).collect();
        if flags & 3 == 1 {
            let last = self.signed();
            let residuals = self.blocks(count - 1);
            assert_eq!(residuals.last(), Some(&last));
            times[1..].iter_mut().zip(residuals).for_each(|(t, r)| *t = t.wrapping_add(r));
        }
        times
    }

    fn values(&mut self, count: usize) -> Vec<u64> {
        let flags = self.byte();
        let kind = flags >> 2 & 15;
        let shift = if flags & 64 != 0 { self.byte() } else { 0 };
        let mut exceptions = Vec::new();
        let exception_count = if flags & 128 != 0 { self.unsigned() } else { 0 };
        let (mut next, mut raw) = (0, 0);
        for _ in 0..exception_count {
            let number = self.unsigned();
            let at = next + (number >> 3) as usize;
            next = at + 1;
            let bits = match number & 7 {
                1 => STALE,
                2 => 0x7ff8_0000_0000_0001,
                3 => 0x7ff8_0000_0000_0000,
                4 => f64::INFINITY.to_bits(),
                5 => f64::NEG_INFINITY.to_bits(),
                6 => (-0.0f64).to_bits(),
                7 => raw,
                _ => {
                    raw = self.fixed();
                    raw
                }
            };
            exceptions.push((at, bits));
        }
        if flags & 3 == 0 && kind == 15 {
            return vec![self.fixed(); count];
        }
        let items = match flags & 3 {
            0 => vec![self.signed(); count],
            1 => self.blocks(count),
            2 => undo(vec![self.signed()], self.blocks(count - 1)),
            _ => {
                let (first, second) = (self.signed(), self.signed());
                let deltas = undo(vec![second], self.blocks(count - 2));
                undo(vec![first], deltas)
            }
        };
        let value = |m: i64| match kind {
            15 if m >= 0 => (m as u64) << shift,
            15 => 1 << 63 | (!m as u64) << shift,
            0 => (m as f64 * 2f64.powi(i32::from(shift))).to_bits(),
            e => (m as f64 / (10f64.powi(i32::from(e)) / 2f64.powi(i32::from(shift)))).to_bits(),
        };
        let mut bits: Vec<u64> = items.into_iter().map(value).collect();
        exceptions.into_iter().for_each(|(at, exception)| bits[at] = exception);
        bits
    }
}

/// After the first, each item is the one before and a difference.
fn undo(mut items: Vec<i64>, differences: Vec<i64>) -> Vec<i64> {
    for difference in differences {
        items.push(items[items.len() - 1].wrapping_add(difference));
    }
    items
}

/// Times and bits of values of a good chunk.
pub(super) fn decode(bytes: &[u8]) -> (Vec<i64>, Vec<u64>) {
    let count = usize::from(bytes[0]) * 256 + usize::from(bytes[1]);
    let mut twin = Twin { bytes: &bytes[2..] };
    let samples = (twin.times(count), twin.values(count));
    assert!(twin.bytes.is_empty());
    samples
}
