//! The tour of ARCHITECTURE.md as a program: one sample from the wire to a block and out again, with a power
//! cut after each promise (durable, sealed, block).
//!
//! The machine is fake: files are in memory, and a crash forgets every byte and every name that was not
//! synced.

use std::path::PathBuf;
use std::sync::Arc;

use chronolith_base::{Env, ManualClock, MemDisk, MemoryBudget};
use chronolith_ingest::remote_write::{self, encode::RequestEncoder};
use chronolith_model::{ReadContext, StoreId, TenantId, WriteOutcome};
use chronolith_promql::engine::{Engine, EngineOptions, Value};
use chronolith_promql::parser::{ParserOptions, parse_expr};
use chronolith_tsdb::{ReplayProgress, Tsdb, TsdbOptions};

/// 2026-11-20 00:00 UTC, aligned to two hours.
const START_MS: i64 = 1_795_132_800_000;
const STEP_MS: i64 = 15_000;
const HOUR_MS: i64 = 3_600_000;
/// More than one chunk, less than one window.
const SAMPLE_COUNT: i64 = 300;

struct Machine {
    env: Env,
    clock: Arc<ManualClock>,
    disk: Arc<MemDisk>,
}

impl Machine {
    fn new() -> Machine {
        let (env, clock, disk) = Env::fake(START_MS, 7);
        Machine { env, clock, disk }
    }

    fn open(&self) -> Arc<Tsdb> {
        let mut options = TsdbOptions::new(PathBuf::from("/chronolith"));
        // A window as small as this one would wait for others of its day (ADR 0056).
        options.flush.small_window_bytes = 0;
        Tsdb::open(self.env.clone(), options, Arc::new(ReplayProgress::default())).expect("opens")
    }

    /// Loses power while the store runs, and starts again.
    fn power_cut(&self, running: Arc<Tsdb>) -> Arc<Tsdb> {
        self.disk.crash();
        drop(running);
        self.open()
    }
}

/// Life of a sample, steps 2 to 6: bytes of a request in, decoded without looking at labels, applied and made
/// durable.
fn send(tsdb: &Tsdb, first: i64, count: i64) -> WriteOutcome {
    let samples: Vec<(i64, f64)> =
        (first..first + count).map(|k| (START_MS + k * STEP_MS, k as f64)).collect();
    let mut request = RequestEncoder::new();
    request.push_series([("__name__", "life_total"), ("job", "tour")], &samples);
    let mut batch = remote_write::new_batch();
    let mut held = MemoryBudget::new("write", 1 << 20).reserve(0).expect("nothing fits");
    remote_write::decode(&request.compressed(), 1 << 20, &mut held, &mut batch).expect("a good body");
    tsdb.append(&StoreId::anonymous(), &batch).expect("durable")
}

/// Checks the life of a query, steps 2 to 7: a query over head and blocks.
#[track_caller]
fn check(machine: &Machine, tsdb: &Tsdb, query: &str, at_ms: i64, want: f64) {
    let expr = parse_expr(query, ParserOptions::default()).expect("a good query");
    let source = tsdb.reader().queryable(&TenantId::anonymous());
    let ctx = ReadContext::unlimited(machine.env.clock.clone());
    let engine = Engine::new(EngineOptions::default());
    let result = engine.instant(&*source, &expr, at_ms, None, &ctx).expect("an answer");
    let Value::Vector(vector) = result.value else { panic!("{query}: not a vector") };
    let values: Vec<f64> = vector.iter().map(|s| s.value).collect();
    assert_eq!(values, [want], "{query}");
}

#[test]
fn a_sample_survives_every_promise() {
    let machine = Machine::new();
    let end_ms = START_MS + SAMPLE_COUNT * STEP_MS;
    machine.clock.set_now_ms(end_ms);

    // DURABLE: acknowledged, not yet sealed; only the log has it.
    let tsdb = machine.open();
    assert_eq!(send(&tsdb, 0, 50).accepted_count, 50);
    check(&machine, &tsdb, "count_over_time(life_total[2h])", end_ms, 50.0);
    let tsdb = machine.power_cut(tsdb);
    check(&machine, &tsdb, "count_over_time(life_total[2h])", end_ms, 50.0);

    // SEALED: chunks filled up and went to a sealed file; a checkpoint frees the WAL before it.
    assert_eq!(send(&tsdb, 50, SAMPLE_COUNT - 50).accepted_count, 250);
    let repeat = send(&tsdb, 250, 50);
    assert_eq!((repeat.accepted_count, repeat.repeated_count), (50, 50), "a retry changes nothing");
    let tsdb = machine.power_cut(tsdb);
    check(&machine, &tsdb, "sum_over_time(life_total[2h])", end_ms, 44_850.0);
    tsdb.close().expect("a checkpoint");
    let tsdb = machine.power_cut(tsdb);
    assert!(tsdb.statistics().stats().head.chunks >= 3, "the checkpoint has the chunks");
    check(&machine, &tsdb, "sum_over_time(life_total[2h])", end_ms, 44_850.0);

    // BLOCK: the window is over; it becomes a block and leaves the head and the log.
    machine.clock.set_now_ms(START_MS + 4 * HOUR_MS);
    tsdb.maintenance().run();
    let stats = tsdb.statistics().stats();
    assert_eq!((stats.blocks, stats.head.series, stats.maintenance.error_count), (1, 0, 0));
    check(&machine, &tsdb, "sum_over_time(life_total[2h])", end_ms, 44_850.0);
    let tsdb = machine.power_cut(tsdb);
    assert_eq!((tsdb.statistics().stats().blocks, tsdb.statistics().stats().head.series), (1, 0));
    check(&machine, &tsdb, "sum_over_time(life_total[2h])", end_ms, 44_850.0);
    check(&machine, &tsdb, "increase(life_total[1h])", START_MS + HOUR_MS, 240.0);

    // An out-of-order sample joins those in the block; the two are read as one series.
    let late = START_MS + 7_000;
    let labels = chronolith_model::Labels::from_pairs([("__name__", "life_total"), ("job", "tour")]);
    let mut batch = chronolith_model::WriteBatch::from_labels();
    batch.push_labels(&labels, &[(late, 0.5)]);
    tsdb.append(&StoreId::anonymous(), &batch).expect("late is normal");
    check(&machine, &tsdb, "count_over_time(life_total[2h])", end_ms, 301.0);
    check(&machine, &tsdb, "life_total", late, 0.5);
}
