//! Sources next to the store: failures in part, warnings, hints, deadline, cancellation.

use std::sync::Mutex;
use std::time::Duration;

use chronolith_model::change::{ChangeWatch, Changed, Generation};
use chronolith_model::query::{
    Opened, Read, SERIES_PER_BATCH_MAX, SelectRequest, Source, TenantSources, Wanted, visit_listed,
};
use chronolith_model::{
    Columns, Labels, QueryError, Queryable, ReadContext, SampleSource, SeriesBatches, SeriesRead, TenantId,
    TimeRange,
};
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::*;

/// Behaviour of a source that has more series of `m` than fit into a batch.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Behaviour {
    Warns,
    /// The second batch cannot be read.
    FailsHalfWay,
    /// The samples of one series cannot be read.
    FailsAtSamples,
    /// Label values take until the query ends.
    Waits,
}

#[derive(Clone)]
struct Remote {
    behaviour: Behaviour,
    /// Hints and remaining time of each selection.
    selections: Arc<Mutex<Vec<String>>>,
    events: Sender<String>,
}

impl ChangeWatch for Remote {
    fn generation(&self, _: &TenantId) -> Generation {
        Generation::UNKNOWN
    }

    fn changed_since(&self, _: &TenantId, _: &Generation) -> Changed {
        Changed::NOTHING
    }
}

impl TenantSources for Remote {
    fn queryable(&self, _: &TenantId) -> Arc<dyn Queryable> {
        Arc::new(self.clone())
    }
}

fn unreachable() -> QueryError {
    QueryError::Io { path: "http://b".to_owned(), error: std::io::ErrorKind::ConnectionReset.into() }
}

struct Batches {
    behaviour: Behaviour,
    next: usize,
}

impl SeriesBatches for Batches {
    fn next_batch(&mut self, out: &mut Vec<SeriesRead>) -> Result<bool, QueryError> {
        if self.next > 0 && self.behaviour == Behaviour::FailsHalfWay {
            return Err(unreachable());
        }
        out.extend((0..SERIES_PER_BATCH_MAX).map(|idx| {
            let id = format!("remote{:05}", self.next + idx);
            let fails = self.behaviour == Behaviour::FailsAtSamples && self.next + idx == 3;
            let labels = Labels::from_pairs([("__name__", "m"), ("id", id.as_str())]);
            SeriesRead { labels, samples: Box::new(OneSample { fails }) }
        }));
        self.next += SERIES_PER_BATCH_MAX;
        Ok(self.next < 2 * SERIES_PER_BATCH_MAX)
    }
}

struct OneSample {
    fails: bool,
}

impl SampleSource for OneSample {
    fn read(&self, _: TimeRange, out: &mut Columns) -> Result<(), QueryError> {
        if self.fails {
            return Err(unreachable());
        }
        out.push(NOW_MS - 5000, 1.0);
        Ok(())
    }

    fn sample_count_hint(&self) -> usize {
        1
    }
}

impl Remote {
    fn select(&self, request: &SelectRequest, ctx: &ReadContext) -> Opened {
        let SelectRequest { function, grouping, step_ms, range_ms, .. } = request;
        let names = grouping.as_ref().map(|grouping| grouping.names.join(","));
        let left_s = ctx.remaining_ns() / 1_000_000_000;
        let asked = format!("{function} by {names:?} step {step_ms} range {range_ms} in {left_s} s");
        self.selections.lock().unwrap().push(asked);
        if self.behaviour == Behaviour::Warns {
            ctx.warn("block 7 is not replicated".to_owned());
        }
        Opened::Series(Box::new(Batches { behaviour: self.behaviour, next: 0 }))
    }

    fn values(&self, ctx: &ReadContext) -> Result<Vec<String>, QueryError> {
        self.events.try_send("begun".to_owned()).unwrap();
        if self.behaviour != Behaviour::Waits {
            return Ok(vec!["remote".to_owned()]);
        }
        loop {
            ctx.check().inspect_err(|error| self.events.try_send(error.to_string()).unwrap())?;
            std::thread::yield_now();
        }
    }
}

impl Source for Remote {
    fn open(&self, read: Read, ctx: &ReadContext) -> Result<Opened, QueryError> {
        match read.wanted {
            Wanted::Series => Ok(self.select(&read.request, ctx)),
            Wanted::Estimate => Ok(Opened::Estimate(None)),
            Wanted::LabelNames => Err(unreachable()),
            Wanted::LabelValues { .. } => {
                let remote = self.clone();
                let ctx = ctx.clone();
                Ok(Opened::List(Box::new(move || remote.values(&ctx))))
            }
            Wanted::EachLabelValue { name, prefix } => visit_listed(self, read.request, name, prefix, ctx),
            Wanted::SoleLabelValues { .. } => Ok(Opened::Cursor(None)),
        }
    }
}

/// A store with a sample of `m`, next to a source that is not required.
async fn next_to_store(behaviour: Behaviour) -> (Fixture, Remote, Receiver<String>) {
    let (events, received) = channel(16);
    let remote = Remote { behaviour, selections: Arc::default(), events };
    let sources = Arc::new(remote.clone());
    let part = SourcePart { name: "replica b".to_owned(), sources, is_required: false };
    let server = Fixture::starting().open_with(vec![part]);
    server.write(&[(&[("__name__", "m"), ("id", "local")], &[(NOW_MS - 1000, 1.0)])]).await;
    (server, remote, received)
}

const FAILED: &str = "partial result: replica b failed: reading http://b: connection reset";

/// Sum and warnings of a query over all series, each of which is 1.
async fn sum(server: &Fixture) -> (String, Value) {
    let answer = server.get(&format!("/api/v1/query?query=sum(m)&time={NOW_S}")).await.json();
    (answer["data"]["result"][0]["value"][1].to_string(), answer["warnings"].clone())
}

#[tokio::test]
async fn a_part_that_fails_leaves_a_warning() {
    let batch = SERIES_PER_BATCH_MAX;
    for (behaviour, count, warning) in [
        (Behaviour::Warns, 2 * batch + 1, "block 7 is not replicated"),
        (Behaviour::FailsHalfWay, batch + 1, FAILED),
        (Behaviour::FailsAtSamples, 2 * batch, FAILED),
    ] {
        let (server, ..) = next_to_store(behaviour).await;
        assert_eq!(
            sum(&server).await,
            (format!("\"{count}\""), serde_json::json!([warning])),
            "{behaviour:?}"
        );
        let series = server.get("/api/v1/series?match[]=m").await.json();
        let failed_at_labels = behaviour != Behaviour::FailsAtSamples;
        assert_eq!(series["warnings"].is_array(), failed_at_labels, "{behaviour:?}");
        let names = server.get("/api/v1/labels").await.json();
        assert_eq!(names["data"], serde_json::json!(["__name__", "id"]), "{behaviour:?}");
        assert_eq!(names["warnings"], serde_json::json!([FAILED]), "{behaviour:?}");
    }
}

#[tokio::test]
async fn answers_without_room_for_warnings_are_refused() {
    let (server, ..) = next_to_store(Behaviour::FailsHalfWay).await;
    let federated = server.get("/federate?match[]=m").await;
    assert_eq!(
        (federated.status.as_u16(), federated.text.contains(FAILED)),
        (422, true),
        "{}",
        federated.text
    );
    let (server, ..) = next_to_store(Behaviour::Warns).await;
    assert_eq!(server.get("/federate?match[]=m").await.status, 200);
}

#[tokio::test]
async fn results_with_warnings_of_sources_are_not_cached() {
    let (server, ..) = next_to_store(Behaviour::Warns).await;
    let path = format!("/api/v1/query_range?query=sum(m)&start={}&end={NOW_S}&step=15", NOW_S - 60);
    for _ in 0..2 {
        assert_eq!(server.get(&path).await.json()["warnings"][0], "block 7 is not replicated");
    }
    assert_eq!(server.web.service.queries.cache.counts().entries, 0);
}

#[tokio::test]
async fn sources_get_hints_and_the_remaining_time() {
    let (server, remote, _) = next_to_store(Behaviour::Warns).await;
    for (query, want) in [
        ("m", " by None step 15000 range 0"),
        ("sum%20by%20(job,id)(m)", "sum by Some(\"id,job\") step 15000 range 0"),
        ("rate(m[2m])", "rate by None step 15000 range 120000"),
        ("count(m)%20%2B%20count(m)", "count by Some(\"\") step 15000 range 0"),
        ("m%20/%20-m", " by None step 15000 range 0"),
    ] {
        remote.selections.lock().unwrap().clear();
        let path = "/api/v1/query_range?nocache=1&timeout=7s&step=15";
        server.get(&format!("{path}&query={query}&start={}&end={NOW_S}", NOW_S - 60)).await;
        let found = remote.selections.lock().unwrap().last().cloned();
        // A small query begins with less time, on the thread that read it.
        let found = found.and_then(|found| Some(found.split_once(" in ")?.0.to_owned()));
        assert_eq!(found.as_deref(), Some(want), "{query}");
    }
    remote.selections.lock().unwrap().clear();
    server.get("/api/v1/series?match[]=m").await;
    let seconds = server.web.service.options.query.timeout_ms / 1000;
    let want = format!(" by None step 0 range 0 in {seconds} s");
    assert_eq!(*remote.selections.lock().unwrap(), [want]);
}

#[tokio::test]
async fn sources_notice_that_the_client_has_left() {
    let (server, _, mut events) = next_to_store(Behaviour::Waits).await;
    let asked = tokio::spawn(async move { server.get("/api/v1/label/id/values").await });
    assert_eq!(events.recv().await.as_deref(), Some("begun"));
    asked.abort();
    assert_eq!(events.recv().await.as_deref(), Some("query was canceled"));
}

#[tokio::test]
async fn sources_notice_the_deadline() {
    let (events, mut received) = channel(16);
    let remote = Remote { behaviour: Behaviour::Waits, selections: Arc::default(), events };
    let part = SourcePart { name: "b".to_owned(), sources: Arc::new(remote), is_required: false };
    let (env, clock, _disk) = Env::fake(NOW_MS, 1);
    let options = ServerOptions::new("/data".into());
    let server = Fixture::new(Arc::new(Web::new(env, options, None))).open_with(vec![part]);
    let asked = tokio::spawn(async move { server.get("/api/v1/label/id/values").await });
    assert_eq!(received.recv().await.as_deref(), Some("begun"));
    clock.advance(Duration::from_secs(3600));
    assert_eq!(received.recv().await.as_deref(), Some("query timed out"));
    check_error(&asked.await.unwrap(), 503, "timeout", "query timed out in expression evaluation");
}
