//! Series, exemplars and metadata of a batch by partition: a counting sort.
//!
//! Invariants: each item is in one part; a part has the order of the batch, exemplars the order of their
//! series; the parts of a batch with one partition are the batch.
//! Not here: choice of the partition of a key (`model::partition`).

use chronolith_model::WriteBatch;

/// Indices of items, part after part.
#[derive(Debug, Default)]
struct Grouped {
    items: Vec<u32>,
    /// End of each part in `items`.
    ends: Vec<u32>,
}

impl Grouped {
    /// Sorts items by their parts; items of equal parts keep their order.
    fn fill(&mut self, part_count: usize, parts: &[u32]) {
        self.ends.clear();
        self.ends.resize(part_count, 0);
        for &part in parts {
            self.ends[part as usize] += 1;
        }
        let mut total = 0;
        for end in &mut self.ends {
            // The start of the part, which the second pass moves to its end.
            total += std::mem::replace(end, total);
        }
        self.items.clear();
        self.items.resize(parts.len(), 0);
        for (item, &part) in (0..).zip(parts) {
            let end = &mut self.ends[part as usize];
            self.items[*end as usize] = item;
            *end += 1;
        }
    }

    fn part(&self, part: usize) -> &[u32] {
        let start = part.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        let end = self.ends.get(part).copied().unwrap_or(start);
        self.items.get(start as usize..end as usize).unwrap_or_default()
    }
}

/// Items of a batch that go to one partition, as indices into its columns.
#[derive(Debug, Clone, Copy)]
pub struct BatchPart<'a> {
    /// Series, ascending.
    pub series: &'a [u32],
    /// Exemplars in the order of their series, which are all in `series`.
    pub exemplars: &'a [u32],
    /// Metadata entries.
    pub metadata: &'a [u32],
}

impl BatchPart<'_> {
    /// Returns true if the partition gets nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.series.is_empty() && self.metadata.is_empty()
    }
}

/// A batch by partition; keeps its memory from batch to batch.
#[derive(Debug, Default)]
pub struct BatchSplit {
    part_count: usize,
    series: Grouped,
    exemplars: Grouped,
    metadata: Grouped,
    /// Part of each series, and then of each other item.
    parts: Vec<u32>,
    other_parts: Vec<u32>,
}

impl BatchSplit {
    /// Divides `batch` among `part_count` parts; `part_of` returns the part of a wire key without field and
    /// kind, so that a row is in one part, and of the name of a metric that has metadata. Cost: one call per
    /// key, none for one part.
    ///
    /// # Panics
    /// If there are no parts, or a part is none of them.
    pub fn fill(&mut self, batch: &WriteBatch, part_count: usize, part_of: impl Fn(&[u8]) -> u32) {
        assert!(part_count > 0, "a tenant has a partition");
        self.part_count = part_count;
        let part_of = |key: &[u8]| if part_count == 1 { 0 } else { part_of(key) };
        self.parts.clear();
        let mut last = u32::MAX..u32::MAX;
        let mut part = 0;
        for series in &batch.series {
            if series.raw != last {
                last = series.raw.clone();
                part = part_of(batch.raw_of(series));
            }
            self.parts.push(part);
        }
        self.series.fill(part_count, &self.parts);
        self.other_parts.clear();
        let of_series = |idx: u32| self.parts.get(idx as usize).copied().unwrap_or(0);
        self.other_parts.extend(batch.exemplars.iter().map(|exemplar| of_series(exemplar.series_idx)));
        self.exemplars.fill(part_count, &self.other_parts);
        if !batch.exemplars.is_sorted_by_key(|exemplar| exemplar.series_idx) {
            let ends = self.exemplars.ends.clone();
            let mut start = 0;
            for end in ends {
                let part = &mut self.exemplars.items[start as usize..end as usize];
                part.sort_by_key(|&idx| batch.exemplars[idx as usize].series_idx);
                start = end;
            }
        }
        self.other_parts.clear();
        self.other_parts.extend(batch.metadata.iter().map(|entry| part_of(entry.metric.as_bytes())));
        self.metadata.fill(part_count, &self.other_parts);
    }

    /// Returns the parts, empty ones included.
    pub fn parts(&self) -> impl Iterator<Item = BatchPart<'_>> {
        (0..self.part_count).map(|part| BatchPart {
            series: self.series.part(part),
            exemplars: self.exemplars.part(part),
            metadata: self.metadata.part(part),
        })
    }
}
