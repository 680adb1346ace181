//! Remote write into a database, and remote read from it.

use chronolith_ingest::remote_read::encode::compress;
use chronolith_ingest::remote_write::decompress;
use chronolith_ingest::remote_write::encode::RequestEncoder;
use http_body_util::BodyExt as _;
use tower::ServiceExt as _;

use super::*;
use crate::http::router;
use crate::http::tests::Pairs;

async fn write(server: &Fixture, path: &str, series: &[(Pairs<'_>, &[(i64, f64)])]) -> Answer {
    let mut encoder = RequestEncoder::new();
    series.iter().for_each(|(labels, samples)| encoder.push_series(labels.iter().copied(), samples));
    server.send(Request::post(path).body(Body::from(encoder.compressed())).unwrap()).await
}

fn bytes_field(number: u8, bytes: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2, u8::try_from(bytes.len()).expect("short")], bytes].concat()
}

/// A request for all series of the name, of all times of the tests.
fn read_request(name: &str) -> Vec<u8> {
    let mut end = vec![2 << 3];
    chronolith_base::bytes::put_uvarint(&mut end, (NOW_MS + 1000).cast_unsigned());
    let matcher = [bytes_field(2, b"__name__"), bytes_field(3, name.as_bytes())].concat();
    let query = [vec![1 << 3, 0], end, bytes_field(3, &matcher)].concat();
    // The client accepts chunks, too.
    compress(&[bytes_field(1, &query), bytes_field(2, &[1, 0])].concat())
}

async fn read(server: &Fixture, path: &str, name: &str) -> (StatusCode, Vec<u8>) {
    let request = Request::post(path).body(Body::from(read_request(name))).unwrap();
    let response = router(server.web.clone()).oneshot(request).await.unwrap();
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let mut out = Vec::new();
    match decompress(&body, 1 << 20, &mut out) {
        Ok(()) => (status, out),
        Err(_) => (status, body.to_vec()),
    }
}

#[tokio::test]
async fn series_are_measurements_and_come_back_as_series() {
    let server = with_database();
    let up: &[(&str, &str)] = &[("__name__", "up"), ("job", "a")];
    let samples = [(NOW_MS, 1.5), (NOW_MS + 1, f64::NAN), (NOW_MS + 2, f64::INFINITY)];
    let answer = write(&server, "/api/v1/prom/write?db=db", &[(up, &samples)]).await;
    assert_eq!((answer.status, answer.text.as_str()), (StatusCode::NO_CONTENT, ""));
    let want = format!(
        r#"{{"statement_id":0,"series":[{{"name":"up","columns":["time","job","value"],"values":[[{NOW_MS},"a",1.5]]}}]}}"#
    );
    let select = post(&server, "/query?db=db&epoch=ms&q=SELECT%20*%20FROM%20up", "").await;
    check_results(&select, &want);
    assert_eq!(post(&server, "/write?db=db", "up,job=b other=1").await.status, StatusCode::NO_CONTENT);

    let (status, message) = read(&server, "/api/v1/prom/read?db=db", "up").await;
    assert_eq!(status, StatusCode::OK);
    let text = String::from_utf8_lossy(&message);
    assert!(text.contains("__name__") && text.contains("job") && text.contains('a'), "{text}");
    assert!(!text.contains("__field__") && !text.contains("other"), "{text}");
    let value = 1.5f64.to_le_bytes();
    assert_eq!(message.windows(8).filter(|bytes| *bytes == value).count(), 1);
    let (status, message) = read(&server, "/api/v1/prom/read?db=db", "down").await;
    assert_eq!((status, message.windows(8).any(|bytes| bytes == value)), (StatusCode::OK, false));

    let metrics = server.get("/metrics").await.text;
    assert!(metrics.contains("chronolith_prom_write_samples_dropped_total 2"));
}

#[tokio::test]
async fn refusals_have_the_texts_of_influxdb() {
    let server = with_database();
    let up: &[(&str, &str)] = &[("__name__", "up")];
    let samples = [(NOW_MS, 1.0)];
    let required = "database is required";
    check_error(&write(&server, "/api/v1/prom/write", &[(up, &samples)]).await, 400, required);
    let missing = "database not found: \"x\"";
    check_error(&write(&server, "/api/v1/prom/write?db=x", &[(up, &samples)]).await, 404, missing);
    assert_eq!(read(&server, "/api/v1/prom/read", "up").await.0, StatusCode::BAD_REQUEST);
    let (status, body) = read(&server, "/api/v1/prom/read?db=x", "up").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert!(String::from_utf8_lossy(&body).contains("database not found"));
    assert_eq!(post(&server, "/api/v1/prom/write?db=db", "no snappy").await.status, StatusCode::BAD_REQUEST);

    assert_eq!(post(&server, "/write?db=db", "up value=1i").await.status, StatusCode::NO_CONTENT);
    let conflict = concat!(
        "partial write: field type conflict: input field \"value\" on measurement \"up\" is type float, ",
        "already exists as type integer dropped=1"
    );
    check_error(&write(&server, "/api/v1/prom/write?db=db", &[(up, &samples)]).await, 400, conflict);
    let reserved: &[(&str, &str)] = &[("__kind__", "i"), ("__name__", "up")];
    let answer = write(&server, "/api/v1/prom/write?db=db", &[(reserved, &samples)]).await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    assert!(answer.text.contains("reserved"), "{}", answer.text);
    // Remote write of the default store still works with batches of the pool.
    assert_eq!(server.write(&[(up, &samples)]).await.status, StatusCode::NO_CONTENT);
}
