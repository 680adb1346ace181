//! Groups of texts, for tests.

use chronolith_promql::parser::ParserOptions;

use crate::file::{FileLimits, FileOptions, UnknownFields, parse};
use crate::group::{Group, GroupDefaults};
use crate::template_engine::{TemplateData, TemplateEngine, TemplateQueries};

/// Replaces `{{value}}` and `{{NAME}}`, a label, `{{query}}` by the number of results of `up`, and fails for
/// `{{fail}}`. A template with an action that is not closed cannot be parsed.
pub(super) struct TestTemplates;

impl TemplateEngine for TestTemplates {
    fn check(&self, alert: &str, text: &str) -> Result<(), String> {
        match text.matches("{{").count() == text.matches("}}").count() {
            true => Ok(()),
            false => Err(format!("template: __alert_{alert}:1: unclosed action")),
        }
    }

    fn expand(
        &self,
        text: &str,
        data: &TemplateData<'_>,
        queries: &mut dyn TemplateQueries,
    ) -> Result<String, String> {
        let mut out = String::new();
        for (idx, part) in text.split("{{").enumerate() {
            let Some((action, after)) = part.split_once("}}").filter(|_| idx > 0) else {
                out.push_str(part);
                continue;
            };
            match action {
                "fail" => return Err(format!("template {} failed", data.alert)),
                "value" => out.push_str(&data.value.to_string()),
                "query" => out.push_str(&queries.query("up", data.time_ms)?.len().to_string()),
                name => out.push_str(data.labels.get(name).unwrap_or("")),
            }
            out.push_str(after);
        }
        Ok(out)
    }
}

pub(super) fn file_options() -> FileOptions<'static> {
    FileOptions {
        parser: ParserOptions::default(),
        unknown_fields: UnknownFields::Refuse,
        templates: &TestTemplates,
        limits: FileLimits::default(),
    }
}

/// The first group of a file.
#[track_caller]
pub(super) fn group_of(text: &str) -> Group {
    let parsed = parse("rules.yml", text.as_bytes(), &file_options());
    let entry = parsed.expect("a good file").groups.into_iter().next().expect("a group");
    Group::new("rules.yml", entry, GroupDefaults { interval_ms: 60_000, query_offset_ms: 0 })
}

/// A group `g` of the rules in `rules`, a list in YAML.
#[track_caller]
pub(super) fn group_of_rules(rules: &str) -> Group {
    group_of(&format!("groups:\n- name: g\n  rules:\n{rules}"))
}
