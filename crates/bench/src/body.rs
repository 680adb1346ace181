//! Bodies of remote write 1.0 (a `prometheus.WriteRequest` in a snappy block) that are compressed once and
//! sent many times: times and values lie in the compressed bytes as literals at known places and are
//! overwritten.
//!
//! Invariants: bodies are valid snappy blocks of valid messages, with labels compressed as real senders do; a
//! step costs the client 14 written bytes per sample, so that the generator does not measure itself.

use std::ops::Range;

/// A time in milliseconds as a varint has this length from 2004 to 2109.
const TIME_LEN: usize = 6;
/// Tag and length of the sample, tag and value, tag and time.
const SAMPLE_LEN: usize = 2 + 1 + 8 + 1 + TIME_LEN;
const VALUE_AT: usize = 3;
const TIME_AT: usize = 12;

const HASH_BITS: u32 = 14;
/// Copies reach back this far, as in the common encoders.
const OFFSET_MAX: usize = 65_535;
const COPY_LEN_MIN: usize = 4;
const COPY_LEN_MAX: usize = 64;

/// One compressed request with one sample per series.
pub(crate) struct Body {
    bytes: Vec<u8>,
    /// Offset of each sample in `bytes`.
    samples: Vec<usize>,
}

impl Body {
    /// A request of the series with these labels, one sample each; times and values are to be set.
    pub(crate) fn new<'a, L>(series: impl Iterator<Item = L>) -> Body
    where
        L: AsRef<[(&'a str, String)]>,
    {
        Body::with_counts(series.map(|labels| (labels, 1)))
    }

    /// A request of the series with these labels and as many samples; times and values are to be set.
    pub(crate) fn with_counts<'a, L>(series: impl Iterator<Item = (L, usize)>) -> Body
    where
        L: AsRef<[(&'a str, String)]>,
    {
        let mut message = Vec::new();
        let mut samples = Vec::new();
        let mut inner = Vec::new();
        for (labels, sample_count) in series {
            inner.clear();
            for (name, value) in labels.as_ref() {
                put_label(&mut inner, name, value);
            }
            message.push(0x0a);
            put_varint(&mut message, inner.len() + sample_count * SAMPLE_LEN);
            message.extend_from_slice(&inner);
            for _ in 0..sample_count {
                samples.push(message.len());
                message.extend_from_slice(&sample_bytes());
            }
        }
        compress(&message, &samples)
    }

    /// A request of one series with one sample.
    pub(crate) fn of_sample(labels: &[(&str, String)], time_ms: i64, value: f64) -> Body {
        let mut body = Body::new(std::iter::once(labels));
        body.set(time_ms, std::iter::once(value));
        body
    }

    /// Bytes on the wire.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Sets all samples, in the order of their series, each with its own time.
    pub(crate) fn set_each(&mut self, samples: impl Iterator<Item = (i64, f64)>) {
        for (at, (time_ms, value)) in self.samples.iter().zip(samples) {
            self.bytes[at + VALUE_AT..at + VALUE_AT + 8].copy_from_slice(&value.to_le_bytes());
            self.bytes[at + TIME_AT..at + TIME_AT + TIME_LEN].copy_from_slice(&time_varint(time_ms));
        }
    }

    /// Sets all samples: one time, one value a series.
    pub(crate) fn set(&mut self, time_ms: i64, values: impl Iterator<Item = f64>) {
        let time = time_varint(time_ms);
        for (at, value) in self.samples.iter().zip(values) {
            self.bytes[at + VALUE_AT..at + VALUE_AT + 8].copy_from_slice(&value.to_le_bytes());
            self.bytes[at + TIME_AT..at + TIME_AT + TIME_LEN].copy_from_slice(&time);
        }
    }
}

fn put_label(out: &mut Vec<u8>, name: &str, value: &str) {
    let mut label = vec![0x0a];
    put_varint(&mut label, name.len());
    label.extend_from_slice(name.as_bytes());
    label.push(0x12);
    put_varint(&mut label, value.len());
    label.extend_from_slice(value.as_bytes());
    out.push(0x0a);
    put_varint(out, label.len());
    out.extend_from_slice(&label);
}

fn sample_bytes() -> [u8; SAMPLE_LEN] {
    let mut sample = [0; SAMPLE_LEN];
    sample[..VALUE_AT].copy_from_slice(&[0x12, (SAMPLE_LEN - 2) as u8, 0x09]);
    sample[TIME_AT - 1] = 0x10;
    sample
}

fn time_varint(time_ms: i64) -> [u8; TIME_LEN] {
    let time = u64::try_from(time_ms).expect("benchmarks run after 1970");
    assert!((1 << 35..1 << 42).contains(&time), "time {time} has another length");
    std::array::from_fn(|i| {
        let more = if i + 1 < TIME_LEN { 0x80 } else { 0 };
        ((time >> (7 * i)) & 0x7f) as u8 | more
    })
}

fn put_varint(out: &mut Vec<u8>, n: usize) {
    let mut rest = n;
    while rest >= 0x80 {
        out.push((rest & 0x7f) as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// Compresses `message` to a snappy block in which each sample is a literal of its own.
fn compress(message: &[u8], samples: &[usize]) -> Body {
    let mut out = Vec::with_capacity(message.len() / 2);
    put_varint(&mut out, message.len());
    let mut places = Vec::with_capacity(samples.len());
    // Last position of each run of four bytes, and the end of the section of labels around it. Copies stay
    // within sections, because what a sample holds changes after compression.
    let mut seen = vec![(usize::MAX, 0); 1 << HASH_BITS];
    let mut start = 0;
    for sample in samples {
        compress_section(message, start..*sample, &mut seen, &mut out);
        start = sample + SAMPLE_LEN;
        put_literal(&message[*sample..start], &mut out);
        places.push(out.len() - SAMPLE_LEN);
    }
    Body { bytes: out, samples: places }
}

fn compress_section(message: &[u8], section: Range<usize>, seen: &mut [(usize, usize)], out: &mut Vec<u8>) {
    let mut at = section.start;
    let mut literal_at = section.start;
    while at + COPY_LEN_MIN <= section.end {
        let slot = &mut seen[hash(&message[at..at + 4])];
        let (from, from_end) = *slot;
        *slot = (at, section.end);
        let in_reach = from < at && at - from <= OFFSET_MAX;
        let len = if in_reach { common_len(&message[from..from_end], &message[at..section.end]) } else { 0 };
        if len < COPY_LEN_MIN {
            at += 1;
            continue;
        }
        put_literal(&message[literal_at..at], out);
        put_copy(at - from, len, out);
        at += len;
        literal_at = at;
    }
    put_literal(&message[literal_at..section.end], out);
}

fn hash(bytes: &[u8]) -> usize {
    let word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    (word.wrapping_mul(0x9e37_79b1) >> (32 - HASH_BITS)) as usize
}

fn common_len(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take(COPY_LEN_MAX).take_while(|(x, y)| x == y).count()
}

fn put_literal(bytes: &[u8], out: &mut Vec<u8>) {
    // At most 60 bytes fit in the one-byte form; parts cost no more than the longer forms.
    for part in bytes.chunks(60) {
        out.push(((part.len() - 1) << 2) as u8);
        out.extend_from_slice(part);
    }
}

fn put_copy(offset: usize, len: usize, out: &mut Vec<u8>) {
    if (4..=11).contains(&len) && offset < 2048 {
        out.push(1 | ((len - 4) << 2 | offset >> 8 << 5) as u8);
        out.push(offset as u8);
    } else {
        out.push(((len - 1) << 2 | 2) as u8);
        out.extend_from_slice(&(offset as u16).to_le_bytes());
    }
}

#[cfg(test)]
mod tests;
