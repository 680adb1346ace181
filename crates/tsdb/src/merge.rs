//! K-way merge of the samples of one series from several sources.
//!
//! Invariants: timestamps ascend, one sample per timestamp; at equal timestamps the source with the lower
//! index wins.
//! Not here: the sources of a series and their order (`query`).

use chronolith_model::query::{ColumnType, SamplesPart, TypedColumns, VisitSamples};
use chronolith_model::rollup::{RollupArchive, RollupRead};
use chronolith_model::{Columns, QueryError, SampleSource, TimeRange};

/// Samples of one series from several blocks and the head.
pub(crate) struct MergedSource {
    /// By their earliest possible time.
    parts: Vec<Part>,
}

struct Part {
    source: Box<dyn SampleSource>,
    /// At equal timestamps the source with the lower rank wins.
    rank: usize,
    /// Bounds of its samples, both inclusive.
    min_time: i64,
    max_time: i64,
}

impl MergedSource {
    /// A merge of `sources`; the earlier one wins at equal timestamps.
    pub(crate) fn new(sources: Vec<Box<dyn SampleSource>>) -> MergedSource {
        assert!(sources.len() > 1, "a merge has several sources");
        let part = |(rank, source): (usize, Box<dyn SampleSource>)| {
            let (min_time, max_time) = source.time_bounds().unwrap_or((i64::MIN, i64::MAX));
            Part { source, rank, min_time, max_time }
        };
        let mut parts: Vec<Part> = sources.into_iter().enumerate().map(part).collect();
        parts.sort_by_key(|part| part.min_time);
        MergedSource { parts }
    }

    /// Calls `read` with each group of parts that overlap one another and may have samples in `range`.
    fn for_each_group(
        &self,
        range: TimeRange,
        mut read: impl FnMut(&[&Part]) -> Result<(), QueryError>,
    ) -> Result<(), QueryError> {
        let wanted = |part: &&Part| range.overlaps_inclusive(part.min_time, part.max_time);
        let mut parts = self.parts.iter().filter(wanted).peekable();
        let mut group = Vec::new();
        while let Some(first) = parts.next() {
            let mut group_end = first.max_time;
            group.clear();
            group.push(first);
            while let Some(next) = parts.next_if(|next| next.min_time <= group_end) {
                group_end = group_end.max(next.max_time);
                group.push(next);
            }
            read(&group)?;
        }
        Ok(())
    }
}

impl SampleSource for MergedSource {
    /// Parts that overlap no other, which is most of them, are read into `out` without a copy.
    fn read(&self, range: TimeRange, out: &mut Columns) -> Result<(), QueryError> {
        self.for_each_group(range, |group| match group {
            [alone] => alone.source.read(range, out),
            several => read_overlapping(several, range, out),
        })
    }

    fn read_typed(&self, range: TimeRange, out: &mut TypedColumns) -> Result<(), QueryError> {
        self.for_each_group(range, |group| match group {
            [alone] => alone.source.read_typed(range, out),
            several => read_overlapping_typed(several, range, out),
        })
    }

    /// Visits chunks of parts that overlap no other without decoding them.
    fn visit_chunks(
        &self,
        range: TimeRange,
        accepts: &dyn Fn(u8) -> bool,
        scratch: &mut Columns,
        visit: &mut VisitSamples<'_>,
    ) -> Result<(), QueryError> {
        self.for_each_group(range, |group| match group {
            [alone] => alone.source.visit_chunks(range, accepts, scratch, visit),
            several => {
                scratch.clear();
                read_overlapping(several, range, scratch)?;
                if scratch.is_empty() { Ok(()) } else { visit(SamplesPart::Decoded(scratch)) }
            }
        })
    }

    fn rollup_archives(&self, out: &mut Vec<RollupArchive>) {
        self.parts.iter().for_each(|part| part.source.rollup_archives(out));
        // Parts without some of the methods answer with their samples.
        out.sort_unstable_by_key(|archive| (archive.span_ms(), archive.slot_ms()));
        out.dedup_by_key(|archive| (archive.span_ms(), archive.slot_ms()));
    }

    fn read_rollup(
        &self,
        archive: &RollupArchive,
        range: TimeRange,
        out: &mut RollupRead,
    ) -> Result<(), QueryError> {
        let wanted = |part: &&Part| range.overlaps_inclusive(part.min_time, part.max_time);
        let reads = self.parts.iter().filter(wanted).map(|part| {
            let mut read = RollupRead::new(archive.methods);
            part.source.read_rollup(archive, range, &mut read).map(|()| read)
        });
        *out = RollupRead::merged(archive, reads.collect::<Result<_, _>>()?);
        Ok(())
    }

    fn column_type(&self) -> ColumnType {
        self.parts.first().map_or(ColumnType::Float, |part| part.source.column_type())
    }

    fn sample_count_hint(&self) -> usize {
        self.parts.iter().map(|part| part.source.sample_count_hint()).sum()
    }

    fn chunk_count_hint(&self) -> usize {
        self.parts.iter().map(|part| part.source.chunk_count_hint()).sum()
    }

    fn time_bounds(&self) -> Option<(i64, i64)> {
        Some((self.parts.first()?.min_time, self.parts.iter().map(|part| part.max_time).max()?))
    }
}

fn read_overlapping(group: &[&Part], range: TimeRange, out: &mut Columns) -> Result<(), QueryError> {
    let mut columns: Vec<(usize, Columns)> = Vec::with_capacity(group.len());
    for part in group {
        let mut samples = Columns::default();
        part.source.read(range, &mut samples)?;
        if !samples.is_empty() {
            columns.push((part.rank, samples));
        }
    }
    columns.sort_by_key(|(_, samples)| samples.times.first().copied());
    let is_disjoint = columns.windows(2).all(|w| w[0].1.times.last() < w[1].1.times.first());
    if !is_disjoint {
        merge_overlapping(&columns, out);
        return Ok(());
    }
    for (_, samples) in &columns {
        out.extend_from(samples, 0..samples.len());
    }
    Ok(())
}

fn read_overlapping_typed(
    group: &[&Part],
    range: TimeRange,
    out: &mut TypedColumns,
) -> Result<(), QueryError> {
    let mut columns = Vec::with_capacity(group.len());
    for part in group {
        let mut samples = TypedColumns::new(out.values.column_type());
        part.source.read_typed(range, &mut samples)?;
        columns.push((part.rank, samples));
    }
    columns.sort_by_key(|(rank, _)| *rank);
    let times = columns.iter().enumerate().flat_map(|(at, (_, samples))| {
        samples.times.iter().enumerate().map(move |(idx, &time)| (time, at, idx))
    });
    let mut order: Vec<(i64, usize, usize)> = times.collect();
    order.sort_unstable();
    order.dedup_by_key(|(time, ..)| *time);
    for (time, at, idx) in order {
        out.times.push(time);
        out.values.push_from(&columns[at].1.values, idx);
    }
    Ok(())
}

/// Merges by a linear search for the least timestamp, as the number of overlapping parts is small.
fn merge_overlapping(parts: &[(usize, Columns)], out: &mut Columns) {
    let has_samples = |(_, part): &(usize, Columns)| !part.is_empty();
    debug_assert!(parts.iter().all(has_samples), "parts without samples overlap nothing");
    let mut next = vec![0usize; parts.len()];
    let mut last = None;
    loop {
        let mut best: Option<(i64, usize, usize)> = None;
        for (i, (rank, part)) in parts.iter().enumerate() {
            if let Some(&time) = part.times.get(next[i]) {
                let candidate = (time, *rank, i);
                if best.is_none_or(|b| candidate < b) {
                    best = Some(candidate);
                }
            }
        }
        let Some((time, _, i)) = best else { return };
        if last == Some(i) {
            out.push_from(&parts[i].1, next[i]);
        } else {
            out.push_after_gap(&parts[i].1, next[i]);
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
    fn disjoint_sources_are_concatenated_by_time() {
        check(&[&[(5, 5.0)], &[(1, 1.0), (2, 2.0)], &[]], &[(1, 1.0), (2, 2.0), (5, 5.0)]);
    }

    #[test]
    fn the_first_source_wins_at_equal_timestamps() {
        check(
            &[&[(1, 1.0), (3, 3.0)], &[(1, 9.0), (2, 2.0), (3, 9.0), (4, 4.0)], &[(2, 8.0)]],
            &[(1, 1.0), (2, 2.0), (3, 3.0), (4, 4.0)],
        );
    }

    #[test]
    #[should_panic(expected = "a merge has several sources")]
    fn a_merge_of_one_source_is_a_bug() {
        check(&[&[(1, 1.0)]], &[(1, 1.0)]);
    }
}
