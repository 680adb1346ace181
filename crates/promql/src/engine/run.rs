//! One evaluation: what it reads from, its limits, what it counts.
//! Holds: samples and bytes taken through a [`Hold`] are given back when it goes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use chronolith_base::Reservation;
use chronolith_model::{Queryable, ReadContext};

use super::annotation::Annotations;

use super::threads::SpareThreads;
use super::trace::Trace;
use super::{EngineOptions, EvalError, NameRemoval, Query, Sharing};

/// What all operators of one query share.
pub(crate) struct Run<'q> {
    /// Where series come from.
    pub(crate) source: &'q dyn Queryable,
    /// Deadline, cancellation, memory.
    pub(crate) ctx: &'q ReadContext,
    /// Limits and switches.
    pub(crate) options: &'q EngineOptions,
    /// The query.
    pub(crate) query: &'q Query<'q>,
    /// Warnings and infos so far.
    pub(crate) annotations: Annotations<'q>,
    /// What is counted.
    pub(crate) trace: &'q Trace,
    /// Threads that may help.
    pub(crate) spare_threads: &'q SpareThreads,
    /// Whether equal parts are computed once.
    pub(crate) sharing: Sharing,
    /// Whether there were any.
    has_shared: AtomicBool,
    samples_held: AtomicU64,
    samples_peak: AtomicU64,
}

impl<'q> Run<'q> {
    /// Nothing read yet.
    pub(crate) fn new(
        source: &'q dyn Queryable,
        ctx: &'q ReadContext,
        options: &'q EngineOptions,
        query: &'q Query<'q>,
        trace: &'q Trace,
        spare_threads: &'q SpareThreads,
    ) -> Run<'q> {
        Run {
            source,
            ctx,
            options,
            query,
            annotations: Annotations::new(query.text, query.expr),
            trace,
            spare_threads,
            sharing: options.sharing,
            has_shared: AtomicBool::new(false),
            samples_held: AtomicU64::new(0),
            samples_peak: AtomicU64::new(0),
        }
    }

    /// As it is, but every part is computed where it stands.
    pub(crate) fn without_sharing(self) -> Run<'q> {
        Run { sharing: Sharing::Off, ..self }
    }

    /// Some part is computed once for several uses.
    pub(crate) fn note_shared(&self) {
        self.has_shared.store(true, Ordering::Relaxed);
    }

    /// Whether some part was computed once for several uses.
    pub(crate) fn has_shared(&self) -> bool {
        self.has_shared.load(Ordering::Relaxed)
    }

    /// How far an instant selector looks back.
    pub(crate) fn lookback_ms(&self) -> i64 {
        self.query.lookback_ms.unwrap_or(self.options.lookback_ms)
    }

    /// Whether names go only at the end of the query.
    pub(crate) fn delays_names(&self) -> bool {
        self.options.name_removal == NameRemoval::Delayed
    }

    /// An empty hold.
    pub(crate) fn hold(&'q self) -> Hold<'q> {
        Hold { run: self, samples: 0, memory: None }
    }

    /// Counts samples that came from the source.
    pub(crate) fn count_read(&self, samples: usize) {
        self.trace.count_read(samples as u64);
    }

    /// Counts samples as held, if they are within the limit.
    pub(crate) fn try_take_samples(&self, samples: u64) -> bool {
        let held = self.samples_held.fetch_add(samples, Ordering::Relaxed).saturating_add(samples);
        if held > self.options.samples_max {
            self.give_samples(samples);
            return false;
        }
        self.samples_peak.fetch_max(held, Ordering::Relaxed);
        true
    }

    /// Counts samples as held no more.
    pub(crate) fn give_samples(&self, samples: u64) {
        self.samples_held.fetch_sub(samples, Ordering::Relaxed);
    }

    /// Samples read so far.
    pub(crate) fn samples_read(&self) -> u64 {
        self.trace.samples_read()
    }

    /// Most samples held at once.
    pub(crate) fn samples_peak(&self) -> u64 {
        self.samples_peak.load(Ordering::Relaxed)
    }
}

/// Samples and memory in use by an operator.
pub(crate) struct Hold<'q> {
    run: &'q Run<'q>,
    samples: u64,
    memory: Option<Reservation>,
}

impl Hold<'_> {
    /// Takes `samples` more, which use `bytes` more.
    ///
    /// # Errors
    /// The query's limit of samples or of memory.
    pub(crate) fn grow(&mut self, samples: u64, bytes: u64) -> Result<(), EvalError> {
        if !self.run.try_take_samples(samples) {
            return Err(EvalError::TooManySamples);
        }
        self.samples += samples;
        self.run.trace.count_memory(bytes);
        match &mut self.memory {
            Some(memory) => memory.grow(bytes),
            None => self.run.ctx.budget.reserve(bytes).map(|memory| self.memory = Some(memory)),
        }
        .map_err(|full| EvalError::Query(full.into()))
    }

    /// Raises what is held to `samples` and `bytes`, for buffers that are used again and again.
    ///
    /// # Errors
    /// As [`Hold::grow`].
    pub(crate) fn raise_to(&mut self, samples: u64, bytes: u64) -> Result<(), EvalError> {
        let bytes_held = self.memory.as_ref().map_or(0, Reservation::bytes);
        if samples > self.samples || bytes > bytes_held {
            self.grow(samples.saturating_sub(self.samples), bytes.saturating_sub(bytes_held))?;
        }
        Ok(())
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        self.run.samples_held.fetch_sub(self.samples, Ordering::Relaxed);
    }
}
