//! Rule files of the server: patterns, reading, and checks of all files before one of their groups is used.
//!
//! Invariant: a reading succeeds for all files, or changes nothing.
//! Not here: the format of a file (`chronolith_rules::file`).

use std::collections::BTreeSet;
use std::path::Path;

use chronolith_base::Disk;
use chronolith_model::RuleLimits;
use chronolith_promql::parser::ParserOptions;
use chronolith_rules::file::{self, FileLimits, FileOptions, UnknownFields};
use chronolith_rules::glob;
use chronolith_rules::group::{Group, Origin};
use chronolith_rules::prometheus_templates::PrometheusTemplates;

use super::environment::now_ns;
use crate::limits::RULE_FILES_MAX;
use crate::options::{RuleOptions, ServiceOptions};
use crate::query::context::parser_options;
use crate::service::Service;

/// Errors of files that the text of a failed reading has.
const ERRORS_MAX: usize = 20;

/// Groups of all rule files.
struct LoadedRules {
    file_count: usize,
    /// In order of files.
    groups: Vec<Group>,
}

/// Reads all rule files and uses their groups, within `limits` of their tenant. A failure leaves the groups
/// in use as they are.
///
/// # Errors
/// The text for the operator: files with lines and columns, or a limit.
pub fn load_rule_files(service: &Service, limits: &RuleLimits) -> Result<(), String> {
    let engine = &service.rules.engine;
    let read = read_rule_files(&service.options, &*service.env.disk).and_then(|read| {
        let LoadedRules { file_count: files, groups } = read;
        let group_count = groups.len();
        let tenant = &service.options.rules.tenant;
        check_limits(&groups, engine.loaded_count(tenant, Origin::Configured), limits)?;
        engine.set_groups(tenant, Origin::Files, groups, now_ns(service));
        if files > 0 {
            tracing::info!(files, groups = group_count, "rule files read");
        }
        Ok(())
    });
    engine.counters.note_reload(read.is_ok(), service.env.clock.now_ms());
    read
}

/// Checks the rule files of the options and the limits of their tenant.
///
/// # Errors
/// As [`load_rule_files`].
pub fn check_rule_files(options: &ServiceOptions, disk: &dyn Disk) -> Result<(), String> {
    let limits = options.tsdb.limits.of(&options.rules.tenant).queries.rules;
    check_limits(&read_rule_files(options, disk)?.groups, 0, &limits)
}

/// # Errors
/// The first limit that is exceeded, with its setting.
pub(super) fn check_limits(groups: &[Group], other_count: usize, limits: &RuleLimits) -> Result<(), String> {
    let count = groups.len() + other_count;
    if limits.groups_max > 0 && count > limits.groups_max {
        let limit = limits.groups_max;
        return Err(format!("{count} rule groups, and rules.groups-max allows {limit}"));
    }
    let limit = limits.group_rules_max;
    let large = groups.iter().find(|group| limit > 0 && group.rules().len() > limit);
    large.map_or(Ok(()), |group| {
        let count = group.rules().len();
        let name = &group.key.name;
        let file = &group.key.file;
        Err(format!("{file}: group {name:?} has {count} rules, and rules.per-group-max allows {limit}"))
    })
}

fn read_rule_files(options: &ServiceOptions, disk: &dyn Disk) -> Result<LoadedRules, String> {
    let RuleOptions { files, defaults, .. } = &options.rules;
    let mut paths = BTreeSet::new();
    for pattern in files {
        paths.extend(matching_paths(pattern, disk)?);
        if paths.len() > RULE_FILES_MAX {
            return Err(format!("rules.files matches more than {RULE_FILES_MAX} files"));
        }
    }
    let parser = parser_options(options.features);
    let mut errors = Vec::new();
    let mut groups = Vec::new();
    for path in &paths {
        match read_file(path, parser, disk) {
            Ok(entries) => {
                groups.extend(entries.into_iter().map(|entry| Group::new(path, entry, *defaults)));
            }
            Err(found) => errors.extend(found),
        }
    }
    if errors.is_empty() {
        return Ok(LoadedRules { file_count: paths.len(), groups });
    }
    let more = errors.len().saturating_sub(ERRORS_MAX);
    errors.truncate(ERRORS_MAX);
    if more > 0 {
        errors.push(format!("and {more} more errors"));
    }
    Err(errors.join("; "))
}

fn read_file(
    name: &str,
    parser: ParserOptions,
    disk: &dyn Disk,
) -> Result<Vec<file::GroupEntry>, Vec<String>> {
    let path = Path::new(name);
    let limits = FileLimits::default();
    let failed = |why: String| vec![format!("{name}: {why}")];
    let len = disk.open_read(path).and_then(|file| file.len()).map_err(|error| failed(error.to_string()))?;
    if len > limits.bytes_max as u64 {
        return Err(failed(format!("file has {len} bytes, at most {} are allowed", limits.bytes_max)));
    }
    let bytes = disk.read(path).map_err(|error| failed(error.to_string()))?;
    let templates = PrometheusTemplates::default();
    let options =
        FileOptions { parser, unknown_fields: UnknownFields::Refuse, templates: &templates, limits };
    let parsed = file::parse(name, &bytes, &options)
        .map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>())?;
    if parsed.has_more_documents {
        tracing::warn!(
            file = name,
            "rule file has more than one YAML document, all but the first are ignored"
        );
    }
    Ok(parsed.groups)
}

/// Paths of the files that a pattern matches.
///
/// # Errors
/// A pattern that Go refuses, and a path without a pattern at which there is no file.
fn matching_paths(pattern: &Path, disk: &dyn Disk) -> Result<Vec<String>, String> {
    let text = pattern.to_str().ok_or_else(|| format!("{}: path is not UTF-8", pattern.display()))?;
    let found = glob::expand(disk, text).map_err(|glob::BadPattern| format!("{text}: invalid pattern"))?;
    if found.is_empty() && !glob::is_pattern(text) {
        return Err(format!("{text}: rule file not found"));
    }
    Ok(found)
}
