//! Rules of a path, for `chronolith graphite explain PATH` and the API.
//!
//! Not here: the files' syntax (`schemas`, `aggregation`, `rewrite`).

use std::fmt;

use super::aggregation::{AggregationMethod, AggregationRules, X_FILES_FACTOR_DEFAULT};
use super::key::canonical_path;
use super::refused::RefusedReason;
use super::retention::Archive;
use super::rewrite::{RewriteOutcome, RewriteRules};
use super::schemas::{ReorderBuffer, Schemas};

/// A section that applies to a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleName {
    /// Name of the section.
    pub section: String,
    /// Pattern as in the file; empty for a rewrite rule.
    pub pattern: String,
}

/// Outcome of all rules for one path. Printed as lines of `key: value`.
#[derive(Debug, Clone, PartialEq)]
pub struct Explanation {
    /// Canonical path as sent.
    pub path: String,
    /// Rewrite rule, if one applies.
    pub rewrite_rule: Option<RuleName>,
    /// Canonical path that is stored, or the reason why none is.
    pub stored_path: Result<String, RefusedReason>,
    /// Rule of storage-schemas.conf, if one applies.
    pub schema: Option<RuleName>,
    /// Archives of that rule, the finest first; without a rule nothing is quantised or expired.
    pub archives: Vec<Archive>,
    /// Reorder buffer of that rule.
    pub reorder_buffer: Option<ReorderBuffer>,
    /// Rule of storage-aggregation.conf, if one applies.
    pub aggregation: Option<RuleName>,
    /// Methods of roll-ups, at least one, the default of queries first.
    pub methods: Vec<AggregationMethod>,
    /// Part of the points that must be there, from 0 to 1.
    pub x_files_factor: f64,
}

/// Returns the rules that apply to a path, as sent with its prefix.
#[must_use]
pub fn explain(
    path: &str,
    rewrites: &RewriteRules,
    schemas: &Schemas,
    aggregations: &AggregationRules,
) -> Explanation {
    let sent_path = canonical_path(path);
    let (outcome, section) = rewrites.apply(path);
    let stored_path = match outcome {
        RewriteOutcome::Same => Ok(sent_path.clone()),
        RewriteOutcome::Path(path) => Ok(path),
        RewriteOutcome::Refused(reason) => Err(reason),
    };
    let stored = stored_path.as_deref().ok();
    let schema = stored.and_then(|path| schemas.match_path(path));
    let rule = stored.and_then(|path| aggregations.match_path(path));
    Explanation {
        path: sent_path,
        rewrite_rule: section.map(|name| RuleName { section: name.to_owned(), pattern: String::new() }),
        schema: schema
            .map(|rule| RuleName { section: rule.name().to_owned(), pattern: rule.pattern().to_owned() }),
        archives: schema.map_or(Vec::new(), |rule| rule.archives().to_vec()),
        reorder_buffer: schema.and_then(|rule| rule.reorder_buffer()),
        aggregation: rule
            .map(|rule| RuleName { section: rule.name().to_owned(), pattern: rule.pattern().to_owned() }),
        methods: rule.map_or(vec![AggregationMethod::Average], |rule| rule.methods().to_vec()),
        x_files_factor: rule.map_or(X_FILES_FACTOR_DEFAULT, |rule| rule.x_files_factor()),
        stored_path,
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "path: {}", self.path)?;
        if let Some(rule) = &self.rewrite_rule {
            writeln!(f, "rewrite rule: [{}]", rule.section)?;
        }
        match &self.stored_path {
            Ok(path) if *path == self.path => {}
            Ok(path) => writeln!(f, "stored as: {path}")?,
            Err(reason) => return writeln!(f, "not stored: {}", reason.message()),
        }
        match &self.schema {
            Some(rule) => writeln!(f, "schema: [{}] pattern {}", rule.section, rule.pattern)?,
            None => writeln!(f, "schema: none, points are neither quantised nor expired")?,
        }
        for archive in &self.archives {
            writeln!(f, "archive: {archive}")?;
        }
        if let Some(ring) = &self.reorder_buffer {
            let update = if ring.allows_update { ", values may be replaced" } else { "" };
            writeln!(f, "reorder buffer: {} points{update}", ring.point_count)?;
        }
        match &self.aggregation {
            Some(rule) => writeln!(f, "aggregation: [{}] pattern {}", rule.section, rule.pattern)?,
            None => writeln!(f, "aggregation: none, carbon's default")?,
        }
        let methods: Vec<&str> = self.methods.iter().map(|method| method.name()).collect();
        writeln!(f, "methods: {}", methods.join(", "))?;
        writeln!(f, "xFilesFactor: {}", self.x_files_factor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, want: &str) {
        let rewrites = "[drop]\npattern = \\.tmp$\naction = drop\n[web]\npattern = ^w\\.(.*)$\nname = web.\\1\nlabels = k: v";
        let schemas = "[web]\npattern = ^web\\.\nretentions = 10s:1d,1m:30d\nreorderBuffer = 6\nreorderBufferAllowUpdate = true";
        let aggregations = "[sums]\npattern = \\.count(;|$)\naggregationMethod = sum,max\nxFilesFactor = 0";
        let explanation = explain(
            path,
            &RewriteRules::parse(rewrites).expect("valid").0,
            &Schemas::parse(schemas).expect("valid").0,
            &AggregationRules::parse(aggregations).expect("valid").0,
        );
        assert_eq!(explanation.to_string(), want, "{path}");
    }

    #[test]
    fn all_rules_of_a_path_are_named() {
        check(
            "w..a.count;b=1",
            "path: w.a.count;b=1\nrewrite rule: [web]\nstored as: web.a.count;b=1;k=v\n\
             schema: [web] pattern ^web\\.\narchive: 10s:1d (8640 points)\narchive: 1m:30d (43200 points)\n\
             reorder buffer: 6 points, values may be replaced\n\
             aggregation: [sums] pattern \\.count(;|$)\nmethods: sum, max\nxFilesFactor: 0\n",
        );
        check(
            "other",
            "path: other\nschema: none, points are neither quantised nor expired\n\
             aggregation: none, carbon's default\nmethods: average\nxFilesFactor: 0.5\n",
        );
        check("a.tmp", "path: a.tmp\nrewrite rule: [drop]\nnot stored: a rewrite rule drops the path\n");
    }
}
