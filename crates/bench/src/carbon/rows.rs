//! Rows of the benchmark: names of the series, and the order in which rounds are sent.

/// Form of the names of series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Naming {
    /// A path of four nodes.
    Untagged,
    /// A name with two tags.
    Tagged,
}

/// One row of the report.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) naming: Naming,
    pub(super) series_count: usize,
    /// Rounds of each of the two warm passes; one cold round comes before them.
    pub(super) pass_rounds: usize,
    /// Rounds per group that is sent in reverse order; 1 for ascending times.
    pub(super) reversed: usize,
}

impl Row {
    /// Rounds of all passes.
    pub(super) fn round_count(&self) -> usize {
        1 + 2 * self.pass_rounds
    }
}

/// All rows. The one with groups of 500 rounds has as many points, in fewer series.
pub(super) fn all() -> Vec<Row> {
    let base = Row {
        name: "untagged",
        naming: Naming::Untagged,
        series_count: 100_000,
        pass_rounds: 50,
        reversed: 1,
    };
    vec![
        base.clone(),
        Row { name: "tagged", naming: Naming::Tagged, ..base.clone() },
        Row { name: "reversed-5", reversed: 5, ..base.clone() },
        Row { name: "reversed-50", reversed: 50, ..base.clone() },
        Row { name: "reversed-500", reversed: 500, series_count: 10_000, pass_rounds: 500, ..base },
    ]
}
