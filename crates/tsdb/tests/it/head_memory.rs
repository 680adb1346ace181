//! A budget of memory for the head of all tenants, and a rate for each: what does not fit is refused whole.

use std::time::Duration;

use chronolith_model::databases::CatalogChange;
use chronolith_model::{IngestionLimits, Labels, StoreId, TenantId, TenantLimits, WriteBatch};
use chronolith_tsdb::{HeadMemory, Tsdb, WriteError};

use crate::fixture::{HOUR_MS, Machine, START_MS, write};

const LIMIT_BYTES: u64 = 8 << 20;

fn tenant(name: &str) -> StoreId {
    StoreId::from(TenantId::new(name).expect("legal"))
}

/// One sample of each of `count` series, from number `first` on.
fn batch(first: usize, count: usize, time: i64) -> WriteBatch {
    let mut batch = WriteBatch::from_labels();
    for number in first..first + count {
        let name = format!("series_{number}");
        batch.push_labels(&Labels::from_pairs([("__name__", name.as_str()), ("a", "b")]), &[(time, 1.0)]);
    }
    batch
}

/// Writes new series of many tenants until one write is refused; gives how many series there are then.
fn fill(tsdb: &Tsdb, time: i64) -> (usize, WriteError) {
    for round in 0..1000 {
        tsdb.wal_jobs().sync();
        if let Err(error) = tsdb.append(&tenant(&format!("t{}", round % 7)), &batch(round * 500, 500, time)) {
            return (round * 500, error);
        }
    }
    panic!("nothing is ever refused");
}

fn gauge(tsdb: &Tsdb, name: &str) -> u64 {
    tsdb.statistics().stats().metrics.iter().find(|metric| metric.name == name).expect("a metric").value
        as u64
}

/// The limit of series is one of each tenant: many tenants, or one with the default of 50 million, took all
/// memory there was. The head has a budget; at its end a batch is refused whole, and there is room again
/// when windows are blocks.
#[test]
fn the_head_as_a_whole_had_no_bound() {
    let mut machine = Machine::new(51);
    machine.options.head_memory.limit = HeadMemory::Bytes(LIMIT_BYTES);
    machine.options.compaction.block_bytes_max = 0;
    let tsdb = machine.open();
    let time = START_MS - HOUR_MS;
    let (count, error) = fill(&tsdb, time);
    assert!(matches!(error, WriteError::HeadFull { limit_bytes: LIMIT_BYTES, .. }), "{error}");
    assert!((5_000..40_000).contains(&count), "{count} series fit");
    assert_eq!(tsdb.statistics().stats().head.series, count as u64, "nothing of the refused batch is there");
    assert_eq!(gauge(&tsdb, "head_memory_limit_bytes"), LIMIT_BYTES);
    let measured: u64 = tsdb.statistics().memory(0).head.iter().map(|part| part.bytes).sum();
    assert!(measured <= LIMIT_BYTES, "{measured} bytes");
    // A batch of series that are there needs less.
    let known = write(&tsdb, &tenant("t0"), "series_0", &[(time + 1000, 2.0)]);
    assert!(known.is_ok() || matches!(known, Err(WriteError::HeadFull { .. })));
    machine.clock.advance(Duration::from_secs(3 * 3600));
    tsdb.maintenance().run();
    machine.clock.advance(Duration::from_secs(1));
    tsdb.wal_jobs().sync();
    assert_eq!(tsdb.statistics().stats().head.series, 0);
    let again = tsdb.append(&tenant("t0"), &batch(0, 500, START_MS + 2 * HOUR_MS));
    assert_eq!(again.expect("there is room again").accepted_count, 500);
}

#[test]
fn a_batch_that_never_fits_has_its_own_error() {
    let mut machine = Machine::new(52);
    machine.options.head_memory.limit = HeadMemory::Bytes(LIMIT_BYTES);
    let tsdb = machine.open();
    let refused = tsdb.append(&tenant("t"), &batch(0, 30_000, START_MS)).expect_err("too large");
    assert!(matches!(refused, WriteError::NeverFits { limit_bytes: LIMIT_BYTES, .. }), "{refused}");
    assert_eq!(
        (tsdb.statistics().stats().head.series, tsdb.statistics().memory(9).tenants.len()),
        (0, 0),
        "nor does the tenant stay"
    );
    assert_eq!(tsdb.append(&tenant("t"), &batch(0, 500, START_MS)).expect("fits").accepted_count, 500);
}

/// Windows that wait for others hold memory that writes need.
#[test]
fn nothing_waits_when_the_head_is_nearly_full() {
    let mut machine = Machine::new(53);
    machine.options.head_memory.limit = HeadMemory::Bytes(LIMIT_BYTES);
    machine.options.flush.small_window_bytes = 1 << 20;
    let tsdb = machine.open();
    fill(&tsdb, START_MS - HOUR_MS);
    machine.clock.advance(Duration::from_secs(3600));
    tsdb.maintenance().run();
    assert_eq!((tsdb.statistics().stats().head.series, tsdb.statistics().stats().blocks), (0, 7));
}

/// After a restart the head counts from the start on, and an appended batch is neither lost nor half there.
#[test]
fn a_restart_knows_how_full_the_head_is() {
    let mut machine = Machine::new(54);
    machine.options.head_memory.limit = HeadMemory::Bytes(LIMIT_BYTES);
    let tsdb = machine.open();
    let (count, _) = fill(&tsdb, START_MS);
    drop(tsdb);
    let tsdb = machine.open();
    assert_eq!(tsdb.statistics().stats().head.series, count as u64);
    assert!(gauge(&tsdb, "head_memory_used_bytes") > LIMIT_BYTES / 3);
}

#[test]
fn a_tenant_has_a_rate_and_a_refused_batch_takes_nothing_of_it() {
    let mut machine = Machine::new(55);
    let limits = TenantLimits {
        ingestion: IngestionLimits { rate: 100, burst: 500, ..IngestionLimits::default() },
        ..TenantLimits::default()
    };
    machine
        .options
        .limits
        .by_tenant
        .insert(tenant("limited").tenant().expect("a default store").clone(), limits);
    machine.options.head_memory.limit = HeadMemory::Bytes(LIMIT_BYTES);
    let tsdb = machine.open();
    let (limited, free) = (tenant("limited"), tenant("free"));
    let refused = tsdb.append(&limited, &batch(0, 501, START_MS)).expect_err("above the burst");
    assert_eq!(refused, WriteError::BurstExceeded { sample_count: 501, burst: 500 });
    assert_eq!(tsdb.append(&limited, &batch(0, 500, START_MS)).expect("a burst").accepted_count, 500);
    let refused = tsdb.append(&limited, &batch(0, 200, START_MS + 1)).expect_err("above the rate");
    let rate_limited =
        WriteError::RateLimited { rate: 100, burst: 500, used: 500, sample_count: 200, retry_after_ms: 2000 };
    assert_eq!(refused, rate_limited);
    assert_eq!(machine.read(&tsdb, &limited, "series_0"), [(START_MS, 1f64.to_bits())]);
    assert_eq!(tsdb.append(&free, &batch(0, 2000, START_MS)).expect("no limit").accepted_count, 2000);
    machine.clock.advance(Duration::from_secs(2));
    assert_eq!(tsdb.append(&limited, &batch(0, 200, START_MS + 1)).expect("retried").accepted_count, 200);
    machine.clock.advance(Duration::from_secs(5));
    fill(&tsdb, START_MS);
    let refused = tsdb.append(&limited, &batch(100_000, 500, START_MS)).expect_err("the head is full");
    assert!(matches!(refused, WriteError::HeadFull { .. }), "{refused}");
    let again = tsdb.append(&limited, &batch(100_000, 500, START_MS)).expect_err("the head is full");
    assert!(matches!(again, WriteError::HeadFull { .. }), "the tokens came back: {again}");
}

/// New series of one tenant filled the head, and the writes of every other tenant were refused, since only
/// the head as a whole had a limit. A tenant has a share: beyond it that tenant alone is refused, and it is
/// let in again when its windows have left.
#[test]
fn one_tenant_filled_the_head_of_all() {
    let mut machine = Machine::new(56);
    machine.options.head_memory.limit = HeadMemory::Bytes(4 * LIMIT_BYTES);
    machine.options.head_memory.tenant_percent = 25;
    machine.options.compaction.block_bytes_max = 0;
    let tsdb = machine.open();
    let (loud, quiet) = (tenant("loud"), tenant("quiet"));
    let time = START_MS - HOUR_MS;
    let mut refused = Vec::new();
    for round in 0..200 {
        tsdb.wal_jobs().sync();
        if let Err(error) = tsdb.append(&loud, &batch(round * 500, 500, time)) {
            refused.push(error);
        }
        let new = tsdb.append(&quiet, &batch(round * 20, 20, time)).expect("new series of the other");
        assert_eq!(new.accepted_count, 20);
        write(&tsdb, &quiet, "series_0", &[(time + 1 + round as i64, 1.0)]).expect("a known series");
    }
    let first = refused.first().expect("the loud tenant is refused");
    assert!(
        matches!(first, WriteError::TenantFull { tenant, share_bytes, used_bytes }
            if tenant == "loud" && *share_bytes <= LIMIT_BYTES && used_bytes <= share_bytes),
        "{first}"
    );
    let text = first.to_string();
    assert!(text.contains("\"loud\"") && text.contains("head-memory-tenant-share"), "{text}");
    assert!(refused.iter().all(|error| matches!(error, WriteError::TenantFull { .. })));
    assert_eq!(gauge(&tsdb, "head_tenant_share_refused_total"), refused.len() as u64);
    let never = tsdb.append(&loud, &batch(0, 40_000, time)).expect_err("larger than the share");
    assert!(matches!(never, WriteError::NeverFitsShare { .. } | WriteError::TenantFull { .. }), "{never}");
    machine.clock.advance(Duration::from_secs(3 * 3600));
    tsdb.maintenance().run();
    machine.clock.advance(Duration::from_secs(1));
    tsdb.wal_jobs().sync();
    let again = tsdb.append(&loud, &batch(0, 500, START_MS + 2 * HOUR_MS));
    assert_eq!(again.expect("there is room again").accepted_count, 500);
}

/// Tenants at their largest share would fill the head together: once it is crowded, each has an equal part.
#[test]
fn four_tenants_at_their_share_leave_room_to_a_fifth() {
    let mut machine = Machine::new(57);
    machine.options.head_memory.limit = HeadMemory::Bytes(4 * LIMIT_BYTES);
    machine.options.head_memory.tenant_percent = 25;
    let tsdb = machine.open();
    let mut refused_count = 0;
    for round in 0..200 {
        tsdb.wal_jobs().sync();
        for loud in 0..4 {
            let name = format!("loud{loud}");
            let one = tsdb.append(&tenant(&name), &batch(round * 500, 500, START_MS));
            refused_count += u64::from(one.is_err());
        }
        tsdb.append(&tenant("quiet"), &batch(round * 20, 20, START_MS)).expect("has room");
    }
    assert!(refused_count > 0, "the loud tenants are refused");
}

fn created(tsdb: &Tsdb, owner: &StoreId, name: &str) -> StoreId {
    let change = CatalogChange::CreateDatabase { name: name.to_owned(), policy: None };
    tsdb.databases().change(owner.tenant().expect("a default store"), &change).expect("created");
    let catalog = tsdb.databases().catalog();
    let database = catalog
        .of(owner.tenant().expect("a default store"))
        .and_then(|own| own.database(name))
        .expect("a database");
    database.policies[0].store.clone()
}

/// One point of each of `count` fields, from number `first` on.
fn points(first: usize, count: usize, time_ms: i64) -> WriteBatch {
    let mut batch = WriteBatch::from_labels();
    for number in first..first + count {
        let name = format!("series_{number}");
        let labels = Labels::from_pairs([("__name__", name.as_str()), ("a", "b")]);
        batch.push_labels(&labels, &[(time_ms * 1_000_000, 1.0)]);
    }
    batch
}

/// The share was one per store: a tenant with four databases filled the head of all. The stores of a tenant
/// use one share, and the error names the tenant.
#[test]
fn the_stores_of_a_tenant_use_one_share() {
    for (seed, database_count, has_own) in
        [(60, 1, false), (61, 2, false), (62, 4, false), (63, 4, true), (64, 8, true), (65, 16, false)]
    {
        let mut machine = Machine::new(seed);
        machine.options.head_memory.limit = HeadMemory::Bytes(4 * LIMIT_BYTES);
        machine.options.head_memory.tenant_percent = 25;
        let tsdb = machine.open();
        let (loud, quiet) = (tenant("loud"), tenant("quiet"));
        let mut stores: Vec<StoreId> =
            (0..database_count).map(|number| created(&tsdb, &loud, &format!("db{number}"))).collect();
        stores.extend(has_own.then(|| loud.clone()));
        let other = created(&tsdb, &quiet, "db0");
        let mut refused = Vec::new();
        for round in 0..200 {
            tsdb.wal_jobs().sync();
            let store = &stores[round % stores.len()];
            let batch = match !store.is_default() {
                true => points(round * 500, 500, START_MS),
                false => batch(round * 500, 500, START_MS),
            };
            refused.extend(tsdb.append(store, &batch).err());
            tsdb.append(&quiet, &batch_of_quiet(round)).expect("new series of the other");
            tsdb.append(&other, &points(round * 10, 10, START_MS)).expect("new fields of the other");
        }
        let what = format!("{database_count} databases, own store: {has_own}");
        assert!(refused.len() > 20, "{what}: {} refused", refused.len());
        for error in &refused {
            let is_own = matches!(error, WriteError::TenantFull { tenant, share_bytes, .. }
                if tenant == "loud" && *share_bytes <= LIMIT_BYTES);
            assert!(is_own, "{what}: {error}");
        }
        let tenants = tsdb.statistics().memory(usize::MAX).tenants;
        let of_loud = tenants.iter().filter(|one| stores.contains(&one.tenant));
        let loud_bytes: u64 = of_loud.map(|one| one.bytes).sum();
        assert!(loud_bytes <= LIMIT_BYTES + LIMIT_BYTES / 8, "{what}: {loud_bytes} bytes");
    }
}

fn batch_of_quiet(round: usize) -> WriteBatch {
    batch(round * 10, 10, START_MS)
}

/// A tenant at its share that stops has room again once its series are idle, long before its windows end.
#[test]
fn a_tenant_at_its_share_has_room_again_when_its_series_are_idle() {
    for database_count in [0, 3] {
        let mut machine = Machine::new(66);
        machine.options.head_memory.limit = HeadMemory::Bytes(4 * LIMIT_BYTES);
        machine.options.head_memory.tenant_percent = 25;
        machine.options.idle.after_ms = 900_000;
        let tsdb = machine.open();
        tsdb.maintenance().run();
        let loud = tenant("loud");
        let mut stores: Vec<StoreId> =
            (0..database_count).map(|number| created(&tsdb, &loud, &format!("db{number}"))).collect();
        if stores.is_empty() {
            stores.push(loud.clone());
        }
        // Memory is measured each second.
        let send = |round: usize| {
            let store = &stores[round % stores.len()];
            machine.clock.advance(Duration::from_secs(1));
            tsdb.wal_jobs().sync();
            let batch = match !store.is_default() {
                true => points(round * 500, 500, START_MS),
                false => batch(round * 500, 500, START_MS),
            };
            tsdb.append(store, &batch)
        };
        let first = (0..200).find(|round| send(*round).is_err()).expect("refused at the share");
        for minute in 0..23 {
            machine.clock.advance(Duration::from_secs(60));
            tsdb.maintenance().run();
            assert!(minute > 10 || send(first).is_err(), "{database_count} databases: still at the share");
        }
        for round in first..first + 5 {
            let outcome = send(round).expect("there is room again");
            assert_eq!(outcome.accepted_count, 500, "{database_count} databases");
        }
    }
}
