//! A protocol of lines, made as a protocol of the server is: a decoder and an answer around the service.
//! `NAME VALUE` per line in, the number of stored samples out. Access, permits, memory, limits, rejects and
//! counters come from the service.

use std::sync::Arc;
use std::time::Duration;

use chronolith_base::{Env, MemDisk};
use chronolith_model::{Labels, METRIC_NAME, Reject, TenantId, TimeUnit, WriteBatch};
use chronolith_service::access::{Identity, Principal, Scope, Scopes, Tenants};
use chronolith_service::activity::rejects::WriteSender;
use chronolith_service::admission::Admission;
use chronolith_service::write::batches::BatchPool;
use chronolith_service::write::destination::Destination;
use chronolith_service::write::{Decode, TargetStore, WriteFailure, WriteTarget, Writes};
use chronolith_service::{Refusal, ServiceOptions};
use chronolith_tsdb::{ReplayProgress, Tsdb, Writer};

const NOW_MS: i64 = 1_700_000_000_000;
/// Lines that are applied together.
const PIECE_LINES: usize = 2;
/// Longest wait for a permit.
const WAIT: Duration = Duration::from_millis(1);

/// Lines of a request that are not decoded yet.
struct Lines<'a>(std::str::Lines<'a>);

impl Decode for Lines<'_> {
    type Error = String;

    fn next_piece(&mut self, batch: &mut WriteBatch) -> Result<bool, String> {
        for line in self.0.by_ref().take(PIECE_LINES) {
            let parts = line.split_once(' ');
            let (name, value) = parts.ok_or_else(|| format!("{line:?}: expected NAME VALUE"))?;
            let value = value.parse().map_err(|_| format!("{line:?}: expected a number, found {value:?}"))?;
            batch.push_labels(&Labels::from_pairs([(METRIC_NAME, name)]), &[(NOW_MS, value)]);
        }
        Ok(!batch.times.is_empty())
    }
}

/// A server of the protocol.
struct Toy {
    store: Arc<Tsdb>,
    admission: Admission,
    writes: Writes,
    batches: BatchPool,
    disk: Arc<MemDisk>,
    env: Env,
    options: ServiceOptions,
}

impl Toy {
    fn new(change: impl FnOnce(&mut ServiceOptions)) -> Toy {
        let (env, _, disk) = Env::fake(NOW_MS, 1);
        let mut options = ServiceOptions::new("/data".into());
        change(&mut options);
        let store = Tsdb::open(env.clone(), options.tsdb_options(), Arc::new(ReplayProgress::default()));
        Toy {
            store: store.expect("opens"),
            admission: Admission::new(&options, &env.clock),
            writes: Writes::new(env.clock.clone(), options.tenant_metrics_max),
            batches: BatchPool::new(WriteBatch::from_labels),
            disk,
            env,
            options,
        }
    }

    /// Answers a request of `tenant` from a sender that may do everything.
    async fn answer(&self, tenant: &TenantId, text: &str) -> Result<u64, String> {
        self.answer_to(&Principal::unrestricted(), tenant, text).await
    }

    /// Answers a request of `tenant`: the number of stored samples, or the text of an error.
    async fn answer_to(&self, sender: &Principal, tenant: &TenantId, text: &str) -> Result<u64, String> {
        let allowed = sender.check(Scope::WriteMetrics, Some(tenant));
        allowed.map_err(|denied| format!("denied: {denied}"))?;
        let refused = |refusal: Refusal| format!("refused: {refusal}");
        let permit = self.admission.write.acquire(tenant, 0, WAIT).await;
        let _permit = permit.map_err(|error| refused(error.into()))?;
        let memory = self.admission.write_memory.of(tenant, 0);
        let held = memory.budget.reserve(text.len() as u64);
        let _held = held.map_err(|full| refused(full.into()))?;
        let destination = Destination::Store(self.store.clone());
        let target = WriteTarget {
            identity: &Identity::internal(tenant),
            store: TargetStore::Default,
            writer: Writer::Client,
        };
        let mut writing = self.writes.begin(&destination, target);
        let applied = writing.apply(&self.batches, &mut Lines(text.lines()));
        applied.map_err(|failure| match failure {
            WriteFailure::Decode(error) => error,
            WriteFailure::Store(failure) => failure.to_string(),
        })?;
        let outcome = writing.wait(|_| {}).map_err(|failure| failure.to_string())?.outcome;
        self.writes.record_outcome(&outcome, TimeUnit::Milli, "", tenant, &WriteSender::default());
        Ok(outcome.accepted_count)
    }

    /// Number of series of a tenant after a loss of power.
    fn series_after_crash(self, tenant: &TenantId) -> u64 {
        let Toy { store, disk, env, options, .. } = self;
        disk.crash();
        drop(store);
        let progress = Arc::new(ReplayProgress::default());
        let store = Tsdb::open(env, options.tsdb_options(), progress).expect("opens again");
        let counts = store.statistics().head_series_by_store();
        counts.into_iter().find(|(id, _)| id.tenant() == Some(tenant)).map_or(0, |(_, count)| count)
    }
}

fn tenant(name: &str) -> TenantId {
    TenantId::new(name).expect("valid")
}

#[tokio::test]
async fn stored_samples_are_counted_by_tenant_and_survive_a_crash() {
    let toy = Toy::new(|options| options.multitenancy = true);
    let (a, b) = (tenant("a"), tenant("b"));
    assert_eq!(toy.answer(&a, "x 1\ny 2\nz 3").await, Ok(3));
    assert_eq!(toy.answer(&b, "x 4").await, Ok(1));
    assert_eq!(toy.answer(&a, "").await, Ok(0));
    let list = toy.writes.tenants.list();
    let counts: Vec<_> = list.iter().map(|(id, stat)| (id.as_str(), stat.accepted.get())).collect();
    assert_eq!(counts[..2], [("a", 3), ("b", 1)]);
    assert_eq!(toy.series_after_crash(&a), 3);
}

#[tokio::test]
async fn an_error_in_a_later_piece_is_no_acknowledgement() {
    let toy = Toy::new(|_| {});
    let a = TenantId::anonymous();
    for (text, want) in [
        ("x", "\"x\": expected NAME VALUE"),
        ("x one", "\"x one\": expected a number, found \"one\""),
        ("x 1\ny 2\nz", "\"z\": expected NAME VALUE"),
        ("x 1\ny 2\nz 3\nx", "\"x\": expected NAME VALUE"),
    ] {
        assert_eq!(toy.answer(&a, text).await, Err(want.to_owned()), "{text}");
    }
    assert_eq!(toy.writes.metrics.failures.get(), 0, "the store refused nothing");
    assert_eq!(toy.writes.tenants.list().len(), 1, "the sum of all others alone: nothing was acknowledged");
    assert_eq!(toy.answer(&a, "x 1\ny 2\nz 3").await, Ok(3), "repeats are accepted");
}

#[tokio::test]
async fn refused_samples_are_listed_while_the_others_are_stored() {
    let toy = Toy::new(|options| options.tsdb.limits.default.series_max = 2);
    let a = TenantId::anonymous();
    assert_eq!(toy.answer(&a, "x 1\ny 2\nz 3").await, Ok(2));
    assert_eq!(toy.writes.metrics.samples_rejected_count(), 1);
    let list = toy.writes.rejects.list(Some(&a), NOW_MS, 10);
    assert_eq!(list.counts.len(), 1);
    assert_eq!((list.counts[0].reason, list.counts[0].total), (Reject::SeriesLimit.reason(), 1));
}

#[tokio::test]
async fn requests_without_a_permit_or_memory_are_refused() {
    let toy = Toy::new(|options| {
        options.write.concurrency = 1;
        options.write.memory_bytes_max = 16;
    });
    let a = TenantId::anonymous();
    let full = toy.answer(&a, "a_name_of_more_than_sixteen_bytes 1").await.expect_err("no memory");
    assert!(full.starts_with("refused: "), "{full}");
    let held = toy.admission.write.acquire(&a, 0, WAIT).await;
    let held = held.unwrap_or_else(|error| panic!("the first permit: {error}"));
    let waited = toy.answer(&a, "x 1").await.expect_err("no permit");
    assert!(waited.starts_with("refused: too many writes: no permit within 1 ms"), "{waited}");
    drop(held);
    assert_eq!(toy.answer(&a, "x 1").await, Ok(1));
}

#[tokio::test]
async fn a_principal_writes_to_its_tenants_alone() {
    let toy = Toy::new(|options| options.multitenancy = true);
    let (a, b) = (tenant("a"), tenant("b"));
    let own = || Tenants::Only([a.clone()].into());
    let writer = Principal::new("agent", own(), Scopes::of([Scope::WriteMetrics]));
    assert_eq!(toy.answer_to(&writer, &a, "x 1").await, Ok(1));
    let denied = toy.answer_to(&writer, &b, "x 1").await;
    assert_eq!(denied, Err("denied: \"agent\" may not name tenant \"b\"".to_owned()));
    let reader = Principal::new("page", own(), Scopes::of([Scope::ReadMetrics]));
    let denied = toy.answer_to(&reader, &a, "y 1").await;
    assert_eq!(denied, Err("denied: \"page\" may not do this: scope metrics:write is missing".to_owned()));
    assert_eq!(toy.series_after_crash(&a), 1, "x alone");
}
