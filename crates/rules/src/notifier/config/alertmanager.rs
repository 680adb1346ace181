//! An entry of `alertmanagers`: Alertmanagers that are reached in the same way.

use std::path::Path;

use chronolith_model::relabel::RelabelRule;

use super::fields::{Fault, Fields};
use super::http::{self, HttpOptions};
use super::relabel;
use super::targets::{self, FileDiscovery, TargetGroup};
use crate::yaml::Node;

/// Time of a request without `timeout`.
const DEFAULT_TIMEOUT_MS: u64 = 10_000;
/// Longest time of a request; a longer `timeout` is cut to it.
const TIMEOUT_MAX_MS: u64 = 3_600_000;

/// Alertmanagers that are reached in the same way.
#[derive(Debug, PartialEq)]
pub struct AlertmanagerSet {
    /// `http` or `https`, unless a target or a rule says otherwise.
    pub scheme: String,
    /// Path before the path of the API.
    pub path_prefix: String,
    /// Longest time of a request, in milliseconds.
    pub timeout_ms: u64,
    /// Options of requests.
    pub http: HttpOptions,
    /// Targets that the file itself lists.
    pub static_groups: Vec<TargetGroup>,
    /// Files with further targets.
    pub files: Vec<FileDiscovery>,
    /// Relabelling of targets, before one is used.
    pub relabel: Vec<RelabelRule>,
    /// Relabelling of alerts, after the rules for all entries.
    pub alert_relabel: Vec<RelabelRule>,
}

pub(super) fn read(node: &Node, dir: &Path) -> Result<AlertmanagerSet, Fault> {
    let mut fields = Fields::of(node, "alertmanagers")?;
    if let Some(version) = fields.value("api_version")?.filter(|version| version.text != "v2") {
        let message = "`api_version` is not v2: Alertmanagers have no other";
        return Err(Fault::new(version.position, message));
    }
    let timeout_ms = match fields.value("timeout")? {
        None => DEFAULT_TIMEOUT_MS,
        Some(timeout) => timeout.duration_ms()?.clamp(1, TIMEOUT_MAX_MS),
    };
    let set = AlertmanagerSet {
        scheme: scheme(&mut fields)?,
        path_prefix: fields.text("path_prefix")?.map(|prefix| prefix.text).unwrap_or_default(),
        timeout_ms,
        http: http::read(&mut fields, dir)?,
        static_groups: targets::static_groups(&mut fields)?,
        files: targets::files(&mut fields, dir)?,
        relabel: relabel::rules(&mut fields, "relabel_configs")?,
        alert_relabel: relabel::rules(&mut fields, "alert_relabel_configs")?,
    };
    if let Some(other) = fields.find_suffix("_sd_configs") {
        let message = format!("`{}` is not supported: use `static_configs` or `file_sd_configs`", other.name);
        return Err(Fault::new(other.position, message));
    }
    fields.end()?;
    let addresses = set.static_groups.iter().flat_map(|group| &group.targets);
    if let Some(address) = addresses.clone().find(|address| set.relabel.is_empty() && address.contains('/')) {
        return Err(Fault::new(node.position, format!("{address:?} is not a valid hostname")));
    }
    Ok(set)
}

fn scheme(fields: &mut Fields) -> Result<String, Fault> {
    match fields.filled_text("scheme")? {
        None => Ok("http".to_owned()),
        Some(scheme) if matches!(scheme.text.as_str(), "http" | "https") => Ok(scheme.text),
        Some(scheme) => {
            Err(Fault::new(scheme.position, format!("`scheme` is {:?}, not http or https", scheme.text)))
        }
    }
}
