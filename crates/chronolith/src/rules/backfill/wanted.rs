//! Backfill as the command line asks for it.

/// Rules, range and options of a backfill.
pub(super) struct Wanted<'a> {
    pub(super) range_ms: (i64, i64),
    pub(super) tenant: Option<&'a str>,
    pub(super) group_names: Vec<&'a str>,
    pub(super) is_dry_run: bool,
    /// Names and texts of the rule files.
    pub(super) files: Vec<(String, Vec<u8>)>,
}
