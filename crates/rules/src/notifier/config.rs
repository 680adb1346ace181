//! The `alerting:` block of a Prometheus 3.16 file (`--rules.alerting-config`).
//!
//! Invariants: a block is used as a whole or refused with the position of its first fault; no error text has
//! a value that may be secret. Fields that Prometheus has and this server lacks are refused by name; other
//! blocks of the file are listed and not read.
//! Not here: reading of the files that the block names (`server::notifier`), Alertmanagers by their targets
//! (`discovery`).

mod alertmanager;
mod document;
mod fields;
mod http;
mod relabel;
mod targets;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;

use chronolith_model::relabel::RelabelRule;

use crate::yaml::{Node, Position};

pub use self::alertmanager::AlertmanagerSet;
pub use self::document::FILE_BYTES_MAX;
use self::document::parse_yaml;
use self::fields::{Fault, Fields, items};
pub use self::http::{Auth, Header, HeaderValue, HttpOptions, Secret, Source, TlsOptions, TlsVersion};
pub use self::targets::{FileDiscovery, TargetGroup, parse_target_file};

/// Entries of `alertmanagers`.
const SETS_MAX: usize = 64;

/// The block of one file.
#[derive(Debug, Default, PartialEq)]
pub struct AlertingConfig {
    /// Entries of `alertmanagers`.
    pub alertmanagers: Vec<Arc<AlertmanagerSet>>,
    /// Relabelling of all alerts, before the rules of an entry.
    pub alert_relabel: Vec<RelabelRule>,
    /// Names of the other blocks of the file, which are not read.
    pub ignored_blocks: Vec<String>,
}

impl AlertingConfig {
    /// Reads the text of a file. Relative paths in it are below `dir`.
    ///
    /// # Errors
    /// `LINE:COLUMN: fault`, or a fault of the whole file.
    pub fn parse(bytes: &[u8], dir: &Path) -> Result<AlertingConfig, String> {
        let root = match parse_yaml(bytes)? {
            Some(root) => root,
            None => return Ok(AlertingConfig::default()),
        };
        read(&root, dir).map_err(|fault| fault.to_string())
    }
}

fn read(root: &Node, dir: &Path) -> Result<AlertingConfig, Fault> {
    let mut config = AlertingConfig::default();
    for field in Fields::of(root, "the file")?.into_all() {
        if field.name != "alerting" {
            config.ignored_blocks.push(field.name);
            continue;
        }
        let mut fields = Fields::of(&field.value, "alerting")?;
        config.alert_relabel = relabel::rules(&mut fields, "alert_relabel_configs")?;
        if let Some(list) = fields.take("alertmanagers") {
            for item in items(&list.value, "alertmanagers")? {
                check_count(&config.alertmanagers, item.position)?;
                config.alertmanagers.push(Arc::new(alertmanager::read(item, dir)?));
            }
        }
        fields.end()?;
    }
    Ok(config)
}

fn check_count(sets: &[Arc<AlertmanagerSet>], position: Position) -> Result<(), Fault> {
    if sets.len() < SETS_MAX {
        return Ok(());
    }
    Err(Fault::new(position, format!("`alertmanagers` has more than {SETS_MAX} entries")))
}
