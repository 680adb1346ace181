//! Limits of single tenants: encoding, retention and the policy for duplicates hold for the tenant that has
//! them.

use std::time::Duration;

use chronolith_format::store_name;
use chronolith_model::{BlockEncoding, DuplicatePolicy, StoreId, TenantId, TenantLimits};

use crate::fixture::{HOUR_MS, Machine, START_MS, write};

fn tenant(name: &str) -> StoreId {
    StoreId::from(TenantId::new(name).expect("legal"))
}

fn row(hour: i64, count: i64, value: f64) -> Vec<(i64, f64)> {
    (0..count).map(|i| (START_MS + hour * HOUR_MS + i * 10_000, value)).collect()
}

/// Encoding byte of the first chunk of the first block of a tenant.
fn encoding_of(machine: &Machine, tenant: &StoreId) -> u8 {
    let dir = machine.options.data_dir.join("tenants").join(&*store_name(tenant));
    let block = machine.env.disk.list(&dir).expect("lists").remove(0).name;
    let bytes = machine.env.disk.read(&dir.join(block).join("chunks/000001")).expect("reads");
    // The chunk's length follows the segment's header of 8 bytes, one or two bytes long.
    bytes[if bytes[8] < 0x80 { 9 } else { 10 }]
}

#[test]
fn encoding_and_retention_are_those_of_the_tenant() {
    let mut machine = Machine::new(1);
    let own = TenantLimits {
        block_encoding: BlockEncoding::Prometheus,
        retention_ms: 24 * HOUR_MS,
        ..TenantLimits::default()
    };
    machine.options.limits.by_tenant.insert(tenant("a").tenant().expect("a default store").clone(), own);
    let tsdb = machine.open();
    for name in ["a", "b"] {
        write(&tsdb, &tenant(name), "m", &row(-4, 300, 1.0)).expect("stored");
    }
    tsdb.maintenance().flush_closed(machine.env.clock.now_ms()).expect("flushes");
    assert_eq!((encoding_of(&machine, &tenant("a")), encoding_of(&machine, &tenant("b"))), (1, 0x40));
    machine.clock.set_now_ms(START_MS + 30 * HOUR_MS);
    tsdb.maintenance().run();
    assert_eq!(machine.read(&tsdb, &tenant("a"), "m").len(), 0, "older than its retention");
    assert_eq!(machine.read(&tsdb, &tenant("b"), "m").len(), 300);
    // A reload takes effect for what comes next.
    tsdb.settings().set_limits(TenantLimits { retention_ms: HOUR_MS, ..TenantLimits::default() }.into());
    machine.clock.advance(Duration::from_mins(2));
    tsdb.maintenance().run();
    assert_eq!(machine.read(&tsdb, &tenant("b"), "m").len(), 0);
}

#[test]
fn blocks_change_their_encoding_when_they_are_compacted() {
    let mut machine = Machine::new(2);
    machine.options.limits.default.block_encoding = BlockEncoding::Prometheus;
    let tsdb = machine.open();
    for hour in [-12, -10, -8, -4] {
        write(&tsdb, &tenant("a"), "m", &row(hour, 300, 1.0)).expect("stored");
        tsdb.maintenance().flush_closed(machine.env.clock.now_ms()).expect("flushes");
        machine.clock.advance(Duration::from_millis(1));
    }
    let before = machine.read(&tsdb, &tenant("a"), "m");
    tsdb.settings().set_limits(TenantLimits::default().into());
    machine.clock.set_now_ms(START_MS + 3 * HOUR_MS);
    for _ in 0..12 {
        machine.clock.advance(Duration::from_mins(2));
        tsdb.maintenance().run();
    }
    assert_eq!(tsdb.statistics().stats().blocks, 2, "six hours, and the last window");
    let dir = machine.options.data_dir.join("tenants/a");
    let blocks = machine.env.disk.list(&dir).expect("lists");
    let meta = machine.env.disk.read(&dir.join(&blocks[1].name).join("meta.json")).expect("reads");
    let text = String::from_utf8(meta).expect("text");
    assert!(text.contains("\"numSamples\": 900") && text.contains("\"numChunks\": 1"), "{text}");
    assert_eq!(machine.read(&tsdb, &tenant("a"), "m"), before);
}

#[test]
fn the_last_written_block_wins_where_the_tenant_wants_it() {
    let mut machine = Machine::new(3);
    let own = TenantLimits { duplicates: DuplicatePolicy::LastWins, ..TenantLimits::default() };
    machine.options.limits.by_tenant.insert(tenant("last").tenant().expect("a default store").clone(), own);
    let tsdb = machine.open();
    for value in [1.0, 2.0, 3.0] {
        for name in ["first", "last"] {
            write(&tsdb, &tenant(name), "m", &row(-4, 100, value)).expect("stored");
        }
        tsdb.maintenance().flush_closed(machine.env.clock.now_ms()).expect("flushes");
        machine.clock.advance(Duration::from_millis(1));
    }
    // One more in the head, over all blocks.
    for name in ["first", "last"] {
        write(&tsdb, &tenant(name), "m", &row(-4, 50, 4.0)).expect("stored");
    }
    let check = |when: &str| {
        let values = |name: &str| -> Vec<f64> {
            machine
                .read(&tsdb, &tenant(name), "m")
                .into_iter()
                .map(|(_, bits)| f64::from_bits(bits))
                .collect()
        };
        assert_eq!(values("first"), [1.0; 100], "{when}");
        let mut want = [3.0; 100];
        want[..50].fill(4.0);
        assert_eq!(values("last"), want, "{when}");
    };
    check("three blocks and the head");
    machine.clock.set_now_ms(START_MS + 3 * HOUR_MS);
    for _ in 0..12 {
        machine.clock.advance(Duration::from_mins(2));
        tsdb.maintenance().run();
        check("while blocks are merged");
    }
    assert_eq!(tsdb.statistics().stats().blocks, 2, "one a tenant");
}
