//! Equality: a query over a store, and over the same store seen by another node through the bytes of a
//! select, returns the same bits. All kinds of samples, in order and out of order, in head and blocks.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use chronolith_base::Rng;
use chronolith_format::chunk::kinds;
use chronolith_format::record::RecordStore;
use chronolith_format::select::{SelectView, decode_call};
use chronolith_model::histogram::ResetHint;
use chronolith_model::kind::{word_of_integer, word_of_unsigned};
use chronolith_model::query::{
    ColumnType, Projection, SampleNeed, SamplesPart, SelectRequest, Shard, TypedColumns, TypedValues,
};
use chronolith_model::sample::STALE_NAN;
use chronolith_model::{
    Columns, FIELD_LABEL, Histogram, Labels, MatchOp, Matcher, QueryError, Queryable, ReadContext, Selector,
    SeriesRead, StoreId, TenantId, TimeRange, WordKind, WriteBatch,
};
use chronolith_tsdb::{
    AnswerEnd, BlockEncoding, PeerSource, PeerStore, PeerStream, PeerTransport, Tsdb, send_answer,
};

use crate::fixture::{HOUR_MS, Machine, START_MS};
use crate::kinds::{Sample, push, random_sample};

const SEEDS: u64 = 4;
const WRITES: u64 = 60;

/// Node in this process, whose answers arrive in pieces of this size.
struct Loopback {
    tsdb: Arc<Tsdb>,
    ctx: ReadContext,
    piece_bytes: usize,
}

struct Pieces(VecDeque<Vec<u8>>);

impl PeerStream for Pieces {
    fn next_bytes(&mut self, _: &ReadContext) -> Result<Option<Vec<u8>>, QueryError> {
        Ok(self.0.pop_front())
    }
}

impl PeerTransport for Loopback {
    fn node(&self) -> &str {
        "owner-0:9595"
    }

    fn send(&self, call: Vec<u8>, _: &ReadContext) -> Box<dyn PeerStream> {
        let call = decode_call(&call).expect("a call");
        let source = self.tsdb.reader().source_of(&call);
        let mut bytes = Vec::new();
        let mut send = |mut frames: Vec<u8>| {
            bytes.append(&mut frames);
            Ok(())
        };
        let ended =
            send_answer(&*source, &call, 0, &self.ctx, &|| Ok(()), &mut send).expect("the sink has no error");
        assert!(matches!(ended, AnswerEnd::Complete), "{ended:?}");
        Box::new(Pieces(bytes.chunks(self.piece_bytes).map(<[u8]>::to_vec).collect()))
    }
}

/// All bits of the samples, without the reset hints of histograms: hints of the first sample of a part of the
/// range are unknown, or refer to the sample before.
fn bits_without_hints(columns: &Columns) -> String {
    let mut columns = columns.clone();
    for (_, histogram) in &mut columns.histograms {
        let mut unknown = Histogram::clone(histogram);
        unknown.set_reset_hint(ResetHint::Unknown);
        *histogram = Arc::new(unknown);
    }
    bits(&columns)
}

/// All bits of the samples.
fn bits(columns: &Columns) -> String {
    let values: Vec<u64> = columns.values.iter().map(|value| value.to_bits()).collect();
    let starts: Vec<i64> = (0..columns.len()).map(|at| columns.start_time_at(at)).collect();
    format!("{:?} {values:x?} {starts:?} {:?}", columns.times, columns.histograms)
}

fn typed_bits(typed: &TypedColumns) -> String {
    match &typed.values {
        TypedValues::Floats(values) => {
            let values: Vec<u64> = values.iter().map(|value| value.to_bits()).collect();
            format!("{:?} {values:x?}", typed.times)
        }
        other => format!("{:?} {other:?}", typed.times),
    }
}

/// Times of the samples that a visit without stored chunks returns.
fn visited_times(series: &SeriesRead, range: TimeRange) -> Vec<i64> {
    let mut times = Vec::new();
    let mut visit = |part: SamplesPart<'_>| {
        match part {
            SamplesPart::Stored(chunk) => unreachable!("{} is not accepted", chunk.encoding),
            SamplesPart::Decoded(part) => times.extend(&part.times),
        }
        Ok(())
    };
    series.samples.visit_chunks(range, &|_| false, &mut Columns::default(), &mut visit).expect("visits");
    times
}

/// Answer of a source: per series labels, type, and the bits by each way to read.
fn read(
    source: &dyn Queryable,
    request: &SelectRequest,
    parts: &[TimeRange],
    ctx: &ReadContext,
) -> Vec<String> {
    let mut batches = source.open_series(request.clone(), ctx).expect("opens");
    let mut series = Vec::new();
    while batches.next_batch(&mut series).expect("a batch") {}
    let mut found = Vec::new();
    for one in series {
        let column_type = one.samples.column_type();
        let mut text = format!("{} {column_type:?}", one.labels);
        if request.samples == SampleNeed::Newest {
            // Older samples may be left out.
            let mut columns = Columns::default();
            one.samples.read(request.range, &mut columns).expect("reads");
            columns.remove(0..columns.len().saturating_sub(1));
            found.push(format!("{text} {}", bits_without_hints(&columns)));
            continue;
        }
        for range in parts {
            let mut columns = Columns::default();
            one.samples.read(*range, &mut columns).expect("reads");
            let is_whole = *range == request.range;
            text.push_str(&if is_whole { bits(&columns) } else { bits_without_hints(&columns) });
            let mut typed = TypedColumns::new(column_type);
            one.samples.read_typed(*range, &mut typed).expect("reads");
            text.push_str(&typed_bits(&typed));
            assert_eq!(visited_times(&one, *range), columns.times);
        }
        found.push(text);
    }
    found
}

fn labels(metric: &str, id: u64) -> Labels {
    let id = id.to_string();
    Labels::from_pairs([("__name__", metric), ("id", id.as_str()), ("job", "node")])
}

/// Times near now, some of them hours before.
fn times(rng: &Rng, machine: &Machine) -> Vec<i64> {
    let now = machine.env.clock.now_ms();
    let age = if rng.below(4) == 0 { 6 * HOUR_MS.unsigned_abs() } else { 600_000 };
    let mut times: Vec<i64> = (0..=rng.below(150)).map(|_| now - rng.below(age) as i64).collect();
    if rng.below(4) > 0 {
        times.sort_unstable();
        times.dedup();
    }
    times
}

fn random_write(rng: &Rng, machine: &Machine, tsdb: &Tsdb) {
    let mut batch = WriteBatch::from_labels();
    for offset in 0..3 {
        let id = rng.below(6);
        let times = times(rng, machine);
        let level = machine.env.clock.now_ms().unsigned_abs() / 60_000 % 10_000 + offset;
        let sample = |&at: &i64| match id {
            0 | 1 => (at, Sample::Float(at as f64 / 1000.0)),
            2 => (at, Sample::Float([STALE_NAN, f64::NAN, -0.0, 1e300][rng.below(4) as usize])),
            _ => (at, random_sample(rng, level)),
        };
        let samples: Vec<(i64, Sample)> = times.iter().map(sample).collect();
        push(&mut batch, &labels("mixed", id), &samples);
        if rng.below(2) == 0 {
            batch.start_times.resize(batch.times.len(), 0);
            let starts = batch.start_times.len() - times.len();
            batch.start_times[starts..].iter_mut().for_each(|start| *start = START_MS - 1000 * id as i64);
        }
    }
    if !batch.start_times.is_empty() {
        batch.pad_start_times();
    }
    tsdb.append(&StoreId::anonymous(), &batch).expect("stored");
    let mut batch = WriteBatch::from_labels();
    let times = times(rng, machine);
    let of_field = |field: &str| Labels::from_pairs([("__name__", "m"), (FIELD_LABEL, field), ("a", "b")]);
    let words: Vec<(i64, u64)> = times
        .iter()
        .map(|&time| (time, word_of_integer([i64::MIN, -1, time, (1 << 53) + 1][rng.below(4) as usize])))
        .collect();
    batch.push_words(&of_field("int"), WordKind::Integer, &words);
    let words: Vec<(i64, u64)> = times.iter().map(|&time| (time, word_of_unsigned(time as u64))).collect();
    batch.push_words(&of_field("uint"), WordKind::Unsigned, &words);
    let words: Vec<(i64, u64)> = times.iter().map(|&time| (time, ((time % 2) as f64).to_bits())).collect();
    batch.push_words(&of_field("bool"), WordKind::Boolean, &words);
    let texts: Vec<(i64, &[u8])> =
        times.iter().map(|&time| (time, [&b"on"[..], b"off", b""][time as usize % 3])).collect();
    batch.push_texts(&of_field("text"), &texts);
    tsdb.append(&StoreId::anonymous(), &batch).expect("stored");
}

/// Requests of every form over random ranges.
fn requests(rng: &Rng, machine: &Machine) -> Vec<SelectRequest> {
    let now = machine.env.clock.now_ms();
    let start = now - rng.below(8 * HOUR_MS.unsigned_abs()) as i64;
    let ranges =
        [TimeRange::ALL, TimeRange::new(start, start + rng.below(2 * HOUR_MS.unsigned_abs()) as i64)];
    let matchers = [
        Vec::new(),
        vec![Matcher::new("id", MatchOp::Regex, "[0-3]").expect("compiles")],
        vec![Matcher::equal("__name__", "m")],
    ];
    let mut requests = Vec::new();
    for range in ranges {
        for matchers in &matchers {
            let selector = Selector { matchers, range };
            let all = SelectRequest::new(&selector);
            requests.push(SelectRequest::newest(&selector));
            requests.push(SelectRequest { shard: Shard::new(rng.below(2) as u32, 2), ..all.clone() });
            let column_type =
                [ColumnType::Histogram, ColumnType::Integer, ColumnType::Text, ColumnType::Boolean]
                    [rng.below(4) as usize];
            requests.push(SelectRequest { column_type, ..all.clone() });
            requests.push(all);
        }
    }
    requests
}

/// Compares both sources by all requests.
fn compare(rng: &Rng, machine: &Machine, tsdb: &Arc<Tsdb>, when: &str) -> usize {
    let ctx = ReadContext::unlimited(machine.env.clock.clone());
    let piece_bytes = [1000, 100_000, 1 << 24][rng.below(3) as usize];
    let transport = Arc::new(Loopback { tsdb: tsdb.clone(), ctx: ctx.clone(), piece_bytes });
    let tenant = TenantId::anonymous();
    let peer = |view| {
        let store = PeerStore { store: RecordStore::Default, view };
        PeerSource::new(transport.clone(), &tenant).with_store(store)
    };
    let reader = tsdb.reader();
    let pairs = [
        (reader.queryable(&tenant), peer(SelectView::Tenant)),
        (reader.store_queryable(&StoreId::anonymous()), peer(SelectView::Store)),
        (reader.typed_queryable(&StoreId::anonymous()), peer(SelectView::Typed)),
    ];
    let mut compared = 0;
    for request in requests(rng, machine) {
        let range = request.range;
        let middle = machine.env.clock.now_ms() - rng.below(HOUR_MS.unsigned_abs()) as i64;
        let middle = middle.clamp(range.start, range.end);
        let parts = [range, TimeRange::new(range.start, middle), TimeRange::new(middle, range.end)];
        for (store, peer) in &pairs {
            let want = read(&**store, &request, &parts, &ctx);
            let found = read(peer, &request, &parts, &ctx);
            for (found, want) in found.iter().zip(&want) {
                assert_eq!(found, want, "{when}: {request:?}");
            }
            assert_eq!(found.len(), want.len(), "{when}: {request:?}");
            compared += want.len();
            let selector = &request.selector();
            let of_store = store.label_values("id", selector, 3, &ctx).expect("values");
            assert_eq!(peer.label_values("id", selector, 3, &ctx).expect("values"), of_store);
            let of_store = store.label_names(selector, 0, &ctx).expect("names");
            assert_eq!(peer.label_names(selector, 0, &ctx).expect("names"), of_store);
        }
    }
    compared
}

fn run(seed: u64) -> usize {
    let mut machine = Machine::new(seed);
    if seed % 2 == 1 {
        machine.options.limits.default.block_encoding = BlockEncoding::Prometheus;
    }
    let rng = Rng::from_seed(seed);
    let tsdb = machine.open();
    let mut compared = 0;
    for op in 0..WRITES {
        random_write(&rng, &machine, &tsdb);
        match rng.below(10) {
            0 => tsdb.maintenance().flush_closed(machine.env.clock.now_ms()).expect("flushes"),
            1..4 => machine.clock.advance(Duration::from_secs(rng.below(1800))),
            _ => {}
        }
        if op % 20 == 19 {
            tsdb.maintenance().run();
            compared += compare(&rng, &machine, &tsdb, &format!("seed {seed}, operation {op}"));
        }
    }
    compared
}

#[test]
fn a_store_behind_a_select_returns_the_same_bits() {
    let compared: usize = (0..SEEDS).map(run).sum();
    assert!(compared > 1000, "only {compared} series compared");
}

/// Series with some of their labels, as `count` and `group` read them: their number per group stays.
#[test]
fn presence_has_the_same_groups() {
    let machine = Machine::new(1);
    let tsdb = machine.open();
    let rng = Rng::from_seed(5);
    (0..5).for_each(|_| random_write(&rng, &machine, &tsdb));
    let ctx = ReadContext::unlimited(machine.env.clock.clone());
    let tenant = TenantId::anonymous();
    let transport = Arc::new(Loopback { tsdb: tsdb.clone(), ctx: ctx.clone(), piece_bytes: 4096 });
    let peer = PeerSource::new(transport, &tenant);
    let selector = Selector { matchers: &[Matcher::equal("__name__", "mixed")], range: TimeRange::ALL };
    let request = SelectRequest {
        presence_only: true,
        grouping: Some(Projection::new(&["job"], true)),
        ..SelectRequest::newest(&selector)
    };
    let groups = |source: &dyn Queryable| {
        let mut batches = source.open_series(request.clone(), &ctx).expect("opens");
        let mut series = Vec::new();
        while batches.next_batch(&mut series).expect("a batch") {}
        let mut groups: Vec<String> =
            series.iter().map(|one| one.labels.get("job").unwrap_or_default().to_owned()).collect();
        groups.sort();
        groups
    };
    let want = groups(&*tsdb.reader().queryable(&tenant));
    assert!(!want.is_empty());
    assert_eq!(groups(&peer), want);
}

/// Samples of a visit that takes chunks as they are, and the number of these.
fn visited(series: &SeriesRead, range: TimeRange) -> (Columns, usize) {
    let mut columns = Columns::default();
    let mut stored_count = 0;
    let mut visit = |part: SamplesPart<'_>| {
        match part {
            SamplesPart::Stored(chunk) => {
                let start = columns.len();
                kinds::decode(chunk.encoding, chunk.bytes, TimeRange::ALL, &mut columns).expect("decodes");
                assert_eq!(columns.len() - start, chunk.sample_count);
                assert_eq!(
                    (columns.times[start], columns.times.last()),
                    (chunk.min_time, Some(&chunk.max_time))
                );
                stored_count += 1;
            }
            SamplesPart::Decoded(part) => (0..part.len()).for_each(|at| columns.push_from(part, at)),
        }
        Ok(())
    };
    series.samples.visit_chunks(range, &|_| true, &mut Columns::default(), &mut visit).expect("visits");
    (columns, stored_count)
}

/// Every chunk of the head was decoded for a visit, and encoded again for another node.
#[test]
fn chunks_of_the_head_are_visited_as_they_are() {
    let machine = Machine::new(3);
    let tsdb = machine.open();
    let ctx = ReadContext::unlimited(machine.env.clock.clone());
    let mut batch = WriteBatch::from_labels();
    let samples: Vec<(i64, f64)> =
        (0..1000).map(|at| (START_MS - 1_000_000 + at * 1000, at as f64)).collect();
    batch.push_labels(&labels("in-order", 1), &samples);
    batch.push_labels(&labels("out-of-order", 2), &samples);
    tsdb.append(&StoreId::anonymous(), &batch).expect("stored");
    let mut batch = WriteBatch::from_labels();
    batch.push_labels(&labels("out-of-order", 2), &[(START_MS - 500_500, 0.5), (START_MS - 900_500, 0.5)]);
    tsdb.append(&StoreId::anonymous(), &batch).expect("stored");
    let source = tsdb.reader().queryable(&TenantId::anonymous());
    let mut series = Vec::new();
    let all = Selector { matchers: &[], range: TimeRange::ALL };
    let mut batches = source.select(&all, &ctx).expect("opens");
    while batches.next_batch(&mut series).expect("a batch") {}
    let inner = TimeRange::new(START_MS - 700_500, START_MS - 200_500);
    let mut stored_counts = Vec::new();
    for range in [TimeRange::ALL, inner] {
        for one in &series {
            let mut want = Columns::default();
            one.samples.read(range, &mut want).expect("reads");
            let found = visited(one, range);
            assert_eq!(bits(&found.0), bits(&want));
            stored_counts.push(found.1);
        }
    }
    assert!(stored_counts[..2].iter().all(|count| *count > 0), "{stored_counts:?}");
    assert!(
        stored_counts[1] < stored_counts[0],
        "chunks with out-of-order samples are decoded: {stored_counts:?}"
    );
}
