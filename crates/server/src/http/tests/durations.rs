//! Durations that are wrong only for the times of a query, steps and the header of start timestamps: status,
//! kind and text of the answer are Prometheus 3.16's.

use axum::http::Request;
use chronolith_ingest::remote_write::v2::encode::{RequestEncoder, SampleOut, SeriesExtras};

use super::{Answer, Fixture, NOW_MS};

/// Checks for bad data of the parameter `query`, or for 200 if the text is empty.
#[track_caller]
fn check(answer: &Answer, want: &str, path: &str) {
    if want.is_empty() {
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
        return;
    }
    let json = answer.json();
    let error = format!("invalid parameter \"query\": {want}");
    assert_eq!(
        (answer.status.as_u16(), json["errorType"].as_str(), json["error"].as_str()),
        (400, Some("bad_data"), Some(error.as_str())),
        "{path}"
    );
}

fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02x}")).collect()
}

const WRONG_TYPE: &str =
    "invalid expression type \"range vector\" for range query, must be Scalar or instant Vector";

/// Queries with the error of an instant query, of a range query, and of a range query of one step.
const WRONG_DURATIONS: [(&str, [&str; 3]); 25] = [
    (
        "sum_over_time(x[range()])",
        ["16:23: duration must be greater than 0", "", "16:23: duration must be greater than 0"],
    ),
    ("x[step()]", ["2:8: duration must be greater than 0", WRONG_TYPE, WRONG_TYPE]),
    ("x[5m:step()]", ["5:11: duration must be greater than 0", WRONG_TYPE, WRONG_TYPE]),
    ("sum_over_time(x[5m:step()])", ["19:25: duration must be greater than 0", "", ""]),
    ("x[step()*0]", ["2:10: duration must be greater than 0", WRONG_TYPE, WRONG_TYPE]),
    ("rate(x[step()-1m])", ["7:16: duration must be greater than 0"; 3]),
    ("x[5m - 5m]", ["2:9: duration must be greater than 0", WRONG_TYPE, WRONG_TYPE]),
    ("x[-step()]", ["2:9: duration must be greater than 0", WRONG_TYPE, WRONG_TYPE]),
    ("sum_over_time(x[range() - range()])", ["16:33: duration must be greater than 0"; 3]),
    ("x[max_of(step(), range())]", ["2:25: duration must be greater than 0", WRONG_TYPE, WRONG_TYPE]),
    ("x offset (1m/step())", ["10:19: division by zero", "", ""]),
    ("x offset (1m%step())", ["10:19: modulo by zero", "", ""]),
    ("sum_over_time(x[1m/step()])", ["16:25: division by zero", "", ""]),
    ("sum_over_time(x[1m:1m-1m])", ["19:24: duration must be greater than 0"; 3]),
    ("x[1m:min_of(step(),1s)]", ["5:22: duration must be greater than 0", WRONG_TYPE, WRONG_TYPE]),
    ("sum_over_time(x[2^10000])", ["16:23: duration is NaN or infinite"; 3]),
    ("x offset (2^10000)", ["10:17: duration is NaN or infinite"; 3]),
    ("x offset (2^70)", ["10:14: duration is out of range"; 3]),
    (
        "sum_over_time(x[step()]) + rate(x[range()])",
        ["16:22: duration must be greater than 0", "", "34:41: duration must be greater than 0"],
    ),
    ("sum_over_time(x[1m:step()] offset (1m/step()))", ["35:44: division by zero", "", ""]),
    (r#"count_values("", sum_over_time(x[step()-step()]))"#, ["33:46: duration must be greater than 0"; 3]),
    (
        r#"label_replace(x[step()], "a", "b", "c", "(")"#,
        [r#"1:15: parse error: expected type instant vector in call to function "label_replace", got range vector"#;
            3],
    ),
    ("x[0]", ["1:3: parse error: duration must be greater than 0"; 3]),
    (
        "sum_over_time(x[step()*0.000001])",
        // Below a millisecond, which Prometheus takes for a range without samples.
        ["16:31: duration must be greater than 0"; 3],
    ),
    ("x[5m]", ["", WRONG_TYPE, WRONG_TYPE]),
];

/// Covers a regression: a duration that is wrong only for the step or range of the query was 422 execution,
/// because it is computed with the plan. Prometheus computes it before the query runs: 400 bad_data.
#[tokio::test]
async fn durations_that_are_wrong_at_query_time_are_bad_data() {
    let server = Fixture::ready();
    for (query, wants) in WRONG_DURATIONS {
        let query = encoded(query);
        let paths = [
            format!("/api/v1/query?query={query}&time=1000"),
            format!("/api/v1/query_range?query={query}&start=1000&end=2000&step=60"),
            format!("/api/v1/query_range?query={query}&start=1000&end=1000&step=60"),
        ];
        for (path, want) in paths.iter().zip(wants) {
            check(&server.get(path).await, want, path);
        }
    }
}

/// Covers a regression: a range or step below a millisecond was refused at the position `0:0`.
#[tokio::test]
async fn ranges_below_a_millisecond_are_refused_where_they_stand() {
    let server = Fixture::ready();
    for (query, want) in [
        ("sum_over_time(x[0.0004])", "16:22"),
        ("x[0.0004]", "2:8"),
        ("x[5m:0.0004]", "5:11"),
        ("rate(x[0.0009]) + 1", "7:13"),
        ("sum_over_time(x[1m:.0001])", "19:24"),
        ("\nx[0.0004]", "3:9"),
    ] {
        let path = format!("/api/v1/query?query={}", encoded(query));
        check(&server.get(&path).await, &format!("{want}: duration must be greater than 0"), query);
    }
}

/// Covers a regression: a step below a millisecond was rounded up to one.
#[tokio::test]
async fn steps_below_a_millisecond_are_refused() {
    let server = Fixture::ready();
    for (step, end, status) in [
        ("0.0004", 2, 400),
        ("0.0009999", 2, 400),
        ("0.00099", 9, 400),
        ("0.001", 2, 200),
        ("0.0016", 2, 200),
        ("1ms", 2, 200),
        ("0.0004", 1, 200),
    ] {
        let answer = server.get(&format!("/api/v1/query_range?query=1&start=1&end={end}&step={step}")).await;
        assert_eq!(answer.status, status, "{step} {end}: {}", answer.text);
    }
    let refused = server.get("/api/v1/query_range?query=1&start=1&end=2&step=0.0004").await.json();
    let text =
        r#"invalid parameter "step": query resolution step widths below a millisecond are not accepted"#;
    assert_eq!(refused["error"], text);
}

/// Checks that the header overrides the feature for one query, instant or range, cached or not.
#[tokio::test]
async fn a_header_chooses_start_timestamps_for_one_query() {
    const WITH: &str = "36.57142857142857";
    const WITHOUT: &str = "16";
    let begin_ms = NOW_MS - 130_000;
    let samples: Vec<SampleOut> = (0..9)
        .map(|idx| SampleOut {
            time_ms: begin_ms + 15_000 * idx,
            value: (10 + 2 * idx) as f64,
            start_ms: begin_ms + if idx < 5 { -5_000 } else { 67_500 },
        })
        .collect();
    let mut request = RequestEncoder::new();
    request.push_series([("__name__", "ctr_total")], &samples, &SeriesExtras::default());
    for is_on in [true, false] {
        let server = Fixture::with(|options| options.service.features.start_timestamps = is_on).open();
        let write = Request::post("/api/v1/write")
            .header("content-type", "application/x-protobuf;proto=io.prometheus.write.v2.Request")
            .header("content-encoding", "snappy");
        let body = axum::body::Body::from(request.compressed());
        assert_eq!(server.send(write.body(body).expect("a request")).await.status, 204);
        let time = (begin_ms + 125_000) as f64 / 1000.0;
        let instant = format!("/api/v1/query?query={}&time={time}", encoded("increase(ctr_total[2m])"));
        let range = format!(
            "/api/v1/query_range?query={}&start={time}&end={time}&step=60",
            encoded("increase(ctr_total[2m])")
        );
        let ask = async |path: &str, header: Option<&str>| {
            let get = Request::get(path);
            let get = match header {
                Some(value) => get.header("X-Prometheus-Use-Start-Timestamps", value),
                None => get,
            };
            server.send(get.body(axum::body::Body::empty()).expect("a request")).await
        };
        let default = if is_on { WITH } else { WITHOUT };
        for (header, want) in [
            (None, default),
            (Some(""), default),
            (Some("true"), WITH),
            (Some("false"), WITHOUT),
            (Some("1"), WITH),
            (Some("0"), WITHOUT),
            (Some("T"), WITH),
            (Some("f"), WITHOUT),
            (Some("TRUE"), WITH),
            (Some("False"), WITHOUT),
        ] {
            let found = ask(&instant, header).await.json();
            assert_eq!(found["data"]["result"][0]["value"][1], want, "{header:?}");
            let found = ask(&range, header).await.json();
            assert_eq!(found["data"]["result"][0]["values"][0][1], want, "{header:?}");
        }
        for bad in ["invalid", "yes", "2", "tRUE", "on"] {
            for path in [&instant, &range] {
                let answer = ask(path, Some(bad)).await;
                let text = format!(
                    "error parsing X-Prometheus-Use-Start-Timestamps header: strconv.ParseBool: parsing \"{bad}\": \
                     invalid syntax"
                );
                let json = answer.json();
                assert_eq!(answer.status, 400);
                assert_eq!(
                    (json["errorType"].as_str(), json["error"].as_str()),
                    (Some("bad_data"), Some(&*text))
                );
            }
        }
    }
}
