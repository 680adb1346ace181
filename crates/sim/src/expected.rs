//! Expected samples: one value, or one of several and perhaps none.
//!
//! Invariant: values that another one hides are kept, as they may be revealed.

use crate::value::Value;

/// Expected sample of one series and timestamp.
#[derive(Debug, Clone)]
pub(crate) enum Expected {
    /// This value and no other.
    Exactly(Value),
    /// One of several values, or none.
    AnyOf(Box<Candidates>),
}

/// Values that may be stored.
#[derive(Debug, Clone, Default)]
pub(crate) struct Candidates {
    /// Values that the store may return; `None` is no sample.
    pub(crate) allowed: Vec<Option<Value>>,
    /// Accepted values that another one hides. A deletion that fails halfway may reveal them.
    pub(crate) hidden: Vec<Value>,
}

impl Candidates {
    pub(crate) fn allow(&mut self, value: Option<Value>) {
        if !self.allowed.contains(&value) {
            self.allowed.push(value);
        }
    }

    pub(crate) fn hide(&mut self, value: Value) {
        if !self.allowed.contains(&Some(value)) && !self.hidden.contains(&value) {
            self.hidden.push(value);
        }
    }

    pub(crate) fn is_certain(&self) -> bool {
        self.allowed.len() == 1
    }
}

impl Expected {
    pub(crate) fn allows(&self, found: Option<Value>) -> bool {
        match self {
            Expected::Exactly(value) => found == Some(*value),
            Expected::AnyOf(candidates) => candidates.allowed.contains(&found),
        }
    }

    /// Returns true if the store must return a sample.
    pub(crate) fn is_present(&self) -> bool {
        !self.allows(None)
    }

    /// Returns one of the values, if any.
    pub(crate) fn value(&self) -> Option<Value> {
        match self {
            Expected::Exactly(value) => Some(*value),
            Expected::AnyOf(candidates) => candidates.allowed.iter().flatten().next().copied(),
        }
    }

    pub(crate) fn candidates(&self) -> Candidates {
        match self {
            Expected::Exactly(value) => Candidates { allowed: vec![Some(*value)], hidden: Vec::new() },
            Expected::AnyOf(candidates) => (**candidates).clone(),
        }
    }
}

/// Returns true if one value is expected, or none.
pub(crate) fn is_certain(expected: &Expected) -> bool {
    match expected {
        Expected::Exactly(_) => true,
        Expected::AnyOf(candidates) => candidates.is_certain(),
    }
}

/// One value, with none hidden, is certain.
pub(crate) fn open(candidates: Candidates) -> Expected {
    match candidates.allowed[..] {
        [Some(value)] if candidates.hidden.is_empty() => Expected::Exactly(value),
        _ => Expected::AnyOf(Box::new(candidates)),
    }
}
