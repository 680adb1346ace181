//! Version of this build.

/// Version of this build.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Text for a value that the build did not know.
const UNKNOWN: &str = "unknown";

/// Commit that a binary was built from, and its optional parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BuildInfo {
    /// Hash of the commit.
    pub revision: &'static str,
    /// Branch.
    pub branch: &'static str,
    /// Time of the commit: `20060102-15:04:05` in UTC.
    pub date: &'static str,
    /// Optional parts of the build: Cargo features, ascending.
    pub features: &'static [&'static str],
}

impl Default for BuildInfo {
    fn default() -> BuildInfo {
        BuildInfo { revision: UNKNOWN, branch: UNKNOWN, date: UNKNOWN, features: &[] }
    }
}
