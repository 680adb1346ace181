//! Storing histograms, and floats of series that have histograms.
//!
//! Holds: a sample is judged against those of both kinds. A sample in order of the other kind ends the open chunk, as
//! upstream does, so that chunks follow each other where samples do.

use std::sync::Arc;

use chronolith_format::histogram::{self, HistogramAppender};
use chronolith_format::kinds;
use chronolith_format::xor::SAMPLES_PER_CHUNK;
use chronolith_model::sample::is_stale;
use chronolith_model::{Columns, DuplicatePolicy, Histogram, TimeRange};

use super::super::free::{Gap, Known, SeriesWindow};
use super::super::{Applied, Stripe, StripeWorld, is_gap};
use super::{Seen, Track};
use crate::windows::WindowTally;

/// Whether a histogram that is offered is the stored one: chunks fill in and leave out buckets without observations.
fn is_repeat(stored: &Histogram, offered: &Histogram) -> bool {
    (is_stale(stored.sum()) && is_stale(offered.sum())) || stored.says_same(offered)
}

/// A change of kind at a time that was taken is a replacement, wherever the sample went.
fn as_replaced(applied: Applied) -> Applied {
    match applied {
        Applied::InOrder | Applied::Late => Applied::Replaced,
        other => other,
    }
}

/// What a sample of one kind means where the other kind has `time`.
enum Other {
    Absent,
    /// It has been taken away.
    Gone,
    /// The sample needs no place.
    Judged(Applied),
}

impl Stripe {
    /// Stores one histogram of series `id`, and seals late ones if that makes them too many.
    pub(crate) fn append_histogram(
        &mut self,
        world: &StripeWorld<'_>,
        windows: &mut WindowTally,
        id: u32,
        time: i64,
        histogram: &Arc<Histogram>,
    ) -> Applied {
        let applied = self.append_histogram_unsealed(world, windows, id, time, histogram);
        if !self.due.is_empty() {
            self.seal_due(world, windows);
        }
        applied
    }

    /// As [`Stripe::append_histogram`]; what is to be sealed is left to the caller (see [`Stripe::take_due`]).
    pub(crate) fn append_histogram_unsealed(
        &mut self,
        world: &StripeWorld<'_>,
        windows: &mut WindowTally,
        id: u32,
        time: i64,
        histogram: &Arc<Histogram>,
    ) -> Applied {
        if self.hot(id).is_none() {
            return Applied::Gone;
        }
        self.touch(id);
        let other = match self.float_at(world, id, time) {
            None => Other::Absent,
            Some(bits) if is_stale(f64::from_bits(bits)) && is_stale(histogram.sum()) => {
                Other::Judged(Applied::Repeat)
            }
            Some(_) if world.duplicates == DuplicatePolicy::KeepFirst => Other::Judged(Applied::Conflict),
            Some(_) => {
                self.erase_floats(world, windows, id, TimeRange::inclusive(time, time));
                Other::Gone
            }
        };
        let applied = match other {
            Other::Judged(applied) => return applied,
            Other::Absent => self.put_histogram(world, windows, id, time, histogram),
            Other::Gone => as_replaced(self.put_histogram(world, windows, id, time, histogram)),
        };
        self.keep_histogram_budget(world, windows);
        applied
    }

    /// Bits of the float that the series has at `time`.
    fn float_at(&mut self, world: &StripeWorld<'_>, id: u32, time: i64) -> Option<u64> {
        let hot = self.hot(id).filter(|hot| hot.xor.count() > 0 && time <= hot.xor.time()).cloned()?;
        let window = SeriesWindow::of(world, id, time);
        match self.free.known(window, time) {
            Known::Free => None,
            Known::NoChunk => self.late.find(hot.late, time),
            Known::Nothing => {
                self.late.find(hot.late, time).or_else(|| self.chunk_value(world, window, &hot, time))
            }
        }
    }

    /// Stores a histogram where no float is.
    fn put_histogram(
        &mut self,
        world: &StripeWorld<'_>,
        windows: &mut WindowTally,
        id: u32,
        time: i64,
        histogram: &Arc<Histogram>,
    ) -> Applied {
        if self.histograms.get(id).is_none_or(|track| time > track.last) {
            self.push_histogram(world, windows, id, time, histogram);
            return Applied::InOrder;
        }
        let stored = self.histogram_at(world, id, time);
        let applied = match &stored {
            None => Applied::Late,
            Some(found) if is_repeat(found, histogram) => return Applied::Repeat,
            Some(_) if world.duplicates == DuplicatePolicy::KeepFirst => return Applied::Conflict,
            Some(_) => Applied::Replaced,
        };
        if self.histograms.put_late(id, time, histogram).is_none() {
            windows.add_aside(time, 1);
        }
        if self.due.last() != Some(&id) && self.histograms.is_full(id) {
            self.due.push(id);
        }
        applied
    }

    /// Appends a histogram that is later than all others of the series.
    fn push_histogram(
        &mut self,
        world: &StripeWorld<'_>,
        windows: &mut WindowTally,
        id: u32,
        time: i64,
        histogram: &Arc<Histogram>,
    ) {
        if self.hot(id).is_some_and(|hot| time > hot.xor.time()) {
            self.seal_open(world, windows, id);
        }
        let track = self.histograms.track_or_new(id);
        let window_end = track.window_end;
        let goes_on = |open: &&mut HistogramAppender| time < window_end && !kinds::is_full(open);
        let (is_stored, cut) = match track.open.as_mut().filter(goes_on) {
            Some(open) => (true, open.append(time, histogram)),
            None => (false, None),
        };
        if !is_stored || cut.is_some() {
            let before = self.seal_open_histograms(world, windows, id);
            let start = || HistogramAppender::start(before.as_ref(), time, histogram);
            let open = cut.unwrap_or_else(start);
            let track = self.histograms.track_or_new(id);
            track.open = Some(open);
            track.window_end = TimeRange::window_of(time, world.window_ms).end;
        }
        self.histograms.track_or_new(id).last = time;
        self.histograms.recount(id);
        windows.add(time, 1);
        self.bar_floats(id);
    }

    /// Stores a float of a series that has histograms.
    pub(in crate::stripe) fn append_beside(
        &mut self,
        world: &StripeWorld<'_>,
        windows: &mut WindowTally,
        id: u32,
        time: i64,
        value_bits: u64,
    ) -> Applied {
        let value = f64::from_bits(value_bits);
        match self.histogram_at(world, id, time) {
            None => {}
            Some(found) if is_stale(found.sum()) && is_stale(value) => return Applied::Repeat,
            Some(_) if world.duplicates == DuplicatePolicy::KeepFirst => return Applied::Conflict,
            Some(_) => {
                self.erase_histograms(world, windows, id, TimeRange::inclusive(time, time));
                return as_replaced(self.append_float(world, windows, id, time, value_bits));
            }
        }
        let float_last = self.hot(id).filter(|hot| hot.xor.count() > 0).map(|hot| hot.xor.time());
        let last = self.histograms.get(id).map(|track| track.last);
        if is_stale(value) && last < Some(time) && float_last < last {
            // The end of a series of histograms is one of them, whoever writes it: scrapes and rules do not know.
            let stale = self.stale_histogram(id);
            self.push_histogram(world, windows, id, time, &stale);
            return Applied::InOrder;
        }
        if last < Some(time) {
            self.seal_open_histograms(world, windows, id);
        }
        self.append_float(world, windows, id, time, value_bits)
    }

    /// The staleness marker, of the kind of counts that the open chunk has.
    fn stale_histogram(&self, id: u32) -> Arc<Histogram> {
        let stale = Histogram::stale();
        let open = self.histograms.get(id).and_then(|track| track.open.as_ref());
        Arc::new(match open.map(HistogramAppender::encoding) {
            Some(histogram::ENCODING_HISTOGRAM) => {
                let sum = stale.sum();
                Histogram::Int(chronolith_model::IntHistogram { sum, ..Default::default() })
            }
            _ => stale,
        })
    }

    /// Stores a float where no histogram is.
    fn append_float(
        &mut self,
        world: &StripeWorld<'_>,
        windows: &mut WindowTally,
        id: u32,
        time: i64,
        value_bits: u64,
    ) -> Applied {
        let Some(hot) = self.hot(id) else { return Applied::Gone };
        let (mut state, open) = (hot.xor, hot.open);
        let window = TimeRange::window_of(hot.open_min, world.window_ms);
        if open.is_none() || time <= state.time() || time >= window.end {
            let applied = match self.append_apart(world, windows, id, time, value_bits) {
                Applied::Behind => self.append_late_apart(world, windows, id, time, value_bits),
                applied => applied,
            };
            if self.histograms.get(id).is_some() {
                self.bar_floats(id);
            }
            return applied;
        }
        if is_gap(&state, time) {
            let window = SeriesWindow::of(world, id, time);
            let (step_ms, after) = (state.step_ms(), state.time());
            self.free.note_gap(Gap { window, step_ms, after, before: time });
        }
        let open = self.chains.append(open, &mut state, time, f64::from_bits(value_bits));
        if let Some(hot) = self.hot_mut(id) {
            (hot.open, hot.xor) = (open, state);
        }
        windows.add(time, 1);
        if usize::from(state.count()) >= SAMPLES_PER_CHUNK {
            self.seal_open(world, windows, id);
        }
        Applied::InOrder
    }

    /// The histogram that the series has at `time`.
    fn histogram_at(&mut self, world: &StripeWorld<'_>, id: u32, time: i64) -> Option<Arc<Histogram>> {
        let mut decoded = self.histograms.decoded.take();
        let found = self.histograms.get(id).filter(|track| time <= track.last);
        let found = found.and_then(|track| find(track, world, id, time, &mut decoded));
        self.histograms.decoded = decoded;
        found
    }
}

/// Looks among late histograms first, then in the one chunk that may have the time.
fn find(
    track: &Track,
    world: &StripeWorld<'_>,
    id: u32,
    time: i64,
    decoded: &mut Option<(Seen, Columns)>,
) -> Option<Arc<Histogram>> {
    if let Some(waiting) = track.late.get(&time) {
        return Some(waiting.clone());
    }
    let at = |samples: &Columns| {
        let at = samples.times.binary_search(&time).ok()?;
        samples.histogram_at(at).cloned()
    };
    if let Some(open) = &track.open
        && (open.times().0..=open.times().1).contains(&time)
    {
        let seen = Seen::Open { id, first: open.times().0, count: open.count() };
        if decoded.as_ref().is_none_or(|(before, _)| *before != seen) {
            *decoded = Some((seen, super::seal::open_samples(open)));
        }
        return decoded.as_ref().and_then(|(_, samples)| at(samples));
    }
    for node in track.sealed.near(time) {
        let seen = Seen::Sealed(node.place);
        if decoded.as_ref().is_none_or(|(before, _)| *before != seen) {
            // A chunk that cannot be read cannot object to a sample either; queries name the damage.
            let Some(samples) = super::seal::sealed_samples(world, node) else { continue };
            *decoded = Some((seen, samples));
        }
        if let Some(found) = decoded.as_ref().and_then(|(_, samples)| at(samples)) {
            return Some(found);
        }
    }
    None
}
