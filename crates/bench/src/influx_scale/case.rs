//! Flags of the benchmark. Not here: the cases.

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Cases (default: all): databases, drop, rows, mean, churn.
    #[arg(long, value_delimiter = ',')]
    pub(super) cases: Vec<String>,
    /// A hundredth of each size: shows that the benchmark works.
    #[arg(long)]
    pub(super) quick: bool,
    /// Minutes over which the case `churn` spreads its series.
    #[arg(long, default_value_t = 10)]
    pub(super) churn_minutes: u64,
}

impl Options {
    /// Returns `count`, or a hundredth of it.
    pub(super) fn sized(&self, count: u64) -> u64 {
        if self.quick { (count / 100).max(1) } else { count }
    }
}
