//! Calls of functions over the fields of a measurement.

use crate::chooser::Chooser;
use crate::piece::Piece;
use crate::schema::Measurement;

const AGGREGATES: [&str; 9] =
    ["count", "sum", "mean", "median", "mode", "spread", "stddev", "integral", "count_distinct"];
const SELECTORS: [&str; 5] = ["first", "last", "max", "min", "percentile"];
const TRANSFORMATIONS: [&str; 7] = [
    "derivative",
    "non_negative_derivative",
    "difference",
    "non_negative_difference",
    "moving_average",
    "cumulative_sum",
    "elapsed",
];
const INDICATORS: [&str; 8] = [
    "chande_momentum_oscillator",
    "exponential_moving_average",
    "double_exponential_moving_average",
    "triple_exponential_moving_average",
    "triple_exponential_derivative",
    "relative_strength_index",
    "kaufmans_efficiency_ratio",
    "kaufmans_adaptive_moving_average",
];
const MATH: [&str; 15] = [
    "abs", "acos", "asin", "atan", "ceil", "cos", "exp", "floor", "ln", "log2", "log10", "round", "sin",
    "sqrt", "tan",
];
const UNITS: [&str; 6] = ["1s", "10s", "1m", "1h", "500ms", "1u"];

/// Kind of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallKind {
    Aggregate,
    Selector,
    /// Transformation of points, or of an aggregate where there are windows.
    Transformation {
        windows: bool,
    },
    Any,
}

/// Writer of calls over one measurement.
#[derive(Clone, Copy)]
pub(crate) struct Calls<'r> {
    pub(crate) chooser: Chooser<'r>,
    pub(crate) measurement: Measurement,
}

impl Calls<'_> {
    /// A call of the kind.
    pub(crate) fn call(self, kind: CallKind) -> Piece {
        match kind {
            CallKind::Aggregate => self.aggregate(),
            CallKind::Selector => self.selector(),
            CallKind::Transformation { windows } => self.transformation(windows),
            CallKind::Any => match self.chooser.below(4) {
                0 => self.selector(),
                1 => self.transformation(self.chooser.percent(50)),
                2 => self.many_points(),
                _ => self.aggregate(),
            },
        }
    }

    /// `top`, `bottom` or `distinct`, which give several points.
    pub(crate) fn many_points(self) -> Piece {
        let count = self.chooser.between(1, 5);
        let number = self.number();
        if self.chooser.percent(25) {
            return Piece::text(format!("distinct({})", self.field()));
        }
        let name = self.chooser.pick(&["top", "bottom"]);
        let tags: Vec<&str> =
            self.measurement.tags.iter().filter(|_| self.chooser.percent(30)).map(|tag| tag.name).collect();
        let tags = tags.iter().map(|tag| format!(", {tag}")).collect::<String>();
        Piece::Sequence(vec![
            Piece::text(format!("{name}({number}")),
            Piece::optional_text(tags),
            Piece::text(format!(", {count})")),
        ])
    }

    /// A field or tag, seldom one that does not exist.
    pub(crate) fn field(self) -> String {
        if self.chooser.percent(2) {
            return "absent".to_owned();
        }
        if self.chooser.percent(3)
            && let Some(tag) = self.measurement.tags.first()
        {
            return tag.name.to_owned();
        }
        self.chooser.pick(self.measurement.fields).name.to_owned()
    }

    /// A field of numbers, mostly.
    pub(crate) fn number(self) -> String {
        let numbers = self.measurement.numbers();
        if numbers.is_empty() || self.chooser.percent(4) {
            return self.field();
        }
        let name = self.chooser.pick(&numbers).name;
        match self.chooser.below(40) {
            0 => format!("{name}::float"),
            1 => format!("{name}::integer"),
            2 => format!("{name}::field"),
            _ => name.to_owned(),
        }
    }

    fn argument(self, numbers_only: bool) -> String {
        match self.chooser.below(50) {
            0 => "*".to_owned(),
            1 => "/./".to_owned(),
            2 => format!("/^{}/", self.chooser.pick(&["u", "t", "v", "x"])),
            _ if numbers_only => self.number(),
            _ => self.field(),
        }
    }

    fn aggregate(self) -> Piece {
        let name = *self.chooser.pick(&AGGREGATES);
        let text = match name {
            "count" => format!("count({})", self.argument(false)),
            "mode" => format!("mode({})", self.argument(false)),
            "count_distinct" => format!("count(distinct({}))", self.field()),
            "integral" => {
                let unit = self.optional_argument(&UNITS);
                format!("integral({}{unit})", self.argument(true))
            }
            name => format!("{name}({})", self.argument(true)),
        };
        Piece::text(text)
    }

    fn selector(self) -> Piece {
        let name = *self.chooser.pick(&SELECTORS);
        let text = match name {
            "percentile" => {
                let rank = self.chooser.pick(&["50", "90", "99.9", "0", "100", "1.5", "25", "-1", "101"]);
                format!("percentile({}, {rank})", self.argument(true))
            }
            "first" | "last" => format!("{name}({})", self.argument(false)),
            name => format!("{name}({})", self.argument(true)),
        };
        Piece::text(text)
    }

    fn optional_argument(self, values: &[&str]) -> String {
        if self.chooser.percent(50) { format!(", {}", self.chooser.pick(values)) } else { String::new() }
    }

    /// A transformation over points or over an aggregate.
    fn transformation(self, windows: bool) -> Piece {
        let inner = match (windows, self.chooser.below(6)) {
            (true, 0) => self.transformation(true),
            (true, 1..3) => self.selector(),
            (true, _) => self.aggregate(),
            (false, _) => Piece::text(self.argument(true)),
        };
        if windows && self.chooser.percent(4) {
            let name = self.chooser.pick(&["holt_winters", "holt_winters_with_fit"]);
            let season = self.chooser.pick(&["0", "2", "4"]);
            return Piece::wrapped(format!("{name}("), inner, format!(", 3, {season})"));
        }
        if self.chooser.percent(25) {
            let name = self.chooser.pick(&INDICATORS);
            return Piece::wrapped(format!("{name}("), inner, format!("{})", self.indicator_arguments()));
        }
        let name = *self.chooser.pick(&TRANSFORMATIONS);
        let rest = match name {
            "derivative" | "non_negative_derivative" | "elapsed" => self.optional_argument(&UNITS),
            "moving_average" => format!(", {}", self.chooser.pick(&["1", "2", "3", "5", "30"])),
            _ => String::new(),
        };
        Piece::wrapped(format!("{name}("), inner, format!("{rest})"))
    }

    fn indicator_arguments(self) -> String {
        let period = self.chooser.pick(&["1", "2", "3", "4", "7", "0"]);
        match self.chooser.below(3) {
            0 => format!(", {period}"),
            1 => format!(", {period}, {}", self.chooser.pick(&["-1", "0", "1", "4"])),
            _ => {
                let hold = self.chooser.pick(&["-1", "0", "3"]);
                let warmup = self.chooser.pick(&["'exponential'", "'simple'", "'none'"]);
                format!(", {period}, {hold}, {warmup}")
            }
        }
    }

    /// A mathematical function around `inner`.
    pub(crate) fn math(self, inner: Piece) -> Piece {
        match self.chooser.below(20) {
            0 => Piece::wrapped("pow(", inner, format!(", {})", self.chooser.pick(&["2", "0.5", "-1"]))),
            1 => Piece::wrapped("log(", inner, format!(", {})", self.chooser.pick(&["2", "10", "0"]))),
            2 => Piece::wrapped("atan2(", inner, format!(", {})", self.chooser.pick(&["2", "-1"]))),
            _ => Piece::wrapped(format!("{}(", self.chooser.pick(&MATH)), inner, ")"),
        }
    }
}
