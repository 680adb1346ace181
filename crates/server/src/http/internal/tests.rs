//! Selects of other nodes without sockets: who may send them, and their series next to the store's.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, header};
use chronolith_base::{Env, ManualClock, MemoryBudget};
use chronolith_cluster::TopicId;
use chronolith_cluster::owner::{NotReady, PartitionOwner as _};
use chronolith_model::min_offsets::ReadConsistency;
use chronolith_model::{Columns, Labels, QueryError, Queryable, ReadContext, Selector, TenantId, TimeRange};
use chronolith_tsdb::{PeerSource, PeerStream, PeerTransport, SelectLimits};
use tokio::runtime::Handle;

use crate::http::tests::{Answer, FakeOwner, Fixture, NOW_MS, Pairs};
use crate::limits::SELECT_PATH;
use crate::metrics::select::SelectResult;
use crate::options::{AllowedHosts, ServerOptions};

const TOKEN: &str = "token-of-the-nodes-1";
const TOKEN_FILE: &str = "/secrets/node";

/// A node without a store.
fn node(change: impl FnOnce(&mut ServerOptions)) -> Fixture {
    node_and_clock(change).0
}

fn node_and_clock(change: impl FnOnce(&mut ServerOptions)) -> (Fixture, Arc<ManualClock>) {
    let (env, clock, _) = Env::fake(NOW_MS, 1);
    env.disk.create_dir_all(Path::new("/secrets")).expect("a directory");
    let file = env.disk.create(Path::new(TOKEN_FILE)).expect("a file");
    file.write_at(TOKEN.as_bytes(), 0).expect("written");
    let server = Fixture::with_env(env, |options| {
        options.nodes.token_file = Some(PathBuf::from(TOKEN_FILE));
        change(options);
    });
    server.web.read_node_token().expect("a token");
    (server, clock)
}

fn call(token: Option<&str>, body: Vec<u8>) -> Request<Body> {
    let request = Request::post(SELECT_PATH);
    let request = match token {
        Some(token) => request.header(header::AUTHORIZATION, format!("Bearer {token}")),
        None => request,
    };
    request.body(Body::from(body)).expect("a request")
}

/// Transport to a server without sockets.
struct Direct {
    server: Arc<Fixture>,
    runtime: Handle,
}

/// All bytes of an answer.
struct Whole(Option<Result<Vec<u8>, QueryError>>);

impl PeerStream for Whole {
    fn next_bytes(&mut self, _: &ReadContext) -> Result<Option<Vec<u8>>, QueryError> {
        self.0.take().transpose()
    }
}

impl PeerTransport for Direct {
    fn node(&self) -> &str {
        "n1"
    }

    fn send(&self, bytes: Vec<u8>, _: &ReadContext) -> Box<dyn PeerStream> {
        let answer = self.runtime.block_on(self.server.send_for_bytes(call(Some(TOKEN), bytes)));
        Box::new(Whole(Some(match answer {
            (200, Ok(bytes)) => Ok(bytes),
            (200, Err(what)) => Err(QueryError::Unavailable { what }),
            (status, text) => {
                let text = text.expect("a refusal is whole");
                let what = format!("{status}: {}", String::from_utf8_lossy(&text));
                Err(QueryError::Unavailable { what })
            }
        })))
    }
}

/// Labels, times and values of all series of a tenant of `server`.
async fn series_of(
    server: &Arc<Fixture>,
    tenant: &str,
    limits: SelectLimits,
) -> Result<Vec<(Labels, Columns)>, QueryError> {
    series_within(server, tenant, limits, ReadContext::unlimited(server.web.service.env.clock.clone())).await
}

async fn series_within(
    server: &Arc<Fixture>,
    tenant: &str,
    limits: SelectLimits,
    ctx: ReadContext,
) -> Result<Vec<(Labels, Columns)>, QueryError> {
    let transport = Arc::new(Direct { server: server.clone(), runtime: Handle::current() });
    let tenant = TenantId::new(tenant).expect("a tenant id");
    let read = move || {
        let source = PeerSource::new(transport, &tenant).with_limits(limits);
        let mut batches = source.select(&Selector { matchers: &[], range: TimeRange::ALL }, &ctx)?;
        let (mut found, mut batch) = (Vec::new(), Vec::new());
        loop {
            let has_more = batches.next_batch(&mut batch)?;
            for series in batch.drain(..) {
                let mut columns = Columns::default();
                series.samples.read(TimeRange::ALL, &mut columns)?;
                found.push((series.labels, columns));
            }
            if !has_more {
                return Ok(found);
            }
        }
    };
    tokio::task::spawn_blocking(read).await.expect("no panic")
}

#[track_caller]
fn check(answer: &Answer, status: u16, text: &str) {
    assert_eq!((answer.status.as_u16(), answer.text.trim_end()), (status, text));
}

#[tokio::test]
async fn nodes_alone_may_call() {
    let plain = Fixture::ready();
    let answer = plain.send(call(Some(TOKEN), Vec::new())).await;
    assert_eq!(answer.status, 404, "without a token there is no such route: {}", answer.text);
    let hosts = AllowedHosts::parse("example.org").expect("a host");
    let server = node(|options| options.web.allowed_hosts = Some(hosts)).open();
    let none = "no node token: nodes of a cluster have the same cluster.node-token-file";
    check(&server.send(call(None, Vec::new())).await, 401, none);
    let other = "another node token: nodes of a cluster have the same cluster.node-token-file";
    for token in ["token-of-the-nodes-2", "", TOKEN_FILE] {
        check(&server.send(call(Some(token), Vec::new())).await, 401, other);
    }
    let get = Request::get(SELECT_PATH).header(header::AUTHORIZATION, format!("Bearer {TOKEN}"));
    assert_eq!(server.send(get.body(Body::empty()).expect("a request")).await.status, 405);
    let answer = server.send(call(Some(TOKEN), b"CLSQ".to_vec())).await;
    assert_eq!(answer.status, 400, "{}", answer.text);
    let count = |result| server.web.metrics.select().result_count(result);
    assert_eq!((count(SelectResult::Unauthorized), count(SelectResult::Refused)), (4, 1));
}

/// Covers a roll-out: a node that took a call of the next version would misread it.
#[tokio::test]
async fn a_call_of_another_version_is_refused_with_both_versions() {
    let server = node(|_| {}).open();
    let mut bytes = b"CLSQ\x07body".to_vec();
    bytes.extend_from_slice(&chronolith_base::crc::crc32c(&bytes).to_le_bytes());
    let answer = server.send(call(Some(TOKEN), bytes)).await;
    check(&answer, 409, "select of version 7, this node has version 1");
}

#[tokio::test]
async fn a_node_without_a_store_refuses_calls() {
    let server = Arc::new(node(|_| {}));
    let error = series_of(&server, "anonymous", SelectLimits::default()).await.expect_err("no store");
    assert!(error.to_string().starts_with("node n1: 503: "), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn series_of_an_answer_are_those_of_the_store() {
    let server = node(|options| options.service.multitenancy = true).open();
    let names: Vec<String> = (0..3000).map(|id| format!("{id:06}")).collect();
    let labels: Vec<[(&str, &str); 2]> = names.iter().map(|id| [("__name__", "up"), ("id", id)]).collect();
    let series: Vec<Pairs<'_>> = labels.iter().map(|pairs| &pairs[..]).collect();
    server.store_series("team-1", 0, &series);
    server.store_series("team-1", 15_000, &series);
    server.store_series("team-2", 0, &series[..1]);
    let server = Arc::new(server);
    let found = series_of(&server, "team-1", SelectLimits::default()).await.expect("an answer");
    assert_eq!(found.len(), 3000);
    for ((found, columns), wanted) in found.iter().zip(&labels) {
        assert_eq!(*found, Labels::from_pairs(wanted.iter().copied()));
        assert_eq!((&*columns.times, &*columns.values), (&[NOW_MS, NOW_MS + 15_000][..], &[1.0, 1.0][..]));
    }
    let of_other = series_of(&server, "team-2", SelectLimits::default()).await.expect("an answer");
    assert_eq!(of_other.len(), 1);
    assert_eq!(series_of(&server, "team-3", SelectLimits::default()).await.expect("an answer").len(), 0);
    let limits = SelectLimits { series_max: 2999, ..SelectLimits::default() };
    let error = series_of(&server, "team-1", limits).await.expect_err("a limit");
    assert!(matches!(error, QueryError::Selection(_)), "{error}");
    let metrics = server.web.metrics.select();
    let count = |result| metrics.result_count(result);
    let counts = (count(SelectResult::Complete), count(SelectResult::Failed), count(SelectResult::Refused));
    assert_eq!(counts, (3, 1, 0));
    assert!(metrics.stream().bytes.get() > 3000 * 10);
    assert_eq!(server.web.service.admission.query_memory.total.used_bytes(), 0, "memory is given back");
}

/// Covers a deadlock: a node that asks itself while its queries have all permits would wait for itself.
#[tokio::test(flavor = "multi_thread")]
async fn selects_have_permits_of_their_own_and_memory_of_queries() {
    let server = node(|options| options.service.query.concurrency = 1).open();
    server.store_series("anonymous", 0, &[&[("__name__", "up")]]);
    let anonymous = TenantId::anonymous();
    let admission = &server.web.service.admission;
    let of_query = admission.query.try_acquire(&anonymous, 0).expect("a permit");
    let server = Arc::new(server);
    let found = series_of(&server, "anonymous", SelectLimits::default()).await.expect("an answer");
    assert_eq!(found.len(), 1);
    drop(of_query);
    let memory: &MemoryBudget = &server.web.service.admission.query_memory.total;
    let _all = memory.reserve(memory.limit_bytes()).expect("fits");
    let error = series_of(&server, "anonymous", SelectLimits::default()).await.expect_err("no memory");
    assert!(error.to_string().contains("memory"), "{error}");
}

/// Covers a gap: a window left the head after the caller had read the list of blocks.
#[tokio::test(flavor = "multi_thread")]
async fn a_caller_without_the_blocks_of_windows_that_left_is_refused() {
    let server = Arc::new(node(|_| {}).open());
    server.store_series("anonymous", 0, &[&[("__name__", "up")]]);
    let owner = FakeOwner { leaves_at_each_look: true, ..FakeOwner::ready(0) };
    server.web.service.lifecycle.roles.set_owner(Arc::new(owner));
    let error = series_of(&server, "anonymous", SelectLimits::default()).await.expect_err("left meanwhile");
    let want =
        "node n1: windows have left this node for blocks of catalogue 1, the caller reads 0; try again";
    assert_eq!(error.to_string(), want, "an answer that has begun ends with the reason");
    let error = series_of(&server, "anonymous", SelectLimits::default()).await.expect_err("has left");
    let want = "node n1: 412: windows have left this node for blocks of catalogue 2, the caller reads 0";
    assert_eq!(error.to_string().trim_end(), want);
}

/// Reads go on while the log is away, and the answer says that newer samples may be missing.
#[tokio::test(flavor = "multi_thread")]
async fn an_owner_that_lost_the_log_answers_with_a_warning() {
    let server = Arc::new(node(|_| {}).open());
    server.store_series("anonymous", 0, &[&[("__name__", "up")]]);
    let not_ready = Some(NotReady::LogAway("no broker answers".to_owned()));
    server.web.service.lifecycle.roles.set_owner(Arc::new(FakeOwner { not_ready, ..FakeOwner::ready(3) }));
    let ctx = ReadContext::unlimited(server.web.service.env.clock.clone());
    let found = series_within(&server, "anonymous", SelectLimits::default(), ctx.clone()).await;
    assert_eq!(found.expect("an answer").len(), 1);
    let warnings = ctx.warnings();
    let want =
        "node n1: samples that partition 3 took since its log cannot be read are missing: no broker answers";
    assert_eq!((warnings.texts(), warnings.is_partial()), (&[want.to_owned()][..], false));
}

/// Covers a silent gap: query nodes asked an owner that had started without its directory, and its
/// answer lacked samples.
#[tokio::test(flavor = "multi_thread")]
async fn an_owner_that_has_not_caught_up_refuses_calls() {
    let server = Arc::new(node(|_| {}).open());
    server.store_series("anonymous", 0, &[&[("__name__", "up")]]);
    let lag = NotReady::Lag { lag_ms: 9000, next_offset: 1, log_end: 3, ready_lag_ms: 2000 };
    let owner = FakeOwner { not_ready: Some(lag), ..FakeOwner::ready(3) };
    server.web.service.lifecycle.roles.set_owner(Arc::new(owner));
    let error = series_of(&server, "anonymous", SelectLimits::default()).await.expect_err("it lags");
    let want = "node n1: 503: lag of 9000 ms at offset 1 of 3, at most 2000 ms (owner.ready-lag)";
    assert_eq!(error.to_string().trim_end(), want);
    assert_eq!(series_with(&server, strong()).await.expect("it waited for the end of the log"), 1);
}

/// Reads with records that the answer has to see, within 8 s.
async fn series_with(server: &Arc<Fixture>, consistency: ReadConsistency) -> Result<usize, QueryError> {
    let clock = server.web.service.env.clock.clone();
    let deadline_ns = clock.mono_ns() + 8_000_000_000;
    let ctx = ReadContext::new(clock, deadline_ns, MemoryBudget::new("query", u64::MAX));
    let ctx = ctx.with_consistency(Some(Arc::new(consistency)));
    Ok(series_within(server, "anonymous", SelectLimits::default(), ctx).await?.len())
}

fn strong() -> ReadConsistency {
    ReadConsistency { is_strong: true, offsets: None }
}

fn offsets(topic: TopicId, text: &str) -> ReadConsistency {
    let offsets = format!("{topic}:{text}").parse().expect("offsets");
    ReadConsistency { is_strong: false, offsets: Some(offsets) }
}

/// Covers a read that missed a write which its client had an answer for.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_waits_for_the_records_that_it_has_to_see() {
    let server = Arc::new(node(|_| {}).open());
    server.store_series("anonymous", 0, &[&[("__name__", "up")]]);
    let owner = Arc::new(FakeOwner { applied_per_look: 1, ..FakeOwner::ready(3) });
    server.web.service.lifecycle.roles.set_owner(owner.clone());
    let topic = owner.partition().topic;
    owner.log_end.store(20, Ordering::Relaxed);
    assert_eq!(series_with(&server, strong()).await.expect("an answer"), 1);
    assert!(owner.next_offset.load(Ordering::Relaxed) > 20, "all that is in the log is applied");
    assert_eq!(series_with(&server, offsets(topic, "3:40")).await.expect("an answer"), 1);
    let next_offset = owner.next_offset.load(Ordering::Relaxed);
    assert!(next_offset > 41, "the record at 40 is applied: {next_offset}");
    assert_eq!(series_with(&server, offsets(topic, "4:4000")).await.expect("another partition"), 1);
    assert!(owner.next_offset.load(Ordering::Relaxed) < 100);
    let error = series_with(&server, offsets(TopicId([9; 16]), "3:0")).await.expect_err("another log");
    assert!(error.to_string().starts_with("node n1: 400: the offsets are of topic "), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_whose_records_are_not_there_in_time_is_refused_before_its_caller_gives_up() {
    let (server, clock) = node_and_clock(|_| {});
    let server = Arc::new(server.open());
    let why = "the call waits for records of the log, and this node owns no partition yet";
    let error = series_with(&server, strong()).await.expect_err("no owner").to_string();
    assert_eq!(error.trim_end(), format!("node n1: 503: {why}"));
    let owner = Arc::new(FakeOwner::ready(3));
    server.web.service.lifecycle.roles.set_owner(owner.clone());
    owner.log_end.store(7, Ordering::Relaxed);
    let pass_time = async {
        while owner.looks.load(Ordering::Relaxed) == 0 {
            tokio::task::yield_now().await;
        }
        clock.advance(Duration::from_millis(7600));
    };
    let (found, ()) = tokio::join!(series_with(&server, strong()), pass_time);
    let why = "partition 3 is at offset 1, and the request waits for offset 7";
    assert_eq!(found.expect_err("too late").to_string().trim_end(), format!("node n1: 503: {why}"));
}

/// Covers a change of the token in a cluster that runs: nodes had to be started again.
#[tokio::test]
async fn the_token_is_read_again_by_a_reload() {
    let server = node(|_| {}).open();
    let write = |text: &str| {
        let disk = &server.web.service.env.disk;
        disk.remove_file(Path::new(TOKEN_FILE)).expect("removed");
        let file = disk.create(Path::new(TOKEN_FILE)).expect("a file");
        file.write_at(text.as_bytes(), 0).expect("written");
    };
    let status = async |token: &str| server.send(call(Some(token), b"CLSQ".to_vec())).await.status.as_u16();
    let other = "token-of-the-nodes-2";
    assert_eq!((status(TOKEN).await, status(other).await), (400, 401));
    write(&format!("{other}\n{TOKEN}\n"));
    assert_eq!(crate::http::reload_now(&server.web), Ok(Vec::new()));
    assert_eq!((status(TOKEN).await, status(other).await), (400, 400), "both, while nodes get the new one");
    write("short");
    let error = crate::http::reload_now(&server.web).expect_err("refused");
    assert!(error.starts_with("cluster.node-token-file: ") && !error.contains("short"), "{error}");
    assert_eq!(status(other).await, 400, "the last good file stays in use");
    write(other);
    assert_eq!(crate::http::reload_now(&server.web), Ok(Vec::new()));
    assert_eq!((status(TOKEN).await, status(other).await), (401, 400));
}
