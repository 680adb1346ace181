//! Types of the language.
//!
//! Not here: the rules that ask for them (`functions`, `parser`).

/// Type of an expression's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ValueType {
    /// Nothing (not a value of the language; Prometheus names it in messages).
    None,
    /// One number a step.
    Scalar,
    /// Series with one value a step.
    Vector,
    /// Series with a range of samples per step.
    Matrix,
    /// A text.
    String,
}

impl ValueType {
    /// The name in Prometheus's messages ("instant vector").
    #[must_use]
    pub fn describe(self) -> &'static str {
        match self {
            ValueType::None => "none",
            ValueType::Scalar => "scalar",
            ValueType::Vector => "instant vector",
            ValueType::Matrix => "range vector",
            ValueType::String => "string",
        }
    }
}
