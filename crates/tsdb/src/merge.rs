//! Several sources of one series read as one.
//! Holds: ascending, one sample a timestamp; at equal times the source with the lower place in the list wins.
//! Not here: which sources a series has and which of them is right (`query`).

use chronolith_model::{Columns, QueryError, SampleSource, TimeRange};

/// Samples of one series from several blocks and the head.
pub(crate) struct MergedSource {
    /// The one that is right first.
    sources: Vec<Box<dyn SampleSource>>,
}

impl MergedSource {
    pub(crate) fn new(sources: Vec<Box<dyn SampleSource>>) -> MergedSource {
        MergedSource { sources }
    }
}

impl SampleSource for MergedSource {
    fn read(&self, range: TimeRange, out: &mut Columns) -> Result<(), QueryError> {
        let mut parts: Vec<(usize, Columns)> = Vec::with_capacity(self.sources.len());
        for (place, source) in self.sources.iter().enumerate() {
            let mut part = Columns::default();
            source.read(range, &mut part)?;
            if !part.is_empty() {
                parts.push((place, part));
            }
        }
        parts.sort_by_key(|(_, part)| part.times.first().copied());
        let disjoint = parts.windows(2).all(|w| w[0].1.times.last() < w[1].1.times.first());
        if disjoint {
            for (_, part) in &parts {
                out.extend_from(part, 0..part.len());
            }
        } else {
            merge_overlapping(&parts, out);
        }
        Ok(())
    }

    fn sample_count_hint(&self) -> usize {
        self.sources.iter().map(|s| s.sample_count_hint()).sum()
    }

    fn chunk_count_hint(&self) -> usize {
        self.sources.iter().map(|s| s.chunk_count_hint()).sum()
    }
}

/// Merges by repeated choice of the least time; the number of overlapping parts is small.
fn merge_overlapping(parts: &[(usize, Columns)], out: &mut Columns) {
    let mut next = vec![0usize; parts.len()];
    let mut last = None;
    loop {
        let mut best: Option<(i64, usize, usize)> = None;
        for (i, (place, part)) in parts.iter().enumerate() {
            if let Some(&time) = part.times.get(next[i]) {
                let candidate = (time, *place, i);
                if best.is_none_or(|b| candidate < b) {
                    best = Some(candidate);
                }
            }
        }
        let Some((time, _, i)) = best else { return };
        if last == Some(i) {
            out.push_from(&parts[i].1, next[i]);
        } else {
            out.push_apart(&parts[i].1, next[i]);
        }
        last = Some(i);
        for (j, (_, part)) in parts.iter().enumerate() {
            if part.times.get(next[j]) == Some(&time) {
                next[j] += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed(Vec<(i64, f64)>);

    impl SampleSource for Fixed {
        fn read(&self, range: TimeRange, out: &mut Columns) -> Result<(), QueryError> {
            for &(t, v) in self.0.iter().filter(|s| range.contains(s.0)) {
                out.push(t, v);
            }
            Ok(())
        }

        fn sample_count_hint(&self) -> usize {
            self.0.len()
        }
    }

    #[track_caller]
    fn check(sources: &[&[(i64, f64)]], want: &[(i64, f64)]) {
        let boxed = |s: &&[(i64, f64)]| Box::new(Fixed(s.to_vec())) as Box<dyn SampleSource>;
        let merged = MergedSource::new(sources.iter().map(boxed).collect());
        let mut out = Columns::default();
        merged.read(TimeRange::ALL, &mut out).unwrap();
        let got: Vec<_> = out.times.into_iter().zip(out.values).collect();
        assert_eq!(got, want);
    }

    #[test]
    fn disjoint_sources_are_joined_in_order_of_time() {
        check(&[&[(5, 5.0)], &[(1, 1.0), (2, 2.0)], &[]], &[(1, 1.0), (2, 2.0), (5, 5.0)]);
    }

    #[test]
    fn the_first_source_wins_at_equal_times() {
        check(
            &[&[(1, 1.0), (3, 3.0)], &[(1, 9.0), (2, 2.0), (3, 9.0), (4, 4.0)], &[(2, 8.0)]],
            &[(1, 1.0), (2, 2.0), (3, 3.0), (4, 4.0)],
        );
    }
}
