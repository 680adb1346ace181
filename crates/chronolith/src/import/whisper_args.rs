//! Source of an import of whisper files, as the flags name it.
//!
//! Not here: the flags (`whisper`).

use chronolith_import::whisper::{Comparison, Rules, TimeSelection, WhisperReport, WhisperSource};

/// Source as the flags name it.
pub(super) struct WhisperArgs {
    pub(super) source: WhisperSource,
    pub(super) selection: TimeSelection,
    pub(super) rules: Rules,
    pub(super) comparison: Comparison,
    pub(super) concurrency: Option<u64>,
    /// Files that the listing left out, and notes about the configuration files.
    pub(super) listed: WhisperReport,
}
