//! Alertmanagers by their targets: URLs after relabelling, and names of files by patterns.

use std::collections::HashSet;

use chronolith_model::LabelsBuilder;
use chronolith_model::relabel::relabel;

use super::config::{AlertmanagerSet, TargetGroup};

/// Path of the API below `path_prefix`.
const API_PATH: &str = "api/v2/alerts";
const ADDRESS: &str = "__address__";
const SCHEME: &str = "__scheme__";
const PATH: &str = "__alerts_path__";

/// Alertmanagers of one entry.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Discovered {
    /// URLs to which alerts are sent, each once, in the order of the targets.
    pub active: Vec<String>,
    /// URLs that rules drop.
    pub dropped: Vec<String>,
    /// Reasons for groups that cannot be used.
    pub faults: Vec<String>,
}

/// Returns the Alertmanagers of `set` with these groups of targets. A group with an address that is none is
/// left out, as in Prometheus.
#[must_use]
pub fn discover<'a>(set: &AlertmanagerSet, groups: impl Iterator<Item = &'a TargetGroup>) -> Discovered {
    let mut discovered = Discovered::default();
    let mut seen = HashSet::new();
    for group in groups {
        match urls_of_group(set, group, &mut discovered.dropped) {
            Ok(urls) => discovered.active.extend(urls.into_iter().filter(|url| seen.insert(url.clone()))),
            Err(fault) => discovered.faults.push(fault),
        }
    }
    discovered
}

fn urls_of_group(
    set: &AlertmanagerSet,
    group: &TargetGroup,
    dropped: &mut Vec<String>,
) -> Result<Vec<String>, String> {
    let mut urls = Vec::new();
    for target in &group.targets {
        let mut labels = LabelsBuilder::new();
        labels.set(ADDRESS, target);
        labels.set(SCHEME, &set.scheme);
        labels.set(PATH, &api_path(&set.path_prefix));
        for (name, value) in group.labels.iter().filter(|(name, _)| *name != ADDRESS) {
            labels.set(name, value);
        }
        let before = url_of(&labels);
        if !relabel(&set.relabel, &mut labels) {
            dropped.push(before);
            continue;
        }
        let address = labels.get(ADDRESS).unwrap_or("");
        if address.is_empty() || address.contains('/') {
            return Err(format!("{address:?} is not a valid hostname"));
        }
        urls.push(url_of(&labels));
    }
    Ok(urls)
}

fn url_of(labels: &LabelsBuilder) -> String {
    let part = |name| labels.get(name).unwrap_or("");
    let path = part(PATH);
    let slash = if path.is_empty() || path.starts_with('/') { "" } else { "/" };
    format!("{}://{}{slash}{}", part(SCHEME), part(ADDRESS), escape_path(path))
}

/// The path of the API below a prefix, without empty parts, `.` and `..`.
fn api_path(prefix: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in prefix.split('/').chain(API_PATH.split('/')) {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

/// Escapes a path as Go's `url.URL` does.
fn escape_path(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => out.push(char::from(byte)),
            b'-' | b'_' | b'.' | b'~' | b'$' | b'&' | b'+' | b',' | b'/' | b':' | b';' | b'=' | b'@' => {
                out.push(char::from(byte));
            }
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}
