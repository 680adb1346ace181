//! Files of tenants in milliseconds: fixed writes give the bytes that they gave before stores had a unit.

use std::path::Path;
use std::time::Duration;

use chronolith_base::Disk;
use chronolith_base::crc::crc32c;
use chronolith_model::{Matcher, StoreId, TenantId, TimeRange};

use crate::fixture::{HOUR_MS, Machine, START_MS, write};

/// Adds number, bytes and checksum of all files of a data directory to `sum`.
fn digest(disk: &dyn Disk, dir: &Path, sum: &mut (u32, u64, u32)) {
    let mut entries = disk.list(dir).expect("lists");
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    for entry in entries {
        let path = dir.join(&entry.name);
        if entry.is_dir {
            digest(disk, &path, sum);
            continue;
        }
        let bytes = disk.read(&path).expect("reads");
        let mut one = path.display().to_string().into_bytes();
        one.extend_from_slice(&sum.2.to_le_bytes());
        one.extend_from_slice(&bytes);
        *sum = (sum.0 + 1, sum.1 + bytes.len() as u64, crc32c(&one));
    }
}

#[test]
fn files_of_milliseconds_are_unchanged() {
    let machine = Machine::new(2026);
    let tsdb = machine.open();
    let tenants = ["anonymous", "b"].map(|name| StoreId::from(TenantId::new(name).expect("legal")));
    let put = |name: &str, hour: i64| {
        for tenant in &tenants {
            let time = |i: i64| START_MS + hour * HOUR_MS + i * 10_000 + i * 7919 % 5;
            let ascending: Vec<_> = (0..700).map(|i| (time(i), (i * i % 97) as f64 / 4.0)).collect();
            let (first, second): (Vec<_>, Vec<_>) = ascending.iter().partition(|(time, _)| time % 3 > 0);
            for part in [first, second] {
                write(&tsdb, tenant, name, &part).expect("stored");
            }
        }
    };
    for hour in [-30, -12, -10, -8] {
        put("m", hour);
        put("n", hour);
    }
    tsdb.maintenance().flush_closed(START_MS - 9 * HOUR_MS).expect("flushes");
    let by_name = vec![vec![Matcher::equal("__name__", "m")]];
    let range = TimeRange::new(START_MS - 31 * HOUR_MS, START_MS - 11 * HOUR_MS);
    tsdb.admin().delete_series(&tenants[0], &by_name, range).expect("deletes");
    machine.clock.set_now_ms(START_MS + 3 * HOUR_MS);
    for _ in 0..6 {
        machine.clock.advance(Duration::from_mins(2));
        tsdb.maintenance().run();
    }
    put("m", 2);
    tsdb.wal_jobs().roll_checkpoint();
    put("n", 2);
    tsdb.close().expect("closes");
    let mut sum = (0, 0, 0);
    digest(&*machine.env.disk, &machine.options.data_dir, &mut sum);
    assert_eq!(sum, GOLDEN, "files, bytes and checksum");
}

/// Digest of commit d1e92c1, in which all stores were in milliseconds.
const GOLDEN: (u32, u64, u32) = (42, 1_109_325, 4_221_229_822);
