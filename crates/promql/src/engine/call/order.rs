//! `sort`, `sort_by_label` and their descending forms: they order the elements of an instant query.

use std::cmp::Ordering;

use chronolith_exec::column::{ABSENT, StepSeries};
use chronolith_exec::execution::Execution;
use chronolith_exec::operator::{Blocking, BoxOperator, collect};

/// Key by which elements are ordered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SortKey {
    /// By value, NaN last.
    Value(Direction),
    /// By these labels, digits in them as numbers.
    Labels(Vec<String>, Direction),
}

/// Direction of sorting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Ascending,
    Descending,
}

impl Direction {
    fn apply(self, ordering: Ordering) -> Ordering {
        match self {
            Direction::Ascending => ordering,
            Direction::Descending => ordering.reverse(),
        }
    }
}

/// Sorts the series of a vector; on grids of several steps they stay as they come.
pub(crate) fn sort<'q>(
    execution: &'q Execution<'q>,
    mut inner: BoxOperator<'q>,
    key: SortKey,
) -> BoxOperator<'q> {
    Blocking::boxed(execution, move |memory| {
        let mut all = collect(&mut *inner, memory)?;
        if matches!(key, SortKey::Value(_)) && all.iter().any(StepSeries::has_histograms) {
            all.iter_mut().for_each(StepSeries::drop_histograms);
            all.retain(|series| !series.is_void());
        }
        if all.first().is_some_and(|series| series.values.len() == 1) {
            all.sort_by(|a, b| key.compare(a, b));
        }
        Ok(all)
    })
}

impl SortKey {
    fn compare(&self, a: &StepSeries, b: &StepSeries) -> Ordering {
        match self {
            SortKey::Value(direction) => {
                let value = |series: &StepSeries| series.values.first().copied().unwrap_or(ABSENT);
                let a = value(a);
                let b = value(b);
                a.partial_cmp(&b)
                    .map_or_else(|| a.is_nan().cmp(&b.is_nan()), |ordering| direction.apply(ordering))
            }
            SortKey::Labels(names, direction) => {
                let by_label = |name: &String| {
                    natural(a.labels.get(name).unwrap_or(""), b.labels.get(name).unwrap_or(""))
                };
                let ordering = names.iter().map(by_label).find(|ordering| ordering.is_ne());
                direction.apply(ordering.unwrap_or_else(|| a.labels.cmp(&b.labels)))
            }
        }
    }
}

/// Compares texts piece by piece, runs of digits as numbers.
fn natural(a: &str, b: &str) -> Ordering {
    let mut a = a;
    let mut b = b;
    while !a.is_empty() && !b.is_empty() {
        let (piece_a, rest_a) = first_piece(a);
        let (piece_b, rest_b) = first_piece(b);
        let digits = |piece: &str| piece.as_bytes()[0].is_ascii_digit();
        let ordering = if digits(piece_a) && digits(piece_b) {
            let number_a = piece_a.trim_start_matches('0');
            let number_b = piece_b.trim_start_matches('0');
            number_a
                .len()
                .cmp(&number_b.len())
                .then_with(|| number_a.cmp(number_b))
                .then_with(|| piece_a.cmp(piece_b))
        } else {
            piece_a.cmp(piece_b)
        };
        if ordering.is_ne() {
            return ordering;
        }
        (a, b) = (rest_a, rest_b);
    }
    a.len().cmp(&b.len())
}

/// The longest start of a (not empty) text that is all digits, or has none.
fn first_piece(text: &str) -> (&str, &str) {
    let digits = text.as_bytes()[0].is_ascii_digit();
    let end = text.bytes().position(|b| b.is_ascii_digit() != digits).unwrap_or(text.len());
    text.split_at(end)
}
