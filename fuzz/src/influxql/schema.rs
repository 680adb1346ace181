//! Measurements of the shared databases: what points have, and what statements name.
//!
//! Invariants: times lie around the border of two shard groups of a week, [`BORDER`], unless a measurement
//! says otherwise.

/// Start of a shard group of a week: 2023-11-20, in seconds.
pub(crate) const BORDER: i64 = 1_700_438_400;

/// Type of the values of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Float,
    Integer,
    Boolean,
    Text,
    /// Float before [`BORDER`], integer or text after it.
    Changing,
}

/// Shape of the values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Jitter around a level.
    Gauge,
    /// Grows, with resets.
    Counter,
    /// One value.
    Constant,
    /// Few small values, so that many are equal.
    Small,
    /// Extremes of the type.
    Extreme,
}

/// Field of a measurement.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Field {
    /// As a statement writes it.
    pub(crate) name: &'static str,
    /// As a line writes it.
    pub(crate) line: &'static str,
    pub(crate) kind: Kind,
    pub(crate) shape: Shape,
    /// Points of 100 that have it.
    pub(crate) density: usize,
}

/// Tag of a measurement.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tag {
    /// As a statement writes it.
    pub(crate) name: &'static str,
    /// As a line writes it.
    pub(crate) line: &'static str,
    /// Values as a line writes them; an empty one: the series has no such tag.
    pub(crate) values: &'static [&'static str],
}

/// Distances of points.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spacing {
    /// Every `step`, each series a bit later than the one before.
    Regular,
    /// Every `step`, all series at the same times: in [`TIED`] only.
    Tied,
    /// Somewhere in each `step`, in another order than time.
    Jittered,
    /// Neighbouring nanoseconds.
    Adjacent,
}

/// Measurement.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Measurement {
    pub(crate) name: &'static str,
    pub(crate) line: &'static str,
    pub(crate) tags: &'static [Tag],
    pub(crate) fields: &'static [Field],
    /// Time of the first point in seconds.
    pub(crate) start: i64,
    /// Seconds between points.
    pub(crate) step: i64,
    /// Points of a series.
    pub(crate) count: i64,
    pub(crate) spacing: Spacing,
}

const fn field(name: &'static str, kind: Kind, shape: Shape, density: usize) -> Field {
    Field { name, line: name, kind, shape, density }
}

const fn tag(name: &'static str, values: &'static [&'static str]) -> Tag {
    Tag { name, line: name, values }
}

/// Measurement whose series have points of the same times.
pub(crate) const TIED: &str = "cpu";
/// Measurement with the points of [`TIED`], each series a bit later than the one before.
pub(crate) const APART: &str = "apart";

/// Measurements of every shared database, without [`APART`].
pub(crate) const MEASUREMENTS: [Measurement; 8] = [
    Measurement {
        name: "cpu",
        line: "cpu",
        tags: &[tag("host", &["a", "b", "c"]), tag("region", &["", "eu", "us-1"])],
        fields: &[
            field("usage", Kind::Float, Shape::Gauge, 100),
            field("total", Kind::Integer, Shape::Counter, 90),
            field("up", Kind::Boolean, Shape::Small, 60),
            field("state", Kind::Text, Shape::Small, 40),
        ],
        start: BORDER - 600,
        step: 60,
        count: 25,
        spacing: Spacing::Tied,
    },
    Measurement {
        name: "jitter",
        line: "jitter",
        tags: &[tag("host", &["a", "b"])],
        fields: &[
            field("x", Kind::Float, Shape::Counter, 80),
            field("y", Kind::Integer, Shape::Small, 50),
            field("z", Kind::Float, Shape::Constant, 30),
        ],
        start: BORDER - 1800,
        step: 97,
        count: 40,
        spacing: Spacing::Jittered,
    },
    Measurement {
        name: "\"my m,x.\u{e9} \\\"q\\\"\"",
        line: "my\\ m\\,x.\u{e9}\\ \"q\"",
        tags: &[
            Tag { name: "\"t g\"", line: "t\\ g", values: &["a\\ b", "c\\,d", "\u{e9}\\=\\=", ""] },
            Tag { name: "\"select\"", line: "select", values: &["'x'", "\"y\""] },
        ],
        fields: &[
            Field { name: "\"f=1\"", line: "f\\=1", kind: Kind::Float, shape: Shape::Small, density: 70 },
            Field { name: "\"from\"", line: "from", kind: Kind::Integer, shape: Shape::Gauge, density: 70 },
        ],
        start: BORDER,
        step: 10,
        count: 20,
        spacing: Spacing::Regular,
    },
    Measurement {
        name: "\"select\"",
        line: "select",
        tags: &[tag("v", &["1", "2"]), tag("k", &["p", "q"])],
        fields: &[field("v", Kind::Float, Shape::Small, 90), field("w", Kind::Integer, Shape::Small, 80)],
        start: BORDER - 100,
        step: 20,
        count: 20,
        spacing: Spacing::Regular,
    },
    Measurement {
        name: "nums",
        line: "nums",
        tags: &[],
        fields: &[
            field("i", Kind::Integer, Shape::Extreme, 90),
            field("f", Kind::Float, Shape::Extreme, 90),
            field("s", Kind::Text, Shape::Extreme, 70),
            field("b", Kind::Boolean, Shape::Small, 70),
        ],
        start: BORDER - 300,
        step: 15,
        count: 60,
        spacing: Spacing::Regular,
    },
    Measurement {
        name: "mixed",
        line: "mixed",
        tags: &[tag("host", &["a", "b"])],
        fields: &[field("v", Kind::Changing, Shape::Gauge, 95), field("n", Kind::Integer, Shape::Small, 50)],
        start: BORDER - 600,
        step: 60,
        count: 20,
        spacing: Spacing::Regular,
    },
    Measurement {
        name: "old",
        line: "old",
        tags: &[tag("host", &["", "a"])],
        fields: &[field("v", Kind::Float, Shape::Gauge, 90), field("c", Kind::Integer, Shape::Counter, 60)],
        start: -3600,
        step: 300,
        count: 24,
        spacing: Spacing::Regular,
    },
    Measurement {
        name: "ns",
        line: "ns",
        tags: &[tag("host", &["a", "b"])],
        fields: &[field("v", Kind::Float, Shape::Gauge, 90), field("c", Kind::Integer, Shape::Counter, 60)],
        start: BORDER,
        step: 1,
        count: 20,
        spacing: Spacing::Adjacent,
    },
];

impl Measurement {
    /// Time after the last point, in seconds.
    pub(crate) fn end(&self) -> i64 {
        match self.spacing {
            Spacing::Adjacent => self.start + 1,
            _ => self.start + self.step * self.count,
        }
    }

    /// Returns true if the measurement has a field of a number.
    pub(crate) fn numbers(&self) -> Vec<Field> {
        let is_number = |field: &Field| matches!(field.kind, Kind::Float | Kind::Integer | Kind::Changing);
        self.fields.iter().filter(|field| is_number(field)).copied().collect()
    }
}
