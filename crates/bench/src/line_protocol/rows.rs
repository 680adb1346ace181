//! Rows of the benchmark: how many series, lines per request, writers, fields, and at which rate.

/// Values per second of the open loop.
const OPEN_LOOP_RATE: u64 = 200_000;
/// Seconds of the open loop at most.
const OPEN_LOOP_SECONDS: u64 = 60;

/// Fields of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fields {
    /// A field like `v=1234.56`.
    OneFloat,
    /// `f0=1234.56` and nine more.
    TenFloats,
    /// An integer and a text of five that changes every 50 steps.
    IntegerAndText,
}

impl Fields {
    /// Values per line.
    pub(super) fn count(self) -> usize {
        match self {
            Fields::OneFloat => 1,
            Fields::TenFloats => 10,
            Fields::IntegerAndText => 2,
        }
    }

    /// Field whose values are counted in the end; every line has it.
    pub(super) fn counted(self) -> &'static str {
        match self {
            Fields::OneFloat => "v",
            Fields::TenFloats => "f0",
            Fields::IntegerAndText => "n",
        }
    }
}

/// One row of the report.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) series_count: usize,
    /// Lines per request.
    pub(super) batch: usize,
    pub(super) writers: usize,
    pub(super) fields: Fields,
    pub(super) is_gzip: bool,
    /// Values per second that are sent whether they are answered or not; `None` for as fast as possible.
    pub(super) rate: Option<u64>,
}

impl Row {
    fn closed_loop(batch: usize, writers: usize) -> Row {
        let name = format!("{}k-{writers}", batch / 1000);
        let fields = Fields::OneFloat;
        Row { name, series_count: 100_000, batch, writers, fields, is_gzip: false, rate: None }
    }

    fn variant(name: &str) -> Row {
        Row { name: name.to_owned(), ..Row::closed_loop(5_000, 50) }
    }

    /// Values of the row, at most `count_max`.
    pub(super) fn value_count(&self, count_max: u64) -> u64 {
        self.rate.map_or(count_max, |rate| count_max.min(rate * OPEN_LOOP_SECONDS))
    }
}

/// All rows: the published ground, then its variants.
pub(super) fn all() -> Vec<Row> {
    let mut rows = Vec::new();
    for batch in [5_000, 10_000] {
        rows.extend([50, 100, 150, 200].map(|writers| Row::closed_loop(batch, writers)));
    }
    rows.push(Row { rate: Some(OPEN_LOOP_RATE), ..Row::variant("open-loop") });
    rows.push(Row { is_gzip: true, ..Row::variant("gzip") });
    rows.push(Row { fields: Fields::TenFloats, batch: 500, ..Row::variant("ten-fields") });
    rows.push(Row { fields: Fields::IntegerAndText, ..Row::variant("integer-text") });
    rows.push(Row { series_count: 1_000_000, ..Row::variant("1m-series") });
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_differ_and_steps_are_whole() {
        let rows = all();
        let names: std::collections::BTreeSet<&str> = rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names.len(), rows.len());
        assert!(rows.iter().all(|row| row.series_count.is_multiple_of(row.batch)));
        assert_eq!(rows[8].value_count(500_000_000), 12_000_000);
    }
}
