//! Windows that have left a node for a block of a later catalogue.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use chronolith_base::ManualClock;
use chronolith_format::record::RecordStore;
use chronolith_format::select::{SelectLimits, SelectView, decode_call};
use chronolith_model::query::{SelectRequest, VecBatches};
use chronolith_model::{Columns, Labels, SampleSource, Selector};

use super::*;
use crate::query::answer::send_answer;
use crate::query::peer::sources::PeerList;
use crate::query::peer::transport::{PeerStream, PeerTransport};

/// A node and a bucket: what the node has had below `moved` is in a block of catalogue `newest`.
struct World {
    /// Number of the catalogue that the query node has read.
    known: AtomicU64,
    /// Number of the newest catalogue of the bucket.
    newest: AtomicU64,
    /// Catalogue that has the samples which left the node.
    needed: AtomicU64,
    /// Catalogues that a refresh finds one after the other before the newest.
    slow_refreshes: AtomicU64,
    refreshes: AtomicU64,
}

/// Samples of one series at these times.
struct Times(Vec<i64>);

impl SampleSource for Times {
    fn read(&self, range: TimeRange, out: &mut Columns) -> Result<(), QueryError> {
        self.0.iter().filter(|time| range.contains(**time)).for_each(|time| out.push(*time, *time as f64));
        Ok(())
    }

    fn sample_count_hint(&self) -> usize {
        self.0.len()
    }
}

/// Source of one series.
struct Series(Vec<i64>);

impl Source for Series {
    fn open(&self, read: Read, _: &ReadContext) -> Result<Opened, QueryError> {
        let labels = Labels::from_pairs([("__name__", "up")]);
        Ok(match read.wanted {
            Wanted::Series if self.0.is_empty() => Opened::Series(Box::new(VecBatches::new(Vec::new()))),
            Wanted::Series => {
                let samples = Box::new(Times(self.0.clone()));
                Opened::Series(Box::new(VecBatches::new(vec![SeriesRead { labels, samples }])))
            }
            Wanted::LabelNames => {
                Opened::listed(self.0.iter().map(|time| format!("at_{time}")).collect::<Vec<_>>())
            }
            wanted => Opened::nothing(&wanted),
        })
    }
}

impl World {
    fn load(value: &AtomicU64) -> u64 {
        value.load(Ordering::Relaxed)
    }
}

/// Blocks of the catalogue that the query node has read: sample 1 from catalogue 2 on, sample 2 from 3 on.
struct Blocks(Arc<World>);

impl Source for Blocks {
    fn open(&self, read: Read, ctx: &ReadContext) -> Result<Opened, QueryError> {
        let known = World::load(&self.0.known);
        Series((1..known as i64).collect()).open(read, ctx)
    }
}

impl SeamCatalogue for Arc<World> {
    fn wait(&self, _: &ReadContext) -> Result<(), QueryError> {
        Ok(())
    }

    fn number(&self) -> u64 {
        World::load(&self.known)
    }

    fn refresh(&self, _: &ReadContext) -> Result<(), QueryError> {
        self.refreshes.fetch_add(1, Ordering::Relaxed);
        let slow = World::load(&self.slow_refreshes);
        self.slow_refreshes.store(slow.saturating_sub(1), Ordering::Relaxed);
        let found = if slow > 0 { World::load(&self.known) + 1 } else { World::load(&self.newest) };
        self.known.store(found, Ordering::Relaxed);
        Ok(())
    }
}

/// The node: samples that are not below the needed catalogue, up to 5.
struct Node(Arc<World>);

struct Answer(VecDeque<Vec<u8>>, bool);

impl PeerStream for Answer {
    fn next_bytes(&mut self, _: &ReadContext) -> Result<Option<Vec<u8>>, QueryError> {
        match self.1 {
            true => Err(QueryError::Unavailable { what: "the catalogue is too old".to_owned() }),
            false => Ok(self.0.pop_front()),
        }
    }

    fn is_stale(&self) -> bool {
        self.1
    }
}

impl PeerTransport for Node {
    fn node(&self) -> &str {
        "n1"
    }

    fn send(&self, call: Vec<u8>, ctx: &ReadContext) -> Box<dyn PeerStream> {
        let call = decode_call(&call).expect("a call");
        let needed = World::load(&self.0.needed);
        if call.catalogue < needed {
            return Box::new(Answer(VecDeque::new(), true));
        }
        let mut sent = VecDeque::new();
        let mut send = |frames| {
            sent.push_back(frames);
            Ok(())
        };
        let source = Series((needed.max(1) as i64..=5).collect());
        send_answer(&source, &call, 0, ctx, &|| Ok(()), &mut send).expect("the sink has no error");
        Box::new(Answer(sent, false))
    }
}

impl PeerList for Node {
    fn peers(&self) -> Result<Vec<Arc<dyn PeerTransport>>, QueryError> {
        Ok(vec![Arc::new(Node(self.0.clone()))])
    }
}

fn world(known: u64, newest: u64, needed: u64) -> Arc<World> {
    Arc::new(World {
        known: AtomicU64::new(known),
        newest: AtomicU64::new(newest),
        needed: AtomicU64::new(needed),
        slow_refreshes: AtomicU64::new(0),
        refreshes: AtomicU64::new(0),
    })
}

fn source(world: &Arc<World>) -> SeamSource {
    let recent = PeerSources::new(Arc::new(Node(world.clone())), SelectLimits::default());
    SeamSource {
        recent: Arc::new(recent),
        tenant: TenantId::anonymous(),
        store: PeerStore { store: RecordStore::Default, view: SelectView::Store },
        duplicates: DuplicatePolicy::KeepFirst,
        catalogue: Arc::new(world.clone()),
        blocks: Arc::new(Blocks(world.clone())),
    }
}

/// Times of all samples, with or without the wish for a partial result.
fn times(source: &SeamSource, allows_partial: bool) -> Result<Vec<i64>, QueryError> {
    let ctx = ReadContext::unlimited(Arc::new(ManualClock::new(0)));
    let request = SelectRequest {
        allows_partial,
        ..SelectRequest::new(&Selector { matchers: &[], range: TimeRange::ALL })
    };
    let mut batches = source.open_series(request, &ctx)?;
    let mut series = Vec::new();
    while batches.next_batch(&mut series)? {}
    assert!(ctx.warnings().texts().is_empty(), "{:?}", ctx.warnings().texts());
    let mut columns = Columns::default();
    series.iter().try_for_each(|one| one.samples.read(TimeRange::ALL, &mut columns))?;
    Ok(columns.times)
}

/// Covers the gap between a catalogue of a minute ago and a node that has dropped what a later one has.
#[test]
fn a_query_with_an_old_catalogue_reads_it_again_once() {
    for (known, needed, want_refreshes) in [(1, 0, 0), (3, 3, 0), (3, 2, 0), (1, 3, 1), (2, 3, 1)] {
        for allows_partial in [false, true] {
            let world = world(known, 3, needed);
            let source = source(&world);
            let what = format!("known {known}, needed {needed}");
            assert_eq!(times(&source, allows_partial).expect("samples"), [1, 2, 3, 4, 5], "{what}");
            assert_eq!(World::load(&world.refreshes), want_refreshes, "{what}");
        }
    }
}

/// Windows left the node again while the query opened the blocks of the catalogue that it had just read.
#[test]
fn a_query_reads_the_catalogue_while_it_finds_later_ones() {
    for (slow, want) in [(1, Some(2)), (3, Some(4)), (4, None)] {
        let world = world(1, 9, 9);
        world.slow_refreshes.store(slow, Ordering::Relaxed);
        let found = times(&source(&world), false);
        match want {
            Some(refreshes) => {
                assert_eq!(found.expect("samples"), (1..=8).collect::<Vec<_>>());
                assert_eq!(World::load(&world.refreshes), refreshes);
            }
            None => {
                found.expect_err("the attempts are bounded");
                assert_eq!(World::load(&world.refreshes), ATTEMPTS_MAX as u64);
            }
        }
    }
}

#[test]
fn lists_of_names_have_no_gap_either() {
    let world = world(1, 3, 3);
    let ctx = ReadContext::unlimited(Arc::new(ManualClock::new(0)));
    let all = Selector { matchers: &[], range: TimeRange::ALL };
    let names = source(&world).label_names(&all, 0, &ctx).expect("names");
    assert_eq!(names, ["at_1", "at_2", "at_3", "at_4", "at_5"]);
    assert_eq!(World::load(&world.refreshes), 1);
}

#[test]
fn a_node_that_needs_more_than_the_bucket_has_fails_the_query() {
    let world = world(1, 2, 3);
    for allows_partial in [false, true] {
        let error = times(&source(&world), allows_partial).expect_err("a gap").to_string();
        let want = "node n1: the catalogue is too old, and the bucket has none that is new enough; try again";
        assert_eq!(error, want);
    }
}
