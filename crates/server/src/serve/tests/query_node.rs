//! A query node, two owners and one server with all samples, over sockets: the same answers, or an error that
//! names the missing partition.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use chronolith_base::{Clock as _, Env, SystemClock};
use chronolith_cluster::partition_maps::PartitionMaps;
use chronolith_ingest::remote_write::encode::RequestEncoder;
use chronolith_model::{Exemplar, Labels, MetadataEntry, MetricKind};
use chronolith_tsdb::{BucketOptions, BucketSources};
use tokio::runtime::Runtime;

use super::{ANSWER_WAIT, ask, get, options, start, write_token};
use crate::http::tests::FakeOwner;
use crate::serve::Server;

const SERIES: usize = 40;
const SAMPLES: i64 = 100;
const STEP_MS: i64 = 15_000;

/// The cluster, and a server that has all samples.
struct Cluster {
    dir: PathBuf,
    now_ms: i64,
    single: Server,
    /// Owners of partitions 0 and 1.
    owners: Vec<Option<Server>>,
    query: Server,
}

fn start_owner(dir: &Path, partition: u32, listen: &str) -> Server {
    let mut options = options(&dir.join(format!("owner-{partition}")), listen);
    options.nodes.token_file = Some(dir.join("token"));
    let owner = start(options);
    owner.set_owner(Arc::new(FakeOwner::ready(partition)));
    owner
}

impl Cluster {
    fn start(dir: &Path) -> Cluster {
        let disk = Env::real().disk;
        write_token(dir);
        disk.create_dir_all(&dir.join("bucket")).expect("a directory");
        let bucket = BucketOptions::new(&format!("file://{}", dir.join("bucket").display()));
        create_map(&bucket);
        let owners: Vec<Server> = (0..2).map(|number| start_owner(dir, number, "127.0.0.1:0")).collect();
        let addresses: Vec<String> = owners.iter().map(|owner| owner.address().to_string()).collect();
        let mut of_query = options(&dir.join("query"), "127.0.0.1:0");
        of_query.nodes.token_file = Some(dir.join("token"));
        of_query.nodes.owners = Some(addresses.join(",").parse().expect("addresses"));
        of_query.bucket = Some(BucketOptions { is_read_only: true, ..bucket });
        let query = start(of_query);
        let single = start(options(&dir.join("single"), "127.0.0.1:0"));
        let now_ms = SystemClock::new().now_ms();
        let owners = owners.into_iter().map(Some).collect();
        Cluster { dir: dir.to_owned(), now_ms, single, owners, query }
    }

    fn owner(&self, partition: usize) -> &Server {
        self.owners[partition].as_ref().expect("runs")
    }

    /// Writes series to all of them: each series to one owner, and to the server.
    fn write(&self) {
        let mut requests: Vec<RequestEncoder> = (0..3).map(|_| RequestEncoder::new()).collect();
        for series in 0..SERIES {
            let samples: Vec<(i64, f64)> = (0..SAMPLES)
                .map(|at| (self.now_ms - (SAMPLES - at) * STEP_MS, (at * at) as f64 / (series + 3) as f64))
                .collect();
            let id = series.to_string();
            let job = format!("job-{}", series % 3);
            let labels = [("__name__", "requests_total"), ("id", id.as_str()), ("job", job.as_str())];
            let exemplar = Exemplar {
                labels: Labels::from_pairs([("trace_id", id.as_str())]),
                value: series as f64,
                time_ms: self.now_ms - STEP_MS,
            };
            for idx in [series % 2, 2] {
                requests[idx].push_series_with_exemplars(labels, &samples, std::slice::from_ref(&exemplar));
            }
        }
        for metric in 0..20 {
            let entry = MetadataEntry {
                metric: format!("metric_{metric:02}"),
                kind: MetricKind::Counter,
                help: format!("the help of {metric}"),
                unit: "s".to_owned(),
            };
            // Both owners have some of them.
            let of_owners: &[usize] = if metric % 3 == 0 { &[0, 1, 2] } else { &[metric % 2, 2] };
            of_owners.iter().for_each(|idx| requests[*idx].push_metadata(&entry));
        }
        for (server, request) in [self.owner(0), self.owner(1), &self.single].into_iter().zip(requests) {
            let head = "POST /api/v1/write HTTP/1.1\r\nContent-Encoding: snappy\r\nContent-Type: application/x-protobuf\r\n";
            let (status, text) = ask(server.address(), head, &request.compressed());
            assert_eq!(status, 204, "{text}");
        }
    }

    /// Paths of reads of everything that was written.
    fn reads(&self) -> Vec<String> {
        let end_s = self.now_ms / 1000;
        let start_s = end_s - 1500;
        let range = format!("start={start_s}&end={end_s}");
        let mut paths: Vec<String> = [
            "requests_total",
            "sum(rate(requests_total[5m]))by(job)",
            "quantile(0.9,requests_total)",
            "topk(3,requests_total)",
            "count_over_time(requests_total%7Bid=~%221.*%22%7D[20m])",
            "stddev(requests_total)-max(requests_total)",
            "absent(requests_total%7Bid=%22none%22%7D)",
        ]
        .iter()
        .flat_map(|query| {
            let at = format!("/api/v1/query?query={query}&time={end_s}");
            [at, format!("/api/v1/query_range?query={query}&{range}&step=60")]
        })
        .collect();
        paths.push(format!("/api/v1/series?match[]=requests_total&{range}"));
        paths.push(format!("/api/v1/labels?{range}"));
        paths.push(format!("/api/v1/label/id/values?{range}"));
        paths.push(format!("/api/v1/label/id/values?match[]=requests_total%7Bjob=%22job-1%22%7D&{range}"));
        paths
    }

    /// Paths of records besides samples, of which no part may be missing.
    fn records(&self) -> Vec<String> {
        let end_s = self.now_ms / 1000;
        let exemplars = "/api/v1/query_exemplars?query=requests_total%7Bjob=~%22job-[01]%22%7D";
        vec![
            "/api/v1/metadata".to_owned(),
            "/api/v1/metadata?limit=7".to_owned(),
            "/api/v1/metadata?metric=metric_03".to_owned(),
            format!("{exemplars}&start={}&end={end_s}", end_s - 1500),
            format!("{exemplars}&start={}&end={}", end_s - 1500, end_s - 600),
        ]
    }

    /// Waits until the query node answers as the server does.
    fn wait_for_answers(&self) {
        let clock = SystemClock::new();
        let deadline_ns = clock.mono_ns() + ANSWER_WAIT.as_nanos() as u64;
        let path = &self.reads()[0];
        let want = get(self.single.address(), path);
        while get(self.query.address(), path) != want {
            assert!(clock.mono_ns() < deadline_ns, "{:?}", get(self.query.address(), path));
            std::thread::yield_now();
        }
    }

    fn check_answers(&self, paths: Vec<String>) {
        for path in paths {
            let want = get(self.single.address(), &path);
            assert_eq!(want.0, 200, "{path}: {}", want.1);
            assert_eq!(get(self.query.address(), &path), want, "{path}");
        }
    }
}

/// Creates the partition map, as the first gateway does.
fn create_map(bucket: &BucketOptions) {
    let runtime = Runtime::new().expect("threads");
    let env = Env::real();
    let sources = BucketSources::open(bucket, &env, runtime.handle()).expect("a bucket");
    let store = Arc::clone(sources.bucket().store());
    PartitionMaps::new(store, &env, runtime.handle().clone()).refresh(Some(2)).expect("created");
}

#[test]
fn a_query_node_answers_as_one_server_with_all_samples() {
    let dir = tempfile::tempdir().expect("directory");
    let mut cluster = Cluster::start(dir.path());
    cluster.write();
    cluster.wait_for_answers();
    cluster.check_answers(cluster.reads());
    cluster.check_answers(cluster.records());
    assert_eq!(get(cluster.query.address(), "/-/ready").0, 200);
    let (status, text) = ask(cluster.query.address(), "POST /api/v1/write HTTP/1.1\r\n", b"x");
    assert_eq!(status, 405, "{text}");
    // A query node has no head, and counts the series of its owners.
    let stats = get(cluster.query.address(), "/api/v1/status/tsdb").1;
    assert!(stats.contains(&format!("\"numSeries\":{SERIES}")), "{stats}");
    let metrics = get(cluster.query.address(), "/metrics").1;
    for line in ["chronolith_owners{state=\"reporting\"} 2", "chronolith_owner_partitions 2"] {
        assert!(metrics.contains(line), "{line}");
    }

    // One owner is gone: each answer is an error that names the partition, or says that a part is missing.
    let address = cluster.owner(1).address();
    cluster.owners[1].take().expect("runs").stop().expect("stops");
    for path in cluster.reads() {
        let (status, text) = get(cluster.query.address(), &path);
        assert_eq!(status, 503, "{path}: {text}");
        assert!(text.contains("partition 1") && text.contains(&address.to_string()), "{path}: {text}");
        let (status, text) = get(cluster.query.address(), &format!("{path}&partial_response=true"));
        assert_eq!(status, 200, "{path}: {text}");
        assert!(text.contains("\"warnings\":[") && text.contains("partition 1"), "{path}: {text}");
    }

    for path in cluster.records() {
        let (status, text) = get(cluster.query.address(), &path);
        assert_eq!(status, 503, "{path}: {text}");
        assert!(text.contains("partition 1"), "{path}: {text}");
    }

    // The owner comes back with its directory, on its address.
    cluster.owners[1] = Some(start_owner(&cluster.dir, 1, &address.to_string()));
    cluster.wait_for_answers();
    // Exemplars are in memory alone.
    cluster.check_answers(cluster.reads());
}
