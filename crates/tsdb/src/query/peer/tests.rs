//! Answers that are cut, damaged or too large; failures and warnings of a node; several nodes as one.

use std::collections::VecDeque;

use chronolith_base::{Clock, Env, ManualClock, MemoryBudget};
use chronolith_format::select::decode_call;
use chronolith_model::min_offsets::ReadConsistency;
use chronolith_model::query::{NoSeries, SelectionExceeded, Selector, SeriesRead, TenantSources, VecBatches};
use chronolith_model::{Columns, Labels, Queryable, SampleSource, SeriesBatches, TimeRange};

use super::sources::{PeerList, PeerSources};
use super::transport::PeerStream;
use super::*;
use crate::query::answer::{AnswerEnd, send_answer};

/// Samples of a series.
struct Fixed(Columns);

impl SampleSource for Fixed {
    fn read(&self, range: TimeRange, out: &mut Columns) -> Result<(), QueryError> {
        out.extend_from(&self.0, self.0.indices_in(range));
        Ok(())
    }

    fn sample_count_hint(&self) -> usize {
        self.0.len()
    }
}

/// Failure of a store after its series.
type Failure = fn() -> QueryError;

/// Store with this many series of 100 samples.
#[derive(Clone, Copy)]
struct Store {
    series_count: usize,
    failure: Option<Failure>,
    warning: Option<&'static str>,
}

const STORE: Store = Store { series_count: 3, failure: None, warning: None };

fn series(id: usize) -> SeriesRead {
    let mut columns = Columns::default();
    (0..100).for_each(|at| columns.push(at * 1000, (at * id as i64) as f64 / 4.0));
    let id = format!("{id:06}");
    let labels = Labels::from_pairs([("__name__", "up"), ("id", id.as_str())]);
    SeriesRead { labels, samples: Box::new(Fixed(columns)) }
}

struct Failing(Box<dyn SeriesBatches>, Option<Failure>);

impl SeriesBatches for Failing {
    fn next_batch(&mut self, out: &mut Vec<SeriesRead>) -> Result<bool, QueryError> {
        match self.0.next_batch(out)? {
            false => self.1.map_or(Ok(false), |failure| Err(failure())),
            true => Ok(true),
        }
    }
}

impl Source for Store {
    fn open(&self, read: Read, ctx: &ReadContext) -> Result<Opened, QueryError> {
        if let Some(warning) = self.warning {
            ctx.warn(warning.to_owned());
            ctx.warn_partial("a block", QueryError::Unavailable { what: "away".to_owned() })?;
        }
        let all = VecBatches::new((0..self.series_count).map(series).collect());
        match read.wanted {
            Wanted::Series => Ok(Opened::Series(Box::new(Failing(Box::new(all), self.failure)))),
            Wanted::LabelNames => Ok(Opened::listed(vec!["__name__".to_owned(), "id".to_owned()])),
            _ => NoSeries.open(read, ctx),
        }
    }
}

/// Answer that arrives in pieces.
struct Pieces(VecDeque<Vec<u8>>);

impl PeerStream for Pieces {
    fn next_bytes(&mut self, _: &ReadContext) -> Result<Option<Vec<u8>>, QueryError> {
        Ok(self.0.pop_front())
    }
}

/// Change of the bytes of an answer.
type Change = Arc<dyn Fn(Vec<u8>) -> Vec<u8> + Send + Sync>;

/// Node in this process.
struct Loopback {
    store: Store,
    change: Change,
    clock: Arc<ManualClock>,
}

impl PeerTransport for Loopback {
    fn node(&self) -> &str {
        "n1:9595"
    }

    fn send(&self, call: Vec<u8>, _: &ReadContext) -> Box<dyn PeerStream> {
        let call = decode_call(&call).expect("a call");
        let ctx = ReadContext::unlimited(self.clock.clone());
        let mut bytes = Vec::new();
        let mut send = |mut frames: Vec<u8>| {
            bytes.append(&mut frames);
            Ok(())
        };
        send_answer(&self.store, &call, 7, &ctx, &|| Ok(()), &mut send).expect("the sink has no error");
        let bytes = (self.change)(bytes);
        Box::new(Pieces(bytes.chunks(1000).map(<[u8]>::to_vec).collect()))
    }
}

fn node_with(store: Store, change: impl Fn(Vec<u8>) -> Vec<u8> + Send + Sync + 'static) -> Arc<Loopback> {
    let (_, clock, _) = Env::fake(0, 1);
    Arc::new(Loopback { store, change: Arc::new(change), clock })
}

fn node(store: Store) -> Arc<Loopback> {
    node_with(store, |bytes| bytes)
}

fn tenant() -> TenantId {
    TenantId::new("team-1").expect("a tenant id")
}

fn source(node: Arc<Loopback>) -> PeerSource {
    PeerSource::new(node, &tenant())
}

fn ctx() -> ReadContext {
    let (env, _, _) = Env::fake(0, 1);
    ReadContext::unlimited(env.clock)
}

/// Labels, times and bits of a series.
type Found = (Labels, Vec<i64>, Vec<u64>);

fn read_all(source: &dyn Queryable, ctx: &ReadContext) -> Result<Vec<Found>, QueryError> {
    let selector = Selector { matchers: &[], range: TimeRange::ALL };
    let mut batches = source.select(&selector, ctx)?;
    let mut found = Vec::new();
    let mut batch = Vec::new();
    loop {
        let has_more = batches.next_batch(&mut batch)?;
        for SeriesRead { labels, samples } in batch.drain(..) {
            let mut columns = Columns::default();
            samples.read(TimeRange::ALL, &mut columns)?;
            found.push((labels, columns.times, columns.values.into_iter().map(f64::to_bits).collect()));
        }
        if !has_more {
            assert!(!batches.next_batch(&mut batch)? && batch.is_empty(), "the end stays the end");
            return Ok(found);
        }
    }
}

fn error_text(source: &dyn Queryable) -> String {
    read_all(source, &ctx()).expect_err("an error").to_string()
}

#[test]
fn series_of_a_node_are_those_of_its_store() {
    for series_count in [0, 1, 5, 3000] {
        let store = Store { series_count, ..STORE };
        let found = read_all(&source(node(store)), &ctx()).expect("an answer");
        assert!(found == read_all(&store, &ctx()).expect("series"), "{series_count} series");
    }
    let names =
        source(node(STORE)).label_names(&Selector { matchers: &[], range: TimeRange::ALL }, 0, &ctx());
    assert_eq!(names.expect("names"), ["__name__", "id"]);
}

/// A cut answer looked like all series: the connection of a node that is killed ends like any other.
#[test]
fn an_answer_without_its_end_is_an_error_that_names_the_node() {
    let len = {
        let sent = Arc::new(std::sync::Mutex::new(0));
        let counted = sent.clone();
        let whole = node_with(STORE, move |bytes| {
            *counted.lock().expect("not poisoned") = bytes.len();
            bytes
        });
        read_all(&source(whole), &ctx()).expect("an answer");
        *sent.lock().expect("not poisoned")
    };
    for kept in 0..len {
        let cut = node_with(STORE, move |mut bytes| {
            bytes.truncate(kept);
            bytes
        });
        let error = read_all(&source(cut), &ctx()).expect_err("cut");
        assert!(matches!(error, QueryError::Unavailable { .. }) && error.is_of_source());
        let want = format!("node n1:9595: the answer ends after {kept} bytes without its end");
        assert_eq!(error.to_string(), want);
    }
    for at in 0..len {
        let damaged = node_with(STORE, move |mut bytes| {
            bytes[at] ^= 1;
            bytes
        });
        let error = error_text(&source(damaged));
        assert!(error.contains("node n1:9595"), "byte {at}: {error}");
    }
}

#[test]
fn failures_of_a_node_keep_their_kind_and_name_it() {
    let check = |failure: Failure, want: &str| {
        let store = Store { failure: Some(failure), ..STORE };
        let error = read_all(&source(node(store)), &ctx()).expect_err("a failure");
        assert_eq!(error.to_string(), want);
        assert_eq!(
            error.is_of_source(),
            !matches!(failure(), QueryError::Selection(_) | QueryError::Limit { .. })
        );
    };
    check(|| QueryError::Canceled, "node n1:9595: the query was canceled there");
    check(|| QueryError::Timeout, "node n1:9595: the query timed out there");
    check(
        || QueryError::Corrupt { path: "/data/b".to_owned(), what: "chunk".to_owned() },
        "node n1:9595: /data/b: chunk",
    );
    check(|| QueryError::Unavailable { what: "starting".to_owned() }, "node n1:9595: starting");
    check(
        || QueryError::Limit { what: "opens too many blocks", limit: 5 },
        "node n1:9595: query opens too many blocks: limit 5",
    );
    check(
        || SelectionExceeded::Series { used: 2, limit: 1 }.into(),
        "query selects 2 series or more, and query.max-selected-series allows 1",
    );
    check(
        || QueryError::Io { path: "/data/b".to_owned(), error: std::io::Error::other("no space") },
        "reading /data/b of node n1:9595: no space",
    );
}

#[test]
fn limits_of_a_call_end_the_answer() {
    let limited = |limits| source(node(STORE)).with_limits(limits);
    let none = SelectLimits::default();
    let exact = SelectLimits { series_max: 3, samples_max: 300, bytes_max: 1 << 20 };
    assert_eq!(read_all(&limited(exact), &ctx()).expect("within limits").len(), 3);
    let error = error_text(&limited(SelectLimits { series_max: 2, ..none }));
    assert_eq!(error, "query selects 3 series or more, and query.max-selected-series allows 2");
    let error = error_text(&limited(SelectLimits { samples_max: 299, ..none }));
    assert_eq!(error, "query reads 300 samples or more, and query.max-selected-samples allows 299");
    let error = error_text(&limited(SelectLimits { bytes_max: 100, ..none }));
    assert!(
        error.starts_with("node n1:9595: query reads more bytes") && error.ends_with("limit 100"),
        "{error}"
    );
}

#[test]
fn memory_of_an_answer_is_reserved_while_its_series_are_kept() {
    let budget = MemoryBudget::new("query", 1 << 30);
    let (env, _, _) = Env::fake(0, 1);
    let ctx = ReadContext::new(env.clock.clone(), u64::MAX, budget.clone());
    let store = Store { series_count: 2000, ..STORE };
    let all = Selector { matchers: &[], range: TimeRange::ALL };
    let mut batches = source(node(store)).select(&all, &ctx).expect("opens");
    let mut kept = Vec::new();
    while batches.next_batch(&mut kept).expect("a batch") {}
    drop(batches);
    let used = budget.used_bytes();
    assert!(kept.len() == 2000 && used > 200_000, "{used} bytes");
    kept.truncate(1);
    let of_one = budget.used_bytes();
    assert!(0 < of_one && of_one < used, "{of_one} bytes");
    drop(kept);
    assert_eq!(budget.used_bytes(), 0);
    let small = ReadContext::new(env.clock, u64::MAX, MemoryBudget::new("query", 50_000));
    let error = read_all(&source(node(store)), &small).expect_err("no room");
    assert!(matches!(error, QueryError::Memory(_)), "{error}");
}

#[test]
fn a_canceled_query_stops_to_read_and_an_expired_one_too() {
    let ctx = ctx();
    ctx.cancel();
    assert!(matches!(read_all(&source(node(STORE)), &ctx), Err(QueryError::Canceled)));
    let (env, clock, _) = Env::fake(0, 1);
    let deadline_ns = clock.mono_ns() + 1_000_000;
    let expiring = ReadContext::new(env.clock.clone(), deadline_ns, MemoryBudget::new("query", u64::MAX));
    let opened = source(node(STORE)).select(&Selector { matchers: &[], range: TimeRange::ALL }, &expiring);
    clock.advance(std::time::Duration::from_secs(1));
    let found = opened.expect("opens").next_batch(&mut Vec::new());
    assert!(matches!(found, Err(QueryError::Timeout)));
    let unable = ReadContext::unlimited(env.clock).without_waiting();
    assert!(source(node(STORE)).select(&Selector { matchers: &[], range: TimeRange::ALL }, &unable).is_err());
}

/// The sink of a client that is gone ends the answer without a further frame.
#[test]
fn an_answer_ends_with_its_sink() {
    let call = |limits| SelectCall {
        tenant: tenant(),
        store: RecordStore::Default,
        view: SelectView::Tenant,
        deadline_ms: 0,
        limits,
        catalogue: 0,
        consistency: ReadConsistency::default(),
        question: SelectQuestion::Read(Read::of(
            &Selector { matchers: &[], range: TimeRange::ALL },
            Wanted::Series,
        )),
    };
    let store = Store { series_count: 20_000, ..STORE };
    let mut count = 0;
    let mut send = |_: Vec<u8>| {
        count += 1;
        if count == 2 { Err(QueryError::Unavailable { what: "gone".to_owned() }) } else { Ok(()) }
    };
    let ended = send_answer(&store, &call(SelectLimits::default()), 0, &ctx(), &|| Ok(()), &mut send);
    assert!(matches!(ended, Err(QueryError::Unavailable { .. })));
    assert_eq!(count, 2);
    let mut send = |_: Vec<u8>| Ok(());
    let limits = SelectLimits { series_max: 1, ..SelectLimits::default() };
    let ended = send_answer(&STORE, &call(limits), 0, &ctx(), &|| Ok(()), &mut send);
    assert!(matches!(ended, Ok(AnswerEnd::Failed(QueryError::Selection(_)))));
}

#[test]
fn warnings_of_a_node_are_warnings_of_the_query() {
    let ctx = ctx();
    let store = Store { warning: Some("slow"), ..STORE };
    assert_eq!(read_all(&source(node(store)), &ctx).expect("an answer").len(), 3);
    let warnings = ctx.warnings();
    assert!(warnings.is_partial());
    let want = "partial result: node n1:9595 failed: slow; partial result: a block failed: away";
    assert_eq!(warnings.texts(), [want]);
}

struct Nodes(Vec<Arc<Loopback>>);

impl PeerList for Nodes {
    fn peers(&self) -> Result<Vec<Arc<dyn PeerTransport>>, QueryError> {
        Ok(self.0.iter().map(|node| node.clone() as Arc<dyn PeerTransport>).collect())
    }
}

#[test]
fn several_nodes_are_one_source_and_one_may_be_missing_if_the_query_allows_it() {
    let away = Store { failure: Some(|| QueryError::Unavailable { what: "starting".to_owned() }), ..STORE };
    let larger = Store { series_count: 5, ..STORE };
    let sources = |nodes: Vec<Arc<Loopback>>| {
        PeerSources::new(Arc::new(Nodes(nodes)), SelectLimits::default()).queryable(&tenant())
    };
    let found = read_all(&*sources(vec![node(STORE), node(larger)]), &ctx()).expect("both answer");
    assert!(found == read_all(&larger, &ctx()).expect("series"), "equal samples are read once");
    let with_one_away = sources(vec![node(larger), node(away)]);
    assert_eq!(error_text(&*with_one_away), "node n1:9595: starting");
    let ctx = ctx();
    let selector = Selector { matchers: &[], range: TimeRange::ALL };
    let request = SelectRequest { allows_partial: true, ..SelectRequest::new(&selector) };
    let mut batches = with_one_away.open_series(request, &ctx).expect("opens");
    let mut found = Vec::new();
    while batches.next_batch(&mut found).expect("a partial result") {}
    assert_eq!((found.len(), ctx.warnings().is_partial()), (5, true));
}
