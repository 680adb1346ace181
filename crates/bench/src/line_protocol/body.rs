//! Bodies of lines: prebuilt once for each part of the series, then only times and values are written over.
//!
//! Invariants: every value of a series is a step of a random walk with two decimals, so all servers get the
//! same values, in the same number of bytes.

use super::rows::{Fields, Row};
use crate::traffic::mix;

/// Time between two lines of a series.
pub(super) const STEP_NS: i64 = 10_000_000_000;
/// Database of the lines.
pub(super) const DATABASE: &str = "bench";
/// Measurement of all lines.
pub(super) const MEASUREMENT: &str = "m";

const WALK_COUNT: usize = 1 << 16;
const VALUE_BYTES: usize = 7;
const TIME_BYTES: usize = 19;
/// Steps after which a text changes.
const TEXT_STEPS: usize = 50;
const TEXTS: [&[u8; 8]; 5] = [b"running ", b"sleeping", b"stopped ", b"zombie  ", b"starting"];

/// Digits of a random walk: with a point for floats, without for integers.
pub(super) struct Walk {
    floats: Vec<[u8; VALUE_BYTES]>,
    integers: Vec<[u8; VALUE_BYTES]>,
}

impl Walk {
    pub(super) fn new() -> Walk {
        let mut walk = Walk { floats: Vec::new(), integers: Vec::new() };
        let mut hundredths = 500_000i64;
        for idx in 0..WALK_COUNT {
            let step = (mix(idx as u64) % 201) as i64 - 100;
            let moved = hundredths + step;
            hundredths = if (100_000..=999_999).contains(&moved) { moved } else { hundredths - step };
            let float = format!("{}.{:02}", hundredths / 100, hundredths % 100);
            walk.floats.push(float.as_bytes().try_into().expect("seven bytes"));
            let integer = format!("1{hundredths}");
            walk.integers.push(integer.as_bytes().try_into().expect("seven bytes"));
        }
        walk
    }

    fn at(&self, fields: Fields, series: usize, field: usize, step: usize) -> [u8; VALUE_BYTES] {
        let idx = (series * 7919 + field * 104_729 + step) % WALK_COUNT;
        match fields {
            Fields::IntegerAndText => self.integers[idx],
            Fields::OneFloat | Fields::TenFloats => self.floats[idx],
        }
    }
}

/// Lines of consecutive series with placeholders.
pub(super) struct Template {
    first_series: usize,
    fields: Fields,
    bytes: Vec<u8>,
    /// Offset of the fields and of the time of each line.
    lines: Vec<(u32, u32)>,
}

impl Template {
    /// All parts of the series of a row.
    pub(super) fn all(row: &Row) -> Vec<Template> {
        let firsts = (0..row.series_count).step_by(row.batch);
        firsts.map(|first| Template::new(row, first..(first + row.batch).min(row.series_count))).collect()
    }

    fn new(row: &Row, series: std::ops::Range<usize>) -> Template {
        let pattern = match row.fields {
            Fields::OneFloat => "v=0000.00".to_owned(),
            Fields::TenFloats => (0..10).map(|n| format!("f{n}=0000.00")).collect::<Vec<_>>().join(","),
            Fields::IntegerAndText => "n=0000000i,s=\"running \"".to_owned(),
        };
        let mut out = Template {
            first_series: series.start,
            fields: row.fields,
            bytes: Vec::new(),
            lines: Vec::with_capacity(series.len()),
        };
        for idx in series {
            let tags =
                format!("tag0=value{},tag1=value{},tag2=value{}", idx % 10, idx / 10 % 100, idx / 1000);
            out.bytes.extend_from_slice(format!("{MEASUREMENT},{tags} ").as_bytes());
            let fields_at = out.bytes.len() as u32;
            out.bytes.extend_from_slice(format!("{pattern} ").as_bytes());
            out.lines.push((fields_at, out.bytes.len() as u32));
            out.bytes.extend_from_slice(&[b'0'; TIME_BYTES]);
            out.bytes.push(b'\n');
        }
        out
    }

    /// Lines of the body.
    pub(super) fn line_count(&self) -> usize {
        self.lines.len()
    }

    /// Makes `out` the body of a step.
    pub(super) fn write(&self, walk: &Walk, step: usize, time_ns: i64, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(&self.bytes);
        let time = time_ns.to_string();
        assert_eq!(time.len(), TIME_BYTES, "times of this century");
        for (idx, &(fields_at, time_at)) in self.lines.iter().enumerate() {
            let series = self.first_series + idx;
            put(out, time_at as usize, time.as_bytes());
            let value = |field| walk.at(self.fields, series, field, step);
            match self.fields {
                Fields::OneFloat => put(out, fields_at as usize + 2, &value(0)),
                Fields::TenFloats => {
                    (0..10).for_each(|field| put(out, fields_at as usize + 3 + field * 11, &value(field)));
                }
                Fields::IntegerAndText => {
                    put(out, fields_at as usize + 2, &value(0));
                    let text = (mix(series as u64) as usize % TEXTS.len() + step / TEXT_STEPS) % TEXTS.len();
                    put(out, fields_at as usize + 14, TEXTS[text]);
                }
            }
        }
    }
}

fn put(out: &mut [u8], at: usize, bytes: &[u8]) {
    out[at..at + bytes.len()].copy_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use chronolith_ingest::line_protocol::{DecodeOptions, Precision, decode, new_batch};

    use super::*;

    #[test]
    fn bodies_are_line_protocol() {
        let walk = Walk::new();
        for fields in [Fields::OneFloat, Fields::TenFloats, Fields::IntegerAndText] {
            let row = Row { fields, series_count: 30, batch: 20, ..super::super::rows::all().remove(0) };
            let templates = Template::all(&row);
            assert_eq!(templates.iter().map(Template::line_count).sum::<usize>(), 30);
            let mut body = Vec::new();
            templates[1].write(&walk, 70, 1_700_000_000_000_000_000, &mut body);
            let text = String::from_utf8(body.clone()).unwrap();
            let line = text.lines().next().unwrap();
            let mut batch = new_batch();
            assert!(decode(body, &DecodeOptions::new(Precision::Nano, 0), &mut batch).is_empty(), "{line}");
            assert_eq!(batch.series.len(), 10 * fields.count());
            assert!(batch.times.iter().all(|time| *time == 1_700_000_000_000_000_000));
            assert!(line.starts_with("m,tag0=value0,tag1=value2,tag2=value0 "), "{line}");
            assert!(line.contains(&format!("{}=", fields.counted())));
        }
    }
}
