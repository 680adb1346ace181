//! Lookup of the owners of partitions, and their reports: JSON of `GET /internal/v1/node`.
//!
//! Invariants: a name that does not resolve and a node that does not answer end within their time, and delay
//! no other node's report.
//! Not here: use of the reports (`cluster::peers`).

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::http::Method;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chronolith_base::Disk;
use chronolith_cluster::peers::{
    NodeLookup, NodeReport, OwnersAddress, PartitionProgress, PartitionReport, TENANTS_REPORTED_MAX,
    TenantSeries,
};
use chronolith_cluster::{PartitionId, TopicId};
use chronolith_model::TenantId;
use futures_util::{StreamExt as _, stream};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde::{Deserialize, Serialize};
use tokio::net::lookup_host;
use tokio::runtime::Handle;
use tokio::time::timeout;

use super::client::{NodeClient, reason};
use crate::limits::NODE_PATH;

/// Version of a report.
const REPORT_VERSION: u32 = 1;
/// Longest time of a lookup by DNS.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(4);
/// Longest time of the report of one node.
const REPORT_TIMEOUT: Duration = Duration::from_secs(3);
/// Bytes of a report.
const REPORT_BYTES_MAX: usize = 256 << 10;
/// Bytes of a file with addresses.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Reports that are asked for at the same time.
const REPORTS_AT_ONCE: usize = 64;

/// Report of a node as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ReportJson {
    version: u32,
    topic: String,
    partitions: Vec<PartitionJson>,
}

/// Partition of a node as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PartitionJson {
    partition: u32,
    next_offset: Option<u64>,
    not_ready: Option<String>,
    #[serde(default, skip_serializing_if = "is_unset")]
    is_log_away: bool,
    /// Missing in reports of earlier versions.
    #[serde(default)]
    progress: Option<ProgressJson>,
    #[serde(default)]
    series: Vec<TenantSeriesJson>,
}

/// Position of an owner as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ProgressJson {
    lag_ms: i64,
    log_start: u64,
    log_end: u64,
    resume_offset: Option<u64>,
    refused_records: u64,
}

impl From<PartitionProgress> for ProgressJson {
    fn from(progress: PartitionProgress) -> ProgressJson {
        let PartitionProgress { lag_ms, log_start, log_end, resume, refused_count } = progress;
        ProgressJson { lag_ms, log_start, log_end, resume_offset: resume, refused_records: refused_count }
    }
}

impl From<ProgressJson> for PartitionProgress {
    fn from(json: ProgressJson) -> PartitionProgress {
        let ProgressJson { lag_ms, log_start, log_end, resume_offset, refused_records } = json;
        PartitionProgress {
            lag_ms,
            log_start,
            log_end,
            resume: resume_offset,
            refused_count: refused_records,
        }
    }
}

/// Series of a tenant as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct TenantSeriesJson {
    tenant: String,
    count: u64,
}

impl ReportJson {
    pub(crate) fn new(report: &NodeReport) -> ReportJson {
        let partition = |own: &PartitionReport| PartitionJson {
            partition: own.partition.0,
            next_offset: own.next_offset,
            not_ready: own.not_ready.clone(),
            is_log_away: own.is_log_away,
            progress: own.progress.map(ProgressJson::from),
            series: own.series.iter().map(series_json).collect(),
        };
        ReportJson {
            version: REPORT_VERSION,
            topic: report.topic.to_string(),
            partitions: report.partitions.iter().map(partition).collect(),
        }
    }

    /// Returns the report.
    ///
    /// # Errors
    /// The text names the found and the expected value.
    fn report(self) -> Result<NodeReport, String> {
        if self.version != REPORT_VERSION {
            return Err(format!(
                "report of version {}, this node has version {REPORT_VERSION}",
                self.version
            ));
        }
        let topic = URL_SAFE_NO_PAD.decode(&self.topic).ok().and_then(|bytes| bytes.try_into().ok());
        let topic = topic.ok_or_else(|| format!("expected the id of a topic, found {:?}", self.topic))?;
        let partition = |own: PartitionJson| -> Result<PartitionReport, String> {
            let series = own.series.into_iter().take(TENANTS_REPORTED_MAX).map(tenant_series);
            Ok(PartitionReport {
                partition: PartitionId(own.partition),
                next_offset: own.next_offset,
                not_ready: own.not_ready,
                is_log_away: own.is_log_away,
                progress: own.progress.map(PartitionProgress::from),
                series: series.collect::<Result<_, String>>()?,
            })
        };
        let partitions = self.partitions.into_iter().map(partition).collect::<Result<_, String>>()?;
        Ok(NodeReport { topic: TopicId(topic), partitions })
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields by reference")]
fn is_unset(flag: &bool) -> bool {
    !flag
}

fn series_json(series: &TenantSeries) -> TenantSeriesJson {
    TenantSeriesJson { tenant: series.tenant.as_str().to_owned(), count: series.count }
}

fn tenant_series(json: TenantSeriesJson) -> Result<TenantSeries, String> {
    let TenantSeriesJson { tenant, count } = json;
    let tenant = TenantId::new(&tenant).map_err(|why| format!("tenant {tenant:?} of a report: {why}"))?;
    Ok(TenantSeries { tenant, count })
}

/// Lookup by DNS, a file or a list, and reports over HTTP.
pub(super) struct HttpLookup {
    pub(super) owners: OwnersAddress,
    pub(super) client: Arc<NodeClient>,
    pub(super) disk: Arc<dyn Disk>,
    pub(super) runtime: Handle,
}

impl NodeLookup for HttpLookup {
    fn addresses(&self) -> Result<Vec<String>, String> {
        match &self.owners {
            OwnersAddress::List(addresses) => Ok(addresses.clone()),
            OwnersAddress::File(path) => {
                read_file(path, &*self.disk).map_err(|why| format!("{}: {why}", path.display()))
            }
            OwnersAddress::Dns { name, port } => {
                let looked_up = async { timeout(LOOKUP_TIMEOUT, lookup_host((name.as_str(), *port))).await };
                let found = match self.runtime.block_on(looked_up) {
                    Ok(found) => found.map_err(|error| format!("{name}: {error}"))?,
                    Err(_) => return Err(format!("{name}: no answer within {} s", LOOKUP_TIMEOUT.as_secs())),
                };
                let mut addresses: Vec<String> = found.map(|address| address.to_string()).collect();
                addresses.sort_unstable();
                addresses.dedup();
                if addresses.is_empty() { Err(format!("{name} has no address")) } else { Ok(addresses) }
            }
        }
    }

    fn reports(&self, addresses: &[String]) -> Vec<Result<NodeReport, String>> {
        let one = |address: &String| {
            let address = address.clone();
            let client = self.client.clone();
            async move {
                let asked = timeout(REPORT_TIMEOUT, report(&client, &address)).await;
                asked.unwrap_or_else(|_| Err(format!("no report within {} s", REPORT_TIMEOUT.as_secs())))
            }
        };
        let all: Vec<_> = addresses.iter().map(one).collect();
        // In the order of the addresses.
        self.runtime.block_on(stream::iter(all).buffered(REPORTS_AT_ONCE).collect())
    }
}

fn read_file(path: &Path, disk: &dyn Disk) -> Result<Vec<String>, String> {
    let len = disk.open_read(path).and_then(|file| file.len()).map_err(|error| error.to_string())?;
    if len > FILE_BYTES_MAX {
        return Err(format!("{len} bytes, at most {FILE_BYTES_MAX} are allowed"));
    }
    let bytes = disk.read(path).map_err(|error| error.to_string())?;
    OwnersAddress::parse_file(&String::from_utf8_lossy(&bytes))
}

/// Asks a node for its report.
async fn report(client: &NodeClient, address: &str) -> Result<NodeReport, String> {
    let body = client.send(Method::GET, address, NODE_PATH, Bytes::new()).await.map_err(|error| error.why)?;
    let bytes = read_body(body).await?;
    let json: ReportJson = serde_json::from_slice(&bytes).map_err(|error| format!("no report: {error}"))?;
    json.report()
}

async fn read_body(mut body: Incoming) -> Result<Vec<u8>, String> {
    let mut bytes: Vec<u8> = Vec::new();
    while let Some(frame) = body.frame().await {
        let part = frame.map_err(|error| reason(&error))?.into_data().unwrap_or_default();
        if bytes.len().saturating_add(part.len()) > REPORT_BYTES_MAX {
            return Err(format!("a report of more than {REPORT_BYTES_MAX} bytes"));
        }
        bytes.extend_from_slice(&part);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read_as_it_was_written() {
        let progress =
            PartitionProgress { lag_ms: 20, log_start: 2, log_end: 18, resume: Some(9), refused_count: 1 };
        let report = NodeReport {
            topic: TopicId([250; 16]),
            partitions: vec![
                PartitionReport {
                    partition: PartitionId(3),
                    next_offset: Some(17),
                    not_ready: None,
                    is_log_away: false,
                    progress: Some(progress),
                    series: vec![TenantSeries { tenant: TenantId::new("team-1").expect("valid"), count: 7 }],
                },
                PartitionReport {
                    partition: PartitionId(4),
                    next_offset: None,
                    not_ready: Some("lag".to_owned()),
                    is_log_away: true,
                    progress: None,
                    series: Vec::new(),
                },
            ],
        };
        let json = serde_json::to_string(&ReportJson::new(&report)).expect("JSON");
        let want = r#"{"version":1,"topic":"-vr6-vr6-vr6-vr6-vr6-g","partitions":[{"partition":3,"nextOffset":17,"notReady":null,"progress":{"lagMs":20,"logStart":2,"logEnd":18,"resumeOffset":9,"refusedRecords":1},"series":[{"tenant":"team-1","count":7}]},{"partition":4,"nextOffset":null,"notReady":"lag","isLogAway":true,"progress":null,"series":[]}]}"#;
        assert_eq!(json, want);
        let read = |json: &str| serde_json::from_str::<ReportJson>(json).expect("JSON").report();
        assert_eq!(read(&json), Ok(report.clone()));
        // A node of an earlier version has no progress.
        let start = json.find(",\"progress\":{").expect("progress");
        let end = start + json[start..].find('}').expect("its end") + 1;
        let mut earlier = report;
        earlier.partitions[0].progress = None;
        assert_eq!(read(&format!("{}{}", &json[..start], &json[end..])), Ok(earlier));
        let without_series = json.replace(",\"series\":[]", "");
        assert_eq!(read(&without_series), read(&json), "a report of an owner that counts no series");
        let later = json.replace("\"version\":1", "\"version\":2");
        assert_eq!(read(&later), Err("report of version 2, this node has version 1".to_owned()));
        let short = json.replace("-vr6-vr6-vr6-vr6-vr6-g", "-vr6");
        assert_eq!(read(&short), Err("expected the id of a topic, found \"-vr6\"".to_owned()));
    }
}
