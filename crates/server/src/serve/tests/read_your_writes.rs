//! Reads over a query node see the writes that they name, and are refused if no owner can have them.

use std::net::SocketAddr;
use std::path::Path;

use chronolith_base::{Clock as _, SystemClock};
use chronolith_cluster::options::{LogAddress, LogOptions, NewTopic, PartitionChoice};
use chronolith_ingest::remote_write::encode::RequestEncoder;
use chronolith_tsdb::BucketOptions;
use serde_json::Value;

use super::{ask, get, options, send, start, wait_until, write_token};
use crate::serve::Server;

const WRITES: i64 = 1000;

fn bucket(dir: &Path) -> BucketOptions {
    BucketOptions::new(&format!("file://{}", dir.join("bucket").display()))
}

/// Gateway and owner of the only partition, in one process.
fn start_writer(dir: &Path) -> Server {
    let mut options = options(&dir.join("owner"), "127.0.0.1:0");
    let mut log = LogOptions::new(LogAddress::Dir(dir.join("log")));
    log.new_topic = Some(NewTopic { partition_count: 1, replication_factor: 1 });
    let cluster = &mut options.service.cluster;
    cluster.roles = "gateway,owner".parse().expect("roles");
    cluster.log = Some(log);
    cluster.owner.partition = Some(PartitionChoice::Number(0));
    options.bucket = Some(bucket(dir));
    options.nodes.token_file = Some(dir.join("token"));
    let server = start(options);
    wait_until("the owner is ready", || get(server.address(), "/-/ready").0 == 200);
    server
}

fn start_query_node(dir: &Path, owner: SocketAddr) -> Server {
    let mut options = options(&dir.join("query"), "127.0.0.1:0");
    options.nodes.token_file = Some(dir.join("token"));
    options.nodes.owners = Some(owner.to_string().parse().expect("an address"));
    options.bucket = Some(BucketOptions { is_read_only: true, ..bucket(dir) });
    let server = start(options);
    wait_until("owners are looked up", || get(server.address(), "/api/v1/query?query=up").0 == 200);
    server
}

/// Writes a sample; returns the offsets of the answer.
fn write(writer: SocketAddr, time_ms: i64, value: i64) -> String {
    let mut request = RequestEncoder::new();
    request.push_series([("__name__", "written")], &[(time_ms, value as f64)]);
    let head =
        "POST /api/v1/write HTTP/1.1\r\nContent-Encoding: snappy\r\nContent-Type: application/x-protobuf\r\n";
    let answer = send(writer, head, &request.compressed());
    assert_eq!(answer.status, 204, "{}", answer.body);
    answer.header("x-chronolith-offsets").expect("offsets").to_owned()
}

fn query(node: SocketAddr, time_ms: i64, header: &str) -> (u16, String) {
    let path = format!("/api/v1/query?query=written&time={}.{:03}", time_ms / 1000, time_ms % 1000);
    ask(node, &format!("GET {path} HTTP/1.1\r\n{header}\r\n"), b"")
}

#[test]
fn a_query_node_sees_each_write_whose_offsets_a_query_names() {
    let dir = tempfile::tempdir().expect("directory");
    let dir = dir.path();
    chronolith_base::Env::real().disk.create_dir_all(&dir.join("bucket")).expect("a directory");
    write_token(dir);
    let writer = start_writer(dir);
    let node = start_query_node(dir, writer.address());
    let first_ms = SystemClock::new().now_ms() - WRITES * 10;
    let mut last = String::new();
    for value in 0..WRITES {
        let time_ms = first_ms + value * 10;
        last = write(writer.address(), time_ms, value);
        let header = match value % 2 {
            0 => format!("X-Chronolith-Min-Offsets: {last}"),
            _ => "X-Chronolith-Read-Consistency: strong".to_owned(),
        };
        let (status, body) = query(node.address(), time_ms, &header);
        assert_eq!(status, 200, "{body}");
        let found: Value = serde_json::from_str(&body).expect("JSON");
        assert_eq!(found["data"]["result"][0]["value"][1], value.to_string(), "{found}");
    }

    let topic = last.split(':').next().expect("a topic");
    let check = |header: &str, want_status: u16, want: &str| {
        let (status, body) = query(node.address(), first_ms, header);
        assert_eq!(status, want_status, "{header}: {body}");
        assert!(body.contains(want), "{header}: {body}");
    };
    let no_owner = "the request waits for offset 4 of partition 7, and no owner of it is known";
    check(&format!("X-Chronolith-Min-Offsets: {topic}:0:0,{topic}:7:4"), 503, no_owner);
    check("X-Chronolith-Min-Offsets: a:0:7", 400, "the offsets are of topic a");
    check("X-Chronolith-Read-Consistency: weak", 400, "expected strong or eventual");
    let path = "/api/v1/query?query=written&timeout=1";
    let head = format!("GET {path} HTTP/1.1\r\nX-Chronolith-Min-Offsets: {topic}:0:9000000\r\n");
    let (status, body) = ask(node.address(), &head, b"");
    assert_eq!(status, 503, "{body}");
    assert!(body.contains("and the request waits for offset 9000001"), "{body}");
}
