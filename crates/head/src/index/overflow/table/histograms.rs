//! Native histograms of the overflow table: last histograms of series, and their sums.
//!
//! Not here: entries and slots (`table`), the sums of a slot (`histogram_sums`).

use std::sync::Arc;

use chronolith_format::head::wal::{OverflowHistogram, OverflowHistogramsRef, OverflowSlot};
use chronolith_model::sample::is_stale;
use chronolith_model::{FloatHistogram, Histogram};

use super::super::histogram_sums::has_finite_counts;
use super::super::last_histograms::{decode, encode};
use super::super::slot::{Slot, ValueClass, step_of};
use super::{BLOCK_COUNT, Entry, Folded, HISTOGRAM_NONE, OverflowTable};

impl OverflowTable {
    /// Folds a histogram into its entry and the sums of its slot. From `bytes_max` bytes on, series get no
    /// first histogram and no larger one; from twice as many on, none at all.
    pub(crate) fn fold_histogram(
        &mut self,
        entry: usize,
        time: i64,
        histogram: &Histogram,
        bytes_max: usize,
    ) -> Folded {
        let last = *self.entry(entry);
        if time <= last.time() {
            return Folded::Repeated;
        }
        let used = self.histogram_bytes();
        let Some(slot) = self.slots.get_mut(last.slot()).and_then(Option::as_mut) else {
            return Folded::Ignored;
        };
        let is_stale = is_stale(histogram.sum());
        let is_counter = slot.kind.is_counter();
        let class = if is_stale { slot.kind.class() } else { ValueClass::of(histogram) };
        let Some(sums) = slot.histograms.as_deref_mut().filter(|_| slot.kind.class() == class) else {
            return Folded::OtherClass;
        };
        if !has_finite_counts(histogram) || (is_stale && is_counter) {
            return Folded::Ignored;
        }
        let sum_bytes = sums.heap_bytes();
        sums.set_bounds_of(histogram);
        encode(histogram, sums.bounds(), &mut self.encoded);
        let stored = last.histogram_idx().map(|idx| self.last_histograms.get(idx));
        let grows = stored.is_none_or(|stored| self.encoded.len() > stored.len());
        if !is_stale && used >= if grows { bytes_max } else { bytes_max.saturating_mul(2) } {
            self.histogram_sum_bytes = self.histogram_sum_bytes + sums.heap_bytes() - sum_bytes;
            return Folded::Full;
        }
        let before = stored.and_then(|stored| decode(stored, sums.bounds()));
        if is_counter {
            sums.add_increase(before.as_ref(), histogram);
        } else {
            if let Some(before) = &before {
                let is_last = slot.active.remove(last.time(), before.sum());
                sums.remove_gauge(last.time(), before, is_last);
            }
            if !is_stale {
                slot.active.add(time, histogram.sum());
                sums.add_gauge(time, histogram);
            }
        }
        self.histogram_sum_bytes = self.histogram_sum_bytes + sums.heap_bytes() - sum_bytes;
        slot.time = slot.time.max(step_of(time));
        self.newest_time = self.newest_time.max(Some(time));
        self.set_last(entry, time, !is_stale);
        Folded::Changed
    }

    /// Sets time and last histogram of an entry: the encoded one, or none.
    fn set_last(&mut self, entry: usize, time: i64, has_histogram: bool) {
        let found = &mut self.blocks[entry / BLOCK_COUNT][entry % BLOCK_COUNT];
        let idx = found.histogram_idx();
        found.set_time(time);
        let bits = if has_histogram {
            u64::from(self.last_histograms.put(idx, &self.encoded))
        } else {
            idx.into_iter().for_each(|idx| self.last_histograms.remove(idx));
            HISTOGRAM_NONE
        };
        found.value = f64::from_bits(bits);
    }

    /// Removes the last histogram of an entry that leaves its slot.
    pub(super) fn release_histogram(&mut self, entry: &Entry) {
        let Some(slot) = self.slots.get_mut(entry.slot()).and_then(Option::as_mut) else { return };
        let (Some(sums), Some(idx)) = (slot.histograms.as_deref_mut(), entry.histogram_idx()) else { return };
        let last = decode(self.last_histograms.get(idx), sums.bounds());
        self.last_histograms.remove(idx);
        if let Some(last) = last.filter(|_| !slot.kind.is_counter()) {
            let sum_bytes = sums.heap_bytes();
            let is_last = slot.active.remove(entry.time(), last.sum());
            sums.remove_gauge(entry.time(), &last, is_last);
            self.histogram_sum_bytes = self.histogram_sum_bytes + sums.heap_bytes() - sum_bytes;
        }
    }

    /// Applies a WAL frame of histograms.
    ///
    /// # Errors
    /// As [`OverflowTable::apply`].
    pub(crate) fn apply_histograms(&mut self, changes: &OverflowHistogramsRef<'_>) -> Result<(), String> {
        let slots = self.restore_slots(&changes.slots)?;
        for sample in &changes.samples {
            let entry = self.replayed_entry(&slots, sample.slot, sample.key, sample.time)?;
            self.fold_histogram(entry, sample.time, &sample.histogram, usize::MAX);
        }
        Ok(())
    }

    /// Restores a slot of a checkpoint; returns its number.
    pub(crate) fn load_histogram_slot(
        &mut self,
        slot: &OverflowSlot<'_>,
        time: i64,
        total: Option<FloatHistogram>,
    ) -> Result<usize, String> {
        let idx = self.restore_slot(slot)?;
        if let Some(slot) = self.slots.get_mut(idx).and_then(Option::as_mut) {
            slot.time = time;
            if let Some(sums) = &mut slot.histograms {
                let sum_bytes = sums.heap_bytes();
                sums.set_total(total);
                self.histogram_sum_bytes = self.histogram_sum_bytes + sums.heap_bytes() - sum_bytes;
            }
        }
        Ok(idx)
    }

    /// Restores a series of a checkpoint.
    pub(crate) fn load_histogram(&mut self, key: u128, slot: usize, time: i64, histogram: &Histogram) {
        if !OverflowTable::takes_time(time) || self.find(key, usize::MAX).is_some() {
            return;
        }
        let entry = self.insert(key, slot);
        let Some(slot) = self.slots.get_mut(slot).and_then(Option::as_mut) else { return };
        let Some(sums) = &mut slot.histograms else { return };
        let is_stale = is_stale(histogram.sum());
        let sum_bytes = sums.heap_bytes();
        sums.set_bounds_of(histogram);
        encode(histogram, sums.bounds(), &mut self.encoded);
        if !slot.kind.is_counter() && !is_stale {
            slot.active.add(time, histogram.sum());
            sums.add_gauge(time, histogram);
        }
        self.histogram_sum_bytes = self.histogram_sum_bytes + sums.heap_bytes() - sum_bytes;
        self.newest_time = self.newest_time.max(Some(time));
        self.set_last(entry, time, !is_stale);
    }

    /// Iterates over the series with a histogram, with numbers of slots as in `numbers`.
    pub(crate) fn histograms<'a>(
        &'a self,
        numbers: &'a [Option<u32>],
    ) -> impl Iterator<Item = OverflowHistogram> + 'a {
        self.with_sample(numbers).map(|(slot, entry)| OverflowHistogram {
            slot,
            key: entry.key,
            time: entry.time(),
            histogram: Arc::new(self.last_histogram(entry)),
        })
    }

    fn last_histogram(&self, entry: &Entry) -> Histogram {
        let sums = self.slot(entry.slot()).and_then(|slot| slot.histograms.as_deref());
        let idx = entry.histogram_idx();
        let last = sums.zip(idx).and_then(|(sums, idx)| decode(self.last_histograms.get(idx), sums.bounds()));
        last.unwrap_or_else(Histogram::stale)
    }

    /// Sets all sums of increases to zero.
    pub(super) fn reset_histogram_totals(&mut self) {
        for sums in self.slots.iter_mut().flatten().filter_map(|slot| slot.histograms.as_deref_mut()) {
            let sum_bytes = sums.heap_bytes();
            sums.set_total(None);
            self.histogram_sum_bytes = self.histogram_sum_bytes + sums.heap_bytes() - sum_bytes;
        }
    }

    /// Bytes of last histograms and of sums of histograms.
    pub(crate) fn histogram_bytes(&self) -> usize {
        self.last_histograms.heap_bytes() + self.histogram_sum_bytes
    }

    /// Number of folded series whose last value is a histogram.
    pub(crate) fn histogram_count(&self) -> usize {
        self.last_histograms.count()
    }
}

impl Slot {
    /// Sum of increases of histograms, for a checkpoint.
    pub(crate) fn histogram_total(&self) -> Option<&FloatHistogram> {
        self.histograms.as_ref()?.total()
    }
}
