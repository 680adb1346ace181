//! Methods of roll-ups, and sets of them.

/// Value that is made of the samples of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum RollupMethod {
    /// Number of samples.
    Count = 0,
    /// Sum in the order of times, beginning with 0.
    Sum = 1,
    /// Smallest value.
    Min = 2,
    /// Largest value.
    Max = 3,
    /// Value of the oldest sample.
    First = 4,
    /// Value of the newest sample.
    Last = 5,
    /// Value of the largest magnitude.
    AbsMax = 6,
    /// Value of the smallest magnitude.
    AbsMin = 7,
    /// Number of samples that are lower than the one before them in the window: resets of a counter.
    Resets = 8,
}

impl RollupMethod {
    /// All methods, by their numbers.
    pub const ALL: [RollupMethod; 9] = [
        RollupMethod::Count,
        RollupMethod::Sum,
        RollupMethod::Min,
        RollupMethod::Max,
        RollupMethod::First,
        RollupMethod::Last,
        RollupMethod::AbsMax,
        RollupMethod::AbsMin,
        RollupMethod::Resets,
    ];

    /// Returns the name in answers and documents.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            RollupMethod::Count => "count",
            RollupMethod::Sum => "sum",
            RollupMethod::Min => "min",
            RollupMethod::Max => "max",
            RollupMethod::First => "first",
            RollupMethod::Last => "last",
            RollupMethod::AbsMax => "absmax",
            RollupMethod::AbsMin => "absmin",
            RollupMethod::Resets => "resets",
        }
    }

    fn bit(self) -> u16 {
        1 << self as u8
    }
}

/// Set of methods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct RollupMethods(u16);

impl RollupMethods {
    /// The set of `methods`.
    #[must_use]
    pub fn of(methods: &[RollupMethod]) -> RollupMethods {
        RollupMethods(methods.iter().fold(0, |bits, method| bits | method.bit()))
    }

    /// The set with the number of a method in each bit; `None` if a bit is of no method.
    #[must_use]
    pub fn from_bits(bits: u16) -> Option<RollupMethods> {
        (bits >> RollupMethod::ALL.len() == 0).then_some(RollupMethods(bits))
    }

    /// Bits of the set.
    #[must_use]
    pub fn bits(self) -> u16 {
        self.0
    }

    /// Returns true if `method` is in the set.
    #[must_use]
    pub fn has(self, method: RollupMethod) -> bool {
        self.0 & method.bit() != 0
    }

    /// Returns true if all methods of `others` are in the set.
    #[must_use]
    pub fn has_all(self, others: RollupMethods) -> bool {
        others.0 & !self.0 == 0
    }

    /// The set with the methods of both.
    #[must_use]
    pub fn union(self, other: RollupMethods) -> RollupMethods {
        RollupMethods(self.0 | other.0)
    }

    /// Number of methods.
    #[must_use]
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Returns true if there is none.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Methods of the set, by their numbers.
    pub fn iter(self) -> impl Iterator<Item = RollupMethod> {
        RollupMethod::ALL.into_iter().filter(move |method| self.has(*method))
    }
}
