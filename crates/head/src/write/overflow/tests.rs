//! Creation of series while others are folded.

use std::path::PathBuf;
use std::sync::{Arc, Barrier, mpsc};
use std::time::Duration;

use chronolith_base::Env;
use chronolith_model::{Labels, OverflowPolicy, StoreId, TenantLimits, WriteBatch, WriteOutcome};

use crate::index::tenant::TenantHead;
use crate::options::HeadOptions;
use crate::recovery::progress::ReplayProgress;
use crate::recovery::recover;
use crate::state::HeadState;
use crate::write::Writer;

const NOW_MS: i64 = 1_700_000_000_000;

fn batch(metric: &str, users: std::ops::Range<u64>, time: i64) -> WriteBatch {
    let mut batch = WriteBatch::from_labels();
    for user in users {
        let labels = Labels::from_pairs([("__name__", metric), ("user", &*user.to_string())]);
        batch.push_labels(&labels, &[(NOW_MS + time, time as f64)]);
    }
    batch
}

struct Fixture {
    state: Arc<HeadState>,
    writer: Writer,
    limits: TenantLimits,
}

impl Fixture {
    fn new(series_max: usize) -> Fixture {
        let (env, _clock, _disk) = Env::fake(NOW_MS, 1);
        let options = HeadOptions { free_bytes_min: 0, ..HeadOptions::new(PathBuf::from("/data")) };
        let recovered = recover(&env, options, &ReplayProgress::default()).expect("opens");
        let mut limits = TenantLimits { series_max, ..TenantLimits::default() };
        limits.ingestion.overflow = OverflowPolicy::Fold;
        Fixture { writer: Writer::new(recovered.state.clone()), state: recovered.state, limits }
    }

    fn append(&self, series_max: usize, batch: &WriteBatch) -> WriteOutcome {
        let limits = TenantLimits { series_max, ..self.limits.clone() };
        self.writer.append(&StoreId::anonymous(), &limits, NOW_MS, batch).expect("appended").0
    }

    fn tenant(&self) -> Arc<TenantHead> {
        self.state.index.tenant(&StoreId::anonymous()).expect("it has a series")
    }
}

/// Covers a regression: with `fold`, each batch with a new series waited for the table, so that one writer
/// after the other created series far below the limit.
#[test]
fn new_series_below_the_limit_do_not_wait_for_the_table() {
    let fixture = Fixture::new(1000);
    fixture.append(1000, &batch("m", 0..1, 0));
    let tenant = fixture.tenant();
    let created = std::thread::scope(|scope| {
        let held = tenant.overflow().lock();
        let (sender, receiver) = mpsc::sync_channel(1);
        let fixture = &fixture;
        let append = move || fixture.append(1000, &batch("m", 0..300, 1)).series_created_count;
        scope.spawn(move || sender.send(append()));
        let created = receiver.recv_timeout(Duration::from_secs(60));
        drop(held);
        created
    });
    assert_eq!(created, Ok(299));

    // A limit in the middle of a batch folds the others, and each sample counts once.
    let outcome = fixture.append(310, &batch("n_total", 0..50, 2));
    assert_eq!((outcome.series_created_count, outcome.overflow.sample_count), (10, 40));
    assert_eq!((outcome.accepted_count, outcome.rejected_count()), (50, 0));
    // Series of the table that find room leave it: they are not in both.
    let outcome = fixture.append(10_000, &batch("n_total", 0..60, 3));
    assert_eq!((outcome.series_created_count, outcome.overflow.sample_count), (50, 0));
    assert_eq!(tenant.overflow().lock().table().series_count(), 0);
}

/// A series that one writer creates while another one folds it is in the head or in the table, not in both:
/// its increases would count twice.
#[test]
fn writers_with_and_without_room_leave_each_series_in_one_place() {
    const SERIES_COUNT: u64 = 150;
    let fixture = Fixture::new(1000);
    fixture.append(1000, &batch("first", 0..1, 0));
    let tenant = fixture.tenant();
    for round in 0..100 {
        let metric = format!("m{round}_total");
        let barrier = Barrier::new(2);
        std::thread::scope(|scope| {
            for series_max in [1, 1_000_000] {
                let fixture = &fixture;
                let barrier = &barrier;
                let metric = &metric;
                scope.spawn(move || {
                    let series = batch(metric, 0..SERIES_COUNT, i64::from(round));
                    barrier.wait();
                    assert_eq!(fixture.append(series_max, &series).rejected_count(), 0);
                });
            }
        });
        let overflow = tenant.overflow().lock();
        let slot = overflow.table().slots().find(|slot| slot.metric() == metric);
        let folded_count = slot.map_or(0, |slot| slot.series_count());
        // The overflow series is in the head too.
        let own_count = tenant.tables.read().metric_series_count(&metric) as u64 - u64::from(slot.is_some());
        assert_eq!(own_count + folded_count, SERIES_COUNT, "round {round}: {own_count} in the head");
    }
}
