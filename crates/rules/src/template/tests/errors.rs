//! Errors as callers see them: the annotation of an alert, and the check of a file.

use super::*;

#[track_caller]
fn check(template: &str, want: TemplateErrorKind, want_shown: &str, want_message: &str) {
    let error = expand(template, "plain", &Limits::default()).unwrap_err();
    assert_eq!(error.kind(), want);
    assert_eq!(error.to_string(), want_shown);
    assert_eq!(error.message(), want_message);
}

#[test]
fn the_check_of_a_file_shows_the_error_without_the_operation() {
    check(
        "{{foo}}",
        TemplateErrorKind::Syntax,
        "error parsing template __alert_Golden: template: __alert_Golden:1: function \"foo\" not defined",
        "template: __alert_Golden:1: function \"foo\" not defined",
    );
}

#[test]
fn a_failed_query_is_an_error_of_the_expansion() {
    let message = "template: __alert_Golden:1:114: executing \"__alert_Golden\" at <query \"x\">: error \
                   calling query: no such vector: x";
    let shown = format!("error executing template __alert_Golden: {message}");
    check("{{query \"x\"}}", TemplateErrorKind::Expansion, &shown, message);
}

/// Fails at the first query.
struct Once(bool);

impl Functions for Once {
    fn query(&mut self, _: &str) -> Result<Vec<Sample>, String> {
        if std::mem::replace(&mut self.0, true) { Ok(Vec::new()) } else { Err("late".to_owned()) }
    }
}

#[test]
fn a_template_is_expanded_again_after_an_error() {
    let template = parse("__alert_A", "{{$labels.job}}{{query \"x\"}}").unwrap();
    let labels = Labels::from_pairs([("job", "node")]);
    let data = TemplateData {
        labels: &labels,
        external_labels: &Labels::empty(),
        external_url: "",
        value: SampleValue::Float(1.0),
        time_ms: 0,
    };
    let mut functions = Once(false);
    assert!(template.expand(&data, &mut functions, &Limits::default()).is_err());
    assert_eq!(template.expand(&data, &mut functions, &Limits::default()).as_deref(), Ok("node[]"));
}
