//! Options and bounds of the reading of a rule file.

use chronolith_promql::parser::ParserOptions;

use crate::template_engine::TemplateEngine;

/// Bounds of one file. The defaults allow 50,000 rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileLimits {
    /// Bytes of the file, and of its values after aliases are replaced.
    pub bytes_max: usize,
    /// Groups of the file.
    pub groups_max: usize,
    /// Rules of all groups together.
    pub rules_max: usize,
}

impl Default for FileLimits {
    fn default() -> FileLimits {
        FileLimits { bytes_max: 32 << 20, groups_max: 10_000, rules_max: 50_000 }
    }
}

/// Treatment of fields that Prometheus does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UnknownFields {
    /// Each one is an error.
    #[default]
    Refuse,
    /// Skips each one (`--ignore-unknown-fields`).
    Ignore,
}

/// Options of [`parse`].
#[derive(Clone, Copy)]
pub struct FileOptions<'a> {
    /// Experimental parts of PromQL that are enabled.
    pub parser: ParserOptions,
    /// Treatment of unknown fields.
    pub unknown_fields: UnknownFields,
    /// Parser of templates.
    pub templates: &'a dyn TemplateEngine,
    /// Bounds of the file.
    pub limits: FileLimits,
}
