//! Too many open files: each file or directory that a sequence of writes, flushes, checkpoints, deletions and
//! statements opens finds no descriptor, once or several times. Afterwards writes are accepted again without
//! a restart, nothing that was acknowledged is lost, and a statement that failed has no effect.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use chronolith_model::databases::{CatalogChange, PolicyOptions};
use chronolith_model::{Labels, Matcher, StoreId, TenantId, TimeRange, WriteBatch};
use chronolith_tsdb::{Tsdb, WalError, WriteError};

use crate::fixture::{HOUR_MS, Machine, START_MS, write};

/// Samples of each write: some writes fill a segment of the WAL.
const SAMPLE_COUNT: i64 = 800;

/// Expected content of the store.
#[derive(Default)]
struct Ledger {
    /// Acknowledged samples by series.
    acknowledged: BTreeMap<String, BTreeMap<i64, u64>>,
    /// Series of which a deletion has run, and may have failed.
    deleted: Vec<String>,
    /// The databases by the statements that were acknowledged.
    databases: String,
    statement_failures: usize,
    write_failures: usize,
}

/// Databases with their policies and durations.
fn databases(tsdb: &Tsdb) -> String {
    let mut text = String::new();
    let catalog = tsdb.databases().catalog();
    for database in catalog.of(&TenantId::anonymous()).into_iter().flat_map(|own| &own.databases) {
        let _ = write!(text, "{}:", database.name);
        for policy in &database.policies {
            let _ = write!(text, " {} {} ns", policy.name, policy.duration_ns);
        }
        let _ = writeln!(text, " default {}", database.default_policy);
    }
    text
}

fn create(name: &str) -> CatalogChange {
    CatalogChange::CreateDatabase { name: name.to_owned(), policy: None }
}

fn alter(database: &str, hours: i64) -> CatalogChange {
    let options = PolicyOptions { duration_ns: Some(hours * 3_600_000_000_000), ..PolicyOptions::default() };
    CatalogChange::AlterPolicy {
        database: database.to_owned(),
        name: "autogen".to_owned(),
        options,
        is_default: false,
    }
}

struct Run<'a> {
    machine: &'a Machine,
    tsdb: &'a Tsdb,
    ledger: Ledger,
    what: String,
}

impl Run<'_> {
    /// Writes samples of a series, `round` after samples of earlier rounds.
    fn write(&mut self, name: &str, round: i64) {
        let first = START_MS - HOUR_MS + round * SAMPLE_COUNT;
        // Values that do not compress well.
        let sample = |idx: i64| (first + idx, ((round * 7919 + idx) as f64 * 0.7310).sin());
        let samples: Vec<(i64, f64)> = (0..SAMPLE_COUNT).map(sample).collect();
        match write(self.tsdb, &StoreId::anonymous(), name, &samples) {
            Ok(outcome) => {
                assert_eq!(outcome.accepted_count, SAMPLE_COUNT as u64);
                let of_series = self.ledger.acknowledged.entry(name.to_owned()).or_default();
                of_series.extend(samples.iter().map(|(time, value)| (*time, value.to_bits())));
            }
            Err(WriteError::NoFileDescriptor | WriteError::Wal(WalError::NoFileDescriptor)) => {
                self.ledger.write_failures += 1;
            }
            Err(other) => panic!("{}: {other}", self.what),
        }
    }

    /// Writes a text, for which the data directory gets a marker.
    fn write_text(&mut self) {
        let mut batch = WriteBatch::from_labels();
        batch.push_texts(&Labels::from_pairs([("__name__", "text")]), &[(START_MS, b"a text".as_slice())]);
        match self.tsdb.append(&StoreId::anonymous(), &batch) {
            Ok(_) => {}
            Err(WriteError::NoFileDescriptor | WriteError::Wal(WalError::NoFileDescriptor)) => {
                self.ledger.write_failures += 1;
            }
            Err(other) => panic!("{}: {other}", self.what),
        }
    }

    /// Runs a statement; one that failed has no effect.
    fn change(&mut self, change: &CatalogChange) {
        match self.tsdb.databases().change(&TenantId::anonymous(), change) {
            Ok(()) => self.ledger.databases = databases(self.tsdb),
            Err(error) => {
                let text = error.to_string();
                assert!(text.contains("os error 24"), "{}: {text}", self.what);
                assert!(!text.contains("may take effect"), "{}: {text}", self.what);
                self.ledger.statement_failures += 1;
            }
        }
        assert_eq!(databases(self.tsdb), self.ledger.databases, "{}: {change:?}", self.what);
    }

    fn maintain(&mut self, advance_s: u64) {
        self.machine.clock.advance(Duration::from_secs(advance_s));
        self.tsdb.wal_jobs().sync();
        self.tsdb.maintenance().run();
    }

    fn delete(&mut self, name: &str) {
        self.ledger.deleted.push(name.to_owned());
        let selectors = [vec![Matcher::equal("__name__", name)]];
        let _ = self.tsdb.admin().delete_series(&StoreId::anonymous(), &selectors, TimeRange::ALL);
    }

    /// Runs everything that opens files.
    fn sequence(&mut self) {
        for round in 0..12 {
            self.write("a", round);
        }
        self.change(&create("new"));
        self.change(&alter("old", 480));
        self.write_text();
        self.maintain(20);
        for round in 12..20 {
            self.write("a", round);
            self.write("b", round);
        }
        self.change(&CatalogChange::DropDatabase { name: "dropped".to_owned() });
        self.delete("c");
        // The windows have ended: flush, checkpoint, removal of the WAL before it.
        self.maintain(4 * 3600);
        self.maintain(40);
        self.write("d", 0);
        self.change(&create("newer"));
        self.change(&alter("old", 720));
        self.maintain(40);
    }

    fn check_samples(&self, tsdb: &Tsdb, when: &str) {
        for (name, samples) in &self.ledger.acknowledged {
            if self.ledger.deleted.contains(name) {
                continue;
            }
            let stored: BTreeMap<i64, u64> =
                self.machine.read(tsdb, &StoreId::anonymous(), name).into_iter().collect();
            let missing = samples.iter().filter(|(time, value)| stored.get(time) != Some(value)).count();
            assert_eq!(missing, 0, "{}, {when}: samples of {name} of {}", self.what, samples.len());
        }
        assert_eq!(databases(tsdb), self.ledger.databases, "{}, {when}", self.what);
    }
}

fn machine() -> Machine {
    let mut machine = Machine::new(70);
    machine.options.wal.segment_bytes = 64 << 10;
    machine.options.idle.after_ms = 0;
    machine
}

/// Runs the sequence without a descriptor for `failure_count` opens after `open_count`; returns how many
/// opens it has.
fn run(open_count: u64, failure_count: u64) -> (u64, usize, usize) {
    let machine = machine();
    let tsdb = machine.open();
    let anonymous = StoreId::anonymous();
    for name in ["old", "dropped"] {
        tsdb.databases()
            .change(anonymous.tenant().expect("a default store"), &create(name))
            .expect("created");
    }
    let what = format!("{failure_count} opens after {open_count}");
    let mut run = Run { machine: &machine, tsdb: &tsdb, ledger: Ledger::default(), what };
    run.ledger.databases = databases(&tsdb);
    run.write("c", 0);
    let before = machine.disk.open_count();
    machine.disk.fail_opens(open_count, failure_count);
    run.sequence();
    let opens = machine.disk.open_count() - before;
    machine.disk.heal();

    for _ in 0..3 {
        run.maintain(1);
    }
    assert!(!tsdb.statistics().stats().head.wal.is_poisoned, "{}", run.what);
    let failures = run.ledger.write_failures;
    for round in 0..12 {
        run.write("after", round);
        run.maintain(1);
    }
    assert_eq!(run.ledger.write_failures, failures, "{}: writes are accepted again", run.what);
    run.change(&create("after"));
    run.maintain(40);
    run.check_samples(&tsdb, "before a restart");
    let bytes = tsdb.statistics().stats().head.wal.segment_bytes;
    assert!(bytes <= 20 * (64 << 10), "{}: the WAL is cut, {bytes} bytes", run.what);
    machine.disk.crash();
    let restarted = machine.open();
    run.check_samples(&restarted, "after a power cut");
    (opens, run.ledger.statement_failures, run.ledger.write_failures)
}

/// One EMFILE closed the WAL until a restart at some places, and a statement that was answered with an error
/// had taken effect after it.
#[test]
fn each_open_may_find_no_descriptor() {
    let (opens, statements, writes) = run(u64::MAX, 0);
    assert_eq!((statements, writes), (0, 0), "nothing fails");
    assert!(opens > 60, "{opens} opens");
    let (mut statement_failures, mut write_failures) = (0, 0);
    for (failure_count, step) in [(1, 1), (5, 5), (40, 9)] {
        for open_count in (0..opens).step_by(step) {
            let (_, statements, writes) = run(open_count, failure_count);
            statement_failures += statements;
            write_failures += writes;
        }
    }
    assert!(statement_failures > 20, "{statement_failures} statements failed");
    assert!(write_failures > 20, "{write_failures} writes failed");
}

/// A failed sync still closes the log: what it lost is not known.
#[test]
fn a_failed_sync_is_no_lack_of_descriptors() {
    let machine = machine();
    let tsdb = machine.open();
    write(&tsdb, &StoreId::anonymous(), "x", &[(START_MS, 1.0)]).expect("works");
    machine.disk.fail_after(1);
    let failed =
        write(&tsdb, &StoreId::anonymous(), "x", &[(START_MS + 1, 1.0)]).expect_err("the sync fails");
    assert!(matches!(failed, WriteError::Wal(WalError::Poisoned(_))), "{failed}");
    machine.disk.heal();
    let refused = write(&tsdb, &StoreId::anonymous(), "x", &[(START_MS + 2, 1.0)]).expect_err("closed");
    assert!(matches!(refused, WriteError::Wal(WalError::Poisoned(_))), "{refused}");
}

/// Statements whose last step fails, the sync of a directory: they have no effect, or say that they may have.
#[test]
fn statements_on_a_failing_disk_tell_their_effect() {
    for (op_count, failure_count) in
        (0..12).flat_map(|op| [1, 2, 3, 6, 12, 1000].map(|failures| (op, failures)))
    {
        let machine = machine();
        let tsdb = machine.open();
        let anonymous = StoreId::anonymous();
        tsdb.databases()
            .change(anonymous.tenant().expect("a default store"), &create("old"))
            .expect("created");
        let before = databases(&tsdb);
        machine.disk.fail_some(op_count, failure_count);
        let done = tsdb.databases().change(anonymous.tenant().expect("a default store"), &create("new"));
        machine.disk.heal();
        let after = databases(&tsdb);
        let is_in_doubt = done.as_ref().is_err_and(|error| error.to_string().contains("may take effect"));
        assert_eq!(after != before, done.is_ok(), "{op_count} {failure_count}: {done:?}");
        machine.disk.crash();
        let restarted = databases(&machine.open());
        let what = format!("{failure_count} failures after {op_count}: {done:?}");
        assert!(restarted == after || is_in_doubt, "{what}: {restarted}");
    }
}
