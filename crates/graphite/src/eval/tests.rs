//! Limits, cancelling and templates of an evaluation.

use std::collections::BTreeMap;

use jiff::tz::TimeZone;

use super::{Request, evaluate};
use crate::error::EvalError;
use crate::scope::Limits;
use crate::storage::memory::{MemorySource, StoredSeries};
use crate::time::request_range;

fn run(
    target: &str,
    template: &[(&str, &str)],
    limits: Limits,
    is_canceled: bool,
) -> Result<Vec<String>, EvalError> {
    let mut source = MemorySource::default();
    for name in ["x.a.v", "x.b.v", "y.a.v"] {
        source.insert(name, StoredSeries { start: 0, step: 10, values: vec![1.0; 100] });
    }
    let request = Request {
        targets: vec![target.to_owned(), String::new()],
        range: request_range(Some("100"), Some("200"), &TimeZone::UTC, 1000)?,
        now: 1000,
        zone: TimeZone::UTC,
        server_zone: TimeZone::UTC,
        max_data_points: None,
        x_files_factor: 0.0,
        template: template
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect::<BTreeMap<_, _>>(),
    };
    let list = evaluate(&request, &source, limits, &|| is_canceled)?;
    Ok(list.into_iter().map(|series| series.name).collect())
}

#[track_caller]
fn check(target: &str, template: &[(&str, &str)], want: &[&str]) {
    assert_eq!(run(target, template, Limits::default(), false).unwrap(), want, "{target}");
}

#[test]
fn templates_are_filled_in_before_fetching() {
    check("template($p.$1.v,'b')", &[("p", "x")], &["x.b.v"]);
    check("template($p.a.v,p='x')", &[("p", "y")], &["y.a.v"]);
    check("template(scale($1.a.v,$2),'x','2.5')", &[], &["scale(x.a.v,2.5)"]);
    check("template(movingAverage($1.a.v,2),'x')", &[], &["movingAverage(x.a.v,2)"]);
    check("template(alias(x.a.v,'$1'),'n')", &[], &["$1"]);
}

#[test]
fn limits_and_cancelling_end_a_request() {
    let limits = |series_max, points_max| Limits { series_max, points_max, ..Limits::default() };
    let limit = |what, found, limit| Err(EvalError::Limit { what, found, limit });
    assert_eq!(run("x.*.v", &[], limits(1, 1000), false), limit("series", 2, 1));
    assert_eq!(run("x.*.v", &[], limits(10, 15), false), limit("points", 20, 15));
    assert_eq!(
        run("x.*.v", &[], Limits { bytes_max: 100, ..Limits::default() }, false),
        limit("bytes of points", 160, 100)
    );
    assert_eq!(
        run("x.*.v", &[], Limits { targets_max: 0, ..Limits::default() }, false),
        limit("targets", 1, 0)
    );
    assert_eq!(run("x.*.v", &[], Limits::default(), true), Err(EvalError::Canceled));
}

#[test]
fn recursion_through_texts_is_bounded() {
    // Each level evaluates a target within a target; the texts are finite, and so is the depth.
    check("applyByNode(x.a.v,0,'applyByNode(%.a.v,0,\"%.b.v\")')", &[], &["x.b.v"]);
}
