//! Gateways and owners of a log in a directory: answers, readiness, samples that come back.

mod deletions;
mod ports;

use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::Duration;

use axum::http::Method;
use chronolith_base::{ManualClock, thread};
use chronolith_cluster::options::{LogAddress, LogOptions, NewTopic, PartitionChoice};
use chronolith_cluster::{ReplicatedLog, open_log};
use chronolith_model::RuleLimits;
use chronolith_service::evaluation::rules::files::load_rule_files;

use super::*;
use crate::serve::bucket_maintenance::{self, set_cluster_options};
use crate::serve::owner::OwnedPartition;
use crate::serve::stop::Stop;
use crate::serve::{gateway, open_query_node, rule_lease};

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("threads"));

/// A process with roles. Its gateway has no partition map yet, its owner no store.
pub(crate) struct Process {
    pub(crate) server: Fixture,
    clock: Arc<ManualClock>,
    log: Arc<dyn ReplicatedLog>,
    stop: Arc<Stop>,
    owner: Option<JoinHandle<()>>,
}

impl Drop for Process {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(owner) = self.owner.take() {
            owner.join().expect("no panic");
        }
    }
}

/// Disk, clock, log and bucket of the processes of a cluster.
struct Site {
    env: Env,
    clock: Arc<ManualClock>,
    log: Arc<dyn ReplicatedLog>,
    log_options: LogOptions,
    bucket_url: &'static str,
}

impl Site {
    fn new(partition_count: u32, bucket_url: &'static str) -> Site {
        let mut log_options = LogOptions::new(LogAddress::Dir("/log".into()));
        log_options.new_topic = Some(NewTopic { partition_count, replication_factor: 1 });
        let (env, clock, _) = Env::fake(NOW_MS, 1);
        let log = open_log(&env, RUNTIME.handle(), &log_options).expect("a directory");
        Site { env, clock, log, log_options, bucket_url }
    }
}

impl Process {
    fn new(roles: &str, partition_count: u32) -> Process {
        Process::with(roles, partition_count, |_| {})
    }

    fn with(roles: &str, partition_count: u32, change: impl FnOnce(&mut ServerOptions)) -> Process {
        Process::on(&Site::new(partition_count, "memory://"), roles, change)
    }

    fn on(site: &Site, roles: &str, change: impl FnOnce(&mut ServerOptions)) -> Process {
        let token = write_token(&site.env);
        let server = Fixture::with_env(site.env.clone(), |options| {
            options.web.admin_api = true;
            if roles.contains("query") {
                options.nodes.token_file = Some(token);
                options.nodes.owners = Some("127.0.0.1:1".parse().expect("a list"));
            }
            let cluster = &mut options.service.cluster;
            cluster.roles = roles.parse().expect("roles");
            cluster.log = Some(site.log_options.clone());
            cluster.owner.partition = Some(PartitionChoice::Number(0));
            change(options);
        });
        let service = &server.web.service;
        let mut bucket = BucketOptions::new(site.bucket_url);
        set_cluster_options(&mut bucket, &service.options.cluster);
        server.web.read_node_token().expect("a token");
        let sources = BucketSources::open(&bucket, &service.env, RUNTIME.handle()).expect("valid");
        let node = open_query_node(&server.web, &sources, RUNTIME.handle()).expect("valid");
        let sources = match node {
            Some(node) => Arc::new(sources.with_recent(Arc::new(node.sources()))),
            None => Arc::new(sources),
        };
        service.set_bucket(sources.clone());
        if roles.contains("query") {
            service.lifecycle.set_sources(sources);
        }
        if roles.contains("gateway") {
            let bucket = service.bucket.get().expect("set").bucket();
            gateway::open(&server.web, site.log.clone(), bucket, RUNTIME.handle().clone());
            rule_lease::open(&server.web, bucket, RUNTIME.handle().clone());
        }
        Process {
            server,
            clock: site.clock.clone(),
            log: site.log.clone(),
            stop: Arc::default(),
            owner: None,
        }
    }

    /// A process whose roles have started.
    pub(crate) async fn started(roles: &str) -> Process {
        let mut process = Process::new(roles, 1);
        process.round().await;
        if roles.contains("owner") {
            process.start_owner().await;
        }
        if roles == "gateway,owner" {
            // The tick of the round.
            process.applied(1).await;
        }
        process
    }

    /// Runs one round of the gateway's thread.
    async fn round(&self) {
        let web = self.server.web.clone();
        let round = tokio::task::spawn_blocking(move || gateway::round(&web, &mut None));
        round.await.expect("no panic");
    }

    async fn start_owner(&mut self) {
        let web = self.server.web.clone();
        let service = &web.service;
        let bucket = service.bucket.get().expect("set").bucket().clone();
        let handle = RUNTIME.handle().clone();
        let owned = OwnedPartition::find(self.log.clone(), bucket, handle, &service.options.cluster.owner);
        let owned = owned.expect("the log has it");
        service.set_store(owned.open_store(&web).expect("opens"), Vec::new());
        let of_thread = web.clone();
        let stop = self.stop.clone();
        self.owner = Some(thread::spawn("owner", move || owned.run(&of_thread, &stop)).expect("a thread"));
        while web.service.lifecycle.roles.owner().is_none() {
            tokio::task::yield_now().await;
        }
    }

    /// Waits until the owner has applied the first `count` records of the log.
    pub(crate) async fn applied(&self, count: u64) {
        let owner = self.server.web.service.lifecycle.roles.owner().expect("open");
        while owner.status().next_offset.is_none_or(|next| next < count) {
            tokio::task::yield_now().await;
        }
    }

    /// Waits until the owner has read the log and looked for cuts, so that all of its metrics are there.
    pub(crate) async fn observed(&self) {
        let owner = self.server.web.service.lifecycle.roles.owner().expect("open");
        while owner.status().next_offset.is_none() || owner.status().cuts.resume.is_none() {
            tokio::task::yield_now().await;
        }
    }

    async fn ready(&self) -> (u16, String) {
        let answer = self.server.get("/-/ready").await;
        (answer.status.as_u16(), answer.text)
    }
}

/// Writes the token of the nodes; returns its path.
fn write_token(env: &Env) -> PathBuf {
    let token = Path::new("/secrets/node");
    env.disk.create_dir_all(Path::new("/secrets")).expect("a directory");
    let file = env.disk.create(token).and_then(|file| file.write_at(b"token-of-the-nodes-1", 0));
    file.expect("written");
    token.to_owned()
}

/// A process that evaluates rules, whose only owner does not answer.
pub(crate) async fn rule_process() -> Process {
    let process = Process::with("gateway,query", 1, |options| {
        options.service.rules.files = vec!["/etc/rules/*.yml".into()];
    });
    let service = &process.server.web.service;
    service.env.disk.create_dir_all(Path::new("/etc/rules")).expect("a directory");
    let rules: &[u8] = b"groups: [{name: g, rules: [{record: r, expr: sum(x)}, {alert: A, expr: x > 1}]}]";
    service.env.disk.write_atomic(Path::new("/etc/rules/a.yml"), rules).expect("written");
    load_rule_files(service, &RuleLimits::default()).expect("valid");
    process.round().await;
    process
}

/// A query node whose only owner does not answer.
pub(crate) async fn query_node() -> Fixture {
    query_node_with(|_| {}).await
}

async fn query_node_with(change: impl FnOnce(&mut ServerOptions)) -> Fixture {
    let (env, _, _) = Env::fake(NOW_MS, 1);
    let token = write_token(&env);
    let server = Fixture::with_env(env, |options| {
        options.nodes.token_file = Some(token);
        options.nodes.owners = Some("127.0.0.1:1".parse().expect("a list"));
        change(options);
    });
    server.web.read_node_token().expect("a token");
    let sources =
        BucketSources::open(&BucketOptions::new("memory://"), &server.web.service.env, RUNTIME.handle());
    let opened = open_query_node(&server.web, &sources.expect("valid"), RUNTIME.handle());
    let node = opened.expect("valid").expect("has addresses of owners");
    tokio::task::spawn_blocking(move || node.refresh()).await.expect("no panic");
    server
}

#[tokio::test]
async fn the_status_of_a_query_node_has_owners_that_do_not_answer() {
    let with_role =
        |options: &mut ServerOptions| options.service.cluster.roles = "query".parse().expect("a role");
    let server = query_node_with(with_role).await;
    let status = server.get("/api/v1/status/cluster").await.json()["data"].clone();
    let owner = &status["query"]["owners"][0];
    assert_eq!((&owner["address"], &owner["topic"]), (&"127.0.0.1:1".into(), &Value::Null), "{status}");
    assert!(owner["fault"].as_str().is_some_and(|why| why.contains("refused")), "{status}");
    assert_eq!((&status["query"]["lookupFault"], &status["query"]["map"]), (&Value::Null, &Value::Null));
}

fn offsets_of(answer: &Answer) -> Option<String> {
    Some(answer.headers.get("x-chronolith-offsets")?.to_str().expect("text").to_owned())
}

#[tokio::test]
async fn a_gateway_is_ready_with_a_partition_map_and_answers_with_offsets() {
    let process = Process::new("gateway", 1);
    let why = "Service Unavailable: the partition map has not been read yet\n";
    assert_eq!(process.ready().await, (503, why.to_owned()));
    let series: &[(Pairs<'_>, &[(i64, f64)])] = &[(&[("__name__", "up")], &[(NOW_MS, 1.0)])];
    let refused = process.server.write(series).await;
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE, "{}", refused.text);
    assert!(refused.headers.contains_key(header::RETRY_AFTER));
    process.round().await;
    assert_eq!(process.ready().await.0, 200);
    let topic = process.log.identity();
    // The round has appended a tick, since nothing was written.
    for offset in [1, 2] {
        let answer = process.server.write(series).await;
        assert_eq!(answer.status, StatusCode::NO_CONTENT, "{}", answer.text);
        assert_eq!(offsets_of(&answer), Some(format!("{topic}:0:{offset}")));
    }
    let status = process.server.get("/api/v1/status/cluster").await.json()["data"].clone();
    assert_eq!(status["roles"], serde_json::json!(["gateway"]));
    assert_eq!(status["gateway"]["partitions"], 1);
    let map = &status["gateway"]["map"];
    assert_eq!((&map["number"], &map["partitions"][0]["partition"]), (&1.into(), &0.into()), "{map}");
    assert_eq!((&map["partitions"][0]["accepting"], &status["query"]), (&true.into(), &Value::Null));
    assert_eq!(status["gateway"]["appendedRecords"], 3);
    let metrics = process.server.get("/metrics").await.text;
    assert!(metrics.contains("chronolith_log_appended_records_total 3\n"), "{metrics}");
    assert!(metrics.contains("chronolith_gateway_partitions 1\n"), "{metrics}");
}

#[tokio::test]
async fn a_gateway_refuses_queries_changes_and_databases_that_the_bucket_does_not_have() {
    let process = Process::started("gateway").await;
    let text = "this server is a gateway (--role gateway)";
    let select = "/query?db=a&q=SELECT%20v%20FROM%20cpu";
    for path in ["/api/v1/query?query=up", "/api/v1/labels", select, "/render?target=a"] {
        let answer = process.server.get(path).await;
        assert_eq!(answer.status, StatusCode::METHOD_NOT_ALLOWED, "{path}: {}", answer.text);
        assert!(answer.text.contains(text), "{path}: {}", answer.text);
    }
    let clean = Request::post("/api/v1/admin/tsdb/clean_tombstones").body(Body::empty());
    let answer = process.server.send(clean.expect("a request")).await;
    assert_eq!(answer.status, StatusCode::METHOD_NOT_ALLOWED, "{}", answer.text);
    let line = Request::post("/write?db=telegraf").body(Body::from("cpu v=1")).expect("a request");
    let answer = process.server.send(line).await;
    assert_eq!(answer.status, StatusCode::NOT_FOUND, "{}", answer.text);
    assert!(answer.text.contains("database not found"), "{}", answer.text);
}

/// Covers a regression: a gateway that connects to its log answered 405, and senders dropped what they had.
#[tokio::test]
async fn a_gateway_without_its_log_yet_lets_senders_repeat() {
    for roles in ["gateway", "gateway,query"] {
        let server = Fixture::with(|options| options.service.cluster.roles = roles.parse().expect("roles"));
        let answer = server.write(&[(&[("__name__", "up")], &[(NOW_MS, 1.0)])]).await;
        assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{}", answer.text);
        assert!(answer.text.contains("the replicated log is being opened"), "{}", answer.text);
    }
}

#[tokio::test]
async fn a_gateway_with_the_role_query_takes_writes_and_asks_owners() {
    let process = Process::started("gateway,query").await;
    let answer = process.server.write(&[(&[("__name__", "up")], &[(NOW_MS, 1.0)])]).await;
    assert_eq!(answer.status, StatusCode::NO_CONTENT, "{}", answer.text);
    // Partitions of the map have no owner yet.
    let answer = process.server.get("/api/v1/query?query=up").await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{}", answer.text);
    let rule = Request::post("/config/v1/rules/a").body(Body::from("name: g")).expect("a request");
    let answer = process.server.send(rule).await;
    assert_eq!(answer.status, StatusCode::METHOD_NOT_ALLOWED, "{}", answer.text);
    assert!(answer.text.contains("(--role gateway,query)"), "{}", answer.text);
    let metrics = process.server.get("/metrics").await.text;
    for line in ["chronolith_read_only 0\n", "chronolith_gateway_partitions 1\n", "chronolith_owners{"] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    assert!(!metrics.contains("chronolith_rule_lease_held"), "it has no rule files");
    let status = process.server.get("/api/v1/status/cluster").await.json()["data"].clone();
    assert_eq!((status["gateway"]["partitions"].clone(), status["query"].is_object()), (1.into(), true));
}

#[tokio::test]
async fn rules_without_the_lease_are_shown_with_a_note() {
    let process = rule_process().await;
    let shown = process.server.get("/api/v1/rules").await.json();
    let rule = &shown["data"]["groups"][0]["rules"][0];
    assert_eq!((&rule["health"], &rule["name"]), (&"unknown".into(), &"r".into()), "{shown}");
    let note = shown["infos"][0].as_str().unwrap_or_default();
    assert!(note.contains("another process of the cluster evaluates these rules"), "{shown}");
    let web = process.server.web.clone();
    let round = tokio::task::spawn_blocking(move || rule_lease::round(&web, &mut None));
    round.await.expect("no panic");
    let shown = process.server.get("/api/v1/alerts").await.json();
    assert_eq!(shown["infos"], Value::Null, "{shown}");
    let status = process.server.get("/api/v1/status/cluster").await.json()["data"].clone();
    let want = serde_json::json!({
        "leaseHeld": true, "term": 1, "terms": 1, "failures": 0, "givenUpRounds": 0
    });
    assert_eq!(status["rules"], want);
    let metrics = process.server.get("/metrics").await.text;
    assert!(metrics.contains("chronolith_rule_lease_held 1\n"), "{metrics}");
}

#[tokio::test]
async fn an_owner_refuses_writes_and_says_why_it_is_not_ready() {
    let mut process = Process::new("owner", 1);
    assert_eq!(process.ready().await.0, 503);
    process.start_owner().await;
    process.applied(0).await;
    assert_eq!(process.ready().await.0, 200);
    let answer = process.server.write(&[(&[("__name__", "up")], &[(NOW_MS, 1.0)])]).await;
    assert_eq!(answer.status, StatusCode::METHOD_NOT_ALLOWED, "{}", answer.text);
    assert!(answer.text.contains("(--role owner)"), "{}", answer.text);
    assert_eq!(process.server.get("/api/v1/query?query=up").await.status, StatusCode::OK);
    let create = Request::builder().method(Method::POST).uri("/query?q=CREATE%20DATABASE%20a");
    let answer = process.server.send(create.body(Body::empty()).expect("a request")).await;
    assert_eq!(answer.status, StatusCode::METHOD_NOT_ALLOWED, "{}", answer.text);
}

#[tokio::test]
async fn samples_of_a_gateway_are_those_of_the_owner() {
    let process = Process::started("gateway,owner").await;
    let answer = process.server.write(&[(&[("__name__", "up"), ("job", "a")], &[(NOW_MS, 2.5)])]).await;
    assert_eq!(answer.status, StatusCode::NO_CONTENT, "{}", answer.text);
    process.applied(2).await;
    let found = process.server.get("/api/v1/query?query=up").await.json();
    assert_eq!(found["data"]["result"][0]["value"][1], "2.5", "{found}");
    let status = process.server.get("/api/v1/status/cluster").await.json()["data"].clone();
    assert_eq!(status["owner"]["partition"], 0);
    assert_eq!((&status["owner"]["nextOffset"], &status["owner"]["fault"]), (&2.into(), &Value::Null));
    assert_eq!((&status["owner"]["notReady"], &status["query"]), (&Value::Null, &Value::Null));
    let metrics = process.server.get("/metrics").await.text;
    assert!(metrics.contains("chronolith_owner_accepted_samples_total 1\n"), "{metrics}");
    assert!(metrics.contains("chronolith_owner_next_offset 2\n"), "{metrics}");
}

/// Covers a regression: an owner did not know the store that a gateway creates with the first points of a
/// tenant, and waited for ever.
#[tokio::test]
async fn points_of_graphite_clients_are_found_by_their_path() {
    let process = Process::started("gateway,owner").await;
    let lines = format!("servers.a.load 2.5 {NOW_S}\n");
    let post = Request::post("/api/v1/carbon").body(Body::from(lines)).expect("a request");
    let answer = process.server.send(post).await;
    assert_eq!(answer.status, StatusCode::NO_CONTENT, "{}", answer.text);
    let request = Request::get("/metrics/find?query=servers.a.*")
        .header("X-Chronolith-Min-Offsets", offsets_of(&answer).expect("offsets"));
    let found = process.server.send(request.body(Body::empty()).expect("a request")).await;
    assert!(found.text.contains("load"), "{}", found.text);
    let status = process.server.get("/api/v1/status/cluster").await.json()["data"].clone();
    assert_eq!(status["owner"]["refusedRecords"], 0, "{status}");
}

/// Sends a query with a header.
async fn query_with(server: &Fixture, name: &str, value: &str) -> Answer {
    let request = Request::get("/api/v1/query?query=up").header(name, value);
    server.send(request.body(Body::empty()).expect("a request")).await
}

#[tokio::test]
async fn a_query_with_the_offsets_of_a_write_sees_it() {
    let process = Process::started("gateway,owner").await;
    for value in 0..50 {
        let time_ms = NOW_MS + value * 1000;
        let answer = process.server.write(&[(&[("__name__", "up")], &[(time_ms, value as f64)])]).await;
        let request = Request::get(format!("/api/v1/query?query=up&time={}", time_ms / 1000));
        let request = match value % 2 {
            0 => request.header("X-Chronolith-Min-Offsets", offsets_of(&answer).expect("offsets")),
            _ => request.header("X-Chronolith-Read-Consistency", "strong"),
        };
        let found = process.server.send(request.body(Body::empty()).expect("a request")).await.json();
        assert_eq!(found["data"]["result"][0]["value"][1], value.to_string(), "{found}");
    }
}

#[tokio::test]
async fn offsets_that_are_not_reached_in_time_are_503_and_wrong_ones_400() {
    let mut process = Process::with("owner", 1, |options| options.service.query.timeout_ms = 0);
    process.start_owner().await;
    process.applied(0).await;
    let topic = process.log.identity();
    let answer = query_with(&process.server, "x-chronolith-min-offsets", &format!("{topic}:0:7")).await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{}", answer.text);
    let want = "partition 0 is at offset 0, and the request waits for offset 8";
    assert!(answer.text.contains(want), "{}", answer.text);
    for (name, value, want) in [
        ("x-chronolith-min-offsets", "a:0:7", "the offsets are of topic a"),
        ("x-chronolith-min-offsets", "7", "expected TOPIC:PARTITION:OFFSET"),
        ("x-chronolith-read-consistency", "weak", "expected strong or eventual"),
    ] {
        let answer = query_with(&process.server, name, value).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{}", answer.text);
        assert!(answer.text.contains(want), "{}", answer.text);
    }
}

#[test]
fn a_partition_that_the_log_does_not_have_is_named() {
    let process = Process::new("owner", 2);
    let bucket = process.server.web.service.bucket.get().expect("set").bucket().clone();
    let mut options = process.server.web.service.options.cluster.owner.clone();
    options.partition = Some(PartitionChoice::Number(2));
    let found = OwnedPartition::find(process.log.clone(), bucket, RUNTIME.handle().clone(), &options);
    let error = found.err().expect("refused").to_string();
    assert_eq!(error, "owner.partition: expected a number below 2, the partitions of the log, found 2");
}

#[tokio::test]
async fn a_server_of_its_own_has_no_offsets_and_no_cluster() {
    let server = Fixture::ready();
    let answer = server.write(&[(&[("__name__", "up")], &[(NOW_MS, 1.0)])]).await;
    assert_eq!((answer.status, offsets_of(&answer)), (StatusCode::NO_CONTENT, None));
    assert_eq!(server.get("/api/v1/status/cluster").await.json()["data"], Value::Null);
}

/// Covers a tenant that fills its partitions: its sender learned nothing, and the log took samples that
/// owners refuse.
#[tokio::test]
async fn a_gateway_refuses_new_series_of_a_tenant_that_owners_report_as_full() {
    let limits = |options: &mut ServerOptions| options.service.tsdb.limits.default.series_max = 5;
    let process = Process::with("gateway", 1, limits);
    process.round().await;
    let known: Pairs<'_> = &[("__name__", "up"), ("job", "a")];
    let new: Pairs<'_> = &[("__name__", "up"), ("job", "b")];
    assert_eq!(process.server.write(&[(known, &[(NOW_MS, 1.0)])]).await.status, StatusCode::NO_CONTENT);
    let gateway = process.server.web.service.lifecycle.roles.gateway().expect("open");
    gateway.set_tenant_series([(TenantId::anonymous(), 5)].into());
    let both = [(known, &[(NOW_MS, 1.0)][..]), (new, &[(NOW_MS, 1.0), (NOW_MS + 1, 2.0)][..])];
    let answer = process.server.write(&both).await;
    assert_eq!(answer.status, StatusCode::NO_CONTENT, "the gateway has just started: {}", answer.text);
    process.clock.advance(Duration::from_secs(16 * 60));
    let newest: Pairs<'_> = &[("__name__", "up"), ("job", "c")];
    let both = [(known, &[(NOW_MS, 1.0)][..]), (newest, &[(NOW_MS, 1.0), (NOW_MS + 1, 2.0)][..])];
    let answer = process.server.write(&both).await;
    assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS, "{}", answer.text);
    let want = "2 of 3 samples rejected: first: the tenant has 5 series, and series-limit allows 5: series";
    assert!(answer.text.starts_with(want), "{}", answer.text);
    assert!(answer.headers.contains_key(header::RETRY_AFTER));
    assert!(offsets_of(&answer).is_some(), "series that are not new are written");
    let metrics = process.server.get("/metrics").await.text;
    assert!(metrics.contains("chronolith_gateway_full_tenants 1\n"), "{metrics}");
    assert!(metrics.contains("chronolith_gateway_counted_tenants 1\n"), "{metrics}");
    gateway.set_tenant_series([(TenantId::anonymous(), 4)].into());
    assert_eq!(process.server.write(&both).await.status, StatusCode::NO_CONTENT);
}

#[tokio::test]
async fn an_owner_has_its_share_of_the_limits_of_series() {
    let limits = |options: &mut ServerOptions| {
        options.service.tsdb.limits.default.series_max = 10;
        options.service.cluster.gateway.tenant_partitions_min = 2;
    };
    let mut process = Process::with("gateway,owner", 2, limits);
    process.round().await;
    process.start_owner().await;
    let service = &process.server.web.service;
    assert_eq!(service.limits_of(&TenantId::anonymous()).series_max, 6);
    let mut other = service.default_limits();
    other.series_max = 20;
    service.set_limits(other.into());
    assert_eq!(service.limits_of(&TenantId::anonymous()).series_max, 11, "after a reload too");
}

/// Sends statements; returns status and body.
async fn statements(server: &Fixture, text: &str) -> (u16, String) {
    let text = text.replace(' ', "+").replace(';', "%3B");
    let answer = server.post_form("/query", &format!("db=telegraf&epoch=ns&q={text}")).await;
    (answer.status.as_u16(), answer.text.trim_end().to_owned())
}

const DONE: &str = r#"{"results":[{"statement_id":0}]}"#;

#[tokio::test]
async fn statements_on_a_gateway_change_the_databases_that_the_next_request_writes_to() {
    let process = Process::started("gateway,owner").await;
    let server = &process.server;
    let write = async || {
        let lines = Request::post("/write?db=telegraf").body(Body::from(format!("cpu v=7i {NOW_MS}000000")));
        server.send(lines.expect("a request")).await
    };
    assert_eq!(write().await.status, StatusCode::NOT_FOUND);
    // The first request of Telegraf and of the library `influxdb`, and their repeat.
    for _ in 0..2 {
        assert_eq!(statements(server, "CREATE DATABASE telegraf").await, (200, DONE.to_owned()));
    }
    let answer = write().await;
    assert_eq!(answer.status, StatusCode::NO_CONTENT, "{}", answer.text);
    process.applied(2).await;
    let (status, found) = statements(server, "SELECT v FROM cpu").await;
    assert_eq!(status, 200, "{found}");
    assert!(found.contains(&format!("[[{NOW_MS}000000,7]]")), "{found}");
    let create = "CREATE RETENTION POLICY week ON telegraf DURATION 7d REPLICATION 1";
    assert_eq!(statements(server, create).await, (200, DONE.to_owned()));
    let (_, shown) = statements(server, "SHOW DATABASES; SHOW RETENTION POLICIES").await;
    assert!(shown.contains(r#"[["telegraf"]]"#) && shown.contains(r#"["week","168h0m0s""#), "{shown}");

    assert_eq!(statements(server, "DROP DATABASE telegraf").await, (200, DONE.to_owned()));
    assert_eq!(write().await.status, StatusCode::NOT_FOUND);
    let (_, found) = statements(server, "SELECT v FROM cpu").await;
    assert!(found.contains("database not found: telegraf"), "{found}");
    assert_eq!(statements(server, "CREATE DATABASE telegraf").await, (200, DONE.to_owned()));
    let (_, found) = statements(server, "SELECT v FROM cpu").await;
    assert_eq!(found, DONE, "no old samples");
    let status = server.get("/api/v1/status/cluster").await.json()["data"].clone();
    assert_eq!(status["owner"]["refusedRecords"], 0, "{status}");
}

#[tokio::test]
async fn what_a_cluster_has_no_place_for_is_refused_by_name() {
    let process = Process::started("gateway").await;
    assert_eq!(statements(&process.server, "CREATE DATABASE telegraf").await.0, 200);
    let query =
        "CREATE CONTINUOUS QUERY q ON telegraf BEGIN SELECT mean(v) INTO w FROM cpu GROUP BY time(1m) END";
    let (status, text) = statements(&process.server, query).await;
    assert_eq!(status, 200, "{text}");
    assert!(text.contains("a cluster has no continuous queries"), "{text}");
    for statement in ["CREATE USER a WITH PASSWORD 'b'", "SELECT v FROM cpu"] {
        let (status, text) = statements(&process.server, statement).await;
        assert_eq!(status, 405, "{statement}: {text}");
    }
}

#[tokio::test]
async fn a_query_node_creates_databases_too() {
    let server = Fixture::with(|options| options.service.cluster.roles = "query".parse().expect("a role"));
    let service = &server.web.service;
    let bucket = BucketOptions { is_read_only: true, ..BucketOptions::new("memory://") };
    let sources = BucketSources::open(&bucket, &service.env, RUNTIME.handle()).expect("valid");
    let sources = Arc::new(sources);
    service.set_bucket(sources.clone());
    service.lifecycle.set_sources(sources);
    assert_eq!(statements(&server, "CREATE DATABASE telegraf").await, (200, DONE.to_owned()));
    let (_, shown) = statements(&server, "SHOW DATABASES").await;
    assert!(shown.contains(r#"[["telegraf"]]"#), "{shown}");
    for statement in ["SELECT v INTO w FROM cpu", "CREATE USER a WITH PASSWORD 'b'", "DROP MEASUREMENT cpu"] {
        let (status, text) = statements(&server, statement).await;
        assert_eq!(status, 405, "{statement}: {text}");
    }
}

/// Rules that add tags are of a store, which a query node does not have.
#[tokio::test]
async fn a_query_node_answers_graphite_without_rules_of_tags() {
    let server = Fixture::with(|options| options.service.cluster.roles = "query".parse().expect("a role"));
    let sources =
        BucketSources::open(&BucketOptions::new("memory://"), &server.web.service.env, RUNTIME.handle());
    server.web.service.lifecycle.set_sources(Arc::new(sources.expect("valid")));
    for path in ["/render?target=seriesByTag(%27name=a%27)&format=json", "/tags/findSeries?expr=name=a"] {
        let answer = server.get(path).await;
        assert_eq!((answer.status, answer.text.trim()), (StatusCode::OK, "[]"), "{path}");
    }
}

#[tokio::test]
async fn a_process_that_maintains_the_bucket_refuses_samples_and_is_ready() {
    let server = Fixture::with(|options| {
        options.web.admin_api = true;
        options.service.cluster.roles = "store".parse().expect("a role");
    });
    let service = &server.web.service;
    let mut bucket = BucketOptions::new("memory://");
    set_cluster_options(&mut bucket, &service.options.cluster);
    assert!(bucket.has_original_databases && bucket.compaction_delay.is_some());
    let sources = BucketSources::open(&bucket, &service.env, RUNTIME.handle()).expect("valid");
    let sources = Arc::new(sources);
    service.set_bucket(sources.clone());
    assert_eq!(server.get("/-/ready").await.status, StatusCode::SERVICE_UNAVAILABLE);
    let store = bucket_maintenance::open_store(&server.web, Some(sources.bucket().clone())).expect("opens");
    service.set_store(store, Vec::new());
    assert_eq!(server.get("/-/ready").await.status, StatusCode::OK);
    let series: &[(Pairs<'_>, &[(i64, f64)])] = &[(&[("__name__", "up")], &[(NOW_MS, 1.0)])];
    let mut answers = vec![server.write(series).await];
    for path in ["/api/v1/query?query=up", "/api/v1/labels", "/query?q=SHOW%20DATABASES", "/render?target=a"]
    {
        answers.push(server.get(path).await);
    }
    for path in ["/write?db=a", "/query?q=CREATE%20DATABASE%20a", "/api/v1/admin/tsdb/snapshot"] {
        answers.push(server.post_form(path, "").await);
    }
    for answer in answers {
        assert_eq!(answer.status, StatusCode::METHOD_NOT_ALLOWED, "{}", answer.text);
        assert!(answer.text.contains("(--role store)"), "{}", answer.text);
    }
    let status = server.get("/api/v1/status/cluster").await.json()["data"].clone();
    assert_eq!(status["roles"], serde_json::json!(["store"]));
    let metrics = server.get("/metrics").await.text;
    assert!(metrics.contains("chronolith_bucket_maintenance_failures_total 0\n"), "{metrics}");
}
