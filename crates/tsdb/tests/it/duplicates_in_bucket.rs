//! Samples with one timestamp in several blocks: every process reads the value that the policy of the tenant
//! selects, wherever the blocks lie.

use std::sync::Arc;
use std::time::Duration;

use chronolith_model::query::TenantSources;
use chronolith_model::{
    Columns, DuplicatePolicy, Matcher, Queryable, ReadContext, Selector, StoreId, TenantId, TimeRange,
};
use chronolith_tsdb::Tsdb;

use crate::fixture::{HOUR_MS, START_MS, write};
use crate::upload::World;

const TIME_MS: i64 = START_MS - 10 * HOUR_MS;

fn world(seed: u64, duplicates: DuplicatePolicy) -> World {
    let mut world = World::new(seed);
    world.machine.options.limits.default.duplicates = duplicates;
    world
}

/// Writes one value and moves it to a block.
fn put(world: &World, tsdb: &Tsdb, value: f64) {
    write(tsdb, &StoreId::anonymous(), "m", &[(TIME_MS, value)]).expect("stored");
    world.machine.clock.advance(Duration::from_millis(1));
    tsdb.maintenance().flush_closed(START_MS).expect("flushes");
}

fn values(world: &World, source: &Arc<dyn Queryable>) -> Vec<f64> {
    let ctx = ReadContext::unlimited(world.machine.env.clock.clone());
    let matchers = [Matcher::equal("__name__", "m")];
    let selector = Selector { matchers: &matchers, range: TimeRange::ALL };
    let mut batches = source.select(&selector, &ctx).expect("selects");
    let mut series = Vec::new();
    while batches.next_batch(&mut series).expect("a batch") {}
    let mut columns = Columns::default();
    for one in &series {
        one.samples.read(TimeRange::ALL, &mut columns).expect("reads");
    }
    columns.values
}

#[track_caller]
fn check_all(world: &World, tsdb: &Tsdb, want: f64) {
    let tenant = StoreId::anonymous();
    assert_eq!(
        values(world, &tsdb.reader().queryable(tenant.tenant().expect("a default store"))),
        [want],
        "the process that wrote them"
    );
    let read_only = world.open_read_only();
    assert_eq!(
        values(world, &read_only.queryable(tenant.tenant().expect("a default store"))),
        [want],
        "a read-only process"
    );
    let empty = world.open("/empty");
    assert_eq!(
        values(world, &empty.reader().queryable(tenant.tenant().expect("a default store"))),
        [want],
        "a process with an empty directory"
    );
}

#[test]
fn the_last_of_two_blocks_in_the_bucket_wins_for_every_process() {
    let world = world(21, DuplicatePolicy::LastWins);
    let tsdb = world.open("/data");
    put(&world, &tsdb, 1.0);
    world.move_all(&tsdb, &|_| {});
    put(&world, &tsdb, 2.0);
    world.move_all(&tsdb, &|_| {});
    check_all(&world, &tsdb, 2.0);
}

#[test]
fn the_first_of_two_blocks_in_the_bucket_stays_by_default() {
    let world = world(22, DuplicatePolicy::KeepFirst);
    let tsdb = world.open("/data");
    put(&world, &tsdb, 1.0);
    world.move_all(&tsdb, &|_| {});
    // The head does not have the first value any more, so it takes the second one.
    put(&world, &tsdb, 2.0);
    world.move_all(&tsdb, &|_| {});
    check_all(&world, &tsdb, 1.0);
}

#[test]
fn a_block_follows_those_of_the_bucket_though_the_clock_was_set_back() {
    let world = world(23, DuplicatePolicy::LastWins);
    let tsdb = world.open("/data");
    put(&world, &tsdb, 1.0);
    world.move_all(&tsdb, &|_| {});
    drop(tsdb);
    let now_ms = world.machine.env.clock.now_ms();
    world.machine.clock.set_now_ms(now_ms - HOUR_MS);
    let tsdb = world.open("/replaced");
    put(&world, &tsdb, 2.0);
    assert_eq!(values(&world, &tsdb.reader().queryable(&TenantId::anonymous())), [2.0], "before the upload");
    tsdb.bucket_jobs().upload_blocks();
    check_all(&world, &tsdb, 2.0);
}
