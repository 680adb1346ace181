//! The two published shapes of operations.

/// Tenant of the block.
pub(super) const TENANT: &str = "anonymous";
/// Regexes and shards that operations take in turn.
pub(super) const VARIANT_COUNT: u64 = 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// `{i=~".*D.*"}` with the number of the operation modulo 20 as D.
    Unsharded,
    /// `{i=~".+"}`, one of 20 shards.
    Sharded,
}

impl Shape {
    pub(super) fn name(self) -> &'static str {
        match self {
            Shape::Unsharded => "unsharded",
            Shape::Sharded => "sharded",
        }
    }
}
