//! Elements of pictures by their parameters.

use super::axis::{ValueAxis, time_labels};
use super::options::{Bounds, PictureOptions};
use super::*;
use crate::series::{DrawOption, Grid};

fn series(name: &str, values: &[f64]) -> Series {
    let grid = Grid { start: 0, end: 60 * values.len() as i64, step: 60 };
    Series::new(name.to_owned(), grid, values.to_vec(), 0.0)
}

/// A request that ended while many series were drawn went on until all of them were.
#[test]
fn a_request_ends_at_the_next_series() {
    let list: Vec<Series> = (0..40).map(|idx| series(&format!("s{idx}"), &[1.0, 2.0, 3.0])).collect();
    for (given, checks) in [
        (&[("lineWidth", "1")][..], 80),
        (&[("areaMode", "stacked")], 80),
        (&[("hideLegend", "true")], 80),
        (&[("lineMode", "staircase")], 80),
        (&[("graphOnly", "true"), ("width", "4000")], 80),
        (&[("graphType", "pie")], 40),
        (&[("graphType", "pie"), ("pieMode", "maximum")], 40),
    ] {
        for end in [0, 1, 39, checks - 1, checks] {
            let asked = std::cell::Cell::new(0);
            let is_canceled = || {
                asked.set(asked.get() + 1);
                asked.get() > end
            };
            let mut out = String::new();
            let result = render_svg(&list, (0, 300), &TimeZone::UTC, &options(given), &is_canceled, &mut out);
            let want = if end < checks { Err(EvalError::Canceled) } else { Ok(()) };
            assert_eq!((result, asked.get()), (want, checks.min(end + 1)), "{given:?}, end at check {end}");
        }
    }
}

fn options(given: &[(&str, &str)]) -> PictureOptions {
    PictureOptions::new(|name| given.iter().find(|(found, _)| *found == name).map(|(_, value)| *value))
}

fn picture(list: &[Series], given: &[(&str, &str)]) -> String {
    let mut out = String::new();
    render_svg(list, (0, 300), &TimeZone::UTC, &options(given), &|| false, &mut out)
        .expect("within the limits");
    assert!(out.starts_with("<?xml") && out.ends_with("</svg>\n"), "{out}");
    out
}

/// Checks the number of elements of a kind.
#[track_caller]
fn check(list: &[Series], given: &[(&str, &str)], element: &str, count: usize) {
    let out = picture(list, given);
    assert_eq!(out.matches(element).count(), count, "{element} of {given:?} in {out}");
}

#[test]
fn a_missing_value_breaks_a_line_unless_the_mode_joins_it() {
    let list = [series("a", &[1.0, 2.0, f64::NAN, 3.0, f64::NAN])];
    check(&list, &[], "<path", 2);
    check(&list, &[("lineMode", "connected")], "<path", 1);
    check(&list, &[("lineMode", "connected"), ("connectedLimit", "0")], "<path", 2);
    check(&list, &[("drawNullAsZero", "true")], "<path", 1);
    check(&list, &[("areaMode", "all")], "<path", 4);
}

#[test]
fn parts_are_hidden_and_texts_escaped() {
    let list = [series("a<b>&\"", &[1.0, 2.0])];
    check(&list, &[], ">a&lt;b&gt;&amp;&quot;<", 1);
    check(&list, &[("hideLegend", "true")], "a&lt;b", 0);
    check(&list, &[("graphOnly", "true"), ("title", "t")], "<text", 0);
    check(&list, &[("hideGrid", "true")], "<line", 0);
    check(&list, &[("title", "T\u{0}"), ("vtitle", "V")], ">T\u{fffd}<", 1);
    check(&[], &[], ">No Data<", 1);
    let many: Vec<Series> = (0..11).map(|idx| series(&format!("s{idx}"), &[1.0])).collect();
    check(&many, &[], ">s3<", 0);
    check(&many, &[("hideLegend", "false"), ("height", "600")], ">s3<", 1);
}

#[test]
fn properties_of_functions_are_drawn() {
    let with = |option: DrawOption| {
        let mut one = series("a", &[1.0, 2.0]);
        one.options.push(option);
        [one]
    };
    check(&with(DrawOption::Color("ff8800".to_owned())), &[], "stroke=\"#ff8800\"", 1);
    check(&with(DrawOption::Dashed(5.0)), &[], "stroke-dasharray=\"5.0\"", 1);
    check(&with(DrawOption::LineWidth(3.0)), &[], "stroke-width=\"3.0\"", 1);
    check(&with(DrawOption::Alpha(0.25)), &[], "stroke-opacity=\"0.25\"", 1);
    check(&with(DrawOption::Invisible), &[], "<path", 0);
    check(&with(DrawOption::DrawAsInfinite), &[], "stroke=\"#6464ff\"", 2);
    check(&with(DrawOption::Stacked), &[("areaAlpha", "0.5")], "fill-opacity=\"0.50\"", 1);
}

#[test]
fn a_pie_has_a_slice_per_positive_series() {
    let list = [series("a", &[1.0, 3.0]), series("b", &[2.0]), series("c", &[-1.0])];
    check(&list, &[("graphType", "pie")], "<path", 2);
    check(&list, &[("graphType", "pie")], ">50%<", 2);
    check(&list, &[("graphType", "pie"), ("pieMode", "maximum")], ">60%<", 1);
    check(&list[..1], &[("graphType", "pie")], ">100%<", 1);
}

/// Checks the labels of an axis of 200 pixels.
#[track_caller]
fn check_axis(low: f64, high: f64, given: &[(&str, &str)], want: &[&str]) {
    let lines = options(given).lines;
    let axis = ValueAxis::new(low, high, lines.bounds[0], lines.log_base, lines.unit, 200.0);
    let labels: Vec<String> = axis.marks.iter().map(|mark| axis.label(*mark)).collect();
    assert_eq!(labels, want, "{low}..{high} {given:?}");
}

#[test]
fn labels_are_round_numbers() {
    check_axis(0.0, 9.0, &[], &["0", "2", "4", "6", "8", "10"]);
    check_axis(0.0, 0.9, &[], &["0", "0.2", "0.4", "0.6", "0.8", "1"]);
    check_axis(0.0, 4500.0, &[], &["0", "1 K", "2 K", "3 K", "4 K", "5 K"]);
    check_axis(0.0, 4500.0, &[("yUnitSystem", "none")], &["0", "1000", "2000", "3000", "4000", "5000"]);
    check_axis(0.0, 4096.0, &[("yUnitSystem", "binary")], &["0", "1 Ki", "2 Ki", "3 Ki", "4 Ki"]);
    check_axis(5.0, 5.0, &[("yMin", "0"), ("yMax", "1")], &["0", "0.2", "0.4", "0.6", "0.8", "1"]);
    check_axis(-1.0, 1.0, &[], &["-1", "-0.5", "0", "0.5", "1"]);
    check_axis(1.0, 900.0, &[("logBase", "10")], &["1", "10", "100", "1 K"]);
    check_axis(0.0, 7200.0, &[("yUnitSystem", "sec")], &["0", "30 m", "1 h", "1.5 h", "2 h"]);
    check_axis(3.0, 3.0, &[], &["3", "4", "5", "6"]);
    // No axis without a range, whatever the bounds are.
    let bounds = Bounds { min: Some(5.0), max: Some(5.0) };
    assert!(ValueAxis::new(0.0, 1.0, bounds, None, Unit::Si, 100.0).position(5.0).is_finite());
}

#[test]
fn times_are_labelled_at_round_wall_times() {
    let texts = |from, until, format| -> Vec<String> {
        let zone = TimeZone::get("Europe/Berlin").expect("bundled");
        time_labels(from, until, 300.0, &zone, format).into_iter().map(|(_, text)| text).collect()
    };
    assert_eq!(texts(1_700_000_000, 1_700_003_600, None), ["23:30", "00:00"]);
    assert_eq!(texts(1_700_000_000, 1_700_300_000, None), ["11/15", "11/16", "11/17", "11/18"]);
    assert_eq!(texts(1_700_000_000, 1_700_300_000, Some("%d"))[0], "15");
    assert!(time_labels(i64::MAX - 5, i64::MAX, 300.0, &TimeZone::UTC, None).is_empty());
}
