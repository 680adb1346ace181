//! A metric of a request: name, type, temporality, the message of its points.
//!
//! Invariants: fields may come in any order; framing of the points is checked before the first one is read.
//! Not here: points (`points`), the translated name (`walk`).

use chronolith_model::MetricKind;

use super::names::NameKind;
use crate::remote_write::WireError;
use crate::remote_write::wire::{Cursor, LEN, VARINT};

const DELTA: u64 = 1;
const CUMULATIVE: u64 = 2;

/// Type of a metric, from the field that has its points.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MetricType {
    Gauge,
    Sum { is_monotonic: bool },
    Histogram,
    ExponentialHistogram,
    Summary,
}

impl MetricType {
    pub(super) fn name_kind(self) -> NameKind {
        match self {
            MetricType::Gauge => NameKind::Gauge,
            MetricType::Sum { is_monotonic: true } => NameKind::Counter,
            _ => NameKind::Other,
        }
    }

    /// Type in Prometheus.
    pub(super) fn metric_kind(self) -> MetricKind {
        match self {
            MetricType::Gauge | MetricType::Sum { is_monotonic: false } => MetricKind::Gauge,
            MetricType::Sum { is_monotonic: true } => MetricKind::Counter,
            MetricType::Histogram | MetricType::ExponentialHistogram => MetricKind::Histogram,
            MetricType::Summary => MetricKind::Summary,
        }
    }

    /// Number that is part of the identity of a metric.
    pub(super) fn number(self) -> u8 {
        match self {
            MetricType::Gauge => 0,
            MetricType::Sum { is_monotonic } => 1 + u8::from(is_monotonic),
            MetricType::Histogram => 3,
            MetricType::ExponentialHistogram => 4,
            MetricType::Summary => 5,
        }
    }
}

/// Aggregation temporality of all points of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Temporality {
    /// Cumulative, or a type without temporality.
    Cumulative,
    Delta,
    Unspecified,
}

/// Fields of a metric, as sent.
pub(super) struct MetricFields<'a> {
    pub(super) name: &'a [u8],
    pub(super) description: &'a [u8],
    pub(super) unit: &'a [u8],
    /// Type and points; `None` for a metric without either, which has nothing to store.
    pub(super) points: Option<PointList<'a>>,
}

/// The points of a metric, counted and not yet read.
pub(super) struct PointList<'a> {
    pub(super) metric_type: MetricType,
    pub(super) temporality: Temporality,
    pub(super) count: u64,
    message: Cursor<'a>,
}

impl<'a> MetricFields<'a> {
    pub(super) fn read(mut at: Cursor<'a>) -> Result<MetricFields<'a>, WireError> {
        let mut out = MetricFields { name: &[], description: &[], unit: &[], points: None };
        while !at.is_empty() {
            let field = at.tag()?;
            let metric_type = match field {
                (1, LEN) => {
                    out.name = at.message()?.rest();
                    continue;
                }
                (2, LEN) => {
                    out.description = at.message()?.rest();
                    continue;
                }
                (3, LEN) => {
                    out.unit = at.message()?.rest();
                    continue;
                }
                (5, LEN) => MetricType::Gauge,
                (7, LEN) => MetricType::Sum { is_monotonic: false },
                (9, LEN) => MetricType::Histogram,
                (10, LEN) => MetricType::ExponentialHistogram,
                (11, LEN) => MetricType::Summary,
                (1..=3 | 5 | 7 | 9..=11, _) => return Err(at.wrong_type()),
                (_, other) => {
                    at.skip(other)?;
                    continue;
                }
            };
            // Taking the last one would lose the points of the others.
            if out.points.is_some() {
                return Err(at.error("metric has more than one list of points"));
            }
            out.points = Some(PointList::read(metric_type, at.message()?)?);
        }
        Ok(out)
    }
}

impl<'a> PointList<'a> {
    fn read(mut metric_type: MetricType, message: Cursor<'a>) -> Result<PointList<'a>, WireError> {
        let mut at = message;
        let has_temporality = !matches!(metric_type, MetricType::Gauge | MetricType::Summary);
        let mut number = if has_temporality { 0 } else { CUMULATIVE };
        let mut count = 0;
        while !at.is_empty() {
            match at.tag()? {
                (1, LEN) => {
                    at.message()?;
                    count += 1;
                }
                (2, VARINT) if has_temporality => number = at.varint()?,
                (3, VARINT) if matches!(metric_type, MetricType::Sum { .. }) => {
                    metric_type = MetricType::Sum { is_monotonic: at.varint()? != 0 };
                }
                (1, _) => return Err(at.wrong_type()),
                (_, other) => at.skip(other)?,
            }
        }
        let temporality = match number {
            DELTA => Temporality::Delta,
            CUMULATIVE => Temporality::Cumulative,
            _ => Temporality::Unspecified,
        };
        Ok(PointList { metric_type, temporality, count, message })
    }

    /// Calls `each` with the message of every point.
    ///
    /// # Errors
    /// Errors of `each`.
    pub(super) fn for_each<E: From<WireError>>(
        &self,
        mut each: impl FnMut(Cursor<'a>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut at = self.message;
        while !at.is_empty() {
            match at.tag()? {
                (1, LEN) => each(at.message()?)?,
                (_, other) => at.skip(other)?,
            }
        }
        Ok(())
    }
}
