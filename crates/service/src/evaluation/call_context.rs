//! Context of a call: what its reads may use, and which part of a source they see.
//!
//! Invariants: sources have a deadline of their own exactly in calls whose reads allow a partial result; all
//! views of a call have one start.
//! Not here: permits and deadlines (`run`), the view from a start on (`query::lookback`).

use std::ops::Deref;
use std::sync::Arc;

use chronolith_model::query::{Layer, Layered, Read};
use chronolith_model::{Queryable, ReadContext, SelectionLimits, TimeUnit};

use crate::access::Identity;
use crate::query::lookback::{ReadStart, bounded};
use crate::query::selection_limits::{Limited, SelectionCounts};
use crate::refusal::Refusal;
use crate::service::Service;

/// Context of a call. It is the [`ReadContext`] of its reads, and makes the views that they read.
#[derive(Clone)]
pub struct CallContext {
    read: ReadContext,
    /// Start of the readable time; `None` = all is readable.
    start: Option<Arc<ReadStart>>,
    allows_partial: bool,
    /// Counts of what the call selects; `None` = it has no limits.
    counts: Option<Arc<SelectionCounts>>,
}

impl Deref for CallContext {
    type Target = ReadContext;

    fn deref(&self) -> &ReadContext {
        &self.read
    }
}

impl CallContext {
    /// A call that reads samples from `start_ms` on, or all.
    pub(super) fn new(read: ReadContext, start_ms: Option<i64>) -> CallContext {
        let start = start_ms.map(|start_ms| Arc::new(ReadStart::new(start_ms)));
        CallContext { read, start, allows_partial: false, counts: None }
    }

    /// The same call with limits of what it selects at `now_ms`.
    pub(super) fn with_limits(self, limits: SelectionLimits, now_ms: i64) -> CallContext {
        CallContext { counts: SelectionCounts::of(limits, now_ms), ..self }
    }

    /// The call with the read of `before`, which is repeated: both have one cancellation, one deadline and
    /// one count of fetched bytes. Selected series count from 0 again.
    pub(super) fn repeating(self, before: &CallContext) -> CallContext {
        CallContext { read: before.read.clone(), ..self }
    }

    /// The same call for a client that prefers a partial result to none: a source that fails is left out and
    /// named in a warning. A source that does not answer is given up some time before the deadline.
    #[must_use]
    pub fn with_partial_response(&self) -> CallContext {
        CallContext { read: self.read.with_source_deadline(), allows_partial: true, ..self.clone() }
    }

    /// Returns the part of `source`, whose times are milliseconds, that the call reads, and how.
    #[must_use]
    pub fn view_of(&self, source: Arc<dyn Queryable>) -> Arc<dyn Queryable> {
        let source = match self.allows_partial {
            true => Arc::new(Layered { layer: PartialReads, source }),
            false => source,
        };
        // Below the view from a start on: the part before the start is not read, so it does not count.
        let source = self.limited(source, TimeUnit::Milli);
        match &self.start {
            Some(start) => bounded(source, start.clone()),
            None => source,
        }
    }

    /// Returns `source`, whose times have this unit, within the limits of what the call selects.
    pub(super) fn limited(&self, source: Arc<dyn Queryable>, unit: TimeUnit) -> Arc<dyn Queryable> {
        match &self.counts {
            Some(counts) => Arc::new(Limited::new(counts.clone(), source, unit)),
            None => source,
        }
    }

    /// Returns the series that `identity` may read, as the call reads them.
    ///
    /// # Errors
    /// Without a source: see [`crate::lifecycle::Lifecycle::view`].
    pub fn source_of(&self, service: &Service, identity: &Identity) -> Result<Arc<dyn Queryable>, Refusal> {
        Ok(self.view_of(service.lifecycle.view(identity)?))
    }

    /// Time before which the call reads no samples.
    pub(crate) fn start_ms(&self) -> Option<i64> {
        self.start.as_ref().map(|start| start.start_ms())
    }

    /// Returns true if a read of the call has asked for samples before the start.
    pub(super) fn is_start_moved(&self) -> bool {
        self.start.as_ref().is_some_and(|start| start.is_moved())
    }
}

/// View of a source whose reads allow a partial result.
struct PartialReads;

impl Layer for PartialReads {
    fn rewrite(&self, mut read: Read, _: &ReadContext) -> Option<Read> {
        read.request.allows_partial = true;
        Some(read)
    }
}

#[cfg(test)]
mod tests {
    use chronolith_base::ManualClock;
    use chronolith_model::query::{Opened, Source};
    use chronolith_model::{QueryError, Selector, TimeRange};
    use parking_lot::Mutex;

    use super::*;

    /// An empty source that keeps the reads that reach it.
    #[derive(Default)]
    struct Recorder {
        reads: Mutex<Vec<Read>>,
    }

    impl Source for Recorder {
        fn open(&self, read: Read, _: &ReadContext) -> Result<Opened, QueryError> {
            let opened = Opened::nothing(&read.wanted);
            self.reads.lock().push(read);
            Ok(opened)
        }
    }

    fn call(start_ms: Option<i64>) -> CallContext {
        CallContext::new(ReadContext::unlimited(Arc::new(ManualClock::new(0))), start_ms)
    }

    /// Returns range and wish of each read that reaches a source if `ctx` selects 100..200 and 300..400.
    fn reads_of(ctx: &CallContext) -> Vec<(i64, i64, bool)> {
        let recorder = Arc::new(Recorder::default());
        for start in [100, 300] {
            let range = TimeRange { start, end: start + 100 };
            let view = ctx.view_of(recorder.clone());
            view.select(&Selector { matchers: &[], range }, ctx).expect("opens");
        }
        let reads = recorder.reads.lock();
        let request = reads.iter().map(|read| &read.request);
        request.map(|request| (request.range.start, request.range.end, request.allows_partial)).collect()
    }

    #[test]
    fn a_call_reads_nothing_before_its_start() {
        for (start_ms, want, is_moved) in [
            (None, vec![(100, 200, false), (300, 400, false)], false),
            (Some(100), vec![(100, 200, false), (300, 400, false)], false),
            (Some(150), vec![(150, 200, false), (300, 400, false)], true),
            (Some(200), vec![(300, 400, false)], true),
        ] {
            let ctx = call(start_ms);
            assert_eq!(reads_of(&ctx), want, "{start_ms:?}");
            assert_eq!(ctx.is_start_moved(), is_moved, "{start_ms:?}");
        }
    }

    #[test]
    fn the_reads_of_a_partial_call_allow_that_sources_fail() {
        let whole = call(Some(150));
        let partial = whole.with_partial_response();
        assert!(partial.has_source_deadline() && !whole.has_source_deadline());
        assert_eq!(reads_of(&partial), [(150, 200, true), (300, 400, true)]);
        // Both contexts are of one call.
        assert!(whole.is_start_moved());
        assert_eq!(reads_of(&whole), [(150, 200, false), (300, 400, false)]);
    }
}
