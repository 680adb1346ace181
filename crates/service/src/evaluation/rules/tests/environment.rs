//! A service with rule files, a fake clock and a disk in memory.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use chronolith_base::{Clock as _, Disk as _, Env, ManualClock, MemDisk, Rng};
use chronolith_model::sample::is_stale;
use chronolith_model::{Labels, StoreId, TenantId, WriteBatch};
use chronolith_promql::Value;
use chronolith_rules::notifier::Alert;
use chronolith_rules::round::RoundSettings;
use chronolith_rules::status::GroupStatus;
use chronolith_tsdb::{ReplayProgress, Tsdb};

use crate::access::Identity;
use crate::evaluation::rules::files::load_rule_files;
use crate::evaluation::rules::take_due;
use crate::options::ServiceOptions;
use crate::service::Service;

/// Start of all tests: 2023-11-14 22:13:20.
pub(super) const START_MS: i64 = 1_700_000_000_000;
/// Time of a sample, and bits of its value.
pub(super) type Points = Vec<(i64, u64)>;

pub(super) struct Environment {
    pub(super) clock: Arc<ManualClock>,
    pub(super) disk: Arc<MemDisk>,
    pub(super) service: Service,
    options: ServiceOptions,
    /// Alerts that were sent.
    pub(super) sent: RefCell<Vec<Arc<Alert>>>,
}

/// A running process without a rule file.
pub(super) fn started(change: impl FnOnce(&mut ServiceOptions)) -> Environment {
    let (_, clock, disk) = Env::fake(START_MS, 1);
    let mut options = ServiceOptions::new("/data".into());
    options.rules.files = vec!["/etc/rules/*.yml".into()];
    change(&mut options);
    disk.create_dir_all(Path::new("/etc/rules")).expect("a directory");
    let service = open(&clock, &disk, &options);
    Environment { clock, disk, service, options, sent: RefCell::default() }
}

fn open(clock: &Arc<ManualClock>, disk: &Arc<MemDisk>, options: &ServiceOptions) -> Service {
    let env = Env { clock: clock.clone(), disk: disk.clone(), rng: Arc::new(Rng::from_seed(1)) };
    let store = Tsdb::open(env.clone(), options.tsdb_options(), Arc::new(ReplayProgress::default()));
    let service = Service::new(env, options.clone());
    service.set_store(store.expect("opens"), Vec::new());
    service
}

impl Environment {
    /// Replaces a rule file and reads all of them.
    pub(super) fn load(&self, name: &str, text: &str) -> Result<usize, String> {
        let path = Path::new("/etc/rules").join(name);
        self.disk.write_atomic(&path, text.as_bytes()).expect("written");
        self.read_files()
    }

    /// Reads all files; returns the number of groups in use.
    pub(super) fn read_files(&self) -> Result<usize, String> {
        let limits = self.service.limits_of(&self.options.rules.tenant).queries.rules;
        load_rule_files(&self.service, &limits).map(|()| self.service.rules.all().len())
    }

    /// Ends the process without a stop, and starts the next one after `outage`.
    pub(super) fn restart(self, outage: Duration) -> Environment {
        let Environment { clock, disk, service, options, sent } = self;
        disk.crash();
        drop(service);
        clock.advance(outage);
        let service = open(&clock, &disk, &options);
        let after = Environment { clock, disk, service, options, sent };
        after.read_files().expect("read before");
        after
    }

    /// Evaluates all rounds that are due, until none is.
    pub(super) fn run_due(&self) {
        let settings = RoundSettings {
            resend_delay_ns: 60_000_000_000,
            external_labels: BTreeMap::from([("region".to_owned(), "eu".to_owned())]),
            external_url: "http://c.example".to_owned(),
        };
        loop {
            let due = take_due(&self.service);
            if due.is_empty() {
                return;
            }
            for round in due {
                round.run(&self.service, &settings, &|alerts| {
                    self.sent.borrow_mut().extend(alerts.iter().cloned());
                });
            }
        }
    }

    /// Moves the clock on by steps of 10 s, and evaluates due rounds after each.
    pub(super) fn run_for(&self, duration: Duration) {
        let end_ms = self.clock.now_ms() + duration.as_millis() as i64;
        while self.clock.now_ms() < end_ms {
            self.clock.advance(Duration::from_secs(10));
            self.run_due();
        }
    }

    pub(super) fn write(&self, tenant: &TenantId, labels: &[(&str, &str)], time_ms: i64, value: f64) {
        let mut batch = WriteBatch::from_labels();
        batch.push_labels(&Labels::from_pairs(labels.iter().copied()), &[(time_ms, value)]);
        let store = self.service.lifecycle.opened().expect("open");
        let outcome = store.append(&StoreId::from(tenant), &batch).expect("stored");
        assert_eq!(outcome.first_reject, None);
    }

    /// Samples of all series that a selector selects, staleness markers left out, by labels.
    pub(super) fn samples(&self, tenant: &TenantId, selector: &str) -> BTreeMap<String, Points> {
        let value = self.value(tenant, &format!("{selector}[10h]"), self.clock.now_ms());
        let Value::Matrix(series) = value else { panic!("no matrix: {value:?}") };
        let points = |one: &chronolith_promql::MatrixSeries| {
            let pairs = one.times.iter().copied().zip(one.values.iter().map(|value| value.to_bits()));
            (one.labels.to_string(), pairs.collect())
        };
        series.iter().map(points).collect()
    }

    /// Number of results of an instant query.
    pub(super) fn count(&self, tenant: &TenantId, query: &str, time_ms: i64) -> usize {
        match self.value(tenant, query, time_ms) {
            Value::Vector(samples) => {
                assert!(samples.iter().all(|sample| !is_stale(sample.value)));
                samples.len()
            }
            other => panic!("no vector: {other:?}"),
        }
    }

    /// The value of an instant query.
    pub(super) fn value(&self, tenant: &TenantId, query: &str, time_ms: i64) -> Value {
        let service = &self.service;
        let expr = service.queries.parse(query).expect("a query");
        let identity = Identity::internal(tenant);
        let source = service.lifecycle.view(&identity).expect("open");
        let ctx = chronolith_model::ReadContext::unlimited(self.clock.clone());
        let result = service.queries.engine.instant(&*source, &expr, time_ms, None, &ctx);
        result.expect("evaluated").value
    }

    /// The status of the first group.
    pub(super) fn status(&self) -> Arc<GroupStatus> {
        self.service.rules.all().into_iter().next().expect("a group").1
    }

    /// Times of the samples of the series of `selector`, relative to the start, in whole seconds.
    pub(super) fn times_s(&self, selector: &str) -> Vec<i64> {
        let series = self.samples(&TenantId::anonymous(), selector).into_values();
        series.flatten().map(|(time_ms, _)| (time_ms - START_MS).div_euclid(1000)).collect()
    }
}
