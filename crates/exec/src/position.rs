//! Positions in the text of a query, at which annotations point.
//! Invariants: opaque to operators, which only store and compare them. The language makes positions and
//! resolves them to line and column.

/// A position in the text of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Position(pub u64);

/// Position that an annotation points at, and the part of the query that emits it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Origin {
    /// The annotation points here.
    pub position: Position,
    /// The operator, function or selector that emits it.
    pub emitter: Position,
}
