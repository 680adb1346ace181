//! Groups of targets, in the file itself and in files that it names.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::document::{FILE_BYTES_MAX, parse_yaml};
use super::fields::{Fault, Fields, items, text};
use crate::yaml::Node;

/// Targets of one file.
pub(super) const TARGETS_MAX: usize = 10_000;

/// Addresses with labels that all of them have.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TargetGroup {
    /// `host:port` of each target.
    #[serde(default)]
    pub targets: Vec<String>,
    /// Labels of each target.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

/// An entry of `file_sd_configs`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileDiscovery {
    /// Paths, whose last part may have the wildcards of a glob.
    pub patterns: Vec<PathBuf>,
}

/// Takes the field `static_configs`, groups of targets.
pub(super) fn static_groups(fields: &mut Fields) -> Result<Vec<TargetGroup>, Fault> {
    let Some(field) = fields.take("static_configs") else { return Ok(Vec::new()) };
    groups(&field.value, "static_configs")
}

fn groups(node: &Node, section: &str) -> Result<Vec<TargetGroup>, Fault> {
    let mut groups = Vec::new();
    let mut target_count = 0;
    for item in items(node, section)? {
        if item.is_null() {
            return Err(Fault::new(item.position, format!("`{section}` has an empty group")));
        }
        let mut fields = Fields::of(item, section)?;
        let targets = fields.texts("targets")?.unwrap_or_default();
        let targets: Vec<String> = targets.into_iter().map(|target| target.text).collect();
        let mut labels = BTreeMap::new();
        if let Some(field) = fields.take("labels") {
            for label in Fields::of(&field.value, "labels")?.into_all() {
                if label.name.is_empty() {
                    return Err(Fault::new(label.position, "a label has an empty name"));
                }
                labels.insert(label.name, text(&label.value, "labels")?.text);
            }
        }
        fields.end()?;
        target_count += targets.len();
        if target_count > TARGETS_MAX {
            return Err(Fault::new(item.position, format!("more than {TARGETS_MAX} targets")));
        }
        groups.push(TargetGroup { targets, labels });
    }
    Ok(groups)
}

/// Takes the field `file_sd_configs`, lists of patterns.
pub(super) fn files(fields: &mut Fields, dir: &Path) -> Result<Vec<FileDiscovery>, Fault> {
    let Some(field) = fields.take("file_sd_configs") else { return Ok(Vec::new()) };
    let mut files = Vec::new();
    for item in items(&field.value, "file_sd_configs")? {
        let mut section = Fields::of(item, "file_sd_configs")?;
        let names = section.texts("files")?.unwrap_or_default();
        if names.is_empty() {
            let message = "file service discovery config must contain at least one path name";
            return Err(Fault::new(item.position, message));
        }
        // All files are compared once per second, so that the interval has no effect.
        if let Some(interval) = section.text("refresh_interval")? {
            interval.duration_ms()?;
        }
        section.end()?;
        if let Some(name) = names.iter().find(|name| !is_pattern(&name.text)) {
            let message = format!("path name {:?} is not valid for file discovery", name.text);
            return Err(Fault::new(name.position, message));
        }
        let patterns = names.into_iter().map(|name| dir.join(name.text)).collect();
        files.push(FileDiscovery { patterns });
    }
    Ok(files)
}

/// Returns true for a path to files in JSON or YAML with at most one `*`, in its last part.
fn is_pattern(path: &str) -> bool {
    let Some((stem, extension)) = path.rsplit_once('.') else { return false };
    let has_extension = matches!(extension, "json" | "yml" | "yaml" | "JSON" | "YML" | "YAML");
    has_extension && stem.split_once('*').is_none_or(|(_, after)| !after.contains('/'))
}

/// Reads a file of `file_sd_configs`: a list of groups in JSON or YAML, by the extension of its name. Each
/// group gets the label `__meta_filepath`.
///
/// # Errors
/// Position and fault.
pub fn parse_target_file(path: &Path, bytes: &[u8]) -> Result<Vec<TargetGroup>, String> {
    let is_json = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json"));
    let mut groups = if is_json { json_groups(bytes)? } else { yaml_groups(bytes)? };
    let path = path.display().to_string();
    for group in &mut groups {
        group.labels.insert("__meta_filepath".to_owned(), path.clone());
    }
    Ok(groups)
}

fn yaml_groups(bytes: &[u8]) -> Result<Vec<TargetGroup>, String> {
    match parse_yaml(bytes)? {
        Some(root) => groups(&root, "the file").map_err(|fault| fault.to_string()),
        None => Ok(Vec::new()),
    }
}

fn json_groups(bytes: &[u8]) -> Result<Vec<TargetGroup>, String> {
    if bytes.len() > FILE_BYTES_MAX {
        return Err(format!("file has {} bytes, at most {FILE_BYTES_MAX} are allowed", bytes.len()));
    }
    let groups: Option<Vec<TargetGroup>> =
        serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    let groups = groups.unwrap_or_default();
    if groups.iter().map(|group| group.targets.len()).sum::<usize>() > TARGETS_MAX {
        return Err(format!("more than {TARGETS_MAX} targets"));
    }
    Ok(groups)
}
