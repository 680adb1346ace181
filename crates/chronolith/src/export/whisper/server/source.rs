//! Requests of an export: pages of series, samples of one of them.
//!
//! Invariants: a selector selects one series; responses are bounded in time and size; every failure names the
//! address.
//! Not here: ranges of samples, files (the parent).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::RangeInclusive;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use chronolith_model::quote::write_quoted;
use chronolith_model::{Columns, METRIC_NAME};
use reqwest::RequestBuilder;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::client::{self, HttpClient};

/// Longest time for a response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(600);
/// Header with the tenant.
const TENANT: &str = "X-Scope-OrgID";
/// Bytes of a response.
const RESPONSE_BYTES_MAX: u64 = 256 << 20;

/// A series with its rules, as the server lists it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ListedSeries {
    pub(super) path: String,
    labels: BTreeMap<String, String>,
    archives: Vec<ListedArchive>,
    methods: Vec<String>,
    pub(super) x_files_factor: f64,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListedArchive {
    step_seconds: u32,
    points: u32,
}

impl ListedSeries {
    /// Archives as `10:360,60:1440`; empty without a rule.
    pub(super) fn retentions(&self) -> String {
        let archives =
            self.archives.iter().map(|archive| format!("{}:{}", archive.step_seconds, archive.points));
        archives.collect::<Vec<_>>().join(",")
    }

    /// Name of the first method.
    ///
    /// # Errors
    /// For a name that is none.
    pub(super) fn method(&self) -> anyhow::Result<&str> {
        let name = self.methods.first().map_or("average", String::as_str);
        let is_name = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
        ensure!(name.bytes().all(is_name), "{name:?} is no aggregation method");
        Ok(name)
    }

    /// Renders its rules as one text.
    pub(super) fn rule(&self) -> String {
        format!("{} {:?} {}", self.retentions(), self.methods.first(), self.x_files_factor)
    }
}

/// Envelope of a response.
#[derive(Deserialize)]
struct Envelope<T> {
    data: T,
    /// Reasons why the data is not complete.
    #[serde(default)]
    warnings: Vec<String>,
}

/// Result of a query.
#[derive(Deserialize)]
struct Outcome<T> {
    result: Vec<T>,
}

#[derive(Deserialize)]
struct VectorSeries {
    value: (f64, String),
}

#[derive(Deserialize)]
struct MatrixSeries {
    metric: BTreeMap<String, String>,
    #[serde(default)]
    values: Vec<(f64, String)>,
}

/// The server that is read.
pub(super) struct SourceServer {
    url: String,
    tenant: Option<String>,
    client: HttpClient,
}

impl SourceServer {
    pub(super) fn new(url: &str, tenant: Option<&str>) -> anyhow::Result<SourceServer> {
        let client = HttpClient::new(RESPONSE_TIMEOUT)?;
        Ok(SourceServer { url: url.to_owned(), tenant: tenant.map(str::to_owned), client })
    }

    /// Returns the next series after a path, ascending; none at the end.
    pub(super) fn series_after(&self, after: &str) -> anyhow::Result<Vec<ListedSeries>> {
        self.get("/api/v1/graphite/series", &[("after", after)])
    }

    /// Returns the selector of a series: other labels of series with its name must be absent.
    pub(super) fn selector_of(&self, series: &ListedSeries) -> anyhow::Result<String> {
        let name = series.labels.get(METRIC_NAME).map_or("", String::as_str);
        let mut with_name = String::from("{");
        put_matcher(METRIC_NAME, name, &mut with_name);
        with_name.push('}');
        let labels: Vec<String> = self.post("/api/v1/labels", &[("match[]", &with_name)])?;
        let mut selector = String::from("{");
        for (label, value) in &series.labels {
            put_matcher(label, value, &mut selector);
        }
        for label in labels.iter().filter(|label| !series.labels.contains_key(*label)) {
            put_matcher(label, "", &mut selector);
        }
        selector.push('}');
        Ok(selector)
    }

    /// Returns the number of samples in a range of milliseconds.
    pub(super) fn count(&self, selector: &str, range: &RangeInclusive<i64>) -> anyhow::Result<u64> {
        let query = format!("sum(count_over_time({}))", ranged(selector, range));
        let vector: Outcome<VectorSeries> = self.query(&query, *range.end())?;
        let count = vector.result.first().map_or(Ok(0.0), |series| series.value.1.parse::<f64>());
        Ok(count.context("the count is not a number")? as u64)
    }

    /// Appends the samples of a series in a range of milliseconds.
    pub(super) fn read(
        &self,
        selector: &str,
        series: &ListedSeries,
        range: &RangeInclusive<i64>,
        out: &mut Columns,
    ) -> anyhow::Result<()> {
        let matrix: Outcome<MatrixSeries> = self.query(&ranged(selector, range), *range.end())?;
        // A series with a further label may have begun after its labels were listed.
        let own = matrix.result.into_iter().filter(|found| found.metric == series.labels);
        for (time_s, value) in own.flat_map(|found| found.values) {
            let value = value.parse().with_context(|| format!("{value:?} is no value"))?;
            out.times.push((time_s * 1000.0).round() as i64);
            out.values.push(value);
        }
        Ok(())
    }

    fn query<T: DeserializeOwned>(&self, query: &str, time_ms: i64) -> anyhow::Result<T> {
        let time = format!("{}.{:03}", time_ms.div_euclid(1000), time_ms.rem_euclid(1000));
        self.post("/api/v1/query", &[("query", query), ("time", &time)])
    }

    fn get<T: DeserializeOwned>(&self, path: &str, pairs: &[(&str, &str)]) -> anyhow::Result<T> {
        let url = client::join(&self.url, path);
        self.parsed(&url, self.client.get(&url).query(pairs))
    }

    fn post<T: DeserializeOwned>(&self, path: &str, pairs: &[(&str, &str)]) -> anyhow::Result<T> {
        let url = client::join(&self.url, path);
        self.parsed(&url, self.client.post(&url).form(pairs))
    }

    /// Sends a request and returns `data` of its response.
    fn parsed<T: DeserializeOwned>(&self, url: &str, request: RequestBuilder) -> anyhow::Result<T> {
        let request = self.tenant.iter().fold(request, |request, tenant| request.header(TENANT, tenant));
        let sent = self.client.send(request);
        let mut response = sent.with_context(|| format!("reading {url}: is the server running there?"))?;
        let status = response.status();
        let body = response.read_all(RESPONSE_BYTES_MAX);
        let body = body.with_context(|| format!("reading the response of {url}"))?;
        ensure!(status == 200, "reading {url}: status {status}: {}", String::from_utf8_lossy(&body).trim());
        let envelope: Envelope<T> =
            serde_json::from_slice(&body).with_context(|| format!("{url}: not the response of this API"))?;
        ensure!(
            envelope.warnings.is_empty(),
            "reading {url}: not complete: {}",
            envelope.warnings.join("; ")
        );
        Ok(envelope.data)
    }
}

/// A selector of a range; its start is not part of what a query returns.
fn ranged(selector: &str, range: &RangeInclusive<i64>) -> String {
    format!("{selector}[{}ms]", range.end() - range.start() + 1)
}

/// Appends a matcher with a comma.
fn put_matcher(label: &str, value: &str, out: &mut String) {
    // Writing to a string does not fail.
    let _ = write_quoted(out, label);
    out.push('=');
    let _ = write_quoted(out, value);
    let _ = out.write_char(',');
}
