//! Cardinality of a join: how many series of one operand are matched with how many of the other.
//!
//! Not here: labels that are matched (`join::matching`).

/// Cardinality of a join.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Cardinality {
    /// One series of the left operand with one of the right.
    #[default]
    OneToOne,
    /// Many series of the left operand with one of the right.
    ManyToOne,
    /// One series of the left operand with many of the right.
    OneToMany,
    /// Sets.
    ManyToMany,
}
