//! Sorts the samples of series with histograms by time within one batch.
//!
//! Invariant: samples of one timestamp keep their order (stable sort), so the same one of two values wins.
//! Neighbours decode the same chunk, which is decoded once per batch instead of once per sample.
//! Not here: floats, of which only the out-of-order ones are sorted (`slices`).

use chronolith_model::WriteBatch;

/// Returns a copy of `batch` in which series with histograms are sorted by time; `None` if they are already.
pub(super) fn sorted_by_time(batch: &WriteBatch) -> Option<WriteBatch> {
    if batch.histograms.is_empty() {
        return None;
    }
    let is_unsorted = |at: usize| {
        let series = &batch.series[at];
        let samples = series.samples.start as usize..series.samples.end as usize;
        !batch.times[samples].is_sorted() && !batch.histograms_of(series).is_empty()
    };
    let unsorted: Vec<usize> = (0..batch.series.len()).filter(|&at| is_unsorted(at)).collect();
    if unsorted.is_empty() {
        return None;
    }
    // Maps new to old sample indexes.
    let mut old_idxs: Vec<u32> = (0..batch.times.len() as u32).collect();
    for at in unsorted {
        let samples = &batch.series[at].samples;
        let part = &mut old_idxs[samples.start as usize..samples.end as usize];
        part.sort_by_key(|&idx| batch.times[idx as usize]);
    }
    let histogram = |(at, idx): (u32, &u32)| {
        let found = batch.histograms.binary_search_by_key(idx, |(idx, _)| *idx).ok()?;
        Some((at, batch.histograms[found].1.clone()))
    };
    let start_times = match batch.start_times.as_slice() {
        [] => Vec::new(),
        starts => old_idxs.iter().map(|&idx| starts[idx as usize]).collect(),
    };
    // Every column is named, so that a new one is not left out by mistake.
    Some(WriteBatch {
        source: batch.source,
        raw: batch.raw.clone(),
        series: batch.series.clone(),
        kinds: batch.kinds.clone(),
        fields: batch.fields.clone(),
        times: old_idxs.iter().map(|&idx| batch.times[idx as usize]).collect(),
        values: old_idxs.iter().map(|&idx| batch.values[idx as usize]).collect(),
        texts: batch.texts.clone(),
        rows: batch.rows.clone(),
        histograms: (0..).zip(&old_idxs).filter_map(histogram).collect(),
        start_times,
        reorder_rules: batch.reorder_rules.clone(),
        reordered: batch.reordered.clone(),
        // Not samples: the head does not read them.
        exemplars: Vec::new(),
        metadata: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use chronolith_model::{Histogram, IntHistogram, Labels, WordKind};

    use super::*;

    /// The kinds of the series were left out: with unsorted histograms in the batch, texts were stored as
    /// floats.
    #[test]
    fn kinds_and_fields_of_series_are_kept() {
        let mut batch = WriteBatch::from_labels();
        let name = |name: &str| Labels::from_pairs([("__name__", name)]);
        batch.push_texts(&name("texts"), &[(1, b"up")]);
        batch.push_labels(&name("histograms"), &[(5, 2.0), (3, 3.0)]);
        batch.histograms = vec![(1, Arc::new(Histogram::Int(IntHistogram::default())))];
        batch.fields = vec![0..1, 1..2];
        let sorted = sorted_by_time(&batch).expect("is not sorted");
        assert_eq!(sorted.kinds, [WordKind::Text, WordKind::Float]);
        assert_eq!(sorted.fields, batch.fields);
    }

    #[test]
    fn samples_of_series_with_histograms_are_sorted_and_equal_times_keep_their_order() {
        let mut batch = WriteBatch::from_labels();
        let name = |name: &str| Labels::from_pairs([("__name__", name)]);
        batch.push_labels(&name("floats"), &[(2, 0.0), (1, 1.0)]);
        batch.push_labels(&name("both"), &[(5, 2.0), (3, 3.0), (5, 4.0), (1, 5.0)]);
        let of = |count| Arc::new(Histogram::Int(IntHistogram { count, ..IntHistogram::default() }));
        batch.histograms = vec![(2, of(2)), (5, of(5))];
        batch.start_times = (10..16).collect();
        let sorted = sorted_by_time(&batch).expect("is not sorted");
        assert_eq!(sorted.times, [2, 1, 1, 3, 5, 5]);
        assert_eq!(sorted.values, [0.0, 1.0, 5.0, 3.0, 2.0, 4.0]);
        assert_eq!(sorted.start_times, [10, 11, 15, 13, 12, 14]);
        assert_eq!(sorted.histograms, [(2, of(5)), (4, of(2))]);
        assert_eq!((&sorted.series, &sorted.raw), (&batch.series, &batch.raw));
        assert!(sorted_by_time(&sorted).is_none());
    }
}
