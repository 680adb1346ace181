//! Rule files of the server: patterns, reading, and checks of all files before one of their groups is used.
//!
//! Invariant: a reading succeeds for all files, or changes nothing.
//! Not here: the format of a file (`chronolith_rules::file`).

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use chronolith_base::Disk;
use chronolith_model::RuleLimits;
use chronolith_promql::parser::ParserOptions;
use chronolith_rules::file::{self, FileLimits, FileOptions, UnknownFields};
use chronolith_rules::group::Group;
use chronolith_rules::notifier::discovery::is_glob_match;
use chronolith_rules::prometheus_templates::PrometheusTemplates;

use super::due_round::now_ns;
use crate::limits::RULE_FILES_MAX;
use crate::options::{RuleOptions, ServiceOptions};
use crate::query::context::parser_options;
use crate::rules::engine::check_limits;
use crate::rules::group_id::Origin;
use crate::service::Service;

/// Errors of files that the text of a failed reading has.
const ERRORS_MAX: usize = 20;
/// Characters that make a part of a path a pattern.
const PATTERN_CHARACTERS: [char; 3] = ['*', '?', '['];

/// Groups of all rule files.
struct LoadedRules {
    file_count: usize,
    /// In order of files.
    groups: Vec<Group>,
}

/// Reads all rule files and uses their groups, within `limits` of their tenant. A failure leaves the groups
/// in use as they are. Returns the number of files and of groups.
///
/// # Errors
/// The text for the operator: files with lines and columns, or a limit.
pub fn load_rule_files(service: &Service, limits: &RuleLimits) -> Result<(usize, usize), String> {
    let engine = &service.rules.engine;
    let read = read_rule_files(&service.options, &*service.env.disk).and_then(|read| {
        let counts = (read.file_count, read.groups.len());
        let tenant = &service.options.rules.tenant;
        let set = engine.set_groups(tenant, Origin::Files, read.groups, limits, now_ns(service));
        set.map(|()| counts)
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
        let name = path.to_string_lossy();
        match read_file(path, &name, parser, disk) {
            Ok(entries) => {
                groups.extend(entries.into_iter().map(|entry| Group::new(&name, entry, *defaults)));
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
    path: &Path,
    name: &str,
    parser: ParserOptions,
    disk: &dyn Disk,
) -> Result<Vec<file::GroupEntry>, Vec<String>> {
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

/// Paths of the files that a pattern matches. A part of the path may have `*`, `?` and `[...]`.
///
/// # Errors
/// A path without a pattern that is no file.
fn matching_paths(pattern: &Path, disk: &dyn Disk) -> Result<Vec<PathBuf>, String> {
    if !is_pattern(&pattern.to_string_lossy()) {
        return match disk.exists(pattern) {
            true => Ok(vec![pattern.to_owned()]),
            false => Err(format!("{}: rule file not found", pattern.display())),
        };
    }
    let components: Vec<Component<'_>> = pattern.components().collect();
    let mut found = vec![PathBuf::new()];
    for (idx, component) in components.iter().enumerate() {
        let part = component.as_os_str().to_string_lossy();
        let is_last = idx + 1 == components.len();
        if !is_pattern(&part) {
            found.iter_mut().for_each(|path| path.push(component));
            found.retain(|path| !is_last || disk.exists(path));
            continue;
        }
        let mut matching = Vec::new();
        for dir in &found {
            let listed = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
            let entries = disk.list(listed).unwrap_or_default().into_iter();
            let entries =
                entries.filter(|entry| entry.is_dir != is_last && is_glob_match(&part, &entry.name));
            matching.extend(entries.map(|entry| dir.join(entry.name)));
        }
        found = matching;
        if found.len() > RULE_FILES_MAX {
            return Err(format!("rules.files matches more than {RULE_FILES_MAX} files"));
        }
    }
    Ok(found)
}

fn is_pattern(text: &str) -> bool {
    text.contains(PATTERN_CHARACTERS)
}
