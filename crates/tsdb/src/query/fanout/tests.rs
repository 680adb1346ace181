//! Parts that begin together, and changes of parts.

use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

use chronolith_base::Env;
use chronolith_model::change::ChangedRanges;
use chronolith_model::query::{LabelValueScan, SeriesBatches, VecBatches};
use chronolith_model::{SeriesRead, TimeRange};

use super::*;

const PARTS: usize = 3;

/// A part whose answers need all parts to have begun.
#[derive(Clone, Default)]
struct Meeting {
    begun: Arc<AtomicUsize>,
}

impl Meeting {
    fn check(&self) {
        assert_eq!(self.begun.load(Ordering::Relaxed), PARTS, "a part was waited for before all had begun");
    }
}

struct NoBatches(Meeting);

impl SeriesBatches for NoBatches {
    fn next_batch(&mut self, out: &mut Vec<SeriesRead>) -> Result<bool, QueryError> {
        self.0.check();
        VecBatches::new(Vec::new()).next_batch(out)
    }
}

impl Source for Meeting {
    fn open(&self, read: Read, _: &ReadContext) -> Result<Opened, QueryError> {
        self.begun.fetch_add(1, Ordering::Relaxed);
        let all = self.clone();
        Ok(match read.wanted {
            Wanted::Series => Opened::Series(Box::new(NoBatches(all))),
            Wanted::LabelNames | Wanted::LabelValues { .. } => Opened::List(Box::new(move || {
                all.check();
                Ok(vec!["a".to_owned()])
            })),
            Wanted::EachLabelValue { .. } => Opened::Visit(Box::new(move |visit| {
                all.check();
                visit("a");
                Ok(())
            })),
            Wanted::Estimate => Opened::Estimate(Some(ReadEstimate { series: 1, samples: 2 })),
            Wanted::SoleLabelValues { .. } => Opened::Cursor(None),
        })
    }
}

/// One part was asked after the first batch of the one before: two buckets cost the sum of their latencies.
#[test]
fn all_parts_begin_before_one_is_waited_for() {
    let (env, _, _) = Env::fake(0, 1);
    let ctx = ReadContext::unlimited(env.clock);
    let all = chronolith_model::Selector { matchers: &[], range: TimeRange::ALL };
    let fresh = || {
        let meeting = Meeting::default();
        let part = |name| (name, Arc::new(meeting.clone()) as Arc<dyn Queryable>);
        stores_as_one(vec![part("a"), part("b"), part("c")])
    };
    let mut series = Vec::new();
    while fresh().select(&all, &ctx).expect("opens").next_batch(&mut series).expect("no error") {}
    assert!(series.is_empty());
    assert_eq!(fresh().label_names(&all, 0, &ctx).expect("names"), ["a"]);
    assert_eq!(fresh().label_values("x", &all, 0, &ctx).expect("values"), ["a"]);
    let scan = LabelValueScan { name: "x", prefix: "", range: TimeRange::ALL };
    let mut visited = Vec::new();
    let mut visit = |value: &str| {
        visited.push(value.to_owned());
        true
    };
    fresh().scan_label_values(&scan, &ctx, &mut visit).expect("visits");
    assert_eq!(visited, ["a", "a", "a"]);
    let estimate = fresh().estimate(&all, &ctx).expect("estimates");
    assert_eq!(estimate, Some(ReadEstimate { series: 1, samples: 6 }));
}

/// A part that has changed at one time since each earlier generation.
#[derive(Default)]
struct Changing {
    generation: AtomicI64,
}

impl ChangeWatch for Changing {
    fn generation(&self, _: &TenantId) -> Generation {
        Generation::Number(self.generation.load(Ordering::Relaxed).unsigned_abs())
    }

    fn changed_since(&self, _: &TenantId, generation: &Generation) -> Changed {
        let now = self.generation.load(Ordering::Relaxed);
        if generation.number() == now.unsigned_abs() {
            return Changed::NOTHING;
        }
        let mut written = ChangedRanges::EMPTY;
        written.add(now, now);
        Changed { removed_before_ms: i64::MIN, written }
    }
}

impl TenantSources for Changing {
    fn queryable(&self, _: &TenantId) -> Arc<dyn Queryable> {
        Arc::new(Meeting::default())
    }
}

/// Results over several sources were never cached.
#[test]
fn a_fan_out_has_changed_where_one_of_its_parts_has() {
    let changing = [Arc::new(Changing::default()), Arc::new(Changing::default())];
    let part = |sources: &Arc<Changing>| SourcePart {
        name: "part".to_owned(),
        sources: sources.clone(),
        is_required: true,
    };
    let all = fanout(changing.iter().map(part).collect());
    let tenant = TenantId::anonymous();
    changing.iter().for_each(|part| part.generation.store(1, Ordering::Relaxed));
    let before = all.generation(&tenant);
    assert_eq!(all.changed_since(&tenant, &before), Changed::NOTHING);
    changing[0].generation.store(500, Ordering::Relaxed);
    changing[1].generation.store(900, Ordering::Relaxed);
    let changed = all.changed_since(&tenant, &before);
    assert_eq!(changed.written.as_slice(), [(500, 500), (900, 900)]);
    assert!(changed.spares(501, 899) && !changed.spares(0, 500));
    assert_eq!(all.changed_since(&tenant, &all.generation(&tenant)), Changed::NOTHING);
    assert_eq!(all.changed_since(&tenant, &Generation::UNKNOWN), Changed::EVERYTHING);
}
