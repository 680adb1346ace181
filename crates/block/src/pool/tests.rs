//! Blocks opened on demand: within the budget, by several threads, removed and damaged meanwhile.

use std::path::PathBuf;

use chronolith_format::block::meta::Ulid;
use chronolith_model::TimeRange;

use super::*;
use crate::layout::TOMBSTONES_FILE;
use crate::read_record;
use crate::tests::{DIR, WINDOW, read_all, some_series, write};

/// Blocks in memory, and a pool that has room for `bytes_max` bytes of them.
fn pool_of(block_count: usize, blocks_max: u64) -> (Env, BlockPool, Vec<Arc<BlockEntry>>) {
    let (env, _, _) = Env::fake(WINDOW.end, 5);
    let entries: Vec<_> = (0..block_count).map(|_| entry_of(&env, WINDOW)).collect();
    let unlimited = BlockPool::new(&env, PoolLimits::default());
    let block = unlimited.open(Path::new(DIR), &entries[0]).expect("opens");
    let bytes = unlimited.stats().bytes;
    drop(block);
    unlimited.close(&entries[0]);
    let limits = PoolLimits { bytes_max: bytes * blocks_max, ..PoolLimits::default() };
    let pool = BlockPool::new(&env, limits);
    (env, pool, entries)
}

fn entry_of(env: &Env, range: TimeRange) -> Arc<BlockEntry> {
    let meta = write(env, Path::new(DIR), &some_series(3, 5), range).expect("a block");
    BlockEntry::new(read_record(env, &dir_of(meta.ulid), meta.ulid).expect("reads").0)
}

fn dir_of(ulid: Ulid) -> PathBuf {
    block_dir(Path::new(DIR), ulid)
}

#[test]
fn blocks_that_nobody_reads_are_closed_least_recently_used_first() {
    let (_, pool, entries) = pool_of(20, 16);
    let dir = Path::new(DIR);
    for entry in &entries[1..] {
        pool.open(dir, &entries[0]).expect("stays open");
        pool.open(dir, entry).expect("opens");
        assert!(pool.stats().open_blocks <= 4, "a quarter of the budget is for idle ones");
    }
    assert_eq!(pool.stats().opens, 20, "the one that is used all the time was opened once");
    assert!(pool.stats().evictions >= 16);
    assert!(entries.iter().all(|entry| entry.is_verified() && !entry.is_damaged()));
}

#[test]
fn blocks_that_are_read_stay_and_beyond_the_budget_an_open_is_refused() {
    let (env, pool, entries) = pool_of(10, 4);
    let dir = Path::new(DIR);
    let mut held: Vec<_> = entries[..4].iter().map(|entry| pool.open(dir, entry).expect("opens")).collect();
    let refused = pool.open(dir, &entries[5]).err().expect("no room");
    assert!(matches!(refused, BlockError::TooManyOpen { .. }), "{refused}");
    assert!(!refused.is_damage() && !entries[5].is_damaged());
    assert!(open_error(refused).to_string().contains("open-block"));
    assert_eq!((pool.stats().refusals, pool.stats().open_blocks), (1, 4));
    // A reader of an open block gets it again, also without room.
    pool.open(dir, &entries[0]).expect("is open");
    held.pop();
    let again = pool.open(dir, &entries[5]).expect("there is room again");
    assert_eq!(read_all(&env, &again).expect("reads"), some_series(3, 5));
}

#[test]
fn a_removed_block_is_read_on_and_counts_until_its_last_reader_is_gone() {
    let (env, pool, entries) = pool_of(2, 100);
    let block = pool.open(Path::new(DIR), &entries[0]).expect("opens");
    crate::remove(&env, &dir_of(entries[0].ulid())).expect("removes");
    pool.close(&entries[0]);
    assert_eq!(pool.stats().open_blocks, 1);
    assert_eq!(read_all(&env, &block).expect("reads"), some_series(3, 5));
    drop(block);
    assert_eq!((pool.stats().open_blocks, pool.stats().bytes), (0, 0));
    assert!(pool.open(Path::new(DIR), &entries[0]).err().expect("it is gone").is_not_found());
}

#[test]
fn damage_is_named_each_time_and_forgotten_once_it_is_repaired() {
    let (env, pool, entries) = pool_of(1, 100);
    let (dir, path) = (Path::new(DIR), dir_of(entries[0].ulid()).join("index"));
    let good = env.disk.read(&path).expect("reads");
    let mut bad = good.clone();
    let last = bad.len() - 1;
    bad[last] ^= 1;
    env.disk.write_atomic(&path, &bad).expect("writes");
    for _ in 0..2 {
        let error = pool.open(dir, &entries[0]).err().expect("damaged");
        assert!(error.to_string().contains(path.to_str().expect("text")), "{error}");
    }
    assert!(pool.open_unpooled(dir, &entries[0]).is_err() && entries[0].is_damaged());
    assert_eq!((pool.stats().open_failures, pool.stats().open_blocks), (2, 0));
    env.disk.write_atomic(&path, &good).expect("writes");
    pool.open(dir, &entries[0]).expect("repaired");
    assert!(!entries[0].is_damaged());
}

/// Regression: its deleted samples came back without an error.
#[test]
fn a_missing_tombstones_file_of_a_block_with_deletions_is_damage() {
    let (env, pool, entries) = pool_of(1, 100);
    let (dir, tombstones) = (Path::new(DIR), dir_of(entries[0].ulid()).join(TOMBSTONES_FILE));
    env.disk.remove_file(&tombstones).expect("removes");
    let block = pool.open(dir, &entries[0]).expect("nothing was deleted: blocks of others have no file");
    let range = TimeRange::new(WINDOW.start, WINDOW.start + 2000);
    let deleted = block.delete(&env, &[Vec::new()], range).expect("deletes").expect("has samples there");
    assert_eq!(deleted.block.meta().stats.num_tombstones, 3);
    drop((block, deleted));
    pool.close(&entries[0]);
    env.disk.remove_file(&tombstones).expect("removes");
    let error = pool.open(dir, &entries[0]).err().expect("refused");
    assert!(
        matches!(&error, BlockError::TombstonesMissing { path, count: 3 } if *path == tombstones),
        "{error}"
    );
    assert!(entries[0].is_damaged());
    assert!(read_record(&env, &dir_of(entries[0].ulid()), entries[0].ulid()).is_err());
}

#[test]
fn threads_that_open_and_read_at_once_keep_to_the_budget() {
    let (env, pool, entries) = pool_of(30, 12);
    std::thread::scope(|scope| {
        for thread in 0..4usize {
            let (env, pool, entries) = (&env, &pool, &entries);
            scope.spawn(move || {
                for round in 0..200usize {
                    let entry = &entries[(round * 7 + thread * 11) % entries.len()];
                    let block = pool.open(Path::new(DIR), entry).expect("four readers have room");
                    assert_eq!(read_all(env, &block).expect("reads").len(), 3);
                }
            });
        }
    });
    let stats = pool.stats();
    assert!(stats.open_blocks <= 12 && stats.evictions > 0 && stats.refusals == 0, "{stats:?}");
    entries.iter().for_each(|entry| pool.close(entry));
    assert_eq!((pool.stats().open_blocks, pool.stats().bytes, pool.stats().maps), (0, 0, 0));
}
