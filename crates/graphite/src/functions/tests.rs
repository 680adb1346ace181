//! Functions against results that graphite-web 1.1.10 gave for the same series, and what they refuse.

use jiff::tz::TimeZone;

use super::{all, find};
use crate::absent::ABSENT;
use crate::eval::{Request, evaluate};
use crate::format_number::repr;
use crate::output::consolidate_to;
use crate::parameters::{Parameter, ParameterType};
use crate::scope::Limits;
use crate::series::Series;
use crate::storage::memory::{MemorySource, StoredSeries};
use crate::time::request_range;

const START: i64 = 1_700_000_000;

fn source() -> MemorySource {
    let mut source = MemorySource::default();
    let mut insert = |name: &str, start: i64, step: i64, values: &[f64]| {
        source.insert(name, StoredSeries { start, step, values: values.to_vec() });
    };
    insert("a.one", START, 10, &[1.0, ABSENT, 2.5, 4.0, 3.0, 6.0, 0.0, 8.0, 9.0, 10.0]);
    insert("a.two", START, 10, &[10.0, 20.0, 30.0, ABSENT, 50.0, 60.0, 70.0, 80.0, 90.0, 100.0]);
    insert("a.slow", START - START % 60, 60, &[5.0, 7.0, 9.0, 11.0]);
    insert("b.none", START, 10, &[ABSENT; 10]);
    insert("load;dc=x;host=h1", START, 10, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0]);
    insert("load;dc=y;host=h2", START, 10, &[2.0; 10]);
    source
}

fn request(target: &str) -> Request {
    let from = (START - 1).to_string();
    let until = (START + 60).to_string();
    Request {
        targets: vec![target.to_owned()],
        range: request_range(Some(&from), Some(&until), &TimeZone::UTC, START + 600).unwrap(),
        now: START + 600,
        clock: START + 600,
        zone: TimeZone::UTC,
        server_zone: TimeZone::UTC,
        max_data_points: None,
        x_files_factor: 0.0,
        template: std::collections::BTreeMap::new(),
    }
}

fn line(series: &Series) -> String {
    let points = series.points().unwrap();
    let step = series.step * series.values_per_point as i64;
    let count = points.len().min(usize::try_from((series.end - series.start) / step + 1).unwrap());
    let values: Vec<String> = points
        .iter()
        .take(count)
        .map(|value| if value.is_nan() { "-".to_owned() } else { repr(*value) })
        .collect();
    let start = if count > 0 { series.start - START } else { 0 };
    let step = if count > 1 { step } else { 0 };
    format!("  {} @{start}/{step}: {}\n", series.name, values.join(" "))
}

fn run(target: &str) -> Result<Vec<Series>, crate::EvalError> {
    evaluate(&request(target), &source(), Limits::default(), &|| false)
}

#[track_caller]
fn check(target: &str, want: &str) {
    let lines: Vec<String> = run(target).unwrap().iter().map(line).collect();
    assert_eq!(lines.concat().trim_end(), want.trim_end(), "{target}");
}

#[test]
fn results_are_those_of_graphite_web() {
    let golden = include_str!("tests/graphite_web.txt");
    let blocks = golden.split("\n\n").map(|block| block.trim_start_matches('\n'));
    let mut count = 0;
    for block in blocks.filter(|block| !block.trim().is_empty()) {
        let block = if block.starts_with('#') { block.split_once('\n').unwrap().1 } else { block };
        let (target, want) = block.split_once('\n').unwrap_or((block, ""));
        if target.starts_with("delay(a.two,0)") {
            continue;
        }
        check(target, want);
        count += 1;
    }
    assert!(count > 70, "golden file has {count} targets");
}

#[test]
fn a_delay_of_no_steps_leaves_no_values() {
    assert_eq!(run("delay(a.two,0)").unwrap()[0].values.len(), 0);
}

#[test]
fn functions_of_counts_have_fractions() {
    // A count printed without a fraction made 1 of sigmoid(1).
    let list = run("sigmoid(countSeries(a.one))").unwrap();
    let mut out = String::new();
    crate::output::json::render(&list, &crate::output::RenderOptions::default(), &mut out).unwrap();
    assert!(out.contains("[0.7310585786300049, 1700000000]"), "{out}");
}

#[test]
fn pipes_are_nested_calls() {
    check("a.one|scale(2)|movingAverage(1)", &line(&run("movingAverage(scale(a.one,2),1)").unwrap()[0]));
}

#[test]
fn keyword_arguments_are_fetched_and_bound() {
    check("asPercent(a.one,total=a.two)", &line(&run("asPercent(a.one,a.two)").unwrap()[0]));
    check("scale(a.one,factor=2)", &line(&run("scale(a.one,2)").unwrap()[0]));
}

#[test]
fn series_of_zeros_are_removed() {
    assert!(run("removeZeroSeries(scale(a.one,0))").unwrap().is_empty());
    assert_eq!(run("removeZeroSeries(a.one)").unwrap().len(), 1);
}

#[test]
fn wrong_arguments_are_refused_with_a_text() {
    let cases = [
        ("nope(a.one)", "unknown function: nope"),
        ("scale(a.one)", "scale(): factor must be a number"),
        ("scale(a.one,2,3)", "scale(): takes at most 2 arguments"),
        ("scale(a.one,foo=2)", "scale(): unexpected keyword argument 'foo'"),
        ("summarize(a.one,'1min','foo')", "unsupported aggregation function: foo"),
        ("summarize(a.one,'-1min')", "interval '-1min' is not positive"),
        ("summarize(a.one,'1m')", "invalid offset unit 'm'"),
        ("movingAverage(a.one,-5)", "windowSize -5 is negative"),
        ("aliasSub(a.one,'(','x')", "invalid regex '('"),
        ("percentileOfSeries(a.*,0)", "percentileOfSeries(): the percentage must be greater than 0"),
        ("divideSeries(a.one,a.*)", "divideSeries(): second argument must be exactly 1 series, found 3"),
        (
            "seriesByTag('dc!=x')",
            "seriesByTag(): at least one tag expression must not match the empty string",
        ),
        ("exp(scale(a.two,100))", "exp of 1000.0 overflows"),
        ("mapSeries(a.*,0)", "target is a list of lists and no list of series"),
    ];
    for (target, want) in cases {
        let error = run(target).unwrap_err().to_string();
        assert!(error.starts_with(want), "{target}: {error}");
    }
}

#[test]
fn every_function_survives_every_argument() {
    const ARGUMENTS: [&str; 12] = [
        "a.*",
        "no.such",
        "b.none",
        "'x'",
        "''",
        "0",
        "-1",
        "1e300",
        "none",
        "true",
        "'1min'",
        "mapSeries(a.*,1)",
    ];
    for function in all() {
        for first in ARGUMENTS {
            for second in ARGUMENTS {
                // An error is as good as a result; a panic is not.
                let _ = run(&format!("{}({first},{second},{first},{second})", function.name));
                let _ = run(&format!("{}({first},{second})", function.name));
            }
            let _ = run(&format!("{}({first})", function.name));
        }
    }
}

#[test]
fn all_names_of_the_issue_are_there() {
    let names = "absolute add aggregate aggregateLine aggregateSeriesLists aggregateWithWildcards alias aliasByMetric aliasByNode \
        aliasByTags aliasQuery aliasSub alpha applyByNode areaBetween asPercent averageAbove averageBelow averageOutsidePercentile \
        averageSeries averageSeriesWithWildcards avg cactiStyle changed color compressPeriodicGaps consolidateBy constantLine countSeries \
        cumulative currentAbove currentBelow dashed delay derivative diffSeries diffSeriesLists divideSeries divideSeriesLists \
        drawAsInfinite events exclude exp exponentialMovingAverage fallbackSeries filterSeries grep group groupByNode groupByNodes \
        groupByTags highest highestAverage highestCurrent highestMax hitcount holtWintersAberration holtWintersConfidenceArea \
        holtWintersConfidenceBands holtWintersForecast identity integral integralByInterval interpolate invert isNonNull keepLastValue \
        legendValue limit lineWidth linearRegression log logit lower lowest lowestAverage lowestCurrent map mapSeries maxSeries \
        maximumAbove maximumBelow minMax minSeries minimumAbove minimumBelow mostDeviant movingAverage movingMax movingMedian movingMin \
        movingSum movingWindow multiplySeries multiplySeriesLists multiplySeriesWithWildcards nPercentile nonNegativeDerivative offset \
        offsetToZero pct perSecond percentileOfSeries pow powSeries randomWalk randomWalkFunction rangeOfSeries reduce reduceSeries \
        removeAbovePercentile removeAboveValue removeBelowPercentile removeBelowValue removeBetweenPercentile removeEmptySeries \
        removeZeroSeries round scale scaleToSeconds secondYAxis seriesByTag setXFilesFactor sigmoid sin sinFunction smartSummarize sortBy \
        sortByMaxima sortByMinima sortByName sortByTotal squareRoot stacked stddevSeries stdev substr sum sumSeries sumSeriesLists \
        sumSeriesWithWildcards summarize threshold time timeFunction timeShift timeSlice timeStack transformNull unique upper \
        useSeriesAbove verticalLine weightedAverage xFilesFactor";
    let missing: Vec<&str> = names.split_whitespace().filter(|name| find(name).is_none()).collect();
    assert!(missing.is_empty(), "{missing:?}");
    assert_eq!(names.split_whitespace().count(), all().count());
}

#[test]
fn consolidated_points_start_at_a_multiple() {
    let mut list = run("a.two").unwrap();
    consolidate_to(&mut list, 3).unwrap();
    assert_eq!(line(&list[0]).trim(), "a.two @10/30: 20.0 55.0 70.0");
}

/// An argument that is valid for a parameter.
fn argument(parameter: &Parameter) -> String {
    if let Some(option) = parameter.options.first() {
        return format!("'{option}'");
    }
    let text = match parameter.kind {
        ParameterType::AggFunc | ParameterType::AggOrSeriesFunc => "'sum'",
        ParameterType::Boolean => "true",
        ParameterType::Date => "'-1min'",
        ParameterType::Interval | ParameterType::Text => "'1min'",
        ParameterType::Tag => "'host'",
        ParameterType::SeriesList => "a.*",
        ParameterType::SeriesLists => "mapSeries(a.*,0)",
        ParameterType::Node | ParameterType::NodeOrTag => "0",
        _ => "2",
    };
    text.to_owned()
}

/// `Bound` asserts that a function reads the parameters of its signature: here each function runs with each
/// number of arguments, whatever its result is.
#[test]
fn functions_read_the_parameters_of_their_signatures() {
    let source = source();
    let mut result_count = 0;
    for function in all() {
        let args: Vec<String> = function.parameters.iter().map(argument).collect();
        for count in 0..=args.len() {
            let target = format!("{}({})", function.name, args[..count].join(","));
            let result = evaluate(&request(&target), &source, Limits::default(), &|| false);
            result_count += usize::from(result.is_ok());
        }
    }
    assert!(result_count > all().count(), "{result_count} calls have a result");
}
