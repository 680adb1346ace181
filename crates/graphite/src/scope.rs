//! The context of a request: range, factor, budget, and the calls from functions into the evaluator.
//!
//! Invariants: a copy with another range shares prefetched series, budget and stacks; `setXFilesFactor`
//! changes the factor for everything evaluated after it in the same scope.
//! Not here: walking the tree (`eval`).

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use jiff::tz::TimeZone;

use crate::error::EvalError;
use crate::series::Series;
use crate::storage::Source;
use crate::syntax::Node;
use crate::time::Moment;
use crate::value::Value;

/// Limits of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Series that are fetched, over all expressions and ranges.
    pub series_max: u64,
    /// Points that are fetched or computed.
    pub points_max: u64,
    /// Bytes of points.
    pub bytes_max: u64,
    /// Targets, including targets of re-evaluation.
    pub targets_max: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { series_max: 250_000, points_max: 200_000_000, bytes_max: 2 << 30, targets_max: 20_000 }
    }
}

/// Memory and targets that a request has used, and its cancellation.
pub(crate) struct Budget<'a> {
    limits: Limits,
    /// Owner of the memory.
    source: &'a dyn Source,
    is_canceled: &'a dyn Fn() -> bool,
    series: Cell<u64>,
    points: Cell<u64>,
    targets: Cell<u64>,
    /// Bytes of values of the evaluation, apart from fetched points.
    used_bytes: Cell<u64>,
    /// Bytes that stay until the end of the request: trees, prefetched series.
    kept_bytes: Cell<u64>,
    /// Bytes reserved of the source: the largest sum of the two so far.
    reserved_bytes: Cell<u64>,
}

/// Bytes of a point.
pub(crate) const POINT_BYTES: u64 = 8;

impl<'a> Budget<'a> {
    /// A budget that asks `is_canceled` (deadline passed, client gone) at each reservation.
    #[must_use]
    pub(crate) fn new(limits: Limits, source: &'a dyn Source, is_canceled: &'a dyn Fn() -> bool) -> Self {
        Budget {
            limits,
            source,
            is_canceled,
            series: Cell::new(0),
            points: Cell::new(0),
            targets: Cell::new(0),
            used_bytes: Cell::new(0),
            kept_bytes: Cell::new(0),
            reserved_bytes: Cell::new(0),
        }
    }

    /// Reserves memory that is released by [`Budget::release_to`].
    /// # Errors
    /// Of [`Source::reserve`]; [`EvalError::Canceled`].
    pub(crate) fn reserve_bytes(&self, bytes: u64) -> Result<(), EvalError> {
        self.used_bytes.set(self.used_bytes.get().saturating_add(bytes));
        self.reserve_peak()
    }

    /// Reserves memory until the end of the request.
    /// # Errors
    /// As [`Budget::reserve_bytes`].
    pub(crate) fn keep_bytes(&self, bytes: u64) -> Result<(), EvalError> {
        self.kept_bytes.set(self.kept_bytes.get().saturating_add(bytes));
        self.reserve_peak()
    }

    /// Bytes in use, for [`Budget::release_to`].
    pub(crate) fn used_bytes(&self) -> u64 {
        self.used_bytes.get()
    }

    /// Releases reservations made after `used_bytes` was read; the next reservations use the bytes again.
    pub(crate) fn release_to(&self, used_bytes: u64) {
        assert!(used_bytes <= self.used_bytes.get(), "only reservations that were made are released");
        self.used_bytes.set(used_bytes);
    }

    fn reserve_peak(&self) -> Result<(), EvalError> {
        let needed = self.used_bytes.get().saturating_add(self.kept_bytes.get());
        let more = needed.saturating_sub(self.reserved_bytes.get());
        if more > 0 {
            self.check()?;
            self.source.reserve(more)?;
            self.reserved_bytes.set(needed);
        }
        Ok(())
    }

    /// # Errors
    /// [`EvalError::Canceled`] if the request is to end.
    pub(crate) fn check(&self) -> Result<(), EvalError> {
        if (self.is_canceled)() { Err(EvalError::Canceled) } else { Ok(()) }
    }

    /// Reserves memory for points that a function computes.
    /// # Errors
    /// As [`Budget::count_points`], and of [`Source::reserve`].
    pub(crate) fn reserve_points(&self, count: u64) -> Result<(), EvalError> {
        self.count_points(count)?;
        self.reserve_bytes(count.saturating_mul(POINT_BYTES))
    }

    /// Counts points whose memory the source has reserved.
    /// # Errors
    /// [`EvalError::Limit`] if the points or their bytes exceed a limit, [`EvalError::Canceled`].
    pub(crate) fn count_points(&self, count: u64) -> Result<(), EvalError> {
        self.check()?;
        let points = take(&self.points, count, self.limits.points_max, "points")?;
        let bytes = points.saturating_mul(POINT_BYTES);
        if bytes > self.limits.bytes_max {
            return Err(EvalError::Limit {
                what: "bytes of points",
                found: bytes,
                limit: self.limits.bytes_max,
            });
        }
        Ok(())
    }

    /// # Errors
    /// [`EvalError::Limit`] if more series are fetched than allowed.
    pub(crate) fn reserve_series(&self, count: u64) -> Result<(), EvalError> {
        take(&self.series, count, self.limits.series_max, "series").map(|_| ())
    }

    /// # Errors
    /// [`EvalError::Limit`] if more targets are evaluated than allowed, [`EvalError::Canceled`].
    pub(crate) fn reserve_target(&self) -> Result<(), EvalError> {
        self.check()?;
        take(&self.targets, 1, self.limits.targets_max, "targets").map(|_| ())
    }
}

fn take(used: &Cell<u64>, count: u64, limit: u64, what: &'static str) -> Result<u64, EvalError> {
    let found = used.get().saturating_add(count);
    if found > limit {
        return Err(EvalError::Limit { what, found, limit });
    }
    used.set(found);
    Ok(found)
}

/// Key of prefetched series: range and expression.
pub(crate) type PrefetchKey = (i64, i64, String);

/// State that all scopes of a request share.
pub(crate) struct Shared<'a> {
    /// The store.
    pub source: &'a dyn Source,
    /// Zone of the server: times without a zone are read in it.
    pub server_zone: TimeZone,
    /// Zone of the request.
    pub zone: TimeZone,
    /// Time of the request, seconds.
    pub now: i64,
    /// Clock, seconds.
    pub clock: i64,
    /// Points that the client shows per series.
    pub max_data_points: Option<u64>,
    /// `template[name]=` of the request.
    pub template: BTreeMap<String, String>,
    /// Reservations.
    pub budget: Budget<'a>,
    /// Series by range and expression.
    pub prefetched: RefCell<BTreeMap<PrefetchKey, Vec<Series>>>,
    /// Evaluator that functions call back.
    pub evaluator: &'a dyn Evaluator,
}

/// Calls from a function into the evaluator.
pub(crate) trait Evaluator {
    /// Evaluates an expression in `scope`, after prefetching its paths.
    /// # Errors
    /// As the evaluation of a target.
    fn evaluate(&self, scope: &mut Scope<'_>, node: &Node) -> Result<Vec<Series>, EvalError>;
    /// Parses and evaluates a target.
    /// # Errors
    /// As the evaluation of a target.
    fn evaluate_text(&self, scope: &mut Scope<'_>, target: &str) -> Result<Vec<Series>, EvalError>;
    /// Returns true if a function has this name.
    fn knows(&self, name: &str) -> bool;
    /// Calls a function by name with these arguments; `None` if there is none of this name.
    /// # Errors
    /// As the function.
    fn call(&self, scope: &mut Scope<'_>, name: &str, args: Vec<Value>) -> Result<Option<Value>, EvalError>;
}

/// Running sums of `stacked`, by name of the stack.
pub(crate) type Stacks = Rc<RefCell<BTreeMap<String, Vec<f64>>>>;

/// Context of one evaluation.
#[derive(Clone)]
pub(crate) struct Scope<'a> {
    /// Exclusive start.
    pub start: Moment,
    /// Inclusive end.
    pub end: Moment,
    /// Share of values that consolidated and aggregated points need.
    pub x_files_factor: f64,
    /// First argument of the call that is evaluated, for functions that fetch another range.
    pub first_argument: Option<Rc<Node>>,
    /// Sums of `stacked`.
    pub stacks: Option<Stacks>,
    /// Everything else.
    pub shared: &'a Shared<'a>,
}

impl Scope<'_> {
    /// Evaluates the first argument of the current call again, in another range.
    /// # Errors
    /// As the evaluation of a target.
    pub(crate) fn reevaluate(&self, start: Moment, end: Moment) -> Result<Vec<Series>, EvalError> {
        let mut scope = self.clone();
        scope.start = start;
        scope.end = end;
        match &self.first_argument {
            Some(node) => self.shared.evaluator.evaluate(&mut scope, node),
            None => Err(EvalError::Parameter("the first argument is missing".to_owned())),
        }
    }

    /// Evaluates a target in a copy of this scope.
    /// # Errors
    /// As the evaluation of a target.
    pub(crate) fn evaluate_text(&self, target: &str) -> Result<Vec<Series>, EvalError> {
        self.shared.evaluator.evaluate_text(&mut self.clone(), target)
    }

    /// Seconds since 1970 of the wall clock of `moment`, read in the zone of the server.
    #[must_use]
    pub(crate) fn wall_seconds(&self, moment: Moment) -> i64 {
        let wall = jiff::Timestamp::from_second(moment.wall_seconds())
            .map(|timestamp| TimeZone::UTC.to_datetime(timestamp));
        let read = wall.and_then(|wall| self.shared.server_zone.to_ambiguous_timestamp(wall).later());
        read.map_or(moment.seconds, jiff::Timestamp::as_second)
    }
}
