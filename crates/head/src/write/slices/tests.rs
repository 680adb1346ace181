//! Slices have each sample of a batch once.

use chronolith_base::Rng;
use chronolith_model::{Labels, WriteBatch};

use super::*;

#[test]
fn slices_have_each_sample_once_and_are_small() {
    let rng = Rng::from_seed(1);
    for round in 0..50 {
        let mut batch = WriteBatch::from_labels();
        let series_count = 1 + rng.below(30);
        for idx in 0..series_count {
            let len = if rng.below(3) == 0 { rng.below(30_000) } else { rng.below(3_000) };
            let samples: Vec<(i64, f64)> = (0..len.max(1) as i64).map(|t| (t, 0.0)).collect();
            batch.push_labels(&Labels::from_pairs([("__name__", &*format!("m{idx}"))]), &samples);
        }
        let mut order: Vec<u32> = (0..series_count as u32).collect();
        if round % 2 == 0 {
            order.reverse();
        }
        let mut seen = vec![0u8; batch.sample_count()];
        let (mut next, mut first) = (0, 0);
        while next < order.len() {
            let slice = slice_at(&batch, &order, next, first);
            let mut count = 0;
            for &idx in &order[slice.order.clone()] {
                let samples = &batch.series[idx as usize].samples;
                let from = slice.within.start.max(samples.start as usize);
                let meant = &mut seen[from..slice.within.end.min(samples.end as usize)];
                meant.iter_mut().for_each(|times| *times += 1);
                count += meant.len();
            }
            assert!(count <= SLICE_SAMPLES && count > 0, "{count}");
            assert!(slice.next > next || slice.next_first > first);
            (next, first) = (slice.next, slice.next_first);
        }
        assert!(seen.iter().all(|&times| times == 1));
    }
}
