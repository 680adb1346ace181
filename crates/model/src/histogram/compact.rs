//! Compaction: removes empty buckets and merges adjacent spans.
//! Invariants: the observations of each bucket are unchanged; runs of up to `empty_max` empty buckets between
//! others are kept or filled in.

use super::buckets::Buckets;

impl Buckets<f64> {
    /// Removes empty buckets at both ends, and inner runs of more than `empty_max`; fills in shorter gaps.
    /// Keeps `compensation` parallel; a bucket with compensation is not empty.
    pub(super) fn compact(&mut self, compensation: Option<&mut Vec<f64>>, empty_max: usize) {
        let mut rests = compensation;
        let (mut out, mut out_rests, mut last) = (Buckets::default(), Vec::new(), None::<i32>);
        for (at, (idx, count)) in self.walk().enumerate() {
            let rest = rests.as_deref().and_then(|rests| rests.get(at)).copied().unwrap_or(0.0);
            if count == 0.0 && rest == 0.0 {
                continue;
            }
            let gap = last.map_or(0, |last| i64::from(idx) - i64::from(last) - 1);
            if gap > 0 && usize::try_from(gap).is_ok_and(|gap| gap <= empty_max) {
                while let Some(before) = last.filter(|&before| before + 1 < idx) {
                    out.push(last, before + 1, 0.0);
                    out_rests.push(0.0);
                    last = Some(before + 1);
                }
            }
            out.push(last, idx, count);
            out_rests.push(rest);
            last = Some(idx);
        }
        *self = out;
        if let Some(rests) = &mut rests {
            **rests = out_rests;
        }
    }
}
