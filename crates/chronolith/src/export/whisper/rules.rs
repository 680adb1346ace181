//! Rules that name the layout of a file: the files and lists of the flags.
//!
//! Not here: rules of a running server (`server`).

use std::path::Path;

use anyhow::Context as _;
use chronolith_base::Env;
use chronolith_import::whisper::FileLayout;
use chronolith_ingest::carbon::{
    AggregationMethod, AggregationRules, Archive, Schemas, X_FILES_FACTOR_DEFAULT,
};
use clap::ArgMatches;

use crate::args::value;
use crate::query::print;

/// Archive of paths without a rule: carbon's default.
const DEFAULT_ARCHIVES: [Archive; 1] = [Archive { step_s: 60, point_count: 10_080 }];

/// Layout of files of paths without rules: carbon's defaults.
pub(super) fn default_layout() -> FileLayout {
    FileLayout {
        archives: DEFAULT_ARCHIVES.to_vec(),
        method: AggregationMethod::Average,
        x_files_factor: X_FILES_FACTOR_DEFAULT,
    }
}

/// Rules of the flags; those that are not named are of another source.
pub(super) struct Rules {
    schemas: Option<Schemas>,
    aggregations: Option<AggregationRules>,
}

impl Rules {
    pub(super) fn read(env: &Env, matches: &ArgMatches) -> anyhow::Result<Rules> {
        let text = |path: &str| -> anyhow::Result<String> {
            let bytes = env.disk.read(Path::new(path)).with_context(|| format!("reading {path}"))?;
            String::from_utf8(bytes).with_context(|| format!("reading {path}"))
        };
        let schemas = match (value(matches, "schemas"), value(matches, "retentions")) {
            (Some(path), _) => {
                let (schemas, notes) = Schemas::parse(&text(path)?).with_context(|| path.to_owned())?;
                for note in &notes {
                    print(&format!("note: {path}: line {}: {}\n", note.line, note.what));
                }
                Some(schemas)
            }
            (None, Some(list)) => Some(schemas_of_all(list).context("--retentions")?),
            (None, None) => None,
        };
        let aggregations = match value(matches, "aggregation") {
            Some(path) => Some(AggregationRules::parse(&text(path)?).with_context(|| path.to_owned())?.0),
            None => None,
        };
        Ok(Rules { schemas, aggregations })
    }

    /// Returns the layout of the file of a path; `unnamed` is the source's, for properties without a flag.
    pub(super) fn layout(&self, path: &str, unnamed: FileLayout) -> FileLayout {
        let mut layout = unnamed;
        let default = default_layout();
        if let Some(schemas) = &self.schemas {
            let rule = schemas.match_path(path);
            layout.archives = rule.map_or(default.archives, |rule| rule.archives().to_vec());
        }
        if let Some(aggregations) = &self.aggregations {
            let rule = aggregations.match_path(path);
            let method = rule.and_then(|rule| rule.methods().first().copied());
            layout.method = method.unwrap_or(default.method);
            layout.x_files_factor = rule.map_or(default.x_files_factor, |rule| rule.x_files_factor());
        }
        layout
    }
}

/// Returns the layout of a rule in the words of carbon's files: archives as `10:360,60:1440`, empty for the
/// default, and a method by its name.
///
/// # Errors
/// If whisper cannot have them.
pub(super) fn layout_of_texts(
    retentions: &str,
    method: &str,
    x_files_factor: f64,
) -> anyhow::Result<FileLayout> {
    let schemas = if retentions.is_empty() { None } else { Some(schemas_of_all(retentions)?) };
    let aggregation =
        format!("[all]\npattern = .*\nxFilesFactor = {x_files_factor}\naggregationMethod = {method}\n");
    let (aggregations, notes) = AggregationRules::parse(&aggregation)?;
    anyhow::ensure!(notes.is_empty(), "{}", notes.iter().map(|note| note.what.as_str()).collect::<String>());
    Ok(Rules { schemas, aggregations: Some(aggregations) }.layout("all", default_layout()))
}

/// Returns schemas with one section, for all paths.
fn schemas_of_all(retentions: &str) -> anyhow::Result<Schemas> {
    anyhow::ensure!(!retentions.contains(['\n', '\r']), "expected one line");
    let (schemas, notes) = Schemas::parse(&format!("[all]\npattern = .*\nretentions = {retentions}\n"))?;
    for note in &notes {
        print(&format!("note: retentions {retentions}: {}\n", note.what));
    }
    anyhow::ensure!(!schemas.rules().is_empty(), "no archives that whisper can have: {retentions:?}");
    Ok(schemas)
}
